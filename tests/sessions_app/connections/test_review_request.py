"""A hook command asks the server: its requests, whether the agent still waits, and what is decided in each case.

The decisions are the rows of the table in docs/handshake.md. The server may answer late, not at all, with errors,
garbage, redirects and huge bodies.
"""

import contextlib
import json
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sessions_app.agents.pure.hooks import HookStep
from sessions_app.server.connection_files import connection, connection_path, write_connection
from sessions_app.server.review_request import (
    SIGNALS,
    Caller,
    NoAnswer,
    RequestRefused,
    ServerAnswer,
    ServerRequests,
    report_if_killed,
    request_review,
)
from tests.standin_redline import HOST, WAITING, Asked, Said, StandInRedline, waiting
from tests.wait import wait_until

NAME = "claude-code"
SHORT = 0.2
Reply = ServerAnswer | NoAnswer | RequestRefused
GONE = NoAnswer("the connection was refused")
REFUSED = RequestRefused("The session is not listed. The agent compacts as usual.")
AUTOMATIC = ["threshold", "overflow"]
STEPS = {"manual": HookStep.CONTINUE, **dict.fromkeys(AUTOMATIC, HookStep.COMPACT)}
lost = pytest.mark.parametrize(("reason", "step"), STEPS.items())
every_reason = pytest.mark.parametrize("reason", ["manual", *AUTOMATIC])


def wait(seconds: float = 600, grace: float = 30) -> ServerAnswer:
    return ServerAnswer("wait", "Redline waits.", 12, seconds, 0.5, grace)


def decided(do: Any, message: str = "Words.") -> ServerAnswer:
    return ServerAnswer(do, message, 12)


class Played:
    """A server that plays replies, the last one for ever, and a clock that only waiting and time-outs move."""

    def __init__(self, *replies: Reply, stopped_at: float = float("inf"), slow: bool = False) -> None:
        self._replies = deque(replies)
        self._stopped_at, self._slow = stopped_at, slow
        self.now = 0.0
        self.sent: list[tuple[str, Any]] = []

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> ServerAnswer:
        self.sent.append((path, body))
        return self._next(seconds)

    def get(self, path: str, seconds: float) -> ServerAnswer:
        assert path == "/12"
        return self._next(seconds)

    def still_waits(self, seconds: float) -> bool:
        self.now += seconds
        return self.now < self._stopped_at

    def _next(self, seconds: float) -> ServerAnswer:
        reply = self._replies.popleft() if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, ServerAnswer):
            return reply
        if self._slow:
            self.now += seconds
        raise reply


def asked(reason: str, played: Played) -> tuple[HookStep, str]:
    question = {"session": "/s.jsonl", "reason": reason}
    decision = request_review(played, question, played.still_waits, lambda: played.now)
    assert played.sent[0] == ("", question)
    return decision


@every_reason
@pytest.mark.parametrize("do", HookStep)
def test_what_the_server_decides_is_done(reason, do):
    assert asked(reason, Played(decided(do))) == (do, "Words.")
    played = Played(wait(), wait(), GONE, wait(), decided(do))
    assert asked(reason, played) == (do, "Words.")
    assert len(played.sent) == 1


@every_reason
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (GONE, "Redline was not asked: the connection was refused. The compaction runs as usual."),
        (REFUSED, str(REFUSED)),
    ],
)
def test_without_a_first_answer_the_agent_compacts_and_shows_why(reason, fault, message):
    assert asked(reason, Played(fault)) == (HookStep.COMPACT, message)


@pytest.mark.parametrize("fault", [GONE, REFUSED])
@lost
def test_a_server_that_was_reached_and_is_gone(reason, step, fault):
    played = Played(wait(), wait(), fault)
    found, message = asked(reason, played)
    assert found is step
    assert message.startswith("Redline has not answered for 30 seconds")
    assert 30 <= played.now <= 32
    assert ("Nothing was compacted." in message) is (reason == "manual")


def test_polls_that_fail_for_less_than_the_grace_are_repeated_and_slow_ones_not_waited_for_longer():
    failing = [GONE] * 50
    played = Played(wait(), *failing, wait(), *failing, decided("continue"))
    assert asked("manual", played) == (HookStep.CONTINUE, "Words.")
    assert played.now > 50
    played = Played(wait(), GONE, slow=True)
    asked("manual", played)
    assert played.now < 30 + 10.0 + 2


@lost
def test_a_server_that_never_decides_is_lost_after_its_own_time_and_the_grace(reason, step):
    played = Played(wait(seconds=100))
    assert asked(reason, played)[0] is step
    assert 130 <= played.now < 132
    assert played.sent[1:] == [("/12", {"outcome": "withdrawn"})]


@every_reason
@pytest.mark.parametrize("last", [decided("continue"), GONE, REFUSED])
def test_an_agent_that_has_gone_is_reported_once(reason, last):
    played = Played(wait(), wait(), wait(), last, stopped_at=1.4)
    assert asked(reason, played) == (HookStep.CONTINUE, "The compaction was stopped.")
    assert played.sent[1:] == [("/12", {"outcome": "withdrawn"})]


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


class Clock:
    """Time that only sleeping moves; `during` is called in the third sleep."""

    def __init__(self, during: object = None) -> None:
        self.now, self.sleeps, self._during = 0.0, 0, during

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        if self.sleeps == 3 and callable(self._during):
            self._during()

    def __call__(self) -> float:
        return self.now


def test_it_waits_as_long_as_it_is_to(pipe):
    clock = Clock()
    with Caller(pipe[1]) as caller:
        assert caller.still_waits(60, clock, clock.sleep)
    assert clock.now == pytest.approx(60)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_wait_at_once_and_nothing_else(number, pipe):
    earlier = signal.getsignal(number)
    clock = Clock(lambda: signal.raise_signal(number))
    with Caller(pipe[1]) as caller:
        assert not caller.still_waits(60, clock, clock.sleep)
        assert clock.sleeps == 3
        assert not caller.still_waits(60, clock, clock.sleep)
    assert signal.getsignal(number) == earlier


def test_a_file_is_always_read(tmp_path):
    clock = Clock()
    with (tmp_path / "out").open("w") as file, Caller(file.fileno()) as caller:
        assert caller.still_waits(1, clock, clock.sleep)


@pytest.mark.parametrize("is_read", [True, False], ids=["another parent", "nobody reads any more"])
def test_an_agent_that_has_gone_is_not_waited_for(is_read, pipe, monkeypatch):
    clock = Clock(lambda: monkeypatch.setattr(os, "getppid", lambda: 1) if is_read else os.close(pipe[0]))
    with Caller(pipe[1]) as caller:
        assert not caller.still_waits(60, clock, clock.sleep)
    assert clock.sleeps == 3


@pytest.mark.parametrize("is_killed", [True, False])
def test_only_a_process_that_is_killed_is_reported(is_killed, tmp_path):
    report = tmp_path / "report"
    child = os.fork()
    if child == 0:
        try:
            with report_if_killed(lambda: report.write_text("killed")):
                if is_killed:
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) is is_killed
    # What was not reported when its block has ended is not reported later.
    assert not is_killed or wait_until(report.exists)
    assert report.exists() is is_killed


def test_an_error_passes_and_is_not_reported(tmp_path):
    report = tmp_path / "report"
    with pytest.raises(ZeroDivisionError), report_if_killed(report.touch):
        raise ZeroDivisionError
    assert not report.exists()


@pytest.fixture
def server():
    with StandInRedline() as one:
        yield one


@pytest.fixture
def requests(server, tmp_path):
    server.connect(tmp_path, NAME)
    return ServerRequests(tmp_path, NAME)


def redirect(tmp_path: Path, url: str) -> ServerRequests:
    """The same connection, with another address."""
    one: Any = connection(tmp_path, NAME)
    write_connection(tmp_path, msgspec.structs.replace(one, url=url))
    return ServerRequests(tmp_path, NAME)


def test_a_question_is_sent_with_the_token_and_the_connection_is_read_again_each_time(server, requests, tmp_path):
    answer = requests.post("", {"agent": NAME}, 10)
    assert server.asked == [Asked("POST", "/api/handshakes", {"agent": NAME}, "a-token")]
    assert (answer.do, answer.id, answer.seconds, answer.poll, answer.grace) == ("wait", 12, 600, 0.05, 30)
    requests.get("/12", 10)
    assert server.asked[1] == Asked("GET", "/api/handshakes/12", None, "a-token")
    with StandInRedline() as other:
        redirect(tmp_path, other.url)
        requests.get("/12", 10)
        assert (len(server.asked), len(other.asked)) == (2, 1)
    connection_path(tmp_path, NAME).unlink()
    with pytest.raises(NoAnswer, match="no connection"):
        requests.get("/12", 10)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (Said({"error": {"code": "x", "message": "Not\nlisted\x1b[1m."}}, 400), r"\ANot listed\\x1b\[1m\.\Z"),
        (Said(b"<h1>Bad gateway</h1>", 502), "answered with the status 502"),
    ],
)
def test_an_error_has_its_message(server, requests, said, message):
    server.answers.append(said)
    with pytest.raises(RequestRefused, match=message):
        requests.get("/12", 10)


def test_neither_garbage_nor_a_redirect_is_an_answer(server, requests):
    wrong = {"do": ["apply", 1], "message": [None], "seconds": [-1, 1e300], "poll": [0], "id": ["../.."]}
    documents = [{**WAITING, name: value} for name, values in wrong.items() for value in values]
    endless = b'{"do": "wait", "message": "%s"}' % (b"x" * 2_000_000)
    for body in (b"", b"[]", b"<html>", b"\xff", {}, endless, *documents):
        server.answers.append(Said(body))
        with pytest.raises(NoAnswer):
            requests.get("/12", 10)
    with StandInRedline() as other:
        for status in (204, 301, 302, 307, 308):
            server.answers.append(Said(b"", status, {"Location": f"{other.url}/api/handshakes"}))
            with pytest.raises(NoAnswer):
                requests.post("", {}, 10)
        assert other.asked == []


def test_a_message_is_one_line_of_plain_text(server, requests):
    server.answers.append(waiting(message="a\r\nb\x1b]0;x\x07\u202e" + "c" * 10_000))
    message = requests.get("/12", 10).message
    assert message.isprintable()
    assert len(message) < 3_000


def test_an_answer_that_is_late_does_not_count(server, requests):
    release = threading.Event()
    server.answers.append(Said(dict(WAITING), before=release.wait))
    with pytest.raises(NoAnswer):
        requests.get("/12", SHORT)
    release.set()


def test_an_answer_that_comes_byte_by_byte_does_not_keep_the_agent(tmp_path):
    """Each byte comes in time, and the answer never ends."""
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not over.wait(SHORT / 10):
                with contextlib.suppress(OSError):
                    accepted.sendall(b"x")

    with socket.create_server((HOST, 0)) as listener, StandInRedline() as named:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        named.connect(tmp_path, NAME)
        with pytest.raises(NoAnswer):
            redirect(tmp_path, f"http://{HOST}:{listener.getsockname()[1]}").get("/12", SHORT)
        over.set()
        thread.join()


def test_nobody_listens(tmp_path):
    with StandInRedline() as server:
        server.connect(tmp_path, NAME)
    with pytest.raises(NoAnswer, match="refused"):
        ServerRequests(tmp_path, NAME).post("", {}, 10)


def test_other_machines_are_not_asked(server, requests, tmp_path):
    for address in (
        "", "http://example.org:80", "http://127.0.0.1", "http://127.0.0.1:99999", "http://127.0.0.2:80",
        "https://127.0.0.1:80", "file:///etc/passwd", "http://[::1:80", "http://127.0.0.1.example.org:80", "nonsense",
    ):  # fmt: skip
        with pytest.raises(NoAnswer):
            redirect(tmp_path, address).post("", {}, 10)
    port = server.url.rsplit(":", 1)[1]
    for host in ("127.0.0.2", "localhost.example", "127.0.0.1@127.0.0.2"):
        with pytest.raises(NoAnswer, match="is not an address on this machine"):
            redirect(tmp_path, f"http://{host}:{port}").get("/12", 1)
    assert server.asked == []


def test_proxies_are_not_used(server, requests, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert requests.get("/12", 10).do == "wait"


def test_a_damaged_connection_is_no_answer(tmp_path):
    path = connection_path(tmp_path, NAME)
    path.parent.mkdir()
    for content in (b"", b"{}", b"[]", b"\xff", json.dumps({"name": NAME}).encode()):
        path.write_bytes(content)
        with pytest.raises(NoAnswer, match="could not be read"):
            ServerRequests(tmp_path, NAME).get("/12", 10)
    for name in ("../x", "", "a/b", "X", "x" * 100):
        with pytest.raises(NoAnswer):
            ServerRequests(tmp_path, name).get("/12", 10)
