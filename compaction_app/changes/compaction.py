"""A compaction: an approved plan, checked against the current session and recorded by a writer.

    entries added since → is the leaf still on the same branch? → the airlock again → is the plan exactly the approved
    one? → a `Preflight`, which `change.apply` makes and proves

Each confirmation covers one case; without it the commit is refused and names the missing one. Hooks are called once the
change is recorded, without the lock.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.effects import removed_estimate
from compaction_app.core.gates import NO_RESTRAINTS, Refusal, Restraints
from compaction_app.core.loop import Origin
from compaction_app.core.parameters import Parameters
from compaction_app.core.states import REVIEWABLE
from compaction_app.core.stats import target_reduction
from compaction_app.core.transcript import prepare
from compaction_app.models import Run
from compaction_app.planning.hook_runner import after_compact, is_from_hook
from compaction_app.planning.snapshots import session_as_prepared, snapshot_of
from compaction_app.runs.reviews import PlanVersion, approved_of, pins_of, plan_version, reviewed
from compaction_app.session_activity import Activity, activity_of, append_needs, confirmation
from sessions_app.agents.base import AgentServer
from sessions_app.agents.pure.formats import Change, PlanRules, SessionWriter, WriteFacts, note_text
from sessions_app.document.document import Document
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.context import Tally
from sessions_app.sessionlog.entries import NO_TEXTS, Deletion, Target, request_of
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, TargetNotMet
from sessions_app.storage.session_loader import LoadedSession, TornLine, find_torn_line, tally_of

from .change import Applied, ChangePlan, Confirmations, apply, tolerated
from .proof import ReadLine, Rebuilt, certificate_of, require_approved
from .records import BackupNote, CommitNote

MOST_NAMED: Final = 5
"""The maximum number of objects that a message names; the rest are counted."""
TOLERATED_MISS: Final = 5.0
"""By less than this many percentage points, a reviewed plan may miss its target without a confirmation."""
BY_PAIR: Final = Origin(0, "", "", by_repair=True)
"""The origin of a target that is deleted with the other side of its tool call."""


@dataclass(frozen=True, slots=True)
class Approved:
    """A reviewed plan: the session at that time, the branch, the parameters, and exactly these targets."""

    document: Document
    leaf_id: str
    parameters: Parameters
    targets: Sequence[Target]
    planner: str
    origins: Mapping[Target, Origin]
    restraints: Restraints = NO_RESTRAINTS
    reason: str = "manual"
    reader: str = ""
    """The reader of the reviewed context."""
    writer: str = ""
    """The writer for which it was planned; empty for the best one."""
    run: Run | None = None
    """The reviewed run; it is committed together with the line, or not at all."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Notes of the user, each by the first entry of the span that it replaces: see `Run.notes`."""
    tolerated_miss: float = 0.0
    """The plan may miss its target by less than this many percentage points without a confirmation. It includes what
    the reviewer rejected: to reject is a decision that needs no second one."""
    rule: str = ""
    """The rule that approved it instead of a human, in words; empty if a human approved it."""
    version: PlanVersion | None = None
    """The version of the run's plan that was approved; None without a run."""

    @property
    def is_awaited(self) -> bool:
        """Whether the agent that has the session open waits for this plan, and so does not continue from an older
        state."""
        return self.run is not None and self.run.handshakes.open().exists()


def require_writable(present: Document) -> None:
    """Raise BadInput if a session cannot be written to: `read_only_agent`, `no_header`, `subagent`, `needs_migration`
    or `unknown_version`."""
    agent, header = present.agent, present.log.header
    version, current = present.log.version, agent.format.current_version
    why = agent.store.read_only(present.path)
    if why:
        raise BadInput("read_only_agent", f"Nothing was written for {present.path}. {why}")
    if header is None:
        raise BadInput(
            "no_header",
            f"{present.path} has no session header: agents reject such a file, and Atomic before 0.9.4 empties it on "
            "opening. Nothing was written. `redline migrate-session` writes a copy with a header beside it, which can "
            "be compacted.",
        )
    if header.is_subagent:
        raise BadInput(
            "subagent",
            f"{present.path} is the session of a subagent, which only the session that started it continues. "
            "Nothing was written. Compact the session that started it.",
        )
    if version < current:
        raise BadInput(
            "needs_migration",
            f"{present.path} is a version {version} session. Nothing was written. "
            "`redline migrate-session` writes a version 3 copy beside it, which can be compacted.",
        )
    if version > current:
        raise BadInput(
            "unknown_version",
            f"{present.path} is a version {version} session, which Redline does not know. Nothing was written.",
        )


@dataclass(frozen=True)
class Preflight(ChangePlan):
    """The effect a commit would have now."""

    NOT_DONE = "Nothing was written."

    approved: Approved
    parent_id: str
    """The entry after which the line would be appended."""
    validated: ValidatedDeletion
    writer: SessionWriter
    notes_kept: Mapping[str, str]
    """The user's notes that the writer adds, in their order, by the first entry of the span that each replaces."""

    @property
    def server(self) -> AgentServer | None:
        """The agent's server through which the change is made; None if the session is changed directly or stays
        unchanged."""
        return self.activity.server if self.writer.appends else None

    @property
    def written_to(self) -> Path | None:
        return self.present.path if self.writer.appends and not self.approved.is_awaited else None

    @property
    def facts(self) -> list[Any]:
        return [
            [target.to_json() for target in self.validated.targets],
            self.parent_id,
            self.present.leaf_id,
            self.writer.name,
            self.server_address,
        ]

    @property
    def words(self) -> dict[str, tuple[str, str]]:
        stats, target = self.validated.stats, target_reduction(self.approved.parameters.compression_ratio)
        reading = self.present.reading
        return {
            **super().words,
            "switch_branch": (
                "Make the reviewed branch the active one.",
                f"The agent continues from {self.present.leaf_id}, which does not follow {self.parent_id}. "
                "Afterwards it continues from the appended line instead.",
            ),
            "not_honoured": (
                "Write it although it is not known which agent this session belongs to.",
                f"It is opened as {reading.reader.name}: {reading.reason}. Agents other than "
                f"{reading.generation.label} ignore what is appended. You can change how it is opened on the page of "
                "the session, or save a new session, which every agent honours.",
            ),
            "below_target": (
                f"The target is missed by {max(0.0, target - stats.percent_reduction):.0f} points",
                f"You delete {stats.percent_reduction:g}% by the agent’s own estimate; the target is {target:g}%.",
            ),
        }

    def require_shown(self, shown: str | None) -> None:
        if self.approved.run is not None and shown not in (None, self.digest()):
            raise plan_differs(self.approved.run)
        super().require_shown(shown)

    def make(self, facts: WriteFacts) -> Change:
        validated = self.validated
        deletion = Deletion(tuple(validated.targets), tuple(validated.protected_entry_ids), validated.stats)
        branch = self.present.tree.branch(self.parent_id)
        return self.writer.write(branch, deletion, replace(facts, notes=self.notes_kept))

    def prove(self, line: ReadLine, after: Rebuilt) -> Certificate:
        before = Rebuilt(self.present.context(self.parent_id), line, self.parent_id)
        ignored = set(self.writer.unapplied(self.present.tree.branch(self.parent_id), self.validated.targets))
        require_approved(
            self.path,
            self.writer,
            self.present.reading.agent,
            before,
            [target for target in self.validated.targets if target not in ignored],
            after,
            [note_text(words) for words in self.notes_kept.values()],
        )
        return certificate_of(self.path, self.present.reading.generation, before, after, self.now)

    def note(self, backup: BackupNote | None) -> CommitNote:
        assert backup is not None  # noqa: S101  # `IS_BACKED_UP`
        approved, tally = self.approved, context_tally(self.present, self.parent_id)
        struck = None
        if approved.run is not None:
            struck = removed_estimate(snapshot_of(approved.run).transcript, approved.targets)
        return CommitNote(
            backup=backup,
            run=approved.run.pk if approved.run is not None else None,
            leaf_id=self.parent_id,
            writer=self.writer.name,
            server=self.server_address,
            planner=approved.planner,
            reason=approved.reason,
            written_at=self.now,
            parameters=msgspec.to_builtins(approved.parameters),
            stats=self.validated.stats.to_json(),
            origins=[
                {**target.to_json(), "call": origin.call, "tool": origin.tool, "reason": origin.reason}
                for target, origin in approved.origins.items()
            ],
            context=msgspec.to_builtins(tally.size),
            measure=tally.measure,
            rule=approved.rule,
            struck_estimate=struck,
        )

    def notify(self, applied: Applied[Self]) -> None:
        after_compact(
            self.present.path,
            self.present.row,
            applied.made.lines,
            applied.backup_path,
            self.approved.reason,
            from_hook=is_from_hook(self.approved.origins),
            validated=self.validated,
            created=applied.made.created,
        )


def context_tally(present: Document, leaf_id: str) -> Tally:
    """The totals of the context at a leaf."""
    return tally_of(
        present.context(leaf_id),
        present.branch(leaf_id),
        present.reading.reader.rebuild,
        present.row.inherited_measure,
        lambda entry: present.texts([entry]).get(entry.id, NO_TEXTS),
    )


def check_plan(approved: Approved, present: Document, now: datetime) -> Preflight:
    """Check an approved plan against the current session, for its writer.

    Raises BadInput `no_header`, `subagent`, `needs_migration`, `unknown_version`, `unknown_writer`, `refused_writer`
    and `not_writable`, Conflict `other_branch`, `reader_changed`, `plan_refused` and `plan_changed`.
    """
    require_writable(present)
    reading = present.reading
    if approved.reader not in ("", reading.reader.name):
        raise Conflict(
            "reader_changed",
            f"{present.path} was planned as {approved.reader} opens it, and is now opened as {reading.reader.name}, "
            f"because {reading.reason}. Nothing was written. Plan again.",
        )
    writer = reading.writer(approved.writer)
    parent_id = _parent_of(approved, present)
    _require_writer_may(approved, present, writer)
    rules = reading.rules(writer.name)
    validated = _validate_again(approved, present, parent_id, rules)
    meets_target = _meets_target(approved, validated, rules)
    notes = _notes(approved, present, parent_id, writer)
    activity = activity_of(present.row, present.state, now)
    torn = find_torn_line(present.agent, present.path)
    needs = dict(_needs(approved, present, parent_id, activity, torn)) if writer.appends else {}
    if not meets_target:
        needs["below_target"] = TargetNotMet(
            "target_not_met",
            f"The plan deletes {validated.stats.percent_reduction}% of the tokens, less than required. "
            "Nothing was written. To write it anyway, use --allow-below-target.",
        )
    return Preflight(activity, needs, torn, now, present, approved, parent_id, validated, writer, notes)


def _notes(approved: Approved, present: LoadedSession, parent_id: str, writer: SessionWriter) -> Mapping[str, str]:
    """The notes for deleted entries, if the writer supports notes."""
    if not writer.holds_notes or not approved.notes:
        return {}
    gone = {target.entry_id for target in approved.targets if target.block_index is None}
    branch = present.tree.branch(parent_id)
    return {entry.id: approved.notes[entry.id] for entry in branch if entry.id in gone and approved.notes.get(entry.id)}


def _require_writer_may(approved: Approved, present: LoadedSession, writer: SessionWriter) -> None:
    """Raise BadInput `not_writable` if a writer must not touch some of the deleted entries."""
    entries = dict.fromkeys(target.entry_id for target in approved.targets)
    unfit = [
        entry_id
        for entry_id in entries
        if entry_id in present.tree and writer.protection(present.tree.entry(entry_id)) is not None
    ]
    if unfit:
        raise BadInput(
            "not_writable",
            f"Saved as {writer.name}, {present.path} keeps {_named(unfit)}. Nothing was written. Reject these "
            "deletions, or save it another way.",
        )


def _named(names: Sequence[str]) -> str:
    """The first few names, and the number of others."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _needs(
    approved: Approved,
    present: Document,
    parent_id: str,
    activity: Activity,
    torn: TornLine | None,
) -> Iterator[tuple[str, RedlineError]]:
    """The confirmations that a change of the session itself needs."""
    disturbed = None if approved.is_awaited else activity
    yield from append_needs(str(present.path), disturbed, torn, "Nothing was written.", "the compaction")
    if parent_id != present.leaf_id:
        yield confirmation(
            "switch_branch",
            "switches_branch",
            f"{approved.leaf_id} is not the end of the active branch of {present.path}: {present.leaf_id} is. "
            "Compacting there makes it active. Nothing was written. If that is intended, use --switch-branch.",
        )
    reading = present.reading
    if reading.is_guess:
        yield confirmation(
            "not_honoured",
            "not_honoured",
            f"{present.path} is opened as {reading.reader.name}: {reading.reason}. Another agent than "
            f"{reading.generation.label} would ignore what is appended. Nothing was written. Save it as a fork, change "
            "how it is opened with --open-as or on the page of the session, or confirm with --not-honoured.",
        )


def _parent_of(approved: Approved, present: LoadedSession) -> str:
    """The entry to append to: the reviewed leaf, or the present leaf of its branch if that is the active one.

    Raises Conflict `other_branch` if the active branch was reviewed and the session continued in another.
    """
    reviewed, leaf_id = approved.document, approved.leaf_id
    # An entry in the middle of the active branch was reviewed on purpose, so it is compacted there.
    is_inside = leaf_id != reviewed.leaf_id and reviewed.tree.descends(reviewed.leaf_id, leaf_id)
    if present.tree.descends(present.leaf_id, leaf_id) and not is_inside:
        return present.leaf_id
    if leaf_id == reviewed.leaf_id:
        raise Conflict(
            "other_branch",
            f"{present.path} continued in another branch: its last entry {present.leaf_id} does not follow "
            f"{leaf_id}, which was reviewed. Nothing was written. Plan again.",
        )
    return leaf_id


def _judge(
    approved: Approved, session: LoadedSession, leaf_id: str, rules: PlanRules
) -> ValidatedDeletion | Refusal | None:
    """The airlock's judgement of the approved plan; None if too little is left to compact."""
    # The query is given, so no text is needed to validate the plan.
    transcript = prepare(session.tree.branch(leaf_id), {}, msgspec.to_builtins(approved.parameters), rules)
    if transcript is None:
        return None
    return validate(request_of(approved.targets), transcript, approved.restraints)


def _meets_target(approved: Approved, validated: ValidatedDeletion, rules: PlanRules) -> bool:
    """Whether the target is met, or missed by less than is tolerated, or was met at the approval and the session has
    only grown since."""
    miss = target_reduction(approved.parameters.compression_ratio) - validated.stats.percent_reduction
    if validated.target_met or miss < approved.tolerated_miss:
        return True
    earlier = _judge(approved, approved.document, approved.leaf_id, rules)
    return isinstance(earlier, ValidatedDeletion) and earlier.target_met


def _validate_again(approved: Approved, present: LoadedSession, leaf_id: str, rules: PlanRules) -> ValidatedDeletion:
    judged = _judge(approved, present, leaf_id, rules)
    if not isinstance(judged, ValidatedDeletion):
        reason = "Too little is left to compact."
        if isinstance(judged, Refusal):
            reason = f"{judged.target or 'The whole'} is refused now ({judged.code})."
        raise Conflict(
            "plan_refused",
            f"{present.path} has changed so that the approved plan is no longer valid. {reason} Nothing was "
            "written. Plan again.",
        )
    reviewed = set(approved.targets)
    more = [str(target) for target in judged.targets if target not in reviewed]
    if more:
        raise Conflict(
            "plan_changed",
            f"{present.path} has changed: the approved plan would now have to delete {_named(more)} as well. "
            "Nothing was written. Plan again.",
        )
    before, now = _sources(approved.document, approved.leaf_id, rules), _sources(present, leaf_id, rules)
    others = [target.entry_id for target in approved.targets if before.get(target.entry_id) != now[target.entry_id]]
    if others or set(judged.targets) != reviewed:
        named = ", ".join(others[:MOST_NAMED]) or "something else"
        raise Conflict(
            "plan_changed",
            f"{present.path} has changed: the ids now name other content ({named}). Nothing was written. Plan again.",
        )
    return judged


def _sources(session: LoadedSession, leaf_id: str, rules: PlanRules) -> dict[str, tuple[int, int]]:
    """The number and offset of the line that has each message's content: of several entries with one id the last is
    used, and an edit may have replaced the content."""
    messages = rules.compactable(session.tree.branch(leaf_id))
    sources = ((message.entry.id, message.source) for message in messages)
    return {entry_id: (source.number, source.offset) for entry_id, source in sources}


# ---- the commit ----------------------------------------------------------------------------------------------


def approval(run: Run, writer: str = "", rule: str = "") -> Approved:
    """The approved plan of a run, to be recorded by the writer of this name; for `rule` see `Approved`.

    Raises Conflict `wrong_state` and `session_rewritten`, BadInput `nothing_approved`.
    """
    run.require_state(REVIEWABLE, "Nothing was written.")
    version = plan_version(run)
    validated, pins, origins = approved_of(run)
    if validated is None or not validated.targets:
        raise BadInput(
            "nothing_approved",
            f"Nothing is approved in plan {run.pk}, so there is nothing to write. Approve some deletions first.",
        )
    prepared = snapshot_of(run).prepared
    return Approved(
        document=session_as_prepared(run.session, prepared),
        leaf_id=prepared.leaf_id,
        parameters=prepared.parameters,
        targets=validated.targets,
        planner=run.planner,
        origins={target: origins.get(target, BY_PAIR) for target in validated.targets},
        reader=prepared.reader,
        writer=writer or prepared.writer,
        restraints=Restraints(pins=frozenset(pins), thinking_guard=run.thinking_guard),
        reason=run.reason,
        run=run,
        notes=run.notes,
        tolerated_miss=TOLERATED_MISS + _rejected_percent(run, validated),
        rule=rule,
        version=version,
    )


def _rejected_percent(run: Run, validated: ValidatedDeletion) -> float:
    """The share of the context that the reviewer rejected, in percent of the planner's estimate."""
    reviewer = reviewed(run).reviewer
    kept = {target for pin in pins_of(run)[0] for target in (pin, *reviewer.goes_with(pin))}
    tokens = removed_estimate(reviewer.transcript, kept.difference(validated.targets))
    return 100 * tokens / max(1, validated.stats.tokens_before)


def commit(
    approved: Approved,
    confirmations: Confirmations,
    now: datetime,
    *,
    shown: str | None = None,
    handshake: int | None = None,
) -> Applied[Preflight]:
    """Record an approved plan with its writer, if it is the one that was shown: `shown` is the digest of that
    preflight; None if there was none. `handshake` is the approved one that is carried out.

    Until it ends, no decisions on its run are accepted. Raises BadInput, Conflict, ConfirmationNeeded, TargetNotMet and
    SystemFailure; then the session is unchanged, unless the message says otherwise.
    """
    meanwhile = block_decisions(approved.run, now, handshake) if approved.run is not None else None

    def plan_now() -> Preflight:
        return preflight_of(approved, now)

    return apply(approved.document.path, plan_now, confirmations, shown=shown, meanwhile=meanwhile)


def preflight_of(approved: Approved, now: datetime) -> Preflight:
    """The effect a commit would have now. Raises the errors of `check_plan`, and Conflict `plan_differs` if something
    was decided in its run since."""
    if approved.run is not None and plan_version(approved.run) != approved.version:
        raise plan_differs(approved.run)
    present = approved.document.now()
    return check_plan(approved, present, now)


def plan_differs(run: Run) -> Conflict:
    return Conflict(
        "plan_differs",
        f"Plan {run.pk} is no longer the one that was shown: something was decided since, or the session changed. "
        "Nothing was written. Review it again.",
    )


@contextmanager
def block_decisions(run: Run, now: datetime, handshake: int | None = None) -> Iterator[None]:
    """A context manager that blocks decisions on a run. They stay blocked for as long as an approved plan of it waits
    for an agent. The session's lock is held, so no other commit is under way.

    Raises Conflict `wrong_state`, and `approved_already` if its plan was approved for another handshake, or if the
    given one is no longer approved: a plan is applied only once.
    """
    approved = set(run.handshakes.approved().values_list("pk", flat=True))
    if approved != {handshake} - {None}:
        raise Conflict(
            "approved_already",
            f"Plan {run.pk} was approved for an agent, which applies it, or the approval was taken back. "
            "Nothing was written.",
        )
    mine = Run.objects.reviewable().filter(pk=run.pk)
    if not mine.update(committing_since=now):
        run.refresh_from_db(fields=["state"])
        raise run.wrong_state("Nothing was written.")
    try:
        run.refresh_from_db()
        yield
    finally:
        with tolerated(f"The end of the commit of plan {run.pk}"):
            Run.objects.being_committed().filter(pk=run.pk).update(committing_since=None)
