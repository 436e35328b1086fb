"""Whatever a file contains, commands end with an explanation and the right exit code, and lose nothing."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from redline.configuration import RootSetting
from sessions_app.storage.session_loader import load_session
from tests.budget import FACTOR
from tests.factories import HEADER, assistant, call, message, result, session_bytes, text, user, working_session
from tests.files import place, snapshot, unchanged
from tests.installation import UNSAFE_CHARACTERS, Installation, Result, override_configuration
from tests.paths import PROJECT
from tests.processes import become_nobody, give_to_nobody, in_child

WHOLE = working_session()
LEAF = "e27"
READ_ONLY = [["index"], ["tree"], ["context"], ["compact", "--dry-run"]]


@pytest.fixture
def path(redline):
    return redline.sessions / "s.jsonl"


def run(redline: Installation, path: Path, command: str, *flags: str) -> Result:
    return redline.call(command, path, *flags, "--json")


def kinds_of(redline: Installation, path: Path) -> list[str]:
    """The damage that is found in a session."""
    return [fault["kind"] for fault in run(redline, path, "tree").json["damage"]]


def with_more(*added: Any) -> bytes:
    return session_bytes([*WHOLE, *added])


def with_inserted(at: int, *inserted: Any, until: int | None = None) -> bytes:
    """The whole session with these lines before one of its lines; they replace those until another one."""
    return session_bytes([*WHOLE[:at], *inserted, *WHOLE[at if until is None else until :]])


# Damage -----------------------------------------------------------------------------------------------------

ANSWERS_TWICE = [message("n2", "n1", result("c1")), message("n3", "n2", result("c1"))]
DAMAGED: dict[str, tuple[bytes, list[str]]] = {
    "a line that is not JSON": (with_inserted(6, b"{not json"), ["not_json"]),
    "two records on one line": (
        with_inserted(6, session_bytes(WHOLE[6:8]).replace(b"\n", b""), until=8),
        ["not_json", "missing_parent"],
    ),
    "a torn line in the middle": (
        with_inserted(5, session_bytes(WHOLE[5:6])[:40], until=6),
        ["not_json", "missing_parent"],
    ),
    "a run of NULs": (with_inserted(6, b"\0" * 4096), ["not_json"]),
    "NULs before a record": (with_inserted(27, b"\0" * 99 + session_bytes(WHOLE[27:])[:-1], until=28), ["not_json"]),
    "a list for an object": (with_more(b"[1,2]"), ["not_an_object"]),
    "a parent that is not there": (session_bytes([HEADER, *WHOLE[3:]]), ["missing_parent"]),
    "a second header": (with_inserted(9, HEADER), ["second_header"]),
    "an id used twice": (with_more({**WHOLE[20], "parentId": LEAF}), ["duplicate_id", "cycle"]),
    "an entry without id": (with_inserted(3, {"type": "message"}), ["no_id"]),
    "a cycle": (with_inserted(1, {**WHOLE[1], "parentId": "e9"}, until=2), ["cycle"]),
    "an entry that is its own parent": (with_inserted(1, {**WHOLE[1], "parentId": "e1"}, until=2), ["cycle"]),
    "a result without call": (with_more(message("n1", LEAF, result("never made"))), []),
    "a call without result": (with_more(message("n1", LEAF, assistant(call("unanswered")))), []),
    "a call id used twice": (with_more(message("n1", LEAF, assistant(call("c1"))), *ANSWERS_TWICE), []),
    "blank lines and carriage returns": (session_bytes(WHOLE).replace(b"\n", b"\r\n\n  \n"), []),
    "a byte order mark": (b"\xef\xbb\xbf" + session_bytes(WHOLE), []),
    "bytes that are not UTF-8": (session_bytes(WHOLE).replace(b"line_3_3", b"\xff\xfe\xc3"), []),
    "a lone surrogate": (session_bytes(WHOLE).replace(b"line_3_3", b"\\ud800"), []),
    "entries of a type from the future": (
        with_more({"type": "hologram", "id": "n1", "parentId": LEAF, "beam": [1e300, 2**70]}),
        [],
    ),
    "keys from the future": (session_bytes([{**one, "x-новое": {"deep": [None]}} for one in WHOLE]), []),
    "a complete last line without newline": (session_bytes(WHOLE)[:-1], []),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_session_is_read_compacted_and_restored_without_losing_a_byte(redline, path, damage):
    content, kinds = DAMAGED[damage]
    place(path, content)
    for command in READ_ONLY:
        for ended in (run(redline, path, *command), redline.call(command[0], path, *command[1:])):
            assert ended.code == 0, ended
    assert kinds_of(redline, path) == kinds
    assert run(redline, path, "index").json["damaged"] == len(kinds)
    assert snapshot(path.parent) == {path.name: content}

    written = run(redline, path, "compact", "--yes").ok()
    after = path.read_bytes()
    added = after[len(content) :].removeprefix(b"" if content.endswith(b"\n") else b"\n")
    assert after.startswith(content)
    assert json.loads(added)["id"] == written.json["entryId"]
    assert added.count(b"\n") == 1
    assert kinds_of(redline, path) == kinds
    kept = {one["entryId"] for one in run(redline, path, "context").json["kept"]}
    gone = {one["entryId"] for one in written.json["deletedTargets"] if one["kind"] == "entry"}
    assert gone
    assert not kept & gone
    assert run(redline, Path(written.json["backupPath"]), "restore", "--yes").code == 0
    assert path.read_bytes() == content


HEADERLESS = {
    "no header": session_bytes(WHOLE[1:]),
    "a byte order mark and no header": b"\xef\xbb\xbf" + session_bytes(WHOLE[1:]),
    "a damaged line in the place of the header": b'{"type":"session","ver\n' + session_bytes(WHOLE[1:]),
    "a header behind an entry": session_bytes([WHOLE[1], WHOLE[0], *WHOLE[2:]]),
    "no header and no newline at the end": session_bytes(WHOLE[1:])[:-1],
}


@pytest.mark.parametrize("content", HEADERLESS.values(), ids=HEADERLESS)
def test_a_session_without_a_header_is_not_written_to_but_migrated_to_a_copy(redline, path, content):
    """Agents refuse such a file, and Atomic before 0.9.4 empties it when it opens it."""
    place(path, content)
    for command in READ_ONLY:
        assert run(redline, path, *command).code == 0
    with unchanged(path.parent):
        assert run(redline, path, "compact", "--yes").refused("migrate-session") == "2 no_header"

    copy = Path(run(redline, path, "migrate-session").ok().json["written"])
    header, rest = copy.read_bytes().split(b"\n", 1)
    assert json.loads(header).keys() == {"type", "version", "id", "timestamp", "cwd"}
    assert (json.loads(header)["type"], json.loads(header)["version"]) == ("session", 3)
    assert rest == content.removeprefix(b"\xef\xbb\xbf")
    assert path.read_bytes() == content
    kept = run(redline, path, "context").json["kept"]
    assert run(redline, copy, "context").json["kept"] == kept
    assert "no_header" not in kinds_of(redline, copy)
    assert run(redline, copy, "compact", "--yes").code == 0


@pytest.mark.parametrize("tail", [b'{"type":"message","id":"n1","parent', b"{", b"\0" * 7, b"nul"])
def test_a_torn_last_line_is_skipped_by_readers_and_stops_writers(redline, path, tail):
    content = session_bytes(WHOLE) + tail
    place(path, content)
    for command in READ_ONLY:
        assert run(redline, path, *command).code == 0
    assert kinds_of(redline, path) == ["torn_line"]
    assert run(redline, path, "compact", "--yes").refusal == "5 torn_last_line"
    assert snapshot(path.parent) == {path.name: content}


def test_a_header_alone_is_a_session_without_entries(redline, path):
    content = session_bytes([HEADER])
    place(path, content)
    assert run(redline, path, "index").json["entries"] == 0
    for command in READ_ONLY[1:]:
        assert run(redline, path, *command).refusal == "2 no_entries"
    assert snapshot(path.parent) == {path.name: content}


# Files that are not sessions ----------------------------------------------------------------------------------

COMMANDS = [*READ_ONLY, ["compact", "--yes", "--live"], ["migrate-session"]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n\n",
        b"\0" * 10_000,
        b"just text\nand more\n",
        b'{"some":"JSON"}\n',
        b'{"type":"user","uuid":"1","message":{"role":"user","content":"Another tool\'s session"}}\n',
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20,
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_file_that_is_not_a_session_is_left_alone(redline, path, content):
    place(path, content)
    for command in COMMANDS:
        assert run(redline, path, *command).refused(str(path)) == "2 not_a_session", command
    assert snapshot(path.parent) == {path.name: content}


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "device", "loop", "below a file"])
def test_a_path_that_is_not_a_file_is_named_without_blocking(redline, path, kind):
    path.parent.mkdir(parents=True)
    backup = path.with_name(f"{path.name}.2025-01-01T00-00-00-000Z.compact.bak")
    if kind == "below a file":
        place(path.parent / "file", b"")
        path, backup = (path.parent / "file" / one.name for one in (path, backup))
    for named in (path, backup):
        if kind == "directory":
            named.mkdir()
        elif kind == "fifo":
            os.mkfifo(named)
        elif kind in ("device", "loop"):
            named.symlink_to("/dev/zero" if kind == "device" else named)
    for command in [*COMMANDS, ["restore", "--yes"], ["check_vectors"]]:
        if kind == "directory" and command[0] in ("index", "check_vectors"):
            continue  # these two commands accept directories
        ended = run(redline, backup if command[0] == "restore" else path, *command)
        assert ended.code == 2, ended
        assert ended.error in ("no_such_file", "not_a_file", "no_such_root"), command


# Permissions -------------------------------------------------------------------------------------------------


def test_an_unreadable_file_is_a_system_failure(public):
    path = place(public.sessions / "s.jsonl", session_bytes(WHOLE))
    give_to_nobody(path.parent, path)
    path.chmod(0)

    def summary() -> str:
        ends = [run(public, path, *command) for command in COMMANDS]
        return str({f"{ended.code} {ended.error}" for ended in ends})

    assert in_child(summary, become_nobody) == "{'6 permission_denied'}"
    path.chmod(0o600)
    assert snapshot(path.parent) == {path.name: session_bytes(WHOLE)}


def test_an_unreadable_directory_does_not_stop_the_index(public):
    closed = place(public.home / "closed" / "deep" / "a.jsonl", session_bytes(WHOLE))
    open_ = place(public.home / "open" / "b.jsonl", session_bytes(WHOLE))
    give_to_nobody(closed.parent.parent, closed.parent, closed, open_.parent, open_)

    def summary() -> str:
        ended = public.call("index", public.home, "--json")
        return f"{ended.code} {ended.json['files']} {'closed' in ended.err}"

    def listed() -> str:
        found = public.call("sessions", "--json").json
        return str(sorted((Path(one["path"]).name, one["missing"]) for one in found))

    assert in_child(summary, become_nobody) == "0 2 False"
    closed.parent.parent.chmod(0)
    assert in_child(summary, become_nobody) == "6 1 True"
    # The directory could not be read, so the session does not count as missing.
    assert in_child(listed, become_nobody) == "[('a.jsonl', False), ('b.jsonl', False)]"
    closed.parent.parent.chmod(0o700)


def test_an_unreadable_root_does_not_stop_the_others(public):
    closed = place(public.home / ".atomic" / "agent" / "sessions" / "a.jsonl", session_bytes(WHOLE))
    open_ = place(public.home / ".pi" / "agent" / "sessions" / "b.jsonl", session_bytes(WHOLE))
    for below in (closed, open_):
        give_to_nobody(below, *(above for above in below.parents if above.is_relative_to(public.home)))
    (public.home / ".atomic").chmod(0)

    def summary() -> str:
        with override_configuration(roots=[RootSetting(path=closed.parent), RootSetting(path=open_.parent)]):
            ended = public.call("index", "--json")
        return f"{ended.code} {ended.json['files']} {'permission' in ended.err.lower()}"

    assert in_child(summary, become_nobody) == "6 1 True"
    (public.home / ".atomic").chmod(0o700)


# Escapes -----------------------------------------------------------------------------------------------------

EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp.exe\u2066\u200f\x7f\x00\t\r\u2028\u200b\ufeff end"


def evil_session() -> list[dict[str, Any]]:
    """A session in which every text is an attack on the terminal."""
    header, *entries = working_session()
    header = {**header, "cwd": f"/{EVIL}", "id": EVIL, "parentSession": EVIL}
    hostile = json.loads(json.dumps(entries).replace('"e2', json.dumps(EVIL)[:-1] + "e2"))
    hostile = json.loads(json.dumps(hostile).replace("line_1_", json.dumps(EVIL)[1:-1]))
    last = hostile[-1]["id"]
    return [
        header,
        *hostile,
        {"type": "session_info", "id": f"i{EVIL}", "parentId": last, "name": f"name {EVIL}"},
        {"type": "label", "id": f"l{EVIL}", "parentId": f"i{EVIL}", "targetId": last, "label": EVIL},
        {"type": EVIL, "id": f"t{EVIL}", "parentId": f"l{EVIL}"},
        {"type": "model_change", "id": "m", "parentId": f"t{EVIL}", "provider": EVIL, "modelId": EVIL},
        message(f"a{EVIL}", "m", assistant(text(EVIL), call(EVIL, EVIL, **{EVIL: EVIL}), provider=EVIL, model=EVIL)),
        message(f"r{EVIL}", f"a{EVIL}", result(EVIL, EVIL, name=EVIL)),
        message("dangling", f"gone{EVIL}", user(EVIL)),
        message(f"u{EVIL}", f"r{EVIL}", user(EVIL)),
        message(f"z{EVIL}", f"u{EVIL}", {"role": EVIL, "content": [{"type": EVIL, "data": EVIL}]}),
        message(f"last{EVIL}", f"z{EVIL}", user(EVIL)),
    ]


def assert_harmless(ended: Result) -> None:
    for printed in (ended.out, ended.err):
        found = UNSAFE_CHARACTERS.search(printed)
        assert not found, ascii(printed[max(0, found.start() - 200) : found.end()])


def test_content_of_files_is_escaped_on_the_terminal(redline):
    typed = re.sub("[\0/]", "", EVIL)
    name = f"{typed}\n.jsonl"
    path = place(redline.sessions / f"dir{name}" / name, session_bytes(evil_session()))
    leaf = load_session(path).leaf_id
    old = place(
        path.with_name(f"old{name}"), session_bytes([{"type": "session"}, {"type": "message", "message": user(EVIL)}])
    )
    vector = place(path.with_name(f"{name}.json"), b"{}")
    place(path.with_name(f"garbage{name}"), EVIL.encode())
    commands: dict[tuple[object, ...], int] = {
        ("index", path.parent): 0,
        ("sessions",): 0,
        ("tree", path): 0,
        ("context", path): 0,
        ("context", path, "--branch", leaf): 0,
        ("context", path, "--branch", typed): 2,
        ("context", path, "--open-as", typed): 2,
        ("compact", path, "--ratio", "0.2", "--query", typed): 5,
        ("compact", path, "--planner", typed): 2,
        ("compact", path, "--branch", leaf, "--yes"): 0,
        ("backups", path): 0,
        ("migrate-session", old): 0,
        ("migrate-session", str(old)): 2,
        ("check_vectors", vector): 2,
        (typed,): 2,
        ("tree", f"--{typed}"): 2,
        ("restore", typed): 2,
    }
    shown = [redline.call(*command) for command in commands]
    (backup,) = redline.call("backups", path, "--json").json
    place(path, path.read_bytes() + session_bytes([message(f"new{EVIL}", leaf, user(EVIL))]))
    flags = ([], ["--yes"], ["--yes", "--drop-newer"])
    shown += [redline.call("restore", backup["path"], *more) for more in flags]
    for ended in shown:
        assert_harmless(ended)
    assert [ended.code for ended in shown] == [*commands.values(), 5, 5, 0]
    assert "\\x1b[2J" in shown[3].out


def test_json_output_is_plain_ascii_whatever_a_file_contains(redline, path):
    place(path, session_bytes(evil_session()))
    for command in READ_ONLY:
        ended = run(redline, path, *command)
        assert ended.out.isascii()
        assert_harmless(ended)
    assert run(redline, path, "tree").json["labels"]


# Values that no agent writes ----------------------------------------------------------------------------------

STRANGE = [
    *(None, True, 0, -1, 1e308, 10**30, -(10**30)),
    *("", "text", "\ud800", [], [[]], {}, {"a": [None]}, "x" * 70_000),
]


def with_value(keys: str, value: object) -> list[dict[str, Any]]:
    """A session in which the field at `keys` of some entries has this value."""
    recorded = json.loads(json.dumps(working_session(steps=3, words=30)))
    usage = {"usage": {"totalTokens": 10, "input": 1}, "provider": "p", "model": "m"}
    for entry in recorded[1:]:
        entry["message"] |= usage if entry["message"]["role"] == "assistant" else {}
    recorded += [
        {"type": "label", "id": "n1", "parentId": "e9", "targetId": "e1", "label": "x"},
        {"type": "context_compaction", "id": "n2", "parentId": "n1", "deletedTargets": [{"kind": "entry"}]},
        {"type": "branch_summary", "id": "n3", "parentId": "n2", "summary": "s", "fromId": "e1"},
        {"type": "custom_message", "id": "n4", "parentId": "n3", "content": "c"},
        message("n5", "n4", user("Go on.")),
        message("n6", "n5", assistant(text("Yes."))),
    ]
    first, *rest = keys.split(".")
    for entry in [recorded[0]] if first == "header" else recorded[1:]:
        holder: Any = entry if first in ("header", "entry") else entry.get(first)
        for key in rest[:-1]:
            holder = holder.get(key) if isinstance(holder, dict) else holder
            holder = holder[0] if isinstance(holder, list) and holder else holder
        if isinstance(holder, dict) and rest[-1] in holder:
            holder[rest[-1]] = value
    return recorded


FIELDS = """
    header.version header.id header.cwd header.timestamp
    entry.timestamp entry.label entry.targetId entry.deletedTargets entry.summary
    entry.content entry.message entry.parentId
    message.role message.content message.usage message.usage.totalTokens message.model
    message.stopReason message.toolCallId message.toolName message.isError
    message.content.type message.content.text message.content.arguments message.content.id
""".split()


@pytest.mark.parametrize("number", range(len(FIELDS)), ids=FIELDS)
def test_a_field_may_have_any_value(redline, path, number):
    """`make test` takes a seventh of the values for each field, others for the next one; `make test-all` takes all."""
    step = 17 if FACTOR == 1 else 1
    for value in STRANGE[number % step :: step]:
        content = session_bytes(with_value(FIELDS[number], value))
        place(path, content)
        shown = [redline.call(*command, path) for command in READ_ONLY] + [redline.call("sessions")]
        for ended in shown:
            assert ended.code in (0, 2, 3), (value, ended)
            assert_harmless(ended)
        assert path.read_bytes() == content


def test_a_cwd_is_data_not_a_trusted_path(redline, path):
    for cwd in ("/proc/self", "/dev", "/" + "x" * 5_000, "/\0", "relative", "~", "/dev/null"):
        place(path, session_bytes([{**HEADER, "cwd": cwd}, *WHOLE[1:]]))
        assert run(redline, path, "index").code == 0
        assert redline.call("sessions", "--json").json[0]["project"] == cwd
        assert run(redline, path, "compact", "--dry-run").json["parameters"]["preserve_recent"] == 2


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(b'{"compaction":{"preserve_recent":9}}' + b" " * 1_000_000),
        lambda path: path.write_bytes(b"{torn"),
        lambda path: path.write_bytes(b"[" * 50_000),
        lambda path: path.write_bytes(b'{"compaction":[]}'),
        lambda path: path.write_bytes(b'{"compaction":{"preserve_recent":"many","compression_ratio":7}}'),
        lambda path: path.mkdir(),
    ],
)
def test_hostile_project_settings_are_ignored(redline, path, tmp_path, make):
    project = tmp_path / "project"
    (project / ".atomic").mkdir(parents=True)
    make(project / ".atomic" / "settings.json")
    place(path, session_bytes([{**HEADER, "cwd": str(project)}, *WHOLE[1:]]))
    parameters = run(redline, path, "compact", "--dry-run").json["parameters"]
    assert (parameters["compression_ratio"], parameters["preserve_recent"]) == (0.5, 2)
    run(redline, path, "index")
    assert redline.call("sessions").code == 0


def test_malformed_model_files_are_ignored(redline, path):
    place(path, session_bytes([*WHOLE, message("n1", LEAF, assistant(text("x"), provider="p", model="m"))]))
    run(redline, path, "index")
    models = redline.home / ".pi" / "agent" / "models.json"
    for content in (
        b"[]",
        b'{"providers":[]}',
        b'{"providers":{"p":{"models":[{"id":"m","contextWindow":"large"},7]}}}',
        b'{"providers":{"p":{"models":[{"id":["m"],"contextWindow":true}]}}}',
        b"{",
    ):
        place(models, content)
        run(redline, path, "index")
        assert redline.call("sessions", "--json").json[0]["contextWindow"] is None
        assert redline.call("sessions").code == 0
    place(models, b'{"providers":{"p":{"models":[{"id":"m","contextWindow":1000}]}}}')
    run(redline, path, "index")
    assert redline.call("sessions", "--json").json[0]["contextWindow"] == 1000


# Names --------------------------------------------------------------------------------------------------------


def test_a_file_name_that_is_not_utf8_is_handled(redline, path):
    for number, command in enumerate([*COMMANDS, ["backups"]]):
        named = place(path.parent / str(number) / os.fsdecode(b"s\xff.jsonl"), session_bytes(WHOLE))
        ended = redline.call(command[0], named, *command[1:], "--json")
        assert ended.code in (0, 2)
        assert ended.json
        assert_harmless(redline.call(command[0], named, *command[1:]))
        assert named.read_bytes() == session_bytes(WHOLE)


def test_a_process_prints_names_that_are_not_utf8(fresh):
    shown = fresh.run("tree", place(fresh.home / os.fsdecode(b"s\xff\x1b.jsonl"), session_bytes(WHOLE))).ok()
    assert "s\\udcff\\x1b.jsonl: 27 entries" in shown.out


def test_a_name_too_long_for_a_backup_is_a_clean_failure(redline, path):
    path = place(path.parent / ("n" * 240 + ".jsonl"), session_bytes(WHOLE))
    with unchanged(path.parent):
        ended = run(redline, path, "compact", "--yes")
        assert ended.code == 6
        assert "Traceback" not in ended.err


# Vectors --------------------------------------------------------------------------------------------------------


def test_check_vectors_passes_and_changes_no_vector(redline, tmp_path):
    copy = tmp_path / "vectors"
    shutil.copytree(PROJECT / "tests" / "vectors", copy)
    with unchanged(copy):
        ended = redline.call("check_vectors", copy, "--json")
        assert (ended.code, ended.json["failed"]) == (0, 0)
        assert ended.json["passed"] > 0
