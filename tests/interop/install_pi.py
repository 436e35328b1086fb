"""Install pi for its interoperability tests: python install_pi.py DIRECTORY

DIRECTORY/pinned has pi PINNED, which must install. DIRECTORY/newest has the newest version: whole, or if packages that
it needs are not in the registry, with those of the pinned one, which is enough for its session manager. If neither
works, that is said, and only the pinned one is tested. Node.js is installed from npm if the system's is too old.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from sessions_app.agents.pi.package import LEAST_NODE, PACKAGE, SESSION_MANAGER

PINNED: Final = "0.87.1"
NODE: Final = "node@22"
OPTIONS: Final = (
    *("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"),
    *("--fetch-retries=2", "--fetch-timeout=60000"),
)
"""A registry that cannot be reached is an error within minutes."""
LIMIT: Final = 900
"""Seconds that an installation may take."""
VERSION_FILE: Final = "version"
"""Names the version in a directory, and how it was installed."""


def npm(directory: Path, *arguments: str) -> str:
    """Run npm in a directory; returns its output. Raises CalledProcessError."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["npm", *arguments, *OPTIONS]
    ended = subprocess.run(
        command, cwd=directory, check=True, stdout=subprocess.PIPE, encoding="utf-8", timeout=LIMIT
    )
    return ended.stdout


def needs_node() -> bool:
    """Whether the system has no Node.js that is new enough."""
    if shutil.which("node") is None:
        return True
    found = subprocess.run(["node", "--version"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return tuple(map(int, found.strip().removeprefix("v").split(".")[:2])) < LEAST_NODE


def install(directory: Path, version: str) -> None:
    """A version with everything it needs. Raises CalledProcessError."""
    shutil.rmtree(directory, ignore_errors=True)
    npm(directory, "install", "--prefix", ".", f"{PACKAGE}@{version}", *([NODE] if needs_node() else []))


def install_session_manager(directory: Path, version: str, pinned: Path) -> None:
    """The package of a version alone, with what the pinned one needs. Raises CalledProcessError."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(pinned, directory, symlinks=True)
    package = directory / "node_modules" / PACKAGE
    shutil.rmtree(package)
    packed = npm(directory, "pack", f"{PACKAGE}@{version}").split()[-1]
    with tarfile.open(directory / packed) as archive:
        archive.extractall(directory / "unpacked", filter="data")
    (directory / "unpacked" / "package").rename(package)
    node = directory / "node_modules" / ".bin" / "node"
    importing = f"await import({json.dumps((package / SESSION_MANAGER).as_uri())})"
    subprocess.run(
        [node if node.exists() else "node", "--input-type=module", "--eval", importing], check=True
    )


def main(directory: Path) -> None:
    pinned, newest = directory / "pinned", directory / "newest"
    install(pinned, PINNED)
    (pinned / VERSION_FILE).write_text(f"{PINNED}, whole\n", encoding="utf-8")
    try:
        version = npm(directory, "view", PACKAGE, "version").strip()
        try:
            install(newest, version)
            how = "whole"
        except subprocess.CalledProcessError:
            install_session_manager(newest, version, pinned)
            how = f"its session manager, with the packages of {PINNED}"
    except subprocess.CalledProcessError as fault:
        shutil.rmtree(newest, ignore_errors=True)
        sys.stderr.write(f"The newest pi cannot be installed here ({fault}): only {PINNED} is tested.\n")
        return
    (newest / VERSION_FILE).write_text(f"{version}, {how}\n", encoding="utf-8")
    sys.stderr.write(f"pi {PINNED} and {version} ({how}) are installed.\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
