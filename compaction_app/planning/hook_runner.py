"""What hooks say to a planning, and what they are told of a commit.

    prepared ──before_compact──▶ HookAnswers ─┬─ cancelled: nothing is planned
                                              ├─ pins: kept as the run's first decision, in force in every later step
                                              └─ supplied: into the store like any other deletion; no planner is asked
    written ──after_compact──▶ each receiver, once

A pin of a hook is kept as a human's is: as a decision to reject. It is the one before the first step of a human, so
that any later word about the same object wins, and no undo reaches it. A run that is resumed, or planned again, asks
its hooks anew: what they say then takes the place of what they said, and what a human took back stays taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.gates import read_target
from compaction_app.core.loop import Origin
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Transcript
from compaction_app.hooks import (
    WORDS_KEPT,
    HookAnswer,
    Pin,
    Supply,
    ask_hooks,
    notify_hooks,
    require_loaded,
    session_before_compact,
    session_compact,
)
from compaction_app.models import Decision, Proposal, Run
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, well_formed
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import LoadedSession

PINNED_SEQ: Final = 0
"""The number of the decision that holds what hooks pinned: before the first step of a human."""


class HookMessage(NamedTuple):
    """What one hook said, in words, how many objects it pinned, whether it cancelled: the data of a `hooked` event."""

    text: str
    pinned: int = 0
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class SuppliedPlan:
    """A plan that a hook gives in place of the planner's. `why` names the hook."""

    hook: str
    deletions: tuple[object, ...]
    why: str


@dataclass(frozen=True, slots=True)
class HookAnswers:
    """What all hooks together answered for one planning."""

    pins: Mapping[Target, str] = field(default_factory=dict)
    """What they keep of the transcript, each with who keeps it and why."""
    supplied: SuppliedPlan | None = None
    cancelled: str = ""
    """Who wants nothing to be planned, and why; empty if nobody does."""
    messages: tuple[HookMessage, ...] = ()


NO_ANSWERS: Final = HookAnswers()


def before_compact(
    load: Callable[[], LoadedSession],
    leaf_id: str,
    transcript: Transcript,
    reason: str,
    session: Session | None = None,
) -> HookAnswers:
    """Ask the hooks. `load` gives the session as it was prepared; it is called only if there is a hook.

    Raises BadInput `hook_not_loaded` and `bad_answer`, SystemFailure `hook_failed`, and what `load` raises.
    """
    require_loaded()
    if not session_before_compact.listening():
        return NO_ANSWERS
    loaded = load()
    pins: dict[Target, str] = {}
    supplied, cancelled, messages = None, "", []
    for answered in ask_hooks(
        path=loaded.path,
        session=session,
        loaded=loaded,
        branch=tuple(loaded.tree.branch(leaf_id)),
        preparation=transcript,
        parameters=transcript.parameters,
        reason=reason,
    ):
        hook, answer = answered
        why = _because(answered)
        if isinstance(answer, Pin):
            if answer.targets:
                messages.append(_pin(answer, why, transcript, pins))
        elif isinstance(answer, Supply):
            supplied = SuppliedPlan(hook, tuple(answer.deletions), why)
            messages.append(
                HookMessage(
                    f"{_counted(len(supplied.deletions), 'deletion')} supplied by {why}. No planner is asked."
                )
            )
        else:
            cancelled = why
            messages.append(HookMessage(f"Cancelled by {why}.", cancelled=True))
    return HookAnswers(pins, supplied, cancelled, tuple(messages))


def require_not_cancelled(answers: HookAnswers) -> None:
    """Raise BadInput `cancelled_by_hook` if a hook wants nothing to be planned."""
    if answers.cancelled:
        raise BadInput("cancelled_by_hook", f"Cancelled by {answers.cancelled}. Nothing was planned.")


def choose_supplied(supplied: SuppliedPlan, store: DeletionStore) -> dict[Target, Origin]:
    """Choose what a hook supplied, with what goes along; gives where each new target comes from.

    Raises BadInput `hook_refused` if the airlock says no; then the store is as it was.
    """
    known = set(store.targets)
    refusal = store.delete({"deletions": list(supplied.deletions)})
    if refusal is not None:
        raise BadInput(
            "hook_refused",
            f"What the hook {supplied.hook} supplied is refused. {refusal.message} Nothing of it was planned.",
        )
    asked = {read_target(raw, number) for number, raw in enumerate(supplied.deletions, 1)}
    return {
        target: Origin(
            0,
            Proposal.HOOK,
            f"supplied by {supplied.why}" if target in asked else "",
            by_repair=target not in asked,
        )
        for target in store.targets
        if target not in known
    }


def save_pins(run: Run, answers: HookAnswers, now: datetime) -> None:
    """Keep what hooks pin of a run that is being prepared, in place of what they pinned in an earlier attempt."""
    if not answers.pins:
        Decision.objects.filter(run=run, seq=PINNED_SEQ).delete()
        return
    targets = [{**target.to_json(), "by": who} for target, who in answers.pins.items()]
    Decision.objects.update_or_create(
        run=run, seq=PINNED_SEQ, defaults={"kind": Decision.REJECT, "targets": targets, "at": now}
    )


def pinned_by_hooks(run: Run) -> dict[Target, str]:
    """What hooks pinned of a run, whatever was decided since, each with who pinned it and why."""
    found = Decision.objects.filter(run=run, seq=PINNED_SEQ).values_list("targets", flat=True).first()
    return {Target(raw["entryId"], raw.get("blockIndex")): raw.get("by", "") for raw in found or ()}


def after_compact(
    path: Path,
    session: Session,
    line: bytes,
    validated: ValidatedDeletion,
    reason: str,
    origins: Mapping[Target, Origin],
    backup: Path,
) -> None:
    """Tell the hooks of a compaction that was written. Nothing that they do changes that."""
    if not session_compact.listening():
        return
    entry: dict[str, Any] = parse(line)
    notify_hooks(
        path=path,
        session=session,
        result=validated,
        entry=entry,
        reason=reason,
        from_hook=any(origin.tool == Proposal.HOOK for origin in origins.values()),
        backup=backup,
    )


# ---- words -----------------------------------------------------------------------------------------------


def _because(answered: HookAnswer) -> str:
    """Who answered, and why, on one line."""
    hook, answer = answered
    why = well_formed(" ".join(answer.why.split())[:WORDS_KEPT]).rstrip(".")
    return f"{hook}: {why}" if why else hook


def _pin(answer: Pin, why: str, transcript: Transcript, pins: dict[Target, str]) -> HookMessage:
    """Add what an answer pins to the pins; what the transcript protects anyway, or does not hold, needs none."""
    stay, unknown, pinned = 0, 0, 0
    for target in answer.targets:
        entry = transcript.entry(target.entry_id)
        if entry is None or (target.block_index is not None and entry.slot(target.block_index) is None):
            unknown += 1
        elif entry.is_protected:
            stay += 1
        else:
            pinned += target not in pins
            pins.setdefault(target, why)
    said = [f"{_counted(pinned, 'object') if pinned else 'Nothing more'} pinned by {why}"]
    if stay:
        said.append(f"{stay:,}{' more' * bool(pinned)} {'stays' if stay == 1 else 'stay'} anyway")
    if unknown:
        said.append(f"{unknown:,} {'is' if unknown == 1 else 'are'} not in the context")
    return HookMessage("; ".join(said) + ".", pinned)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
