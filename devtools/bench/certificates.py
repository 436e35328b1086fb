"""Figures of certificates: the time to prove a write, and random plans by every writer."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from compaction_app.changes.proof import Rebuilt, certificate_of, require_approved
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Transcript, prepare
from devtools.agent_vectors import WRITTEN_AT, RecordedSession, read_recorded, session_after, write_facts
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pure.formats import Generation, SessionWriter
from sessions_app.agents.registry import GENERATIONS
from sessions_app.disk.files import SessionReader
from sessions_app.sessionlog.entries import Deletion, Target, request_of
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.jsjson import split_lines

from .figures import Figure, median_ms
from .sessions import generate, real_sessions

ENTRIES: Final = 10_000
PLANS: Final = 1_000
SESSIONS: Final = 10
SEED: Final = 11


def certificates() -> Iterator[Figure]:
    """Prepare a reader's context of 10,000 entries, and prove plans that delete half of it."""
    session = _generated()
    _, generation = GENERATIONS["pi"]
    rules = generation.rules.for_writer(generation.writers[0])
    yield Figure(
        "prepare_context_10000",
        median_ms(partial(prepare, session.branch, session.texts, {}, rules), 5),
        "ms",
        150.0,
    )
    for writer in generation.writers:
        validated = _random_plan(session, generation, writer, random.Random(SEED), ENTRIES // 2)  # noqa: S311
        after = _written(session, writer, validated)
        work = partial(_certify, session, after, generation, writer, validated)
        yield Figure(f"certificate_10000_{writer.name}", round(median_ms(work, 3) / 1000, 3), "s", 1.0)


def random_plans() -> Iterator[Figure]:
    """Certify random accepted plans on real sessions, by every writer of every generation."""
    chance = random.Random(SEED)  # noqa: S311  # a generator of test data
    sessions = [_recorded(path) for path in real_sessions()[:SESSIONS]] or [_generated(1_000)]
    generations = [generation for agent, generation in GENERATIONS.values() if agent.format.name == PI.format.name]
    failures = made = 0
    while made < PLANS:
        session = chance.choice(sessions)
        generation = chance.choice(generations)
        writer = chance.choice(generation.writers)
        validated = _random_plan(session, generation, writer, chance, chance.randint(1, 60))
        made += 1
        try:
            _certify(session, _written(session, writer, validated), generation, writer, validated)
        except RedlineError:
            failures += 1
    yield Figure("random_plans_not_certified", failures, f"of {made} on {len(sessions)} sessions", 0)


def _certify(
    session: RecordedSession,
    after: RecordedSession,
    generation: Generation,
    writer: SessionWriter,
    validated: ValidatedDeletion,
) -> None:
    """Parts (1) and (2) of a certificate, as a commit makes them. Raises the error that a commit would raise."""
    agent, _ = GENERATIONS[generation.reader.name]
    ignored = set(writer.unapplied(session.branch, validated.targets))
    targets = [target for target in validated.targets if target not in ignored]
    before, rebuilt = _rebuilt(session, generation), _rebuilt(after, generation)
    require_approved("a session", writer, agent, before, targets, rebuilt)
    certificate_of("a session", generation, before, rebuilt, WRITTEN_AT)


def _rebuilt(session: RecordedSession, generation: Generation) -> Rebuilt:
    context = generation.reader.rebuild(session.branch)
    return Rebuilt(context, lambda entry: session.lines[entry.number - 1], session.branch[-1].id)


def _written(session: RecordedSession, writer: SessionWriter, validated: ValidatedDeletion) -> RecordedSession:
    deletion = Deletion(validated.targets, validated.protected_entry_ids, validated.stats)
    return session_after(session, writer.write(session.branch, deletion, write_facts(session)))


def _random_plan(
    session: RecordedSession,
    generation: Generation,
    writer: SessionWriter,
    chance: random.Random,
    wanted: int,
) -> ValidatedDeletion:
    """A plan of random entries and blocks that the airlock accepts; some of the wanted ones are refused."""
    rules = generation.rules.for_writer(writer)
    transcript = prepare(session.branch, session.texts, {"preserve_recent": 0, "query": "-"}, rules)
    if transcript is None:
        raise ValueError("the branch is too short")
    store = DeletionStore(transcript)
    targets = list(_targets(transcript))
    for target in chance.sample(targets, min(wanted, len(targets))):
        store.delete(request_of([target]))
    return store.validated()


def _targets(transcript: Transcript) -> Iterator[Target]:
    for entry in transcript.entries:
        if not entry.is_protected:
            yield Target(entry.entry_id)
            yield from (Target(entry.entry_id, block.index) for block in entry.blocks)


def _recorded(path: Path) -> RecordedSession:
    with SessionReader(path) as reader:
        return read_recorded(split_lines(reader.chunks(0)))


def _generated(entries: int = ENTRIES) -> RecordedSession:
    recorded = generate(entries=entries, entry_bytes=1_000, seed=SEED)
    return read_recorded(split_lines(msgspec.json.encode(one) + b"\n" for one in recorded))
