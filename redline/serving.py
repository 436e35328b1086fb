"""What runs beside the pages while the server lives: the follower of session files, and workers of runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError

from compaction_app import working
from compaction_app.services.runs import give_up_dead_runs, waiting_runs
from sessions_app import announcing
from sessions_app.children import Children
from sessions_app.services import progress

SWEEP_SECONDS: Final = 5
FOLLOW_AGAIN_SECONDS: Final = 5

_log = logging.getLogger("redline")


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI lifespan: children start with the server and end with it."""
    del scope
    await receive()
    children = Children(_relay)
    workers = working.Workers(children)
    announcing.serve_on(asyncio.get_running_loop())
    working.serve_with(workers)
    tasks = [asyncio.create_task(_follow(children)), asyncio.create_task(_sweep())]
    await send({"type": "lifespan.startup.complete"})
    await receive()
    for task in tasks:
        task.cancel()
    await children.stop()
    await workers.stop()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    working.serve_with(None)
    announcing.serve_on(None)
    await send({"type": "lifespan.shutdown.complete"})


def _relay(told: dict[str, Any]) -> None:
    group = told.pop("group", None)
    if group == announcing.SESSIONS:
        progress.remember(told)
    if isinstance(group, str):
        announcing.announce(group, **told)


async def _follow(children: Children) -> None:
    """Keep the index up to date; a follower that ended, for whatever reason, is started again."""
    while True:
        progress.begin()
        try:
            await children.run("index", "--follow")
        except OSError as fault:
            _log.error("The follower of session files could not be started: %s", fault)
        progress.end()
        await asyncio.sleep(FOLLOW_AGAIN_SECONDS)


async def _sweep() -> None:
    """Runs that wait are worked on, whoever forgot them; runs whose worker is gone are said to be."""
    while True:
        try:
            await sync_to_async(give_up_dead_runs)()
            if settings.REDLINE.work_in == "server":
                for run_id in await sync_to_async(waiting_runs)():
                    working.start_worker(run_id)
        except DatabaseError as fault:
            # Another writer held the database for too long: the next look comes soon.
            _log.error("Runs could not be looked after: %s", type(fault).__name__)
        await asyncio.sleep(SWEEP_SECONDS)
