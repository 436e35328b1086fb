"""Promises of the server's worker processes: no more than are needed, and no run waits for ever if none can start."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from compaction_app.core.states import RunState
from compaction_app.models import Run
from compaction_app.runs.commands import start_run
from compaction_app.runs.lease import claim
from compaction_app.workers import worker_processes
from compaction_app.workers.worker_processes import PROCESSES, STARTS, WorkerProcesses, needed_processes
from sessions_app.index.indexer import index_file
from tests.factories import session_bytes, working_session
from tests.files import place


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


def state(run: Run) -> str:
    return str(Run.objects.values_list("state", flat=True).get(pk=run.pk))


def test_no_process_is_needed_while_nothing_is_queued(queued):
    assert needed_processes() == 0
    run = queued("a.jsonl")
    claim(run.pk, "one", timezone.now())
    assert needed_processes() == 0


def test_runs_of_llm_planners_need_one_process_and_each_of_the_embedded_one_needs_one(queued):
    for number in range(5):
        queued(f"model-{number}.jsonl", "provider/model")
    assert needed_processes() == 1
    worked_on = queued("a.jsonl")
    claim(worked_on.pk, "one", timezone.now())
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
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert "Its worker could not be started (exit code 2)" in run.failure


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
