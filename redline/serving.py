"""What runs beside the pages while the server lives: the follower of session files, and workers of runs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError

from compaction_app import working
from compaction_app.services.runs import fail_unstarted, give_up_dead_runs, waiting_runs
from sessions_app import announcing
from sessions_app.children import Children
from sessions_app.services import progress

SWEEP_SECONDS: Final = 2
FOLLOW_AGAIN_SECONDS: Final = 5

_log = logging.getLogger("redline")


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI lifespan: children start with the server and end with it."""
    del scope
    await receive()
    children = Children(_relay)
    workers = working.Workers(children, _fail_unstarted)
    announcing.serve_on(asyncio.get_running_loop())
    working.serve_with(workers)
    tasks = [asyncio.create_task(_follow(children)), asyncio.create_task(_sweep())]
    await send({"type": "lifespan.startup.complete"})
    await receive()
    for task in tasks:
        task.cancel()
    await children.stop()
    await workers.stop()
    await asyncio.gather(*tasks, return_exceptions=True)
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
        except Exception:  # noqa: BLE001  # it is logged
            # Whatever it was: without a follower the list would stand still until the server ends.
            _log.exception("The follower of session files is lost")
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
        except Exception:  # noqa: BLE001  # it is logged
            # Whatever it was: without this look, runs would wait until the server ends.
            _log.exception("Runs could not be looked after")
        await asyncio.sleep(SWEEP_SECONDS)


async def _fail_unstarted(run_id: int, why: str) -> None:
    """A run for which no worker can be started does not wait for ever."""
    try:
        if await sync_to_async(fail_unstarted)(run_id, why):
            _log.error("Run %d was given up: its worker could not be started (%s)", run_id, why)
    except DatabaseError as fault:
        # It still waits, so workers are started for it again.
        _log.error("Run %d could not be given up: %s", run_id, type(fault).__name__)
