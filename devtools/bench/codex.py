"""Figures of Codex threads: how fast they are read and indexed, and random plans by every writer.

The threads are made from pi sessions, with the lines that Codex records in addition to each item.
"""

import json
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from compaction_app.changes.proof import Rebuilt, certificate_of, require_approved
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import prepare
from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.pure.formats import Append, Generation, NewFile, SessionWriter, WriteFacts, note_text
from sessions_app.sessionlog.entries import Deletion, Entry, Target, request_of
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState
from sessions_app.storage.session_loader import LoadedSession, load_session

from .figures import Figure
from .scale import MEGABYTE, run_command
from .sessions import generate, read_branch, real_sessions

FILES, ENTRIES, ENTRY_BYTES = 2_000, 15, 2_000
"""The pi sessions: they become threads of 60 KB with lines of 1,100 bytes, like those made from real sessions."""
DIFFERENT: Final = 20
PLANS: Final = 1_000
SEED: Final = 17
TIME: Final = "2026-01-05T10:00:00.000Z"


def codex() -> Iterator[Figure]:
    """Index 2,000 threads, read a long one, and certify random accepted plans."""
    # First, because the peak of a child begins with the memory of this process.
    yield from _index()
    yield _reading()
    yield _random_plans()


# ---- threads --------------------------------------------------------------------------------------------------


def rollout_lines(recorded: Iterable[Mapping[str, Any]], thread: str, *, paginated: bool = True) -> Iterator[bytes]:
    """The lines of a thread with the conversation of a pi session, without newlines."""
    meta = {"id": thread, "cwd": "/home/dev/work", "model_provider": "openai", "cli_version": "0.169.0"}
    if paginated:
        meta["history_mode"] = "paginated"
    lines = [("session_meta", meta), ("world_state", {"full": True, "state": {}})]
    for entry in recorded:
        message = entry.get("message")
        if isinstance(message, Mapping):
            lines += _lines_of(message)
    for ordinal, (kind, payload) in enumerate(lines):
        number = {"ordinal": ordinal} if paginated else {}
        yield json.dumps(
            {"timestamp": TIME, **number, "type": kind, "payload": payload}, separators=(",", ":")
        ).encode()


def _lines_of(message: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    role, content = message.get("role"), message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": str(content)}]
    if role == "user":
        yield "turn_context", {"model": "gpt-5", "cwd": "/home/dev/work"}
    if role == "toolResult":
        text = "\n".join(str(block.get("text", "")) for block in blocks)
        output = {"type": "function_call_output", "call_id": message["toolCallId"], "output": text}
        yield "event_msg", {"type": "item_completed", "item": {"type": "CommandExecution", "output": text}}
        yield "response_item", output
    elif role in ("user", "assistant"):
        for block in blocks:
            yield from _lines_of_block(block, role)
    reported = message.get("usage")
    if isinstance(reported, Mapping) and "totalTokens" in reported:
        usage = {"total_tokens": reported["totalTokens"]}
        yield "token_usage_record", {"usage": usage, "thread_token_usage": usage}


def _lines_of_block(block: Mapping[str, Any], role: str) -> Iterator[tuple[str, dict[str, Any]]]:
    text = str(block.get("text") or block.get("thinking") or "")
    if block.get("type") == "toolCall":
        arguments = json.dumps(block.get("arguments"))
        item = {
            "type": "function_call",
            "name": block["name"],
            "arguments": arguments,
            "call_id": block["id"],
        }
    elif block.get("type") == "thinking":
        item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "content": None}
    else:
        kind = "output_text" if role == "assistant" else "input_text"
        item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        yield "event_msg", {"type": "item_completed", "item": {"type": "Message", "content": text}}
    yield "response_item", item


def write_thread(directory: Path, recorded: Iterable[Mapping[str, Any]], *, paginated: bool = True) -> Path:
    """Write a thread to a file with a name as Codex gives it, and return its path."""
    thread = str(uuid.uuid4())
    path = directory / f"rollout-2026-01-05T10-00-00-{thread}.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in rollout_lines(recorded, thread, paginated=paginated)))
    return path


# ---- figures --------------------------------------------------------------------------------------------------


def _reading() -> Figure:
    recorded = generate(entries=10_000, entry_bytes=2_400, seed=SEED)
    content = b"".join(line + b"\n" for line in rollout_lines(recorded, "thread"))
    parser = CODEX.format.parser(ParserState(), [])
    started = time.perf_counter()
    for line in split_lines([content]):
        parser.read(line)
    seconds = time.perf_counter() - started
    return Figure("codex_read", round(len(content) / MEGABYTE / seconds), "MB/s", None)


def _index() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        directory, data = Path(name) / ".codex" / "sessions", Path(name) / "data"
        directory.mkdir(parents=True)
        made = [
            write_thread(directory, generate(entries=ENTRIES, entry_bytes=ENTRY_BYTES, seed=seed))
            for seed in range(DIFFERENT)
        ]
        contents = [path.read_bytes() for path in made]
        for number in range(FILES - DIFFERENT):
            thread = uuid.UUID(int=number)
            path = directory / f"rollout-2026-01-05T10-00-00-{thread}.jsonl"
            path.write_bytes(contents[number % DIFFERENT])
        size = sum(path.stat().st_size for path in directory.iterdir())
        yield Figure("codex_files_megabytes", round(size / MEGABYTE, 1), "MB", None)
        run_command(data, "sessions")
        ran = run_command(data, "index", str(directory))
        yield Figure("index_codex_seconds", ran.document["seconds"], "s", 3)
        yield Figure("index_codex_processor_seconds", ran.processor_seconds, "s", None)
        yield Figure("index_codex_peak", ran.peak_mb, "MB", 200)


def _random_plans() -> Figure:
    chance = random.Random(SEED)  # noqa: S311  # a generator of test data
    failures = made = 0
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        threads = [load_session(path) for path in _threads(Path(name))]
        while made < PLANS:
            loaded, generation = chance.choice(threads), chance.choice(CODEX.format.generations)
            writer = chance.choice(generation.writers)
            if not can_write(generation, writer, paginated=loaded.log.state.extra.get("ordinal") is not None):
                continue
            made += 1
            try:
                certify_plan(loaded, generation, writer, random_plan(loaded, generation, writer, chance, 40))
            except RedlineError:
                failures += 1
    return Figure("codex_plans_not_certified", failures, f"of {made} on {len(threads)} threads", 0)


def _threads(directory: Path) -> Iterator[Path]:
    """Real sessions as threads, by turns of both kinds."""
    real = (read_branch(path).recorded for path in real_sessions())
    made = [*real] or [list(generate(entries=500, entry_bytes=1_000, seed=SEED))]
    for number, recorded in enumerate(made):
        yield write_thread(directory, recorded, paginated=number % 3 > 0)


# ---- plans ----------------------------------------------------------------------------------------------------


def random_plan(
    loaded: LoadedSession, generation: Generation, writer: SessionWriter, chance: random.Random, most: int
) -> ValidatedDeletion:
    """Random entries and blocks that the airlock accepts together, from up to `most` that are tried."""
    branch = loaded.tree.branch(loaded.leaf_id)
    rules = generation.rules.for_writer(writer)
    transcript = prepare(branch, {}, {"preserve_recent": 0, "query": "-"}, rules)
    if transcript is None:
        raise ValueError("the branch is too short")
    store = DeletionStore(transcript)
    targets = [
        target
        for entry in transcript.entries
        if not entry.is_protected
        for target in (
            Target(entry.entry_id),
            *(Target(entry.entry_id, block.index) for block in entry.blocks),
        )
    ]
    for target in chance.sample(targets, chance.randint(1, min(len(targets), most))):
        store.delete(request_of([target]))
    return store.validated()


def can_write(generation: Generation, writer: SessionWriter, *, paginated: bool) -> bool:
    """Whether a writer accepts threads of a kind: older versions do not support paginated ones."""
    return writer.appends or not paginated or generation is CODEX.format.generations[0]


def certify_plan(
    loaded: LoadedSession,
    generation: Generation,
    writer: SessionWriter,
    plan: ValidatedDeletion,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Compare the context after a write with the approved one, as a commit does. Raises the errors of a commit."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name, CODEX.store.open(loaded.path) as file:
        branch = loaded.tree.branch(loaded.leaf_id)
        before = Rebuilt(
            generation.reader.rebuild(branch),
            lambda entry: file.read_at(entry.offset, entry.length),
            loaded.leaf_id,
        )
        after = load_session(write_plan(loaded, writer, plan, Path(name), notes))
        with CODEX.store.open(after.path) as changed:
            rebuilt = Rebuilt(
                generation.reader.rebuild(after.tree.branch(after.leaf_id)),
                lambda entry: changed.read_at(entry.offset, entry.length),
                after.leaf_id,
            )
            said = [note_text(words) for words in (notes or {}).values()]
            require_approved("a thread", writer, CODEX, before, plan.targets, rebuilt, said)
            certificate_of("a thread", generation, before, rebuilt, datetime.now(UTC))


def write_plan(
    loaded: LoadedSession,
    writer: SessionWriter,
    plan: ValidatedDeletion,
    directory: Path,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Copy the thread to a directory and write the plan; returns the copy or, if the writer makes one, the new file.
    `notes` are those of the user, as in `WriteFacts`.
    """
    copy = directory / loaded.path.name
    if copy != loaded.path:
        copy.write_bytes(loaded.path.read_bytes())
    with CODEX.store.open(loaded.path) as file:
        facts = facts_of(loaded, lambda entry: file.read_at(entry.offset, entry.length))
        facts = replace(facts, notes=notes or {})
        deletion = Deletion(plan.targets, plan.protected_entry_ids, plan.stats)
        change = writer.write(loaded.tree.branch(loaded.leaf_id), deletion, facts)
        if isinstance(change, Append):
            with copy.open("ab") as output:
                output.writelines(line + b"\n" for line in change.lines)
            return copy
        if not isinstance(change, NewFile):
            raise TypeError(f"{writer.name} changes rows, and a thread has none")
        new = directory / change.name
        new.write_bytes(b"".join(change.pieces))
        return new


def facts_of(loaded: LoadedSession, line: Callable[[Entry], bytes]) -> WriteFacts:
    """The input of a writer; `line` reads the recorded bytes of an entry."""
    if loaded.log.header is None:
        raise ValueError("the thread has no header")
    return WriteFacts(
        new_id=lambda: "",
        session_id=str(uuid.uuid4()),
        written_at=datetime.now(UTC),
        session=str(loaded.path),
        header=loaded.log.header,
        backup="/backup",
        line=line,
        labels={},
        state=loaded.log.state,
        lines=loaded.path.read_bytes().splitlines,
    )
