"""Random accepted plans on threads made of real sessions, by every writer: the approved context, as in a commit."""

import random

import pytest

from devtools.bench.codex import can_write, certify_plan, random_plan, write_thread
from devtools.bench.sessions import generate, read_branch, real_sessions
from devtools.bench.written_plans import notes_on
from sessions_app.agents.codex.agent import CODEX
from sessions_app.storage.session_loader import load_session

CASES = [
    (generation, writer, paginated)
    for generation in CODEX.generations
    for writer in generation.writers
    for paginated in (True, False)
    if can_write(generation, writer, paginated=paginated)
]


@pytest.mark.parametrize(
    ("generation", "writer", "paginated"),
    CASES,
    ids=[f"{one.reader.name}-{writer.name}-{'paginated' if is_new else 'legacy'}" for one, writer, is_new in CASES],
)
def test_every_accepted_plan_gives_the_approved_context(generation, writer, paginated, tmp_path):
    chance = random.Random(3)
    smallest = sorted(real_sessions(), key=lambda path: path.stat().st_size)[:2]
    made = [read_branch(path).recorded for path in smallest]
    for recorded in [*made, list(generate(entries=200, entry_bytes=600, seed=3))]:
        loaded = load_session(write_thread(tmp_path, recorded, paginated=paginated))
        for _ in range(3):
            plan = random_plan(loaded, generation, writer, chance, 30)
            notes = notes_on(plan.targets) if writer.holds_notes else {}
            certify_plan(loaded, generation, writer, plan, notes)
