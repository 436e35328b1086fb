"""Worker processes: as many runs in each as there is room for, no more than needed, and none waits for ever."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from compaction_app.core.states import RunState
from compaction_app.models import Run, RunQuerySet
from compaction_app.runs.commands import start_run, stop_run
from sessions_app.index.indexer import index_file
from sessions_app.jobs import pool as worker_pool, pool as worker_processes
from sessions_app.jobs.pool import PROCESSES, STARTS, WorkerPool, WorkerProcesses, needed_processes
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.runs import failure_of
from tests.scripted_models import add_scripted
from tests.wait import WAIT_SECONDS, wait_until


@pytest.fixture
def begun(known_root, provider):
    """A queued run of a separate session; its script deletes something and then stops sending."""
    add_scripted(provider, "stalls")

    def begin(name: str) -> Run:
        session = index_file(place(known_root / name, session_bytes(working_session(steps=8))))
        return start_run(session, planner="scripted/stalls", requested_parameters={})

    return begin


def thread_count(child: subprocess.Popen[bytes]) -> int:
    return len(list(Path(f"/proc/{child.pid}/task").iterdir()))


def state(run: Run) -> str:
    return str(Run.objects.values_list("state", flat=True).get(pk=run.pk))


def has_planned(run: Run) -> bool:
    return bool(run.proposals.exists())


def test_runs_begin_as_far_as_there_is_room(begun, monkeypatch):
    first, second = begun("a.jsonl"), begun("b.jsonl")
    monkeypatch.setattr(worker_pool, "LLM_BYTES", first.session.size)
    pool = WorkerPool()
    try:
        pool.start_queued()
        wait_until(lambda: has_planned(first))
        pool.start_queued()
        assert state(second) == RunState.QUEUED
        monkeypatch.setattr(worker_pool, "LLM_BYTES", 3 * first.session.size)
        pool.start_queued()
        wait_until(lambda: has_planned(second))
        assert state(first) == RunState.RUNNING
    finally:
        pool.stop()


def test_an_ending_process_interrupts_its_runs_and_keeps_what_they_validated(begun):
    runs = [begun(f"{name}.jsonl") for name in "abc"]
    pool = WorkerPool()
    pool.start_queued()
    wait_until(lambda: all(map(has_planned, runs)))
    pool.stop()
    assert [state(run) for run in runs] == [RunState.INTERRUPTED] * 3
    assert all(map(has_planned, runs))


def test_a_look_at_a_busy_database_ends_no_run(begun, monkeypatch):
    run, looks = begun("a.jsonl"), []
    of_llm = RunQuerySet.of_llm

    def busy(runs: RunQuerySet) -> RunQuerySet:
        looks.append(1)
        if len(looks) == 2:
            raise OperationalError("database is locked")
        if len(looks) == 4:
            raise KeyboardInterrupt
        if len(looks) == 3:
            wait_until(lambda: has_planned(run))
            assert state(run) == RunState.RUNNING
        return of_llm(runs)

    monkeypatch.setattr(RunQuerySet, "of_llm", busy)
    monkeypatch.setattr(worker_pool, "end_with_parent", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        worker_pool.work_until_idle()
    assert len(looks) == 4


def test_a_process_whose_server_is_gone_begins_nothing_more(begun, redline, provider):
    first = begun("a.jsonl")
    child = redline.start("worker", "--until-idle", stdin=subprocess.PIPE)
    assert child.stdin is not None
    wait_until(lambda: has_planned(first))
    threads = thread_count(child)
    child.stdin.close()
    wait_until(lambda: thread_count(child) < threads, "the child did not notice that its server is gone")
    second = begun("b.jsonl")
    assert state(first) == RunState.RUNNING
    asked = len(provider.requests)
    stop_run(first)
    assert child.wait(WAIT_SECONDS) == 0
    assert (state(first), state(second)) == (RunState.CANCELLED, RunState.QUEUED)
    assert len(provider.requests) == asked


@pytest.fixture
def queued(known_root):
    """A queued run of a separate session; the planner needs no row of a model."""

    def queue(name: str, planner: str = "embedded") -> Run:
        session = index_file(place(known_root / name, session_bytes(working_session())))
        run = start_run(session, planner="embedded", requested_parameters={})
        Run.objects.filter(pk=run.pk).update(planner=planner)
        return run

    return queue


class Exits:
    """Children of a server that end immediately, each with the next of these exit codes."""

    stopping = False

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)
        self.commands: list[tuple[str, ...]] = []

    async def run(self, *arguments: str) -> int:
        self.commands.append(arguments)
        return self._codes.pop(0)


def serve(children: Any, rounds: int) -> None:
    """Start the needed processes so many times, each time after the previous ones have ended."""

    async def look() -> None:
        processes = WorkerProcesses(children)
        for _ in range(rounds):
            await processes.start_needed()
            await asyncio.gather(*processes._tasks)

    asyncio.run(look())


def test_no_process_is_needed_while_nothing_is_queued(queued):
    assert needed_processes() == 0
    Run.claim(queued("a.jsonl").pk, "one")
    assert needed_processes() == 0


def test_runs_of_llm_planners_need_one_process_and_each_of_the_embedded_one_needs_one(queued):
    for number in range(5):
        queued(f"model-{number}.jsonl", "provider/model")
    assert needed_processes() == 1
    Run.claim(queued("a.jsonl").pk, "one")
    assert needed_processes() == 1
    queued("b.jsonl")
    assert needed_processes() == 2
    for number in range(PROCESSES):
        queued(f"more-{number}.jsonl")
    assert needed_processes() == PROCESSES


@pytest.fixture
def at_once(monkeypatch):
    """Query the database on the loop itself: its connection belongs to this thread."""

    def wrap(act: Callable[..., Any]) -> Callable[..., Any]:
        async def acted(*arguments: Any) -> Any:
            return act(*arguments)

        return acted

    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    monkeypatch.setattr(worker_processes, "sync_to_async", wrap)


@pytest.mark.usefixtures("at_once")
def test_a_run_for_which_process_after_process_fails_is_given_up(queued):
    run = queued("a.jsonl")
    serve(children := Exits(*[2] * STARTS), STARTS)
    assert children.commands == [("worker", "--until-idle")] * STARTS
    assert "Its worker could not be started (exit code 2)" in failure_of(run)


@pytest.mark.usefixtures("at_once")
def test_only_failures_in_a_row_count(queued):
    run = queued("a.jsonl")
    serve(Exits(*[2] * (STARTS - 1), 0, *[2] * (STARTS - 1)), 2 * STARTS - 1)
    assert state(run) == RunState.QUEUED


@pytest.mark.usefixtures("at_once")
def test_a_run_that_was_queued_later_is_not_given_up_with_the_others(queued):
    first = queued("a.jsonl", "provider/model")

    class Late(Exits):
        async def run(self, *arguments: str) -> int:
            if len(self.commands) == STARTS - 1:
                later.append(queued("b.jsonl", "provider/model"))
            return await super().run(*arguments)

    later: list[Run] = []
    serve(Late(*[2] * STARTS), STARTS)
    assert (state(first), state(later[0])) == (RunState.FAILED, RunState.QUEUED)
