"""A test of one model: one small tool call, on a separate connection."""

from __future__ import annotations

import asyncio

from compaction_app.planning.model_registry import ResolvedModel
from compaction_app.providers import client
from compaction_app.providers.connection_test import Verdict, try_model
from compaction_app.providers.types import Endpoint


def test_model(endpoint: Endpoint, model: ResolvedModel) -> Verdict:
    """The result of one tool call of a model, at its lowest thinking level. For code without an event loop."""
    return asyncio.run(_test(endpoint, model))


async def _test(endpoint: Endpoint, model: ResolvedModel) -> Verdict:
    least = model.thinking_levels[0] if model.thinking_levels else ""
    try:
        return await try_model(endpoint, model.name, model.output_limit, least, model.thinking_style)
    finally:
        await client.close()
