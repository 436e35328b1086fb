from pathlib import Path
from typing import Any, Final

import msgspec
from django.core.management.base import CommandParser
from django.utils import timezone

from sessions_app.agents.base import Agent, AgentClient
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import AGENTS, package_at, reader_of_version
from sessions_app.cli import CHECK_FAILED, LEAF_HELP, SESSION_HELP, RedlineCommand, printable
from sessions_app.index.session_reading import reading_of
from sessions_app.sessionlog.certificate import Certificate, PackageOutcome, PackageResult
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import plural
from sessions_app.storage.session_certificate import certify

WITH_CLIENT: Final = tuple(agent.label for agent in AGENTS.values() if agent.client.can_be_run)
"""The agents whose client can be run."""


class Command(RedlineCommand):
    help = "Check that a session's agent can continue it: what providers enforce, and what the agent itself rebuilds."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument("--branch", dest="leaf", metavar="ID", help=LEAF_HELP)
        parser.add_argument(
            "--agent-package",
            type=Path,
            metavar="DIR",
            help="compare with the agent's package in this directory, or in its node_modules (default: the agent that "
            "is on the path, if it owns the session)",
        )

        parser.add_argument(
            "--client",
            nargs="?",
            const=Path(),
            type=Path,
            metavar="PROGRAM",
            help=f"let the agent's client continue a copy of the session, without a network and away from your "
            f"files, and compare what it sends (default: the program on the PATH). For {', '.join(WITH_CLIENT)}",
        )

    def run(self, options: dict[str, Any]) -> int | None:
        loaded = self.load_session(options["path"])
        reading = reading_of(loaded.path, loaded.log.entries, loaded.log.state)
        reader, reason = reading.reader, reading.reason
        if options["agent_package"] is None:
            package = reading.agent.client.find_package(None)
        else:
            package = package_at(options["agent_package"])
            reader, reason = package.reader, f"the given package is {package.name} {package.version}"
        client = _client(reading, options["client"])
        if client is not None:
            reader = reader_of_version(reading.agent, client.version)
            reason = f"the client is {client.name} {client.version}"
        leaf_id = options["leaf"] or ""
        found = certify(loaded, reading.agent, reader, timezone.now(), leaf_id=leaf_id, package=package, client=client)
        document = {**msgspec.to_builtins(found), "path": str(loaded.path), "reason": reason, "holds": found.holds}
        self.show_json({**document, "openedAs": found.reader})
        for line in _lines(found, reason, reading.agent):
            self.say(printable(line))
        return None if found.holds else CHECK_FAILED


def _client(reading: Reading, program: Path | None) -> AgentClient | None:
    """The client to run; None if that was not requested. Raises BadInput `no_client`."""
    if program is None:
        return None
    agent = reading.agent
    if not agent.client.can_be_run:
        runs = "is checked through its package" if agent.client.has_package else "cannot be run"
        raise BadInput(
            "no_client",
            f"{agent.label} {runs}. Nothing was checked. Omit --client: it is for {', '.join(WITH_CLIENT)}.",
        )
    client = agent.client.find_installed(program if program.name else None)
    if client is None:
        raise BadInput(
            "no_client",
            f"There is no client of {agent.label} to run: {agent.client.program} is not on the PATH, or does not print "
            "its version. Nothing was checked. Give the path of its program after --client, or omit --client.",
        )
    return client


def _lines(found: Certificate, reason: str, agent: Agent) -> list[str]:
    lines = [
        f"Checked at {found.checked_at:%Y-%m-%d %H:%M:%S} UTC: the branch of {found.leaf_id}, {found.messages:,} "
        f"messages, opened as {found.reader} because {reason}."
    ]
    if found.refusal:
        lines.append(f"Agent: {found.refusal}")
    if found.violations:
        lines.append(
            f"Providers: {plural(len(found.violations), 'violation')}, {len(found.unrepaired):,} of them refused."
        )
        lines += [f"  {one.sentence}" for one in found.violations]
    else:
        lines.append("Providers: no rule is violated.")
    if found.package is not None or found.client is None:
        lines.append(f"Package: {_of_package(found.package, agent)}")
    if found.client is not None:
        lines.append(f"Client: {_of_client(found.client)}")
    if found.ledger is not None:
        lines.append(f"Requests: {found.ledger.sentence}")
    lines.append("The session can be continued." if found.holds else "The session cannot be continued as it is.")
    return lines


def _of_package(result: PackageResult | None, agent: Agent) -> str:
    if result is None and agent.client.has_package:
        return f"not compared, because the package of {agent.label} was not found. Use --agent-package."
    if result is None:
        instead = "; its client can be, with --client" if agent.client.can_be_run else ""
        return f"not compared: Redline runs no package of {agent.label}{instead}."
    equal, different = "rebuilds the same messages", "rebuilds another context"
    return _outcome(result, equal, different, "does not open the session")


def _of_client(result: PackageResult) -> str:
    equal, different = "sends the same messages when it continues a copy", "sends another context"
    return _outcome(result, equal, different, "does not continue a copy")


def _outcome(result: PackageResult, equal: str, different: str, refused: str) -> str:
    name = f"{result.name} {result.version}"
    if result.outcome is PackageOutcome.EQUAL:
        return f"{name} {equal}."
    if result.outcome is PackageOutcome.DIFFERENT:
        return f"{name} {different}: {result.detail}."
    if result.outcome is PackageOutcome.REFUSED:
        return f"{name} {refused}: {result.detail}"
    return f"not compared. {result.detail}"
