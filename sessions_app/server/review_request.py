"""EDGE: a hook command requests a review from the server, and waits for the decision.

| what happens                                                  | a manual compaction | an automatic one |
|---------------------------------------------------------------|---------------------|------------------|
| the first request is not answered                             | as usual            | as usual         |
| the first answer is an error                                  | as usual            | as usual         |
| the polls were not answered for `grace` seconds               | is cancelled        | as usual         |
| the answer is still `wait` when `seconds` and `grace` are over | is cancelled        | as usual         |
| the agent that called the command has gone, or stops it       | is cancelled        | is cancelled     |
| the command is killed, as Codex does to stop it               | is cancelled        | is cancelled     |

A failed poll is repeated: a restarted server still has the review request. The connection file is read again for each
poll, because the server may have moved to another port. Requests and answers are described in docs/handshake.md; they
use loopback only, without redirects and proxies. The bridge applies nothing itself, so it reads few fields.

If its compaction is stopped, an agent ends the command, or the process through which it called the command, or stops
reading. Each is detected: by a signal, by a different parent process, by a closed reading end of standard output. Codex
kills the command, which only another process can detect.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import Annotated, Any, Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from sessions_app.agents.pure.hooks import MANUAL, HookStep
from sessions_app.sessionlog.text import printable

from .connection_files import PATH, ConnectedAgent, connection

FIRST_SECONDS: Final = 60
"""The timeout of the first answer, in seconds: the server first reads the part that was added to the session."""
POLL_SECONDS: Final = 10
LAST_SECONDS: Final = 3
"""The timeout of the report that the agent no longer waits, in seconds."""
WITHDRAWN: Final[Mapping[str, Any]] = {"outcome": "withdrawn"}


class HookOutcome(NamedTuple):
    """The agent's next step, and the reason in one line."""

    step: HookStep
    message: str


def lost(reason: str, why: str) -> HookOutcome:
    """The outcome if the server stops responding after its first answer."""
    if reason == MANUAL:
        return HookOutcome(
            HookStep.CONTINUE,
            f"{why} Nothing was compacted. If you start the compaction again without Redline, it runs as usual.",
        )
    return HookOutcome(HookStep.COMPACT, f"{why} The compaction runs as usual.")


def request_review(
    requests: ServerRequests,
    fields: Mapping[str, Any],
    still_waits: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
    if_killed: Callable[[Callable[[], object]], AbstractContextManager[object]] = nullcontext,
) -> HookOutcome:
    """Send a review request with the fields of docs/handshake.md, and return the decision.

    `still_waits` waits for some seconds; it returns False immediately if the agent is gone. `if_killed` makes a context
    in which its argument is called if this process is killed.
    """
    try:
        answer = requests.post("", fields, FIRST_SECONDS)
    except RequestRefused as refused:
        return HookOutcome(HookStep.COMPACT, str(refused))
    except NoAnswer as fault:
        return HookOutcome(HookStep.COMPACT, f"Redline was not asked: {fault}. The compaction runs as usual.")
    if answer.do == WAIT:
        with if_killed(lambda: _withdraw(requests, f"/{answer.id}")):
            return _decision(requests, fields["reason"], answer, still_waits, clock)
    return HookOutcome(HookStep(answer.do), answer.message)


def _decision(
    requests: ServerRequests,
    reason: str,
    answer: ServerAnswer,
    still_waits: Callable[[float], bool],
    clock: Callable[[], float],
) -> HookOutcome:
    """Poll for the decision, after a first answer to wait."""
    answered_at = clock()
    ends_at = answered_at + answer.seconds + answer.grace
    place, grace = f"/{answer.id}", answer.grace
    while answer.do == WAIT:
        if not still_waits(answer.poll):
            _withdraw(requests, place)
            return HookOutcome(HookStep.CONTINUE, "The compaction was stopped.")
        try:
            answer = requests.get(place, POLL_SECONDS)
            answered_at = clock()
        except (NoAnswer, RequestRefused) as fault:
            if clock() - answered_at >= grace:
                return lost(reason, f"Redline has not answered for {grace:.0f} seconds ({fault}).")
        if answer.do == WAIT and clock() >= ends_at:
            _withdraw(requests, place)
            return lost(reason, "Redline has not decided in time.")
    return HookOutcome(HookStep(answer.do), answer.message)


def _withdraw(requests: ServerRequests, place: str) -> None:
    """Report that the agent no longer waits. If the report is lost, the review request times out."""
    try:
        requests.post(place, WITHDRAWN, LAST_SECONDS)
    except (NoAnswer, RequestRefused):
        return


# ---- requests to the server ------------------------------------------------------------------------------

HOSTS: Final = ("127.0.0.1", "localhost", "::1")
BODY_LIMIT: Final = 1_000_000
ERRORS_FROM: Final = 400
DONE: Final = (200, 201)
WAIT: Final = "wait"
MESSAGE_CHARACTERS: Final = 2_000
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class ServerAnswer(msgspec.Struct, frozen=True):
    """An answer to a review request, a poll or a report, without the fields that a hook does not need."""

    do: Literal["wait", "compact", "continue", "stop"]
    message: str
    id: Annotated[int, msgspec.Meta(ge=0)] = 0
    seconds: Seconds = 0
    poll: Annotated[float, msgspec.Meta(ge=0.05, le=60)] = 0.5
    grace: Seconds = 30


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


def answer_in(body: bytes) -> ServerAnswer:
    """The answer in a body. Raises ValueError if the body is anything else."""
    found = msgspec.json.decode(body, type=ServerAnswer)
    return msgspec.structs.replace(found, message=_one_line(found.message))


def error_in(body: bytes) -> str:
    """The message of an error; empty if a body has none."""
    try:
        return _one_line(msgspec.json.decode(body, type=_Refusal).error.message)
    except ValueError:
        return ""


def _one_line(text: str) -> str:
    return printable(" ".join(text[:MESSAGE_CHARACTERS].split()))


class NoAnswer(Exception):
    """There was no usable answer; the text says why, without a full stop."""


class RequestRefused(Exception):
    """The server answered with an error; the text is its message."""


class ServerRequests:
    """The requests of one connection. Its file is read again for each of them."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> ServerAnswer:
        """Send a POST request. Arguments and errors are those of `get`."""
        return self._send("POST", path, json.dumps(body).encode(), seconds)

    def get(self, path: str, seconds: float) -> ServerAnswer:
        """Send a GET request. `path` is relative to that of the API; `seconds` is the time limit for the whole answer.

        Raises NoAnswer and RequestRefused.
        """
        return self._send("GET", path, None, seconds)

    def _send(self, method: str, path: str, body: bytes | None, seconds: float) -> ServerAnswer:
        known = self._connection()
        host, port = _address(known.url)
        headers = {"Authorization": f"Bearer {known.token}", "Content-Type": "application/json"}
        try:
            with _connected(host, port, seconds) as server:
                server.request(method, PATH + path, body, headers)
                response = server.getresponse()
                status, content = response.status, response.read(BODY_LIMIT)
        except (OSError, HTTPException, ValueError) as fault:
            raise NoAnswer(f"{known.url} gave no answer ({fault or type(fault).__name__})") from fault
        if status >= ERRORS_FROM:
            words = error_in(content) or f"{known.url} answered with the status {status}."
            raise RequestRefused(words)
        if status not in DONE:
            raise NoAnswer(f"{known.url} answered with the status {status}")
        try:
            return answer_in(content)
        except ValueError as fault:
            raise NoAnswer(f"{known.url} answered something else ({fault})") from fault

    def _connection(self) -> ConnectedAgent:
        try:
            found = connection(self._directory, self._name)
        except (OSError, ValueError) as fault:
            raise NoAnswer(f"the connection {self._name} could not be read ({fault})") from fault
        if found is None:
            raise NoAnswer(f"there is no connection {self._name}")
        if not found.url:
            raise NoAnswer("its server has not been started yet")
        return found


def _address(url: str) -> tuple[str, int]:
    """The host and the port of a server on this machine. Raises NoAnswer."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host not in HOSTS or port is None or parts.scheme != "http":
        raise NoAnswer(f"{url} is not an address on this machine")
    return host, port


@contextmanager
def _connected(host: str, port: int, seconds: float) -> Iterator[HTTPConnection]:
    """A connection that ends after some seconds, however slowly the other end sends."""
    with closing(HTTPConnection(host, port, timeout=seconds)) as server:
        server.connect()
        timer = Timer(seconds, _end, (server.sock,))
        timer.daemon = True
        timer.start()
        try:
            yield server
        finally:
            timer.cancel()


def _end(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


# ---- the agent that called the command -------------------------------------------------------------------

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_SECONDS: Final = 0.1
"""Seconds between two checks whether the agent still waits."""
ENDED: Final = b"."


class Caller:
    """The process that called this one. Between `__enter__` and `__exit__`, signals do not end this process."""

    def __init__(self, output: int) -> None:
        """`output` is the descriptor that the agent reads."""
        self._parent = os.getppid()
        self._is_stopped = False
        self._watched = select.poll()
        self._watched.register(output, 0)
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._earlier = {one: signal.signal(one, self._stop) for one in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._earlier.items():
            signal.signal(one, handler)

    def still_waits(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Wait for some seconds; returns False as soon as the agent no longer waits."""
        end = clock() + seconds
        while not self.has_gone:
            left = end - clock()
            if left <= 0:
                return True
            sleep(min(left, LOOK_SECONDS))
        return False

    @property
    def has_gone(self) -> bool:
        # No events are requested: those for a closed reading end are always reported.
        return self._is_stopped or os.getppid() != self._parent or bool(self._watched.poll(0))

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._is_stopped = True


@contextmanager
def report_if_killed(report: Callable[[], object]) -> Iterator[None]:
    """Let another process call `report` if this one is killed before the end of the block.

    That process is in a separate session, so that it survives an agent that kills a process group. It closes the
    descriptors that an agent reads until all their writers are gone.
    """
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        # No process can be started. The review request then times out.
        os.close(reader)
        os.close(writer)
        yield
        return
    if child == 0:
        try:
            os.setsid()
            os.close(writer)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nowhere, descriptor)
            if os.read(reader, 1) != ENDED:
                report()
        finally:
            os._exit(0)
    os.close(reader)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(writer, ENDED)
        os.close(writer)
        os.waitpid(child, 0)
