"""A planned change of an agent's file, which makes or removes a connection."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sessions_app.agents.base import Agent
from sessions_app.agents.bridges import Bridge
from sessions_app.storage.files import sha256_of

from .configuration_file import ConfigurationFile
from .connection_files import ConnectedAgent


class ChangedLine(NamedTuple):
    """A line of a unified diff: `+`, `-`, a blank, or `@` for a heading."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """A planned change of an agent's file."""

    agent: Agent
    bridge: Bridge
    name: str
    """The name of the connection."""
    project: Path | None
    file: ConfigurationFile
    after: bytes | None
    """The content of the file after the change; None if the change deletes it."""
    baseline: bytes | None
    """Its content without the bridge; None if there would be no file."""
    known: ConnectedAgent | None
    """The existing connection, if there is one."""
    remarks: Sequence[str] = ()
    """Sentences about what prevents the bridge from working, and about links that are followed or separated."""

    @property
    def changes_file(self) -> bool:
        return self.file.content != self.after

    @property
    def next_steps(self) -> Sequence[str]:
        """What the user does after connecting, in sentences."""
        return self.bridge.next_steps(in_project=self.project is not None)

    @property
    def is_new(self) -> bool:
        return self.file.content is None

    @property
    def is_deletion(self) -> bool:
        return self.after is None

    @property
    def is_as_before(self) -> bool:
        """Whether a removal leaves the file byte for byte as it was before the connection."""
        return self.known is not None and is_as_written(self.file, self.known)

    @property
    def path(self) -> str:
        """The path of the file."""
        return str(self.file.real)

    @property
    def digest(self) -> str:
        """Identifies the change, so that only the one that was shown is made."""
        remarks = "\0".join(self.remarks).encode(errors="surrogateescape")
        pieces = (str(self.file.real).encode(), self.file.content or b"", self.after or b"", remarks)
        flags = bytes([self.file.content is None, self.after is None])
        return hashlib.sha256(b"\0".join((flags, *(sha256_of(one).encode() for one in pieces)))).hexdigest()

    def diff(self) -> list[ChangedLine]:
        """The change, line by line."""
        old, new = _lines(self.file.content), _lines(self.after)
        found = difflib.unified_diff(
            old,
            new,
            str(self.file.real) if self.file.content is not None else "/dev/null",
            str(self.file.real) if self.after is not None else "/dev/null",
            lineterm="",
        )
        heads = ("---", "+++", "@@")
        return [
            ChangedLine("@", line) if number < 2 or line.startswith(heads[2]) else ChangedLine(line[0], line[1:])
            for number, line in enumerate(found)
        ]


def is_as_written(file: ConfigurationFile, known: ConnectedAgent | None) -> bool:
    """Whether a file is byte for byte what Redline wrote for a connection."""
    return known is not None and file.content is not None and known.sha256 == sha256_of(file.content)


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "replace")
    return text.removesuffix("\n").split("\n") if text else []
