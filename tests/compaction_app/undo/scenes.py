"""Compacted sessions of pi, Atomic and Codex, and their contexts as the agents' readers rebuild them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import Committed, commit
from compaction_app.models import Compaction
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import Undone, UndoRequest, planned, undo
from sessions_app.agents.registry import GENERATIONS
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.files import SessionReader
from sessions_app.storage.session_loader import load_session
from tests.factories import assistant, message, session_bytes, text, user, working_session
from tests.files import backdate, place
from tests.installation import Installation
from tests.plans import approved_plan
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout


@dataclass(frozen=True)
class Scene:
    """A session, and the reader and writer by which it is compacted."""

    path: Path
    reader: str
    writer: str

    def compact(self, **own: object) -> Committed:
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
                agent.message_json(
                    found,
                    reader.read_at(found.entry.offset, found.entry.length),
                    reader.read_at(found.edit.offset, found.edit.length) if found.edit is not None else None,
                )
                for found in generation.reader.rebuild(branch).messages
            ]

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

    def request(self, *entry_ids: str, name: str = "") -> UndoRequest:
        return UndoRequest(load_session(self.path), name=name, entry_ids=entry_ids)

    def undo(self, *entry_ids: str, name: str = "", **confirmations: bool) -> Undone:
        request = self.request(*entry_ids, name=name)
        shown = planned(request, datetime.now(UTC)).digest()
        undone = undo(request, UndoConfirmations(**confirmations), datetime.now(UTC), shown=shown)
        if undone.created is None and self.path.exists():
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


def deleted_by(committed: Committed) -> list[Target]:
    return list(committed.validated.targets)


def only_compaction() -> Compaction:
    return Compaction.objects.get()
