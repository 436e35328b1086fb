"""What runs beside the pages while the server lives: the follower of session files, workers of runs, and the look at
what is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import Any, Final

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from compaction_app.runs.automatic import plan_due
from compaction_app.runs.badge import new_proposals
from compaction_app.runs.lease import LeaseWatch
from compaction_app.runs.worker_processes import WorkerProcesses, serve_with
from sessions_app.children import Children
from sessions_app.index import progress
from sessions_app.web import broadcast

SWEEP_SECONDS: Final = 2
DUE_SECONDS: Final = 3
"""Between two looks at sessions that are due, where the follower tells of changes."""
ANYHOW_SECONDS: Final = 60
"""The same where it tells of none: the agents' settings may have changed, or a time of rest is over."""
FOLLOW_AGAIN_SECONDS: Final = 5

_log = logging.getLogger("redline")


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI lifespan: children start with the server and end with it."""
    del scope
    await receive()
    news = asyncio.Event()
    children = Children(partial(_relay, news))
    processes = WorkerProcesses(children)
    broadcast.serve_on(asyncio.get_running_loop())
    serve_with(processes)
    tasks = [
        asyncio.create_task(one)
        for one in (_follow(children), _look_after_runs(processes), _look_at_due(news), _publish_proposals())
    ]
    await send({"type": "lifespan.startup.complete"})
    await receive()
    for task in tasks:
        task.cancel()
    await children.stop()
    await processes.stop()
    await asyncio.gather(*tasks, return_exceptions=True)
    serve_with(None)
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
    """Keep the index up to date; a follower that ended, for whatever reason, is started again."""
    while True:
        progress.begin()
        try:
            await children.run("index", "--follow")
        except OSError as fault:
            _log.error("The follower of session files could not be started: %s", fault)
        except Exception:  # noqa: BLE001  # it is logged
            # Whatever it was: without a follower the list would stand still until the server ends.
            _log.exception("The follower of session files is lost")
        progress.end()
        await asyncio.sleep(FOLLOW_AGAIN_SECONDS)


async def _look_after_runs(processes: WorkerProcesses) -> None:
    """Have queued runs worked on, however they were queued, and give up the runs whose worker is gone."""
    watch = LeaseWatch()
    while True:
        try:
            await sync_to_async(watch.give_up_dead_runs)()
            if settings.REDLINE.work_in == "server":
                await processes.start_needed()
        except DatabaseError as fault:
            # Another writer held the database for too long: the next look comes soon.
            _log.error("Runs could not be looked after: %s", type(fault).__name__)
        except Exception:  # noqa: BLE001  # it is logged
            # Whatever it was: without this look, runs would wait until the server ends.
            _log.exception("Runs could not be looked after")
        await processes.wait(SWEEP_SECONDS)


async def _look_at_due(news: asyncio.Event) -> None:
    """Plan what is due, where that is set up: soon after something changed, and now and then."""
    if not settings.REDLINE.plan_by_itself:
        return
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), ANYHOW_SECONDS)
        news.clear()
        try:
            # In a thread of its own: an agent's settings may lie where reading takes long.
            look = database_sync_to_async(plan_due, thread_sensitive=False)
            looked = await look(timezone.now(), Path.home())
            if looked.postponed:
                news.set()
        except DatabaseError as fault:
            # Another writer held the database for too long: the next look comes soon.
            _log.error("Sessions that are due could not be looked at: %s", type(fault).__name__)
            news.set()
        except Exception:  # noqa: BLE001  # it is logged
            # Whatever it was: without this look nothing would be planned until the server ends.
            _log.exception("Sessions that are due could not be looked at")
        await asyncio.sleep(DUE_SECONDS)


async def _publish_proposals() -> None:
    """Tell the pages that are open of each proposal that begins to wait; of those from before they tell themselves."""
    known: set[int] | None = None
    while True:
        try:
            known, facts = await sync_to_async(new_proposals)(known)
            for fact in facts:
                broadcast.publish(broadcast.SESSIONS, **fact)
        except DatabaseError as fault:
            _log.error("Proposals that wait could not be looked at: %s", type(fault).__name__)
        except Exception:  # noqa: BLE001  # it is logged
            _log.exception("Proposals that wait could not be looked at")
        await asyncio.sleep(SWEEP_SECONDS)
