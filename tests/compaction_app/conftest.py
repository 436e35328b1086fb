"""What the tests of runs, hooks and summaries share."""

import pytest

from compaction_app.hooks import SIGNALS
from compaction_app.runs import lease
from devtools.scripted.server import ScriptedProvider
from tests.lease_clock import Clock


@pytest.fixture
def connect():
    """Connects hooks until the end of the test."""
    usual = [(signal, list(signal.receivers)) for signal in SIGNALS]
    yield lambda signal, hook: signal.connect(hook, weak=False)
    for signal, receivers in usual:
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


@pytest.fixture
def provider():
    with ScriptedProvider() as scripted:
        yield scripted
