"""The clients that `make interop-clients` installed, by name and version."""

import os
from pathlib import Path
from typing import Final

import pytest

DIRECTORY: Final = Path(os.environ.get("REDLINE_CLIENTS") or Path.home() / ".cache" / "redline" / "interop-clients")
"""Each client is in a directory named after its package and version, as in `codex@0.171.0`."""
PROGRAMS: Final = {"claude-code": "claude", "codex": "codex", "opencode": "opencode"}
VERSIONS: Final = {"claude-code": ("2.1.332", "2.1.112"), "codex": ("0.171.0", "0.104.0"), "opencode": ("1.18.33",)}
"""The versions that are tested beside the newest one that can be installed."""
CURRENT: Final = {name: versions[0] for name, versions in VERSIONS.items()}
NEWEST: Final = "newest"


def directory_of(name: str, version: str) -> Path:
    """Where a version is installed; its name ends with the number."""
    return (DIRECTORY / f"{name}@{version}").resolve()


def client_program(name: str, version: str) -> Path:
    """The program of an installed client. A test of one that is not installed is reported as not checked."""
    directory = directory_of(name, version)
    program = directory / "node_modules" / ".bin" / PROGRAMS[name]
    if not program.exists():
        pytest.skip(f"not checked: {name} {version} is not installed in {DIRECTORY}")
    if version == NEWEST and directory.name in {f"{name}@{one}" for one in VERSIONS[name]}:
        pytest.skip(f"the newest {name} is {directory.name.partition('@')[2]}, which is tested as that")
    return program


def versions(name: str) -> pytest.MarkDecorator:
    """The mark of a test that runs once with each version of a client, as its argument `version`."""
    return pytest.mark.parametrize("version", [*VERSIONS[name], NEWEST])
