"""Install pi for its interoperability tests: python -m tests.interop.install_pi DIRECTORY pinned|newest

`pinned`: DIRECTORY/pinned has pi PINNED, and DIRECTORY/older pi OLDER. `newest`: DIRECTORY/newest has the newest
version, whole, or if packages that it needs are not in the registry, with those of the pinned one, which is enough for
its session manager. If neither works, that is said, and it is not tested. All share the Node.js in DIRECTORY/node,
which is installed from npm if the system's is too old.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from sessions_app.agents.pi.edge.client import LEAST_NODE, PACKAGE, SESSION_MANAGER

PINNED: Final = "0.87.1"
OLDER: Final = "0.86.1"
"""The last version that ignores edits of the context."""
NODE: Final = "node@22"
OPTIONS: Final = (
    *("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"),
    *("--fetch-retries=2", "--fetch-timeout=60000"),
)
"""A registry that cannot be reached is an error within minutes."""
INSTALL: Final = ("install", "--prefix", ".")
"""Not into a directory above, which npm would choose if it has packages."""
LIMIT: Final = 900
"""Seconds that an installation may take."""
FAULTS: Final = (subprocess.CalledProcessError, subprocess.TimeoutExpired)


def npm(directory: Path, *arguments: str) -> str:
    """Run npm in a directory; returns its output. Raises FAULTS."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["npm", *arguments, *OPTIONS]
    ended = subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, encoding="utf-8", timeout=LIMIT)
    return ended.stdout


def needs_node() -> bool:
    """Whether the system has no Node.js that is new enough."""
    if shutil.which("node") is None:
        return True
    found = subprocess.run(["node", "--version"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return tuple(map(int, found.strip().removeprefix("v").split(".")[:2])) < LEAST_NODE


def install(directory: Path, version: str) -> None:
    """A version with everything it needs but Node.js. Raises FAULTS."""
    shutil.rmtree(directory, ignore_errors=True)
    # None of its packages needs the scripts that npm would run.
    npm(directory, *INSTALL, "--ignore-scripts", f"{PACKAGE}@{version}")
    if needs_node():
        (directory / "node_modules" / ".bin" / "node").symlink_to("../../../node/node_modules/.bin/node")


def install_node(directory: Path) -> None:
    if needs_node():
        npm(directory, *INSTALL, NODE)


def install_session_manager(directory: Path, version: str, pinned: Path) -> None:
    """The package of a version alone, with what the pinned one needs. Raises FAULTS."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(pinned, directory, symlinks=True, copy_function=os.link)
    package = directory / "node_modules" / PACKAGE
    shutil.rmtree(package)
    packed = npm(directory, "pack", f"{PACKAGE}@{version}").split()[-1]
    with tarfile.open(directory / packed) as archive:
        archive.extractall(directory / "unpacked", filter="data")
    (directory / "unpacked" / "package").rename(package)
    node = directory / "node_modules" / ".bin" / "node"
    importing = f"await import({json.dumps((package / SESSION_MANAGER).as_uri())})"
    subprocess.run([node if node.exists() else "node", "--input-type=module", "--eval", importing], check=True)


def install_newest(directory: Path, pinned: Path) -> None:
    try:
        version = npm(directory.parent, "view", PACKAGE, "version").strip()
        try:
            install(directory, version)
            how = "whole"
        except FAULTS:
            install_session_manager(directory, version, pinned)
            how = f"its session manager, with the packages of {PINNED}"
    except FAULTS as fault:
        shutil.rmtree(directory, ignore_errors=True)
        sys.stderr.write(f"The newest pi cannot be installed here ({fault}): only {PINNED} is tested.\n")
    else:
        sys.stderr.write(f"The newest pi is {version} ({how}).\n")


def main(directory: Path, which: str) -> None:
    if which == "newest":
        install_newest(directory / "newest", directory / "pinned")
        return
    with ThreadPoolExecutor() as pool:
        steps = [
            pool.submit(install, directory / "pinned", PINNED),
            pool.submit(install, directory / "older", OLDER),
            pool.submit(install_node, directory / "node"),
        ]
    for step in steps:
        step.result()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2])
