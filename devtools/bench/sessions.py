"""Sessions for measurements: real ones if the corpus exists, and generated ones of any size."""

import json
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings

from sessions_app.agents.pi.agent import PI
from sessions_app.disk.files import SessionReader, real_path
from sessions_app.sessionlog.entries import Block, Entry, Texts
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.tree import SessionTree

ANSWER: Final = 120
"""The approximate length of an answer, in characters."""
ENVELOPE: Final = 190
"""The average bytes of a generated line without the text of its result, with an adjustment for short lines."""
WORDS: Final = (
    "import parser session module config buffer stream handler render token cache index retry export "
    "worker schema layout route patch commit branch merge assert failure passed"
).split()


def corpus() -> Path | None:
    """The directory of real sessions: `$REDLINE_CORPUS`, otherwise `../shared/sessions` beside the project."""
    named = os.environ.get("REDLINE_CORPUS")
    directory = Path(named) if named else settings.BASE_DIR.parent / "shared" / "sessions"
    return directory if directory.is_dir() else None


def real_sessions() -> list[Path]:
    """The corpus' version 3 sessions with a header: pi's, and those converted to its format."""
    directory = corpus()
    found = sorted(directory.glob("pi*/*.jsonl")) if directory is not None else []
    return [path for path in found if _is_version_3(path)]


def _is_version_3(path: Path) -> bool:
    with path.open("rb") as file:
        header = json.loads(file.readline())
    return bool(header.get("type") == "session" and header.get("version") == 3)


class RealBranch(msgspec.Struct):
    """A branch in memory: entries root first, and their texts."""

    entries: list[Entry]
    texts: dict[str, Texts]
    recorded: list[dict[str, Any]]


def read_branch(path: Path) -> RealBranch:
    """The branch of a file's leaf."""
    with SessionReader(real_path(path)) as reader:
        parser = PI.format.parser(ParserState(), [])
        found = [one for line in split_lines(reader.chunks(0)) for one in parser.read(line)]
    tree = SessionTree([one.entry for one in found])
    branch = tree.branch(tree.leaf.id)
    by_id = {one.entry.id: one for one in found}
    return RealBranch(
        branch,
        {entry.id: by_id[entry.id].texts for entry in branch},
        [by_id[entry.id].data for entry in branch],
    )


def base_branch() -> RealBranch:
    """A branch of about a thousand entries: `before-compaction.v3` from the corpus, or a generated one."""
    directory = corpus()
    path = directory / "pi" / "before-compaction.v3.jsonl" if directory is not None else None
    if path is not None and path.is_file():
        return read_branch(path)
    return parsed(list(generate(entries=1_000, entry_bytes=2_400, seed=1)))


def parsed(recorded: list[dict[str, Any]]) -> RealBranch:
    """A branch from recorded objects, the header first."""
    raw = b"".join(msgspec.json.encode(one) + b"\n" for one in recorded)
    parser = PI.format.parser(ParserState(), [])
    found = [one for line in split_lines([raw]) for one in parser.read(line)]
    entries = [one.entry for one in found]
    return RealBranch(entries, {one.entry.id: one.texts for one in found}, [one.data for one in found])


def repeated(branch: RealBranch, times: int) -> RealBranch:
    """The branch several times in a row, with new ids for entries and calls."""
    entries: list[Entry] = []
    texts: dict[str, Texts] = {}
    recorded: list[dict[str, Any]] = []
    parent: str | None = None
    for turn in range(times):
        for entry, data in zip(branch.entries, branch.recorded, strict=True):
            fresh = msgspec.structs.replace(
                entry,
                number=len(entries) + 2,
                id=f"{turn:02x}{entry.id}",
                parent_id=parent,
                blocks=tuple(_fresh(block, turn) for block in entry.blocks) if entry.blocks is not None else None,
                result_for=f"{turn}{entry.result_for}" if entry.result_for is not None else None,
            )
            parent = fresh.id
            entries.append(fresh)
            texts[fresh.id] = branch.texts[entry.id]
            recorded.append(data)
    return RealBranch(entries, texts, recorded)


def _fresh(block: Block, turn: int) -> Block:
    if block.call_id is None:
        return block
    return msgspec.structs.replace(block, call_id=f"{turn}{block.call_id}")


def generate(*, entries: int, entry_bytes: int, seed: int, long_line: int = 0) -> Iterator[dict[str, Any]]:
    """A session with one branch: header, then user messages, assistant messages with calls, and their results.

    `entry_bytes` is the mean size of a line; `long_line` gives one result that many characters.
    """
    chance = random.Random(seed)  # noqa: S311  # a generator of test data
    pool = [" ".join(chance.choices(WORDS, k=2_000)) for _ in range(50)]
    yield {
        "type": "session",
        "version": 3,
        "id": f"generated-{seed}",
        "timestamp": _time(0),
        "cwd": "/home/dev/work",
    }
    parent: str | None = None
    open_call = ""
    characters = 0
    for number in range(entries):
        entry_id = f"{number + 1:08x}"
        if number % 40 == 0:
            message: dict[str, Any] = {
                "role": "user",
                "content": f"Now look at src/{chance.choice(WORDS)}_{number}.py",
            }
        elif open_call:
            size = (
                long_line
                if long_line and number == entries // 2
                else int(2 * (entry_bytes - ENVELOPE) * chance.uniform(0.7, 1.3))
            )
            text = _text(chance.choice(pool), size, chance)
            characters += len(text)
            message = {
                "role": "toolResult",
                "toolCallId": open_call,
                "toolName": "read",
                "content": [{"type": "text", "text": text}],
                "isError": chance.random() < 0.01,
            }
            open_call = ""
        else:
            open_call = f"call_{number}"
            characters += ANSWER
            message = _assistant(number, open_call, chance, characters // 4)
        yield {
            "type": "message",
            "id": entry_id,
            "parentId": parent,
            "timestamp": _time(number),
            "message": message,
        }
        parent = entry_id


def _assistant(number: int, call_id: str, chance: random.Random, tokens: int) -> dict[str, Any]:
    path = f"src/{chance.choice(WORDS)}/{chance.choice(WORDS)}_{number % 400}.py"
    return {
        "role": "assistant",
        "content": [
            {"type": "text", "text": f"I read {path} to see where {chance.choice(WORDS)} goes."},
            {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": path, "limit": 200}},
        ],
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "usage": {
            "input": 10,
            "output": 50,
            "cacheRead": tokens,
            "cacheWrite": 0,
            "totalTokens": 60 + tokens,
        },
        "stopReason": "toolUse",
    }


def _text(words: str, size: int, chance: random.Random) -> str:
    start = chance.randrange(len(words) // 2)
    piece = words[start:] + f" def {chance.choice(WORDS)}_{chance.randrange(10_000)}():\n"
    return (piece * (size // len(piece) + 1))[:size]


def _time(number: int) -> str:
    """One second per entry, starting on the first of January."""
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def write_session(path: Path, recorded: Iterator[dict[str, Any]]) -> int:
    """Write recorded objects as a session file; returns its size in bytes."""
    encode = msgspec.json.Encoder().encode
    with path.open("wb", buffering=1 << 20) as file:
        for one in recorded:
            file.write(encode(one) + b"\n")
    return path.stat().st_size
