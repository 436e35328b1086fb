"""What a parser knows beyond single lines: the header, titles, the tools of results, and damage."""

from typing import Any

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.sessionlog.controls import NameControl
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import DamageKind, ParserState, Recorded
from tests.claude_sessions import (
    DIRECTORY,
    SESSION_ID,
    answer,
    at,
    boundary,
    call,
    reply,
    result,
    summary,
    talk,
    text,
    timed,
    user,
)

from .sent_messages import sent


def parse(lines: list[Any]) -> tuple[Any, list[Recorded]]:
    parser = CLAUDE_CODE.parser(ParserState(), [])
    return parser, [found for line in split_lines([timed(lines)]) for found in parser.read(line)]


TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary", "last-prompt": "lastPrompt"}


def title_after(*kinds: str) -> str:
    _, recorded = parse([{"type": kind, TITLES[kind]: kind} for kind in kinds])
    names = [one.entry.control.name for one in recorded if isinstance(one.entry.control, NameControl)]
    return names[-1] or ""


def test_the_best_title_counts_wherever_it_is():
    order = list(TITLES)
    for index, kind in enumerate(order):
        assert title_after(*order[index:]) == title_after(*reversed(order[index:])) == kind


def test_a_result_has_the_name_of_its_tool():
    _, recorded = parse([user("p1", None), reply("r1", "p1", call("c1")), result("x", "r1", "c1", "c2")])
    assert [one.entry.tool_name for one in recorded] == ["", "", "Bash", ""]


def test_a_summary_is_told_from_what_the_user_said():
    _, recorded = parse([user("p1", None), summary("s", "p1")])
    assert [one.entry.role for one in recorded] == [Role.USER, Role.COMPACTION_SUMMARY]


def test_bytes_that_are_no_object_any_more_are_no_entry():
    _, recorded = parse([user("p1", None)])
    for raw in (b"[1]", b'"text"', b"null", b"{"):
        assert CLAUDE_CODE.read_again(raw, recorded[0].entry, 1) is None


def test_the_header_is_that_of_the_first_lines():
    mode = {"type": "mode", "sessionId": SESSION_ID}
    parser, _ = parse([mode, user("p1", None), user("p2", "p1", cwd="/else")])
    header = parser.state.header
    assert (header.id, header.cwd, header.timestamp) == (SESSION_ID, DIRECTORY, at(1))
    assert not header.is_subagent


def test_a_subagent_has_the_session_that_started_it_as_its_parent():
    parser, _ = parse([user("p1", None, isSidechain=True, agentId="helper")])
    header = parser.state.header
    assert (header.id, header.parent_session, header.is_subagent) == ("helper", SESSION_ID, True)


def test_a_line_with_several_results_is_several_entries_and_the_last_has_its_id():
    _, recorded = parse([user("x", "r", [text("said"), answer("c1"), answer("c2")])])
    entries = [one.entry for one in recorded]
    expected = [("x.0", "r", Role.TOOL_RESULT), ("x.1", "x.0", Role.TOOL_RESULT), ("x", "x.1", Role.USER)]
    assert [(one.id, one.parent_id, one.role) for one in entries] == expected
    assert len({one.offset for one in entries}) == len(entries)


def test_damaged_lines_are_counted():
    parser, _ = parse(['{"type":', "[]", {"type": "user", "message": {"content": "x"}}])
    kinds = [one.kind for one in parser.damage]
    assert kinds == [DamageKind.NOT_JSON, DamageKind.NOT_AN_OBJECT, DamageKind.NO_ID]


def test_a_segment_does_not_go_on_across_a_boundary():
    first = [boundary("b", "r2", "p2 r2", "s"), summary("s", "b"), user("p3", "s"), reply("r3", "p3")]
    second = [boundary("b2", "r3", anchor="s2", segment="p2 r3"), summary("s2", "b2"), user("p4", "s2")]
    assert sent([*talk(2), *first, *second, reply("r4", "p4")]) == ["user: s2\n | p4", "assistant: r4"]


def test_what_follows_a_kept_entry_follows_the_summary_too():
    lines = [*talk(3), boundary("b", "r3", "p3 r3", "s"), summary("s", "b"), user("p4", "r3")]
    after = ["user: s\n | p3", "assistant: r3", "user: p4", "assistant: r4"]
    assert sent([*lines, reply("r4", "p4")]) == after


def test_a_dropped_line_of_a_reply_on_another_branch_does_not_come_back():
    other = [user("q", "r1"), reply("t", "q", of="R"), *talk(2)[2:]]
    lines = [*talk(1), *other, boundary("b", "r2", "p2 r2"), user("p4", "b"), reply("r4", "p4", of="R")]
    assert sent(lines)[-1] == "assistant: r4"


def test_a_file_is_recognised_by_its_first_bytes_even_if_its_first_line_is_longer():
    long = timed([user("p1", None, "x" * 100_000)])
    assert CLAUDE_CODE.recognises(long[:65_536])
    assert not CLAUDE_CODE.recognises(long[1:65_536])
    assert CLAUDE_CODE.recognises(timed([{"type": "mode"}, *talk(1)]))
    assert not CLAUDE_CODE.recognises(timed([{"type": "session", "id": "s"}]))
