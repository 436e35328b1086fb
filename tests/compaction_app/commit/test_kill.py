"""A process killed at any moment leaves a complete session: as before, or as after.

The victim is `kill_target`. A kill is not a power cut: what the kernel has received survives it. `fsync` and the
order of the steps are for that, and cannot be tested here.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sessions_app.storage import append, backups, files, locks, restore
from sessions_app.storage.locks import RecoveryKind
from tests.kill_target import fingerprint_of, never_complete, state_of

ROUNDS = int(os.environ.get("REDLINE_KILL_ROUNDS", "20"))
SEED = int(os.environ.get("REDLINE_KILL_SEED", "20260105"))
LONGEST_US = 60_000
PROJECT = Path(__file__).resolve().parents[3]


def run_and_kill(data_dir: Path, session: Path, line_file: Path, delay_us: int) -> str:
    """Kill the victim `delay_us` microseconds after its start; returns the phase it was in."""
    arguments = [sys.executable, "-m", "tests.kill_target", str(data_dir), str(session), str(line_file)]
    with subprocess.Popen(arguments, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        assert victim.stderr is not None
        assert victim.stdout.readline() == b"start\n"
        time.sleep(delay_us / 1e6)
        victim.send_signal(signal.SIGKILL)
        phases, complaint = victim.stdout.read(), victim.stderr.read()
    assert victim.returncode == -signal.SIGKILL, complaint.decode()
    return phases.decode().split("\n")[-2] if phases else "start"


def entries(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_killed_process_leaves_the_session_as_before_or_as_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(SEED)
    home = tmp_path / "sessions"
    home.mkdir()
    session, data_dir, line_file = home / "s.jsonl", tmp_path / "data", tmp_path / "line"
    line = b'{"type":"context_compaction","text":"' + dice.randbytes(30_000).hex().encode() + b'"}'
    before = b"".join(
        b'{"id":"%08x","text":"%s"}\n' % (i, dice.randbytes(500).hex().encode()) for i in range(300)
    )
    after = before + line + b"\n"
    session.write_bytes(before)
    line_file.write_bytes(line)
    phases: Counter[str] = Counter()
    found: Counter[str] = Counter()
    recovered: Counter[str] = Counter()
    leftovers = 0

    for _ in range(ROUNDS):
        phases[run_and_kill(data_dir, session, line_file, dice.randrange(LONGEST_US))] += 1

        left = session.read_bytes()
        assert left in (before, after)
        found["before" if left == before else "after"] += 1
        for name, content in entries(home).items():  # every file named like a backup is complete
            if name.endswith(files.BACKUP_SUFFIX):
                assert content in (before, after), name
                digest = hashlib.sha256(content).hexdigest()
                assert backups.recorded_sha256(home / name) == digest, name

        with locks.session_lock(data_dir, session, 5) as locked:
            recovered[locked.recovery.kind.name] += 1
            assert locked.recovery.kind is not RecoveryKind.UNRESOLVED
            assert locked.recovery.kind is not RecoveryKind.CUT_OFF
            assert session.read_bytes() == left
            leftovers += any(name.startswith(".s.jsonl.") for name in entries(home))
            backup = backups.back_up(locked, fingerprint_of(session), datetime.now(UTC))
            restore.restore(locked, backup.path, backup.recorded_sha256, state_of(session), datetime.now(UTC))
        assert not [name for name in entries(home) if name.startswith(".")]  # the leftovers are gone
        assert not [name for name in entries(data_dir / "locks") if name.endswith(".intent")]
        for path in home.iterdir():
            if path != session:
                path.unlink()
        if session.read_bytes() == after:
            session.write_bytes(before)

    with locks.session_lock(data_dir, session, 5) as locked:
        append.append_lines(locked, [line], state_of(session), never_complete)
    assert session.read_bytes() == after
    with capsys.disabled():
        print(
            f"\n{ROUNDS} kills, seed {SEED}: in {dict(phases)}; the session was {dict(found)}; "
            f"recovery {dict(recovered)}; {leftovers} times unfinished copies were left and cleaned up"
        )
    assert len(phases) > 1, "every kill hit the same phase: the delays are wrong"
