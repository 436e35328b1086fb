"""EDGE: bridges that are an entry in a file of the user's: the hooks of Claude Code and Codex."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from sessions_app.agents.pure.compaction_hook import BRIDGE, CompactionHook
from sessions_app.agents.pure.hook_entry import entry_command, with_entry, without_entry
from sessions_app.agents.pure.json_document import JsonDocument


class HookBridge(ABC):
    """A bridge that is a command which the agent calls before it compacts."""

    key: str
    label: str
    hook: CompactionHook
    version: int = BRIDGE

    @abstractmethod
    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        """What the user does after connecting."""

    @abstractmethod
    def path(self, home: Path, project: Path | None) -> Path:
        """The file, for all projects or for one."""

    @abstractmethod
    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        """Let the program compact."""

    def content(self, before: bytes | None, path: Path, connection: Path, program: str) -> bytes:
        return with_entry(before or b"", self.command(connection, program), str(path))

    def command(self, connection: Path, program: str) -> str:
        """The command that the agent calls."""
        return f"{program} ask {self.key} --connection {connection.stem}"

    def without(self, content: bytes, path: Path, before: bytes | None) -> bytes | None:
        left = without_entry(content, before, str(path))
        is_empty = not JsonDocument(left, str(path)).root.items
        return None if before is None and is_empty else left

    def is_edited(self, content: bytes) -> bool:
        """The entry is told from everything else."""
        del content
        return False

    def installed_version(self, content: bytes, path: Path) -> int | None:
        return BRIDGE if entry_command(content, str(path)) is not None else None

    def remarks(self, content: bytes, path: Path) -> Sequence[str]:
        if JsonDocument(content, str(path)).is_strict:
            return ()
        return (
            f"{path} has comments or commas that JSON does not have: {self.label} ignores the whole file, and will not "
            "ask, until they are removed.",
        )
