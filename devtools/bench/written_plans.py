"""Random accepted plans on session files of any agent, written to a copy by each writer and read again."""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from compaction_app.changes.change import lines_of, write_facts
from compaction_app.changes.proof import ReadLine, Rebuilt, approved_messages, certificate_of, require_approved
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Transcript, prepare
from sessions_app.agents.base import Agent
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.pure.formats import Append, Generation, NewFile, SessionWriter, note_text
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Deletion, Stats, Target, request_of
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.session_loader import LoadedSession, load_session

from .figures import Figure
from .sessions import corpus

PLANS: Final = 1_000
SEED: Final = 12
WRITTEN_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


class WrittenPlan(NamedTuple):
    """A plan, and the session that results from it."""

    targets: tuple[Target, ...]
    path: Path
    approved: ActiveContext
    """The context before the write, without the plan's targets."""
    notes: tuple[str, ...] = ()
    """The texts that the writer added."""


def random_plan(
    session: LoadedSession, generation: Generation, writer: SessionWriter, chance: random.Random, wanted: int
) -> ValidatedDeletion | None:
    """A plan of random entries and blocks that the airlock accepts: some of the wanted ones are refused. None if the
    session is too short for a plan."""
    branch = session.tree.branch(session.leaf_id)
    rules = generation.rules.for_writer(writer)
    transcript = prepare(branch, session.texts(branch), {"preserve_recent": 0, "query": "-"}, rules)
    if transcript is None:
        return None
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


def notes_on(targets: Iterable[Target]) -> dict[str, str]:
    """A note in place of every third entry that is deleted as a whole."""
    whole = [target.entry_id for target in targets if target.block_index is None]
    return {entry_id: f"Note {number}." for number, entry_id in enumerate(whole[::3])}


def write_plan(
    session: LoadedSession,
    generation: Generation,
    writer: SessionWriter,
    targets: Iterable[Target],
    directory: Path,
    notes: Mapping[str, str] | None = None,
) -> WrittenPlan:
    """Carry out a deletion on a copy of a session in another directory, without locks and backups. `notes` are those
    of the user, as in `WriteFacts`."""
    targets = tuple(targets)
    branch = session.tree.branch(session.leaf_id)
    with lines_of(session) as line:
        facts = replace(write_facts(session, line, directory, WRITTEN_AT), notes=notes or {})
        change = writer.write(branch, Deletion(targets, (), Stats()), facts)
        copy = directory / session.path.name
        if isinstance(change, NewFile):
            copy = directory / change.name
            copy.write_bytes(b"".join(change.pieces))
        elif isinstance(change, Append):
            recorded = session.path.read_bytes()
            start = b"" if recorded.endswith(b"\n") else b"\n"
            copy.write_bytes(recorded + start + b"".join(added + b"\n" for added in change.lines))
    context = generation.reader.rebuild(branch)
    approved = replace(context, messages=tuple(approved_messages(context, targets, writer)))
    return WrittenPlan(targets, copy, approved, tuple(map(note_text, (notes or {}).values())))


def require_approved_context(
    session: LoadedSession, agent: Agent, generation: Generation, writer: SessionWriter, plan: WrittenPlan
) -> None:
    """Raise the error of a commit if the written session does not have the approved context."""
    after = load_session(plan.path)
    with lines_of(session) as line, lines_of(after) as new_line:
        before, rebuilt = _rebuilt(session, generation, line), _rebuilt(after, generation, new_line)
        require_approved(str(plan.path), writer, agent, before, plan.targets, rebuilt, plan.notes)
        certificate_of(str(plan.path), generation, before, rebuilt, WRITTEN_AT)


def _rebuilt(session: LoadedSession, generation: Generation, line: ReadLine) -> Rebuilt:
    context = generation.reader.rebuild(session.tree.branch(session.leaf_id))
    return Rebuilt(context, line, session.leaf_id)


def claude_code_plans() -> Iterator[Figure]:
    """Write random accepted plans on real sessions of Claude Code by both writers, and read them again."""
    directory = corpus()
    recorded = sorted(directory.glob(f"{CLAUDE_CODE.key}/*.jsonl")) if directory is not None else []
    chance = random.Random(SEED)  # noqa: S311  # a generator of test data
    generation = CLAUDE_CODE.format.generations[0]
    made = failures = 0
    with TemporaryDirectory() as scratch:
        sessions = [load_session(path) for path in recorded]
        while sessions and made < PLANS:
            session, writer = chance.choice(sessions), chance.choice(generation.writers)
            validated = random_plan(session, generation, writer, chance, chance.randint(1, 60))
            if validated is None:
                continue
            plan = write_plan(session, generation, writer, validated.targets, Path(scratch).resolve())
            made += 1
            try:
                require_approved_context(session, CLAUDE_CODE, generation, writer, plan)
            except RedlineError:
                failures += 1
            plan.path.unlink()
    yield Figure("claude_code_plans_not_certified", failures, f"of {made} on {len(sessions)} sessions", 0)
