"""EDGE: Codex's own program: how it is found, how a dry resume runs it, and the hook by which it asks for a review.

For a dry resume, a thread is divided into its files again. The lines of the files that it is based on come before its
own; a base is named after the id by which the next file refers to it:

    base of the base │ base │ own        a file begins with the line that names the end of the one before it

Codex calls the hook before it compacts. Without output, it compacts. With `{"continue": false}` it neither compacts nor
sends anything: the turn ends, and `stopReason` is shown. There is no third answer, so that *continue* and *stop* are
the same here.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import OUT_OF_REPOSITORY, TEST_VARIABLE, Client
from sessions_app.agents.bridges import HookBridge
from sessions_app.agents.codex.pure.parser import INJECTED_TEXTS, KEY, without_metadata
from sessions_app.agents.edge import dry_resume
from sessions_app.agents.edge.model_server import ModelServer, short_answer
from sessions_app.agents.pure import fields
from sessions_app.agents.pure.hooks import HookReply, HookRequest, HookStep, hook_fields, hook_request
from sessions_app.sessionlog.jsjson import split_lines

from .settings import DIRECTORY, LIMIT, home_directory
from .store import ARCHIVED, thread_id_of

BASE_NAME: Final = "rollout-2026-01-01T00-00-00-{}.jsonl"
THREAD_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEADER: Final = b'"session_meta"'
_MARKS: Final = (_HEADER, b'"turn_context"', b'"thread_settings_applied"')


class ThreadFiles:
    """The files of a thread, with the model and the providers that the thread records."""

    def __init__(self, name: str, content: Iterable[bytes]) -> None:
        self.model = ""
        """The latest model; empty if none is recorded."""
        self.providers: list[str] = []
        """The providers that the thread has had, the latest one last."""
        self._name = name
        self._bases: list[tuple[str, list[bytes]]] = []
        self._lines: list[bytes] = []
        self._size = 0
        for line in split_lines(content):
            raw = line.raw + (b"\n" if line.complete else b"")
            if any(mark in raw for mark in _MARKS):
                self._read(raw)
            self._lines.append(raw)
            self._size += len(raw)

    def __iter__(self) -> Iterator[tuple[str, list[bytes]]]:
        """Each file's name, and its lines."""
        yield from self._bases
        yield self._name, self._lines

    def _read(self, raw: bytes) -> None:
        line = fields.object_in(raw) or {}  # the client skips other lines too
        payload = fields.mapping(line, "payload")
        if fields.stored_text(line, "type") == "session_meta":
            # The next file begins if the lines so far are what it is based on.
            base = fields.mapping(payload, "history_base")
            thread_id = fields.stored_text(base, "thread_id")
            if THREAD_ID.fullmatch(thread_id) and base.get("end_byte_offset") == self._size:
                self._bases.append((BASE_NAME.format(thread_id), self._lines))
                self._lines, self._size = [], 0
            self._use(fields.stored_text(payload, "model_provider"))
        elif fields.stored_text(line, "type") == "turn_context":
            self.model = fields.stored_text(payload, "model") or self.model
        else:
            settings = fields.mapping(payload, "thread_settings")
            self._use(fields.stored_text(settings, "model_provider_id"))
            self.model = fields.stored_text(settings, "model") or self.model

    def _use(self, provider: str) -> None:
        if provider:
            self.providers = [*(one for one in self.providers if one != provider), provider]


PROVIDER: Final = "redline"
BUILT_IN: Final = frozenset({"openai", "ollama", "lmstudio", "ollama-chat", "amazon-bedrock"})
"""Providers that a configuration cannot define."""
MODEL: Final = "model"
"""The model of a thread that names none."""


class CodexProgram(dry_resume.ClientProgram):
    """The program `codex`."""

    label = "Codex"
    openings = INJECTED_TEXTS

    def environment(self, scratch: dry_resume.Scratch) -> Mapping[str, str]:
        """The environment of the client. Older versions read the address of the provider `openai` from it, newer ones
        from the configuration.
        """
        return {
            **scratch.environment,
            "CODEX_HOME": str(codex_home(scratch)),
            "CODEX_API_KEY": "none",
            "OPENAI_BASE_URL": f"{scratch.model_url}/v1",
        }

    def place(self, name: str, content: Iterable[bytes], scratch: dry_resume.Scratch) -> str:
        found = THREAD_ID.search(name) if name.startswith("rollout-") else None
        if found is None:
            raise dry_resume.ClientUnusable(f"the name {name} has no thread id, by which Codex finds a session.")
        directory = codex_home(scratch) / "sessions" / "2026" / "01" / "01"
        directory.mkdir(parents=True)
        thread = ThreadFiles(name, content)
        for file, lines in thread:
            with (directory / file).open("wb") as copy:
                copy.writelines(lines)
        configure(scratch, thread.model or MODEL, thread.providers)
        return found.group()

    def command(self, prompt: str, session_id: str = "") -> list[str]:
        resume = ("resume", session_id) if session_id else ()
        return [self.program, "exec", "--json", "--skip-git-repo-check", *resume, prompt]

    def messages(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """The messages of a request without the recorded instructions, which come first if they have no field of their
        own.

        Metadata is removed: for the built-in provider `openai`, newer versions add some to every message.
        """
        items = body.get("input")
        if not isinstance(items, list):
            return None
        own = items if body.get("instructions") else items[1:]
        return [without_metadata(item) if isinstance(item, dict) else item for item in own]


class CodexClient(Client):
    program = KEY
    kind = CodexProgram

    def resume_command(self, path: Path) -> Sequence[str]:
        return self.program, "resume", thread_id_of(path) or path.stem

    def unarchive_command(self, path: Path) -> Sequence[str]:
        return (self.program, "unarchive", thread_id_of(path) or path.stem) if ARCHIVED in path.parts else ()


def codex_home(scratch: dry_resume.Scratch) -> Path:
    """The directory of Codex's files."""
    return scratch.home / ".codex"


def configure(scratch: dry_resume.Scratch, model: str, providers: Iterable[str] = ()) -> None:
    """Write a configuration that uses the last provider and defines all of them: otherwise the thread does not
    resume.
    """
    names = list(providers) or [PROVIDER]
    url = json.dumps(f"{scratch.model_url}/v1")
    lines = [
        f"model = {_toml(model)}",
        f"model_provider = {_toml(names[-1])}",
        f"openai_base_url = {url}",
        'approval_policy = "never"',
        'sandbox_mode = "read-only"',
    ]
    for name in sorted(set(names) - BUILT_IN):
        lines += [
            f"[model_providers.{_toml(name)}]",
            'name = "Redline"',
            f"base_url = {url}",
            'wire_api = "responses"',
            "requires_openai_auth = false",
            "request_max_retries = 0",
            "stream_max_retries = 0",
        ]
    codex_home(scratch).mkdir(exist_ok=True)
    (codex_home(scratch) / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class CodexHook:
    def review_request(self, sent: bytes) -> HookRequest:
        fields = hook_fields(sent)
        session = fields.get("transcript_path") or fields.get("session_id")
        return hook_request(session, fields.get("trigger"), {"model": fields.get("model")})

    def reply(self, step: HookStep, message: str) -> HookReply:
        if step is HookStep.COMPACT:
            return HookReply(errors=message)
        return HookReply(output=json.dumps({"continue": False, "stopReason": message}))


FILE: Final = "hooks.json"
TOKENS: Final = 50_000
"""The number of tokens reported for the first turn, large enough for Codex to compact at the next one."""


class HooksBridge(HookBridge):
    """An entry in the file of hooks of the user, or in a project's.

    ~/.codex/hooks.json; CODEX_HOME names another directory
    PROJECT/.codex/hooks.json
    """

    key = KEY
    label = "Codex"
    hook = CodexHook()

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        where = ", and only in a project that you trust" if in_project else ""
        return (
            *((OUT_OF_REPOSITORY,) if in_project else ()),
            f"Codex calls a hook only after you have trusted it{where}: start codex, and trust Redline's hook when it "
            "asks, or under /hooks. If the command changes, Codex asks again.",
        )

    def path(self, home: Path, project: Path | None) -> Path:
        return (project / DIRECTORY if project is not None else home_directory(home)) / FILE

    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        """Continue a thread of one message, which must be compacted first."""
        with ModelServer(lambda request: short_answer(request.path, request.body, TOKENS)) as server:
            scratch = dry_resume.new_scratch(home, server.url)
            client = CodexProgram(program)
            configure(scratch, MODEL)
            path = codex_home(scratch) / "config.toml"
            path.write_text(f"{LIMIT} = {TOKENS // 2}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
            hooks = codex_home(scratch) / FILE
            hooks.write_bytes(self.content(None, hooks, connection, redline))
            environment = {**client.environment(scratch), TEST_VARIABLE: "1"}
            start = [program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
            begun = dry_resume.run_client([*start, "Hello"], cwd=scratch.project, environment=environment)
            events = (fields.object_in(line.encode()) or {} for line in begun.output.splitlines())
            thread_id = next(filter(None, (fields.text(event, "thread_id") for event in events)), "")
            if not thread_id:
                raise dry_resume.ClientUnusable(f"it did not begin a thread: {begun.last_words}")
            command = [*start, "resume", thread_id, "Hello"]
            return dry_resume.run_client(command, cwd=scratch.project, environment=environment).last_words
