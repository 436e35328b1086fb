"""The base of commands that change a session: the flags of the confirmations, the question before the change, and the
command line that repeats it; and the requests to a model during planning.

If the session was written to in the last minutes, which is normal after leaving an agent, the question states that, and
its answer confirms the change and `--live` together. The question is omitted if more confirmations are required, or if
anything shows that the session is still open, because its answer would not suffice.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from django.core.management.base import CommandParser

from compaction_app.changes.change import Applied, Confirmations, PlannedChange
from compaction_app.core.states import EventKind
from compaction_app.session_activity import Activity, activity_at
from sessions_app.agents.base import Agent
from sessions_app.cli import RedlineCommand, printable, resume_line, shell_quoted
from sessions_app.sessionlog.errors import ConfirmationNeeded
from sessions_app.sessionlog.text import one_line, plural

FLAGS: Final = {
    "live": ("--live", "confirm it although an agent may have the session open"),
    "switch_branch": ("--switch-branch", "write to a branch that is not active, which makes it the active one"),
    "after_torn_line": ("--after-torn-line", "append although the last line is torn: after it, on a new line"),
    "not_honoured": ("--not-honoured", "append although it is not known which agent owns the session"),
    "below_target": ("--allow-below-target", "write a plan that deletes less than the target"),
    "drop_newer": ("--drop-newer", "delete the entries that came after the backup"),
    "unverified": ("--unverified", "trust a backup that Redline did not make"),
}
"""The flag and help text of each field of `Confirmations`."""
LIVE: Final = "live"


def flags_of(needs: Iterable[str]) -> list[str]:
    """The flags of a command line that confirms everything that a change needs."""
    return ["--yes", *(FLAGS[name][0] for name in needs)]


class ChangeCommand(RedlineCommand):
    """A command that plans a change of a session, shows it, and makes it once it is confirmed."""

    needs_database = True
    CONFIRMED: ClassVar[tuple[str, ...]] = (LIVE, "after_torn_line")
    """The fields of `Confirmations` that its change may need."""

    def add_confirmations(self, parser: CommandParser, yes: str, dry_run: str = "") -> None:
        """Add `--yes`, the flags of the confirmations and, with its help text, `--dry-run`."""
        if dry_run:
            parser.add_argument("--dry-run", action="store_true", help=dry_run)
        parser.add_argument("--yes", action="store_true", help=yes)
        for name in self.CONFIRMED:
            flag, meaning = FLAGS[name]
            parser.add_argument(flag, dest=name, action="store_true", help=meaning)

    def given(self, options: dict[str, Any]) -> Confirmations:
        """The confirmations that the command line gives."""
        return Confirmations(**{name: options[name] for name in self.CONFIRMED})

    def confirmed(self, plan: PlannedChange, question: str, options: dict[str, Any], how: str) -> Confirmations:
        """The confirmations with which a change is made. `question` is a verb with its object, such as `Undo this`;
        `how` is the command for the change, and is added to the error of a missing confirmation.

        Raises ConfirmationNeeded, and the errors of `plan.require_confirmed`.
        """
        try:
            return self._answered(plan, question, self.given(options), yes=options["yes"])
        except ConfirmationNeeded as refused:
            refused.message += f" {how}"
            raise

    def _answered(self, plan: PlannedChange, question: str, given: Confirmations, *, yes: bool) -> Confirmations:
        missing = [name for name in plan.needs if not getattr(given, name)]
        if not yes and self.can_ask_about_live(missing, plan.activity):
            if self.is_live_confirmed(plan.session, plan.activity, question):
                return replace(given, live=True)
        else:
            plan.require_confirmed(given)
            if yes or (self.can_ask and self.ask(f"{question}?")):
                return given
        raise ConfirmationNeeded("not_confirmed", f"{plan.session} was not changed.", "--yes")

    def can_ask_about_live(self, missing: Collection[str], activity: Activity) -> bool:
        """Whether the answer to the question can give the only missing confirmation."""
        return self.can_ask and list(missing) == [LIVE] and activity.is_only_recent

    def is_live_confirmed(self, session: Path, activity: Activity, question: str) -> bool:
        """Ask whether to change a session that was written to recently.

        Raises ConfirmationNeeded `session_live` if it was opened since the question.
        """
        if not self.ask(f"The session was {activity.recency}. {question}?"):
            return False
        now = activity_at(session, datetime.now(UTC))
        if now.is_live and not now.is_only_recent:
            raise ConfirmationNeeded(
                "session_live",
                f"{session} {now.sentence} since the question. Nothing was changed. Close it there, and use --live.",
                "--live",
            )
        return True

    def command_line(self, *words: str) -> str:
        """This command with these words, to be pasted into a shell."""
        return f"`{' '.join([f'redline {self.name}', *map(shell_quoted, words)])}`"


def made_lines(applied: Applied[Any], path: Path | str, agent: Agent, certified: Iterable[str] = ()) -> list[str]:
    """What a change of the session at `path` has made, its proof, and how to continue, in words."""
    made = applied.made
    if made.created is not None:
        return [
            f"Made {printable(made.created)}; {printable(path)} was not changed.",
            *certified,
            f"Continue there with: {printable(resume_line(agent, made.created))}",
        ]
    backup = f"The backup is {printable(applied.backup_path)}."
    if not made.lines:
        return [*certified, f"Changed the rows of {printable(path)}.", backup]
    return [
        *certified,
        f"Appended {plural(len(made.lines), 'line')} to {printable(path)}; its last entry is {made.entry_id} now.",
        backup,
        "An agent that has the session open must reload it.",
    ]


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
