"""The background work of the server: the follower of session files, workers of runs, automatic planning, and hindsight
on sessions with compactions."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from compaction_app.handshakes.sweep import look_after_handshakes
from compaction_app.runs.automatic import is_on, plan_due
from compaction_app.runs.unseen_proposals import new_proposals
from sessions_app.index import progress
from sessions_app.jobs.job import watches
from sessions_app.jobs.pool import WorkerProcesses, wake_by
from sessions_app.server import broadcast
from sessions_app.server.children import Children

SWEEP_SECONDS: Final = 2
DUE_SECONDS: Final = 3
"""Seconds between two searches for due sessions, if the follower reports changes."""
ANYHOW_SECONDS: Final = 60
"""Seconds between two searches if it reports none: the agents' settings may have changed, or a back-off may have
ended."""
FOLLOW_AGAIN_SECONDS: Final = 5
AGENTS_SECONDS: Final = 1
"""Seconds between two checks of the agents that wait for a review."""
LOOK_BACK_SECONDS: Final = 20
"""Seconds between two searches for sessions whose compactions must be evaluated."""

_log = logging.getLogger("redline")


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI lifespan: children start with the server and end with it."""
    del scope
    await receive()
    # What was loaded until now stays: the garbage collector need not scan it again and again while pages wait, for tens
    # of milliseconds each time.
    gc.freeze()
    news = asyncio.Event()
    children = Children(partial(_relay, news))
    processes = WorkerProcesses(children)
    broadcast.serve_on(asyncio.get_running_loop())
    wake_by(processes.wake)
    tasks = [
        asyncio.create_task(one)
        for one in (
            _follow(children),
            _look_after_workers(processes),
            _look_after_agents(),
            _look_at_due(news),
            _publish_proposals(),
            *([_look_back(children)] if apps.is_installed("lab_app") else []),
        )
    ]
    await send({"type": "lifespan.startup.complete"})
    await receive()
    for task in tasks:
        task.cancel()
    await children.stop()
    await processes.stop()
    await asyncio.gather(*tasks, return_exceptions=True)
    wake_by(None)
    broadcast.serve_on(None)
    await send({"type": "lifespan.shutdown.complete"})


def _relay(news: asyncio.Event, fact: dict[str, Any]) -> None:
    group = fact.pop("group", None)
    if group == broadcast.SESSIONS:
        progress.remember(fact)
        if fact.get("sessions"):
            news.set()
    if isinstance(group, str):
        broadcast.publish(group, **fact)


async def _follow(children: Children) -> None:
    """Keep the index up to date; restart the follower whenever it ends."""
    while True:
        progress.begin()
        with _logged("The follower of session files failed"):
            try:
                await children.run("index", "--follow")
            except OSError as fault:
                _log.error("The follower of session files could not be started: %s", fault)
        progress.end()
        await asyncio.sleep(FOLLOW_AGAIN_SECONDS)


@contextlib.contextmanager
def _logged(failed: str) -> Iterator[None]:
    """Log any failure and continue: otherwise the task would stay stopped until the server ends."""
    try:
        yield
    except DatabaseError as fault:
        # Another process held the database for too long; the next attempt comes soon.
        _log.error("%s: %s", failed, type(fault).__name__)
    except Exception:  # noqa: BLE001  # it is logged
        _log.exception(failed)


async def _look_back(children: Children) -> None:
    """Evaluate, in a child process, the compactions of sessions that changed since their last evaluation."""
    from lab_app.hindsight.service import due_sessions  # its models need the app, which may be left out

    while True:
        await asyncio.sleep(LOOK_BACK_SECONDS)
        with _logged("Compactions could not be looked at"):
            is_due = database_sync_to_async(due_sessions(timezone.now()).exists, thread_sensitive=False)
            try:
                if await is_due():
                    await children.run("costs", "--update")
            except OSError as fault:
                _log.error("The look back on compactions could not be started: %s", fault)


async def _look_after_workers(processes: WorkerProcesses) -> None:
    """Start workers for queued work, and give up the work of workers that are gone."""
    watched = watches()
    while True:
        with _logged("Queued work could not be checked"):
            for watch in watched:
                await sync_to_async(watch.give_up_dead)()
            if settings.REDLINE.work_in == "server":
                await processes.start_needed()
        await processes.wait(SWEEP_SECONDS)


async def _look_after_agents() -> None:
    """Bring the review requests of running agents up to date."""
    while True:
        with _logged("Running agents could not be looked after"):
            # In a separate thread: a session may be long, and is read again to see whether a plan was applied.
            await database_sync_to_async(look_after_handshakes, thread_sensitive=False)(timezone.now())
        await asyncio.sleep(AGENTS_SECONDS)


async def _look_at_due(news: asyncio.Event) -> None:
    """Plan due sessions, if automatic planning is on: soon after changes, and at intervals."""
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), ANYHOW_SECONDS)
        news.clear()
        with _logged("Due sessions could not be planned"):
            if await sync_to_async(is_on)():
                try:
                    # In a separate thread: an agent's settings may be on a slow disk.
                    found = await database_sync_to_async(plan_due, thread_sensitive=False)(timezone.now(), Path.home())
                except DatabaseError:
                    news.set()
                    raise
                if found.postponed:
                    news.set()
        await asyncio.sleep(DUE_SECONDS)


async def _publish_proposals() -> None:
    """Notify open pages of each new proposal; pages opened later load the earlier ones themselves."""
    known: set[int] | None = None
    while True:
        with _logged("New proposals could not be checked"):
            known, facts = await sync_to_async(new_proposals)(known)
            for fact in facts:
                broadcast.publish(broadcast.SESSIONS, **fact)
        await asyncio.sleep(SWEEP_SECONDS)
