"""A running server is used only if it alone has the database open, serves this session, and would lose nothing."""

import json
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sessions_app.agents.opencode import server as module
from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.opencode.server import OpenCodeServer, is_same_row
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.agent_database import opened_database, row_of
from sessions_app.storage.loopback import loopback_address
from tests.opencode_server import opencode_server
from tests.opencode_stores import OpenCodeStore, worked_session

RESULT = "prt_0007"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return OpenCodeStore(tmp_path_factory.mktemp("opencode"))


@pytest.fixture(scope="module")
def path(store):
    return worked_session(store)


@pytest.fixture(scope="module")
def running(store, path):
    with opencode_server(store.database) as server:
        yield server


@pytest.fixture
def served(running):
    """The server of all tests, behaving as usual again after each of them."""
    yield running
    running.behave()


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(RedlineError) as raised:
        act()
    return raised.value.code


def require_ready(path: Path, url: str) -> None:
    with opened_database(path.parent, "") as connection:
        row = row_of(connection, "part", RESULT)
        assert row is not None
        OpenCodeServer(loopback_address(url), path).require_ready(connection, [row])


def test_the_server_that_alone_has_the_database_open_is_used(path, served):
    server = OPENCODE.server(path, served.url)
    assert server is not None
    assert server.address == served.url
    require_ready(path, served.url)


def test_no_server_is_used_without_an_address_or_at_another_one(path, served):
    assert OPENCODE.server(path, "") is None
    assert OPENCODE.server(path, "http://127.0.0.1:9") is None
    assert OPENCODE.server(path.parent, served.url) is None


def test_no_server_is_used_beside_another_process(store, path, served):
    with opencode_server(store.database):
        assert OPENCODE.server(path, served.url) is None
        assert refusal(lambda: require_ready(path, served.url)) == "open_in_agent"


def test_a_server_of_another_database_is_not_used(path, served, tmp_path):
    other = worked_session(OpenCodeStore(tmp_path / "other"))
    assert OPENCODE.server(other, served.url) is None


def test_a_part_is_deleted_and_made_again(store, path, served):
    (before,) = store.run("SELECT * FROM part WHERE id = ?", RESULT)
    server = OPENCODE.server(path, served.url)
    assert server is not None
    server.delete(before)
    server.delete(before)
    assert store.run("SELECT * FROM part WHERE id = ?", RESULT) == []
    server.write(before)
    (after,) = store.run("SELECT * FROM part WHERE id = ?", RESULT)
    assert after != before
    assert is_same_row(after, before)
    assert not is_same_row({**after, "data": after["data"].replace("output", "other")}, before)
    assert not is_same_row({**after, "message_id": "msg_2"}, before)
    assert not is_same_row(None, before)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE part SET data = json_set(data, '$.state.more', 1) WHERE id = 'prt_0007'", "not_kept"),
        ("UPDATE session SET time_created = 5", "other_database"),
        ("UPDATE session SET id = 'ses_2'", "other_database"),
        ("DELETE FROM part WHERE id = 'prt_0006'", "other_database"),
        ("UPDATE part SET data = json_set(data, '$.tool', 'x') WHERE id = 'prt_0007'", "not_kept"),
    ],
)
def test_a_server_that_shows_something_else_is_refused(path, served, statement, code):
    with closing(sqlite3.connect(":memory:")) as copy, opened_database(path.parent, "") as connection:
        row = row_of(connection, "part", RESULT)
        copy.executescript("\n".join(connection.iterdump()))
        copy.execute(statement)
        row = row_of(copy, "part", RESULT)
        assert row is not None
        server = OpenCodeServer(loopback_address(served.url), path)
        assert refusal(lambda: server.require_ready(copy, [row])) == code


def test_a_server_that_would_lose_a_field_is_refused(store, path, served):
    (row,) = store.run("SELECT data FROM part WHERE id = ?", RESULT)
    store.run("UPDATE part SET data = json_set(data, '$.more', 1) WHERE id = ?", RESULT)
    assert refusal(lambda: require_ready(path, served.url)) == "not_kept"
    store.run("UPDATE part SET data = ? WHERE id = ?", row["data"], RESULT)
    require_ready(path, served.url)


def test_an_older_server_is_refused(path, served):
    for version in ("1.18.33", "1.18.40", "1.20.0", "2.0.0-beta"):
        served.behave(version=version)
        require_ready(path, served.url)
    for version in ("1.18.32", "1.2.27", "0.0.0-dev-202601010000", "local", ""):
        served.behave(version=version)
        assert refusal(lambda: require_ready(path, served.url)) == "server_version", version


def test_a_busy_session_is_refused(path, served):
    served.behave(busy=True)
    assert refusal(lambda: require_ready(path, served.url)) == "session_busy"


ANSWERS = {
    **dict.fromkeys(("<html>", "", '{"id": 1', "NaN"), "not_understood"),
    **dict.fromkeys(("[]", "1"), "server_version"),
    '{"version": "1.18.33", "id": "ses_1", "time": {"created": 1}}': "other_database",
}


def test_an_answer_of_something_else_is_refused(path, served):
    for raw, code in ANSWERS.items():
        served.behave(raw=raw)
        assert refusal(lambda: require_ready(path, served.url)) == code, raw


def test_a_failed_call_is_reported(store, path, served):
    served.behave(fail_at=1)
    server = OPENCODE.server(path, served.url)
    assert server is not None
    (row,) = store.run("SELECT * FROM part WHERE id = ?", RESULT)
    assert refusal(lambda: server.delete(row)) == "server_failed"


@pytest.mark.parametrize(
    ("user", "password", "accepted", "refused"),
    [
        ("opencode", "secret", ("", "secret"), [("", "other"), ("", "")]),
        ("me", "secret", ("me", "secret"), [("", "secret")]),
        ("opencode", "", ("", "needless"), []),
    ],
)
def test_the_password_is_the_clients_own(tmp_path, monkeypatch, user, password, accepted, refused):
    """A server has its own password, so each of these starts one."""

    def give(given: tuple[str, str]) -> None:
        for name, value in zip((module.USER_VARIABLE, module.PASSWORD_VARIABLE), given, strict=True):
            monkeypatch.setenv(name, value)

    path = worked_session(OpenCodeStore(tmp_path))
    with opencode_server(path.parent, password, user) as server:
        give(accepted)
        require_ready(path, server.url)
        for given in refused:
            give(given)
            with pytest.raises(RedlineError) as raised:
                require_ready(path, server.url)
            assert raised.value.code == "server_password"
            assert "OPENCODE_SERVER_PASSWORD" in raised.value.message
            assert not any(secret in raised.value.message for secret in ("secret", "other"))


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n12", b"no http\r\n\r\n"])
def test_a_server_that_does_not_answer_is_not_waited_for(path, monkeypatch, answer):
    monkeypatch.setattr(module, "SECONDS", 0.2)
    monkeypatch.setattr(OpenCodeServer, "is_alone", lambda _: True)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(answer)
                done.wait(30)

        done = threading.Event()
        thread = threading.Thread(target=respond)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert refusal(lambda: require_ready(path, url)) == "server_unreachable"
        done.set()
        thread.join()
    assert refusal(lambda: require_ready(path, url)) == "server_unreachable"


def test_a_row_that_is_no_object_is_like_no_other():
    row = {"id": "1", "data": "[]"}
    assert is_same_row(row, dict(row))
    assert not is_same_row(row, {**row, "data": "[ ]"})
    assert not is_same_row({**row, "data": json.dumps({"a": 1})}, {**row, "data": json.dumps({"a": True})})
    assert is_same_row({**row, "data": '{"a": 1.0, "b": 2}'}, {**row, "data": '{"b":2,"a":1}'})
