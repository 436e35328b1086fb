"""What the tests of several directories share."""

import pytest

from compaction_app.hooks import SIGNALS, load_hooks
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.document.document import forget_documents
from sessions_app.index.indexer import index_file
from sessions_app.jobs import lease
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.lease_clock import Clock


@pytest.fixture(autouse=True)
def no_branches():
    """Forget the branches of earlier tests: this process remembers them."""
    forget_documents()


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
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


@pytest.fixture
def provider():
    with ScriptedProvider() as scripted:
        yield scripted


@pytest.fixture
def session(known_root):
    """A session with much to delete."""
    return index_file(place(known_root / "work.jsonl", session_bytes(working_session())))
