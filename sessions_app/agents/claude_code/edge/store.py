"""EDGE: the session files of Claude Code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sessions_app.agents.claude_code.pure.parser import shows_format
from sessions_app.agents.store import OpenElsewhere, Store

from .companion import companion_of
from .running_clients import PROJECTS, open_elsewhere, open_sessions
from .settings import DIRECTORY, config_directory


class ClaudeCodeStore(Store):
    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        return (str(config_directory(Path("~"), environment) / PROJECTS),)

    def owns(self, path: Path) -> bool:
        return DIRECTORY in path.parts

    def recognises(self, head: bytes) -> bool:
        return shows_format(head)

    def companion_of(self, path: Path, text: str) -> Path | None:
        return companion_of(path, text)

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        return open_elsewhere(path, config_directory(Path.home()))

    def open_sessions(self, root: Path) -> set[str]:
        return open_sessions(root, config_directory(Path.home()))
