"""A session of OpenCode is read by byte offset, while the client writes, and each change is noticed."""

import json
import re
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.registry import agent_of
from sessions_app.disk.files import Fingerprint, GrowthKind
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.session import DamageKind
from sessions_app.storage.session_loader import continue_loading, load_session
from tests.files import place
from tests.installation import refusal
from tests.opencode_stores import OpenCodeStore, documents, text, tool, worked_session


@pytest.fixture
def path(store):
    return worked_session(store)


def content(path: Path, size: int = 1 << 20) -> bytes:
    with OPENCODE.store.open(path) as reader:
        return b"".join(reader.chunks(0, size))


def growth(path: Path, fingerprint: Fingerprint) -> GrowthKind:
    with OPENCODE.store.open(path) as reader:
        return reader.growth(fingerprint).kind


def changed_ns(path: Path) -> int:
    return OPENCODE.store.state(path).mtime_ns


def test_every_offset_gives_the_bytes_of_the_whole(path):
    whole = content(path)
    assert content(path, 4096) == whole
    with OPENCODE.store.open(path) as reader:
        assert reader.state().size == len(whole)
        for offset in range(0, len(whole), 97):
            assert reader.read_at(offset, min(131, len(whole) - offset)) == whole[offset : offset + 131]


def test_a_line_has_the_exact_text_of_its_row(store):
    path = store.session()
    data = '{ "text" : "caf\\u00e9 é",\t"type":"text", "n": 1.0 }'
    store.part(store.user(), data)
    assert b'{"type":"part","data":' + data.encode() + b',"id":"prt_' in content(path)
    lines = content(path).count(b"\n")
    store.part(store.user(), '{"type":"text",\n"text":"x"}')
    assert content(path).count(b"\n") == lines + 2, "a newline in a row does not end its line"


@pytest.mark.parametrize(
    "change",
    [
        "part SET id = CAST(x'7072745f30303036ff' AS TEXT) WHERE id = 'prt_0006'",
        "message SET id = CAST(x'6d73675f30303031ff' AS TEXT) WHERE id = 'msg_0001'",
        "session SET title = x'00ff', directory = x'ff', version = x''",
    ],
)
def test_a_session_with_a_value_that_is_not_unicode_is_read(store, path, change):
    entries = len(load_session(path).log.entries)
    store.run(f"UPDATE {change}")
    assert len(load_session(path).log.entries) >= entries - 2


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        *((f"part SET id = {value}", "the row has no usable id") for value in ("x'ff00'", "NULL")),
        *((f"part SET data = {value}", "the part prt_0006 is not valid JSON") for value in ("x'ff00'", "NULL")),
        ("part SET data = '[\"part\"]'", "the part prt_0006 contains no object"),
        ("part SET message_id = 'msg_9'", "the message of the part prt_0006 is missing or damaged: msg_9"),
        ("part SET message_id = x'ff'", "the message of the part prt_0006 is missing or damaged"),
        ("message SET data = '{'", "the message msg_0010 is not valid JSON"),
    ],
)
def test_a_damaged_row_is_named_and_the_others_are_read(store, path, change, detail):
    entries = load_session(path).log.entries
    store.drop_keys()
    store.run(f"UPDATE {change} WHERE id IN ('prt_0006', 'msg_0010')")
    loaded = load_session(path)
    assert loaded.log.damage[0].detail.startswith(detail)
    ids = {entry.id for entry in loaded.log.entries}
    hidden = [entry for entry in entries if entry.id not in ids]
    assert {entry.reply.partition("/")[0] or entry.id for entry in hidden} in ({"msg_0003"}, {"msg_0010"})


def owners(store: OpenCodeStore, *session_ids: str) -> list[str]:
    """What a list says of sessions; what it means is said where nothing is written for them, and only there."""
    found = [OPENCODE.store.taken_over(store.database / session_id) for session_id in session_ids]
    reasons = [OPENCODE.store.read_only(store.database / session_id) for session_id in session_ids]
    assert [bool(reason) for reason in reasons] == [bool(mark) for mark in found]
    assert all("OpenCode 2" in reason and "Nothing is written" in reason for reason in reasons if reason)
    return found


def test_what_opencode_2_has_taken_over_is_counted_and_shown_as_it_was_left(store, path):
    entries = load_session(path).log.entries
    other = worked_session(store, session_id="ses_2")
    assert owners(store, "ses_1", "ses_2", "ses_9") == ["", "", ""]
    before = OPENCODE.store.discover(store.directory)
    assert (before.paths, before.unread) == ((path, other), "")
    store.take_over("ses_1", "ses_8", "ses_9")
    empty = store.session("ses_8")
    found = OPENCODE.store.discover(store.directory)
    assert (found.paths, found.refused) == ((path, other), ())
    assert found.unread == "3 sessions of OpenCode 2 are not read yet; 1 is shown as OpenCode 1 left it."
    assert owners(store, "ses_1", "ses_2") == ["taken over by OpenCode 2", "not in OpenCode 2"]
    assert {found.changed_ns[one] != before.changed_ns[one] for one in (path, other)} == {True}
    assert found.changed_ns == {one: changed_ns(one) for one in (path, other)}
    loaded = load_session(path)
    assert (loaded.log.entries, loaded.log.damaged) == (entries, 0)
    for newer in (empty, store.database / "ses_9"):
        words = ("a session of OpenCode 2, which ", " does not read yet")
        assert refusal(partial(load_session, newer), *words) == "2 newer_form"
    assert refusal(lambda: load_session(store.database / "ses_7")) == "2 no_such_file"


@pytest.mark.parametrize("phase", ["", "sessions"])
def test_nothing_is_written_while_opencode_2_is_to_import_a_session(store, path, phase):
    store.take_over(phase=phase)
    assert owners(store, "ses_1") == ["to be taken over by OpenCode 2"]
    store.run("UPDATE kv SET value = x'ff'")
    assert owners(store, "ses_1") == ["to be taken over by OpenCode 2"]
    assert OPENCODE.store.discover(store.directory).unread == ""


def test_a_database_that_opencode_2_made_has_no_older_sessions(store):
    store.take_over("ses_9")
    store.drop_older()
    found = OPENCODE.store.discover(store.directory)
    assert (found.paths, found.refused) == ((), ())
    assert found.unread == "1 session of OpenCode 2 is not read yet."
    assert OPENCODE.store.state(store.database / "ses_9") is None
    assert refusal(lambda: load_session(store.database / "ses_9")) == "2 newer_form"


def test_sessions_of_a_preview_of_opencode_2_are_counted(store, path):
    store.take_over("ses_1", "ses_9", phase="")
    for table in ("session_v2", "kv"):
        store.run(f"DROP TABLE {table}")
    assert owners(store, "ses_1", "ses_2") == ["taken over by OpenCode 2", ""]
    found = OPENCODE.store.discover(store.directory)
    assert found.unread == "2 sessions of OpenCode 2 are not read yet; 1 is shown as OpenCode 1 left it."
    store.run("DELETE FROM session_message")
    assert owners(store, "ses_1") == [""]


def test_rows_with_the_same_id_are_all_read(store):
    path = store.session()
    store.assistant("One.", "Two.")
    store.drop_keys()
    store.run("UPDATE part SET id = 'prt_0002'")
    assert [b"One." in line or b"Two." in line for line in content(path).splitlines()[-2:]] == [True, True]
    assert load_session(path).tree.damage[0].kind == DamageKind.DUPLICATE_ID


def test_an_appended_row_is_growth_and_the_text_of_a_change_that_shows_in_nothing_else_is_read(store, path):
    loaded = load_session(path)
    store.run("UPDATE part SET data = replace(data, 'I', 'J') WHERE id = 'prt_0006'")
    assert growth(path, loaded.fingerprint) is GrowthKind.UNCHANGED
    assert loaded.texts([loaded.tree.entry("prt_0006")])["prt_0006"].whole == "J will do 0."
    store.user("More.")
    assert growth(path, loaded.fingerprint) is GrowthKind.GROWN
    assert continue_loading(loaded).log == load_session(path).log


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM part WHERE id = 'prt_0006'",
        "UPDATE part SET data = replace(data, 'I', 'We') WHERE id = 'prt_0006'",
        "UPDATE part SET data = replace(data, 'I', 'J'), time_updated = 9 WHERE id = 'prt_0006'",
        "UPDATE session SET title = 'Other'",
        "UPDATE message SET time_created = 1 WHERE id = 'msg_0010'",
    ],
)
def test_a_change_before_the_end_is_a_rewrite(store, path, statement):
    loaded = load_session(path)
    store.run(statement)
    assert growth(path, loaded.fingerprint) is GrowthKind.REWRITTEN
    with pytest.raises(RedlineError, match="Read it again"):
        continue_loading(loaded)


def test_what_the_client_writes_meanwhile_is_seen_at_the_next_opening(store, path):
    with closing(store.connect()) as client:
        client.execute("BEGIN IMMEDIATE")
        client.execute("UPDATE session SET title = 'Unfinished'")
        with OPENCODE.store.open(path) as reader:
            before = b"".join(reader.chunks(0))
            client.execute("COMMIT")
            assert b"".join(reader.chunks(0)) == before
        assert b"Unfinished" not in before
        assert store.database.with_name("opencode.db-wal").stat().st_size > 0
        assert b"Unfinished" in content(path)


def test_a_database_that_stays_locked_and_a_view_in_the_place_of_a_table_are_refused(store, path, monkeypatch):
    monkeypatch.setattr("sessions_app.disk.agent_database.BUSY_SECONDS", 0.01)
    store.run("PRAGMA journal_mode = DELETE")
    with closing(store.connect()) as client:
        client.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RedlineError, match="locked by another process") as raised:
            content(path)
    assert raised.value.code == "database_busy"
    store.run("ALTER TABLE part RENAME TO other")
    store.run("CREATE VIEW part AS SELECT * FROM other")
    assert refusal(lambda: load_session(path)) == "2 not_a_database"


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 4096])
def test_what_is_not_a_database_is_reported(tmp_path, damage):
    file = place(tmp_path / "opencode.db", damage)
    with pytest.raises(RedlineError, match="not a database"):
        content(file / "ses_1")
    found = OPENCODE.store.discover(tmp_path)
    assert not found.paths
    assert [refused.path for refused in found.unlisted] == [file]


def test_a_missing_session_is_reported(store):
    with pytest.raises(RedlineError, match="has no session ses_none"):
        content(store.database / "ses_none")
    assert OPENCODE.store.state(store.database / "ses_none") is None
    assert OPENCODE.store.state(store.directory / "opencode-other.db" / "ses_1") is None


def test_every_session_of_every_store_is_listed(store, path):
    child = store.session("ses_2", parent_id="ses_1", title="Child session - x")
    beta = OpenCodeStore(store.directory, "opencode-beta.db").session()
    older = documents(store.directory, store)
    (store.directory / "log").mkdir()
    found = OPENCODE.store.discover(store.directory)
    assert set(found.paths) == {path, child, beta, older}
    assert not found.refused
    for one in found.paths:
        assert found.changed_ns.get(one, changed_ns(one)) == changed_ns(one)
        assert agent_of(one) == "opencode"
    assert load_session(child).log.header.parent_session == "ses_1"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM part WHERE id = 'prt_0006'",
        "UPDATE part SET time_updated = 9 WHERE id = 'prt_0006'",
        "UPDATE message SET time_updated = time_updated + 1 WHERE id = 'msg_0001'",
        "DELETE FROM message WHERE id = 'msg_0001'",
        "UPDATE session SET time_updated = time_updated + 1",
    ],
)
def test_the_listing_shows_every_change_of_a_row(store, path, statement):
    other = worked_session(store, session_id="ses_2")
    before = OPENCODE.store.discover(store.directory).changed_ns
    store.run(f"{statement}{' AND' if 'WHERE' in statement else ' WHERE'} id NOT IN (SELECT 'ses_2')")
    after = OPENCODE.store.discover(store.directory).changed_ns
    assert after[path] != before[path]
    assert after[other] == before[other]
    assert changed_ns(path) == after[path]


@pytest.mark.parametrize("value", ["x'ff'", "NULL", "'soon'", "4503599627370496", "9e999", "-1"])
def test_a_time_that_is_none_hides_no_session(store, path, value):
    store.drop_keys()
    store.run(f"UPDATE session SET time_updated = {value}")  # noqa: S608  # our value
    assert OPENCODE.store.discover(store.directory).changed_ns == {path: changed_ns(path)}
    assert 0 <= changed_ns(path) < 2**63


@pytest.mark.parametrize("session_id", ["../x", "a/b", "", "a\0b", "x" * 200, None, b"ses_1"])
def test_an_id_that_is_not_usable_is_refused(store, session_id):
    store.session()
    store.drop_keys()
    store.run("UPDATE session SET id = ?", session_id)
    found = OPENCODE.store.discover(store.directory)
    assert not found.paths
    assert len(found.refused) == 1


def test_sessions_are_sought_where_the_client_keeps_them_and_each_channel_of_it_has_its_own_database(tmp_path):
    usual = ("~/.local/share/opencode",)
    assert OPENCODE.store.roots({}) == OPENCODE.store.roots({"XDG_DATA_HOME": "data"}) == usual
    assert OPENCODE.store.roots({"XDG_DATA_HOME": "/data"}) == ("/data/opencode",)
    names = ("opencode.db", "opencode-local.db", "opencode-feature-x.y_z.db")
    for name in (*names, "opencode.db-wal", "other.db", "opencode-.db.bak"):
        path = OpenCodeStore(tmp_path / name, name).session()
        assert OPENCODE.store.discover(tmp_path / name).paths == ((path,) if name in names else ()), name
        assert OPENCODE.store.database(path) == (path.parent if name in names else None), name


def test_links_are_not_followed(store, tmp_path):
    worked_session(store)
    other = tmp_path / "other"
    other.mkdir()
    (other / "opencode.db").symlink_to(store.database)
    (other / "storage").symlink_to(documents(tmp_path / "older", store).parents[2])
    assert not OPENCODE.store.discover(other).paths
    with pytest.raises(RedlineError, match="link"):
        content(other / "opencode.db" / "ses_1")


def test_a_changed_document_is_a_rewrite_and_a_new_one_is_growth(store, tmp_path):
    worked_session(store)
    path = documents(tmp_path / "older", store)
    loaded = load_session(path)
    place(path.parents[2] / "message" / "ses_1" / "msg_9.json", b'{"role":"user"}')
    assert growth(path, loaded.fingerprint) is GrowthKind.GROWN
    place(next((path.parents[2] / "part" / "msg_0001").iterdir()), json.dumps(text("Other.")).encode())
    assert growth(path, loaded.fingerprint) is GrowthKind.REWRITTEN


def test_large_outputs_are_recorded_once(store):
    path = store.session()
    store.user("Go.")
    store.assistant(tool("c1", "x" * 3_000_000))
    assert len(content(path)) < 3_010_000
    call, result = load_session(path).log.entries[-2:]
    assert (call.result_for, result.result_for) == (None, result.id)
    assert result.tokens == 750_000


def test_new_ids_are_greater_the_later_they_are_made_and_like_the_clients():
    ids = [OPENCODE.format.new_entry_id() for _ in range(100)]
    assert ids == sorted(set(ids))
    milliseconds = time.time_ns() // 1_000_000
    assert abs(int(ids[-1][:12], 16) // 4096 - milliseconds % (1 << 36)) < 60_000
    assert all(re.fullmatch(r"[0-9a-f]{12}[0-9A-Za-z]{14}", one) for one in ids)
