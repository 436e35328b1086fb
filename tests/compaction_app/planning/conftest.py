"""Hooks that a test connects are disconnected after it."""

import pytest

from compaction_app.hooks import SIGNALS, load_hooks


@pytest.fixture
def restored_receivers():
    usual = [(signal, list(signal.receivers)) for signal in SIGNALS]
    yield
    for signal, receivers in usual:
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()
    load_hooks([])
