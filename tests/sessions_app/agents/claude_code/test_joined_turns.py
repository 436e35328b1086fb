"""Claude Code sends what stands between two replies as one message: what a plan moves by that is what is said of it."""

import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from compaction_app.changes.proof import approved_messages
from compaction_app.core.transcript import moved, prepare
from devtools.bench.written_plans import random_plan, require_approved_context, write_plan
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.pure.formats import Generation
from sessions_app.sessionlog.entries import Target
from sessions_app.storage.session_loader import load_session
from tests.budget import seeds
from tests.claude_sessions import (
    ClaudeSession,
    Object,
    answer,
    attachment,
    boundary,
    call,
    reply,
    result,
    summary,
    text,
    thinking,
    timed,
    user,
)
from tests.installation import refusal

from .sent_messages import CURRENT, OLDER, line_in, parsed
from .writing import WRITERS, put

Pair = tuple[str, str]


def moves(raw: bytes, targets: Sequence[Target], generation: Generation = CURRENT) -> list[Pair]:
    """What a plan moves, by the ids of the entries."""
    recorded = parsed(raw)[1]
    tree = CLAUDE_CODE.format.tree([one.entry for one in recorded])
    branch, line = tree.branch(tree.leaf.id), line_in(raw)
    texts = {one.entry.id: one.texts for one in recorded}
    rules = generation.rules.for_writer(generation.writers[-1])
    transcript = prepare(branch, texts, {"preserve_recent": 0, "query": "-"}, rules)
    return [*map(tuple, moved(transcript.entries, targets, generation.turns, lambda one: line(tree.entry(one))))]


def chained(*lines: Object) -> list[Object]:
    """The same lines, each after the one before it."""
    parents = [None, *(one["uuid"] for one in lines)]
    return [one | {"parentUuid": parent} for one, parent in zip(lines, parents, strict=False)]


U1, R1, U2, END = user("u1", None), reply("r1", None), user("u2", None), reply("end", None)
A1, A2 = (attachment(name, None, name) for name in ("a1", "a2"))
S1, S2 = (attachment(name, None, name, role="system") for name in ("s1", "s2"))
CALLS = (reply("c1", None, call("x")), result("x1", None, "x"), reply("r1", None))
HALF = (reply("c1", None, call("x"), of="R"), user("x1", "c1", [answer("x"), text("stop")]), reply("r2", None, of="R"))
THOUGHT = reply("t", None, thinking("t"))
FILE = attachment("a2", None, "a2", type="file", content={"type": "text", "file": {"content": "a2"}})
SUMMARY = (boundary("b", None), summary("sum", "b"), R1, FILE, U2)


@pytest.mark.parametrize(
    ("lines", "deleted", "expected"),
    [
        pytest.param((U1, R1, A2, U2, END), "r1", "a2<u1", id="an attachment"),
        pytest.param((U1, A1, R1, A2, U2, END), "r1", "a2<u1", id="attachments of both turns"),
        pytest.param((U1, R1, U2, END), "r1", "", id="texts alone"),
        pytest.param((U1, R1, A2, reply("r2", None), U2, END), "r1", "a2<u1", id="an attachment that ends a turn"),
        pytest.param((U1, R1, A2, U2, END), "a2", "", id="nothing that parts turns"),
        pytest.param((U1, reply("r0", None), R1, A2, U2, END), "r1", "", id="one of two replies"),
        pytest.param((U1, *CALLS, A2, U2, END), "c1 x1 r1", "a2<u1", id="a reply with calls"),
        pytest.param((U1, *CALLS, A2, U2, END), "c1 x1", "", id="the calls before a reply"),
        pytest.param((*SUMMARY, END), "r1", "a2<sum", id="a file that was read again after a summary"),
        pytest.param((U1, S1, R1, U2, END), "r1", "u2<s1", id="an attachment of the system"),
        pytest.param((U1, R1, S2, U2, END), "r1", "", id="an attachment of the system that stays behind"),
        pytest.param((U1, THOUGHT, A2, U2, R1, END), "r1", "", id="a reply that was never sent"),
        pytest.param((U1, *HALF, END), "x1.0", "x1<r2", id="a result without which a text is a prompt"),
    ],
)
def test_what_is_sent_before_something_that_precedes_it(lines, deleted, expected):
    raw = timed(chained(*lines))
    ids = [one.entry.id for one in parsed(raw)[1]]
    assert set(deleted.split()) <= set(ids), ids
    found = moves(raw, [Target(one) for one in deleted.split()])
    assert [f"{one}<{other}" for one, other in found] == expected.split()


def test_older_clients_and_models_send_attachments_of_the_system_as_the_users():
    lines = chained(U1, S1, R1, S2, U2, END)
    assert moves(timed(lines), [Target("r1")]) == [("u2", "s1")]
    assert moves(timed(lines), [Target("r1")], OLDER) == [("s2", "u1")]
    for one in lines:
        if one["type"] == "assistant":
            one["message"]["model"] = "claude-opus-4-5-20251101"
    assert moves(timed(lines), [Target("r1")]) == [("s2", "u1")]


def odd_session(chance: random.Random) -> ClaudeSession:
    """A session whose texts all differ, with attachments of each kind, results with texts on their lines, and turns
    without a reply."""
    session, numbers = ClaudeSession(), iter(range(10_000))

    def name(letter: str) -> str:
        return f"{letter}{next(numbers)}"

    def attach() -> None:
        for _ in range(chance.choice([0, 0, 1, 1, 2])):
            kind, role = chance.choice(["date", "queued_command"]), chance.choice(["user", "system"])
            texts = [name("A") for _ in range(chance.choice([1, 1, 2]))]
            session.add(attachment(session.new_id(), session.last, *texts, role=role, type=kind))

    def say() -> None:
        session.user(name("U"))

    for _ in range(chance.randint(3, 6)):
        say()
        attach()
        for _ in range(chance.randint(0, 3)):
            calls = [name("c") for _ in range(chance.randint(1, 3))]
            said = [thinking(name("t")), text(name("S"))][chance.randint(0, 2) :]
            made = session.reply(name("m"), *said, *map(call, calls))[-len(calls) :]
            if chance.random() < 0.5:
                for call_id, parent in zip(calls, made, strict=True):
                    session.result(call_id, name("R"), parent=parent)
            else:
                more = [text(name("X"))] if chance.random() < 0.7 else []
                session.user([*(answer(call_id, name("R")) for call_id in calls), *more])
            attach()
            if chance.random() < 0.2:
                say()
        if chance.random() < 0.8:
            session.reply(name("m"), text(name("S")))
    session.reply(name("m"), text(name("S")))
    return session


def in_order(messages: Iterable[Any]) -> list[str]:
    """The texts in the order in which they are sent, each once."""
    sent = json.dumps(list(messages)).replace("\\n", " ")
    return list(dict.fromkeys(re.findall(r"\b[UARXS]\d+\b", sent)))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("seed", seeds(2))
def test_what_a_plan_is_said_to_move_is_what_it_moves(tmp_path, name, seed):
    chance, writer = random.Random(seed), WRITERS[name]
    session = load_session(put(odd_session(chance), tmp_path))
    raw, branch = session.path.read_bytes(), session.tree.branch(session.leaf_id)
    texts = session.texts(branch)
    owners = {word: one.id for one in branch if one.is_message for word in texts[one.id].joined(one.blocks).split()}
    for wanted in (3, 10, 60):
        made = random_plan(session, CURRENT, writer, chance, wanted)
        assert made is not None
        context = CURRENT.reader.rebuild(branch)
        after = replace(context, messages=tuple(approved_messages(context, made.targets, writer)))
        orders = [in_order(CLAUDE_CODE.format.sent_messages(one, line_in(raw))) for one in (context, after)]
        before, now = ([*dict.fromkeys(owners[word] for word in order if word in owners)] for order in orders)
        kept = [one for one in now if one in before]
        overtaken = {
            (one, other)
            for at, one in enumerate(kept)
            for other in kept[at + 1 :]
            if before.index(other) < before.index(one)
        }
        found = moves(raw, made.targets)
        assert {one for one, _ in found} == {one for one, _ in overtaken}
        assert set(found) <= overtaken
        plan = write_plan(session, CURRENT, writer, made.targets, tmp_path)
        found = refusal(partial(require_approved_context, session, CLAUDE_CODE, CURRENT, writer, plan))
        # Without the result on its line, a text stands before the result of another call, and cannot be moved there.
        assert found == "done" or (name, found) == ("boundary", "2 breaks_context")
