"""The index matches the files, however often it was updated, and an update costs only what is new."""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction_app.models import Backup, Compaction
from redline.configuration import RootSetting
from sessions_app.index import indexer
from sessions_app.index.indexer import IndexTotals, index_file, index_paths, index_roots
from sessions_app.index.session_reading import reading_of
from sessions_app.models import Entry, Session
from sessions_app.sessionlog.context import Tally
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.storage.session_loader import LoadedSession, load_session, tally_of
from tests import claude_sessions as claude
from tests.budget import FACTOR
from tests.factories import (
    HEADER,
    V1_HEADER,
    assistant,
    block,
    call,
    chain,
    compaction,
    context_edit,
    message,
    result,
    session_bytes,
    summary_compaction,
    text,
    user,
    whole,
)
from tests.files import append_as_agent, place
from tests.installation import override_configuration, refusal
from tests.paths import corpus_sessions
from tests.processes import become_nobody, give_to_nobody, in_child, start_child
from tests.sessions import place_session

COMPARED = """
    header_id version cwd name first_user_message leaf_id provider model read_as size entry_count damage_count
    context_tokens context_basis context_ratio context_estimate overflow broken broken_at last_used missing fault schema
""".split()
COLUMNS = "number offset length entry_id parent_id kind role tool tokens recorded_at digest".split()


def tally_of_file(loaded: LoadedSession) -> Tally:
    """The totals of the context of a file, without the index."""
    rebuild = reading_of(loaded.path, loaded.log.entries, loaded.log.state).reader.rebuild
    branch = loaded.tree.branch(loaded.leaf_id)
    return tally_of(rebuild(branch), branch, rebuild, None, lambda entry: loaded.texts([entry])[entry.id])


def indexed(session: Session) -> dict[str, Any]:
    """Everything the index knows of a session."""
    session.refresh_from_db()
    fields = {name: getattr(session, name) for name in COMPARED}
    rows = Entry.objects.filter(session=session).order_by("number").values_list(*COLUMNS)
    fields["damage"] = sorted(json.dumps(fault, sort_keys=True) for fault in session.damage)
    fields["entries"] = [(*row[:-1], bytes(row[-1])) for row in rows]
    return fields


def indexed_from_scratch(path: Path) -> dict[str, Any]:
    """The same of a copy that the index has not seen before."""
    copy = Path(tempfile.mkdtemp(dir=path.parent)) / path.name
    shutil.copy2(path, copy)
    return indexed(index_file(copy))


def differences(followed: dict[str, Any], scratch: dict[str, Any]) -> dict[str, Any]:
    """For each differing field: what only one of two lists has, else both values."""
    found: dict[str, Any] = {}
    for name, value in followed.items():
        other = scratch[name]
        if value != other and isinstance(value, list):
            found[name] = [one for one in value if one not in other], [one for one in other if one not in value]
        elif value != other:
            found[name] = value, other
    return found


def require_as_new(path: Path, session: Session | None = None) -> dict[str, Any]:
    """What the index knows of a session, once it is as if the file were indexed for the first time."""
    followed = indexed(session or index_file(path))
    assert differences(followed, indexed_from_scratch(path)) == {}, path.name
    return followed


class Writer:
    """Writes sessions as agents, crashes and other programs do, with all kinds of lines mixed."""

    def __init__(self, dice: random.Random, version: int) -> None:
        self.dice = dice
        self.version = version
        self.ids: list[str] = []

    def lines(self, count: int) -> list[bytes]:
        header = V1_HEADER if self.version == 1 else {**HEADER, "version": self.version}
        first = [json.dumps(header).encode()] if self.version and self.dice.random() < 0.9 else []
        return first + [self.line() for _ in range(count)]

    def line(self) -> bytes:
        dice = self.dice
        if dice.random() < 0.12:
            torn = json.dumps(self.entry()).encode()
            glued, half, header = torn + torn, torn[: len(torn) // 2], b'{"type":"session","version":3}'
            junk = [b"", b"  ", b"[1]", b"null", b"\0" * 40, b"{}", b'{"type":"message"}', b"\xff\xfe", b"#"]
            return dice.choice([glued, half, header, *junk])
        entry = self.entry()
        if self.version == 1:
            del entry["id"], entry["parentId"]
        return json.dumps(entry, ensure_ascii=dice.random() < 0.5).encode()

    def entry(self) -> dict[str, Any]:
        dice = self.dice
        parent = self.ids[-1] if self.ids else None
        if dice.random() < 0.15 and self.ids:
            parent = dice.choice([*self.ids, None, "gone", f"{len(self.ids) + 2:08x}"])
        entry_id = f"{len(self.ids):08x}"
        if self.ids and dice.random() < 0.04:
            entry_id = dice.choice(self.ids)
        self.ids.append(entry_id)
        return {"id": entry_id, "parentId": parent, "timestamp": self.moment(), **self.body()}

    def moment(self) -> str:
        return self.dice.choice(["t", "", f"2026-02-03T04:05:{len(self.ids) % 60:02}.678Z"])

    def body(self) -> dict[str, Any]:
        dice = self.dice
        words = "wört " * dice.randrange(40)
        some = dice.choice(self.ids)
        kind = dice.choice(["user", "assistant", "result"] * 6 + ["control"] * 3 + ["rare"])
        if kind == "user":
            return {"type": "message", "message": user(words)}
        if kind == "result":
            return {"type": "message", "message": result(f"call-{len(self.ids) - 1}", words)}
        if kind == "assistant":
            sent = dice.randrange(9_000)
            counts = {"totalTokens": sent, "input": sent, "output": sent % 2}
            usage = {"usage": counts} if dice.random() < 0.5 else {}
            stop = {"stopReason": dice.choice(["stop", "toolUse", "aborted", "error", "length"])}
            if dice.random() < 0.3:
                stop["errorMessage"] = "prompt is too long: 2 tokens > 1 maximum"
            blocks = [text(words), call(f"call-{len(self.ids)}", path="a.py")]
            if dice.random() < 0.2:
                blocks.append({"type": "thinking", "thinking": words})
            model = f"m{len(self.ids) % 3}"
            return {"type": "message", "message": assistant(*blocks, **stop, **usage, provider="p", model=model)}
        targets = (whole(some), block(dice.choice(self.ids), 0))
        control = [
            {"type": "label", "targetId": some, "label": words},
            {"type": "session_info", "name": words},
            {"type": "model_change", "provider": "q", "modelId": "n"},
            {"type": "thinking_level_change", "thinkingLevel": "high"},
        ]
        rare = [
            compaction(*targets),
            {**summary_compaction(words, some), "firstKeptEntryIndex": 3},
            context_edit(some, None),
            {"type": "branch_summary", "summary": words, "fromId": some},
            {"type": "custom_message", "content": words, "customType": "x"},
            {"type": "something_new", "payload": words},
        ]
        return dict(dice.choice(control if kind == "control" else rare))


def test_a_file_whose_only_session_line_was_torn_and_removed_is_none(redline, tmp_path):
    path = place(tmp_path / "s.jsonl", session_bytes(chain(user("go"))).splitlines()[0])
    index_file(path)
    os.truncate(path, 0)
    assert refusal(lambda: index_file(path)) == refusal(lambda: load_session(path)) == "2 not_a_session"


@pytest.mark.parametrize("seed", range(16 * FACTOR))
def test_an_incremental_index_equals_a_new_one(redline, tmp_path, seed):
    dice = random.Random(seed)
    writer = Writer(dice, version=dice.choice([0, 1, 3, 3, 3]))
    content = b"\n".join(writer.lines(dice.randrange(1, 60))) + dice.choice([b"", b"\n"])
    if dice.random() < 0.1:
        content = b"\xef\xbb\xbf" + content
    path = place(tmp_path / "s.jsonl", b"")
    places = [*range(len(content)), *(100 * [end for end, byte in enumerate(content) if byte == 10])]
    cuts = [*sorted(dice.choices(places, k=10)), len(content)]
    written = 0
    for cut in cuts:
        append_as_agent(path, content[written:cut])
        written = cut
        if dice.random() < 0.15:  # its writer removed a torn line
            written = content.rfind(b"\n", 0, cut) + 1
            os.truncate(path, written)
        answer = refusal(lambda: index_file(path))
        assert answer == refusal(lambda: load_session(path))
        if answer != "done":
            assert answer == "2 not_a_session"
            continue
        followed = indexed(Session.objects.get(relative_path="s.jsonl", root__path=tmp_path))
        loaded = load_session(path)
        assert followed["entry_count"] == len(loaded.log.entries)
        if loaded.log.entries:
            tally = tally_of_file(loaded)
            size = tally.size
            assert (followed["context_tokens"], followed["context_basis"]) == (size.tokens, size.basis)
            assert followed["leaf_id"] == loaded.leaf_id
            assert followed["overflow"] == tally.overflow
        assert differences(followed, indexed_from_scratch(path)) == {}, f"after {cut} bytes"


def test_the_index_of_real_sessions_matches_their_files(redline, tmp_path):
    dice = random.Random(5)
    for source in corpus_sessions(tmp_path):
        content = source.read_bytes()
        path = place(tmp_path / "sessions" / source.name, content[: dice.randrange(5_000, len(content))])
        index_file(path)
        append_as_agent(path, content[path.stat().st_size :])
        followed = require_as_new(path)
        loaded = load_session(path)
        reading = reading_of(path, loaded.log.entries, loaded.log.state)
        size = tally_of_file(loaded).size
        assert followed["context_tokens"] == size.tokens > 0, source.name
        assert followed["context_basis"] == size.basis
        assert followed["read_as"] == reading.reader.name
        assert followed["leaf_id"] == loaded.leaf_id
        assert len(followed["entries"]) == len(loaded.log.entries) == followed["entry_count"]
        assert followed["damage_count"] == loaded.log.damaged + loaded.tree.damaged
        path.unlink()


class Crash(BaseException):
    """A process that dies between two batches."""


def long_session(path: Path, entries: int = 2_500) -> Path:
    results = [
        result(f"c{number}", f"{number} " * 200) if number % 2 else assistant(call(f"c{number + 1}"))
        for number in range(1, entries)
    ]
    return place_session(path, "Begin.", *results)


def test_entries_can_be_queried_by_what_they_are(redline, tmp_path):
    recorded = chain(user("Fix the parser"), assistant(call("c1", "read")), result("c1", "12345678", name="read"))
    recorded[2]["timestamp"] = "2026-01-05T11:00:00.5+01:00"
    recorded[3]["timestamp"] = "yesterday"
    session = index_file(place(tmp_path / "a.jsonl", session_bytes(recorded)))
    half_past = datetime(2026, 1, 5, 10, 0, 0, 500_000, UTC)
    rows = session.entries.filter(kind=EntryKind.MESSAGE).order_by("offset")
    _, reply, answer = rows.values_list("role", "tool", "recorded_at")
    assert (reply, answer) == (("assistant", "", half_past), ("toolResult", "read", None))
    assert rows.get(tool="read").parent_id == rows.get(recorded_at=half_past).entry_id
    assert rows.filter(role="toolResult").get().tokens == 2


def test_an_update_costs_the_new_lines_and_the_edges_of_the_file(redline, tmp_path):
    path = long_session(tmp_path / "s.jsonl")
    index_file(path)
    unchanged, grown = IndexTotals(), IndexTotals()
    index_file(path, unchanged)
    assert unchanged.bytes_read <= 8_192
    more = [message("new1", "e2500", user("More.")), message("new2", "new1", user("And more."))]
    append_as_agent(path, session_bytes(more))
    index_file(path, grown)
    assert grown.bytes == path.stat().st_size > 500_000
    assert grown.bytes_read <= len(session_bytes(more)) + 16_384
    assert grown.entries == 2_502


def small_sessions(directory: Path, count: int) -> list[Path]:
    return [place_session(directory / f"{number}.jsonl", f"task {number}") for number in range(count)]


def test_many_sessions_cost_fewer_statements_than_there_are_sessions(redline, tmp_path):
    small_sessions(tmp_path / "root", 150)
    for is_known in (False, True):
        with CaptureQueriesContext(connection) as queries:
            assert index_paths([tmp_path / "root"]).files == 150
        assert len(queries) < 150, is_known
    assert {title for (title,) in Session.objects.values_list("title")} == {f"task {n}" for n in range(150)}


def test_no_transaction_blocks_other_writers_for_long(redline, tmp_path):
    for number in range(8):
        long_session(tmp_path / "root" / f"{number}.jsonl", 900)
    long_session(tmp_path / "root" / "longer.jsonl", 7_000)
    written = [0]

    def counted(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "BEGIN" in sql or "SAVEPOINT" in sql:
            written.append(0)
        written[-1] += len(params) if many else 1
        return execute(sql, params, many, context)

    with connection.execute_wrapper(counted):
        index_paths([tmp_path / "root"])
    assert Entry.objects.count() == 8 * 900 + 7_000
    # An insertion takes some 3 microseconds.
    assert max(written) <= 6_000


def test_an_interrupted_batch_is_completed_by_the_next_run(redline, tmp_path, monkeypatch):
    paths = small_sessions(tmp_path / "root", 100)
    write, left = indexer._write, [2]

    def write_two_batches(scans: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        write(scans)

    monkeypatch.setattr(indexer, "_write", write_two_batches)
    with pytest.raises(Crash):
        index_paths([tmp_path / "root"])
    assert 0 < Session.objects.filter(state__isnull=False).count() < 100
    monkeypatch.undo()
    assert index_paths([tmp_path / "root"]).files == 100
    for path in paths[::9]:
        require_as_new(path, Session.objects.get(relative_path=path.name, root__path=path.parent))


def test_processes_that_index_the_same_files_leave_one_index_of_each(redline, tmp_path):
    """None fails because of another one. One of the files is known and has grown, the others are new."""
    root = tmp_path / "root"
    growing = long_session(root / "s.jsonl")
    content = growing.read_bytes()
    place(growing, content[: content.index(b"\n", len(content) // 2) + 1])
    index_paths([root])
    small_sessions(root, 50)
    place(growing, content)
    waits = [start_child(lambda: str(redline.call("index", root, "--json").json["files"])) for _ in range(3)]
    assert [wait() for wait in waits] == ["51"] * 3
    assert Session.objects.count() == Session.objects.filter(entry_count__gt=0, fault="").count() == 51
    numbers = Entry.objects.filter(session__relative_path="s.jsonl").values_list("number", flat=True)
    # The header is line 1.
    assert sorted(numbers) == list(range(2, 2_502))


ANOTHER = session_bytes([{**HEADER, "id": "another"}, message("n1", None, user("Hi."))])
REWRITES: dict[str, Callable[[Path], object]] = {
    "shrink": lambda path: os.truncate(path, path.stat().st_size // 2),
    "replace by another": lambda path: place(path.with_name("other"), ANOTHER).replace(path),
    "replace by an empty one": lambda path: place_session(path.with_name("other")).replace(path),
    "rewrite the beginning": lambda path: path.write_bytes(path.read_bytes().replace(b"project", b"PROJECT")),
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewritten_session_is_read_again_and_nothing_of_the_old_one_stays(redline, tmp_path, rewrite):
    replied = assistant(text("Yes."), provider="p", model="m", usage={"totalTokens": 9})
    controls = {"type": "session_info", "name": "Old name"}, summary_compaction("Old summary", "e2")
    path = place_session(tmp_path / "s.jsonl", "Old task", replied, *controls, "more " * 500)
    before = index_file(path)
    REWRITES[rewrite](path)
    after = index_file(path)
    assert after.pk == before.pk
    require_as_new(path, after)


def test_a_change_in_the_middle_is_found_by_a_rebuild(redline, tmp_path):
    path = long_session(tmp_path / "s.jsonl", 100)
    index_file(path)
    place(path, path.read_bytes().replace(b'"call', b'"CALL', 1).replace(b'"toolCall"', b'"toolcall"'))
    index_paths([tmp_path], rebuild=True)
    require_as_new(path, Session.objects.get())


def test_a_removed_session_is_missing_until_it_is_back(redline, tmp_path):
    path, other = (place_session(tmp_path / name, "One", "Two") for name in ("a.jsonl", "sub/b.jsonl"))
    index_paths([tmp_path])
    path.rename(tmp_path / "away")
    index_paths([tmp_path])
    listed = sorted(Session.objects.all(), key=lambda session: session.path)
    assert [(session.path, session.missing) for session in listed] == [(path, True), (other, False)]
    (tmp_path / "away").rename(path)
    index_paths([tmp_path])
    assert not Session.objects.filter(missing=True).exists()
    assert Session.objects.count() == 2


def test_all_sessions_of_a_removed_root_are_missing(redline, tmp_path):
    (path,) = small_sessions(tmp_path / "root", 1)
    with roots(path.parent):
        index_roots()
        shutil.rmtree(path.parent)
        index_roots()
    assert Session.objects.get().missing


def test_a_rebuild_keeps_runs_and_compactions(redline, tmp_path):
    session = index_file(place_session(tmp_path / "a.jsonl", "One", "Two"))
    Session.objects.filter(pk=session.pk).update(own_write_ns=7, reader="pi")
    now = datetime.now(UTC)
    copied = {"path": "/b", "sha256": "0" * 64, "size": 1, "taken_at": now, "reason": Backup.Reason.COMPACT}
    backup = Backup.objects.create(session=session, **copied)
    written = {"entry_id": "x", "leaf_id": "y", "planner": "embedded", "written_at": now}
    Compaction.objects.create(session=session, backup=backup, parameters={}, stats={}, origins=[], **written)
    place_session(tmp_path / "a.jsonl", "Quite another")
    index_paths([tmp_path], rebuild=True)
    session.refresh_from_db()
    assert (session.own_write_ns, session.reader, session.entry_count) == (7, "pi", 1)
    assert Backup.objects.get().session == session
    assert Compaction.objects.get().backup == backup


@pytest.mark.parametrize("grown", [False, True])
def test_leftovers_of_a_crashed_indexing_do_not_stay(redline, tmp_path, grown):
    path = long_session(tmp_path / "s.jsonl")
    content = path.read_bytes()
    if grown:
        place(path, content[: content.rfind(b"\n", 0, content.index(b'"e200"')) + 1])
        index_file(path)
        append_as_agent(path, content[path.stat().st_size :])
    with pytest.raises(Crash):
        index_file(path, report=Mock(side_effect=Crash))
    assert Entry.objects.count() >= 1_000
    require_as_new(path)


def roots(*paths: Path) -> Any:
    return override_configuration(roots=[RootSetting(path=path) for path in paths])


@pytest.mark.parametrize("order", ["outer first", "inner first", "inner configured later"])
def test_a_session_below_two_roots_is_one_session(redline, tmp_path, order):
    inner, outer = tmp_path / "outer" / "inner", tmp_path / "outer"
    path = place_session(inner / "s.jsonl", "One")
    if order == "inner configured later":
        index_paths([outer])
        first = Session.objects.get()
        with roots(inner):
            index_roots()
            index_paths([outer])
        assert Session.objects.get().pk == first.pk
    else:
        with roots(*([inner, outer] if order == "inner first" else [outer, inner])):
            index_roots()
    index_file(path)
    assert [(session.path, session.missing) for session in Session.objects.all()] == [(path, False)]


@pytest.mark.parametrize("turned", [False, True])
def test_the_innermost_root_decides_the_reader_of_a_session(redline, tmp_path, turned):
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    path = place_session(inner / "s.jsonl", "x" * 99, "y", summary_compaction("s", "e2"))
    found = [RootSetting(path=outer, agent="pi"), RootSetting(path=inner, agent="atomic")]
    with override_configuration(roots=found[::-1] if turned else found):
        index_roots()
        loaded = load_session(path)
        assert reading_of(path, loaded.tree.branch(loaded.leaf_id), loaded.log.state).reader.name == "atomic-0.8"
        assert Session.objects.get().read_as == "atomic-0.8"
        assert redline.call("context", path, "--json").json["tokens"] == Session.objects.get().context_tokens


def test_an_unreadable_file_is_reported_and_stops_no_other(public):
    root = public.home / "sessions"
    paths = [place_session(root / f"{name}.jsonl", name) for name in "abc"]
    give_to_nobody(root, *paths)

    def index() -> str:
        total = index_paths([root])
        rows = [(one.path.stem, one.fault != "", one.entry_count) for one in Session.objects.all()]
        return f"{total.files} {sorted(rows)}"

    assert in_child(index, become_nobody) == "3 [('a', False, 1), ('b', False, 1), ('c', False, 1)]"
    for path in paths:
        append_as_agent(path, session_bytes([message("e2", "e1", user("more"))]))
    paths[1].chmod(0)
    assert in_child(index, become_nobody) == "2 [('a', False, 2), ('b', True, 1), ('c', False, 2)]"
    paths[1].chmod(0o600)
    assert in_child(index, become_nobody) == "3 [('a', False, 2), ('b', False, 2), ('c', False, 2)]"


@pytest.mark.parametrize("before", [0, 1])
def test_the_facts_of_an_incomplete_line_are_dropped_with_it(redline, tmp_path, before):
    replied = assistant(text("x"), provider="p", model="m", usage={"totalTokens": 4})
    lines = chain(*[user("First")] * before, {"type": "session_info", "name": "A name"}, user("A task"), replied)
    kept = session_bytes(lines[: before + 1])
    path = place(tmp_path / "s.jsonl", kept)
    for line in lines[before + 1 :]:
        os.truncate(path, len(kept))
        append_as_agent(path, session_bytes([line])[:-1])
        index_file(path)
    os.truncate(path, len(kept))
    require_as_new(path)


def test_the_title_and_the_default_query_are_the_users_first_and_last_messages_without_noise(redline, tmp_path):
    exit_ = "<command-name>/exit</command-name>\n<command-args></command-args>"
    noise = ("/ide", exit_, "[Request interrupted by user]")
    assert index_file(place_session(tmp_path / "s.jsonl", *noise, "Mend the parser.")).title == "Mend the parser."
    assert index_file(place_session(tmp_path / "t.jsonl", *noise)).title == ""
    for name, said, title in (
        (exit_, "Mend the `parser`, **now**.", "Mend the parser, now."),
        (exit_, "/ide", "/exit"),
        ("`parse` **mended**", "Mend it.", "parse mended"),
    ):
        path = place_session(tmp_path / "n.jsonl", said, {"type": "session_info", "name": name})
        assert index_file(path).title == title
    replies = (assistant(text("a " * 99)), assistant(text("b " * 99)))
    path = place_session(tmp_path / "u.jsonl", "Mend the parser.", *replies, "/exit")
    assert redline.call("compact", path, "--dry-run", "--json").json["parameters"]["query"] == "Mend the parser."


def test_a_session_is_broken_from_the_entry_on_that_breaks_it(redline, tmp_path):
    talk = (user("x"), assistant(call("a")), user("y"), result("a"), assistant(text("z")))
    entries = chain(*talk, summary_compaction("so far", "e5"))
    path = place(tmp_path / ".pi" / "s.jsonl", session_bytes(entries[:4]))
    found = []
    for added in ([], *([entry] for entry in entries[4:])):
        append_as_agent(path, session_bytes(added))
        session = index_file(path)
        found.append(session.broken_at)
        assert bool(session.broken) == bool(session.broken_at)
    assert found == ["", "e4", "e4", ""]
    assert Session.objects.get().broken == ""


def test_an_edit_that_the_agent_refuses_breaks_a_session(redline, tmp_path):
    edit = {"type": "context_edit", "targetId": "e1"}
    session = index_file(place_session(tmp_path / ".pi" / "s.jsonl", "x", edit))
    assert session.broken_at == "e2"
    assert "pi cannot open this branch" in session.broken


SYSTEM = {"role": "system", "content": "be kind"}


@pytest.fixture
def install(monkeypatch):
    """Installs a version of every agent; returns what is asked for versions."""

    def installed(*version: int) -> Mock:
        ask = Mock(return_value=version or None)
        monkeypatch.setattr("sessions_app.index.context_window_lookup.version_installed", ask)
        return ask

    return installed


def test_an_installed_agent_is_asked_once_and_only_if_a_session_shows_no_version(redline, install):
    asked = install(0, 86, 1)
    root = redline.home / ".pi" / "agent" / "sessions"
    place_session(root / "shown.jsonl", SYSTEM, "x")
    index_paths([root])
    asked.assert_not_called()
    for name in ("one", "two"):
        place_session(root / f"{name}.jsonl", "x", assistant(text("y")))
    index_paths([root])
    asked.assert_called_once_with("pi")
    read_as = dict(Session.objects.values_list("relative_path", "read_as"))
    assert read_as == {"shown.jsonl": "pi", "one.jsonl": "pi-0.86", "two.jsonl": "pi-0.86"}


def test_an_appended_entry_can_show_a_newer_version(redline, install):
    install(0, 86, 1)
    path = redline.home / ".pi" / "agent" / "sessions" / "s.jsonl"
    messages = ("x", assistant(text("y")), SYSTEM)
    assert index_file(place_session(path, *messages[:-1])).read_as == "pi-0.86"
    session = index_file(place_session(path, *messages))
    assert (session.read_as, session.entry_count) == ("pi", 3)


@pytest.mark.parametrize("at_once", [2, 10_000])
def test_without_an_installed_agent_the_last_version_in_the_lines_decides(redline, install, monkeypatch, at_once):
    monkeypatch.setattr("sessions_app.index.index_store.BATCH", at_once)
    install()
    path = place(redline.home / ".claude" / "projects" / "p" / f"{claude.SESSION_ID}.jsonl", b"")
    versions = ("2.1.112", "nightly", "2.1.330", "2.1.142", "2.1.143")
    names = iter(claude.talk(len(versions)))
    older = []
    for version in versions:
        append_as_agent(path, claude.timed([{**next(names), "version": version}, {**next(names), "version": version}]))
        older.append(index_file(path).read_as == "claude-code-2.1.142")
        assert index_file(path, rebuild=True).read_as == Session.objects.get().read_as
    assert older == [True, False, False, True, False]
    install(2, 1, 112)
    assert index_file(path).read_as == "claude-code-2.1.142", "the installed one continues it next"


def test_a_session_is_counted_again_when_its_agent_was_updated(redline, install):
    telling = place_session(redline.sessions / "telling.jsonl", "x" * 400, compaction(whole("e1")), "y")
    silent = place_session(redline.sessions / "silent.jsonl", "x" * 400, "y")
    for patch, expected in ((8, "atomic-0.8"), (11, "atomic-0.9")):
        install(0, 9, patch)
        assert [index_file(path).read_as for path in (telling, silent)] == ["atomic-0.8", expected]
    install()
    assert index_file(silent).read_as == "atomic-0.9", "what was known is not given up"
