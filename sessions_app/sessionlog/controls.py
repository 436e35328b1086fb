"""The contents of entries that are not messages but control how their branch is read, named or shown.

An agent's parser creates them from any input; a field with an unusable value is empty.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .targets import Target


class DeletionControl(msgspec.Struct, frozen=True):
    """Entries and blocks that are hidden from this point on."""

    targets: tuple[Target, ...]
    percent: float | None
    """The reduction of the context in percent, as counted by the writer: 0 to 100."""
    backup: str
    """The path of the backup made before it. This is data from the file and must not be trusted as a path."""


class SummaryControl(msgspec.Struct, frozen=True):
    """A summary that replaces earlier entries."""

    first_kept_id: str | None
    """The first entry before the summary that is still sent."""
    is_verbatim: bool
    """Whether the summary consists of lines of the conversation itself."""
    system_tokens: int | None = None
    """The estimate of the system message that it repeats; None if it has none."""


class BoundaryControl(msgspec.Struct, frozen=True, gc=False):
    """What replaces everything before a boundary: entries recorded before it, or on the same line."""

    kept: tuple[str, ...] = ()
    """The ids of the entries that remain, in the order in which they are sent."""
    anchor_id: str | None = None
    """The entry that they follow; None for the boundary itself."""
    segment: tuple[str, str] | None = None
    """The first and the last entry that versions keep which do not honour a list."""
    trigger: str = ""
    """What caused it, as recorded."""
    tokens_before: int | None = None
    """The context before it and after it, in tokens, as its writer counted them."""
    tokens_after: int | None = None
    turns: int | None = None
    """How many of the user's last messages it takes back with what follows them; None if it does not count them."""
    began_id: str | None = None
    """The first entry of the compaction's own question or answer, if these are recorded before the boundary: the
    conversation was without them."""


class EditControl(msgspec.Struct, frozen=True):
    """A replacement for an entry's content, or its removal. The new content is the edit's own: its blocks and texts."""

    target_id: str | None
    effect: Literal["removes", "replaces", "undefined"]
    """`undefined` if it does not say what the content is replaced by."""
    is_text: bool = False
    """Whether the new content is a text instead of an array; as blocks, it is one block of text."""


class LabelControl(msgspec.Struct, frozen=True):
    """A label of an entry; an empty one removes it."""

    target_id: str | None
    text: str


class ModelControl(msgspec.Struct, frozen=True):
    """The model from this point on."""

    provider: str
    model: str


class NameControl(msgspec.Struct, frozen=True):
    """The name of the session."""

    name: str | None


class ThinkingLevelControl(msgspec.Struct, frozen=True):
    """How much the model thinks from this point on."""

    level: str | None


Control = (
    DeletionControl
    | SummaryControl
    | BoundaryControl
    | EditControl
    | LabelControl
    | ModelControl
    | NameControl
    | ThinkingLevelControl
)
