"""The answers of hooks before something is done, and their notification after it was written.

    a plan       prepared ──before_compact────▶ HookAnswers ────┬─ cancelled: nothing is planned
                                                                ├─ pins: stored as the run's first decision
                                                                └─ supplied: replaces the planner
                 written ──after_compact──▶ each receiver, once

    a summary    prepared ──ask_summary_hooks─▶ SummaryAnswers ─┬─ cancelled: nothing is drafted
                                                                └─ supplied: the draft, in place of the model's
                 written ──after_summary──▶ each receiver, once

    a move       chosen ──ask_tree_hooks──────▶ TreeAnswers ────┬─ cancelled: nothing moves
                                                                ├─ focus, label: as the hooks changed them
                                                                └─ supplied: the draft of the summary, if requested
                 written ──after_move──▶ each receiver, once

A pin of a hook is stored like a human's: as a decision to reject, in force in every later step. Its number is before
the first step of a human, so that any later decision about the same object wins, and no undo reaches it. A run that is
resumed or planned again calls its hooks again: their new answers replace the old ones, and pins that a human undid stay
undone. A supplied plan goes through the store like any other deletion. A summary that would replace a hook's pin is
refused: pinned objects are kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from compaction_app import hooks
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.gates import read_target
from compaction_app.core.hook_answers import FINAL, Adjust, Answer, Cancel, Pin, Supply, SupplySummary
from compaction_app.core.loop import Origin
from compaction_app.core.review_fold import Kind
from compaction_app.core.store import DeletionStore
from compaction_app.core.summary_ranges import BranchLeft
from compaction_app.core.transcript import Transcript
from compaction_app.models import Proposal, Run
from sessions_app.agents.pure.formats import FileLists
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Role, Target
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.storage.session_loader import LoadedSession

PINNED_SEQ: Final = 0
"""The number of the decision with the hooks' pins: before the first step of a human."""
NOTHING_SUMMARISED: Final = "Nothing was summarised"
NOT_MOVED: Final = "Nothing was moved"


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
class HookSummary:
    """A summary that a hook supplies. It is a draft: a human reads and edits it before it is written."""

    text: str
    files: FileLists
    first_kept_id: str
    """For a compaction: the first entry that it keeps. Empty for the summary of a branch."""
    why: str
    """The hook, and its reason."""


Supplied = TypeVar("Supplied", SuppliedPlan, HookSummary)


@dataclass(slots=True)
class HookAnswers(Generic[Supplied]):
    """The combined answers of all hooks for one plan, summary or move."""

    not_done: str
    """What does not happen if one of them cancels, as in "Nothing was planned"."""
    focus: str = ""
    """What the summary of a move should emphasise: from the user, or from the last hook that changed it."""
    label: str = ""
    """The label of a move, likewise."""
    pins: dict[Target, str] = field(default_factory=dict)
    """The pinned targets, each with the hook that pinned it and its reason."""
    supplied: Supplied | None = None
    """For a move also None if no summary is requested."""
    cancelled: str = ""
    """The hook that cancelled, and its reason; empty if none did."""
    messages: list[HookMessage] = field(default_factory=list)

    def ask(
        self,
        signal: hooks.HookSignal,
        allowed: tuple[type[Answer], ...],
        sent: Mapping[str, Any],
        final: tuple[type[Answer], ...] = FINAL,
    ) -> Iterator[hooks.HookAnswer]:
        """The answers of a signal's receivers as in `ask_hooks`, without a cancellation, which is recorded here."""
        for answered in hooks.ask_hooks(signal, allowed, self.not_done, sent, final):
            if isinstance(answered.answer, Cancel):
                self.cancelled = answered.why
                self.messages.append(HookMessage(f"Cancelled by {answered.why}.", cancelled=True))
            else:
                yield answered

    def say(self, text: str) -> None:
        self.messages.append(HookMessage(text))

    def require_not_cancelled(self) -> None:
        """Raise BadInput `cancelled_by_hook` if a hook cancelled."""
        if self.cancelled:
            raise BadInput("cancelled_by_hook", f"Cancelled by {self.cancelled}. {self.not_done}.")


def never() -> bool:
    """A `stop` function for work that cannot be stopped."""
    return False


def before_compact(
    load: Callable[[], LoadedSession],
    leaf_id: str,
    transcript: Transcript,
    reason: str,
    session: Session | None = None,
    stop: Callable[[], bool] = never,
) -> HookAnswers[SuppliedPlan]:
    """Call the hooks. `load` returns the prepared session; it is called only if there is a hook.

    `stop` returns whether the run was stopped meanwhile, and raises nothing. Raises BadInput `hook_not_loaded` and
    `bad_answer`, SystemFailure `hook_failed`, and the errors of `load`.
    """
    hooks.require_loaded()
    answers: HookAnswers[SuppliedPlan] = HookAnswers(hooks.NOTHING_PLANNED)
    if not hooks.session_before_compact.connected():
        return answers
    sent = _sent_before_compact(load(), session, leaf_id, transcript, reason, None, stop)
    for answered in answers.ask(hooks.session_before_compact, hooks.DELETIONS, sent):
        answer, why = answered.answer, answered.why
        if isinstance(answer, Pin) and answer.targets:
            answers.messages.append(_pin(answer, why, transcript, answers.pins))
        elif isinstance(answer, Supply):
            answers.supplied = SuppliedPlan(answered.hook, tuple(answer.deletions), why)
            count = _counted(len(answers.supplied.deletions), "deletion")
            answers.say(f"{count} supplied by {why}. No planner is used.")
    return answers


def _sent_before_compact(
    loaded: LoadedSession,
    session: Session | None,
    leaf_id: str,
    transcript: Transcript,
    reason: str,
    summary: hooks.SummaryPreparation | None,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """The arguments of the signal `session_before_compact`."""
    return {
        "path": loaded.path,
        "session": session,
        "loaded": loaded,
        "branch": tuple(loaded.tree.branch(leaf_id)),
        "preparation": transcript,
        "parameters": transcript.parameters,
        "reason": reason,
        "summary": summary,
        "stop": stop,
    }


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


def save_pins(run: Run, pins: Mapping[Target, str], now: datetime) -> None:
    """Store the hooks' pins of a run that is being prepared, replacing those of an earlier attempt."""
    if not pins:
        run.decisions.filter(seq=PINNED_SEQ).delete()
        return
    targets = [{**target.to_json(), "by": who} for target, who in pins.items()]
    run.decisions.update_or_create(seq=PINNED_SEQ, defaults={"kind": Kind.REJECT, "targets": targets, "at": now})


def pinned_by_hooks(run: Run) -> dict[Target, str]:
    """The objects that hooks pinned in a run, regardless of later decisions, each with the hook and its reason."""
    found = run.decisions.filter(seq=PINNED_SEQ).values_list("targets", flat=True).first()
    return {Target(raw["entryId"], raw.get("blockIndex")): raw.get("by", "") for raw in found or ()}


def is_from_hook(origins: Mapping[Target, Origin]) -> bool:
    """Whether a hook supplied part of a plan."""
    return any(origin.tool == Proposal.Source.HOOK for origin in origins.values())


def after_compact(
    path: Path,
    session: Session,
    lines: Sequence[bytes],
    backup: Path,
    reason: str = "manual",
    *,
    from_hook: bool,
    validated: ValidatedDeletion | None = None,
    created: Path | None = None,
    summary: str | None = None,
) -> None:
    """Notify the hooks of a compaction that was written: of its `validated` deletions, or of its `summary`. Their
    actions do not change it."""
    hooks.notify_hooks(
        hooks.session_compact,
        "a compaction",
        lines,
        path=path,
        session=session,
        result=validated,
        parameters=validated.parameters if validated is not None else None,
        reason=reason,
        from_hook=from_hook,
        backup=backup,
        created=created,
        summary=summary,
    )


# ---- words -----------------------------------------------------------------------------------------------


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


# ---- summaries -------------------------------------------------------------------------------------------


def ask_summary_hooks(
    loaded: LoadedSession,
    leaf_id: str,
    transcript: Transcript,
    preparation: hooks.SummaryPreparation,
    session: Session | None = None,
    stop: Callable[[], bool] = never,
) -> HookAnswers[HookSummary]:
    """Call the hooks before a summary that is a compaction. They also receive the transcript of the branch.

    `stop` returns whether it was stopped meanwhile, and raises nothing. Raises BadInput `hook_not_loaded`,
    `bad_answer`, `hook_refused` and `pinned_by_hook`, and SystemFailure `hook_failed`; then the caller must not
    continue.
    """
    hooks.require_loaded()
    sent = _sent_before_compact(loaded, session, leaf_id, transcript, "manual", preparation, stop)
    answers: HookAnswers[HookSummary] = HookAnswers(NOTHING_SUMMARISED)
    for answered in answers.ask(hooks.session_before_compact, hooks.SUMMARIES, sent):
        answer, why = answered.answer, answered.why
        if isinstance(answer, Pin):
            answers.pins |= {target: why for target in answer.targets if target not in answers.pins}
        elif isinstance(answer, SupplySummary):
            answers.supplied = _compaction(answered.hook, answer, why, preparation)
            answers.say(f"Summary supplied by {why}. No model is asked.")
    if not answers.cancelled:
        first = answers.supplied.first_kept_id if answers.supplied is not None else preparation.first_kept_id
        _require_not_pinned(answers.pins, preparation, first)
    return answers


def file_lists(answer: SupplySummary) -> FileLists:
    """The files of a summary: no file is in both lists."""
    modified = frozenset(answer.modified_files)
    return FileLists(tuple(sorted(set(answer.read_files) - modified)), tuple(sorted(modified)))


def _compaction(hook: str, answer: SupplySummary, why: str, preparation: hooks.SummaryPreparation) -> HookSummary:
    """A supplied compaction. An unknown first entry would make the agent drop everything before it."""
    first_kept = answer.first_kept_id or preparation.first_kept_id
    entries = (*preparation.messages, *preparation.prefix, *preparation.kept)
    found = next((entry for entry in entries if entry.id == first_kept), None)
    if found is None or found.role == Role.TOOL_RESULT:
        fault = "is not in the range of the summary" if found is None else "is a result, which needs its call"
        raise BadInput(
            "hook_refused",
            f"The summary of the hook {hook} was refused. Its first entry to keep {fault}. {NOTHING_SUMMARISED}.",
        )
    return HookSummary(well_formed(answer.text), file_lists(answer), first_kept, why)


def _require_not_pinned(pins: dict[Target, str], preparation: hooks.SummaryPreparation, first_kept_id: str) -> None:
    pinned = {target.entry_id: why for target, why in reversed(pins.items())}
    for entry in (*preparation.messages, *preparation.prefix, *preparation.kept):
        if entry.id == first_kept_id:
            return
        if entry.id in pinned:
            raise BadInput(
                "pinned_by_hook",
                f"The summary would replace entry {entry.id}, which is pinned by {pinned[entry.id]}. "
                f"{NOTHING_SUMMARISED}. Keep more of the conversation, or delete without a summary.",
            )


# ---- moves -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeMove:
    """A move that is about to be made."""

    target_id: str
    """The entry that was chosen."""
    old_leaf_id: str
    new_leaf_id: str | None
    """The leaf after the move; None before the first entry."""
    left: BranchLeft
    wants_summary: bool = False
    focus: str = ""
    label: str = ""


def ask_tree_hooks(
    loaded: LoadedSession,
    move: TreeMove,
    session: Session | None = None,
    stop: Callable[[], bool] = never,
) -> HookAnswers[HookSummary]:
    """Call the hooks before a move, whether or not a summary is requested.

    `stop` returns whether it was stopped meanwhile, and raises nothing. Raises BadInput `hook_not_loaded` and
    `bad_answer`, and SystemFailure `hook_failed`; then the caller must not continue.
    """
    hooks.require_loaded()
    sent: dict[str, Any] = {
        "path": loaded.path,
        "session": session,
        "loaded": loaded,
        "target_id": move.target_id,
        "new_leaf_id": move.new_leaf_id,
        "old_leaf_id": move.old_leaf_id,
        "common_ancestor_id": move.left.ancestor_id,
        "entries": move.left.entries,
        "wants_summary": move.wants_summary,
        "focus": move.focus,
        "label": move.label,
        "stop": stop,
    }
    answers: HookAnswers[HookSummary] = HookAnswers(NOT_MOVED)
    final = FINAL if move.wants_summary else (Cancel,)
    for answered in answers.ask(hooks.session_before_tree, hooks.MOVES, sent, final):
        answer, why = answered.answer, answered.why
        if isinstance(answer, Adjust):
            for name, value in (("focus", answer.focus), ("label", answer.label)):
                if value is not None and value != sent[name]:
                    sent[name] = well_formed(value)  # as later hooks receive it
                    answers.say(f"{name.capitalize()} changed by {why}.")
        elif isinstance(answer, SupplySummary) and move.wants_summary:
            answers.supplied = HookSummary(well_formed(answer.text), file_lists(answer), "", why)
            answers.say(f"Summary supplied by {why}. No model is asked.")
        elif isinstance(answer, SupplySummary):
            answers.say(f"Summary supplied by {why}. It is not used, because none is wanted.")
    answers.focus, answers.label = sent["focus"], sent["label"]
    return answers


def after_move(
    path: Path,
    session: Session,
    move: TreeMove,
    lines: Sequence[bytes],
    backup: Path,
    *,
    summary: str | None = None,
    from_hook: bool = False,
) -> None:
    """Notify the hooks of a move that was written, with the text of its summary if there is one. Their actions do not
    change it."""
    hooks.notify_hooks(
        hooks.session_tree,
        "a move",
        lines,
        path=path,
        session=session,
        new_leaf_id=move.new_leaf_id,
        old_leaf_id=move.old_leaf_id,
        summary=summary,
        from_hook=from_hook,
        backup=backup,
    )
