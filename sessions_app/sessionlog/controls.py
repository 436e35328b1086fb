"""What entries say that are no messages themselves but steer how their branch is read, named or shown.

An agent's parser makes them of what it finds, whatever that is; a field that holds something unusable is empty.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .targets import Target


class DeletionControl(msgspec.Struct, frozen=True):
    """Entries and blocks that are hidden from here on."""

    targets: tuple[Target, ...]
    percent: float | None
    """By how much the context shrank, as the writer counted it: 0 to 100."""
    backup: str
    """The path of the backup that was made for it. It is data from the file, not a place to trust."""


class SummaryControl(msgspec.Struct, frozen=True):
    """A summary in place of what precedes it."""

    first_kept_id: str | None
    """The entry from which on everything before the summary is still sent."""
    is_verbatim: bool
    """Whether the summary is made of lines of the conversation itself."""


class EditControl(msgspec.Struct, frozen=True):
    """Other content in the place of an entry's, or nothing."""

    target_id: str | None
    replacement: Any
    """As it was recorded: the agent's reader knows what it means. None leaves the entry out."""


class LabelControl(msgspec.Struct, frozen=True):
    """A label on an entry; an empty one takes it away."""

    target_id: str | None
    text: str


class ModelControl(msgspec.Struct, frozen=True):
    """The model from here on."""

    provider: str
    model: str


class NameControl(msgspec.Struct, frozen=True):
    """The name of the session."""

    name: str | None


class ThinkingLevelControl(msgspec.Struct, frozen=True):
    """How much the model thinks from here on."""

    level: str | None


Control = (
    DeletionControl
    | SummaryControl
    | EditControl
    | LabelControl
    | ModelControl
    | NameControl
    | ThinkingLevelControl
)
