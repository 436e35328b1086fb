from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.core.management.base import CommandParser
from django.db import transaction

from compaction_app.commit.preflight import Approved, Confirmations, find
from compaction_app.commit.service import Committed, commit
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.gates import Restraints
from compaction_app.core.loop import Called, Outcome
from compaction_app.core.stats import target_reduction
from compaction_app.core.targets import Target
from compaction_app.core.unanswered import unanswered
from compaction_app.planning.plan import (
    EMBEDDED,
    Plan,
    is_llm,
    own_parameters,
    prepare_plan,
    run_planner,
)
from sessions_app.agents.base import Reading
from sessions_app.cli import RedlineCommand, one_line, printable, shell_path, shell_quoted, text_lines
from sessions_app.index.index_store import session_row
from sessions_app.index.session_reading import reading_of_session
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, RedlineError, TargetNotMet
from sessions_app.storage.session_loader import TornLine, load_session, torn_line_of
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
"""Characters that are shown of a text."""
REASON: Final = 300
OWN: Final = ("leaf", "planner", "thinking", "ratio", "preserve_recent", "query")
"""Options that make the plan what it is."""
DEFAULTS: Final = (None, "", EMBEDDED)
CONFIRMATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "live": ("--live", "write although an agent may have the session open"),
    "switch_branch": (
        "--switch-branch",
        "write to a branch that is not active, which makes it the active one",
    ),
    "after_torn_line": (
        "--after-torn-line",
        "write although the last line is torn: behind it, on a line of its own",
    ),
    "not_honoured": ("--not-honoured", "write although the agent ignores a context_compaction"),
    "below_target": ("--allow-below-target", "write a plan that deletes less than the ratio asks for"),
}
"""The flag of each field of `Confirmations`, and what it confirms."""


class Command(RedlineCommand):
    help = "Plan a compaction, show every deletion with its reason, and append it after confirmation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, metavar="PATH", help="a session file")
        parser.add_argument(
            "--leaf", metavar="ID", help="the branch that ends here (default: at the file's last entry)"
        )
        parser.add_argument(
            "--planner",
            default=EMBEDDED,
            help="embedded, which is offline, or a model of the Models page as provider/name: it receives the "
            "manifest, and the parts of the conversation that it requests",
        )
        parser.add_argument("--thinking", metavar="LEVEL", default="", help="the thinking level of a model")
        parser.add_argument("--ratio", type=float, help="the fraction of tokens to keep, between 0 and 1")
        parser.add_argument(
            "--preserve-recent", type=int, metavar="N", help="how many of the latest entries stay"
        )
        parser.add_argument("--query", help="what the planner treats as important")
        parser.add_argument("--full", action="store_true", help="show the texts that are deleted whole")
        parser.add_argument("--dry-run", action="store_true", help="plan and show, write nothing")
        parser.add_argument("--yes", action="store_true", help="back up and append without asking")
        for name, (flag, meaning) in CONFIRMATIONS.items():
            parser.add_argument(flag, dest=name, action="store_true", help=meaning)

    def run(self, options: dict[str, Any]) -> int | None:
        if is_llm(options["planner"]):
            # Which models there are stands in the database.
            self.open_database()
        own = own_parameters(options["ratio"], options["preserve_recent"], options["query"])
        loaded = load_session(options["path"], lambda read: self.progress.show(f"{read >> 20} MB read"))
        plan = prepare_plan(
            loaded, leaf_id=options["leaf"], own=own, planner=options["planner"], thinking=options["thinking"]
        )
        for word in plan.heard.words:
            self.say(f"Hook: {printable(word.text)}")
        # What was loaded stays to the end: the collector need not walk it again and again.
        gc.freeze()
        listener = _Listener(self)
        try:
            for event in run_planner(plan, listener):
                if isinstance(event, Called):
                    self.progress.show(f"{event.number} {event.result.name}: {event.result.sentence}")
        finally:
            # Also where it failed: what was sent is spent.
            self.progress.clear()
            for line in listener.sums():
                self.say(line)
        validated = self._validated(plan)
        approved = _approved(plan, validated)
        self.open_database()
        preflight = _preflight(approved, options)
        torn = torn_line_of(loaded.path)
        if not self.as_json:
            self._show_deletions(plan, validated, options)
            self._show(plan, validated, preflight.reading, torn)
        committed = None
        if self._is_confirmed(preflight, options):
            committed = commit(approved, _confirmations(options), datetime.now(UTC))
            self.say(f"Appended {committed.entry_id} to {printable(loaded.path)}.")
            self.say(f"The backup is {printable(committed.backup.path)}.")
            self.say("An agent that has the session open must reload it.")
        else:
            self.say("Nothing was written.")
            self.say(preflight.sentence, "yellow")
        document = self._document(plan, validated, committed) | {
            "usage": listener.usage,
            "tornLine": torn._asdict() if torn is not None else None,
        }
        self.show_json(document | (preflight.to_json() if committed is None else NOTHING_NEEDED))
        if committed is not None:
            return None
        if not options["dry_run"]:
            return ConfirmationNeeded.exit_code
        return None if validated.target_met else TargetNotMet.exit_code

    def _validated(self, plan: Plan) -> ValidatedDeletion:
        if plan.outcome is Outcome.FAILED:
            why = f" The last refusal: {plan.refusal.message}" if plan.refusal is not None else ""
            raise TargetNotMet(
                "nothing_deletable",
                f"The planner found nothing that may be deleted in {plan.loaded.path}. Nothing was written.{why} "
                f"{plan.why}".rstrip(),
            )
        return plan.validated

    def _is_confirmed(self, preflight: CommitCommand, options: dict[str, Any]) -> bool:
        """Whether the plan is to be written.

        Raises what forbids it, and with `--yes` also the first confirmation that is missing.
        """
        if options["dry_run"]:
            return False
        if preflight.obstacle is not None:
            raise preflight.obstacle
        missing = [failure for name, failure in preflight.needs.items() if not options[name]]
        if not missing:
            return options["yes"] or (
                self.can_ask and self.ask("Back up the session and append this compaction?")
            )
        if options["yes"]:
            self.say(preflight.sentence)
            if self.as_json:
                missing[0].message += f" {preflight.sentence}"
            raise missing[0]
        # Nobody is asked for a confirmation that would not be enough.
        return False

    def _show_deletions(self, plan: Plan, validated: ValidatedDeletion, options: dict[str, Any]) -> None:
        targets = _in_transcript_order(plan, validated.targets)
        lines = (
            self._whole(plan, targets)
            if options["full"]
            else self.screen.table(COLUMNS, [_row(plan, target) for target in targets])
        )
        # With --yes nobody waits for the end of a pager.
        self.say_all(lines, paged=not options["yes"])

    def _show(
        self, plan: Plan, validated: ValidatedDeletion, reading: Reading, torn: TornLine | None
    ) -> None:
        stats, found = validated.stats, validated.parameters
        self.say()
        self.say(
            f"{stats.objects_deleted} of {stats.objects_before} objects and "
            f"{stats.tokens_before - stats.tokens_after} of {stats.tokens_before} tokens go "
            f"({stats.percent_reduction}%; asked for {target_reduction(found.compression_ratio):g}%)."
        )
        self.say(
            f"Ratio {found.compression_ratio:g} ({printable(plan.sources['compression_ratio'])}), recent "
            f"{found.preserve_recent} ({printable(plan.sources['preserve_recent'])}), "
            f"query: {one_line(found.query, 100)}"
        )
        self.say(f"Read as {reading.reader.name}, because {printable(reading.reason)}.")
        if torn is not None:
            self.say(f"The session ends in {torn}.")
        for fault in plan.faults:
            self.say(f"Passed over: {printable(fault)}")
        if not reading.is_honoured:
            self.say(f"That agent ignores a {reading.writer.entry_type}.")
        back = reading.writer.unapplied(plan.loaded.tree.branch(plan.leaf_id), validated.targets)
        if back:
            named = ", ".join(printable(target) for target in back[:5])
            self.say(
                f"{len(back)} of these the agent will not apply, to keep its latest thinking replayable: {named}."
            )
        for taker, left in unanswered(plan.transcript, validated.targets).items():
            named = ", ".join(printable(target) for target in left[:5])
            self.say(f"Without {printable(taker)}, a call with the same id has no answer: {named}.")
        if plan.why:
            self.say(f"It ended early: {printable(plan.why)}")
        if not validated.target_met:
            self.say("The target is not met.")

    def _whole(self, plan: Plan, targets: Iterable[Target]) -> Iterator[str]:
        for target in targets:
            cells = _row(plan, target)
            block = f" block {cells[1]}" if cells[1] else ""
            yield self.screen.paint(f"{cells[0]}{block} {cells[2]}, {cells[3]} tokens: {cells[5]}", "bold")
            yield from (f"    {line}".rstrip() for line in text_lines(plan.transcript.text_of(target)))

    def _document(
        self, plan: Plan, validated: ValidatedDeletion, committed: Committed | None
    ) -> dict[str, Any]:
        written = committed.validated if committed is not None else validated
        return {
            "leafId": plan.leaf_id,
            "parameters": msgspec.to_builtins(plan.transcript.parameters),
            "deletedTargets": [target.to_json() for target in written.targets],
            "protectedEntryIds": list(written.protected_entry_ids),
            "stats": written.stats.to_json(),
            "targetMet": written.target_met,
            "entryId": committed.entry_id if committed is not None else None,
            "backupPath": str(committed.backup.path) if committed is not None else None,
            "reasons": [reason_of(plan, target) for target in written.targets],
            "hooks": [word.text for word in plan.heard.words],
        }


class _Listener:
    """Shows what goes to a model and comes back, and keeps the sums."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self.usage: dict[str, Any] | None = None

    def tell(self, kind: str, data: dict[str, Any], usage: dict[str, Any] | None = None) -> None:
        self.usage = usage or self.usage
        host = printable(self.usage["host"]) if self.usage is not None else ""
        if kind == "asked" and data["turn"] == 1:
            self._command.progress.clear()
            self._command.say(
                f"The model is asked at {host}: the first request has {data['characters']:,} characters, most of it "
                "the manifest. The tools send it more of the conversation, where it asks for that."
            )
        elif kind == "asked":
            self._command.progress.show(
                f"request {data['turn']}: {data['characters']:,} characters to {host}"
            )
        elif kind == "retried":
            self._command.progress.clear()
            self._command.say(f"Asked again in {data['seconds']:g} s: {one_line(data['why'], 200)}")

    def is_stopped(self) -> bool:
        return False

    def sums(self) -> list[str]:
        """What was sent, received and spent, in words; nothing where nothing left the machine."""
        if self.usage is None:
            return []
        found = self.usage
        about = "about " if found["estimated"] else ""
        cost = (
            f" {about}${found['cost']:.4f}." if found["cost"] is not None else " What it cost is not known."
        )
        tokens = found["input"] + found["cacheRead"] + found["cacheWrite"]
        return [
            f"{found['requests']} requests to {printable(found['host'])}: {found['sent']:,} characters sent ({about}"
            f"{tokens:,} tokens), {found['received']:,} received ({about}{found['output']:,} tokens).{cost}"
        ]


def _in_transcript_order(plan: Plan, targets: Iterable[Target]) -> list[Target]:
    positions = {entry.entry_id: position for position, entry in enumerate(plan.transcript.entries)}
    return sorted(targets, key=lambda target: (positions[target.entry_id], target.block_index or 0))


def _row(plan: Plan, target: Target) -> list[str]:
    entry = plan.transcript.entry(target.entry_id)
    assert entry is not None  # noqa: S101  # a validated target is in its transcript
    slot = entry.slot(target.block_index) if target.block_index is not None else None
    return [
        printable(target.entry_id),
        "" if target.block_index is None else str(target.block_index),
        printable(entry.tool_name or entry.role),
        str(entry.tokens if slot is None else entry.blocks[slot].tokens),
        one_line(plan.transcript.text_of(target), BEGINNING),
        one_line(reason_of(plan, target), REASON),
    ]


def reason_of(plan: Plan, target: Target) -> str:
    """Why a target goes, in words."""
    origin = plan.origins.get(target)
    if origin is None:
        return ""
    return "goes with the other side of its tool call" if origin.by_repair else origin.reason


def _approved(plan: Plan, validated: ValidatedDeletion) -> Approved:
    return Approved(
        loaded=plan.loaded,
        leaf_id=plan.leaf_id,
        parameters=plan.transcript.parameters,
        targets=validated.targets,
        planner=plan.planner,
        origins=plan.origins,
        restraints=Restraints(frozenset(plan.heard.pins), settings.REDLINE.thinking_guard),
    )


def _confirmations(options: dict[str, Any]) -> Confirmations:
    return Confirmations(**{name: options[name] for name in CONFIRMATIONS})


@dataclass(frozen=True, slots=True)
class CommitCommand:
    """What a commit of the plan would need as things stand, and the command line that gives it."""

    needs: Mapping[str, RedlineError]
    """By field of `Confirmations`, what is raised if it is not given."""
    command: str
    by_model: bool
    reading: Reading
    obstacle: BadInput | None = None
    """Why it cannot be written at all."""

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
        return {**NOTHING_NEEDED, "needs": ["--yes", *_flags(self.needs)], "to_write": self.command}


NOTHING_NEEDED: Final[dict[str, Any]] = {"needs": [], "to_write": None, "obstacle": None}


def _preflight(approved: Approved, options: dict[str, Any]) -> CommitCommand:
    """Judge the plan as a commit would. The database is as before: a dry run adds no session to the index."""
    by_model, loaded = is_llm(options["planner"]), approved.loaded
    with transaction.atomic():
        reading = reading_of_session(session_row(loaded.path), loaded.path, loaded.log.entries)
        try:
            needs = find(approved, loaded, datetime.now(UTC)).needs
        except BadInput as obstacle:
            return CommitCommand({}, "", by_model, reading, obstacle)
        finally:
            transaction.set_rollback(True)
    own = [f"--{name.replace('_', '-')}={options[name]}" for name in OWN if options[name] not in DEFAULTS]
    words = [shell_path(options["path"]), *own, "--yes", *_flags(needs)]
    return CommitCommand(needs, " ".join(["redline compact", *map(shell_quoted, words)]), by_model, reading)


def _flags(needs: Iterable[str]) -> list[str]:
    return [CONFIRMATIONS[name][0] for name in needs]
