"""EDGE: the extension that makes pi and Atomic ask for a review before they compact."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sessions_app.agents.base import OUT_OF_REPOSITORY, TEST_VARIABLE
from sessions_app.agents.edge.bridges import FileBridge
from sessions_app.agents.edge.dry_resume.process import Scratch, run_client

SOURCE: Final = Path(__file__).with_name("redline.ts")
EXTENSIONS: Final = "extensions"
SECONDS: Final = 30
"""How long a start may take; it usually takes less than one second."""


class ExtensionBridge(FileBridge):
    """An extension in the directory of pi, or of an agent that is like it.

    ~/.pi/agent/extensions/redline.ts; PI_CODING_AGENT_DIR names another directory
    PROJECT/.pi/extensions/redline.ts
    """

    source = SOURCE

    def __init__(self, key: str, label: str, directory: str) -> None:
        self._label = label
        self._directory = directory
        self._variable = f"{key.upper()}_CODING_AGENT_DIR"

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        within = (
            f"{self._label} loads it only if you trust the project: it asks when it is started there.",
            OUT_OF_REPOSITORY,
        )
        return (
            *(within if in_project else ()),
            f"A running {self._label} asks Redline after /reload, or when it is started again.",
        )

    def path(self, home: Path, project: Path | None) -> Path:
        if project is not None:
            return project / self._directory / EXTENSIONS / SOURCE.name
        named = os.environ.get(self._variable, "")
        configured = home / named[2:] if named.startswith("~/") else Path(named)
        base = configured if configured.is_absolute() else home / self._directory / "agent"
        return base / EXTENSIONS / SOURCE.name

    def start(self, program: str, scratch: Scratch) -> str:
        ended = run_client(
            [program, "--mode", "rpc", "--no-session"],
            cwd=scratch.project,
            environment={**scratch.environment, TEST_VARIABLE: "1"},
            seconds=SECONDS,
        )
        return ended.last_words
