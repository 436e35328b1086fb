"""A plan on the terminal: its events during planning, its deletions with their reasons, and its summary."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from compaction_app.changes.change import Applied, lines_of
from compaction_app.changes.compaction import Approved, Preflight
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.effects import removed_estimate, struck_by_target, struck_of, tokens_back
from compaction_app.core.loop import Called, Event, Origin
from compaction_app.core.states import EventKind
from compaction_app.core.stats import target_reduction, tokens_to_delete
from compaction_app.core.transcript import moved, unanswered
from compaction_app.models import Run
from compaction_app.planning.plan import Plan, source_of_query
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.format import Moved, SessionWriter
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import GENERATIONS
from sessions_app.cli import RedlineCommand, printable, shell_path, shell_quoted, text_lines
from sessions_app.document.document import Document
from sessions_app.sessionlog.context import ContextSize, significant
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.storage.session_loader import TornLine
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("DELETE", style="red"),
    Column("BLOCK"),
    Column("ROLE", style="cyan"),
    Column("TOKENS", right=True),
    Column("TEXT", cut="end"),
    Column("REASON", cut="end"),
)
BEGINNING: Final = 80
"""Characters of a text that are shown."""
REASON: Final = 300
MOVES: Final = 5
"""The number of moved entries that are named."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A finished plan, and its session."""

    plan: Plan
    validated: ValidatedDeletion
    origins: Mapping[Target, Origin]
    document: Document
    planner: str
    reader: str
    writer: str
    size: ContextSize
    """The size of the context, in whose measure tokens are shown."""
    run: Run | None = None
    """None if the plan is not recorded."""

    @property
    def struck(self) -> int:
        """The tokens that the plan deletes."""
        return struck_of(self.size, self.plan.transcript, self.validated.targets)

    @property
    def after(self) -> ContextSize:
        """The size of the context without the deletions of the plan."""
        return self.size.without(removed_estimate(self.plan.transcript, self.validated.targets))

    @property
    def goal(self) -> int:
        """The tokens that the target deletes."""
        ratio = self.validated.parameters.compression_ratio
        return self.size.of(tokens_to_delete(self.plan.transcript.tokens, ratio))

    @property
    def approved(self) -> Approved:
        """The plan in the form that a commit takes."""
        return Approved(
            document=self.document,
            leaf_id=self.plan.leaf_id,
            parameters=self.plan.transcript.parameters,
            targets=self.validated.targets,
            planner=self.planner,
            origins=self.origins,
            restraints=self.plan.restraints,
            reader=self.reader,
            writer=self.writer,
            run=self.run,
        )


class RequestScreen:
    """Shows the requests to a model, and keeps the totals of the data sent and received."""

    first_request = "The conversation is sent"

    def __init__(self, command: RedlineCommand) -> None:
        self._command = command
        self.usage: dict[str, Any] | None = None

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        self.usage = usage
        host = printable(usage["host"])
        if kind == EventKind.ASKED and data["turn"] == 1:
            self._command.progress.clear()
            self._command.say(
                f"The model is at {host}: the first request has {plural(data['characters'], 'character')}. "
                f"{self.first_request}."
            )
        elif kind == EventKind.ASKED:
            self._command.progress.show(f"request {data['turn']}: {plural(data['characters'], 'character')} to {host}")
        elif kind == EventKind.RETRIED:
            self._command.progress.clear()
            self._command.say(f"Retry in {data['seconds']:g} s: {one_line(data['why'], 200)}")

    def is_stopped(self) -> bool:
        return False

    def totals(self) -> list[str]:
        """The data sent, received and its cost, in words; empty if nothing left the machine."""
        if self.usage is None:
            return []
        found = self.usage
        about = "about " if found["estimated"] else ""
        cost = f" {about}${found['cost']:.4f}." if found["cost"] is not None else " The cost is not known."
        tokens = found["input"] + found["cacheRead"] + found["cacheWrite"]
        sent = f"{plural(found['sent'], 'character')} sent ({about}{plural(tokens, 'token')})"
        received = f"{found['received']:,} received ({about}{plural(found['output'], 'token')})"
        return [f"{plural(found['requests'], 'request')} to {printable(found['host'])}: {sent}, {received}.{cost}"]


class PlanningScreen(RequestScreen):
    """Shows the events during planning."""

    first_request = "Most of it is the manifest; the tools send more of the conversation if the model requests it"

    def begin(self, plan: Plan) -> None:
        for message in plan.answers.messages:
            self._command.say(f"Hook: {printable(message.text)}")
        # The prepared data lives until the end: the garbage collector need not scan it repeatedly.
        gc.freeze()

    def step(self, plan: Plan, event: Event, place: Mapping[str, int] | None = None) -> None:
        del plan, place
        if isinstance(event, Called):
            self._command.progress.show(f"{event.number} {event.result.name}: {event.result.sentence}")


def show_deletions(command: RedlineCommand, planned: Planned, *, full: bool, paged: bool) -> None:
    """Print every target with its reason: as a table, or with its whole text."""
    plan = planned.plan
    positions = {entry.entry_id: position for position, entry in enumerate(plan.transcript.entries)}
    targets = sorted(
        planned.validated.targets, key=lambda target: (positions[target.entry_id], target.block_index or 0)
    )
    tokens = struck_by_target(planned.size, plan.transcript, planned.validated.targets)
    rows = [_row(planned, target, tokens[target]) for target in targets]
    lines = _whole(command, planned, targets, tokens) if full else command.screen.table(COLUMNS, rows)
    command.say_all(lines, paged=paged)


def show_summary(
    command: RedlineCommand,
    planned: Planned,
    reading: Reading,
    writer: SessionWriter,
    effect: str,
    torn: TornLine | None,
) -> None:
    """Print the plan's figures, its parameters, and its warnings."""
    plan, validated = planned.plan, planned.validated
    stats, found, effective = validated.stats, validated.parameters, plan.effective
    command.say()
    command.say(
        f"{stats.objects_deleted} of {plural(stats.objects_before, 'object')} go, "
        f"about {plural(significant(planned.struck), 'token')}. "
        f"The context has {planned.size}; afterwards {planned.after}."
    )
    command.say(
        f"By the agent's own count that is {stats.percent_reduction}%; the target is "
        f"{target_reduction(found.compression_ratio):g}%, about {plural(significant(planned.goal), 'token')}."
    )
    command.say(
        f"Ratio {found.compression_ratio:g} ({printable(effective.sources['compression_ratio'])}), recent "
        f"{found.preserve_recent} ({printable(effective.sources['preserve_recent'])}), "
        f"query: {one_line(found.query, 100)} "
        f"({printable(source_of_query(planned.planner, effective.sources['query']))})"
    )
    command.say(f"Read as {reading.reader.name}, because {printable(reading.reason)}.")
    if torn is not None:
        command.say(f"The session ends in {torn}.")
    for fault in effective.faults:
        command.say(f"Ignored: {printable(fault)}")
    command.say(f"Writer: {writer.name}. {effect} {writer.undo}")
    back, tokens = _not_applied(planned, writer)
    if back:
        command.say(
            f"The agent will not apply {len(back)} of these, about {plural(significant(tokens), 'token')}, to keep its "
            f"latest thinking replayable or its calls answered: {_named(back)}."
        )
    for taker, left in unanswered(plan.transcript, validated.targets).items():
        command.say(f"Without {printable(taker)}, a call with the same id has no answer: {_named(left)}.")
    moves = _moves(planned)
    if moves:
        more = f", and so on, {len(moves):,} entries in all" if len(moves) > MOVES else ""
        named = (f"{printable(one.entry_id)} before {printable(one.before_id)}" for one in moves[:MOVES])
        command.say(
            f"{reading.agent.label} sends what stands between two replies as one message, in an order of its own. No "
            f"reply is left between some of what stays, so that it sends {', '.join(named)}{more}.",
            "yellow",
        )
    if plan.why:
        command.say(f"It ended early: {printable(plan.why)}")
    if not validated.target_met:
        command.say("The target is not met.")


def committed_lines(committed: Applied[Preflight], agent: Agent) -> list[str]:
    """The written entries, the place, and how to continue, in words."""
    path = committed.plan.present.path
    if committed.made.created is not None:
        resume = " ".join(map(shell_quoted, agent.client.resume_command(committed.made.created)))
        return [
            f"Made {printable(committed.made.created)}; {printable(path)} is as it was.",
            *_certificate_lines(committed),
            f"Continue there with: {printable(resume)}",
        ]
    count = len(committed.made.lines)
    appended = f"Appended {count:,} line{'s' if count > 1 else ''} to {printable(path)}"
    return [
        *_certificate_lines(committed),
        f"{appended}; its last entry is {committed.made.entry_id} now."
        if count
        else f"Changed the rows of {printable(path)}.",
        f"The backup is {printable(committed.backup_path)}.",
        *(["An agent that has the session open must reload it."] if count else []),
        f"To undo: redline undo {printable(shell_quoted(shell_path(path)))}",
    ]


def _certificate_lines(committed: Applied[Preflight]) -> list[str]:
    """The results of the proof, and the old problems of the session that remain."""
    certificate = committed.made.certificate
    if certificate is None:
        return []
    still = [f"It could not be continued before, and still cannot: {one.sentence}" for one in certificate.unrepaired]
    return [f"Certified: {certificate.sentence}.", *map(printable, still)]


def _not_applied(planned: Planned, writer: SessionWriter) -> tuple[Sequence[Target], int]:
    """The targets that the agent will not apply, and their tokens."""
    plan, targets = planned.plan, planned.validated.targets
    back = writer.unapplied(planned.document.tree.branch(plan.leaf_id), targets)
    return back, tokens_back(planned.size, plan.transcript, targets, back)


def _moves(planned: Planned) -> Sequence[Moved]:
    """The messages that are sent before something that precedes them now."""
    with lines_of(planned.document) as line:
        return moved(
            planned.plan.transcript.entries,
            planned.validated.targets,
            GENERATIONS[planned.reader][1].turns,
            lambda entry_id: line(planned.document.tree.entry(entry_id)),
        )


def document_of(planned: Planned, committed: Applied[Preflight] | None, writer: SessionWriter) -> dict[str, Any]:
    """The plan, and its written result, as JSON."""
    plan = planned.plan
    written = committed.plan.validated if committed is not None else planned.validated
    return {
        "run": planned.run.pk if planned.run is not None else None,
        "leafId": plan.leaf_id,
        "parameters": msgspec.to_builtins(plan.transcript.parameters),
        "deletedTargets": [target.to_json() for target in written.targets],
        "protectedEntryIds": list(written.protected_entry_ids),
        "stats": written.stats.to_json(),
        "tokens": {
            "before": planned.size.tokens,
            "beforeBasis": str(planned.size.basis),
            "struck": planned.struck,
            "after": planned.after.tokens,
            "afterBasis": str(planned.after.basis),
            "notApplied": _not_applied(planned, writer)[1],
            "goal": planned.goal,
        },
        "targetMet": written.target_met,
        "moved": [{"entryId": one.entry_id, "beforeId": one.before_id} for one in _moves(planned)],
        "writer": committed.plan.writer.name if committed is not None else None,
        "entryId": committed.made.entry_id if committed is not None else None,
        "created": str(committed.made.created) if committed is not None and committed.made.created else None,
        "backupPath": str(committed.backup_path) if committed is not None else None,
        "reasons": [_reason_of(planned, target) for target in written.targets],
        "hooks": [message.text for message in plan.answers.messages],
    }


def _named(targets: Iterable[Target]) -> str:
    return ", ".join(printable(target) for target in list(targets)[:5])


def _whole(
    command: RedlineCommand, planned: Planned, targets: Iterable[Target], tokens: Mapping[Target, int]
) -> Iterator[str]:
    for target in targets:
        cells = _row(planned, target, tokens[target])
        block = f" block {cells[1]}" if cells[1] else ""
        yield command.screen.paint(f"{cells[0]}{block} {cells[2]}, {cells[3]} tokens: {cells[5]}", "bold")
        yield from (f"    {line}".rstrip() for line in text_lines(planned.plan.transcript.text_of(target)))


def _row(planned: Planned, target: Target, tokens: int) -> list[str]:
    transcript = planned.plan.transcript
    entry = transcript.entry(target.entry_id)
    assert entry is not None  # noqa: S101  # a validated target is in its transcript
    return [
        printable(target.entry_id),
        "" if target.block_index is None else str(target.block_index),
        printable(entry.tool_name or entry.role),
        f"{significant(tokens):,}",
        one_line(transcript.text_of(target), BEGINNING),
        one_line(_reason_of(planned, target), REASON),
    ]


def _reason_of(planned: Planned, target: Target) -> str:
    """The reason for deleting a target, in words."""
    origin = planned.origins.get(target)
    if origin is None:
        return ""
    return "goes with the other side of its tool call" if origin.by_repair else origin.reason
