"""What a thread of Amp has: all its messages. What a continued thread sends is decided on Amp's servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.agents.pure.format import NewFile, PlainWriter, WriteFacts
from sessions_app.sessionlog.context import ActiveContext, keep
from sessions_app.sessionlog.entries import Deletion, Entry, EntryKind
from sessions_app.sessionlog.errors import BadInput


class AmpReader:
    """Amp's local threads."""

    name: Final = "amp"
    honours: Final[frozenset[EntryKind]] = frozenset()

    def ignores(self, entry: Entry) -> bool:
        return entry.rebuilds

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        messages = (keep(entry) for entry in branch if entry.is_message)
        return ActiveContext(self.name, tuple(message for message in messages if message is not None), None)


class HandoffWriter(PlainWriter):
    """Writes nothing: there is no form in which Amp would honour a deletion."""

    name: Final = "handoff"
    appends: Final = False
    effect: Final = (
        "Nothing can be written: Amp keeps its threads on its servers, and imports none. What is kept can be pasted "
        "into a new thread, as Markdown."
    )
    undo: Final = "There is nothing to undo."

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> NewFile:
        del branch, deletion
        raise BadInput(
            "read_only_agent",
            f"{facts.session} is a thread of Amp, which keeps its threads on its servers and imports none. Nothing was "
            "written. Start a new thread in Amp, and paste what you keep into it.",
        )
