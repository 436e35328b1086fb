from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandParser
from django.db import transaction

from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.compaction import Approved, Preflight, check_plan, commit
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.loop import Outcome
from compaction_app.management.change_command import ChangeCommand, flags_of
from compaction_app.management.plan_display import (
    Planned,
    PlanningScreen,
    committed_lines,
    document_of,
    show_deletions,
    show_summary,
)
from compaction_app.pages.session.views import select_reader
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
)
from compaction_app.planning.snapshots import session_as_prepared, snapshot_of
from compaction_app.runs.commands import new_run
from compaction_app.runs.reviews import approve_proposals
from compaction_app.runs.worker import work_here
from compaction_app.session_activity import Activity, effect_of
from sessions_app.agents.pure.format import SessionWriter
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import READERS_HELP, WRITERS_HELP, agent_at, require_reader_of
from sessions_app.cli import NEWEST, NEWEST_HELP, printable, shell_path, shell_quoted
from sessions_app.disk.files import real_path
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.context import ContextSize
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, RedlineError, TargetNotMet
from sessions_app.sessionlog.tree import unknown_entry
from sessions_app.storage.session_loader import find_torn_line, tally_of

OWN: Final = ("leaf", "reader", "planner", "thinking", "writer", "ratio", "preserve_recent", "query")
"""Options that determine the plan."""
DEFAULTS: Final = (None, "", EMBEDDED)


class Command(ChangeCommand):
    help = "Plan a compaction, show every deletion with its reason, and write it after confirmation."
    CONFIRMED = ("live", "switch_branch", "after_torn_line", "not_honoured", "below_target")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", nargs="?", type="session", default=NEWEST, metavar="SESSION", help=NEWEST_HELP)
        parser.add_argument(
            "--leaf", metavar="ID", help="the last entry of the branch (default: the file's last entry)"
        )
        parser.add_argument(
            "--reader",
            default="",
            metavar="NAME",
            help=f"{READERS_HELP}. The choice is kept for the session, as one on its page, except by a dry run",
        )
        parser.add_argument(
            "--planner",
            default=EMBEDDED,
            help="embedded or prune, which work offline, or a model of the Models page as provider/name: it receives "
            "the manifest, and the parts of the conversation that it requests",
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
            "--writer",
            metavar="NAME",
            default="",
            help=f"how the deletion is recorded: {WRITERS_HELP}",
        )
        parser.add_argument("--preserve-recent", type=int, metavar="N", help="how many of the latest entries stay")
        parser.add_argument("--query", help="what the planner treats as important")
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
            for line in screen.totals():
                self.say(line)
        preflight = _commit_command(planned.approved, options)
        torn = find_torn_line(planned.document.path)
        if not self.as_json:
            # With --yes there is no user to leave a pager.
            show_deletions(self, planned, full=options["full"], paged=not options["yes"])
            show_summary(self, planned, preflight.reading, preflight.writer, preflight.effect, torn)
            if self.newest:
                self.say(f"Session: {self.newest}")
        committed = None
        confirmations = self._confirmed(preflight, planned.document.path, options)
        if confirmations is not None:
            committed = _commit(planned, confirmations)
            for line in committed_lines(committed, preflight.reading.agent):
                self.say(line)
        else:
            self.say("Nothing was written.")
            self.say(preflight.sentence, "yellow")
        document = document_of(planned, committed, preflight.writer) | {
            "usage": screen.usage,
            "tornLine": torn._asdict() if torn is not None else None,
        }
        self.show_json(document | (preflight.to_json() if committed is None else NOTHING_NEEDED))
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
        if not options["dry_run"]:
            session = index_file(path, report=lambda read: self._show_read(read.bytes))
            if options["reader"] not in ("", session.reader):
                select_reader(session, options["reader"])
                session.refresh_from_db()
            if session.has_header and session.version == session.agent.format.current_version:
                if leaf and not session.has_entry(leaf):
                    raise unknown_entry(leaf)
                run = new_run(session, options["planner"], own, leaf, thinking, options["writer"])
                plan = work_here(run, screen)
                validated = _validated(plan, path)
                prepared = snapshot_of(run).prepared
                document = session_as_prepared(session, prepared)
                names = run.planner, prepared.reader, prepared.writer
                return Planned(plan, validated, plan.origins, document, *names, prepared.context_size, run)
        document = Document.of_file(path, progress=self._show_read)
        planner = require_planner(options["planner"], thinking)
        with _unchanged_index():
            document = _with_row(document, options["reader"])
        plan = dry_run(document, leaf, own, planner, thinking, screen, options["writer"])
        names = planner, document.reading.reader.name, options["writer"]
        return Planned(plan, _validated(plan, path), plan.origins, document, *names, _size(document, plan.leaf_id))

    def _confirmed(self, preflight: CommitCommand, path: Path, options: dict[str, Any]) -> Confirmations | None:
        """The confirmations with which the plan is to be written; None if it is not to be.

        Raises the error that prevents it, and with `--yes` also the first missing confirmation.
        """
        if options["dry_run"]:
            return None
        if preflight.obstacle is not None:
            raise preflight.obstacle
        given = self.given(options)
        missing = {name: failure for name, failure in preflight.needs.items() if not options[name]}
        if missing and options["yes"]:
            first = next(iter(missing.values()))
            self.say(preflight.sentence)
            if self.as_json:
                first.message += f" {preflight.sentence}"
            raise first
        if not missing:
            question = f"Back up the session and write this by {preflight.writer.name}?"
            return given if options["yes"] or (self.can_ask and self.ask(question)) else None
        if preflight.activity is not None and self.can_ask_about_live(missing, preflight.activity):
            return replace(given, live=True) if self.is_live_confirmed(path, preflight.activity, "Write") else None
        # An answer that is not enough is not requested.
        return None


def _size(document: Document, leaf: str) -> ContextSize:
    """The size of a branch's context."""

    def read(entry: Entry) -> Texts:
        return document.texts([entry])[entry.id]

    rebuild, inherited = document.reading.reader.rebuild, document.row.inherited_measure
    return tally_of(document.context(leaf), document.branch(leaf), rebuild, inherited, read).size


def _validated(plan: Plan, path: Path) -> ValidatedDeletion:
    if plan.outcome is Outcome.FAILED:
        why = f" The last refusal: {plan.refusal.message}" if plan.refusal is not None else ""
        raise TargetNotMet(
            "nothing_deletable",
            f"The planner found nothing to delete in {path}. Nothing was written.{why} {plan.why}".rstrip(),
        )
    return plan.validated


def _commit(planned: Planned, confirmations: Confirmations) -> Applied[Preflight]:
    now = datetime.now(UTC)
    if planned.run is not None:
        approve_proposals(planned.run, now)
    return commit(planned.approved, confirmations, now)


@dataclass(frozen=True, slots=True)
class CommitCommand:
    """The present requirements of a commit of the plan, and the command line for it."""

    needs: Mapping[str, RedlineError]
    """By field of `Confirmations`, the error if it is missing."""
    command: str
    by_model: bool
    reading: Reading
    writer: SessionWriter
    effect: str
    """The writer's effect on the session."""
    activity: Activity | None = None
    """The activity of other processes in the session; None if the plan cannot be written at all."""
    obstacle: BadInput | None = None
    """The reason why it cannot."""

    @property
    def sentence(self) -> str:
        """How to write the plan, in one line."""
        if self.obstacle is not None:
            return printable(self.obstacle.message)
        return f"{'To plan again and write' if self.by_model else 'To write this'}: `{self.command}`"

    def to_json(self) -> dict[str, Any]:
        if self.obstacle is not None:
            obstacle = {"code": self.obstacle.code, "message": self.obstacle.message}
            return {**NOTHING_NEEDED, "obstacle": obstacle}
        return {**NOTHING_NEEDED, "needs": flags_of(self.needs), "to_write": self.command}


NOTHING_NEEDED: Final[dict[str, Any]] = {"needs": [], "to_write": None, "obstacle": None}


def _commit_command(approved: Approved, options: dict[str, Any]) -> CommitCommand:
    """Check the plan as a commit would. The database is not changed."""
    by_model = is_llm(options["planner"])
    with _unchanged_index():
        document = _with_row(approved.document, options["reader"])
        reading = document.reading
        writer = reading.writer(options["writer"])
        try:
            preflight = check_plan(approved, document, datetime.now(UTC), writer.name)
        except BadInput as obstacle:
            return CommitCommand({}, "", by_model, reading, writer, writer.effect, obstacle=obstacle)
    needs, effect = preflight.needs, effect_of(writer, preflight.activity)
    own = [f"--{name.replace('_', '-')}={options[name]}" for name in OWN if options[name] not in DEFAULTS]
    words = [shell_path(options["path"]), *own, *flags_of(needs)]
    command = " ".join(["redline compact", *map(shell_quoted, words)])
    return CommitCommand(needs, command, by_model, reading, writer, effect, preflight.activity)


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
