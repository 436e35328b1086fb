"""Figures of Claude Code's sessions: 2,000 of them indexed, and the page of a session of 50,000 lines.

The sessions are made from generated pi sessions: one line for each block of a reply, with the usage of the model, and
the client's own lines in between.
"""

import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from .figures import Figure
from .pages import QUIET_SECONDS, BenchServer, time_session_page
from .scale import MEGABYTE, run_command
from .sessions import generate

FILES, ENTRIES, ENTRY_BYTES = 2_000, 24, 2_300
"""The generated pi sessions, each of which becomes a session of about 60 KB."""
DIFFERENT: Final = 20
LARGE_LINES: Final = 50_000
LARGE_ENTRY_BYTES: Final = 3_000
SEED: Final = 3


def claude_scale() -> Iterator[Figure]:
    """Index 2,000 sessions, and load the page of one with 50,000 lines."""
    yield from _index()
    yield from _page()


def session_lines(recorded: Iterable[Mapping[str, Any]], session_id: str) -> Iterator[bytes]:
    """The lines of a Claude Code session with the conversation of a pi session, newlines included."""
    parent: str | None = None
    numbers = itertools.count(1)
    for number, entry in enumerate(recorded):
        message = entry.get("message")
        if not isinstance(message, Mapping):
            continue
        for kind, content in _messages_of(message, f"msg_{number}"):
            own = str(uuid.UUID(int=next(numbers), version=4))
            line = {
                "parentUuid": parent,
                "isSidechain": False,
                "type": kind,
                "message": content,
                "uuid": own,
                "timestamp": entry["timestamp"],
                "sessionId": session_id,
                "cwd": "/home/dev/work",
                "version": "2.1.330",
                "gitBranch": "main",
                "userType": "external",
            }
            parent = own
            yield msgspec.json.encode(line) + b"\n"
        if message.get("role") == "user":
            beside = {"type": "file-history-snapshot", "messageId": parent, "snapshot": {"messageId": parent}}
            yield msgspec.json.encode(beside) + b"\n"


def _messages_of(message: Mapping[str, Any], reply_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    role, content = message["role"], message.get("content")
    if role == "user":
        yield "user", {"role": "user", "content": content}
    elif role == "toolResult" and isinstance(content, list):
        block = {"type": "tool_result", "tool_use_id": message["toolCallId"], "content": content}
        yield "user", {"role": "user", "content": [block]}
    elif role == "assistant" and isinstance(content, list):
        for place, block in enumerate(content):
            yield (
                "assistant",
                {
                    "id": reply_id,
                    "role": "assistant",
                    "model": "claude-opus-4-6",
                    "usage": {
                        "input_tokens": 3,
                        "output_tokens": 40 + place,
                        "cache_read_input_tokens": message["usage"]["totalTokens"],
                    },
                    "content": [_block(block)],
                },
            )


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "toolCall":
        return {"type": "tool_use", "id": block["id"], "name": block["name"], "input": block.get("arguments")}
    return dict(block)


def _index() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        directory, data = Path(name) / ".claude" / "projects" / "-home-dev-work", Path(name) / "data"
        directory.mkdir(parents=True)
        made = [
            b"".join(session_lines(generate(entries=ENTRIES, entry_bytes=ENTRY_BYTES, seed=seed), "made"))
            for seed in range(DIFFERENT)
        ]
        for number in range(FILES):
            (directory / f"{uuid.UUID(int=number, version=4)}.jsonl").write_bytes(made[number % DIFFERENT])
        size = sum(path.stat().st_size for path in directory.iterdir())
        yield Figure("claude_files_megabytes", round(size / MEGABYTE, 1), "MB", None)
        run_command(data, "sessions")
        ran = run_command(data, "index", str(directory))
        yield Figure("index_claude_seconds", ran.document["seconds"], "s", 3)
        yield Figure("index_claude_processor_seconds", ran.processor_seconds, "s", None)
        yield Figure("index_claude_peak", ran.peak_mb, "MB", 200)


def _page() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        root, data = Path(name) / "projects", Path(name) / "data"
        root.mkdir()
        path = root / "large.jsonl"
        entries = LARGE_LINES * 2 // 3
        with path.open("wb") as file:
            file.writelines(session_lines(generate(entries=entries, entry_bytes=LARGE_ENTRY_BYTES, seed=SEED), "large"))
        with path.open("rb") as file:
            yield Figure("claude_large_lines", sum(1 for _ in file), "lines", None)
        os.utime(path, (time.time() - QUIET_SECONDS,) * 2)
        ran = run_command(data, "index", str(path))
        yield Figure("index_claude_large_seconds", ran.document["seconds"], "s", None)
        yield Figure("index_claude_large_peak", ran.peak_mb, "MB", None)
        with BenchServer(data, [root], agent="claude-code", reader="") as server:
            yield from time_session_page(server, path, "claude")
