"""What runs beside the pages while the server lives: the follower of session files, and workers of runs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from asgiref.sync import sync_to_async

from compaction_app import working
from compaction_app.services.runs import give_up_dead_runs, waiting_runs
from sessions_app import announcing
from sessions_app.children import Children
from sessions_app.services import progress

SWEEP_SECONDS: Final = 5
FOLLOW_AGAIN_SECONDS: Final = 5


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI lifespan: children start with the server and end with it."""
    del scope
    await receive()
    children = Children(_relay)
    announcing.serve_on(asyncio.get_running_loop())
    working.serve_with(children)
    tasks = [asyncio.create_task(_follow(children)), asyncio.create_task(_sweep())]
    await send({"type": "lifespan.startup.complete"})
    await receive()
    for task in tasks:
        task.cancel()
    await children.stop()
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
        await children.run("index", "--follow")
        progress.end()
        await asyncio.sleep(FOLLOW_AGAIN_SECONDS)


async def _sweep() -> None:
    """Runs that wait are worked on, whoever forgot them; runs whose worker is gone are said to be."""
    started: set[asyncio.Task[None]] = set()
    known: set[int] = set()
    while True:
        await sync_to_async(give_up_dead_runs)()
        for run_id in await sync_to_async(waiting_runs)():
            if run_id not in known:
                known.add(run_id)
                task = asyncio.create_task(working.start_worker(run_id))
                started.add(task)
                task.add_done_callback(started.discard)
                task.add_done_callback(lambda _, done=run_id: known.discard(done))  # type: ignore[misc]
        await asyncio.sleep(SWEEP_SECONDS)
