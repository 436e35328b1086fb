"""Many runs in one process: within its limits, through a busy database, and no longer than its server wants it."""

import subprocess
from pathlib import Path

import pytest
from django.db import OperationalError

from compaction_app.core.states import RunState
from compaction_app.models import Run
from compaction_app.querysets import RunQuerySet
from compaction_app.runs.commands import start_run, stop_run
from compaction_app.workers import worker_pool
from compaction_app.workers.worker_pool import WorkerPool
from sessions_app.index.indexer import index_file
from tests.factories import session_bytes, working_session
from tests.files import place
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
