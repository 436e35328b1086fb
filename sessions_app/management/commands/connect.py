from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandParser

from sessions_app import connections
from sessions_app.cli import CHECK_FAILED, RedlineCommand, printable, shell_path, shell_quoted
from sessions_app.disk.files import reported
from sessions_app.earlier_names import with_earlier_names
from sessions_app.server.connection_files import ConnectedAgent
from sessions_app.server.running_server import running_server
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, RedlineError, SystemFailure
from sessions_app.sessionlog.text import plural

LINES_SHOWN: Final = 60
"""The maximum number of lines of a change that are shown without `--full`."""
STYLES: Mapping[str, str] = {"+": "green", "-": "red", "@": "bold", " ": ""}


class Command(RedlineCommand):
    help = "Let an agent ask Redline for a review before it compacts. Without an agent: list the connections."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "agent", nargs="?", default="", metavar="AGENT", help=f"one of {', '.join(connections.AGENTS_WITH_BRIDGES)}"
        )
        parser.add_argument(
            "--project", type=Path, metavar="DIR", help="connect it in this project only (default: in all)"
        )
        end = parser.add_mutually_exclusive_group()
        end.add_argument("--disconnect", action="store_true", help="take the change back, and end the connection")
        end.add_argument(
            "--revoke", action="store_true", help="end the connection, without a change of the agent's file"
        )
        parser.add_argument(
            "--full", action="store_true", help=f"show every line of a change that has more than {LINES_SHOWN}"
        )
        parser.add_argument("--yes", action="store_true", help="do it without asking")
        parser.add_argument("--no-test", action="store_true", help="do not test the connection afterwards")

    def run(self, options: dict[str, Any]) -> int | None:
        if not options["agent"]:
            if options["disconnect"] or options["revoke"] or options["project"] is not None:
                raise BadInput("no_agent", "Name the agent. Nothing was changed.")
            self._list()
        elif options["disconnect"]:
            self._disconnect(options)
        elif options["revoke"]:
            self._revoke(options)
        else:
            return self._connect(options)
        return None

    # Connecting and disconnecting --------------------------------------------------------------------------------

    def _connect(self, options: dict[str, Any]) -> int | None:
        change = connections.planned_connection(options["agent"], options["project"])
        self._show(change, full=options["full"])
        arguments = _arguments(change.agent.key, change.project)
        self._confirm(f"Connect {change.agent.label}", arguments, yes=options["yes"])
        one = connections.connect(change, datetime.now(UTC))
        self.say(f"{change.agent.label} is connected{printable(_where(one.project))}.", "green")
        trial = None if options["no_test"] else self._test(change, one)
        for step in change.next_steps:
            self.say(printable(step))
        self.say(f"To take this back: `redline connect {arguments} --disconnect`")
        self.show_json(
            {
                **_document(one),
                "changed": change.changes_file,
                "diff": [f"{line.sign}{line.text}" for line in change.diff()],
                "remarks": list(change.remarks),
                "test": trial._asdict() if trial is not None else None,
                "nextSteps": list(change.next_steps),
            }
        )
        has_failed = trial is not None and (trial.has_asked is False or trial.is_answered is False)
        return CHECK_FAILED if has_failed else None

    def _disconnect(self, options: dict[str, Any]) -> None:
        key, project = options["agent"], options["project"]
        try:
            change = connections.planned_removal(key, project)
            self._show(change, full=options["full"])
            arguments = f"{_arguments(key, change.project)} --disconnect"
            self._confirm(f"Disconnect {change.agent.label}", arguments, yes=options["yes"])
            connections.disconnect(change)
        except (BadInput, SystemFailure) as fault:
            with suppress(RedlineError):  # not connected, or the connection is damaged
                connections.connection_of(key, project)
                fault.message += (
                    f" `redline connect {_arguments(key, project)} --revoke` only ends the token, and does not "
                    "change the file."
                )
            raise
        where = _where(str(change.project) if change.project is not None else "")
        self.say(f"{change.agent.label} is no longer connected{printable(where)}; its token is void.", "green")
        document = {"disconnected": change.name, "path": str(change.file.real), "changed": change.changes_file}
        self.show_json(with_earlier_names(document, removed="disconnected"))

    def _revoke(self, options: dict[str, Any]) -> None:
        key, project = options["agent"], options["project"]
        one = connections.connection_of(key, project)
        label = connections.agent_named(key).label
        self.say(printable(connections.revocation_note(one)))
        self._confirm(f"Revoke the token of {label}", f"{_arguments(key, project)} --revoke", yes=options["yes"])
        connections.revoke(one)
        self.say(f"{label} is no longer connected{printable(_where(one.project))}; its token is void.", "green")
        self.show_json({"revoked": one.name, "path": one.changed, "changed": False})

    def _show(self, change: connections.ConfigurationChange, *, full: bool) -> None:
        """Print what happens to the file, the change itself if it is short or `full` is given, and its remarks."""
        if change.changes_file:
            self._show_diff(change, printable(change.file.real), full=full)
        else:
            self.say(f"{printable(change.file.real)} is not changed.")
        for remark in change.remarks:
            self.say(printable(remark), "yellow")

    def _show_diff(self, change: connections.ConfigurationChange, path: str, *, full: bool) -> None:
        diff = change.diff()
        added, deleted = (sum(line.sign == sign for line in diff) for sign in "+-")
        if change.is_new:
            self.say(f"{path} is a new file of {plural(added, 'line')}.")
        elif change.is_deletion:
            self.say(f"{path} is deleted, with its {plural(deleted, 'line')}.")
        else:
            self.say(f"In {path}, {plural(added, 'line')} would be added and {plural(deleted, 'line')} deleted.")
        if len(diff) > LINES_SHOWN and not full:
            self.say("--full shows them.")
            return
        lines = (
            self.screen.paint(printable(f"{'' if line.sign == '@' else line.sign}{line.text}"), STYLES[line.sign])
            for line in diff
        )
        self.say_all(lines, paged=self.can_ask)

    def _confirm(self, question: str, arguments: str, *, yes: bool) -> None:
        """Ask for a confirmation, unless `yes` is given. Raises ConfirmationNeeded."""
        if not (yes or (self.can_ask and self.ask(f"{question}?"))):
            raise ConfirmationNeeded(
                "not_confirmed",
                f"Nothing was changed. To do it: `redline connect {arguments} --yes`",
                "--yes",
            )

    def _test(self, change: connections.ConfigurationChange, one: ConnectedAgent) -> connections.ConnectionTest:
        with reported(settings.REDLINE_DATA_DIR, "The connection was not tested."):
            server = running_server(settings.REDLINE_DATA_DIR)
            url = f"http://127.0.0.1:{server.port}" if server is not None else ""
            trial = connections.try_connection(change.agent, one, connections.redline_command, url)
        self.say(printable(trial.sentence), "" if trial.has_asked else "yellow")
        if server is None:
            self.say("Redline's server is not running: the agent asks as soon as it is. Start it with `redline serve`.")
        return trial

    # The list -----------------------------------------------------------------------------------------------

    def _list(self) -> None:
        found = [(one, connections.status_of_connection(one)) for one in connections.all_connections()]
        for one, status in found:
            self.say(f"{one.agent}{printable(_where(one.project))}: {printable(one.changed)}")
            if status.sentence:
                self.say(f"  {printable(status.sentence)}", "" if status.is_current else "yellow")
        if not found:
            self.say("No agent is connected. `redline connect AGENT` connects one of these:")
            self.say(", ".join(connections.AGENTS_WITH_BRIDGES))
        self.show_json(
            {
                "connections": [
                    {**_document(one), "state": status.state, "detail": status.sentence} for one, status in found
                ]
            }
        )


def _where(project: str) -> str:
    return f" in {project}" if project else " in all projects"


def _arguments(key: str, project: Path | None) -> str:
    return key if project is None else f"{key} --project {shell_quoted(shell_path(project))}"


def _document(one: ConnectedAgent) -> dict[str, Any]:
    return {
        "name": one.name,
        "agent": one.agent,
        "project": one.project or None,
        "path": one.changed,
        "bridge": one.bridge,
        "madeAt": one.made_at.isoformat(),
        "backup": one.backup or None,
    }
