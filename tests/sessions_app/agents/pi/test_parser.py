"""The parser: usable lines are read, others are counted, and nothing raises."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from sessions_app.agents.pi.pure.parser import SessionParser
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.entries import EditControl, Entry, SummaryControl, Texts
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines, stringify
from sessions_app.sessionlog.session import Damage, DamageKind, ParserState, SessionLog
from sessions_app.sessionlog.tree import SessionTree
from tests import claude_sessions
from tests.factories import (
    HEADER,
    V1_HEADER,
    assistant,
    bash,
    call,
    chain,
    context_edit,
    damage_of,
    message,
    read_log,
    result,
    session_bytes,
    session_log,
    summary_compaction,
    text,
    user,
    version_1,
)
from tests.installation import refusal
from tests.paths import corpus


def ids(log: SessionLog) -> list[str]:
    return [entry.id for entry in log.entries]


def test_a_session_is_its_header_and_its_entries_in_file_order():
    log = session_log(chain(user("hello"), assistant(text("hi"), call("c1")), result("c1")))
    found = [(entry.id, entry.parent_id, entry.role) for entry in log.entries]
    assert found == [("e1", None, "user"), ("e2", "e1", "assistant"), ("e3", "e2", "toolResult")]
    assert (log.header.id, log.version, log.cwd) == (HEADER["id"], 3, "/home/dev/project")
    assert log.damage == []


def test_an_entry_is_found_again_by_its_offset_and_length():
    recorded = chain(user("größer 😀"), bash("ls", "a"), user("x"))
    data = session_bytes(recorded)
    for entry, one in zip(read_log(data).entries, recorded[1:], strict=True):
        assert json.loads(data[entry.offset : entry.offset + entry.length]) == one
        assert data[: entry.offset].count(b"\n") == entry.number - 1


def test_unknown_types_and_keys_are_kept():
    unknown = {"type": "from_the_future", "id": "f1", "parentId": "e1", "extra": [1]}
    data = session_bytes([*chain(user("x")), unknown])
    *_, line = split_lines([data])
    (recorded,) = SessionParser(ParserState(version=3)).read(line)
    assert (recorded.entry.type, recorded.entry.is_message) == ("from_the_future", False)
    assert recorded.data["extra"] == [1]
    assert damage_of(read_log(data)) == []


def test_an_old_or_a_new_header_names_where_the_session_was_branched_from():
    for header in ({**V1_HEADER, "branchedFrom": "/a.jsonl"}, {**HEADER, "parentSession": "/a.jsonl"}):
        assert session_log([header, *chain(user("x"))[1:]]).header.parent_session == "/a.jsonl"


FIRST, SECOND = (json.dumps(message(f"e{number}", None, user("x"))).encode() for number in (1, 2))
THIRD = json.dumps(message("e3", "e2", user("x"))).encode()
HOOK = message("e1", None, {"role": "hookMessage", "content": "x"})
UNUSABLE = {
    DamageKind.NOT_JSON: (
        *(b"not json", FIRST + SECOND, SECOND[:-20], b"\0" * 4096, b"\0" * 10 + SECOND),
        b'{"type":"message","id":"e2","message":NaN}',
        b'{"type":"message","id":"e2","text":"a\x01"}',
        b'{"id":"e2","deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xef\xbb\xbf" + SECOND,
    ),
    DamageKind.NOT_AN_OBJECT: (b"[1,2]", b"17", b"null", b"true", b'"text"'),
    DamageKind.NO_ID: (
        *(b"{}", b'{"type":"message"}', b'{"type":"message","id":""}', b'{"type":"message","id":7}'),
        *(b'{"type":"message","id":null}', rb'{"type":"message","id":"\ud800"}'),
    ),
    DamageKind.SECOND_HEADER: (json.dumps(HEADER).encode(),),
}


@pytest.mark.parametrize(
    ("line", "kind"),
    [(line, kind) for kind, lines in UNUSABLE.items() for line in lines],
    ids=lambda value: value.name if isinstance(value, DamageKind) else repr(value[:24]),
)
def test_an_unusable_line_is_skipped_counted_and_located(line, kind):
    data = session_bytes([HEADER, FIRST, line, THIRD])
    log = read_log(data)
    assert ids(log) == ["e1", "e3"]
    assert [entry.number for entry in log.entries] == [2, 4]
    assert damage_of(log) == [(kind, 3)]
    found = log.damage[0]
    assert data[found.offset : found.offset + found.length] == line
    assert found.detail
    assert ("NUL" in found.detail) == (line == b"\0" * 4096)


def test_of_many_faults_all_are_counted_and_the_first_thousand_are_kept():
    recorded = [*chain(user("x")), *[b"not json"] * 1_500, message("e2", "e1", user("y"))]
    data = session_bytes(recorded) + b"{torn"
    log = read_log(data)
    assert (len(log.damage), log.damaged, ids(log)) == (1_000, 1_501, ["e1", "e2"])
    assert [one.number for one in log.damage] == list(range(3, 1_003))
    # The torn line is read again, and is then not a fault any more.
    assert read_in_parts(data + b"}", [len(data)]) == read_in_parts(data + b"}", ())
    assert log.state.damaged == 1_500


ENDS = session_bytes([HEADER, FIRST])
TWO = session_bytes(chain(user("x"), user("y")))
INVALID_UTF8 = b'{"type":"message","id":"e2","message":{"role":"user","content":"a\xffb"}}'
READ: dict[str, tuple[bytes, str, list[tuple[DamageKind, int]]]] = {
    "a torn last line is distinguished from invalid JSON": (ENDS + SECOND[:-5], "e1", [(DamageKind.TORN_LINE, 3)]),
    "a complete last line without newline is read": (ENDS + SECOND, "e1 e2", []),
    "a header alone is a session": (session_bytes([HEADER]), "", []),
    "a header alone needs no newline": (session_bytes([HEADER])[:-1], "", []),
    "a line may end with a carriage return": (TWO.replace(b"\n", b"\r\n"), "e1 e2", []),
    "a byte order mark before the first line is not damage": (b"\xef\xbb\xbf" + TWO, "e1 e2", []),
    "a missing header is reported once": (TWO.split(b"\n", 1)[1], "e1 e2", [(DamageKind.NO_HEADER, 1)]),
    "a damaged line does not hide the header": (b"\0\0\0\n" + TWO, "e1 e2", [(DamageKind.NOT_JSON, 1)]),
    "invalid UTF-8 is read": (session_bytes([HEADER, INVALID_UTF8]), "e2", []),
    **{f"{blank!r} is a blank line": (ENDS + blank + b"\n", "e1", []) for blank in (b"", b" ", b"\t\r", b"\x0c")},
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read_of_a_file(name):
    data, entries, faults = READ[name]
    log = read_log(data)
    assert (ids(log), damage_of(log)) == (entries.split(), faults)
    assert (log.header is None) == ("missing" in name)


def test_a_byte_order_mark_counts_in_offsets_and_invalid_utf8_as_the_agent_reads_it():
    entry = read_log(b"\xef\xbb\xbf" + TWO).entries[0]
    assert (entry.number, entry.offset) == (2, len(json.dumps(HEADER)) + 4)
    assert session_log([HEADER, INVALID_UTF8]).entries[0].tokens == 1


def test_the_first_header_counts_and_without_one_the_version_is_told_by_the_ids():
    other = {**HEADER, "id": "other", "cwd": "/elsewhere", "version": 1}
    log = session_log([*chain(user("x")), other, message("e2", "e1", user("y"))])
    assert (log.cwd, log.version, ids(log)) == ("/home/dev/project", 3, ["e1", "e2"])
    log = session_log(chain(user("x"), user("y"))[1:])
    assert (log.header, log.version, log.cwd) == (None, 3, "")
    log = session_log(version_1(user("a"), user("b"))[1:])
    assert (log.version, ids(log)) == (1, ["00000000", "00000001"])
    assert damage_of(log) == [(DamageKind.NO_HEADER, 1)]


def test_an_invalid_parent_makes_a_root_and_one_that_is_not_storable_text_is_missing():
    for parent in (None, "", 7, True, [], {}):
        log = session_log([HEADER, FIRST, {"type": "message", "id": "e2", "parentId": parent}])
        assert log.entries[1].parent_id is None, parent
    log = session_log([HEADER, FIRST, rb'{"type":"message","id":"e2","parentId":"\ud800"}'])
    assert [entry.id.encode() for entry in log.entries] == [b"e1", b"e2"]
    assert (log.entries[1].parent_id or "").encode()
    assert [one.kind for one in SessionTree(log.entries).damage] == [DamageKind.MISSING_PARENT]


def test_version_1_entries_form_a_chain_with_ids_from_their_line_numbers():
    recorded = version_1(user("a"), assistant(text("b")), user("c"))
    for ignored in ({}, {"id": "same", "parentId": "same"}):
        log = session_log([V1_HEADER, *(one | ignored for one in recorded[1:])])
        assert log.version == 1
        assert ids(log) == ["00000001", "00000002", "00000003"]
        assert [entry.parent_id for entry in log.entries] == [None, "00000001", "00000002"]
        assert log.damage == []


@pytest.mark.parametrize("line", [b"{torn", b"", b"[]", b"\0\0"])
def test_a_damaged_line_shifts_no_version_1_id(line):
    sound = version_1(user("a"), user("b"), user("c"))
    damaged: list[Any] = [*sound[:2], line, *sound[3:]]
    log = session_log(damaged)
    assert ids(log) == ["00000001", "00000003"]
    assert log.entries[1].parent_id == "00000001"
    assert log.entries[0] == session_log(sound).entries[0]


@pytest.mark.parametrize(
    ("index", "kept"), [(2, "00000002"), (0, "00000000"), (-1, ""), (None, ""), ("2", ""), (10**30, f"{10**30:08x}")]
)
def test_the_first_kept_index_of_version_1_counts_file_lines(index, kept):
    compaction = {"type": "compaction", "summary": "s", "firstKeptEntryIndex": index}
    log = session_log([*version_1(user("a"), user("b")), compaction])
    assert log.entries[-1].control == SummaryControl(kept, is_verbatim=False)


def test_the_hook_messages_of_version_2_are_customs():
    log = session_log([{**HEADER, "version": 2}, HOOK])
    assert (log.version, log.entries[0].role, log.entries[0].tokens) == (2, "custom", 1)


def test_the_version_in_a_header_is_a_number():
    others = ((one, 1) for one in (1, None, 0, -3, True, "3", [], 0.5))
    for recorded, version in ((2, 2), (3, 3), (3.0, 3), (4, 4), *others):
        log = session_log([{**HEADER, "version": recorded}, *chain(user("x"))[1:]])
        assert log.version == version, recorded


@pytest.mark.parametrize("version", ["1e30", "1e400", "9" * 5000])
def test_a_huge_version_is_a_new_one_and_still_fits_into_an_index(version):
    log = session_log([f'{{"type":"session","version":{version}}}'.encode(), FIRST])
    assert 3 < log.version < 2**31
    assert ids(log) == ["e1"]
    assert msgspec.convert(msgspec.to_builtins(log.state), ParserState) == log.state


CLAUDE_CODE = [
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    *claude_sessions.talk(1),
    {"type": "summary", "summary": "s", "leafUuid": "r1"},
]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n\n\n", b"\0" * 5000, b"\x89PNG\r\n\x1a\n\0\0\0", b"some prose\nand more\n"),
        *(b"[]\n", b"{}\n", b'{"type":"session_meta"}\n', b'{"type":"other","id":"x"}\n', session_bytes(CLAUDE_CODE)),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_a_file_without_a_header_or_an_entry_is_not_a_session(data):
    assert refusal(lambda: read_log(data), "the session") == "2 not_a_session"


def test_real_sessions_are_read_and_those_of_another_agent_are_not():
    directory = corpus()
    claude_code = sorted(directory.glob("claude-code/*.jsonl")) if directory else []
    for path in claude_code:
        with pytest.raises(BadInput):
            read_log(path.read_bytes())
    glued = sorted(directory.glob("pi/*glued*.jsonl")) if directory else []
    # Without a real one: a record of the same format.
    data = glued[0].read_bytes() if glued else session_bytes([*version_1(user("a"), user("b")), FIRST + SECOND])
    log = read_log(data)
    assert [one.kind for one in log.damage] == [DamageKind.NOT_JSON]
    assert [int(entry.id, 16) for entry in log.entries] == [entry.number - 1 for entry in log.entries]


def stored(state: ParserState) -> ParserState:
    """The state after being stored in an index."""
    return msgspec.convert(msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(state))), ParserState)


def read_in_parts(data: bytes, places: Iterable[int]) -> tuple[list[Entry], list[Damage], ParserState]:
    """The contents of an index that reads the file each time it has grown to one of these sizes."""
    state, entries, faults = ParserState(), [], []
    for size in sorted({place % (len(data) + 1) for place in places} | {len(data)}):
        start = state.next_offset
        entries = [entry for entry in entries if entry.offset < start]
        parser = SessionParser(stored(state), [fault for fault in faults if fault.offset < start])
        for line in split_lines([data[start:size]], offset=start, number=state.next_number):
            entries += [recorded.entry for recorded in parser.read(line)]
        state, faults = parser.state, parser.damage
    return entries, faults, state


FILES = {
    "version 3": session_bytes(chain(user("größer 😀"), assistant(text("b"), call("c1")), result("c1"))),
    "version 2": session_bytes([{**HEADER, "version": 2}, HOOK]),
    "version 1": session_bytes(version_1(user("a"), assistant(text("b")), user("c"))),
    "no header": session_bytes(chain(user("a"), user("b"))[1:]),
    "version 1, no header": session_bytes(version_1(user("a"), user("b"))[1:]),
    "damaged": session_bytes(
        [b"\0\0", HEADER, FIRST, HEADER, b"", b"[1]", FIRST + SECOND, b'{"type":"x"}', THIRD, b"{"]
    ),
    "damaged version 1": session_bytes(
        [b"{torn", b"7", *version_1(user("a"), user("b")), b"null", *version_1(user("c"))]
    ),
    "carriage returns": TWO.replace(b"\n", b"\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + session_bytes(version_1(user("a"), user("b"))),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("ended", [True, False])
def test_a_file_that_grew_byte_by_byte_is_read_as_in_one_go(name, ended):
    data = FILES[name] if ended else FILES[name][:-1]
    assert read_in_parts(data, range(len(data))) == read_in_parts(data, ())


@given(st.sampled_from(sorted(FILES)), st.lists(st.integers(0, 5000), max_size=4), st.booleans())
@example("version 1", [len(FILES["version 1"]) - 1], True)
@example("no header", [FILES["no header"].index(b"\n")], True)
def test_a_file_cut_anywhere_is_read_as_in_one_go(name, places, ended):
    data = FILES[name] if ended else FILES[name][:-1]
    assert read_in_parts(data, places) == read_in_parts(data, ())


def test_a_first_line_without_newline_is_read_again_when_it_is_complete():
    parser = SessionParser()
    unfinished = b'{"type":"message","message":{}}'
    parser.read(next(split_lines([unfinished])))
    assert parser.state.version == 1
    continued = SessionParser(stored(parser.state))
    for line in split_lines([session_bytes(chain(user("x")))]):
        continued.read(line)
    assert (continued.state.version, continued.damage) == (3, [])
    assert continued.state.header is not None


any_text = st.text(st.characters(exclude_categories=()), max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)


def record(names: str, **usual: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these fields, which have any values; the usual ones of some are among them."""
    fields = dict.fromkeys(names.split(), json_values) | {name: one | json_values for name, one in usual.items()}
    return st.fixed_dictionaries({}, optional=fields)


blocks = record(
    "text thinking id name arguments data",
    type=st.sampled_from(["text", "thinking", "redacted_thinking", "toolCall", "image"]),
)
messages = record(
    "toolCallId toolName isError stopReason provider model command output exitCode excludeFromContext",
    role=st.sampled_from(["user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage"]),
    content=st.lists(blocks | json_values, max_size=4),
    usage=st.dictionaries(st.sampled_from(["totalTokens", "input", "output", "cacheRead"]), json_values),
)
hostile_entries = record(
    "timestamp summary content version cwd parentSession branchedFrom "
    "deletedTargets targetId label provider modelId firstKeptEntryIndex",
    type=st.sampled_from(["message", "custom_message", "branch_summary", "compaction", "model_change"])
    | st.sampled_from(["context_compaction", "context_edit", "label", "session", "session_info"]),
    id=st.sampled_from(["a", "b"]),
    parentId=st.sampled_from(["a", "b"]),
    message=messages,
)


@given(st.lists(hostile_entries, max_size=4), st.sampled_from([None, HEADER, V1_HEADER]))
@example([{"type": []}], None)
@example([{"type": {}, "id": "a"}], HEADER)
def test_no_field_of_any_type_raises(recorded, header):
    lines = [json.dumps(one).encode() for one in recorded]
    entries, faults, state = read_in_parts(session_bytes([header, *lines] if header else lines), ())
    assert len(entries) + len(faults) >= len(recorded) - 1, "an entry is read or reported; one is the header"
    # Everything that is kept can be stored, as text and as numbers.
    for entry in entries:
        msgspec.json.encode([entry.id, entry.parent_id, entry.type, entry.role, entry.timestamp, entry.blocks])
        msgspec.json.encode([entry.tool_name, entry.result_for, entry.model, entry.stop_reason])
        assert abs(entry.usage or 0) < 2**63
    assert stored(state) == state
    SessionTree(entries)


@pytest.mark.parametrize("depth", [150, 400, 700, 900])
def test_a_deeply_nested_entry_is_read_or_reported(depth):
    for template in (
        {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "n", "arguments": "DEEP"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "DEEP"}, "DEEP"]},
        {"role": "bashExecution", "command": "DEEP", "output": "DEEP"},
    ):
        line = json.dumps(message("e1", None, template)).replace('"DEEP"', "[" * depth + "1.5" + "]" * depth)
        log = session_log([HEADER, line.encode()])
        assert len(log.entries) + len(log.damage) == 1
        if depth < 500:
            assert ids(log) == ["e1"]


def test_lines_in_the_wrong_order_still_form_a_branch():
    lines = [json.dumps(one).encode() for one in chain(user("a"), assistant(text("b")), user("c"))]
    log = session_log(lines[::-1])
    assert ids(log) == ["e3", "e2", "e1"]
    assert damage_of(log) == [(DamageKind.NO_HEADER, 1), (DamageKind.SECOND_HEADER, 4)]
    assert [entry.id for entry in SessionTree(log.entries).branch("e3")] == ["e1", "e2", "e3"]


def read_last(*messages: dict[str, Any]) -> tuple[Entry, Texts]:
    """The last entry, read again from its line."""
    recorded = chain(*messages)
    log = session_log(recorded)
    found = SessionParser.reparse(stringify(recorded[-1]).encode(), log.entries[-1], log.version)
    assert found[0] == log.entries[-1]
    return found


def read_edit(replacement: object) -> tuple[Entry, Texts]:
    return read_last(user("a"), context_edit("e1", replacement))


def test_an_edits_line_has_the_blocks_and_texts_of_the_new_content_which_may_be_a_text():
    entry, texts = read_edit({"content": [text("one"), text("two")]})
    assert entry.blocks is not None
    assert [block.type for block in entry.blocks] == ["text", "text"]
    assert texts.joined(entry.blocks[1:]) == "two"
    assert entry.control == EditControl("e1", "replaces")
    entry, texts = read_edit({"content": "new"})
    assert (texts.joined(None), texts.joined(entry.blocks), texts.block(0)) == ("new", "new", "new")
    assert entry.control == EditControl("e1", "replaces", is_text=True)


@pytest.mark.parametrize(("replacement", "effect"), [(None, "removes"), (7, "replaces"), ({}, "replaces")])
def test_an_edit_without_new_content_has_no_text(replacement, effect):
    entry, texts = read_edit(replacement)
    assert (entry.blocks, texts.joined(entry.blocks)) == (None, "")
    assert isinstance(entry.control, EditControl)
    assert entry.control.effect == effect


def test_a_compactions_line_has_the_system_message_that_it_repeats():
    repeated = {"systemMessage": {"sections": {"a": "be", "b": "kind"}}}
    entry, texts = read_last(summary_compaction("s", None) | repeated)
    assert (texts.whole, texts.blocks) == ("s", ("be\n\nkind",))
    assert [one.text(texts) for one in READERS["pi"].rebuild([entry]).messages] == ["be\n\nkind", "s"]
