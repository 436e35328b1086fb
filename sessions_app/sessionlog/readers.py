"""How each agent reads the same file: the seam between a branch and its active context.

| reader       | leaves out                                          | honours a `context_compaction` |
|--------------|-----------------------------------------------------|--------------------------------|
| `atomic-0.8` | what the branch's `context_compaction` entries name | yes                            |
| `pi`         | what precedes the latest `compaction`; then applies | no                             |
|              | `context_edit` entries                              |                                |

`context_compaction` is honoured by Atomic 0.8.26 to 0.9.8. Later ones ignore it and read a `compaction` entry
with `details.strategy` "verbatim-lines"; pi reads `compaction` and, from 0.87, `context_edit`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from .context import REBUILDING_TYPES, ActiveContext, Message, keep
from .entries import Entry, describe_content, tokens_of
from .errors import BadInput
from .filters import effective_filters


class Reader(Protocol):
    """One agent's reading of a branch."""

    @property
    def name(self) -> str: ...

    @property
    def honours_context_compaction(self) -> bool:
        """Whether what Redline appends would change what this agent's model sees."""
        ...

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        """The active context of a branch, given root first."""
        ...


class AtomicReader:
    """Atomic 0.8.26 to 0.9.8: the branch minus what its `context_compaction` entries hide."""

    name: Final = "atomic-0.8"
    honours_context_compaction: Final = True

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        filters = effective_filters(branch)
        messages = []
        for entry in branch:
            if not entry.is_message or entry.empty or entry.id in filters.entries:
                continue
            message = keep(entry, filters.blocks.get(entry.id))
            if message is not None:
                messages.append(message)
        return ActiveContext(self.name, tuple(messages), _newest(branch, "context_compaction"))


class PiReader:
    """pi: the latest `compaction`'s summary, what it kept, what came after; then the `context_edit` entries."""

    name: Final = "pi"
    honours_context_compaction: Final = False

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        selected = self._select(branch)
        edits = {
            target: entry
            for entry in selected
            if entry.type == "context_edit"
            and isinstance(target := (entry.control or {}).get("targetId"), str)
        }
        messages = []
        for entry in selected:
            message = self._message(entry, edits.get(entry.id))
            if message is not None:
                messages.append(message)
        newest = max(
            filter(None, (_newest(branch, "compaction"), _newest(branch, "context_edit"))),
            key=lambda entry: entry.number,
            default=None,
        )
        here = {entry.id for entry in branch}
        open_ended = any(target not in here for target in edits)
        return ActiveContext(self.name, tuple(messages), newest, open_ended)

    def _select(self, branch: Sequence[Entry]) -> list[Entry]:
        at = next((i for i in range(len(branch) - 1, -1, -1) if branch[i].type == "compaction"), None)
        if at is None:
            return list(branch)
        compaction = branch[at]
        first_kept = (compaction.control or {}).get("firstKeptEntryId")
        start = next((i for i in range(at) if branch[i].id == first_kept), at)
        kept = [entry for entry in branch[start:at] if entry.type != "compaction" and entry.role != "system"]
        return [compaction, *kept, *branch[at + 1 :]]

    def _message(self, entry: Entry, edit: Entry | None) -> Message | None:
        if entry.type != "compaction" and (not entry.is_message or entry.empty):
            return None
        if edit is None or edit.control is None:
            return keep(entry)
        replacement = edit.control.get("replacement")
        if not isinstance(replacement, Mapping):
            return None
        content = replacement.get("content")
        if isinstance(content, str) and entry.role in ("assistant", "toolResult"):
            content = [{"type": "text", "text": content}]
        blocks, texts, units = describe_content(content, entry.role)
        return Message(entry, entry.role, blocks, tokens_of(units), replacement=texts)


READERS: Final[Mapping[str, Reader]] = {reader.name: reader for reader in (AtomicReader(), PiReader())}


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader, and in words why it is the one."""

    reader: Reader
    reason: str
    is_guess: bool = False
    """Whether nothing shows which agent owns the session: then nothing is written without a confirmation."""


def reader_named(name: str) -> Reader:
    """Raises BadInput `unknown_reader`."""
    if name not in READERS:
        raise BadInput("unknown_reader", f"There is no reader {name}. Known are {', '.join(READERS)}.")
    return READERS[name]


def choose_reader(
    entries: Iterable[Entry], *, chosen: str = "", agent: str = "", own: Container[str] = ()
) -> Reading:
    """The reader of a session: the user's choice, else its place, else what its entries show, else a guess.

    `entries` are the file's, in file order. The first that only one agent writes decides, so that what is appended
    later does not change how a session is read. `own` are the ids of entries that Redline appended: they show
    nothing. `agent` is `atomic`, `pi`, or empty if the place of the file shows nothing.
    """
    if chosen:
        return Reading(reader_named(chosen), "you chose it")
    telling = [entry for entry in entries if entry.by_pi or entry.type in REBUILDING_TYPES]
    if any(map(_is_verbatim_lines, telling)):
        return Reading(READERS["pi"], "it holds a compaction that Atomic writes from 0.9.9 on")
    if agent == "pi":
        return Reading(READERS["pi"], "it lies among pi's sessions")
    if agent == "atomic":
        return Reading(READERS["atomic-0.8"], "it lies among Atomic's sessions")
    first = next(
        (entry for entry in telling if entry.type != "context_compaction" or entry.id not in own), None
    )
    if first is None:
        return Reading(
            READERS["atomic-0.8"],
            "nothing in the file or its place shows which agent owns it, so this is a guess",
            is_guess=True,
        )
    if first.type == "context_compaction":
        return Reading(READERS["atomic-0.8"], "its first compaction is a context_compaction")
    if first.type in REBUILDING_TYPES:
        return Reading(
            READERS["pi"], f"its first compaction is a {first.type}, which pi honours and Atomic 0.8 does not"
        )
    return Reading(READERS["pi"], f"it holds {_mark_of_pi(first)}, which only pi 0.86 and newer write")


def _mark_of_pi(entry: Entry) -> str:
    if entry.type == "usage":
        return "a usage entry"
    return "a system message" if entry.role == "system" else "an assistant message with a thinking level"


def _is_verbatim_lines(entry: Entry) -> bool:
    details = (entry.control or {}).get("details")
    return (
        entry.type == "compaction"
        and isinstance(details, Mapping)
        and details.get("strategy") == "verbatim-lines"
    )


def _newest(branch: Sequence[Entry], kind: str) -> Entry | None:
    return next((entry for entry in reversed(branch) if entry.type == kind), None)
