"""Install Atomic for its interoperability tests, from source: python install_atomic.py DIRECTORY

DIRECTORY/OLD and DIRECTORY/NEW have the two generations. They run on Bun, which is installed from npm. The source is
that of the Git repository $REDLINE_ATOMIC, by default GitHub's. What cannot be installed is said, and is not tested.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.interop.install_pi import LIMIT, npm

SOURCE: Final = "https://github.com/bastani-inc/atomic"
OLD: Final = "0.8.30-alpha.1"
"""The last generation that compacts by deletions."""
NEW: Final = "0.9.12"
"""It compacts to text."""
BUN: Final = "bun@1.4.5"
CLI: Final = Path("packages", "coding-agent", "src", "cli.ts")
UNNEEDED: Final = ("@j178/prek",)
"""Packages for Atomic's own developers, which not every registry has."""


def install(directory: Path, tag: str, bun: Path) -> None:
    """The source of a version, with its packages. Raises CalledProcessError."""
    shutil.rmtree(directory, ignore_errors=True)
    source = os.environ.get("REDLINE_ATOMIC", SOURCE)
    clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth=1", f"--branch={tag}"]
    subprocess.run(
        [*clone, source, directory], check=True, timeout=LIMIT, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    )
    description = directory / "package.json"
    fields = json.loads(description.read_text(encoding="utf-8"))
    for name in UNNEEDED:
        fields["devDependencies"].pop(name, None)
    description.write_text(json.dumps(fields), encoding="utf-8")
    subprocess.run([bun, "install", "--silent", "--ignore-scripts"], cwd=directory, check=True, timeout=LIMIT)
    subprocess.run([bun, CLI, "--version"], cwd=directory, check=True, timeout=LIMIT)


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    try:
        npm(directory, "install", "--prefix", ".", BUN)
    except subprocess.CalledProcessError as fault:
        sys.stderr.write(f"Bun cannot be installed here ({fault}): Atomic is not tested.\n")
        return
    for tag in (OLD, NEW):
        try:
            install(directory / tag, tag, directory / "node_modules" / ".bin" / "bun")
        except subprocess.CalledProcessError as fault:
            shutil.rmtree(directory / tag, ignore_errors=True)
            sys.stderr.write(f"Atomic {tag} cannot be installed here ({fault}): it is not tested.\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
