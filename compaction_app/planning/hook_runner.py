"""The answers of hooks before a plan is made, and their notification after a commit.

    prepared ──before_compact──▶ HookAnswers ─┬─ cancelled: nothing is planned
                                              ├─ pins: stored as the run's first decision, in force in every later step
                                              └─ supplied: into the store like any other deletion; no planner is used
    written ──after_compact──▶ each receiver, once

A pin of a hook is stored like a human's: as a decision to reject. Its number is before the first step of a human, so
that any later decision about the same object wins, and no undo reaches it. A run that is resumed or planned again calls
its hooks again: their new answers replace the old ones, and pins that a human undid stay undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.decisions import Kind
from compaction_app.core.hook_answers import Pin, Supply
from compaction_app.core.loop import Origin
from compaction_app.core.store import DeletionStore
from compaction_app.core.target_shape import read_target
from compaction_app.core.transcript import Transcript
from compaction_app.hooks import (
    DELETIONS,
    NOTHING_PLANNED,
    WORDS_KEPT,
    HookAnswer,
    ask_hooks,
    notify_hooks,
    require_loaded,
    session_before_compact,
    session_compact,
)
from compaction_app.models import Proposal, Run
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, well_formed
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import LoadedSession

PINNED_SEQ: Final = 0
"""The number of the decision with the hooks' pins: before the first step of a human."""


class HookMessage(NamedTuple):
    """The answer of one hook in words, the number of objects that it pinned, and whether it cancelled: data of a
    `hooked` event."""

    text: str
    pinned: int = 0
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class SuppliedPlan:
    """A plan that a hook supplies instead of the planner. `why` names the hook."""

    hook: str
    deletions: tuple[object, ...]
    why: str


@dataclass(frozen=True, slots=True)
class HookAnswers:
    """The combined answers of all hooks for one plan."""

    pins: Mapping[Target, str] = field(default_factory=dict)
    """The pinned targets, each with the hook that pinned it and its reason."""
    supplied: SuppliedPlan | None = None
    cancelled: str = ""
    """The hook that cancelled, and its reason; empty if none did."""
    messages: tuple[HookMessage, ...] = ()


NO_ANSWERS: Final = HookAnswers()


def never() -> bool:
    """Never stops."""
    return False


def before_compact(
    load: Callable[[], LoadedSession],
    leaf_id: str,
    transcript: Transcript,
    reason: str,
    session: Session | None = None,
    stop: Callable[[], bool] = never,
) -> HookAnswers:
    """Call the hooks. `load` returns the prepared session; it is called only if there is a hook.

    `stop` returns whether the run was stopped meanwhile, and raises nothing. Raises BadInput `hook_not_loaded` and
    `bad_answer`, SystemFailure `hook_failed`, and the errors of `load`.
    """
    require_loaded()
    if not session_before_compact.connected():
        return NO_ANSWERS
    loaded = load()
    pins: dict[Target, str] = {}
    supplied, cancelled, messages = None, "", []
    sent = {
        "path": loaded.path,
        "session": session,
        "loaded": loaded,
        "branch": tuple(loaded.tree.branch(leaf_id)),
        "preparation": transcript,
        "parameters": transcript.parameters,
        "reason": reason,
        "summary": None,
        "stop": stop,
    }
    for answered in ask_hooks(session_before_compact, DELETIONS, NOTHING_PLANNED, sent):
        hook, answer = answered
        why = because(answered)
        if isinstance(answer, Pin):
            if answer.targets:
                messages.append(_pin(answer, why, transcript, pins))
        elif isinstance(answer, Supply):
            supplied = SuppliedPlan(hook, tuple(answer.deletions), why)
            messages.append(
                HookMessage(f"{_counted(len(supplied.deletions), 'deletion')} supplied by {why}. No planner is used.")
            )
        else:
            cancelled = why
            messages.append(HookMessage(f"Cancelled by {why}.", cancelled=True))
    return HookAnswers(pins, supplied, cancelled, tuple(messages))


def require_not_cancelled(answers: HookAnswers) -> None:
    """Raise BadInput `cancelled_by_hook` if a hook cancelled."""
    if answers.cancelled:
        raise BadInput("cancelled_by_hook", f"Cancelled by {answers.cancelled}. Nothing was planned.")


def choose_supplied(supplied: SuppliedPlan, store: DeletionStore) -> dict[Target, Origin]:
    """Choose the targets that a hook supplied, with those that belong to them; returns the origin of each new target.

    Raises BadInput `hook_refused` if the airlock refuses; then the store is unchanged.
    """
    known = set(store.targets)
    refusal = store.delete({"deletions": list(supplied.deletions)})
    if refusal is not None:
        raise BadInput(
            "hook_refused",
            f"The plan of the hook {supplied.hook} was refused. {refusal.message} None of it was planned.",
        )
    requested = {read_target(raw, number) for number, raw in enumerate(supplied.deletions, 1)}
    return {
        target: Origin(
            0,
            Proposal.Source.HOOK,
            f"supplied by {supplied.why}" if target in requested else "",
            by_repair=target not in requested,
        )
        for target in store.targets
        if target not in known
    }


def save_pins(run: Run, answers: HookAnswers, now: datetime) -> None:
    """Store the hooks' pins of a run that is being prepared, replacing those of an earlier attempt."""
    if not answers.pins:
        run.decisions.filter(seq=PINNED_SEQ).delete()
        return
    targets = [{**target.to_json(), "by": who} for target, who in answers.pins.items()]
    run.decisions.update_or_create(seq=PINNED_SEQ, defaults={"kind": Kind.REJECT, "targets": targets, "at": now})


def pinned_by_hooks(run: Run) -> dict[Target, str]:
    """The objects that hooks pinned in a run, regardless of later decisions, each with the hook and its reason."""
    found = run.decisions.filter(seq=PINNED_SEQ).values_list("targets", flat=True).first()
    return {Target(raw["entryId"], raw.get("blockIndex")): raw.get("by", "") for raw in found or ()}


def after_compact(
    path: Path,
    session: Session,
    lines: Sequence[bytes],
    validated: ValidatedDeletion,
    reason: str,
    origins: Mapping[Target, Origin],
    backup: Path,
    created: Path | None,
) -> None:
    """Notify the hooks of a compaction that was written. Their actions do not change it."""
    if not session_compact.connected():
        return
    entries: list[dict[str, Any]] = [parse(line) for line in lines]
    notify_hooks(
        session_compact,
        "a compaction",
        path=path,
        session=session,
        result=validated,
        parameters=validated.parameters,
        entries=entries,
        reason=reason,
        from_hook=any(origin.tool == Proposal.Source.HOOK for origin in origins.values()),
        backup=backup,
        created=created,
        summary=None,
    )


# ---- words -----------------------------------------------------------------------------------------------


def because(answered: HookAnswer) -> str:
    """The hook and its reason, on one line."""
    hook, answer = answered
    why = well_formed(" ".join(answer.why.split())[:WORDS_KEPT]).rstrip(".")
    return f"{hook}: {why}" if why else hook


def _pin(answer: Pin, why: str, transcript: Transcript, pins: dict[Target, str]) -> HookMessage:
    """Add the objects of an answer to the pins, except those that are already protected or not in the transcript."""
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
    parts = [f"{_counted(pinned, 'object') if pinned else 'Nothing more'} pinned by {why}"]
    if stay:
        parts.append(f"{stay:,}{' more' * bool(pinned)} {'stays' if stay == 1 else 'stay'} anyway")
    if unknown:
        parts.append(f"{unknown:,} {'is' if unknown == 1 else 'are'} not in the context")
    return HookMessage("; ".join(parts) + ".", pinned)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
