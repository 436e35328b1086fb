"""What Claude Code sends of a session, rule by rule; each case was recorded from the client."""

import json
from typing import Any

import pytest

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from tests.claude_sessions import (
    Object,
    answer,
    at,
    attachment,
    boundary,
    call,
    line,
    prompted,
    reply,
    result,
    summary,
    system,
    talk,
    text,
    thinking,
    timed,
    user,
)
from tests.work_counts import calls_made

from .sent_messages import CURRENT, OLDER, line_in, sent, tree_of

CAVEAT, CLOSED = "<local-command-caveat>", "No response requested."
TAGGED = "<system-reminder>\nA\n</system-reminder>"
THREE = P1, R1, P2, R2, P3, R3 = talk(3)
ONE, TWO = THREE[:2], THREE[:4]
P4, R4 = user("p4", "s"), reply("r4", "p4")
CALLED, X, AFTER_X = reply("r1", "p1", call("c1")), result("x", "r1", "c1"), reply("r2", "x")
"""A reply with a call, the result of the call, and what is said then."""
SUM = summary("s", "b")
BOTH = "p1 / r1 / p2 / r2"
ALL = f"{BOTH} / p3 / r3"
"""What is sent of two turns, and of three."""


def turns(said: str) -> list[str]:
    """Messages that ` / ` separates, of the user and of the model in turn unless one names its role."""
    found: list[str] = []
    for words in said.split(" / ") if said else ():
        last = next((one for one in reversed(found) if not one.startswith("system: ")), "")
        role = "assistant" if last.startswith("user: ") else "user"
        found.append(words if words.startswith(("user: ", "assistant: ", "system: ")) else f"{role}: {words}")
    return found


TWO_TURNS = turns(BOTH)


def note(parent: str) -> Object:
    """A line of the client's own."""
    return system("n", parent, "turn_duration")


def error(name: str, parent: str) -> Object:
    """A message of the client's own about an error."""
    return reply(name, parent, isApiErrorMessage=True, message={"model": "<synthetic>"})


def answered(call_id: str) -> list[Object]:
    """A prompt, a reply with a call, and its result."""
    return [P1, reply("r1", "p1", call(call_id)), result("x", "r1", call_id)]


def summed(kept: str, anchor: str) -> list[Object]:
    """A boundary after three turns that keeps these lines, its summary, and a prompt."""
    return [boundary("b", "r3", kept, anchor), SUM, P4]


def calls_and_results(count: int) -> list[Object]:
    """A prompt, then as many replies with a call, each with its result."""
    lines = [user("p", None)]
    for number in range(count):
        said = reply(f"r{number}", lines[-1]["uuid"], call(f"c{number}"))
        lines += [said, result(f"a{number}", said["uuid"], f"c{number}")]
    return lines


def test_the_work_grows_with_the_length_of_a_turn():
    short, long = calls_and_results(50), calls_and_results(200)
    sent(short)
    assert calls_made(lambda: sent(long)) < 5 * calls_made(lambda: sent(short))


def parallel() -> list[Object]:
    """Three calls of one reply; the results of the first two are beside the branch."""
    return [
        P1,
        reply("r1", "p1", thinking("t"), of="R"),
        reply("r2", "r1", call("c1"), of="R"),
        reply("r3", "r2", call("c2"), of="R"),
        reply("r4", "r3", call("c3"), of="R"),
        result("x1", "r2", "c1"),
        result("x2", "r3", "c2"),
        result("x3", "r4", "c3"),
        reply("end", "x3"),
    ]


PARALLEL = turns("p1 / ~t | !c1 | !c2 | !c3 / =c1 | =c2 | =c3 / end")
SIDE = [user("s1", None, isSidechain=True), reply("s2", "s1", isSidechain=True)]
OTHER = [user("p2b", "r1"), reply("r2b", "p2b")]
SUMMED = [*TWO, boundary("b", "r2"), SUM, user("p3", "s"), reply("r3", "p3")]
INSIDE = [*ONE, user("s1", "r1", isSidechain=True), user("p2", "s1"), R2]
BRANCHES: dict[str, tuple[list[Object], str]] = {
    "the last line with an id counts": ([*TWO, user("p2", "r1", "again")], "p1 / r1 / again / r2"),
    "a subagent's lines are no leaf": ([*TWO, *SIDE], BOTH),
    "a subagent's lines are sent inside a branch": (INSIDE, "p1 / r1 / s1\n | p2 / r2"),
    "a subagent's own file is read as its session": (SIDE, "s1 / s2"),
    "the leaf is the last end in the file": ([*TWO, *OTHER], "p1 / r1 / p2b / r2b"),
    "an end earlier in the file is not the leaf": ([*ONE, *OTHER, P2, R2], BOTH),
    "a line after a call as the leaf": ([*answered("c1"), reply("end", "x"), note("r1")], f"p1 / !c1 / =c1 / {CLOSED}"),
    "a line after another branch may be the leaf": ([*TWO, user("p2b", "r1"), note("r2")], BOTH),
    "a prompt's line names the end of the session": ([*TWO, *OTHER, prompted("r2")], BOTH),
    "what is said elsewhere afterwards changes nothing": ([*TWO, prompted("r2"), *OTHER], BOTH),
    "what goes on from a named end is the session": (
        [*TWO, *OTHER, prompted("r2"), user("p3", "r2"), reply("r3", "p3")],
        ALL,
    ),
    "the session ends where a prompt's line says, even if something said follows there": (
        [*TWO, *OTHER, prompted("p2")],
        f"p1 / r1 / p2 / {CLOSED}",
    ),
    "unless what stands last in the file follows it": ([*TWO, *OTHER, prompted("r1")], "p1 / r1 / p2b / r2b"),
    "or comes with the next": ([*answered("c1"), user("p2", "r1"), R2, prompted("x")], "p1 / !c1 / =c1 | p2 / r2"),
    "but not what follows the same as a note that is named": (
        [*TWO, attachment("n", "r1", "n"), user("p2b", "n"), P3, R3, prompted("n")],
        "p1 / r1 / n",
    ),
    "nor what a boundary drops": ([*TWO, *SUMMED[4:6], user("p2b", "r1"), prompted("b")], f"p1 / r1 / p2b / {CLOSED}"),
    "all notes below the end belong to it, those of a note before those beside it": (
        [*ONE, *(attachment(name, on, name) for name, on in (("n1", "r1"), ("n3", "r1"), ("n2", "n1")))],
        "p1 / r1 / n1 | n2 | n3",
    ),
    "and so do those below a named end, even if something said follows them": (
        [*ONE, attachment("n1", "r1", "n1"), user("p2", "n1"), user("px", "p1"), prompted("r1")],
        "p1 / r1 / n1",
    ),
    "a prompt's line may name a prompt": ([*TWO[:3], *OTHER, prompted("p2")], f"p1 / r1 / p2 / {CLOSED}"),
    "a prompt's line may name what follows the end": ([*TWO, note("r2"), *OTHER, prompted("n")], BOTH),
    "the last of two prompts' lines counts": ([*TWO, *OTHER, prompted("r2"), prompted("r2b")], "p1 / r1 / p2b / r2b"),
    "a prompt's line that names nothing is ignored": ([*TWO, *OTHER, prompted("gone")], "p1 / r1 / p2b / r2b"),
    "a prompt's line may name what stands before a compaction": ([*SUMMED, prompted("r2")], BOTH),
    "a prompt's line before a compaction is ignored": ([*TWO, prompted("r2"), *SUMMED[4:]], "s\n | p3 / r3"),
    "what a compaction dropped cannot be named": ([*TWO, boundary("b", "r2", "p1 r1"), prompted("r2")], "p1 / r1"),
    "what precedes a leaf without parent": ([*TWO, system("n", None, "informational")], BOTH),
    "something said precedes a boundary": ([*TWO, boundary("b", "r2")], BOTH),
    "nothing before the last boundary is sent": (SUMMED, "s\n | p3 / r3"),
    "nothing before the last of several boundaries is sent": (
        [*SUMMED, boundary("b2", "r3"), summary("s2", "b2"), user("p4", "s2"), R4],
        "s2\n | p4 / r4",
    ),
    "what follows a dropped entry leads nowhere before the last boundary, whatever the times": (
        [
            *(*TWO, boundary("b", "r2", "p2 r2"), boundary("b2", "r2")),
            *(user("p3", "r1", timestamp=at(4)), reply("r3", "p3", timestamp=at(5))),
        ],
        "p3 / r3",
    ),
    "a branch from before a compaction is sent whole": ([*SUMMED, *OTHER], "p1 / r1 / p2b / r2b"),
    "of several entries of the same time a lost one follows the first": (
        [
            *(*ONE, user("p2", "r1", timestamp=at(4)), reply("r2", "p2", timestamp=at(4))),
            reply("r3", "gone", timestamp=at(4)),
        ],
        "p1 / r1 / p2 / r3",
    ),
    "a cycle is cut above its first line": ([*TWO, user("a", "b"), reply("b", "a")], "p1 / r1 / p2 / r2 / a / b"),
    "a cycle of all lines is cut as well": ([P1 | {"parentUuid": "r2"}, R1, P2, R2], BOTH),
    "what follows a kept entry in the middle is sent without the later ones": (
        [*THREE, boundary("b", "r3", "p1 r1 p3 r3"), user("p4", "r1"), R4],
        "p1 / r1 / p4 / r4",
    ),
    "what follows a kept entry follows the summary too": (
        [*THREE, boundary("b", "r3", "p3 r3", "s"), SUM, user("p4", "r3"), R4],
        "s\n | p3 / r3 / p4 / r4",
    ),
    "what follows a dropped entry": ([*THREE, boundary("b", "r3", "p1 r1"), user("p4", "r2"), R4], "p1 / r1 / p4 / r4"),
    "a boundary keeps entries of other branches": (
        [*TWO, *OTHER, boundary("b", "r2b", "p1 r1 p2 r2 p2b r2b")],
        "p1 / r1 / p2 / r2 / p2b / r2b",
    ),
    "a last boundary that keeps nothing": ([*TWO, boundary("b", "r2", "p2 r2"), boundary("b2", "r2")], ""),
    "a segment does not go on across a boundary": (
        [
            *(*TWO, boundary("b", "r2", "p2 r2", "s"), SUM, user("p3", "s"), reply("r3", "p3")),
            *(boundary("b2", "r3", anchor="s2", segment="p2 r3"), summary("s2", "b2"), user("p4", "s2")),
            R4,
        ],
        "s2\n | p4 / r4",
    ),
    "attachments come before the texts of their turn": (
        [P1, attachment("a", "p1", "A"), attachment("b", "a", "B"), reply("r1", "b")],
        "A | B\n | p1 / r1",
    ),
    "attachments before a turn": ([*ONE, attachment("a", "r1", "A"), user("p2", "a"), R2], "p1 / r1 / A\n | p2 / r2"),
    "attachments of the system are one message after the turn": (
        [
            *(P1, attachment("a", "p1", "A", "B", role="system")),
            *(attachment("c", "a", "C", role="system"), reply("r1", "c")),
        ],
        "p1 / system: A\nB\n\nC / r1",
    ),
    "attachments of two texts": ([P1, attachment("a", "p1", "A", "B"), reply("r1", "a")], "A / user: B\n | p1 / r1"),
    "attachments for the system have no tags": (
        [P1, attachment("a", "p1", TAGGED, role="system"), reply("r1", "a")],
        "p1 / system: A / r1",
    ),
    "attachments between replies keep their tags": (
        [*ONE, attachment("a", "r1", TAGGED, role="system"), reply("r2", "a")],
        f"p1 / r1 / {TAGGED} / r2",
    ),
    "attachments that recorded a prompt of the system are not sent": (
        [P1, attachment("a", "p1", "A", type="prompt_snapshot"), reply("r1", "a")],
        "p1 / r1",
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_and_its_attachments(name):
    lines, said = BRANCHES[name]
    assert sent(lines) == turns(said)


@pytest.mark.parametrize("kind", ["progress", "unheard-of"])
def test_what_the_client_passes_over_is_no_leaf(kind):
    assert sent([*answered("c1"), reply("end", "x"), line("n", "r1", kind)])[-1] == "assistant: end"
    assert sent([*TWO, user("p2b", "r1"), line("n", "r2", kind)])[2] == "user: p2b"


def test_an_entry_without_parent_follows_the_latest_that_is_at_most_5_seconds_older():
    def gap(seconds: float) -> list[str]:
        lost = reply("r2", "gone", timestamp=at(1 + seconds))
        return sent([*ONE, lost])

    assert gap(5.0) == ["user: p1", "assistant: r1", "assistant: r2"]
    assert gap(5.001) == ["assistant: r2"]


@pytest.mark.parametrize("kind", ["progress", "system"])
def test_a_lost_entry_may_follow_one_that_is_not_sent_but_no_subagents(kind):
    other = [user("other", None), line("n", "other", kind)]
    assert sent([*ONE, *other, reply("r2", "gone")]) == turns("other / r2")
    side = user("s", None, isSidechain=True)
    assert sent([*ONE, side, reply("r2", "gone")]) == ["user: p1", "assistant: r1", "assistant: r2"]


KEPT: dict[str, tuple[Any, ...]] = {
    "a list": ([boundary("b", "r3", "p1 r1 p3 r3", segment="p1 r3")], "p1 / r1 / p3 / r3", ALL),
    "another order": ([boundary("b", "r3", "p3 r3 p1 r1")], "p3 / r3 / p1 / r1", ALL),
    "after the summary": ([boundary("b", "r3", "p3 r3", "s", "p3 r3"), SUM, P4, R4], "s\n | p3 / r3 / p4 / r4"),
    "only a segment": ([boundary("b", "r3", anchor="s", segment="p2 r3"), SUM, P4], "s\n | p2 / r2 / p3 / r3 / p4"),
    "a list with an unknown id": (summed("p1 gone r3", "s"), "s\n | p4"),
    "a segment without its first entry": ([boundary("b", "r3", anchor="s", segment="gone r3"), SUM, P4], "s\n | p4"),
    "an anchor that does not exist": (summed("p1 r1", "gone"), "s\n | p4"),
    "an anchor before the boundary": (summed("p3 r3", "r1"), "s\n | p4"),
    "an anchor behind it": ([*summed("p3 r3", "p4"), R4], "s\n | p4\n | p3 / r3 / assistant: r4", "s\n | p4 / r4"),
    "what follows the last kept entry": (
        [boundary("b", "r3", "p1 r1 p3 r3", segment="p1 r3"), user("p4", "r3"), R4],
        "p1 / r1 / p3 / r3 / p4 / r4",
        f"{ALL} / p4 / r4",
    ),
    "what the boundary before kept": (
        [*summed("p2 r2 p3 r3", "s"), R4, boundary("b2", "r4", "s p2 r2 p4 r4")],
        "s\n | p2 / r2 / p4 / r4",
        "s\n | p4 / r4",
    ),
}
"""Lines after three turns, what is sent of them, and what an older client sends if that is something else."""


@pytest.mark.parametrize("name", KEPT)
def test_a_boundary_keeps(name):
    lines, newer, *older = KEPT[name]
    for expected, generation in ((newer, CURRENT), ([*older, newer][0], OLDER)):
        messages = sent([*THREE, *lines], generation)
        assert [message for message in messages if message != f"assistant: {CLOSED}"] == turns(expected)


def test_all_lines_of_a_reply_and_their_results_are_sent_together_and_a_result_at_the_end_is_the_leaf():
    lines = parallel()
    between = [*lines[:3], lines[5], lines[3], lines[6], lines[4], *lines[7:]]
    behind_first = [*lines[:8], reply("end", "x1")]
    for order in (lines, between, behind_first):
        assert sent(order) == PARALLEL
    late = sent([*lines[:5], *lines[6:], lines[5]])
    assert late == [*PARALLEL[:2], "user: =c2 | =c3 | =c1", f"assistant: {CLOSED}"]


def test_of_results_on_two_branches_the_first_in_the_file_is_sent():
    first, second = (user(f"x{said}", "r1", [answer("c1", said)]) for said in ("first", "second"))
    lines = [P1, CALLED, first, reply("end1", "xfirst")]
    assert sent([*lines, second, reply("end2", "xsecond")])[2:] == ['user: =c1 "first"', "assistant: end2"]


def test_what_was_added_to_a_result_comes_with_it():
    lines = parallel()
    added = [*lines[:6], attachment("a", "x1", "A"), *lines[6:]]
    assert sent(added)[2] == 'user: =c1 "found c1\\n\\nA" | =c2 | =c3'
    said = user("x1", "r2", [answer("c1"), text("said")])
    assert sent([*lines[:5], said, *lines[6:]])[2] == "user: =c1 | =c2 | =c3 | said"
    assert sent([*added[:7], user("p2b", "a"), *added[7:]]) == PARALLEL
    noted = [P1, reply("r1", "p1", of="R"), attachment("a", "r1", "A"), user("p2", "r1"), R2]
    assert sent(noted) == turns(BOTH)


def test_results_are_in_the_order_of_the_file_and_before_in_that_of_time_if_nothing_follows():
    lines = parallel()
    dated = [one | {"timestamp": at(10 + second)} for second, one in enumerate(lines[5:8])]
    for end in ("x1", "x3"):
        reverse = [*lines[:5], *reversed(lines[5:8]), reply("end", end)]
        assert sent(reverse)[2] == "user: =c3 | =c2 | =c1"
        by_time = [*lines[:5], *reversed(dated), reply("end", end, timestamp=at(20))]
        assert sent(by_time)[2] == "user: =c3 | =c2 | =c1"
        is_first = end == "x1"
        assert sent(reverse, OLDER)[2] == f"user: {'=c3 | =c2 | =c1' if is_first else '=c2 | =c1 | =c3'}"
        assert sent(by_time, OLDER)[2] == f"user: {'=c2 | =c3 | =c1' if is_first else '=c1 | =c2 | =c3'}"


def test_lines_of_a_reply_on_another_branch_come_after_its_own():
    lines = [P1, reply("r1", "p1", of="R"), reply("r2", "r1", of="R"), P2]
    assert sent([*lines, reply("end", "p2")]) == turns("p1 / r1 | r2 / p2 / end")
    copies = [boundary("b", "r1"), user("q1", "b"), reply("s1", "q1", of="reply r1")]
    assert sent([*ONE, *copies]) == turns("q1 / s1 | r1")


def test_dropped_lines_of_a_kept_reply_do_not_come_back():
    lines = [*parallel(), boundary("b", "end", "p1 r1 r2 r4 x1 x3 end")]
    assert sent(lines) == turns("p1 / ~t | !c1 | !c3 / =c1 | =c3 / end")
    again = [*THREE, boundary("b", "r3", "p3 r3"), user("p4", "b"), reply("r4", "p4", of="reply r1")]
    assert sent(again)[-1] == "assistant: r4"
    beside = [*ONE, user("q", "r1"), reply("t", "q", of="R"), P2, R2, boundary("b", "r2", "p2 r2")]
    assert sent([*beside, user("p4", "b"), reply("r4", "p4", of="R")])[-1] == "assistant: r4"


def test_the_branches_of_a_tree_are_those_of_the_conversation():
    behind_first = [*parallel()[:8], line("n", "r3", "progress"), reply("end", "x1")]
    for tree in (tree_of(parallel()), tree_of(behind_first)):
        assert [len(children) for children in tree.children.values()] == [1] * len(tree.entries)


def test_only_results_and_other_replies_may_come_between_the_lines_of_a_reply():
    lines = [P1, reply("r1", "p1", call("c1"), of="R"), result("x1", "r1", "c1")]
    more = [reply("r2", "x1", call("c2"), of="S"), result("x2", "r2", "c2"), reply("r3", "x2", of="R")]
    assert sent([*lines, *more])[1:3] == ["assistant: r3 | !c1", "user: =c1"]
    assert sent([P1, reply("r1", "p1", of="R"), P2, reply("r2", "p2", of="R")]) == TWO_TURNS


MISSING = '=c2 "[Tool result missing due to internal error]"'
SENT: dict[str, tuple[Any, ...]] = {
    "texts that follow each other are separated": (
        [user("p1", None, [text("a"), text("b")]), user("p2", "p1"), reply("r1", "p2")],
        "a | b\n | p2 / r1",
    ),
    "results come first, wherever they are on their line": (
        [*(P1, CALLED), *(user("x", "r1", [text("a"), answer("c1")]), user("p2", "x"), R2)],
        "p1 / !c1 / =c1 | a | p2 / r2",
    ),
    "an error of the client's is not sent": ([P1, error("e", "p1"), user("p2", "e"), R2], "p1\n | p2 / r2"),
    "one of the two marks of an error alone is sent": (
        [
            *(P1, reply("e", "p1", isApiErrorMessage=True), user("p2", "e")),
            reply("f", "p2", message={"model": "<synthetic>"}),
        ],
        "p1 / e / p2 / f",
    ),
    "of the client's notes only commands are sent": (
        [
            *(P1, R1, system("c", "r1", "local_command", content="c")),
            *(line("n", "c", "progress"), system("i", "n", "informational", content="i")),
            *(line("u", "i", "unheard-of", message={"role": "user", "content": "u"}), user("p2", "u")),
            R2,
        ],
        "p1 / r1 / c\n | p2 / r2",
    ),
    "an unanswered call goes with its line": ([P1, reply("r1", "p1", "a", call("c1")), P2, R2], "p1\n | p2 / r2"),
    "one unanswered call of several is answered": (
        [P1, reply("r1", "p1", call("c1"), call("c2")), X, AFTER_X],
        f"p1 / !c1 | !c2 / {MISSING} | =c1 / r2",
    ),
    "a result without its call is left out": ([P1, R1, X, AFTER_X], "p1 / r1 / (no content) / r2"),
    "a reply with only a second call of one id is replaced": (
        [*answered("c1"), reply("r2", "x", call("c1")), result("x2", "r2", "c1"), reply("r3", "x2")],
        "p1 / !c1 / =c1 / [Tool use interrupted] / (no content) / r3",
    ),
    "nothing stands for a second call of one id in one reply": (
        [
            *(P1, reply("r1", "p1", call("c1"), of="R"), reply("r2", "r1", call("c1"), of="R")),
            *(result("x", "r2", "c1"), reply("r3", "x")),
        ],
        "p1 / !c1 / =c1 / r3",
    ),
    "the notice of a background task is one text": (
        [*(P1, R1), user("p2", "r1", [text("n1"), text("n2")], origin={"kind": "task-notification"}), R2],
        "p1 / r1 / n1\nn2 / r2",
        "p1 / r1 / n1 | n2 / r2",
    ),
    "a second call of one id is left out": (
        [*answered("c1"), reply("r2", "x", "a", call("c1")), result("x2", "r2", "c1"), reply("r3", "x2")],
        "p1 / !c1 / =c1 / a / (no content) / r3",
    ),
    "of several results of a call the first is sent": (
        [*answered("c1"), user("x2", "x", [answer("c1", "late")]), reply("r2", "x2")],
        "p1 / !c1 / =c1 / r2",
    ),
    "a result before its call": (
        [*(P1, R1, result("x1", "r1", "c2")), *(reply("r2", "x1", call("c2")), user("p2", "r2"), reply("r3", "p2"))],
        "p1 / r1 / assistant: !c2 / =c2 | p2 / r3",
        f"p1 / r1 / (no content) / !c2 / {MISSING} | p2 / r3",
    ),
    "an empty reply is filled, a blank one left out": (
        [
            *(P1, line("r1", "p1", "assistant", message={"id": "R", "content": []})),
            *(P2, reply("r2", "p2", " \n"), user("p3", "r2"), reply("r3", "p3")),
        ],
        "p1 / (no content) / p2\n | p3 / r3",
    ),
    "blank texts beside others": (
        [user("p1", None, [text(""), text("a")]), reply("r1", "p1", "", "b")],
        "a / b",
        " | a /  | b",
    ),
    "only thinking is left out": (
        [P1, reply("r1", "p1", thinking("t")), P2, reply("r2", "p2", thinking("u"), "b")],
        "p1\n | p2 / ~u | b",
    ),
    "thinking stays if its reply has another line": (
        [P1, reply("r1", "p1", thinking("t"), of="R"), reply("r2", "r1", of="R")],
        "p1 / ~t | r2",
    ),
    "calls come last": (
        [P1, reply("r1", "p1", call("c1"), "a"), X, AFTER_X],
        "p1 / a | !c1 / =c1 / r2",
        "p1 / !c1 | a / =c1 / r2",
    ),
    "calls stay between thoughts": (
        [*(P1, reply("r1", "p1", thinking("t"), call("c1"), thinking("u"), "a")), *(X, AFTER_X)],
        "p1 / ~t | !c1 | ~u | a / =c1 / r2",
    ),
    "a prompt at the end is answered": ([P1, R1, P2], f"p1 / r1 / p2 / {CLOSED}"),
    "a result at the end is answered": (
        answered("c1"),
        f"p1 / !c1 / =c1 / {CLOSED}",
        f"p1 / !c1 / =c1 | Continue from where you left off. / {CLOSED}",
    ),
    "a command or an error at the end is not": (
        [*ONE, P2, error("e", "p2"), system("c", "e", "local_command", content="c")],
        "p1 / r1 / p2\n | c\n",
        "p1 / r1 / p2\n",
    ),
    "a command at the end follows the reply to a prompt": (
        [*ONE, P2, system("c", "p2", "local_command", content="c")],
        f"p1 / r1 / p2 / {CLOSED} / c\n",
        f"p1 / r1 / p2 / {CLOSED}",
    ),
    "commands that the user ran are left open": (
        [
            *(*ONE, user("k", "r1", f"{CAVEAT} k", isMeta=True), user("c", "k", "<command-name> c")),
            user("o", "c", "<local-command-stdout> o"),
        ],
        f"p1 / r1 / {CAVEAT} k\n | <command-name> c\n | <local-command-stdout> o\n",
        f"p1 / r1 / {CAVEAT} k\n | <command-name> c\n | <local-command-stdout> o / {CLOSED}",
    ),
    "commands without the client's note are prompts": (
        [*ONE, user("c", "r1", "<command-name> c")],
        f"p1 / r1 / <command-name> c / {CLOSED}",
    ),
    "thinking of another model": (
        [
            *(P1, reply("r1", "p1", thinking("t"), "a", message={"model": "claude-other"})),
            *(P2, reply("r2", "p2", thinking("u"), "b")),
        ],
        "p1 / a / p2 / ~u | b",
        "p1 / ~t | a / p2 / ~u | b",
    ),
    "virtual lines are not sent": ([P1, reply("r1", "p1", isVirtual=True), P2, R2], "p1\n | p2 / r2"),
    "an attachment that was not rendered is sent without the client's words": (
        [P1, attachment("a", "p1", type="queued_command", prompt="more"), reply("r1", "a")],
        "p1 / system: more / r1",
        "more\n | p1 / r1",
    ),
    "a call at the end is answered, or goes": (
        [P1, reply("r1", "p1", "a", call("c1"))],
        f'p1 / a | !c1 / =c1 "[Tool call interrupted]" / {CLOSED}',
        f"p1 / {CLOSED}",
    ),
}
"""Lines, what is sent of them, and what an older client sends if that is something else."""


def test_after_a_compaction_the_client_closes_the_session_unless_it_noted_something_down():
    compacted = [*TWO, boundary("b", "r2"), SUM]
    assert sent(compacted) == ["user: s", f"assistant: {CLOSED}"]
    assert sent([*compacted, attachment("a", "s", "A")]) == ["user: A\n | s"]


OPEN_AT_END = [P1, reply("r1", "p1", call("c1"), of="R"), reply("r2", "r1", call("c2"), of="R"), X]


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ([reply("r3", "x", call("c3"))], True),
        ([reply("r3", "x", call("c3")), result("x3", "r3", "c3")], True),
        ([reply("r3", "x", call("c3")), result("x3", "r3", "c3"), reply("said", "x3")], False),
        ([reply("said", "x"), reply("r3", "said", call("c3"))], False),
        ([user("p2", "x"), reply("r3", "p2", call("c3"))], False),
        (
            [
                *(reply("said", "x"), reply("r3", "said", call("c3")), result("x3", "r3", "c3")),
                reply("r4", "x3", call("c4")),
            ],
            True,
        ),
    ],
)
def test_if_a_session_ends_with_a_result_or_calls_after_one_none_since_the_prompt_is_left_out(more, stays):
    first = ["assistant: !c1 | !c2", f"user: {MISSING} | =c1"] if stays else ["assistant: !c1", "user: =c1"]
    found = sent([*OPEN_AT_END, *more])[1:3]
    assert [found[0], found[1].removesuffix(" | p2")] == first


@pytest.mark.parametrize("name", SENT)
def test_a_request(name):
    lines, newer, *older = SENT[name]
    assert sent(lines) == turns(newer)
    assert sent(lines, OLDER) == turns([*older, newer][0])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        *[(said, '"x\\n\\nA\\n\\nB"') for said in ("x", "x \n")],
        *(("", '"A\\n\\nB"'), (" \n", '"A\\n\\nB"'), ([text("x")], None), (7, '"7\\n\\nA\\n\\nB"'), ({"x": 1}, None)),
    ],
)
def test_an_attachment_after_a_result_becomes_part_of_it(content, expected):
    lines = [P1, CALLED, user("x", "r1", [answer("c1", content)])]
    lines += [attachment("a", "x", "A"), attachment("b", "a", "B"), user("p2", "b"), R2]
    found = sent(lines)[2]
    assert found.endswith(" | p2")
    if expected is not None:
        assert found == f"user: =c1 {expected} | p2"


OLDER_MODELS = ("opus-4-5-20251101", "opus-4-6", "opus-4-7", "sonnet-4-5-20250929", "sonnet-4-6", "haiku-4-5")
NEWER_MODELS = ("opus-4-20250514", "opus-4-8", "sonnet-4-7", "haiku-4-6", "sonnet-5")


@pytest.mark.parametrize("model", [*OLDER_MODELS, *NEWER_MODELS])
def test_for_an_older_model_attachments_of_the_system_are_the_users(model):
    model_field = {"model": f"claude-{model}"}
    lines = [
        *(P1, attachment("a", "p1", TAGGED, role="system")),
        reply("r1", "a", call("c"), message=model_field),
        *(result("x", "r1", "c"), attachment("b", "x", TAGGED, role="system")),
        reply("r2", "b", message=model_field),
    ]
    if model in OLDER_MODELS:
        found = json.dumps(f"found c\n\n{TAGGED}")
        first, second = [f"user: {TAGGED}\n | p1"], [f"user: =c {found}"]
    else:
        first, second = ["user: p1", "system: A"], ["user: =c", "system: A"]
    assert sent(lines) == [*first, "assistant: !c", *second, "assistant: r2"]


def test_the_last_reply_says_the_model_that_takes_the_attachments():
    added = [P1, attachment("a", "p1", "A", role="system")]
    older, newer = {"model": "claude-sonnet-4-6"}, {"model": "claude-opus-4-8"}
    for first, last, expected in ((older, newer, "p1 / system: A"), (newer, older, "A\n | p1")):
        lines = [*added, reply("r1", "a", message=first), P2, reply("r2", "p2", message=last)]
        assert sent(lines)[:-3] == turns(expected)


def test_an_older_version_sends_what_it_knows_of_an_attachment_that_a_newer_one_rendered():
    def shown(*rendered: str, **content: Any) -> list[str]:
        return sent([P1, attachment("a", "p1", *rendered, **content), reply("r1", "a")], OLDER)[:-1]

    assert shown("A") == ["user: p1"]
    assert shown("A", type="queued_command", prompt="more") == ["user: more\n | p1"]
    assert shown(type="file", content="inside") == ["user: inside\n | p1"]


def test_the_entries_around_which_the_client_puts_words_of_its_own_are_named():
    lines = [
        *(P1, R1, user("n", "r1", origin={"kind": "task-notification"}), reply("r2", "n")),
        *(user("h", "r2", origin={"kind": "human"}), reply("r3", "h")),
        *(attachment("a", "r3", "A"), attachment("b", "a", type="queued_command", prompt="later"), user("p4", "b")),
    ]
    raw = timed(lines)
    branch = tree_of(lines).branch("p4")
    for generation, expected in ((CURRENT, ["n", "b"]), (OLDER, ["b"])):
        assert list(CLAUDE_CODE.format.reworded_entries(generation.reader.rebuild(branch), line_in(raw))) == expected


def test_a_blank_prompt_is_sent_only_if_nothing_else_is():
    blank, said = user("p1", None, " "), R1
    assert sent([blank, said]) == turns("  / r1")
    assert sent([user("p1", None, [text(" ")]), said]) == turns("(no content) / r1")
    assert sent([user("p1", None, [text(" "), text("x")]), said]) == turns("x / r1")
    assert sent([blank, attachment("a", "p1", "A"), reply("r1", "a")]) == turns("A\n / r1")
    assert sent([user("p1", None, [text(" "), text("x")]), said], OLDER)[0] == "user:   | x"


def test_a_reply_goes_on_after_what_is_said_beside_a_result():
    lines = [P1, reply("r1", "p1", call("c1"), of="R"), user("x", "r1", [answer("c1")])]
    lines += [user("u", "x", "said"), reply("r2", "u", "more", of="R")]
    assert sent(lines, OLDER) == turns("p1 / !c1 | more / =c1 | said")
    assert sent([P1, reply("r1", "p1", "a", of="R"), P2, reply("r2", "p2", "b", of="R")]) == turns("p1 / a / p2 / b")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"type": "hook_success", "stdout": "noise", "content": ""}, None),
        ({"type": "todo_reminder", "content": [{"content": "Test it.", "status": "pending"}]}, None),
        ({"type": "hook_success", "content": ["a", "b"]}, "a\nb"),
        ({"type": "file", "content": {"type": "text", "file": {"content": "inside"}}}, "inside"),
    ],
)
def test_what_an_attachment_adds_without_being_rendered(content, expected):
    lines = [P1, attachment("a", "p1", **content), reply("r1", "a")]
    between = [] if expected is None else [f"system: {expected}"]
    assert sent(lines) == ["user: p1", *between, "assistant: r1"]


def test_broken_lines_are_skipped():
    first, *rest = talk(2)
    assert sent([first, '{"type":"user","uuid":"b', "[]", *rest, '{"type":']) == TWO_TURNS
