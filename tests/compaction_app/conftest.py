"""What the tests of several directories share."""

import pytest

from compaction_app.hooks import SIGNALS, load_hooks
from sessions_app.index.indexer import index_file
from tests.factories import session_bytes, working_session
from tests.files import place


@pytest.fixture
def restored_receivers():
    """Hooks that a test connects are disconnected after it."""
    usual = [(signal, list(signal.receivers)) for signal in SIGNALS]
    yield
    for signal, receivers in usual:
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()
    load_hooks([])


@pytest.fixture
def connect(restored_receivers):
    """Connects hooks until the end of the test."""
    return lambda signal, hook: signal.connect(hook, weak=False)


@pytest.fixture
def session(known_root):
    """A session with much to delete."""
    return index_file(place(known_root / "work.jsonl", session_bytes(working_session())))
