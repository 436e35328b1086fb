"""A branch of a session as a file: Markdown, a self-contained page, or the recorded lines.

All forms are generated in pieces while they are written or sent: a session of 100 MB takes no more memory than its
longest line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from compaction_app.rendering.exported import ExportHead, SpokenEntry, markdown_pieces, page_pieces
from compaction_app.rendering.pictures import Picture
from sessions_app.agents.base import Agent
from sessions_app.agents.registry import agent_at
from sessions_app.disk.files import Fingerprint, SessionReader
from sessions_app.document.document import Document
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import NO_TEXTS, BlockType, Texts
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.text import plural
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.session_loader import read_texts

from .branches import VIEWS, messages_in
from .view import LINE_BYTES, PICTURE_MARK, pictures_of_message

BATCH_ENTRIES: Final = 200
BATCH_BYTES: Final = 4_000_000
"""The maximum numbers of entries and of bytes that are read at a time."""


class ExportForm(NamedTuple):
    """A form in which a branch is exported."""

    suffix: str
    content_type: str
    label: str


FORMS: Final = {
    "markdown": ExportForm(".md", "text/markdown; charset=utf-8", "Markdown"),
    "html": ExportForm(".html", "text/html; charset=utf-8", "HTML"),
    "jsonl": ExportForm(".jsonl", "application/x-ndjson", "JSONL"),
}
_IN_NAMES: Final = {"sees": "-context", "all": "", "removed": "-removed"}


def export_name(path: Path, form: str, view: str) -> str:
    """The name of the exported file of a session."""
    return Path(f"{path.stem}{_IN_NAMES[view]}{FORMS[form].suffix}").name


@dataclass(frozen=True, slots=True)
class BranchExport:
    """A branch to be exported, and its source file."""

    agent: Agent
    path: Path
    fingerprint: Fingerprint
    tree: SessionTree
    view: str
    messages: Sequence[Message]
    """The messages of the view: see `messages_in`."""
    head: ExportHead

    @classmethod
    def of(cls, document: Document, leaf_id: str, view: str, title: str, about: Iterable[str]) -> BranchExport:
        """The export of a branch of a document; its head has the title and the facts about the session.

        Raises the errors of `Document.branch`.
        """
        branch = document.branch(leaf_id)
        messages = messages_in(view, branch, document.reading.reader.rebuild(branch))
        facts = [*filter(None, about), VIEWS[view].lower(), plural(len(messages), "entry"), f"leaf {leaf_id}"]
        head = ExportHead(title, facts)
        agent = agent_at(document.path)
        return cls(agent, document.path, document.fingerprint, document.tree, view, messages, head)

    def pieces(self, form: str) -> Iterator[bytes]:
        """The file in one of FORMS. Raises Conflict if the session was rewritten."""
        if form == "jsonl":
            return self._lines()
        make = markdown_pieces if form == "markdown" else page_pieces
        return (piece.encode("utf-8", "backslashreplace") for piece in make(self.head, self._spoken()))

    def _lines(self) -> Iterator[bytes]:
        """The lines of the session without those that only have entries of other branches or views."""
        own = {message.source.number for message in self.messages}
        is_whole = self.view == "all"
        others = {entry.number for entry in self.tree.entries if not (is_whole and entry.is_off_branch)} - own
        read_texts(self.path, self.fingerprint, ())
        with self.agent.store.open(self.path) as reader:
            for line in split_lines(reader.chunks(0)):
                if line.end > self.fingerprint.size:
                    break
                if line.number not in others:
                    yield line.raw + b"\n"

    def _spoken(self) -> Iterator[SpokenEntry]:
        """The entries of the view with their texts and pictures, root first."""
        with self.agent.store.open(self.path) as reader:
            for batch in _batches(self.messages):
                texts = read_texts(self.path, self.fingerprint, [message.source for message in batch])
                for message in batch:
                    own = texts.get(message.source.id, NO_TEXTS)
                    pictures = self._pictures(reader, message, own)
                    yield SpokenEntry(message.entry, own, message.blocks or (), pictures)

    def _pictures(self, reader: SessionReader, message: Message, texts: Texts) -> Sequence[Picture]:
        entry = message.source
        has_images = any(block.type == BlockType.IMAGE for block in message.blocks or ())
        if not entry.is_message or entry.length > LINE_BYTES or not (has_images or PICTURE_MARK in (texts.whole or "")):
            return ()
        return pictures_of_message(self.agent, reader, message)


def note_of(agent: Agent, path: Path, view: str) -> str:
    """A sentence about the use of the recorded lines of a view of a session."""
    if view != "all":
        return "Recorded lines are whole, also those of entries of which only a part is in this view."
    if _is_session(agent, path):
        return f"{agent.label} opens these lines as a session, if they are placed among its own under such a name."
    return f"{agent.label} does not keep this session as such lines, so it does not open them."


def _is_session(agent: Agent, path: Path) -> bool:
    """Whether the recorded lines are what the agent keeps in a file: rows, documents and joined files are not."""
    if agent.store.database(path) is not None or not path.is_file():
        return False
    with agent.store.open(path) as reader:
        return reader.stat().st_size == path.stat().st_size


def _batches(messages: Sequence[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        length = message.source.length
        if batch and (len(batch) == BATCH_ENTRIES or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        yield batch
