"""EDGE: the place in which a client runs instead of the user's home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that does not exist: a request that would leave the computer fails at once."""


class Scratch(NamedTuple):
    """A home directory, a project in it, and the base URL of the only model."""

    home: Path
    project: Path
    model_url: str

    @property
    def environment(self) -> dict[str, str]:
        """An environment with nothing of the user's but the path to programs."""
        home = self.home
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "TMPDIR": str(home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
        }


def new_scratch(directory: Path, model_url: str) -> Scratch:
    """An empty home in an existing directory."""
    home = directory.resolve()
    project = home / "project"
    project.mkdir(exist_ok=True)
    return Scratch(home, project, model_url)
