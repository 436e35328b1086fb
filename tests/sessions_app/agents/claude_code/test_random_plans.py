"""Whatever plan the airlock accepts, a session written by either writer has the approved context, again and again."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.bench.written_plans import notes_on, random_plan, require_approved_context, write_plan
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.storage.session_loader import load_session
from tests.budget import seeds
from tests.claude_sessions import SESSION_ID, ClaudeSession, call, text, thinking
from tests.paths import corpus

from .sent_messages import CURRENT
from .writing import WRITERS, context_of, put

PLANS = 4


def story(chance: random.Random, *, attaches: bool = True) -> ClaudeSession:
    """A session of random turns, with thinking, calls at once, rewinds, compactions and attachments."""
    session = ClaudeSession()
    prompts: list[str] = []
    for turn in range(chance.randint(4, 12)):
        if prompts and chance.random() < 0.1:
            session.last = chance.choice(prompts)
        prompts.append(session.user(f"p{turn}"))
        if attaches and chance.random() < 0.3:
            session.attachment("date", f"d{turn}")
        for step in range(chance.randint(0, 3)):
            calls = [f"c{turn}.{step}.{number}" for number in range(chance.randint(1, 3))]
            said = [thinking(f"t{turn}"), text(f"s{turn}")][chance.randint(0, 2) :]
            made = session.reply(f"m{turn}.{step}", *said, *map(call, calls))[-len(calls) :]
            for call_id, line_id in zip(calls, made, strict=True):
                session.result(call_id, f"result of {call_id}", parent=line_id)
        session.reply(f"m{turn}", text(f"a{turn}"))
        if chance.random() < 0.15:
            session.boundary()
            session.user("what was said", isCompactSummary=True)
    return session


def sessions(directory: Path) -> Iterator[Path]:
    for seed in seeds(4):
        yield put(story(random.Random(seed)), directory / str(seed))
    real = corpus()
    for path in sorted(real.glob("claude-code/*.jsonl")) if real is not None else ():
        copy = directory / path.stem / ".claude" / "projects" / "-home" / f"{SESSION_ID}.jsonl"
        copy.parent.mkdir(parents=True)
        copy.write_bytes(path.read_bytes())
        yield copy


def only_thinking(context: ActiveContext) -> set[str]:
    """The replies that the client would leave out."""
    said: dict[str, set[bool]] = {}
    for message in context.messages:
        for block in message.blocks or () if message.entry.reply else ():
            said.setdefault(message.entry.reply, set()).add(block.is_thinking)
    return {reply for reply, kinds in said.items() if kinds == {True}}


@pytest.mark.parametrize("name", WRITERS)
def test_a_written_plan_has_the_approved_context(tmp_path, name):
    chance, writer = random.Random(name), WRITERS[name]
    deleted = 0
    for path in sessions(tmp_path):
        session = load_session(path)
        for _ in range(PLANS):
            made = random_plan(session, CURRENT, writer, chance, chance.randint(1, 60))
            if made is None:
                continue
            notes = notes_on(made.targets) if writer.holds_notes else {}
            plan = write_plan(session, CURRENT, writer, made.targets, path.parent.parent, notes)
            require_approved_context(session, CLAUDE_CODE, CURRENT, writer, plan)
            assert only_thinking(plan.approved) <= only_thinking(context_of(path))
            deleted += len(made.targets)
    assert deleted


@pytest.mark.parametrize("seed", seeds(4))
def test_plans_on_top_of_plans_have_the_approved_context(tmp_path, seed):
    chance = random.Random(seed)
    path = put(story(chance), tmp_path)
    for _ in range(6):
        session, writer = load_session(path), WRITERS[chance.choice(list(WRITERS))]
        made = random_plan(session, CURRENT, writer, chance, chance.randint(1, 6))
        if made is None:
            return
        plan = write_plan(session, CURRENT, writer, made.targets, path.parent)
        require_approved_context(session, CLAUDE_CODE, CURRENT, writer, plan)
        path = plan.path
