"""Whatever a file contains, it is read: no exception, no endless walk, and nothing that a provider would refuse."""

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import ParserState
from tests.claude_sessions import answer, at, call, text, thinking, timed

from .sent_messages import CURRENT, OLDER, entries_of

NAMES = st.sampled_from("abcdefgh")
ODD = st.sampled_from([None, 7, True, 10**400, "", "\ud800", [], {}, ["a"], {"a": 1}])
BLOCKS = st.one_of(
    st.sampled_from("xy").map(text),
    st.just(text(" ")),
    st.just(thinking("t")),
    st.sampled_from("12").map(call),
    st.sampled_from("12").map(answer),
    st.fixed_dictionaries({"type": st.sampled_from(["image", "odd"])}),
)
CONTENTS = st.one_of(st.sampled_from(["", "said"]), st.lists(BLOCKS, max_size=3))
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "preservedMessages": st.fixed_dictionaries(
            {"anchorUuid": NAMES, "uuids": st.one_of(st.lists(NAMES, max_size=3), ODD)}
        ),
        "preservedSegment": st.fixed_dictionaries(dict.fromkeys(("anchorUuid", "headUuid", "tailUuid"), NAMES)),
    },
)
KINDS = ("user", "assistant", "assistant", "system", "attachment", "progress", "odd")
MESSAGES = st.fixed_dictionaries(
    {"content": CONTENTS}, optional={"id": NAMES, "model": st.sampled_from(["m", "n", "<synthetic>"])}
)
LINES = st.fixed_dictionaries(
    {
        "type": st.sampled_from(KINDS),
        "uuid": NAMES,
        "parentUuid": st.one_of(st.none(), NAMES),
        "timestamp": st.integers(0, 20).map(at),
    },
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
def test_every_branch_is_finite_and_what_is_sent_pairs_calls_with_results(lines):
    raw = timed(lines)
    tree = CLAUDE_CODE.tree(entries_of(raw))
    for entry in [*tree.entries, tree.leaf]:
        branch = tree.branch(entry.id)
        ids = [one.id for one in branch]
        assert len(set(ids)) == len(ids)
        for generation in (CURRENT, OLDER):
            context = generation.reader.rebuild(branch)
            messages = list(CLAUDE_CODE.sent_messages(context, lambda one: raw[one.offset :][: one.length]))
            assert_paired(messages)


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
    first = CLAUDE_CODE.parser(ParserState(), [])
    entries = [found.entry for line in split_lines([raw[:cut]]) for found in first.read(line)]
    state = copy.deepcopy(first.state)
    second = CLAUDE_CODE.parser(state, [])
    rest = split_lines([raw[cut:]], offset=state.next_offset, number=state.next_number)
    entries += [found.entry for line in rest for found in second.read(line)]
    assert entries == entries_of(raw)


@given(SESSIONS)
def test_an_entry_that_is_read_again_is_the_same(lines):
    raw = timed(lines)
    for entry in entries_of(raw):
        again = CLAUDE_CODE.read_again(raw[entry.offset :][: entry.length], entry, 1)
        assert again is not None
        found, _ = again
        assert found == entry or entry.is_beside


WRONG = st.dictionaries(st.sampled_from([*"abc", "type", "uuid", "message", "attachment"]), ODD)


@given(st.lists(WRONG, max_size=5))
def test_values_of_wrong_types_are_read(lines):
    raw = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    assert len(CLAUDE_CODE.tree(entries_of(raw)).entries) == len(lines)


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
        if any(not entry.is_beside for entry in entries):
            tree = CLAUDE_CODE.tree(entries)
            context = CURRENT.reader.rebuild(tree.branch(tree.leaf.id))
            list(CLAUDE_CODE.sent_messages(context, lambda one, raw=raw: raw[one.offset :][: one.length]))


@pytest.mark.parametrize(("opening", "end"), [("[", "]"), ('{"content":', "}")])
def test_an_attachment_may_be_nested_as_deeply_as_can_be_read(opening, end):
    attachment = f'{{"type":"odd","content":{opening * 900}1{end * 900}}}'
    line = f'{{"type":"attachment","uuid":"a","attachment":{attachment}}}\n'
    (entry,) = entries_of(line.encode())
    assert entry.tokens > 0
