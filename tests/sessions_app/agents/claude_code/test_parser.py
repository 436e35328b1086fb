"""What a parser knows beyond single lines, and that it reads whatever a file contains.

No exception, no endless walk, and nothing that a provider would refuse.
"""

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.sessionlog.entries import NameControl, Role
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import DamageKind
from tests.claude_sessions import (
    DIRECTORY,
    SESSION_ID,
    answer,
    at,
    call,
    reply,
    result,
    summary,
    talk,
    text,
    thinking,
    timed,
    user,
)

from .sent_messages import CURRENT, OLDER, entries_of, line_in, parsed, sent_of

TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary", "last-prompt": "lastPrompt"}


def title_after(*kinds: str) -> str:
    _, recorded = parsed(timed([{"type": kind, TITLES[kind]: kind} for kind in kinds]))
    names = [one.entry.control.name for one in recorded if isinstance(one.entry.control, NameControl)]
    return names[-1] or ""


def test_the_best_title_counts_wherever_it_is():
    order = list(TITLES)
    for index, kind in enumerate(order):
        assert title_after(*order[index:]) == title_after(*reversed(order[index:])) == kind


def test_a_result_has_the_name_of_its_tool_and_a_summary_is_told_from_what_the_user_said():
    lines = [user("p1", None), reply("r1", "p1", call("c1")), result("x", "r1", "c1", "c2"), summary("s", "x")]
    entries = entries_of(timed(lines))
    assert [one.tool_name for one in entries] == ["", "", "Bash", "", ""]
    assert (entries[0].role, entries[-1].role) == (Role.USER, Role.COMPACTION_SUMMARY)


def test_the_header_is_that_of_the_first_lines_and_a_subagent_has_the_session_that_started_it_as_its_parent():
    mode = {"type": "mode", "sessionId": SESSION_ID}
    header = parsed(timed([mode, user("p1", None), user("p2", "p1", cwd="/else")]))[0].state.header
    assert (header.id, header.cwd, header.timestamp) == (SESSION_ID, DIRECTORY, at(1))
    assert not header.is_subagent
    header = parsed(timed([user("p1", None, isSidechain=True, agentId="helper")]))[0].state.header
    assert (header.id, header.parent_session, header.is_subagent) == ("helper", SESSION_ID, True)


def test_a_line_with_several_results_is_several_entries_and_the_last_has_its_id():
    entries = entries_of(timed([user("x", "r", [text("said"), answer("c1"), answer("c2")])]))
    expected = [("x.0", "r", Role.TOOL_RESULT), ("x.1", "x.0", Role.TOOL_RESULT), ("x", "x.1", Role.USER)]
    assert [(one.id, one.parent_id, one.role) for one in entries] == expected
    assert len({one.offset for one in entries}) == len(entries)


def test_damaged_lines_are_counted_and_bytes_that_are_no_object_any_more_are_no_entry():
    parser, _ = parsed(timed(['{"type":', "[]", {"type": "user", "message": {"content": "x"}}]))
    kinds = [one.kind for one in parser.damage]
    assert kinds == [DamageKind.NOT_JSON, DamageKind.NOT_AN_OBJECT, DamageKind.NO_ID]
    (entry,) = entries_of(timed([user("p1", None)]))
    for raw in (b"[1]", b'"text"', b"null", b"{"):
        assert CLAUDE_CODE.format.reparse_entry(raw, entry, 1) is None


@pytest.mark.parametrize("behind", [b'{"type":"user","uuid":"z"}', b"\0\0", b" oops", b"}", b"\xff"])
def test_a_line_is_read_up_to_the_end_of_its_first_value(behind):
    before, line, after = timed(talk(3)[:3]).splitlines()
    parser, found = parsed(b"\n".join([before, line + behind, after, b""]))
    entries = [one.entry for one in found]
    assert [(one.id, one.parent_id) for one in entries] == [("p1", None), ("r1", "p1"), ("p2", "r1")]
    assert (entries[1].length, entries[2].offset) == (len(line), len(before) + len(line + behind) + 2)
    (fault,) = parser.damage
    assert (fault.kind, fault.number, fault.length) == (DamageKind.MORE_ON_LINE, 2, len(line + behind))
    older, found = parsed(b"\n".join([before, line + behind, after, b""]), (2, 1, 142))
    assert ([one.entry.id for one in found], older.damaged) == (["p1", "p2"], 1)


@pytest.mark.parametrize("first", [b"\0", b"\xef\xbb\xbf", b'"a" ', b"1 ", b"] "])
def test_a_line_that_begins_with_anything_but_a_value_is_not_read(first):
    before, line = timed(talk(1)).splitlines()
    parser, found = parsed(before + b"\n" + first + line + b"\n")
    assert [one.entry.id for one in found] == ["p1"]
    assert [one.kind for one in parser.damage] == [DamageKind.NOT_JSON]


def test_a_byte_order_mark_is_passed_over_at_the_start_of_the_file():
    content = timed(talk(1))
    parser, found = parsed(b"\xef\xbb\xbf" + content)
    assert parser.damaged == 0
    assert [replace(one.entry, offset=one.entry.offset - 3) for one in found] == entries_of(content)


def test_where_the_session_ends_is_read_of_versions_that_go_on_there():
    last = {"type": "last-prompt", "lastPrompt": "p", "leafUuid": "r1"}
    for version, named in (("2.1.142", None), ("2.1.143", "r1"), ("odd", "r1")):
        lines = [{**one, "version": version} for one in talk(1)]
        assert entries_of(timed([*lines, last]))[-1].parent_id == named
    assert entries_of(timed([last]))[-1].parent_id == "r1"
    assert parsed(timed([last]), (2, 1, 142))[1][-1].entry.parent_id is None


def test_a_file_is_recognised_by_its_first_bytes_even_if_its_first_line_is_longer():
    long = timed([user("p1", None, "x" * 100_000)])
    assert CLAUDE_CODE.store.recognises(long[:65_536])
    assert not CLAUDE_CODE.store.recognises(long[1:65_536])
    assert CLAUDE_CODE.store.recognises(timed([{"type": "mode"}, *talk(1)]))
    assert CLAUDE_CODE.store.recognises(b"\xef\xbb\xbf" + timed(talk(1)[:1]))
    assert CLAUDE_CODE.store.recognises(timed(talk(1)[:1]).replace(b"\n", b"\0\n"))
    assert not CLAUDE_CODE.store.recognises(timed([{"type": "session", "id": "s"}]))


NAMES = st.sampled_from("abcdefgh")
ODD = st.sampled_from([None, 7, True, 10**400, "", "\ud800", [], {}, ["a"], {"a": 1}])
BLOCKS = st.one_of(
    *(st.sampled_from("xy").map(text), st.just(text(" ")), st.just(thinking("t"))),
    *(st.sampled_from("12").map(call), st.sampled_from("12").map(answer)),
    st.fixed_dictionaries({"type": st.sampled_from(["image", "odd"])}),
)
CONTENTS = st.one_of(st.sampled_from(["", "said"]), st.lists(BLOCKS, max_size=3))
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "preservedMessages": st.fixed_dictionaries({"anchorUuid": NAMES, "uuids": st.lists(NAMES, max_size=3) | ODD}),
        "preservedSegment": st.fixed_dictionaries(dict.fromkeys(("anchorUuid", "headUuid", "tailUuid"), NAMES)),
    },
)
TIMES = st.integers(0, 20).map(at)
KINDS = ("user", "assistant", "assistant", "system", "attachment", "progress", "odd")
MESSAGES = st.fixed_dictionaries(
    {"content": CONTENTS}, optional={"id": NAMES, "model": st.sampled_from(["m", "n", "<synthetic>"])}
)
LINES = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS), "uuid": NAMES, "parentUuid": st.none() | NAMES, "timestamp": TIMES},
    optional={
        **dict.fromkeys(("isSidechain", "isMeta", "isCompactSummary", "isApiErrorMessage"), st.booleans()),
        "subtype": st.sampled_from(["compact_boundary", "local_command", "odd"]),
        "content": st.just("command"),
        "compactMetadata": METADATA,
        "logicalParentUuid": NAMES,
        "attachment": st.fixed_dictionaries({"type": NAMES, "content": CONTENTS}),
        "message": MESSAGES,
    },
)
SESSIONS = st.lists(LINES, min_size=1, max_size=14)


@given(SESSIONS)
def test_every_branch_is_finite_and_pairs_calls_with_results_and_an_entry_is_the_same_again(lines):
    raw = timed(lines)
    tree = CLAUDE_CODE.format.tree(entries_of(raw))
    for entry in [*tree.entries, tree.leaf]:
        branch = tree.branch(entry.id)
        assert len({one.id for one in branch}) == len(branch)
        for generation in (CURRENT, OLDER):
            assert_paired(sent_of(raw, branch, generation))
    for entry in entries_of(raw):
        again = CLAUDE_CODE.format.reparse_entry(line_in(raw)(entry), entry, 1)
        assert again is not None
        found, _ = again
        assert found == entry or entry.is_off_branch


def assert_paired(messages: list[Any]) -> None:
    """Each call is answered once, by the next message, and each result answers one."""
    open_calls: list[str] = []
    for message in messages:
        assert message["content"]
        if message["role"] == "system":
            continue
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        if message["role"] == "user" and not (open_calls and not results):
            assert sorted(results) == sorted(open_calls)
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert len(set(calls)) == len(calls)
        open_calls = calls if message["role"] == "assistant" else []


@given(SESSIONS, st.data())
def test_reading_in_two_steps_is_reading_at_once(lines, data):
    raw = timed(lines)
    cut = raw.index(b"\n", data.draw(st.integers(0, len(raw) - 1))) + 1
    first, recorded = parsed(raw[:cut])
    state = copy.deepcopy(first.state)
    second = CLAUDE_CODE.format.parser(state, [])
    rest = split_lines([raw[cut:]], offset=state.next_offset, number=state.next_number)
    recorded += [found for line in rest for found in second.read(line)]
    assert [one.entry for one in recorded] == entries_of(raw)


WRONG = st.dictionaries(st.sampled_from([*"abc", "type", "uuid", "message", "attachment"]), ODD)


@given(st.lists(WRONG, max_size=5))
def test_values_of_wrong_types_are_read(lines):
    raw = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    assert len(CLAUDE_CODE.format.tree(entries_of(raw)).entries) == len(lines)


FIELDS = (
    *("uuid", "parentUuid", "type", "timestamp", "message", "attachment", "isSidechain", "subtype"),
    *("sessionId", "compactMetadata", "rendered", "cwd", "agentId", "forkedFrom", "customTitle"),
)
ANYTHING = (None, 7, True, "\ud800", [], {}, ["a"], {"a": []}, {"content": 7}, {"content": [None, 1, []]})


@pytest.mark.parametrize("kind", ["user", "assistant", "attachment", "system", "custom-title"])
def test_any_field_may_be_anything(kind):
    usual = {"type": kind, "uuid": "a", "message": {"content": "x"}, "attachment": {"content": "x"}}
    for field, odd in itertools.product(FIELDS, ANYTHING):
        raw = json.dumps({**usual, field: odd}).encode() + b"\n"
        entries = entries_of(raw)
        if any(not entry.is_off_branch for entry in entries):
            tree = CLAUDE_CODE.format.tree(entries)
            sent_of(raw, tree.branch(tree.leaf.id))


@pytest.mark.parametrize(("opening", "end"), [("[", "]"), ('{"content":', "}")])
def test_an_attachment_may_be_nested_as_deeply_as_can_be_read(opening, end):
    attachment = f'{{"type":"odd","content":{opening * 900}1{end * 900}}}'
    line = f'{{"type":"attachment","uuid":"a","attachment":{attachment}}}\n'
    (entry,) = entries_of(line.encode())
    assert entry.tokens > 0
