"""EDGE: the session files of pi and Atomic."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sessions_app.agents.base import Store


class SharedStore(Store):
    """The sessions of pi, or of an agent derived from it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        return (f"~/{self._directory}/agent/sessions",)

    def owns(self, path: Path) -> bool:
        return self._directory in path.parts

    def recognises(self, head: bytes) -> bool:
        """Always False: only the entries show which of the agents with this format owns a session. See
        `registry.choose_reader`.
        """
        return False
