"""The preflight of a commit: the current session compared with what was approved, and the confirmations that it needs.

The page that requests confirmations and the write that refuses without them both use it, so that they never differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from compaction_app.changes.plan import ChangePlan
from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.errors import Refusal
from compaction_app.core.gates import NO_RESTRAINTS, Restraints
from compaction_app.core.loop import Origin
from compaction_app.core.parameters import Parameters
from compaction_app.core.transcript import prepare
from compaction_app.models import Run
from compaction_app.session_activity import Activity, activity_of
from sessions_app.agents.changes import SessionWriter
from sessions_app.agents.programs import AgentServer
from sessions_app.agents.pure.contexts import PlanRules
from sessions_app.agents.registry import agent_at
from sessions_app.document.document import Document
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, Conflict, RedlineError, TargetNotMet
from sessions_app.sessionlog.targets import Target, request_of
from sessions_app.storage.session_loader import LoadedSession, TornLine, torn_line_of

MOST_NAMED: Final = 5
"""Objects that a message names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Approved:
    """What was reviewed: the session as it was then, the branch, the parameters, and exactly these targets."""

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
    """The run in which it was reviewed; it is committed together with the line, or not at all."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Notes of the user, each by the first entry of the span that it stands for: see `Run.notes`."""
    is_awaited: bool = False
    """Whether the agent that has the session open waits for this plan: then it does not continue past it."""
    is_less_by_decision: bool = False
    """Whether an agent waits or waited for this plan, and a human rejected a part of what was proposed: that is the
    decision, and a target that the plan misses needs no second one."""
    rule: str = ""
    """What approved it in a human's place, in words; empty if a human did."""


def require_writable(loaded: LoadedSession) -> None:
    """Raise BadInput if a session cannot be written to: `read_only_agent`, `no_header`, `subagent`, `needs_migration`
    or `unknown_version`."""
    agent = agent_at(loaded.path)
    version, current = loaded.log.version, agent.current_version
    why = agent.read_only(loaded.path)
    if why:
        raise BadInput("read_only_agent", f"Nothing was written for {loaded.path}. {why}")
    if loaded.log.header is None:
        raise BadInput(
            "no_header",
            f"{loaded.path} has no session header: agents reject such a file, and Atomic before 0.9.4 empties it on "
            "opening. Nothing was written. `redline migrate-session` writes a copy with a header beside it, which can "
            "be compacted.",
        )
    if loaded.log.header.is_subagent:
        raise BadInput(
            "subagent",
            f"{loaded.path} is the session of a subagent, which only the session that started it continues. "
            "Nothing was written. Compact the session that started it.",
        )
    if version < current:
        raise BadInput(
            "needs_migration",
            f"{loaded.path} is a version {version} session. Nothing was written. "
            "`redline migrate-session` writes a version 3 copy beside it, which can be compacted.",
        )
    if version > current:
        raise BadInput(
            "unknown_version",
            f"{loaded.path} is a version {version} session, which Redline does not know. Nothing was written.",
        )


@dataclass(frozen=True)
class Preflight(ChangePlan):
    """What a commit would do at this moment."""

    NOT_DONE = "Nothing was written."

    parent_id: str
    """The entry that the line would be appended after."""
    validated: ValidatedDeletion
    writer: SessionWriter
    notes: Mapping[str, str]
    """The notes that the writer adds, by the first entry of the span that each stands for, in their order."""
    is_awaited: bool = False
    """As `Approved.is_awaited`."""

    @property
    def server(self) -> AgentServer | None:
        """The agent's server through which the change is made; None if the session is changed itself, or stays."""
        return self.activity.server if self.writer.appends else None

    @property
    def written_to(self) -> Path | None:
        return self.present.path if self.writer.appends and not self.is_awaited else None

    @property
    def facts(self) -> list[Any]:
        return [
            [target.to_json() for target in self.validated.targets],
            self.parent_id,
            self.present.leaf_id,
            self.writer.name,
            self.server.address if self.server is not None else "",
        ]


def check_plan(approved: Approved, present: Document, now: datetime, writer_name: str = "") -> Preflight:
    """Check what was approved against the current session, to be written by the writer of this name.

    Raises BadInput `no_header`, `subagent`, `needs_migration`, `unknown_version`, `unknown_writer`,
    `refused_writer` and `not_writable`, Conflict `other_branch`, `reader_changed`, `plan_refused` and `plan_changed`.
    """
    require_writable(present)
    reading = present.reading
    _require_reader(approved, present)
    writer = reading.writer(writer_name or approved.writer)
    parent_id = _parent_of(approved, present)
    _require_writer_may(approved, present, writer)
    validated = _validate_again(approved, present, parent_id, reading.rules(writer.name))
    activity = activity_of(present.row, present.state, now)
    torn = torn_line_of(present.path)
    needs = dict(_needs(approved, present, parent_id, activity, torn)) if writer.appends else {}
    if not approved.is_less_by_decision and not _meets_target(approved, validated, reading.rules(writer.name)):
        needs["below_target"] = target_not_met(validated)
    notes = _notes(approved, present, parent_id, writer)
    return Preflight(present, activity, torn, needs, parent_id, validated, writer, notes, approved.is_awaited)


def _notes(approved: Approved, present: LoadedSession, parent_id: str, writer: SessionWriter) -> Mapping[str, str]:
    """The notes whose entries go, if the writer holds notes."""
    if not writer.holds_notes or not approved.notes:
        return {}
    gone = {target.entry_id for target in approved.targets if target.block_index is None}
    branch = present.tree.branch(parent_id)
    return {entry.id: approved.notes[entry.id] for entry in branch if entry.id in gone and approved.notes.get(entry.id)}


def _require_reader(approved: Approved, present: Document) -> None:
    reading = present.reading
    if approved.reader not in ("", reading.reader.name):
        raise Conflict(
            "reader_changed",
            f"{present.path} was planned as {approved.reader} reads it, and is now read as {reading.reader.name}, "
            f"because {reading.reason}. Nothing was written. Plan again.",
        )


def _require_writer_may(approved: Approved, present: LoadedSession, writer: SessionWriter) -> None:
    """Raise BadInput `not_writable` if a writer must not touch some of the entries that go."""
    entries = dict.fromkeys(target.entry_id for target in approved.targets)
    unfit = [
        entry_id
        for entry_id in entries
        if entry_id in present.tree and writer.protection(present.tree.entry(entry_id)) is not None
    ]
    if unfit:
        raise BadInput(
            "not_writable",
            f"The writer {writer.name} cannot leave out {_named(unfit)} of {present.path}. Nothing was written. Reject "
            "these deletions, or use another writer.",
        )


def _named(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _needs(
    approved: Approved,
    present: Document,
    parent_id: str,
    activity: Activity,
    torn: TornLine | None,
) -> Iterator[tuple[str, RedlineError]]:
    """The confirmations of a change to the session itself."""
    if activity.is_live and not activity.is_open_elsewhere and not approved.is_awaited:
        yield (
            "live",
            ConfirmationNeeded(
                "session_live",
                f"{present.path} {activity.sentence}: an agent may have it open. {activity.consequence} Nothing was "
                "written. Close the session in the agent, or reload it afterwards, and use --live.",
                "--live",
            ),
        )
    if torn is not None:
        yield (
            "after_torn_line",
            ConfirmationNeeded(
                "torn_last_line",
                f"{present.path} ends in {torn}. Nothing was written. Let the agent finish the line; if it never does, "
                "use --after-torn-line: the compaction then begins on a new line after it.",
                "--after-torn-line",
            ),
        )
    if parent_id != present.leaf_id:
        yield (
            "switch_branch",
            ConfirmationNeeded(
                "switches_branch",
                f"{approved.leaf_id} is not the end of the active branch of {present.path}: {present.leaf_id} is. "
                "Compacting there makes it active. Nothing was written. If that is intended, use --switch-branch.",
                "--switch-branch",
            ),
        )
    reading = present.reading
    if reading.is_guess:
        yield (
            "not_honoured",
            ConfirmationNeeded(
                "not_honoured",
                f"{present.path} is read as {reading.reader.name}: {reading.reason}. Another agent than "
                f"{reading.generation.label} would ignore what is appended. Nothing was written. Use the writer fork, "
                "choose the reader with --reader or on the page of the session, or confirm with --not-honoured.",
                "--not-honoured",
            ),
        )


def _parent_of(approved: Approved, present: LoadedSession) -> str:
    """The entry to append to: the reviewed leaf, or what its branch has grown to if that is the active one.

    Raises Conflict `other_branch` if the active branch was reviewed and the session continued in another.
    """
    if present.tree.descends(present.leaf_id, approved.leaf_id) and not _ends_inside_branch(approved):
        return present.leaf_id
    if approved.leaf_id == approved.document.leaf_id:
        raise Conflict(
            "other_branch",
            f"{present.path} continued in another branch: its last entry {present.leaf_id} does not follow "
            f"{approved.leaf_id}, which was reviewed. Nothing was written. Plan again.",
        )
    return approved.leaf_id


def _ends_inside_branch(approved: Approved) -> bool:
    """Whether an entry in the middle of the active branch was reviewed, on purpose: then it is compacted there."""
    reviewed = approved.document
    return approved.leaf_id != reviewed.leaf_id and reviewed.tree.descends(reviewed.leaf_id, approved.leaf_id)


def _judge(
    approved: Approved, session: LoadedSession, leaf_id: str, rules: PlanRules
) -> ValidatedDeletion | Refusal | None:
    """The airlock's judgement on what was approved; None if too little is left to compact."""
    # The query is given, so no text is needed to validate the plan.
    transcript = prepare(session.tree.branch(leaf_id), {}, msgspec.to_builtins(approved.parameters), rules)
    if transcript is None:
        return None
    return validate(request_of(approved.targets), transcript, approved.restraints)


def _meets_target(approved: Approved, validated: ValidatedDeletion, rules: PlanRules) -> bool:
    """Whether the target is met, or was met at the approval and the session has only grown since."""
    if validated.target_met:
        return True
    reviewed = _judge(approved, approved.document, approved.leaf_id, rules)
    return isinstance(reviewed, ValidatedDeletion) and reviewed.target_met


def target_not_met(validated: ValidatedDeletion) -> TargetNotMet:
    return TargetNotMet(
        "target_not_met",
        f"The plan deletes {validated.stats.percent_reduction}% of the tokens, less than required. "
        "Nothing was written. To write it anyway, use --allow-below-target.",
    )


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
    before, now = (
        _sources(approved.document, approved.leaf_id, rules),
        _sources(present, leaf_id, rules),
    )
    others = [target.entry_id for target in approved.targets if before.get(target.entry_id) != now[target.entry_id]]
    if others or set(judged.targets) != reviewed:
        named = ", ".join(others[:MOST_NAMED]) or "something else"
        raise Conflict(
            "plan_changed",
            f"{present.path} has changed: the ids now name other content ({named}). Nothing was written. Plan again.",
        )
    return judged


def _sources(session: LoadedSession, leaf_id: str, rules: PlanRules) -> dict[str, tuple[int, int]]:
    """The number and offset of the line that has each message's content: of several entries with one id the last
    counts, and an edit may have replaced the content."""
    messages = rules.compactable(session.tree.branch(leaf_id))
    sources = ((message.entry.id, message.source) for message in messages)
    return {entry_id: (source.number, source.offset) for entry_id, source in sources}
