"""Hand-made rollouts: items, lines, files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.pure.format import READER, CodexReader
from sessions_app.agents.pure.formats import WriteFacts
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Deletion, Entry, Stats, Target, Texts
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState, SessionLog, log_of

Item = dict[str, Any]
THREAD = "01a20000-0000-7000-8000-000000000001"


def message(role: str, *texts: str, **fields: Any) -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": one} for one in texts], **fields}


def user(*texts: str, **fields: Any) -> Item:
    return message("user", *texts, **fields)


def answer(*texts: str, **fields: Any) -> Item:
    return message("assistant", *texts, **fields)


def environment(text: str = "here") -> Item:
    return user(f"<environment_context>{text}")


def developer(text: str = "rules") -> Item:
    return message("developer", text)


def reasoning(text: str = "hm", name: str = "rs_1") -> Item:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": name, "summary": summary, "content": None, "encrypted_content": "e" * 40}


def call(call_id: str = "c1", name: str = "exec_command", **arguments: Any) -> Item:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": call_id}


def output(call_id: str = "c1", text: Any = "done") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def line(kind: str, payload: Any, **fields: Any) -> Item:
    return {"timestamp": "2026-01-05T10:00:00.000Z", **fields, "type": kind, "payload": payload}


def meta(thread: str = THREAD, **fields: Any) -> Item:
    known = {"id": thread, "cwd": "/work", "model_provider": "openai", "cli_version": "0.169.0"}
    return line("session_meta", {**known, **fields})


def compacted(*items: Item, **fields: Any) -> Item:
    return line("compacted", {"message": "", "replacement_history": list(items), **fields})


def summarised(text: str) -> Item:
    return line("compacted", {"message": text})


def rolled_back(turns: int) -> Item:
    return line("event_msg", {"type": "thread_rolled_back", "num_turns": turns})


def world_state(**fields: Any) -> Item:
    return line("world_state", {"full": True, "state": {}, **fields})


def turn_context(model: str = "gpt-5") -> Item:
    return line("turn_context", {"model": model, "cwd": "/work"})


def usage_record(tokens: int, total: int) -> Item:
    return line(
        "token_usage_record", {"usage": {"total_tokens": tokens}, "thread_token_usage": {"total_tokens": total}}
    )


def token_count(tokens: int, total: int) -> Item:
    info = {"last_token_usage": {"total_tokens": tokens}, "total_token_usage": {"total_tokens": total}}
    return line("event_msg", {"type": "token_count", "info": info})


class Rollout:
    """A rollout; items are put on lines of their own, and bytes are lines. A paginated one has ordinals."""

    def __init__(self, *recorded: Item | bytes, paginated: bool = True, first: int = 0) -> None:
        self.lines: list[bytes] = []
        for number, one in enumerate(recorded, first):
            if isinstance(one, bytes):
                self.lines.append(one)
                continue
            whole = one if "payload" in one else line("response_item", one)
            if paginated:
                whole = {"timestamp": whole["timestamp"], "ordinal": number, **whole}
                if whole["type"] == "session_meta":
                    whole["payload"] = {"history_mode": "paginated", **whole["payload"]}
            self.lines.append(json.dumps(whole).encode())

    @property
    def content(self) -> bytes:
        return b"".join(one + b"\n" for one in self.lines)

    def with_lines(self, lines: Iterable[bytes]) -> Rollout:
        again = Rollout()
        again.lines = [*self.lines, *lines]
        return again

    def save(self, directory: Path, name: str = f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl") -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / name
        path.write_bytes(self.content)
        return path


WORK_STEPS = 6


def work(*more: Item, paginated: bool = True) -> Rollout:
    """A thread worth compacting: calls with long outputs."""
    steps = [
        item
        for step in range(WORK_STEPS)
        for item in (
            answer(f"Step {step}."),
            call(f"c{step}", path=f"src/part_{step}.py"),
            output(f"c{step}", " ".join(f"line_{step}_{number}" for number in range(300))),
        )
    ]
    start = [meta(), developer(), world_state(), turn_context(), user("Mend the parser.")]
    end = [answer("It is mended."), user("Now the tests.")]
    return Rollout(*start, *steps, *end, *more, paginated=paginated)


class Parsed:
    def __init__(self, content: bytes, state: ParserState | None = None) -> None:
        self.content = content
        self.parser = CODEX.format.parser(state or ParserState(), [])
        recorded = [found for one in split_lines([content]) for found in self.parser.read(one)]
        self.entries = [one.entry for one in recorded]
        self.texts: dict[str, Texts] = {one.entry.id: one.texts for one in recorded}
        self.tree = CODEX.format.tree(self.entries)

    @property
    def log(self) -> SessionLog:
        return log_of(self.parser, self.entries)

    @property
    def branch(self) -> list[Entry]:
        return self.tree.branch(self.tree.leaf.id)

    def line(self, entry: Entry) -> bytes:
        return self.content[entry.offset : entry.offset + entry.length]

    def context(self, reader: CodexReader = READER) -> ActiveContext:
        return reader.rebuild(self.branch)

    def ids(self, reader: CodexReader = READER) -> list[str]:
        return [one.entry.id for one in self.context(reader).messages]

    def sent(self, reader: CodexReader = READER) -> list[Mapping[str, Any]]:
        return list(CODEX.format.sent_messages(self.context(reader), self.line))

    def facts(self, path: Path = Path(f"/codex/sessions/rollout-2026-01-05T10-00-00-{THREAD}.jsonl")) -> WriteFacts:
        assert self.log.header is not None
        return WriteFacts(
            new_id=lambda: "",
            session_id="01a20000-0000-7000-8000-00000000000f",
            written_at=datetime(2026, 1, 5, 11, 0, tzinfo=UTC),
            session=str(path),
            header=self.log.header,
            backup="/backup",
            line=self.line,
            labels={},
            state=self.log.state,
            lines=self.content.splitlines,
        )


def parsed(*recorded: Item | bytes, paginated: bool = True) -> Parsed:
    return Parsed(Rollout(*recorded, paginated=paginated).content)


def thread(*recorded: Item | bytes) -> Parsed:
    """A parsed rollout of these items after the usual header."""
    return parsed(meta(), *recorded)


def deletion(*ids: str | Target) -> Deletion:
    return Deletion(tuple(one if isinstance(one, Target) else Target(one) for one in ids), (), Stats())


def kept(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Items in short: texts, calls and outputs."""
    return [_short(item) for item in found]


def _short(item: Mapping[str, Any]) -> str:
    if item["type"] == "message":
        return " ".join(part["text"] for part in item["content"])
    if item["type"] == "reasoning":
        return f"reasoning {item['summary'][0]['text']}"
    return f"{item['type']} {item.get('call_id', '')}".strip()
