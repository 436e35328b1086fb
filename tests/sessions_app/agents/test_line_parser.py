"""The frame of all parsers: a file that grows is read as in one go, and damage is counted once."""

import json

import msgspec
import pytest

from sessions_app.agents.registry import AGENTS
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.jsjson import Line, split_lines
from sessions_app.sessionlog.session import DAMAGE_KEPT, Damage, DamageKind, ParserState
from tests import claude_sessions
from tests.factories import HEADER, chain, session_bytes, user

from .codex.rollouts import Rollout, compacted, meta, user as codex_user

TITLE = {"type": "summary", "summary": "A title", "leafUuid": "p1"}
GROWING = {
    "pi": session_bytes([*chain(user("a"), user("b")), b"5", user("c")]),
    "claude-code": json.dumps(TITLE).encode() + b"\n\n" + claude_sessions.timed(claude_sessions.talk(2)),
    "codex": Rollout(meta(), codex_user("a"), compacted(codex_user("b"))).content,
}


def read_in_parts(agent: str, data: bytes, sizes: list[int]) -> tuple[list[Entry], list[Damage], ParserState]:
    """The contents of an index that reads a file each time it has grown to one of these sizes."""
    state, entries, faults = ParserState(), [], []
    for size in sizes:
        start = state.next_offset
        stored = msgspec.json.decode(msgspec.json.encode(state), type=ParserState)
        parser = AGENTS[agent].format.parser(stored, [fault for fault in faults if fault.offset < start])
        entries = [entry for entry in entries if entry.offset < start]
        for line in split_lines([data[start:size]], offset=start, number=state.next_number):
            entries += [recorded.entry for recorded in parser.read(line)]
        state, faults = parser.state, parser.damage
    return entries, faults, state


@pytest.mark.parametrize("agent", GROWING)
def test_a_file_that_grows_byte_by_byte_is_read_as_in_one_go(agent):
    data = GROWING[agent]
    assert read_in_parts(agent, data, list(range(1, len(data) + 1))) == read_in_parts(agent, data, [len(data)])


@pytest.mark.parametrize("agent", GROWING)
def test_a_last_line_shows_the_session_but_only_its_complete_form_is_remembered(agent):
    lines = GROWING[agent].splitlines()
    first = next(line for line in lines if line and b"summary" not in line)
    parser = AGENTS[agent].format.parser(ParserState(), [])
    parser.read(Line(1, 0, first, complete=False))
    assert parser.state.header is not None
    assert parser.state.recognised
    assert (parser.state.next_offset, parser.state.previous_id) == (0, None)
    parser.read(Line(1, 0, b"{}"))
    assert parser.state.header is None


def test_faults_are_counted_and_the_first_ones_described_and_one_of_the_last_line_is_not_stored():
    parser = AGENTS["pi"].format.parser(ParserState(), [])
    for line in split_lines([session_bytes([HEADER]) + b"[]\n" * (DAMAGE_KEPT + 5) + b"{torn"]):
        parser.read(line)
    assert (parser.state.damaged, parser.damaged, len(parser.damage)) == (DAMAGE_KEPT + 5, DAMAGE_KEPT + 6, DAMAGE_KEPT)
    parser = AGENTS["pi"].format.parser(parser.state, [])
    parser.read(Line(2, parser.state.next_offset, b"{torn", complete=False))
    assert [fault.kind for fault in parser.damage] == [DamageKind.TORN_LINE]
