"""Workers of the serving process: a child for each run that waits, a few at a time."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from sessions_app.children import Children

AT_ONCE: Final = max(2, os.cpu_count() or 2)
"""Runs that are worked on at the same time; the others wait in their rows."""

_children: Children | None = None
_places: asyncio.Semaphore | None = None


def serve_with(children: Children | None) -> None:
    """This is the serving process, and these its children; None when it ends."""
    global _children, _places  # noqa: PLW0603  # there is one server in a process
    _children = children
    _places = asyncio.Semaphore(AT_ONCE) if children is not None else None


async def start_worker(run_id: int) -> None:
    """Have a run worked on in a process of its own, as soon as there is a place."""
    if _children is None or _places is None:
        return
    async with _places:
        await _children.run("worker", "--run", str(run_id))
