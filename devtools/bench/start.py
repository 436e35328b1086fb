"""The start-up time of a command, compared with importing Django's models in the same environment."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sessions_app.server.children import DIRECTORY, redline_command

from .figures import Figure
from .scale import environment_on

ROUNDS: Final = 10
SESSION: Final = (
    b'{"type":"session","version":3,"id":"x","cwd":"/","timestamp":"2026-01-05T10:00:00.000Z"}\n'
    b'{"type":"message","id":"e1","parentId":null,"message":{"role":"user","content":"Mend the parser."}}\n'
)


def start() -> Iterator[Figure]:
    """Processor time of `redline tree` on a small session, from start to end."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        session = Path(name) / "s.jsonl"
        session.write_bytes(SESSION)
        environment = environment_on(Path(name) / "data")
        tree, models = [], []
        # Alternating, so that other load on the machine affects both.
        for _ in range(ROUNDS):
            tree.append(_processor_ms(redline_command("tree", str(session)), environment))
            models.append(_processor_ms([sys.executable, "-c", "import django.db.models"], environment))
    yield Figure("tree_start_ms", min(tree), "ms", None)
    yield Figure("tree_start_against_models", round(min(tree) / min(models), 2), "times", 2)


def _processor_ms(command: Sequence[str], environment: dict[str, str]) -> float:
    """The processor time of a process in milliseconds. Raises RuntimeError if it fails."""
    child = subprocess.Popen(command, cwd=DIRECTORY, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603  # our own
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command[-1]} ended with {child.returncode}")
    return round((usage.ru_utime + usage.ru_stime) * 1000, 1)
