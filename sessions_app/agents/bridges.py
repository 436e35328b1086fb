"""What a bridge is: the file, or the entry in a file, that makes an agent ask Redline before it compacts.

It is one change of the agent's own configuration. The parts here are pure but for `path`, which looks at the
environment, and `try_out`, which runs the agent's program.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from .pure.compaction_hook import CompactionHook

TEST_VARIABLE: Final = "REDLINE_BRIDGE_TEST"
"""If it is `1` in an agent's environment, its bridge asks as a test: a file when it is loaded, a hook when called."""

OUT_OF_REPOSITORY: Final = "Keep this file out of version control: it names a path of this computer."


class Bridge(Protocol):
    """How an agent is made to ask."""

    @property
    def version(self) -> int:
        """The version of the bridge that `content` makes."""
        ...

    @property
    def hook(self) -> CompactionHook | None:
        """How the agent calls a command before it compacts; None if its bridge is a program of the agent's own."""
        ...

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        """What the user does after connecting an agent, in all projects or in one; sentences."""
        ...

    def path(self, home: Path, project: Path | None) -> Path:
        """The file that has the bridge, for all projects or for one. Raises BadInput `no_project_bridge`."""
        ...

    def content(self, before: bytes | None, path: Path, connection: Path, program: str) -> bytes:
        """The file with the bridge, given its content without it, or with an older one; None if there is no file.

        `connection` is the path of the connection file; `program` is Redline's command as a shell takes it.
        Raises BadInput, if the file cannot have it.
        """
        ...

    def without(self, content: bytes, path: Path, before: bytes | None) -> bytes | None:
        """The file without the bridge, although somebody changed it since; None if nothing is left of it.

        `before` is the file as it was before the bridge came; None if there was none. Raises BadInput.
        """
        ...

    def is_edited(self, content: bytes) -> bool:
        """Whether somebody changed the bridge itself, so that a removal would lose what they wrote."""
        ...

    def installed_version(self, content: bytes, path: Path) -> int | None:
        """The version of the bridge in a file; None if it has none. Raises BadInput."""
        ...

    def remarks(self, content: bytes, path: Path) -> Sequence[str]:
        """What else is in the file that keeps the bridge from working, in sentences."""
        ...

    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        """Run the agent's program so that the bridge asks, in an empty home, which nothing of the user's is in.

        Returns its last words. Raises ClientUnusable.
        """
        ...
