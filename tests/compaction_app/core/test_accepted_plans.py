"""Accepted plans leave conversations that providers accept: random plans on real sessions, if there are any."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.transcript import Transcript
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import ActiveContext, keep
from sessions_app.sessionlog.controls import DeletionControl
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.provider_rules import new_violations, violations
from sessions_app.sessionlog.targets import Target, request_of
from tests.factories import branch_and_texts, prepare
from tests.paths import corpus_sessions

SESSIONS = 6
PLANS = 10
"""Plans for each session."""


def test_an_accepted_plan_adds_no_violation(tmp_path):
    judged = 0
    for path in corpus_sessions(tmp_path)[::4][:SESSIONS]:
        branch, texts = branch_and_texts(path.read_bytes())
        transcript = prepare(branch, texts, {})
        assert transcript is not None
        for targets in random_plans(transcript):
            judged += 1
            native = READERS["atomic-0.8"]
            after = native.rebuild([*branch, compaction_of(branch, targets)])
            assert new_violations(violations(native.rebuild(branch)), violations(after)) == ()
            for reader in (READERS["pi"], native):
                before = reader.rebuild(branch)
                assert new_violations(violations(before), violations(without(before, targets))) == ()
    assert judged >= PLANS


def random_plans(transcript: Transcript) -> Iterator[Sequence[Target]]:
    """Plans of all sizes that the airlock accepts."""
    chance = random.Random(4)
    everything = [
        Target(entry.entry_id, index)
        for entry in transcript.entries
        for index in [None, *(block.index for block in entry.blocks)]
    ]
    free = [target for target in everything if accepted(transcript, [target])]
    for _ in range(PLANS):
        chosen = chance.sample(free, max(1, int(len(free) ** chance.random())))
        wholes = {target.entry_id for target in chosen if target.block_index is None}
        targets = [target for target in chosen if target.block_index is None or target.entry_id not in wholes]
        plan = accepted(transcript, targets)
        if plan is not None:
            yield plan.targets


def accepted(transcript: Transcript, targets: Sequence[Target]) -> ValidatedDeletion | None:
    judged = validate(request_of(targets), transcript)
    return judged if isinstance(judged, ValidatedDeletion) else None


def compaction_of(branch: Sequence[Entry], targets: Sequence[Target]) -> Entry:
    """The entry with which Atomic 0.8 records a deletion."""
    control = DeletionControl(tuple(targets), None, "")
    return Entry(10**9, 0, 0, "added", branch[-1].id, "context_compaction", EntryKind.DELETION, control=control)


def without(context: ActiveContext, targets: Sequence[Target]) -> ActiveContext:
    """A context from which targets were taken out, as in a copy of the session."""
    wholes = {target.entry_id for target in targets if target.block_index is None}
    hidden: dict[str, set[int]] = {}
    for target in targets:
        if target.block_index is not None:
            hidden.setdefault(target.entry_id, set()).add(target.block_index)
    remaining = [
        keep(message.entry, frozenset(hidden[message.entry.id])) if message.entry.id in hidden else message
        for message in context.messages
        if message.entry.id not in wholes
    ]
    return replace(context, messages=tuple(message for message in remaining if message is not None))
