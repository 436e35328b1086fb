"""EDGE: work divided between two processes, so that it uses two processors."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import NoReturn, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def may_fork() -> bool:
    """Whether a second process is useful and a fork safe: on Linux, with two processors and no other thread."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1


def in_two_processes(work: Callable[[Part], Result], here: Part, there: Part) -> tuple[Result, Result]:
    """The results of `work` on two parts, of the second one in a child process, which ends when this one does.

    No connection to a database may be open: SQLite's must not be used after a fork. If the child fails, this process
    does its part, so it must be possible to continue work that was begun. Results are pickled.
    """
    (answer, answering), (alive, living) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(answer)
        os.close(living)
        _work_as_child(work, there, answering, alive)
    os.close(answering)
    os.close(alive)
    with os.fdopen(answer, "rb") as found, ExitStack() as undo:
        undo.callback(os.waitpid, child, 0)
        undo.callback(os.close, living)  # which ends the child
        mine = work(here)
        pickled = found.read()
        undo.pop_all()
        _, status = os.waitpid(child, 0)
        os.close(living)
    return mine, pickle.loads(pickled) if status == 0 else work(there)  # noqa: S301  # our own child made it


def _work_as_child(work: Callable[[Part], object], part: Part, answering: int, alive: int) -> NoReturn:
    """Work, answer, and exit without leaving this function: the child must not clean up what belongs to the parent."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
        with os.fdopen(answering, "wb") as answer:
            pickle.dump(work(part), answer)
        os._exit(0)
    finally:
        # The parent repeats the work, and reports why it fails.
        os._exit(1)


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)
