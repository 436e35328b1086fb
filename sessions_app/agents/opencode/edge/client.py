"""EDGE: OpenCode's own program: how it is found and run for a dry resume, and the plugin by which it asks for a review.

For a dry resume the client first makes a database with a session. The rows of the copied session take the place of
those, so that everything else is as its version has it.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import OUT_OF_REPOSITORY, TEST_VARIABLE, AgentClient, Client
from sessions_app.agents.bridges import FileBridge
from sessions_app.agents.edge.dry_resume import PROBE, ClientProgram, ClientUnusable, Scratch, run_client
from sessions_app.agents.edge.model_server import ModelServer
from sessions_app.agents.pure import fields
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines, stringify

from .settings import user_directory
from .store import database_of, storage_of

CONTEXT_WINDOW: Final = 10_000_000
"""A window in tokens that no recorded session fills, so that the client does not compact before its request."""
MEDIA: Final = {"modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}}
"""The media types that the model accepts; the client replaces each other one by an error."""
MODEL: Final = ("redline", "model")
"""The provider and the model of a session that names none."""
TITLE: Final = "A copy"
"""The title of the copy, so that the client does not request one from a model."""


class OpenCodeProgram(ClientProgram):
    """The program `opencode`."""

    label = "OpenCode"

    def environment(self, scratch: Scratch) -> Mapping[str, str]:
        return {**scratch.environment, "OPENCODE_DISABLE_AUTOUPDATE": "1"}

    def place(self, name: str, content: Iterable[bytes], scratch: Scratch) -> str:
        """Let the client make a database with a session, then replace its rows by those of this session."""
        rows = SessionRows(content)
        configure(scratch, *rows.model)
        made = run_client(self.command(PROBE), cwd=scratch.project, environment=self.environment(scratch))
        try:
            return rows.insert(data_directory(scratch) / "opencode.db")
        except (sqlite3.Error, ValueError) as fault:
            raise ClientUnusable(f"it made no database for a session ({fault}): {made.last_words}") from fault

    def command(self, prompt: str, session_id: str = "") -> list[str]:
        resume = ("--session", session_id) if session_id else ()
        return [self.program, "run", "--format", "json", *resume, prompt]

    def messages(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """The messages of a request; None if it has no tools: then it is for a title, not a turn."""
        return list(body["messages"]) if body.get("tools") and isinstance(body.get("messages"), list) else None


class OpenCodeClient(Client):
    program = "opencode"
    kind = OpenCodeProgram

    def find_installed(self, program: Path | None) -> AgentClient | None:
        found = super().find_installed(program)
        if found is not None and int(found.version.partition(".")[0]) > 1:
            raise BadInput(
                "no_client",
                f"{found.client.program} is OpenCode {found.version}, and what it sends is not known yet. Nothing was "
                "checked. Give the path of OpenCode 1 after --client, or leave --client out.",
            )
        return found

    def resume_command(self, path: Path) -> Sequence[str]:
        if database_of(path) is None and storage_of(path) is None:
            return self.program, "import", str(path)
        return self.program, "--session", path.stem


def data_directory(scratch: Scratch) -> Path:
    """The directory of OpenCode's sessions."""
    return scratch.home / ".local" / "share" / "opencode"


def configure(scratch: Scratch, provider: str, model: str, window: int = CONTEXT_WINDOW) -> None:
    """Write a configuration of the project with one model."""
    limits = {"context": window, "output": 8_000}
    configuration = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"{provider}/{model}",
        "small_model": f"{provider}/{model}",
        "provider": {
            provider: {
                "npm": "@ai-sdk/openai-compatible",
                "name": provider,
                "options": {"baseURL": f"{scratch.model_url}/v1", "apiKey": "none"},
                "models": {model: {"name": model, "limit": limits, "tool_call": True, "attachment": True, **MEDIA}},
            }
        },
    }
    (scratch.project / "opencode.json").write_text(json.dumps(configuration), encoding="utf-8")


class SessionRows:
    """The messages and parts of a session, in their order, with its model and its revert."""

    def __init__(self, content: Iterable[bytes]) -> None:
        self.model = MODEL
        """The provider and the model of the latest message."""
        self._messages: list[tuple[str, str]] = []
        self._parts: list[tuple[str, str, str]] = []
        self._revert: str | None = None
        for line in split_lines(content):
            self._add(line.raw)

    def insert(self, database: Path) -> str:
        """Replace the rows of the database's only session by these; returns its id. Raises sqlite3.Error."""
        with closing(sqlite3.connect(database)) as connection, connection:
            ((session_id,),) = connection.execute("SELECT id FROM session")
            connection.execute("DELETE FROM part")
            connection.execute("DELETE FROM message")
            connection.execute("UPDATE session SET title = ?, revert = ?", (TITLE, self._revert))
            connection.executemany(
                "INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES (?, ?, ?, ?, ?)",
                ((row_id, session_id, at, at, data) for at, (row_id, data) in enumerate(self._messages, 1)),
            )
            connection.executemany(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, 1, 1, ?)",
                ((row_id, message_id, session_id, data) for row_id, message_id, data in self._parts),
            )
        return str(session_id)

    def _add(self, raw: bytes) -> None:
        row = fields.object_in(raw) or {}
        data = row.get("data")
        if not isinstance(data, dict):
            return
        recorded = stringify(data)
        match row.get("type"):
            case "message":
                self._messages.append((str(row.get("id")), recorded))
                # A user's message names the model in an object, an assistant's in separate fields.
                named = data["model"] if isinstance(data.get("model"), dict) else data
                self.model = fields.model(named.get("providerID"), named.get("modelID")) or self.model
            case "part":
                self._parts.append((str(row.get("id")), str(row.get("message")), recorded))
            case "revert":
                self._revert = recorded


SOURCE: Final = Path(__file__).with_name("redline.js")
START_SECONDS: Final = 60
"""The timeout of a start in seconds; it usually takes one or two."""
OFFLINE: Final = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    # It installs a package beside plugins, and would wait for the network.
    "npm_config_fetch_retries": "0",
}
"""Variables by which it starts without waiting for a network."""


class PluginBridge(FileBridge):
    """A plugin in the user's directory of OpenCode, or in a project's.

    ~/.config/opencode/plugin/redline.js; XDG_CONFIG_HOME names another directory
    PROJECT/.opencode/plugin/redline.js
    """

    source = SOURCE

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        within = (OUT_OF_REPOSITORY,) if in_project else ()
        return (*within, "A running OpenCode asks Redline when it is started again.")

    def path(self, home: Path, project: Path | None) -> Path:
        base = project / ".opencode" if project is not None else user_directory(home)
        return base / "plugin" / SOURCE.name

    def start(self, program: str, scratch: Scratch) -> str:
        with ModelServer() as server:
            scratch = scratch._replace(model_url=server.url)
            client = OpenCodeProgram(program)
            configure(scratch, "redline", "model")
            environment = {**client.environment(scratch), **OFFLINE, TEST_VARIABLE: "1"}
            ended = run_client(
                client.command("Hello"), cwd=scratch.project, environment=environment, seconds=START_SECONDS
            )
            return ended.last_words
