"""Connecting an agent: one change of its configuration, which is shown before it is made and can be taken back.

    change = planned_connection("claude-code", None)      what would be written; nothing is written
    connect(change, now)                                  backup, connection file, then the agent's file
    status_of_connection(one)                             whether the agent's file still has the current bridge
    try_connection(agent, one, redline_command)           a test: the agent's program runs in an empty home

The connection file is written first: a bridge without one lets its agent compact as usual.

    program ─▶ its own mechanism ─▶ bridge ─▶ a listener here ─▶ the running server, with the connection's token

The test's listener shows that the bridge requested a review, whether or not a server runs. The user's configuration of
the agent, other extensions and hooks are not used.
"""

import difflib
import hashlib
import http.client
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from django.conf import settings

from sessions_app.agents.base import Agent, Bridge
from sessions_app.agents.edge.dry_resume import ClientUnusable
from sessions_app.agents.edge.installed_version import installed_version, program_on_path
from sessions_app.agents.edge.model_server import Answer, LoopbackServer
from sessions_app.agents.registry import AGENTS
from sessions_app.disk import configuration_file
from sessions_app.disk.files import other_names_note, real_path, reported, sha256_of, write_private
from sessions_app.server import connection_files
from sessions_app.server.running_server import running_server
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure


class ChangedLine(NamedTuple):
    """A line of a unified diff: `+`, `-`, a blank, or `@` for a heading."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """A planned change of an agent's file."""

    agent: Agent
    bridge: Bridge
    name: str
    """The name of the connection."""
    project: Path | None
    file: configuration_file.ConfigurationFile
    after: bytes | None
    """The content of the file after the change; None if the change deletes it."""
    baseline: bytes | None
    """Its content without the bridge; None if there would be no file."""
    known: connection_files.ConnectedAgent | None
    """The existing connection, if there is one."""
    remarks: Sequence[str] = ()
    """Sentences about obstacles to the bridge, and about links that are followed or separated."""

    @property
    def changes_file(self) -> bool:
        return self.file.content != self.after

    @property
    def next_steps(self) -> Sequence[str]:
        """The user's next steps after connecting, in sentences."""
        return self.bridge.next_steps(in_project=self.project is not None)

    @property
    def is_new(self) -> bool:
        return self.file.content is None

    @property
    def is_deletion(self) -> bool:
        return self.after is None

    @property
    def is_as_before(self) -> bool:
        """Whether a removal leaves the file byte for byte as it was before the connection."""
        return self.known is not None and is_as_written(self.file, self.known)

    @property
    def digest(self) -> str:
        """Identifies the change, so that only the one that was shown is made."""
        remarks = "\0".join(self.remarks).encode(errors="surrogateescape")
        pieces = (str(self.file.real).encode(), self.file.content or b"", self.after or b"", remarks)
        flags = bytes([self.file.content is None, self.after is None])
        return hashlib.sha256(b"\0".join((flags, *(sha256_of(one).encode() for one in pieces)))).hexdigest()

    def diff(self) -> list[ChangedLine]:
        """The change, line by line."""
        old, new = _lines(self.file.content), _lines(self.after)
        found = difflib.unified_diff(
            old,
            new,
            str(self.file.real) if self.file.content is not None else "/dev/null",
            str(self.file.real) if self.after is not None else "/dev/null",
            lineterm="",
        )
        return [
            ChangedLine("@", line) if number < 2 or line.startswith("@@") else ChangedLine(line[0], line[1:])
            for number, line in enumerate(found)
        ]


def is_as_written(file: configuration_file.ConfigurationFile, known: connection_files.ConnectedAgent | None) -> bool:
    """Whether a file is byte for byte as Redline wrote it for a connection."""
    return known is not None and file.content is not None and known.sha256 == sha256_of(file.content)


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "replace")
    return text.removesuffix("\n").split("\n") if text else []


DATA_VARIABLES: Final = ("REDLINE_DATA_DIR", "XDG_DATA_HOME")
"""The variables that determine the data directory."""
_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9]+")
AGENTS_WITH_BRIDGES: Final[Mapping[str, Agent]] = {
    key: agent for key, agent in AGENTS.items() if agent.bridge is not None
}


# Planning ---------------------------------------------------------------------------------------------------


def agent_named(key: str) -> Agent:
    """The agent with this key, if it can be connected. Raises BadInput `unknown_agent`, `no_bridge`."""
    if key in AGENTS and key not in AGENTS_WITH_BRIDGES:
        raise BadInput("no_bridge", f"{AGENTS[key].label} cannot ask before it compacts. {configuration_file.NOTHING}")
    if key not in AGENTS:
        known = ", ".join(AGENTS_WITH_BRIDGES)
        raise BadInput("unknown_agent", f"There is no agent {key}. {configuration_file.NOTHING} Known are {known}.")
    return AGENTS[key]


def planned_connection(key: str, project: Path | None) -> ConfigurationChange:
    """The change that connects an agent, for all projects or for one. Raises BadInput and SystemFailure."""
    agent, bridge, directory, name = _target(key, project)
    if directory is not None:
        try:
            is_directory = directory.is_dir()
        except OSError as fault:
            raise BadInput(
                "no_such_project", f"{directory} cannot be used: {fault.strerror}. {configuration_file.NOTHING}"
            ) from fault
        if not is_directory:
            raise BadInput("no_such_project", f"{directory} is not a directory. {configuration_file.NOTHING}")
    _require_one_scope(agent, directory)
    file = configuration_file.read_configuration_file(bridge.path(Path.home(), directory), directory)
    known = _known(name)
    if known is not None and known.changed not in ("", str(file.path)):
        raise BadInput(
            "connected_elsewhere",
            f"{agent.label} is connected by {known.changed}, and {file.path} would be changed now. "
            f"{configuration_file.NOTHING} Disconnect "
            "it first.",
        )
    baseline = _baseline(bridge, file, known)
    after = bridge.content(
        file.content, file.path, connection_files.connection_path(settings.REDLINE_DATA_DIR, name), redline_command()
    )
    remarks = (*_link_remarks(file, after), *bridge.remarks(after, file.path))
    return ConfigurationChange(agent, bridge, name, directory, file, after, baseline, known, remarks)


def planned_removal(key: str, project: Path | None) -> ConfigurationChange:
    """The change that removes a connection. Raises BadInput `not_connected` and others, SystemFailure."""
    agent, bridge, directory, name = _target(key, project)
    known = _known(name) or _recorded(key, project)
    if known is not None and known.project:
        name, directory = known.name, Path(known.project)
    path = Path(known.changed) if known is not None and known.changed else bridge.path(Path.home(), directory)
    file = configuration_file.read_configuration_file(path, directory)
    has_bridge = file.content is not None and bridge.installed_version(file.content, path) is not None
    if known is None and not has_bridge:
        raise _not_connected(agent, directory)
    baseline = _baseline(bridge, file, known) if has_bridge else file.content
    if has_bridge and file.content is not None and not is_as_written(file, known) and bridge.is_edited(file.content):
        raise BadInput(
            "edited_bridge",
            f"{path} is not as Redline wrote it. {configuration_file.NOTHING} Delete it yourself, or connect again, "
            "which replaces it; then disconnect it.",
        )
    remarks = _link_remarks(file, baseline)
    return ConfigurationChange(agent, bridge, name, directory, file, baseline, baseline, known, remarks)


def connection_of(key: str, project: Path | None) -> connection_files.ConnectedAgent:
    """The connection of an agent, for all projects or for one. Raises BadInput `not_connected`, SystemFailure."""
    agent, _, directory, name = _target(key, project)
    one = _known(name) or _recorded(key, project)
    if one is None:
        raise _not_connected(agent, directory)
    return one


def _recorded(key: str, project: Path | None) -> connection_files.ConnectedAgent | None:
    """The connection recorded for this path, which may have become a link to another directory since."""
    recorded = str(project or "")
    return next((one for one in all_connections() if (one.agent, one.project) == (key, recorded)), None)


def _not_connected(agent: Agent, directory: Path | None) -> BadInput:
    scopes = [one.project or "all projects" for one in all_connections() if one.agent == agent.key]
    if scopes:
        missing = f"{directory} alone" if directory is not None else "all projects"
        fault = f"connected for {', '.join(scopes)}, not for {missing}"
    else:
        fault = f"not connected for {directory}" if directory is not None else "not connected"
    return BadInput("not_connected", f"{agent.label} is {fault}. {configuration_file.NOTHING}")


def _target(key: str, project: Path | None) -> tuple[Agent, Bridge, Path | None, str]:
    agent = agent_named(key)
    assert agent.bridge is not None  # noqa: S101  # `agent_named` has looked
    if project is None:
        return agent, agent.bridge, None, key
    directory = real_path(project)
    slug = _NOT_IN_NAME.sub("-", directory.name.lower()).strip("-")[:40]
    digest = sha256_of(str(directory).encode(errors="surrogateescape"))[:8]
    return agent, agent.bridge, directory, "-".join(filter(None, (key, slug, digest)))


def _require_one_scope(agent: Agent, project: Path | None) -> None:
    """Raise BadInput if a project would be connected twice: its agent would request two reviews."""
    others = [one for one in all_connections() if one.agent == agent.key]
    everywhere = next((one for one in others if not one.project), None)
    if project is not None and everywhere is not None:
        raise BadInput(
            "connected_everywhere",
            f"{agent.label} is connected for all projects already. {configuration_file.NOTHING} Disconnect it there "
            f"first: `redline connect {agent.key} --disconnect`",
        )
    within = [one.project for one in others if one.project]
    if project is None and within:
        raise BadInput(
            "connected_in_projects",
            f"{agent.label} is connected for {', '.join(within)}. {configuration_file.NOTHING} Disconnect it there "
            f"first: `redline connect {agent.key} --project {shlex.quote(within[0])} --disconnect`",
        )


def _baseline(
    bridge: Bridge, file: configuration_file.ConfigurationFile, known: connection_files.ConnectedAgent | None
) -> bytes | None:
    """The content of a file without the bridge."""
    before = _backup_of(known)
    if file.content is None:
        return None
    if is_as_written(file, known) and (before is not None or not known or not known.backup):
        return before
    if bridge.installed_version(file.content, file.path) is None:
        return file.content
    return bridge.without(file.content, file.path, before)


def _backup_of(known: connection_files.ConnectedAgent | None) -> bytes | None:
    if known is None or not known.backup:
        return None
    path = Path(known.backup)
    with reported(path, configuration_file.NOTHING):
        # Without the backup, the bridge is removed from the text.
        return path.read_bytes() if path.exists() else None


def _link_remarks(file: configuration_file.ConfigurationFile, after: bytes | None) -> tuple[str, ...]:
    """Sentences about what a change does to links. Raises SystemFailure."""
    found = f"{file.path} is a link: {file.real} is what is changed." if file.is_link else ""
    return tuple(filter(None, (found, other_names_note(file.real) if after != file.content else "")))


def redline_command(directory: Path | None = None) -> str:
    """This installation's command `redline`, quoted for a shell, with this data directory, by default the current one.

    The agent may be started without the variables that determine the data directory.
    """
    installed = Path(sys.executable).with_name("redline")
    found = str(installed) if installed.exists() else shutil.which("redline")
    command = shlex.quote(found) if found is not None else f"{shlex.quote(sys.executable)} -m redline"
    if directory is None and not any(map(os.environ.get, DATA_VARIABLES)):
        return command
    return f"{DATA_VARIABLES[0]}={shlex.quote(str(directory or settings.REDLINE_DATA_DIR))} {command}"


# Carrying out -----------------------------------------------------------------------------------------------


def connect(change: ConfigurationChange, now: datetime) -> connection_files.ConnectedAgent:
    """Connect an agent. Raises the errors of `disconnect`; then nothing is changed."""
    directory: Path = settings.REDLINE_DATA_DIR
    assert change.after is not None  # noqa: S101  # only a removal deletes a file
    server = running_server(directory)
    with reported(directory, configuration_file.NOTHING), connection_files.only_one_change(directory):
        _require_same_connection(change)
        backup = _keep_backup(change)
        known = change.known or connection_files.ConnectedAgent(
            change.name, change.agent.key, "", connection_files.new_secret(), 0, now
        )
        missing = [
            path for path in configuration_file.missing_directories(change.file) if path not in known.made_directories
        ]
        one = msgspec.structs.replace(
            known,
            url=f"http://127.0.0.1:{server.port}" if server is not None else "",
            bridge=change.bridge.version,
            project=str(change.project) if change.project is not None else "",
            changed=str(change.file.path),
            backup=backup,
            sha256=sha256_of(change.after),
            made_directories=(*known.made_directories, *missing),
        )
        connection_files.write_connection(directory, one)
        try:
            if change.changes_file:
                configuration_file.replace_configuration_file(change.file, change.after)
        except BaseException:
            _keep_as_it_was(change)
            raise
    return one


def disconnect(change: ConfigurationChange) -> None:
    """Remove a connection. Raises Conflict `file_changed`, `connection_changed`, SystemFailure."""
    directory: Path = settings.REDLINE_DATA_DIR
    with reported(directory, configuration_file.NOTHING), connection_files.only_one_change(directory):
        _require_same_connection(change)
        if change.changes_file:
            configuration_file.replace_configuration_file(change.file, change.after)
        if change.known is not None:
            if change.after is None:
                configuration_file.remove_directories(change.known.made_directories)
            connection_files.delete_connection(directory, change.name)
            if change.known.backup:
                Path(change.known.backup).unlink(missing_ok=True)


def revoke(one: connection_files.ConnectedAgent) -> None:
    """Delete the token of a connection and leave the agent's file unchanged. Raises Conflict `busy`, SystemFailure."""
    directory: Path = settings.REDLINE_DATA_DIR
    with reported(directory, configuration_file.NOTHING), connection_files.only_one_change(directory):
        connection_files.delete_connection(directory, one.name)


def revocation_note(one: connection_files.ConnectedAgent) -> str:
    """Sentences about what `revoke` leaves behind, and what to do about it."""
    label = AGENTS[one.agent].label
    note = (
        f"{one.changed} is not changed: without a connection, the bridge in it lets {label} compact as usual. Delete "
        f"it yourself, or connect {label} again once the file can be changed, and disconnect it then."
    )
    return f"{note} The file as it was before the connection is kept in {one.backup}." if one.backup else note


def _require_same_connection(change: ConfigurationChange) -> None:
    """Raise Conflict `connection_changed` if it was made, replaced or removed since the change was shown; a new address
    of the server does not matter."""
    present, shown = _known(change.name), change.known
    if present is not None and shown is not None:
        present = msgspec.structs.replace(present, url=shown.url)
    if present != shown:
        raise Conflict(
            "connection_changed",
            f"The connection of {change.agent.label} was changed by another command meanwhile. "
            f"{configuration_file.NOTHING} Look at it "
            "again.",
        )


def _keep_backup(change: ConfigurationChange) -> str:
    """Back up the content of the file without the bridge, and its present content if that is neither this nor Redline's
    own. Returns the path of the first backup; empty if there is no content without the bridge."""
    present = change.file.content
    is_known = present == change.baseline or is_as_written(change.file, change.known)
    if change.changes_file and present is not None and not is_known:
        _write_private(f"{change.name}.replaced", present)
    if change.baseline is None:
        return ""
    return _write_private(f"{change.name}.before", change.baseline)


def _write_private(name: str, content: bytes) -> str:
    path: Path = settings.REDLINE_DATA_DIR / connection_files.DIRECTORY / name
    write_private(path, content)
    return str(path)


def _keep_as_it_was(change: ConfigurationChange) -> None:
    if change.known is not None:
        connection_files.write_connection(settings.REDLINE_DATA_DIR, change.known)
        return
    connection_files.delete_connection(settings.REDLINE_DATA_DIR, change.name)
    (settings.REDLINE_DATA_DIR / connection_files.DIRECTORY / f"{change.name}.before").unlink(missing_ok=True)


# Reading ----------------------------------------------------------------------------------------------------


def all_connections() -> list[connection_files.ConnectedAgent]:
    """All connections, by name. Raises SystemFailure."""
    with reported(settings.REDLINE_DATA_DIR, "The connections were not read."):
        return connection_files.connections(settings.REDLINE_DATA_DIR)


def _known(name: str) -> connection_files.ConnectedAgent | None:
    directory: Path = settings.REDLINE_DATA_DIR
    with reported(connection_files.connection_path(directory, name), configuration_file.NOTHING):
        try:
            return connection_files.connection(directory, name)
        except ValueError as fault:
            path = connection_files.connection_path(directory, name)
            raise SystemFailure(
                "damaged_connection",
                f"{path} is damaged: {fault}. {configuration_file.NOTHING} Delete it, then connect again.",
            ) from fault


class ConnectionState(StrEnum):
    """Whether a bridge is in force."""

    CURRENT = "current"
    OUTDATED = "outdated"
    CHANGED = "changed"
    MISSING = "missing"
    UNREADABLE = "unreadable"


class ConnectionStatus(NamedTuple):
    """The state of a connection, and a sentence about it; empty if all is well."""

    state: ConnectionState
    sentence: str = ""

    @property
    def is_current(self) -> bool:
        return self.state is ConnectionState.CURRENT


def status_of_connection(one: connection_files.ConnectedAgent) -> ConnectionStatus:
    """The state of a connection, by the agent's file."""
    agent = AGENTS.get(one.agent)
    bridge = agent.bridge if agent is not None else None
    if agent is None or bridge is None:
        return ConnectionStatus(ConnectionState.UNREADABLE, f"There is no agent {one.agent}.")
    path = Path(one.changed)
    try:
        content = configuration_file.read_configuration_file(path).content
        version = bridge.installed_version(content, path) if content is not None else None
        own = connection_files.connection_path(settings.REDLINE_DATA_DIR, one.name)
        if content is None or version is None:
            state = ConnectionState.MISSING
            words = f"{path} does not have the bridge any more. Connect again, or disconnect it."
        elif version < bridge.version:
            state = ConnectionState.OUTDATED
            words = f"The bridge has version {version}; {bridge.version} is current. Connect again to update it."
        elif bridge.content(content, path, own, redline_command()) != content:
            state = ConnectionState.CHANGED
            words = f"The bridge in {path} is not as Redline writes it. Connect again to update it."
        else:
            state, words = ConnectionState.CURRENT, " ".join(bridge.remarks(content, path))
    except RedlineError as fault:
        state, words = ConnectionState.UNREADABLE, fault.message
    return ConnectionStatus(state, words)


# Testing --------------------------------------------------------------------------------------------------

BODY_LIMIT: Final = 1_000_000
SECONDS: Final = 10
"""The timeout of the server's answer, in seconds."""
TESTED: Final = {
    "id": 0,
    "state": "tested",
    "do": "continue",
    "message": "",
    "seconds": 0,
    "poll": 1,
    "grace": 0,
}


class ConnectionTest(NamedTuple):
    """The result of a test."""

    has_asked: bool | None
    """Whether the bridge requested a review; None if the program was not found."""
    is_answered: bool | None
    """Whether the server answered; None if the request was not forwarded."""
    sentence: str


def try_connection(
    agent: Agent, one: connection_files.ConnectedAgent, redline: Callable[[Path], str], url: str = ""
) -> ConnectionTest:
    """Test a connection. With the `url` of the server, the request is forwarded to it.

    `redline` returns this installation's command for a data directory, quoted for a shell.
    """
    program = program_on_path(agent.client.program)
    if program is None or agent.bridge is None:
        return ConnectionTest(
            None, None, f"Not tested: the program {agent.client.program} was not found in the directories of PATH."
        )
    version = ".".join(map(str, installed_version(agent.client.program) or ("(unknown version)",)))
    label = f"{agent.label} {version}"
    # What the program left running may still write.
    with (
        tempfile.TemporaryDirectory(prefix="redline-connect-", ignore_cleanup_errors=True) as scratch,
        Listener(one.token, url) as listener,
    ):
        data, home = Path(scratch, "data"), Path(scratch, "home")
        for directory in (data, home):
            directory.mkdir(mode=0o700)
        stand_in = msgspec.structs.replace(
            one, url=listener.url, token=listener.token, project="", made_at=datetime.now(UTC)
        )
        connection_files.write_connection(data, stand_in)
        try:
            words = agent.bridge.try_out(program, home, connection_files.connection_path(data, one.name), redline(data))
        except ClientUnusable as fault:
            return ConnectionTest(False, None, f"The test did not work: {label} could not be used: {fault}")
        if not listener.requests:
            return ConnectionTest(False, None, f"The test failed: {label} ran, but did not ask. It said: {words}")
        how = f"{label} was run in an empty home with this bridge, and asked"
        if not url:
            return ConnectionTest(True, None, f"Tested: {how}.")
        if listener.failures:
            return ConnectionTest(
                True, False, f"{how}, but Redline did not accept the question: {listener.failures[0]}"
            )
        return ConnectionTest(True, True, f"Tested: {how}; Redline answered.")


class Listener(LoopbackServer):
    """Records the tests of a bridge, and forwards them."""

    def __init__(self, token: str, url: str) -> None:
        super().__init__()
        self.token = connection_files.new_secret()
        self.requests: list[Mapping[str, Any]] = []
        self.failures: list[str] = []
        self._onward = (token, url)

    def receive(self, path: str, authorization: str, raw: bytes) -> Answer:
        try:
            requested = json.loads(raw)
        except ValueError:
            requested = None
        if path != connection_files.PATH or authorization != f"Bearer {self.token}" or not isinstance(requested, dict):
            return Answer.document({}, 404)
        self.requests.append(requested)
        token, url = self._onward
        if url and requested.get("test") is True:
            try:
                answer = _send_on(url, token, raw)
            except (OSError, http.client.HTTPException) as fault:
                self.failures.append(str(fault) or type(fault).__name__)
            else:
                if answer.status != http.client.OK:
                    self.failures.append(f"status {answer.status}")
                return answer
        return Answer.document(TESTED)


def _send_on(url: str, token: str, body: bytes) -> Answer:
    parts = urlsplit(url)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=SECONDS)) as server:
        server.request("POST", connection_files.PATH, body, headers)
        response = server.getresponse()
        return Answer(response.status, "application/json", response.read(BODY_LIMIT))
