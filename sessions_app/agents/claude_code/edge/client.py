"""EDGE: Claude Code's own program: how it is found and run, and the hook by which it asks for a review.

The client calls the hook before it compacts:

| answer                       | the client                                                                       |
|------------------------------|----------------------------------------------------------------------------------|
| exit code 0, nothing printed | compacts                                                                         |
| exit code 0, something       | compacts, and adds what was printed to the instructions for the summary          |
| exit code 2                  | does not compact, and shows the command and standard error                       |
| any other exit code          | compacts                                                                         |
"""

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import TEST_VARIABLE, Client
from sessions_app.agents.bridges import HookBridge
from sessions_app.agents.claude_code.pure.parser import KEY
from sessions_app.agents.claude_code.pure.sent import INTERRUPTED
from sessions_app.agents.edge import dry_resume
from sessions_app.agents.edge.model_server import ModelServer
from sessions_app.agents.pure import fields
from sessions_app.agents.pure.hooks import HookReply, HookRequest, HookStep, hook_fields, hook_request
from sessions_app.agents.pure.json_document import JsonDocument

from .settings import DIRECTORY, config_directory

FEW_TOOLS: Final = ("--tools", "Read,Bash,Write", "--disable-slash-commands")
"""Options for a client with few tools: recorded calls keep their names, and fewer reminders are added."""
_NOT_IN_SLUG: Final = re.compile(r"[^A-Za-z0-9]")


class ClaudeCodeProgram(dry_resume.ClientProgram):
    """The program `claude`."""

    label = "Claude Code"
    openings = ("<system-reminder>",)

    def environment(self, scratch: dry_resume.Scratch) -> Mapping[str, str]:
        """The environment of the client, so that it makes no requests besides the conversation."""
        return {
            **scratch.environment,
            "CLAUDE_CONFIG_DIR": str(scratch.home / ".claude"),
            "ANTHROPIC_BASE_URL": scratch.model_url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def place(self, name: str, content: Iterable[bytes], scratch: dry_resume.Scratch) -> str:
        session_id = _session_id(Path(name).stem)
        directory = sessions_directory(scratch)
        directory.mkdir(parents=True)
        with (directory / f"{session_id}.jsonl").open("wb") as copy:
            copy.writelines(content)
        return session_id

    def command(self, prompt: str, session_id: str = "") -> list[str]:
        resume = ("--resume", session_id) if session_id else ()
        return [self.program, "-p", "--output-format", "json", *FEW_TOOLS, *resume, "--", prompt]

    def messages(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """The messages of a request; None if it has no tools: then it is not a turn, but may be for a title."""
        messages = body.get("messages")
        return list(map(_in_short, messages)) if body.get("tools") and isinstance(messages, list) else None


class ClaudeCodeClient(Client):
    program = "claude"
    kind = ClaudeCodeProgram

    def resume_command(self, path: Path) -> Sequence[str]:
        return self.program, "--resume", path.stem


def _in_short(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message in the form that `sent` gives: the client's sentence about an interrupted call is replaced by
    INTERRUPTED.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return message
    blocks = [
        {**block, "content": INTERRUPTED}
        if isinstance(block, dict) and str(block.get("content")).startswith(INTERRUPTED.rstrip("]"))
        else block
        for block in content
    ]
    return {**message, "content": blocks}


def sessions_directory(scratch: dry_resume.Scratch) -> Path:
    """The directory of the project's sessions."""
    return scratch.home / ".claude" / "projects" / _NOT_IN_SLUG.sub("-", str(scratch.project))


def _session_id(name: str) -> str:
    """The id in the name of a file, which the client requires. A copy with another name gets a new id."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid4())


BLOCKED: Final = 2


class ClaudeCodeHook:
    def review_request(self, sent: bytes) -> HookRequest:
        asked = hook_fields(sent)
        instructions = {"instructions": asked.get("custom_instructions")}
        return hook_request(asked.get("transcript_path"), asked.get("trigger"), instructions)

    def reply(self, step: HookStep, message: str) -> HookReply:
        """The hook's answer: any step but COMPACT prevents the compaction, because the client has no other way to
        stop.
        """
        return HookReply(0 if step is HookStep.COMPACT else BLOCKED, errors=message)


OFF: Final = "disableAllHooks"


class SettingsBridge(HookBridge):
    """An entry in the settings of the user, or in those of a project that are not shared with others.

    ~/.claude/settings.json; CLAUDE_CONFIG_DIR names another directory
    PROJECT/.claude/settings.local.json
    """

    key = KEY
    label = "Claude Code"
    hook = ClaudeCodeHook()

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        return ("A running Claude Code asks Redline when it is started again.",)

    def path(self, home: Path, project: Path | None) -> Path:
        if project is not None:
            return project / DIRECTORY / "settings.local.json"
        return config_directory(home) / "settings.json"

    def remarks(self, content: bytes, path: Path) -> Sequence[str]:
        off = JsonDocument(content, str(path)).root.member(OFF)
        if off is None or off.value is not True:
            return super().remarks(content, path)
        return (*super().remarks(content, path), f"{path} sets {OFF}: Claude Code calls no hook until it is removed.")

    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        """Compact a session of one message; no request is made, because the hook prevents the compaction."""
        with ModelServer() as server:
            scratch = dry_resume.new_scratch(home, server.url)
            client = ClaudeCodeProgram(program)
            path = scratch.home / DIRECTORY / "settings.json"
            path.parent.mkdir()
            path.write_bytes(self.content(None, path, connection, redline))
            environment = {**client.environment(scratch), TEST_VARIABLE: "1"}
            begun = dry_resume.run_client(client.command("Hello"), cwd=scratch.project, environment=environment)
            session_id = _printed(begun, "session_id")
            if not session_id:
                raise dry_resume.ClientUnusable(f"it did not begin a session: {begun.last_words}")
            command = [program, "-p", "--output-format", "json", "--resume", session_id, "--", "/compact"]
            ended = dry_resume.run_client(command, cwd=scratch.project, environment=environment)
            return _printed(ended, "result") or ended.last_words


def _printed(ended: dry_resume.ClientExit, name: str) -> str:
    """A text of the document that the client printed; empty if it printed none."""
    return fields.text(fields.object_in(ended.output.encode()) or {}, name)
