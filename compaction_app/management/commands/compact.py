"""`redline compact`: plans, shows each deletion with its reason, and writes the plan after confirmation."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from django.core.management.base import CommandParser
from django.db import transaction

from compaction_app.changes.change import Applied, Confirmations, lines_of
from compaction_app.changes.compaction import (
    Approved,
    Preflight,
    approval,
    check_plan,
    commit,
    context_tally,
    plan_differs,
)
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.effects import removed_estimate, struck_by_target, struck_of, tokens_back
from compaction_app.core.loop import Called, Event, Outcome
from compaction_app.core.reasons import shown_reason
from compaction_app.core.stats import target_reduction, tokens_to_delete
from compaction_app.core.transcript import moved, unanswered
from compaction_app.management.change_command import ChangeCommand, RequestScreen, flags_of, made_lines
from compaction_app.planning.model_registry import LEVELS
from compaction_app.planning.plan import (
    EMBEDDED,
    OFF,
    Plan,
    dry_run,
    is_llm,
    own_parameters,
    requested_level,
    require_planner,
    source_of_query,
)
from compaction_app.planning.snapshots import session_as_prepared, snapshot_of
from compaction_app.runs.commands import new_run
from compaction_app.runs.reviews import approve_proposals
from compaction_app.runs.worker import work_here
from compaction_app.session_activity import effect_of
from sessions_app import cli
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.formats import Moved, SessionWriter
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import GENERATIONS, READERS_HELP, WRITERS_HELP, agent_at, require_reader_of
from sessions_app.disk.files import real_path
from sessions_app.document.document import Document
from sessions_app.earlier_names import with_earlier_names
from sessions_app.index.index_store import session_row
from sessions_app.index.indexer import index_file, select_reader
from sessions_app.models import Session
from sessions_app.sessionlog.context import ContextSize, significant
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, TargetNotMet
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.sessionlog.tree import unknown_entry
from sessions_app.storage.session_loader import TornLine, find_torn_line
from sessions_app.terminal import Column

OWN: Final = {
    "leaf": "--branch",
    "reader": "--open-as",
    "planner": "--planner",
    "thinking": "--thinking",
    "writer": "--save-as",
    "ratio": "--ratio",
    "preserve_recent": "--preserve-recent",
    "query": "--query",
}
"""Options that determine the plan, with their flags."""
DEFAULTS: Final = (None, "", EMBEDDED)
NOTHING_NEEDED: Final[dict[str, Any]] = {"needs": [], "to_write": None, "obstacle": None}
COLUMNS: Final = (
    Column("DELETE", style="red"),
    Column("BLOCK"),
    Column("ROLE", style="cyan"),
    Column("TOKENS", right=True),
    Column("TEXT", cut="end"),
    Column("REASON", cut="end"),
)
BEGINNING: Final = 80
"""The number of characters of a text that are shown."""
REASON: Final = 300
MOVES: Final = 5
"""The maximum number of moved entries that are named."""


class Command(ChangeCommand):
    help = "Plan a compaction, show every deletion with its reason, and write it after confirmation."
    CONFIRMED = ("live", "switch_branch", "after_torn_line", "not_honoured", "below_target")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "path", nargs="?", type="session", default=cli.NEWEST, metavar="SESSION", help=cli.NEWEST_HELP
        )
        parser.add_argument("--branch", dest="leaf", metavar="ID", help=cli.LEAF_HELP)
        parser.add_argument(
            "--open-as",
            dest="reader",
            default="",
            metavar="NAME",
            help=f"{READERS_HELP}. The session remembers it, like a choice on its page; not with --dry-run",
        )
        parser.add_argument(
            "--planner",
            default=EMBEDDED,
            help="`embedded`, which is built in, or `prune`, both offline, or a model from Settings as provider/name: "
            "it receives the manifest, and the parts of the conversation that it requests",
        )
        parser.add_argument(
            "--thinking",
            metavar="LEVEL",
            default="",
            help=f"the thinking level of a model: {', '.join(LEVELS)}, or {OFF} "
            "(default: the session's, as the model takes it)",
        )
        parser.add_argument("--ratio", type=float, help="the fraction of tokens to keep, between 0 and 1")
        parser.add_argument(
            "--save-as",
            dest="writer",
            metavar="NAME",
            default="",
            help=f"how the plan is saved: {WRITERS_HELP}",
        )
        parser.add_argument("--preserve-recent", type=int, metavar="N", help="how many of the latest entries are kept")
        parser.add_argument("--query", help="what you will work on next: the planner keeps what matters for it")
        parser.add_argument("--full", action="store_true", help="show the whole deleted texts")
        self.add_confirmations(parser, "back up and write without asking", "plan and show, write nothing")

    def run(self, options: dict[str, Any]) -> int | None:
        own = own_parameters(options["ratio"], options["preserve_recent"], options["query"])
        screen = PlanningScreen(self)
        try:
            planned = self._plan(options, own, screen)
        finally:
            # Even if it failed: the requests sent must be paid for.
            self.progress.clear()
            self.say_all(screen.totals(), paged=False)
        command = _commit_command(planned.approved, options)
        torn = find_torn_line(planned.approved.document.agent, planned.approved.document.path)
        if not self.as_json:
            # With --yes there is no user to leave a pager.
            show_deletions(self, planned, full=options["full"], paged=not options["yes"])
            show_summary(self, planned, command, torn)
            if self.newest:
                self.say(f"Session: {self.newest}")
        committed = None
        confirmations = self._confirmed(command, planned.approved.document.path, options)
        if confirmations is not None:
            now = datetime.now(UTC)
            committed = commit(approve_shown(planned.approved, now), confirmations, now)
            self.say_all(committed_lines(committed, command.reading.agent), paged=False)
        else:
            self.say("Nothing was written.")
            self.say(command.sentence, "yellow")
        document = document_of(planned, committed, command.writer) | {
            "usage": screen.usage,
            "tornLine": torn._asdict() if torn is not None else None,
        }
        self.show_json(document | (command.to_json() if committed is None else NOTHING_NEEDED))
        if committed is not None:
            return None
        if not options["dry_run"]:
            return ConfirmationNeeded.exit_code
        return None if planned.validated.target_met else TargetNotMet.exit_code

    def _plan(self, options: dict[str, Any], own: Mapping[str, object], screen: PlanningScreen) -> Planned:
        """Plan in a run of this process; without a run for a dry run, or if the plan could never be written."""
        path, leaf = real_path(options["path"]), options["leaf"] or ""
        thinking = requested_level(options["thinking"])
        if options["reader"]:
            require_reader_of(agent_at(path), options["reader"])
        self.warn_if_taken_over(path)
        session = None if options["dry_run"] else self._indexed(path, options["reader"])
        if session is not None and session.has_header and session.version == session.agent.format.current_version:
            if leaf and not session.has_entry(leaf):
                raise unknown_entry(leaf)
            run = new_run(session, options["planner"], own, leaf, thinking, options["writer"])
            plan = work_here(run, screen)
            validated = _validated(plan, path)
            prepared = snapshot_of(run).prepared
            document, size = session_as_prepared(session, prepared), prepared.context_size
            planner, reader, writer = run.planner, prepared.reader, prepared.writer
        else:
            run, writer = None, options["writer"]
            document = Document.of_file(path, progress=self._show_read)
            planner = require_planner(options["planner"], thinking)
            with _unchanged_index():
                document = _with_row(document, options["reader"])
            plan = dry_run(document, leaf, own, planner, thinking, screen, writer)
            validated = _validated(plan, path)
            reader, size = document.reading.reader.name, context_tally(document, plan.leaf_id).size
        approved = Approved(
            document,
            plan.leaf_id,
            plan.transcript.parameters,
            validated.targets,
            planner,
            plan.origins,
            plan.restraints,
            reader=reader,
            writer=writer,
            run=run,
        )
        return Planned(plan, validated, approved, size)

    def _indexed(self, path: Path, reader: str) -> Session:
        """The indexed session, with the reader that was chosen, if any."""
        session = index_file(path, report=lambda read: self._show_read(read.bytes))
        if reader not in ("", session.reader):
            select_reader(session, reader)
            session.refresh_from_db()
        return session

    def _confirmed(self, command: CommitCommand, path: Path, options: dict[str, Any]) -> Confirmations | None:
        """The confirmations with which the plan is to be written; None if it is not to be.

        Raises the error that prevents it, and with `--yes` also the first missing confirmation.
        """
        if options["dry_run"]:
            return None
        preflight = command.preflight
        if isinstance(preflight, BadInput):
            raise preflight
        given = self.given(options)
        missing = {name: failure for name, failure in preflight.needs.items() if not options[name]}
        if missing and options["yes"]:
            first = next(iter(missing.values()))
            self.say(command.sentence)
            if self.as_json:
                first.message += f" {command.sentence}"
            raise first
        if not missing:
            question = f"Back up the session and save this as {command.writer.name}?"
            return given if options["yes"] or (self.can_ask and self.ask(question)) else None
        if self.can_ask_about_live(missing, preflight.activity):
            return replace(given, live=True) if self.is_live_confirmed(path, preflight.activity, "Write") else None
        # An answer that is not enough is not requested.
        return None


def approve_shown(shown: Approved, now: datetime) -> Approved:
    """Approve the proposals of a plan's run, if it has one. Raises Conflict `plan_differs` if more or less would be
    deleted than was shown, and `decided_elsewhere`."""
    run = shown.run
    if run is None:
        return shown
    approve_proposals(run, now)
    approved = approval(run)
    if approved.targets != shown.targets:
        raise plan_differs(run)
    return approved


@contextmanager
def _unchanged_index() -> Iterator[None]:
    """Changes of the database meanwhile are rolled back: a dry run adds no session to the index."""
    with transaction.atomic():
        try:
            yield
        finally:
            transaction.set_rollback(True)


def _with_row(document: Document, reader: str) -> Document:
    """A document with the row of its session, and the reader that was chosen for it, if any."""
    row = session_row(document.path)
    row.reader = reader or row.reader
    return replace(document, session=row)


def _validated(plan: Plan, path: Path) -> ValidatedDeletion:
    if plan.outcome is Outcome.FAILED:
        why = f" The last refusal: {plan.refusal.message}" if plan.refusal is not None else ""
        raise TargetNotMet(
            "nothing_deletable",
            f"The planner found nothing to delete in {path}. Nothing was written.{why} {plan.why}".rstrip(),
        )
    return plan.validated


@dataclass(frozen=True, slots=True)
class CommitCommand:
    """The current requirements for a commit of the plan, and the command line for it."""

    reading: Reading
    writer: SessionWriter
    by_model: bool
    preflight: Preflight | BadInput
    """The checked plan, or the reason why it cannot be written."""
    command: str = ""

    @property
    def effect(self) -> str:
        """The writer's effect on the session."""
        if isinstance(self.preflight, BadInput):
            return self.writer.effect
        return effect_of(self.writer, self.preflight.activity)

    @property
    def sentence(self) -> str:
        """How to write the plan, in one line."""
        if isinstance(self.preflight, BadInput):
            return cli.printable(self.preflight.message)
        return f"{'To plan again and write' if self.by_model else 'To write this'}: `{self.command}`"

    def to_json(self) -> dict[str, Any]:
        if isinstance(self.preflight, BadInput):
            obstacle = {"code": self.preflight.code, "message": self.preflight.message}
            return {**NOTHING_NEEDED, "obstacle": obstacle}
        return {**NOTHING_NEEDED, "needs": flags_of(self.preflight.needs), "to_write": self.command}


def _commit_command(approved: Approved, options: dict[str, Any]) -> CommitCommand:
    """Check the plan as a commit would. The database is not changed."""
    by_model = is_llm(options["planner"])
    with _unchanged_index():
        document = _with_row(approved.document, options["reader"])
        reading = document.reading
        writer = reading.writer(options["writer"])
        try:
            preflight = check_plan(approved, document, datetime.now(UTC))
        except BadInput as obstacle:
            return CommitCommand(reading, writer, by_model, obstacle)
    own = [f"{flag}={options[name]}" for name, flag in OWN.items() if options[name] not in DEFAULTS]
    words = [cli.shell_path(options["path"]), *own, *flags_of(preflight.needs)]
    command = " ".join(["redline compact", *map(cli.shell_quoted, words)])
    return CommitCommand(reading, writer, by_model, preflight, command)


# ---- the plan on the terminal ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """A finished plan, and what a commit of it takes: without a run if it is not recorded."""

    plan: Plan
    validated: ValidatedDeletion
    approved: Approved
    size: ContextSize
    """The size of the context, in whose measure tokens are shown."""

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


class PlanningScreen(RequestScreen):
    """Shows the events during planning."""

    first_request = "Most of it is the manifest; the tools send more of the conversation if the model requests it"

    def begin(self, plan: Plan) -> None:
        for message in plan.answers.messages:
            self._command.say(f"Hook: {cli.printable(message.text)}")
        # The prepared data lives until the end: the garbage collector need not scan it repeatedly.
        gc.freeze()

    def step(self, plan: Plan, event: Event, place: Mapping[str, int] | None = None) -> None:
        del plan, place
        if isinstance(event, Called):
            self._command.progress.show(f"{event.number} {event.result.name}: {event.result.sentence}")


def show_deletions(command: cli.RedlineCommand, planned: Planned, *, full: bool, paged: bool) -> None:
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


def _whole(
    command: cli.RedlineCommand, planned: Planned, targets: Iterable[Target], tokens: Mapping[Target, int]
) -> Iterator[str]:
    for target in targets:
        cells = _row(planned, target, tokens[target])
        block = f" block {cells[1]}" if cells[1] else ""
        yield command.screen.paint(f"{cells[0]}{block} {cells[2]}, {cells[3]} tokens: {cells[5]}", "bold")
        yield from (f"    {line}".rstrip() for line in cli.text_lines(planned.plan.transcript.text_of(target)))


def _row(planned: Planned, target: Target, tokens: int) -> list[str]:
    transcript = planned.plan.transcript
    entry = transcript.entry(target.entry_id)
    assert entry is not None  # noqa: S101  # a validated target is in its transcript
    return [
        cli.printable(target.entry_id),
        "" if target.block_index is None else str(target.block_index),
        cli.printable(entry.tool_name or entry.role),
        f"{significant(tokens):,}",
        one_line(transcript.text_of(target), BEGINNING),
        one_line(_reason_of(planned, target), REASON),
    ]


def _reason_of(planned: Planned, target: Target) -> str:
    """The reason for deleting a target, in words."""
    origin = planned.approved.origins.get(target)
    if origin is None:
        return ""
    return "deleted with the other side of its tool call" if origin.by_repair else shown_reason(origin.reason)


def show_summary(command: cli.RedlineCommand, planned: Planned, how: CommitCommand, torn: TornLine | None) -> None:
    """Print the plan's figures, its parameters, and its warnings."""
    plan, validated, reading, writer = planned.plan, planned.validated, how.reading, how.writer
    stats, found, effective = validated.stats, validated.parameters, plan.effective
    command.say()
    command.say(
        f"{stats.objects_deleted:,} of {plural(stats.objects_before, 'object')} deleted, "
        f"about {plural(significant(planned.struck), 'token')}. "
        f"The context has {planned.size}; afterwards {planned.after}."
    )
    command.say(
        f"By the agent's own count that is {stats.percent_reduction}%; the target is "
        f"{target_reduction(found.compression_ratio):g}%, about {plural(significant(planned.goal), 'token')}."
    )
    command.say(
        f"Ratio {found.compression_ratio:g} ({cli.printable(effective.sources['compression_ratio'])}), recent "
        f"{found.preserve_recent} ({cli.printable(effective.sources['preserve_recent'])}), "
        f"query: {one_line(found.query, 100)} "
        f"({cli.printable(source_of_query(planned.approved.planner, effective.sources['query']))})"
    )
    command.say(f"Opened as {reading.reader.name}, because {cli.printable(reading.reason)}.")
    if torn is not None:
        command.say(f"The session ends in {torn}.")
    for fault in effective.faults:
        command.say(f"Ignored: {cli.printable(fault)}")
    command.say(f"Saved as {writer.name}. {how.effect} {writer.undo}")
    back, tokens = _not_applied(planned, writer)
    if back:
        command.say(
            f"The agent will not apply {len(back)} of these, about {plural(significant(tokens), 'token')}, to keep its "
            f"latest thinking replayable or its calls answered: {_named(back)}."
        )
    for taker, left in unanswered(plan.transcript, validated.targets).items():
        command.say(f"Without {cli.printable(taker)}, a call with the same id has no answer: {_named(left)}.")
    moves = _moves(planned)
    if moves:
        more = f", and so on, {len(moves):,} entries in all" if len(moves) > MOVES else ""
        named = (f"{cli.printable(one.entry_id)} before {cli.printable(one.before_id)}" for one in moves[:MOVES])
        command.say(
            f"{reading.agent.label} sends everything between two replies as one message, in an order of its own. No "
            f"reply is kept between some of the messages, so it sends {', '.join(named)}{more}.",
            "yellow",
        )
    if plan.why:
        command.say(f"Planning ended early: {cli.printable(plan.why)}")
    if not validated.target_met:
        command.say("The target is not met.")


def _not_applied(planned: Planned, writer: SessionWriter) -> tuple[Sequence[Target], int]:
    """The targets that the agent will not apply, and their tokens."""
    plan, targets = planned.plan, planned.validated.targets
    back = writer.unapplied(planned.approved.document.tree.branch(plan.leaf_id), targets)
    return back, tokens_back(planned.size, plan.transcript, targets, back)


def _moves(planned: Planned) -> Sequence[Moved]:
    """The messages that would be sent before messages that now precede them."""
    document = planned.approved.document
    with lines_of(document) as line:
        return moved(
            planned.plan.transcript.entries,
            planned.validated.targets,
            GENERATIONS[planned.approved.reader][1].turns,
            lambda entry_id: line(document.tree.entry(entry_id)),
        )


def _named(targets: Iterable[Target]) -> str:
    return ", ".join(cli.printable(target) for target in list(targets)[:5])


def committed_lines(committed: Applied[Preflight], agent: Agent) -> list[str]:
    """A report in words: the written entries, their place, and how to continue."""
    path = committed.plan.present.path
    done = made_lines(committed, path, agent, _certificate_lines(committed))
    if committed.made.created is None:
        done.append(f"To undo: redline undo {cli.printable(cli.shell_quoted(cli.shell_path(path)))}")
    return done


def _certificate_lines(committed: Applied[Preflight]) -> list[str]:
    """The results of the proof, and the old problems of the session that remain."""
    certificate = committed.made.certificate
    if certificate is None:
        return []
    still = [f"It could not be continued before, and still cannot: {one.sentence}" for one in certificate.unrepaired]
    return [f"Checked: {certificate.sentence}.", *map(cli.printable, still)]


def document_of(planned: Planned, committed: Applied[Preflight] | None, writer: SessionWriter) -> dict[str, Any]:
    """The plan, and its written result, as JSON."""
    plan = planned.plan
    written = committed.plan.validated if committed is not None else planned.validated
    document = {
        "plan": planned.approved.run.pk if planned.approved.run is not None else None,
        "leafId": plan.leaf_id,
        "parameters": msgspec.to_builtins(plan.transcript.parameters),
        "deletedTargets": [target.to_json() for target in written.targets],
        "protectedEntryIds": list(written.protected_entry_ids),
        "stats": written.stats.to_json(),
        "tokens": with_earlier_names(
            {
                "before": planned.size.tokens,
                "beforeBasis": str(planned.size.basis),
                "deleted": planned.struck,
                "after": planned.after.tokens,
                "afterBasis": str(planned.after.basis),
                "notApplied": _not_applied(planned, writer)[1],
                "goal": planned.goal,
            },
            struck="deleted",
        ),
        "targetMet": written.target_met,
        "moved": [{"entryId": one.entry_id, "beforeId": one.before_id} for one in _moves(planned)],
        "savedAs": committed.plan.writer.name if committed is not None else None,
        "entryId": committed.made.entry_id if committed is not None else None,
        "created": str(committed.made.created) if committed is not None and committed.made.created else None,
        "backupPath": str(committed.backup_path) if committed is not None else None,
        "reasons": [_reason_of(planned, target) for target in written.targets],
        "hooks": [message.text for message in plan.answers.messages],
    }
    return with_earlier_names(document, run="plan", writer="savedAs")
