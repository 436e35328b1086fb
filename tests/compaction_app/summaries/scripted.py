"""A provider with a script, as the source of summaries."""

from collections.abc import Iterator
from contextlib import contextmanager

from compaction_app.models import PlannerModel, Provider
from devtools.scripted.server import ScriptedProvider

SCRIPTS = ("good-plan", "refuses", "overflow", "stalls-before")


@contextmanager
def scripted_provider(dialect: str) -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as scripted:
        Provider.objects.create(name="scripted", dialect=dialect, base_url=scripted.base_url(dialect))
        for name in SCRIPTS:
            PlannerModel.objects.create(provider="scripted", name=name, window=100_000, output_limit=8_000)
        yield scripted
