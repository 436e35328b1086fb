"""Hand-written session files: messages, content blocks, entries, and whole sessions."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from compaction_app.core import transcript as core
from compaction_app.core.transcript import Transcript
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.pi.pure.parser import SessionParser
from sessions_app.agents.pure.formats import PlanRules, WriteFacts
from sessions_app.sessionlog.entries import Entry, Target, Texts, request_of
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import DamageKind, Header, SessionLog, read_session
from sessions_app.sessionlog.tree import SessionTree

HEADER: dict[str, Any] = {
    "type": "session",
    "version": 3,
    "id": "00000000-0000-7000-8000-000000000001",
    "timestamp": "2026-01-05T10:00:00.000Z",
    "cwd": "/home/dev/project",
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), "stopReason": "stop", **fields}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "thinkingSignature": "sig"}


def call(call_id: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def result(call_id: str, words: str = "done", *, error: bool = False, name: str = "read") -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": call_id, "toolName": name, "content": [text(words)], "isError": error}


def bash(command: str, output: str, exit_code: int = 0, **fields: Any) -> dict[str, Any]:
    return {"role": "bashExecution", "command": command, "output": output, "exitCode": exit_code, **fields}


def custom(words: str) -> dict[str, Any]:
    return {"role": "custom", "customType": "note", "content": words}


def branch_summary(words: str) -> dict[str, Any]:
    return {"type": "branch_summary", "summary": words}


def image() -> dict[str, Any]:
    return {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def whole(entry_id: str) -> dict[str, Any]:
    """The deletion target of an entry."""
    return {"kind": "entry", "entryId": entry_id}


def block(entry_id: str, index: Any) -> dict[str, Any]:
    """The deletion target of a content block."""
    return {"kind": "content_block", "entryId": entry_id, "blockIndex": index}


def compaction(*targets: dict[str, Any]) -> dict[str, Any]:
    """A `context_compaction` entry with these deletions, for `chain`."""
    return {"type": "context_compaction", "deletedTargets": list(targets)}


def message(entry_id: str, parent: str | None, recorded: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "t", "message": recorded}


def summary_compaction(summary: str, first_kept: object) -> dict[str, Any]:
    """A `compaction` entry of the older, summarising kind, for `chain`."""
    return {"type": "compaction", "summary": summary, "firstKeptEntryId": first_kept}


def verbatim_compaction(lines: str, first_kept: object) -> dict[str, Any]:
    """A `compaction` entry as Atomic writes it from 0.9.9 on, for `chain`."""
    return summary_compaction(lines, first_kept) | {"details": {"strategy": "verbatim-lines"}}


def context_edit(target: object, replacement: object) -> dict[str, Any]:
    return {"type": "context_edit", "targetId": target, "replacement": replacement}


def chain(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Header and entries with ids e1, e2, … in one branch. Anything with a `type` is an entry, otherwise a message."""
    recorded = [HEADER]
    parent: str | None = None
    for number, one in enumerate(messages, 1):
        entry_id = f"e{number}"
        if "type" in one:
            recorded.append({"id": entry_id, "parentId": parent, "timestamp": "t", **one})
        else:
            recorded.append(message(entry_id, parent, one))
        parent = entry_id
    return recorded


V1_HEADER = {key: value for key, value in HEADER.items() if key != "version"}


def version_1(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Header and entries of a version 1 file, without ids. Anything with a `type` is an entry, otherwise a message."""
    return [V1_HEADER, *(one if "type" in one else {"type": "message", "message": one} for one in messages)]


def turns_of_work(turns: int) -> list[dict[str, Any]]:
    """Turns of a question, a call that reads a file, its result of about 5,000 tokens, and an answer."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages += [
            user(f"Question {turn}: look at the cache."),
            assistant(text("I look."), call(f"c{turn}", path=f"src/cache_{turn}.py")),
            result(f"c{turn}", "word " * 4_000),
            assistant(text(f"Answer {turn}.")),
        ]
    return chain(*messages)


def mended_parser(name: str, *, turns: int, steps: int, lines: int) -> list[dict[str, Any]]:
    """Turns of the task `Mend the NAME parser, part 1.`, each with steps that read a file of so many lines."""
    messages: list[dict[str, Any]] = []
    for turn in range(1, turns + 1):
        messages.append(user(f"Mend the {name} parser, part {turn}."))
        for step in (f"{turn}_{number}" for number in range(steps)):
            read = "\n".join(f"line {number} of {step}" for number in range(lines))
            messages += [assistant(text("I look."), call(f"c{step}", path=f"src/{step}.py")), result(f"c{step}", read)]
        messages.append(assistant(text("Mended.")))
    return chain(*messages)


def session_bytes(recorded: Iterable[dict[str, Any] | bytes]) -> bytes:
    """The bytes of a session file; bytes are taken as lines."""
    lines = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in recorded)
    return b"".join(line + b"\n" for line in lines)


def read_log(data: bytes) -> SessionLog:
    return read_session(SessionParser(), split_lines([data]), "the session")


def session_log(recorded: Iterable[dict[str, Any] | bytes]) -> SessionLog:
    return read_log(session_bytes(recorded))


def damage_of(found: SessionLog | SessionTree) -> list[tuple[DamageKind, int]]:
    """Kinds of damage, with their lines."""
    return [(one.kind, one.number) for one in found.damage]


def branch_of(recorded: Iterable[dict[str, Any] | bytes], leaf: str | None = None) -> list[Entry]:
    tree = SessionTree(session_log(recorded).entries)
    return tree.branch(leaf or tree.leaf.id)


def branch_and_texts(data: bytes, leaf: str | None = None) -> tuple[list[Entry], dict[str, Texts]]:
    """A branch of a session file's bytes, and the texts of all its entries."""
    parser = SessionParser()
    found = [one for line in split_lines([data]) for one in parser.read(line)]
    tree = SessionTree([one.entry for one in found])
    return tree.branch(leaf or tree.leaf.id), {one.entry.id: one.texts for one in found}


def write_facts(
    recorded: Sequence[dict[str, Any] | bytes], ids: Iterable[str] = (), labels: Mapping[str, str] | None = None
) -> WriteFacts:
    """The facts for a writer on the session `recorded`, with these new ids, or n1, n2, …; bytes are taken as lines."""
    raws = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in recorded]
    lines = {json.loads(raw)["id"]: raw for raw in raws}
    found = iter(ids) if ids else (f"n{number}" for number in itertools.count(1))
    return WriteFacts(
        new_id=found.__next__,
        session_id="5e55-fork",
        written_at=datetime(2026, 1, 5, 10, 0, tzinfo=UTC),
        session="/sessions/a.jsonl",
        header=Header("s", 3, "/work", "2026-01-01T00:00:00.000Z", ""),
        backup="/sessions/a.jsonl.bak",
        line=lambda entry: lines[entry.id],
        labels=labels or {},
    )


def prepare(
    branch: Sequence[Entry],
    texts: Mapping[str, Texts],
    settings: Mapping[str, object],
    is_noise: Callable[[str], bool] | None = None,
    rules: PlanRules = ATOMIC.format.generations[-1].rules,
) -> Transcript | None:
    """The transcript of a branch, by Atomic's rules if no others are given."""
    return core.prepare(branch, texts, settings, rules, is_noise)


def transcript_of(
    *messages: dict[str, Any], rules: PlanRules = ATOMIC.format.generations[-1].rules, **settings: object
) -> Transcript:
    """The transcript of `chain(*messages)`; by default no entry is recent."""
    branch, texts = branch_and_texts(session_bytes(chain(*messages)))
    transcript = prepare(branch, texts, {"preserve_recent": 0, **settings}, rules=rules)
    assert transcript is not None
    return transcript


def working_session(*, steps: int = 12, words: int = 300) -> list[dict[str, Any]]:
    """A session worth compacting, in one branch: a task, then calls with long results, then a final message.

    Its ids are e1, e2, …; step n calls `c{n}` in e{2n}, and e{2n+1} answers. The last entry is e{2 steps + 3}.
    """
    worked = [
        recorded
        for step in range(1, steps + 1)
        for recorded in (
            assistant(text(f"Step {step}."), call(f"c{step}", path=f"src/part_{step}.py")),
            result(f"c{step}", " ".join(f"line_{step}_{number}" for number in range(words))),
        )
    ]
    return chain(user("Mend the parser."), *worked, assistant(text("It is mended.")), user("Now the tests."))


def conversation(*words: str) -> list[dict[str, Any]]:
    """A session with one turn per argument: the user's message, an answer with a call, and its result."""
    turns = []
    for number, word in enumerate(words):
        turns += [
            user(word),
            assistant(thinking("hm"), text(f"about {word}"), call(f"c{number}", path=f"src/{number}.py")),
            result(f"c{number}", f"result of {word}"),
        ]
    return chain(*turns)


def targets(words: str) -> list[Target]:
    """Deletion targets by their names: `e6` is an entry, and `e6[1]` the block with index 1 of it."""
    found = []
    for word in words.split():
        entry_id, bracket, index = word.partition("[")
        found.append(Target(entry_id, int(index.rstrip("]")) if bracket else None))
    return found


def deletions(words: str) -> dict[str, Any]:
    """A request to delete these `targets`."""
    return request_of(targets(words))


def named(*chosen: Target) -> str:
    """The names of targets, as `targets` reads them."""
    return " ".join(one.entry_id if one.block_index is None else f"{one.entry_id}[{one.block_index}]" for one in chosen)
