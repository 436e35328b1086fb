"""Install Atomic for its interoperability tests, from source: python -m tests.interop.install_atomic DIRECTORY

DIRECTORY/OLD and DIRECTORY/NEW have the two generations. They run on Bun, which is installed from npm. The source is
that of the Git repository $REDLINE_ATOMIC, by default GitHub's. What cannot be installed is said, and is not tested.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.interop.install_pi import FAULTS, INSTALL, LIMIT, npm

SOURCE: Final = "https://github.com/bastani-inc/atomic"
OLD: Final = "0.8.30-alpha.1"
"""The last generation that compacts by deletions."""
NEW: Final = "0.9.12"
"""It compacts to text."""
BUN: Final = Path("bun", "node_modules", ".bin", "bun")
BUN_PACKAGE: Final = "bun@1.4.5"
CLI: Final = Path("packages", "coding-agent", "src", "cli.ts")
UNNEEDED: Final = ("@j178/prek",)
"""Packages for Atomic's own developers, which not every registry has."""


def clone(directory: Path) -> None:
    """The source of the version after which the directory is named. Raises FAULTS."""
    source = os.environ.get("REDLINE_ATOMIC", SOURCE)
    # A server that sends nothing for half a minute is not waited for.
    options = {"advice.detachedHead": "false", "http.lowSpeedLimit": "1", "http.lowSpeedTime": "30"}
    settings = (word for name, value in options.items() for word in ("-c", f"{name}={value}"))
    command = ["git", *settings, "clone", "--quiet", "--depth=1", f"--branch={directory.name}"]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run([*command, source, directory], check=True, timeout=LIMIT, env=environment)


def install_bun(directory: Path) -> None:
    npm(directory, *INSTALL, BUN_PACKAGE)


def install_packages(directory: Path) -> None:
    """What a cloned version needs. Raises FAULTS."""
    description = directory / "package.json"
    fields = json.loads(description.read_text(encoding="utf-8"))
    for name in UNNEEDED:
        fields["devDependencies"].pop(name, None)
    description.write_text(json.dumps(fields), encoding="utf-8")
    bun = directory.parent / BUN
    for command in ([bun, "install", "--silent", "--ignore-scripts"], [bun, CLI, "--version"]):
        subprocess.run(command, cwd=directory, check=True, timeout=LIMIT)


def works(step: Callable[[Path], None], directory: Path) -> bool:
    try:
        step(directory)
    except FAULTS as fault:
        shutil.rmtree(directory, ignore_errors=True)
        sys.stderr.write(f"{directory} cannot be installed here ({fault}): Atomic is not tested with it.\n")
        return False
    return True


def main(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    versions = [directory / OLD, directory / NEW]
    with ThreadPoolExecutor() as pool:
        are_cloned = list(pool.map(works, [clone] * len(versions), versions))
    # Bun is large: it is installed only if there is something for it to run.
    if any(are_cloned) and works(install_bun, directory / BUN.parts[0]):
        for version, is_cloned in zip(versions, are_cloned, strict=True):
            if is_cloned:
                works(install_packages, version)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
