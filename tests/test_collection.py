"""Parallel test workers collect the tests independently: each has to find the same ones."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS

LATER = """
import sys, time
real = time.time
time.time = lambda: real() + 100_000
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def collected(seed: int, timezone: str) -> list[str]:
    """The ids of all tests, as collected by a process whose clock is a day ahead of this one's."""
    options = ["-o", "addopts=", "--collect-only", "-q", "--assert=plain", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [sys.executable, "-c", LATER, *options],
        cwd=PROJECT,
        env={**os.environ, "PYTHONHASHSEED": str(seed), "TZ": timezone},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert ended.returncode == 0, ended.stdout[-2_000:] + ended.stderr[-2_000:]
    return [line for line in ended.stdout.splitlines() if "::" in line]


def test_every_process_collects_the_same_tests_at_any_time() -> None:
    first = collected(seed=1, timezone="UTC")
    assert len(first) > 1_000
    assert collected(seed=2, timezone="Asia/Tokyo") == first
