"""Compacted sessions of pi, Atomic, Codex and Claude Code, and their contexts as the agents' readers rebuild them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.changes.undo import UndoRequest, planned, undo
from compaction_app.models import Compaction
from sessions_app.agents.registry import GENERATIONS, READERS
from sessions_app.disk.files import SessionReader
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file, select_reader
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import SESSION_ID, ClaudeSession, call as claude_call, text as claude_text
from tests.factories import assistant, message, session_bytes, text, user, working_session
from tests.files import append_as_agent, backdate, place
from tests.installation import Installation
from tests.plans import approved_plan
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout


@dataclass(frozen=True)
class Scene:
    """A session, and the reader and writer by which it is compacted."""

    path: Path
    reader: str
    writer: str

    def compact(self, **own: object) -> Applied:
        approved = approved_plan(self.path, writer=self.writer, reader=self.reader, **own)
        made = commit(approved, Confirmations(live=True, below_target=True), datetime.now(UTC))
        backdate(self.path)
        return made

    def context(self, path: Path | None = None, leaf_id: str | None = None) -> list[Any]:
        """The messages that the agent rebuilds, with their contents."""
        loaded = load_session(path or self.path)
        agent, generation = GENERATIONS[self.reader]
        branch = loaded.tree.branch(leaf_id or loaded.leaf_id)
        with SessionReader(loaded.path) as reader:
            return [
                agent.format.message_json(
                    found,
                    reader.read_at(found.entry.offset, found.entry.length),
                    reader.read_at(found.edit.offset, found.edit.length) if found.edit is not None else None,
                )
                for found in generation.reader.rebuild(branch).messages
            ]

    def ids(self, path: Path | None = None) -> list[str]:
        """The ids of the messages that the agent rebuilds."""
        loaded = load_session(path or self.path)
        return [found.entry.id for found in READERS[self.reader].rebuild(loaded.tree.branch(loaded.leaf_id)).messages]

    def continue_with(self, *words: str) -> None:
        """The user and the agent say more, at the end of the active branch."""
        parent, added = load_session(self.path).leaf_id, []
        for number, said in enumerate(words):
            entry_id = f"m{number}-{parent}"
            recorded = user(said) if number % 2 == 0 else assistant(text(said))
            added.append(message(entry_id, parent, recorded))
            parent = entry_id
        with self.path.open("ab") as file:
            file.write(session_bytes(added))
        backdate(self.path, hours=0.5)

    def append(self, *lines: dict[str, Any] | bytes) -> None:
        """Others append lines, an hour ago; bytes are a part of a line."""
        append_as_agent(self.path, b"".join(x if isinstance(x, bytes) else session_bytes([x]) for x in lines))
        backdate(self.path)

    def request(self, *entry_ids: str, name: str = "") -> UndoRequest:
        return UndoRequest(Document.to_change(self.path), name=name, entry_ids=entry_ids)

    def undo(self, *entry_ids: str, name: str = "", **confirmations: bool) -> Applied:
        request = self.request(*entry_ids, name=name)
        shown = planned(request, datetime.now(UTC)).digest()
        undone = undo(request, Confirmations(**confirmations), datetime.now(UTC), shown=shown)
        if undone.made.created is None and self.path.exists():
            backdate(self.path)
        return undone

    def last_lines(self, count: int) -> list[Any]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()[-count:]]


def scene(redline: Installation, reader: str, writer: str, *, steps: int = 6) -> Scene:
    directory = ".pi" if reader.startswith("pi") else ".atomic"
    path = redline.home / directory / "agent" / "sessions" / "s.jsonl"
    place(path, session_bytes(working_session(steps=steps)))
    return Scene(path, reader, writer)


def codex_scene(redline: Installation, rollout: Rollout, writer: str) -> Scene:
    """A thread of Codex, among Codex's own files."""
    directory = redline.home / ".codex" / "sessions" / "2026" / "01" / "05"
    path = directory / f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl"
    place(path, rollout.content)
    return Scene(path, "codex", writer)


def claude_scene(redline: Installation, session: ClaudeSession, writer: str = "boundary") -> Scene:
    path = redline.home / ".claude" / "projects" / "-home-dev-project" / f"{SESSION_ID}.jsonl"
    select_reader(index_file(place(path, session.content)), "claude-code")
    return Scene(path, "claude-code", writer)


def claude_work() -> ClaudeSession:
    """A session worth compacting: a prompt, then calls with long results, then a reply."""
    session = ClaudeSession("Look at everything.")
    for step in range(12):
        session.reply(f"m{step}", claude_text(f"step {step}"), claude_call(f"c{step}"))
        session.result(f"c{step}", f"result {step} " * 400)
    session.reply("m", claude_text("Done."))
    return session


def claude_continues(scene: Scene, reply_id: str) -> list[str]:
    """One more turn, which the client hangs on the last line that it was shown; returns the ids of its lines."""
    session = ClaudeSession()
    session.lines, session.last = scene.path.read_bytes().splitlines(), scene.ids()[-1]
    added = [session.user("And now?"), *session.reply(reply_id, claude_text("Later."))]
    place(scene.path, session.content)
    return added


def refused(act: Callable[[], object]) -> str:
    """The code of the error that an act raises."""
    with pytest.raises(RedlineError) as caught:
        act()
    return caught.value.code


def deleted_by(committed: Applied) -> list[Target]:
    return list(committed.plan.validated.targets)


def only_compaction() -> Compaction:
    return Compaction.objects.get()
