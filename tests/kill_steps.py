"""Killing a process before each of its steps, and at any moment; and the check of what is left.

A step is a call that changes a file, a lock or the database. Steps are found by observation, not listed by hand: every
call to the operating system that is not known to be harmless, every statement that is not a query, every commit of a
transaction. Steps that are added later are included.

A kill is not a power cut: what the kernel has received survives it. `fsync` and the order of the steps are for that,
and cannot be tested here.
"""

import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from django.db import connection

from sessions_app.database.sqlite import stop_observing
from sessions_app.index.session_locks import lock_session
from tests.budget import FACTOR
from tests.files import backdate, snapshot
from tests.wait import WAIT_SECONDS

ROUNDS: Final = int(os.environ.get("REDLINE_KILL_ROUNDS", "2"))
"""Kills at random moments, of each act that has them; `make soak` takes hundreds, and of more acts."""
SEED: Final = int(os.environ.get("REDLINE_KILL_SEED", "20260105"))
MOST: Final = 2_000
"""More steps than any act has."""

UNCHANGING: Final = frozenset(
    "open close stat lstat fstat statvfs fstatvfs pread read lseek listdir scandir readlink fspath getpid getppid "
    "_path_normpath geteuid getuid getcwd access urandom pipe waitpid waitstatus_to_exitcode register_at_fork "
    "WIFSTOPPED".split()
)
"""Calls to the operating system that change nothing outside the process. An `open` that creates or empties a file is a
step nevertheless."""
IS_SOAK: Final = ROUNDS >= 100
IS_LONG: Final = FACTOR > 1 or IS_SOAK
ENDING: Final = frozenset() if IS_LONG else frozenset({"flock", "fsync"})
"""Calls whose effect ends with the process, or does not show after a kill: a kill before one leaves what a kill before
the next step leaves. So it is for a statement within a transaction, and what begins one: its commit is the step.
`make test-all` and `make soak` take them for steps."""
CREATING: Final = os.O_CREAT | os.O_TRUNC


class _Steps:
    """Counts the steps of this process, and kills it before the `last` one."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last, self._process = last, os.getpid()

    def begin(self) -> None:
        if os.getpid() != self._process:  # one that it starts to write for it: it waits for its end
            return
        self.count += 1
        if self.count == self._last:
            os.kill(self._process, signal.SIGKILL)

    def watch(self, frame: FrameType, event: str, called: Any) -> None:
        del frame
        if event != "c_call":
            return
        is_of_system = getattr(called, "__module__", "") in ("posix", "fcntl")
        is_of_database = isinstance(getattr(called, "__self__", None), sqlite3.Connection)
        if (is_of_system and called.__name__ not in UNCHANGING | ENDING) or (
            is_of_database and called.__name__ == "commit"
        ):
            self.begin()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & CREATING:
            self.begin()

    def execute(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        is_seen = IS_LONG or not (connection.in_atomic_block or sql.startswith("BEGIN"))
        if is_seen and not sql.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            self.begin()
        return execute(sql, params, many, context)


@contextmanager
def _watched(last: int) -> Iterator[_Steps]:
    steps = _Steps(last)
    sys.dont_write_bytecode = True  # what is imported first here would be a step until a process has lived to write it
    sys.addaudithook(steps.audit)  # there is no way to remove it: this process ends soon
    with connection.execute_wrapper(steps.execute):
        sys.setprofile(steps.watch)
        try:
            yield steps
        finally:
            sys.setprofile(None)


def killed_before(step: int, act: Callable[[], object]) -> bool:
    """Run `act` in a forked process that is killed before this step, counted from 1; returns whether it got that far.

    Fails if `act` raises. Child processes of the killed process have ended, too, when this returns.
    """
    connection.close()
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    pid = os.fork()
    if pid == 0:
        answer = b"?"
        try:
            signal.alarm(WAIT_SECONDS)
            connection.ensure_connection()
            with _watched(step):
                act()
            answer = b"done"
        except BaseException as error:  # noqa: BLE001  the parent shows it
            answer = repr(error).encode()
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    ended = os.waitstatus_to_exitcode(status)
    if ended == -signal.SIGKILL:
        return True
    assert answer == b"done", (answer, ended)
    return False


def killed(act: Callable[[], object], after: float | None = None) -> None:
    """Run `act` in a forked process that is killed this many seconds after its beginning, or kills itself.

    Fails if it ends otherwise. If `act` is over before, nothing of it is cleaned up.
    """
    connection.close()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(WAIT_SECONDS)
            os.write(writing, b"began ")
            act()
            signal.pause()
        except BaseException as error:  # noqa: BLE001  the parent shows it
            os.write(writing, repr(error).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read(1)
        if after is not None:
            time.sleep(after)
            os.kill(pid, signal.SIGKILL)
        said += pipe.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, said


def die(*_: object) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it lives on")


class World:
    """The files of a directory of sessions and the database, which can be put back to how they are now."""

    def __init__(self, data: Path, directory: Path) -> None:
        self.data, self.directory = data, directory
        self.database, self.audit_head = data / "redline.sqlite3", data / "audit-head.json"
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        self.rows, self.files = self.database.read_bytes(), snapshot(directory)
        self.head = self.audit_head.read_bytes() if self.audit_head.exists() else None

    def put_back(self) -> None:
        """Files that are still there keep their inode, which identifies them."""
        connection.close()
        stop_observing()
        for beside in self.data.glob("redline.sqlite3-*"):
            beside.unlink()
        self.database.write_bytes(self.rows)
        if self.head is None:
            self.audit_head.unlink(missing_ok=True)
        else:
            self.audit_head.write_bytes(self.head)
        for there in self.directory.iterdir():
            if there.name not in self.files:
                there.unlink()
        for name, content in self.files.items():
            assert isinstance(content, bytes)
            path = self.directory / name
            with path.open("r+b" if path.exists() else "wb") as file:
                file.write(content)
                file.truncate()
            backdate(path)

    def assert_the_next_locks_leave_nothing_over(self, *sessions: Path) -> None:
        for path in sessions:
            with lock_session(path):
                pass
        assert not [name for name in snapshot(self.directory) if name.startswith(".")]
        assert {path.suffix for path in (self.data / "locks").iterdir()} <= {".lock"}


def assert_each_kill_leaves_one_of_two_states(
    world: World,
    act: Callable[[], object],
    outcome: Callable[[], str],
    then: Callable[[str], object] = str,
    *,
    is_first: bool = True,
) -> None:
    """Kill `act` before each step; `outcome` checks what is left and says whether it is as `before` or as `after`.

    `then` checks more at the last step that leaves it as before, and at the first one after which it is made.

    An act that takes the steps of another one, which is killed everywhere, is not the `first`: `make test` kills it
    only where `before` becomes `after`, and at a few steps on the way there.
    """

    def left(step: int) -> tuple[bool, str]:
        """Whether it was killed before this step, and what is left."""
        world.put_back()
        was_killed, state = killed_before(step, act), outcome()
        assert was_killed or state == "after"
        return was_killed, state

    # What this process keeps for the next call, such as the version of a client, is then no step of the act.
    world.put_back()
    act()
    assert outcome() == "after"
    if is_first or IS_LONG:
        found: list[str] = []
        for step in range(1, MOST):
            was_killed, state = left(step)
            found.append(state)
            if not was_killed:
                break
        before = found.count("before")
        assert found == ["before"] * before + ["after"] * (len(found) - before)
    else:
        before, after = 0, 1
        while left(after)[1] == "before":
            before, after = after, 2 * after
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if left(middle)[1] == "before" else (before, middle)
    assert before > 3
    for step, state in ((before, "before"), (before + 1, "after")):
        assert left(step) == (True, state), "the next start has nothing to complete"
        then(state)


def assert_any_kill_leaves_one_of_two_states(
    put_back: Callable[[], object], act: Callable[[], object], outcome: Callable[[], str]
) -> None:
    """The same, killed at random moments: between steps, and while the system carries one out."""
    dice = random.Random(SEED)
    put_back()
    began = time.perf_counter()
    act()
    took = time.perf_counter() - began
    found: Counter[str] = Counter()
    for _ in range(ROUNDS):
        put_back()
        killed(act, dice.uniform(0, 1.5 * took))
        found[outcome()] += 1
    print(f"{ROUNDS} kills, seed {SEED}: {dict(found)}")
    assert len(found) > 1 or not IS_SOAK, "every kill left the same: the delays are wrong"
