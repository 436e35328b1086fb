"""OpenCode itself: its running server, its settings, and the rows of a session that it is to continue.

A server is used only if it alone has the database open, serves this session, and would lose nothing.
"""

import json
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.opencode.edge import server as module
from sessions_app.agents.opencode.edge.client import MODEL as USUAL_MODEL, SessionRows
from sessions_app.agents.opencode.edge.server import OpenCodeServer, is_same_row
from sessions_app.agents.registry import model_prices, model_windows
from sessions_app.disk.agent_database import opened_database, read_row
from sessions_app.disk.loopback import loopback_address
from sessions_app.sessionlog.errors import RedlineError
from tests.files import place
from tests.installation import refusal
from tests.opencode_server import ServedDatabase, opencode_server
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.processes import holding

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


def require_ready(path: Path, url: str) -> None:
    with opened_database(path.parent, "") as connection:
        row = read_row(connection, "part", RESULT)
        assert row is not None
        OpenCodeServer(loopback_address(url), path).require_ready(connection, [row])


def readiness(path: Path, url: str) -> str:
    """`done`, or why a server is not used."""
    return refusal(lambda: require_ready(path, url))


def server_of(path: Path, served: ServedDatabase) -> Any:
    server = OPENCODE.store.server(path, served.url)
    assert server is not None
    return server


def test_only_the_server_that_alone_has_the_database_open_is_used(path, served, tmp_path):
    assert server_of(path, served).address == served.url
    require_ready(path, served.url)
    assert OPENCODE.store.server(path, "") is None
    assert OPENCODE.store.server(path, "http://127.0.0.1:9") is None
    assert OPENCODE.store.server(path.parent, served.url) is None
    assert OPENCODE.store.server(worked_session(OpenCodeStore(tmp_path / "other")), served.url) is None


def test_no_server_is_used_beside_another_process(store, path, served):
    with holding(store.database):
        assert OPENCODE.store.server(path, served.url) is None
        assert readiness(path, served.url) == "4 open_in_agent"


def test_a_part_is_deleted_and_made_again(store, path, served):
    (before,) = store.run("SELECT * FROM part WHERE id = ?", RESULT)
    server = server_of(path, served)
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
        ("UPDATE part SET data = json_set(data, '$.state.more', 1) WHERE id = 'prt_0007'", "4 not_kept"),
        ("UPDATE session SET time_created = 5", "4 other_database"),
        ("UPDATE session SET id = 'ses_2'", "4 other_database"),
        ("DELETE FROM part WHERE id = 'prt_0006'", "4 other_database"),
        ("UPDATE part SET data = json_set(data, '$.tool', 'x') WHERE id = 'prt_0007'", "4 not_kept"),
    ],
)
def test_a_server_that_shows_something_else_is_refused(path, served, statement, code):
    with closing(sqlite3.connect(":memory:")) as copy, opened_database(path.parent, "") as connection:
        copy.executescript("\n".join(connection.iterdump()))
        copy.execute(statement)
        row = read_row(copy, "part", RESULT)
        assert row is not None
        server = OpenCodeServer(loopback_address(served.url), path)
        assert refusal(lambda: server.require_ready(copy, [row])) == code


def test_a_server_with_another_interface_is_refused(path, served):
    for version in ("1.18.33", "1.18.40", "1.20.0"):
        served.behave(version=version)
        require_ready(path, served.url)
    for version in ("1.18.32", "1.2.27", "0.0.0-dev-202601010000", "local", "", "2.0.0-beta", "2.0.16"):
        served.behave(version=version)
        assert readiness(path, served.url) == "2 server_version", version
    served.behave(raw="<!doctype html>", info='{"version": "2.0.16"}')
    words = ("is OpenCode 2.0.16", "OpenCode 2 has another interface")
    assert refusal(lambda: require_ready(path, served.url), *words) == "2 server_version"


def test_a_busy_session_and_an_answer_of_something_else_are_refused(path, served):
    served.behave(busy=True)
    assert readiness(path, served.url) == "4 session_busy"
    for raw, code in ANSWERS.items():
        served.behave(raw=raw)
        assert readiness(path, served.url) == code, raw


ANSWERS = {
    **dict.fromkeys(("<html>", "", '{"id": 1', "NaN"), "6 not_understood"),
    **dict.fromkeys(("[]", "1"), "2 server_version"),
    '{"version": "1.18.33", "id": "ses_1", "time": {"created": 1}}': "4 other_database",
}


def test_a_failed_call_is_reported(store, path, served):
    served.behave(fail_at=1)
    (row,) = store.run("SELECT * FROM part WHERE id = ?", RESULT)
    assert refusal(lambda: server_of(path, served).delete(row)) == "6 server_failed"


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
        assert readiness(path, url) == "6 server_unreachable"
        done.set()
        thread.join()
    assert readiness(path, url) == "6 server_unreachable"


def test_a_row_that_is_no_object_is_like_no_other():
    row = {"id": "1", "data": "[]"}
    assert is_same_row(row, dict(row))
    assert not is_same_row(row, {**row, "data": "[ ]"})
    assert not is_same_row({**row, "data": json.dumps({"a": 1})}, {**row, "data": json.dumps({"a": True})})
    assert is_same_row({**row, "data": '{"a": 1.0, "b": 2}'}, {**row, "data": '{"b":2,"a":1}'})


def lines(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


def test_the_rows_take_the_place_of_those_of_the_clients_session(tmp_path):
    store = OpenCodeStore(tmp_path)
    store.session("ses_own", title="New session")
    store.user("Of the client.", session_id="ses_own")
    user = {"role": "user", "model": {"providerID": "p", "modelID": "old"}}
    assistant = {"role": "assistant", "providerID": "p", "modelID": "new"}
    text, revert = {"type": "text", "text": "go é"}, {"messageID": "msg_1"}
    recorded = lines(
        {"type": "session", "id": "ses_1", "data": {"title": "Mine"}},
        {"type": "message", "id": "msg_2", "data": user},
        {"type": "part", "id": "prt_1", "message": "msg_2", "data": text},
        {"type": "message", "id": "msg_1", "data": assistant},
        {"type": "revert", "data": revert, "after": "prt_1"},
        {"type": "message", "id": "msg_3", "data": 7},
    )
    rows = SessionRows([*recorded, b'{"type":"message",'])
    assert rows.model == ("p", "new")
    assert rows.insert(store.database) == "ses_own"
    ordered = store.run("SELECT id, session_id, data FROM message ORDER BY time_created")
    parts = store.run("SELECT id, message_id, session_id, data FROM part")
    (session,) = store.run("SELECT title, revert FROM session")
    found = [(*ids, json.loads(data)) for *ids, data in (row.values() for row in [*ordered, *parts])]
    expected = [("msg_2", "ses_own", user), ("msg_1", "ses_own", assistant), ("prt_1", "msg_2", "ses_own", text)]
    assert found == expected
    assert session["title"] != "New session"
    assert json.loads(session["revert"]) == revert
    assert SessionRows([]).model == USUAL_MODEL, "a session without messages has a model"


MODEL = ("ours", "big")


@pytest.fixture(autouse=True)
def no_other_configuration(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def write(directory: Path, name: str = "opencode.json", **values: Any) -> Path:
    return place(directory / name, f"// Comments are allowed.\n{json.dumps(values)}".encode())


def limited(**limits: int) -> dict[str, Any]:
    return {MODEL[0]: {"models": {MODEL[1]: {"limit": limits}}}}


@pytest.mark.parametrize(
    ("limits", "reserved", "reserve"),
    [
        ({}, None, 32_000),
        ({"context": 40_000, "output": 4_000}, None, 4_000),
        ({"context": 40_000, "output": 4_000}, 9_000, 4_000),
        ({"context": 200_000, "output": 64_000}, None, 32_000),
        ({"context": 400_000, "input": 272_000, "output": 128_000}, None, 148_000),
        ({"context": 400_000, "input": 272_000, "output": 8_000}, None, 136_000),
        ({"context": 400_000, "input": 272_000, "output": 128_000}, 1_000, 129_000),
        ({"input": 272_000}, 0, 0),
    ],
)
def test_a_reply_or_the_limit_of_input_is_left_free(home, cwd, limits, reserved, reserve):
    compaction = {} if reserved is None else {"reserved": reserved}
    write(home / ".config" / "opencode", provider=limited(**limits), compaction=compaction)
    assert OPENCODE.settings.for_project(str(cwd), home, MODEL).budget.reserve_tokens == reserve
    assert OPENCODE.settings.for_project(str(cwd), home, None).budget.reserve_tokens == 32_000


def test_the_settings_of_the_project_take_precedence(home, cwd):
    users = write(home / ".config" / "opencode", compaction={"auto": True}, provider=limited(output=8_000))
    own = write(cwd, "opencode.jsonc", compaction={"auto": False}, provider=limited(output=4_000))
    found = OPENCODE.settings.for_project(str(cwd), home, MODEL)
    assert [file.path for file in found.files] == [own, users]
    assert found.budget.reserve_tokens == 4_000
    assert found.switched_off_in == own


def test_the_windows_and_prices_of_configured_models_are_known(home):
    cost = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
    models = {"big": {"cost": cost, "limit": {"context": 77_000}}, "small": {"cost": "free"}}
    write(home / ".config" / "opencode", provider={"ours": {"models": models}})
    assert model_windows(home) == {"big": 77_000}
    assert model_prices(home) == {"big": (3, 0.3, 3.75)}


@pytest.mark.parametrize("values", [{"provider": 7}, {"provider": {"ours": []}}, {"compaction": "x"}, {}])
def test_what_is_not_settings_changes_nothing(home, cwd, values):
    write(home / ".config" / "opencode", **values)
    assert OPENCODE.settings.for_project(str(cwd), home, MODEL).budget.reserve_tokens == 32_000
    assert model_windows(home) == {}


def test_a_program_of_opencode_2_is_not_run(tmp_path):
    for version, is_run in (("1.18.33", True), ("opencode v2.0.16", False)):
        program = place(tmp_path / "bin" / "opencode", f"#!/bin/sh\necho {version}\n".encode())
        program.chmod(0o755)
        assert (refusal(lambda path=program: OPENCODE.client.find_installed(path)) == "2 no_client") != is_run, version
