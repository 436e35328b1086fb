"""The tests that could fail by chance, while both cores are kept busy by four other processes: `make stress`.

Its arguments are those of pytest.
"""

import subprocess
import sys
from typing import Final

from tests.paths import PROJECT

BUSY: Final = 4
TESTS: Final = (
    "tests/browser",
    "tests/compaction_app/runs/test_run_socket.py",
    "tests/compaction_app/workers",
    "tests/redline",
    "tests/sessions_app/index/test_follower.py",
    "tests/sessions_app/web",
    "tests/test_secrets.py",
)
"""Tests of pages, and of processes that work at the same time."""


def main() -> int:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        command = [sys.executable, "-m", "pytest", *sys.argv[1:], *TESTS]
        return subprocess.run(command, cwd=PROJECT).returncode
    finally:
        for one in busy:
            one.kill()
            one.wait()


if __name__ == "__main__":
    sys.exit(main())
