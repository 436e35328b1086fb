"""Providers whose models are scripts: rows of this process's database, or added to a running server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compaction_app.models import PlannerModel, Provider
from compaction_app.scripted.server import ScriptedProvider
from tests.server import Server, plan_at


def add_scripted(provider: ScriptedProvider, *scripts: str, dialect: Any = "openai", **more: Any) -> None:
    """Add the provider `scripted`, and its models `scripted/SCRIPT` with `more` fields."""
    Provider.objects.get_or_create(
        name="scripted", defaults={"dialect": dialect, "base_url": provider.base_url(dialect)}
    )
    limits = {"window": 100_000, "output_limit": 8_000}
    for script in scripts:
        PlannerModel.objects.get_or_create(provider="scripted", name=script, defaults={**limits, **more})


def add_provider(
    server: Server, name: str, base_url: str, *models: str, dialect: str = "openai", **more: str | list[str]
) -> list[str]:
    """Add a provider to a running server, and its models with `more` fields; returns the paths of its models."""
    server.post("/settings/providers/add", "/settings/providers/add", name=name, dialect=dialect, base_url=base_url)
    limits = {"window": "100000", "output_limit": "8000", **more}
    pages = [
        server.post("/settings/models/add", "/settings/models/add", provider=name, name=one, **limits) for one in models
    ]
    return [f"/settings/models/{page.rpartition('#model-')[2]}" for page in pages]


@contextmanager
def added_provider(server: Server, name: str, base_url: str, *models: str, **more: Any) -> Iterator[list[str]]:
    """The same, until the end: other tests of the server do not meet it."""
    try:
        yield add_provider(server, name, base_url, *models, **more)
    finally:
        server.post(f"/settings/providers/{name}/remove", f"/settings/providers/{name}/remove")


def start_model(server: Server, address: str, planner: str) -> str:
    """Start a run of the session at this address with a model; returns the path of its planner's log."""
    form = f"{address}/compact"
    return plan_at(server.post(f"{form}?planner={planner}", form, planner=planner, keep="40")) + "/log"
