"""Install the clients that the tests here run, from npm: python -m tests.interop_clients.install_clients

Each version is in a directory of its own, which is kept: the next call installs only what is missing. `NAME@newest`
links to the newest version. What cannot be installed is printed as not checked.
"""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tests.interop.install_pi import FAULTS, INSTALL, npm

from .installed import DIRECTORY, NEWEST, PROGRAMS, VERSIONS

PACKAGES: Final = {"claude-code": "@anthropic-ai/claude-code", "codex": "@openai/codex", "opencode": "opencode-ai"}
ANSWER_SECONDS: Final = 60
"""The time in which a program must print its version."""


def install(name: str, version: str) -> None:
    """Install one version, unless it is there. Raises FAULTS."""
    directory = DIRECTORY / f"{name}@{version}"
    if not runs(directory / "node_modules" / ".bin" / PROGRAMS[name]):
        shutil.rmtree(directory, ignore_errors=True)
        npm(directory, *INSTALL, f"{PACKAGES[name]}@{version}")
    if not runs(directory / "node_modules" / ".bin" / PROGRAMS[name]):
        raise subprocess.CalledProcessError(1, [PROGRAMS[name], "--version"])


def runs(program: Path) -> bool:
    """Whether a program prints its version; its package is useless if npm left out the part for this computer."""
    if not program.exists():
        return False
    ended = subprocess.run([program, "--version"], input=b"", capture_output=True, timeout=ANSWER_SECONDS)
    return ended.returncode == 0


def install_newest(name: str) -> str:
    """Install the newest version, and link to it; returns its number. Raises FAULTS."""
    version = npm(DIRECTORY, "view", PACKAGES[name], "version").strip()
    install(name, version)
    link = DIRECTORY / f"{name}@{NEWEST}"
    link.unlink(missing_ok=True)
    link.symlink_to(f"{name}@{version}", target_is_directory=True)
    return version


def install_all(name: str) -> None:
    """All versions of a client. What cannot be installed is printed."""
    steps = [(version, partial(install, name, version)) for version in VERSIONS[name]]
    for version, step in [*steps, (NEWEST, partial(install_newest, name))]:
        try:
            sys.stderr.write(f"{name} {step() or version} is installed.\n")
        except FAULTS as fault:
            sys.stderr.write(f"not checked: {name} {version} cannot be installed ({fault}).\n")


def main() -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(install_all, VERSIONS))


if __name__ == "__main__":
    main()
