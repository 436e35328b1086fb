"""Install the clients that the tests here run, from npm: python -m tests.interop_clients.install_clients

Each version is in a directory of its own, which is kept: the next call installs only what is missing. `NAME@newest`
links to the newest version. What cannot be installed is printed as not checked.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.interop.install_pi import npm

from .installed import DIRECTORY, NEWEST, PROGRAMS, VERSIONS

PACKAGES: Final = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
}
ANSWER_SECONDS: Final = 60
"""The time in which a program must print its version."""


def install(name: str, version: str) -> None:
    """Install one version, unless it is there. Raises CalledProcessError, TimeoutExpired."""
    directory = DIRECTORY / f"{name}@{version}"
    if not runs(directory / "node_modules" / ".bin" / PROGRAMS[name]):
        shutil.rmtree(directory, ignore_errors=True)
        npm(directory, "install", "--prefix", ".", f"{PACKAGES[name]}@{version}")
    if not runs(directory / "node_modules" / ".bin" / PROGRAMS[name]):
        raise subprocess.CalledProcessError(1, [PROGRAMS[name], "--version"])


def runs(program: Path) -> bool:
    """Whether a program prints its version; its package is useless if npm left out the part for this computer."""
    if not program.exists():
        return False
    ended = subprocess.run([program, "--version"], input=b"", capture_output=True, timeout=ANSWER_SECONDS)
    return ended.returncode == 0


def install_newest(name: str) -> str:
    """Install the newest version, and link to it; returns its number. Raises CalledProcessError, TimeoutExpired."""
    version = npm(DIRECTORY, "view", PACKAGES[name], "version").strip()
    install(name, version)
    link = DIRECTORY / f"{name}@{NEWEST}"
    link.unlink(missing_ok=True)
    link.symlink_to(f"{name}@{version}", target_is_directory=True)
    return version


def main() -> None:
    for name, pinned in VERSIONS.items():
        for version in pinned:
            try:
                install(name, version)
                sys.stderr.write(f"{name} {version} is installed.\n")
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as fault:
                sys.stderr.write(f"not checked: {name} {version} cannot be installed ({fault}).\n")
        try:
            sys.stderr.write(f"{name} {install_newest(name)} is the newest version.\n")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as fault:
            sys.stderr.write(f"not checked: the newest {name} cannot be installed ({fault}).\n")


if __name__ == "__main__":
    main()
