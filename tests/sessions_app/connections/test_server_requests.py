"""Requests of a bridge against servers that answer late, not at all, with errors, garbage, redirects, huge bodies."""

import json
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from sessions_app.connections.connection_files import connection, connection_path, keep_connection
from sessions_app.connections.server_requests import NoAnswer, RequestRefused, ServerRequests
from tests.standin_redline import HOST, WAITING, Asked, Said, StandInRedline, waiting

NAME = "claude-code"
SHORT = 0.2


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
    one = connection(tmp_path, NAME)
    assert one is not None
    keep_connection(tmp_path, msgspec.structs.replace(one, url=url))
    return ServerRequests(tmp_path, NAME)


def test_a_question_is_sent_with_the_token(server, requests):
    answer = requests.post("", {"agent": NAME}, 10)
    assert server.asked == [Asked("POST", "/api/handshakes", {"agent": NAME}, "a-token")]
    assert (answer.do, answer.id, answer.seconds, answer.poll, answer.grace) == ("wait", 12, 600, 0.05, 30)
    requests.get("/12", 10)
    assert server.asked[1] == Asked("GET", "/api/handshakes/12", None, "a-token")


def test_the_connection_is_read_again_for_each_request(server, requests, tmp_path):
    requests.get("/12", 10)
    with StandInRedline() as other:
        redirect(tmp_path, other.url)
        requests.get("/12", 10)
        assert (len(server.asked), len(other.asked)) == (1, 1)
    connection_path(tmp_path, NAME).unlink()
    with pytest.raises(NoAnswer, match="no connection"):
        requests.get("/12", 10)


def test_an_error_has_its_message(server, requests):
    server.answers.append(Said({"error": {"code": "x", "message": "Not\nlisted\x1b[1m."}}, 400))
    with pytest.raises(RequestRefused, match=r"\ANot listed\\x1b\[1m\.\Z"):
        requests.get("/12", 10)
    server.answers.append(Said(b"<h1>Bad gateway</h1>", 502))
    with pytest.raises(RequestRefused, match="answered with the status 502"):
        requests.get("/12", 10)


def test_garbage_is_no_answer(server, requests):
    wrong = {"do": ["apply", 1], "message": [None], "seconds": [-1, 1e300], "poll": [0], "id": ["../.."]}
    documents = [{**WAITING, name: value} for name, values in wrong.items() for value in values]
    endless = b'{"do": "wait", "message": "%s"}' % (b"x" * 2_000_000)
    for body in (b"", b"[]", b"<html>", b"\xff", {}, endless, *documents):
        server.answers.append(Said(body))
        with pytest.raises(NoAnswer):
            requests.get("/12", 10)


def test_redirects_are_not_followed(server, requests):
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
                try:
                    accepted.sendall(b"x")
                except OSError:
                    return

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
