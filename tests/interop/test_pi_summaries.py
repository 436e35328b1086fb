"""Real pi: it would summarise what Redline would, and rebuilds the same context after the lines of a summary."""

import itertools
import json
import os
import random
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from compaction_app.core.summary_ranges import (
    SummaryRange,
    branch_left,
    compaction_range,
    messages_of,
    tokens_before,
    within_budget,
)
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.edge.client import PACKAGE
from sessions_app.agents.pi.pure.format import PiReader
from sessions_app.agents.pure.formats import FileLists
from sessions_app.disk.files import SessionReader
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import BlockType, Entry, EntryKind, Role
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import Header
from sessions_app.storage.session_certificate import rebuilt_messages
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests import factories
from tests.interop.pi_runs import PINNED, installed_pis, node_of
from tests.interop.pi_sessions import NAMES, SMALLEST, core, rebuilt_by_pi

SCRIPT: Final = Path(__file__).with_name("summaries.mjs")
KEPT: Final = (1, 5_000, 20_000, 90_000)
BUDGETS: Final = (300, 8_000, 111_616)
LEAVES: Final = 8
MOMENT: Final = datetime(2026, 11, 23, 10, tzinfo=UTC)
LIMIT: Final = 120
GENERATED: Final = 600
REFERENCES: Final = ("id", "parentId", "firstKeptEntryId", "targetId")
USAGE: Final = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
FORMAT: Final = PI.format.summary_format
NEW_HEADER: Final = Header("00000000-0000-7000-8000-00000000000a", 3, "/work", "2026-01-01T00:00:00.000Z", "")
WORDS: Final = "## Goal\nMend the parser.\n\n<read-files>\na.py\n</read-files> naïve 🙂"


@dataclass(frozen=True)
class Work:
    """A copy of a session, and what Redline reads in it."""

    loaded: LoadedSession
    reader: SessionReader

    @property
    def path(self) -> Path:
        return self.loaded.path

    def line(self, entry: Entry) -> bytes:
        return self.reader.read_at(entry.offset, entry.length)

    def context(self, leaf_id: str) -> ActiveContext:
        return PiReader().rebuild(self.loaded.tree.branch(leaf_id))

    def leaves(self) -> list[str]:
        entries = self.loaded.tree.entries
        return [*(entry.id for entry in entries[:: max(1, len(entries) // LEAVES)]), self.loaded.leaf_id]

    def messages(self, messages: Iterable[Message]) -> list[Mapping[str, Any]]:
        edits = ((one, self.line(one.edit) if one.edit is not None else None) for one in messages)
        return [PI.format.message_json(one, self.line(one.entry), edit) for one, edit in edits]

    def recorded(self, entries: Iterable[Entry | None]) -> list[dict[str, Any]]:
        return [json.loads(self.line(entry)) for entry in entries if entry is not None]


@contextmanager
def opened(path: Path) -> Iterator[Work]:
    loaded = load_session(path)
    with SessionReader(loaded.path) as reader:
        yield Work(loaded, reader)


@pytest.fixture(params=[pytest.param(name, marks=core if name == SMALLEST else ()) for name in NAMES])
def work(request, sessions, tmp_path):
    """A copy of each session, in the current version and with a header: pi gives other ids to older ones."""
    path = tmp_path / "session.jsonl"
    with SessionReader(sessions[request.param]) as reader:
        lines = split_lines(reader.chunks(0))
        try:
            path.write_bytes(b"".join(PI.format.migrate(lines, request.param, NEW_HEADER)))
        except BadInput:
            path.write_bytes(sessions[request.param].read_bytes())
    with opened(path) as found:
        yield found


def asked(work: Work, requests: list[dict[str, Any]]) -> Iterator[tuple[Path, dict[str, Any], Any]]:
    """The answers of each installed pi to requests about a session, with its directory and the request."""
    copy = work.path.with_name("asked.jsonl")
    for directory in installed_pis():
        copy.write_bytes(work.path.read_bytes())
        ended = subprocess.run(
            [node_of(directory), str(SCRIPT), str(directory / "node_modules" / PACKAGE), str(copy)],
            input="\n".join(map(json.dumps, requests)).encode(),
            env={"HOME": str(copy.parent), "PATH": os.environ["PATH"]},
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
        assert not ended.returncode, ended.stderr.decode()
        answers = map(json.loads, ended.stdout.splitlines())
        yield from zip([directory] * len(requests), requests, answers, strict=True)


def conversation(work: Work, messages: Iterable[Message], directory: Path) -> str:
    """The messages as text, without summaries, which Redline introduces in its own words, and without thinking for the
    newest pi, which does not show it to the model any more."""
    summaries = (Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY)
    said = work.messages(one for one in messages if one.role not in summaries)
    return FORMAT.conversation(said if directory == PINNED else [without_thinking(one) for one in said])


def without_thinking(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if message["role"] != Role.ASSISTANT:
        return message
    blocks = [block for block in message["content"] if block["type"] != BlockType.THINKING]
    return {**message, "content": blocks}


def lists(found: Mapping[str, list[str]]) -> FileLists:
    return FileLists(tuple(found["readFiles"]), tuple(found["modifiedFiles"]))


def require_same_compactions(work: Work, requests: list[dict[str, Any]]) -> None:
    for directory, request, answer in asked(work, requests):
        context = work.context(request["leaf"])
        found = compaction_range(work.loaded.tree.branch(request["leaf"]), request["keep"], context)
        assert (found is None) == (answer is None), request
        if found is not None:
            check_compaction(work, found, context, answer, directory)


def test_pi_would_replace_and_keep_the_same(work):
    require_same_compactions(work, [{"leaf": leaf, "keep": keep} for leaf in work.leaves() for keep in KEPT])


def test_pi_would_replace_and_keep_the_same_of_generated_sessions(tmp_path):
    generated = [f"s{number:03}-" for number in range(GENERATED)]
    lines = (line for one in generated for line in generated_lines(one))
    path = tmp_path / "session.jsonl"
    path.write_bytes(factories.session_bytes([factories.HEADER, *lines]))
    with opened(path) as work:
        last = {entry.id[: len(generated[0])]: entry.id for entry in work.loaded.tree.entries}
        kept = (1, 20, 60, 150)
        require_same_compactions(work, [{"leaf": last[one], "keep": keep} for one in generated for keep in kept])


def generated_lines(prefix: str) -> Iterator[dict[str, Any]]:
    """The entries of a session of up to 20 entries, the ids of which begin with the prefix."""
    generator = random.Random(prefix)
    for line in factories.chain(*(generated_entry(generator) for _ in range(generator.randrange(1, 20))))[1:]:
        references = {name: f"{prefix}{line[name]}" for name in REFERENCES if line.get(name)}
        yield {**line, "timestamp": "2026-01-05T10:00:00.000Z", **references}


def generated_entry(generator: random.Random) -> dict[str, Any]:
    words = "word" * generator.choice([1, 5, 30, 90])
    earlier, call_id = f"e{generator.randrange(1, 20)}", f"c{generator.randrange(4)}"
    tool = generator.choice(["read", "write", "edit", "bash"])
    made = factories.call(call_id, tool, path=generator.choice("abcé😀\uffff"))
    blocks = generator.choices([factories.text(words), factories.thinking(words), made], k=generator.randrange(3))
    usage = {**USAGE, "totalTokens": generator.choice([0, 500])}
    stop = generator.choice(["stop", "error", "aborted"])
    answer = factories.assistant(*blocks, usage=usage, stopReason=stop)
    replacement = generator.choice([None, {"content": "shorter"}, {"content": [factories.text("a")]}])
    entries = [
        *[factories.user(words)] * 4,
        *[answer] * 6,
        *[factories.result(call_id, words)] * 4,
        factories.bash("ls", words, generator.choice([0, 1])),
        factories.bash("ls", words, excludeFromContext=True),
        factories.custom(words),
        {**factories.branch_summary(words), "fromId": "x"},
        {"type": "model_change", "provider": "p", "modelId": "m"},
        {**factories.summary_compaction(words, earlier), "tokensBefore": 5},
        factories.context_edit(earlier, replacement),
    ]
    return generator.choice(entries)


def check_compaction(
    work: Work, found: SummaryRange, context: ActiveContext, answer: Mapping[str, Any], directory: Path
) -> None:
    assert found.first_kept_id == answer["firstKeptEntryId"]
    assert tokens_before(context) == answer["tokensBefore"]
    earlier = work.recorded([found.previous_summary])
    assert [one["summary"] for one in earlier] == [one for one in [answer["previousSummary"]] if one is not None]
    messages = work.messages(messages_of(found.summarised, context))
    assert FORMAT.files(messages, earlier) == lists(answer["files"])
    parts = [conversation(work, messages_of(part, context), directory) for part in (found.replaced, found.prefix)]
    theirs = [answer["history"], answer["prefix"]]
    if any(found.first_kept_id == one.entry.id for one in context.messages):
        assert parts == theirs
    else:
        # The kept part does not begin with a message: pi takes the turn before for a split one.
        assert "\n\n".join(filter(None, parts)) == "\n\n".join(filter(None, theirs))


def test_pi_would_summarise_the_same_of_a_branch_that_is_left(work):
    leaves = work.leaves()
    cases = itertools.product(leaves, (leaves[0], leaves[len(leaves) // 2]), BUDGETS)
    requests = [{"old": old, "target": target, "budget": budget} for old, target, budget in cases]
    for directory, request, answer in asked(work, requests):
        left = branch_left(work.loaded.tree, request["old"], request["target"])
        assert left.ancestor_id == answer["commonAncestorId"]
        assert [entry.id for entry in left.entries] == answer["entries"]
        found = within_budget(left.entries, request["budget"])
        assert found.tokens == answer["totalTokens"]
        assert conversation(work, messages_of(found.entries), directory) == answer["conversation"]


def appended(work: Work, line: bytes) -> LoadedSession:
    """The session with another line, which is then its leaf; pi and Redline rebuild the same."""
    content = work.path.read_bytes()
    ending = b"" if content.endswith(b"\n") else b"\n"
    path = work.path.with_name("appended.jsonl")
    path.write_bytes(content + ending + line + b"\n")
    loaded = load_session(path)
    assert loaded.leaf_id == "a1b2c3d4"
    context = PiReader().rebuild(loaded.tree.branch(loaded.leaf_id))
    assert rebuilt_by_pi(path) == rebuilt_messages(loaded, PI, context)
    return loaded


def test_after_a_branch_summary_pi_continues_where_it_says(work):
    leaves = work.leaves()
    for parent_id in (leaves[len(leaves) // 2], leaves[-1], None):
        left = branch_left(work.loaded.tree, work.loaded.leaf_id, parent_id)
        files = FORMAT.files(work.messages(messages_of(left.entries)))
        said: Any = {"from_id": work.loaded.leaf_id, "summary": WORDS, "files": files}
        line = FORMAT.branch_summary_line("a1b2c3d4", parent_id, MOMENT, **said)
        loaded = appended(work, line)
        before = work.context(parent_id).messages if parent_id is not None else ()
        now = PiReader().rebuild(loaded.tree.branch(loaded.leaf_id)).messages
        assert [one.entry.id for one in now] == [*(one.entry.id for one in before), "a1b2c3d4"]
        assert PI.format.recorded_summary(line).files == files


@pytest.mark.parametrize("keep", [1, 5_000, 20_000])
def test_after_a_compaction_pi_has_the_summary_and_what_was_kept(work, keep):
    leaf_id = work.loaded.leaf_id
    context = work.context(leaf_id)
    found = compaction_range(work.loaded.tree.branch(leaf_id), keep, context)
    if found is None:
        # The last entry is a compaction, or everything is kept.
        is_compacted = work.loaded.tree.leaf.kind is EntryKind.SUMMARY
        assert is_compacted or context.estimate < keep + context.messages[0].tokens
        return
    line = FORMAT.compaction_line(
        *("a1b2c3d4", leaf_id, MOMENT),
        summary=WORDS,
        first_kept_id=found.first_kept_id,
        tokens_before=tokens_before(context),
        files=FORMAT.files(work.messages(messages_of(found.summarised, context))),
    )
    loaded = appended(work, line)
    kept = {entry.id for entry in found.kept}
    stays = [one.entry.id for one in context.messages if one.entry.id in kept and one.role != Role.SYSTEM]
    now = PiReader().rebuild(loaded.tree.branch(loaded.leaf_id)).messages
    assert [one.entry.id for one in now] == ["a1b2c3d4", *stays]
