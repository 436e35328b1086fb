"""Fixtures of the tests with real pi and Atomic; what could not be checked is printed at the end."""

import pytest

from compaction_app.scripted.server import ScriptedProvider
from tests.interop.pi_rpc import Asking, PiHome
from tests.interop.stand_in import StandIn
from tests.interop_clients.conftest import pytest_terminal_summary as pytest_terminal_summary
from tests.interop_clients.messages_server import MessagesServer
from tests.paths import corpus_sessions


@pytest.fixture(scope="session")
def sessions(tmp_path_factory):
    return {path.name: path for path in corpus_sessions(tmp_path_factory.mktemp("corpus"))}


@pytest.fixture(scope="session")
def provider():
    with ScriptedProvider(script="stops-early") as scripted:
        yield scripted


@pytest.fixture
def model():
    with MessagesServer() as server:
        yield server


@pytest.fixture
def asking(tmp_path, model):
    """The pinned pi."""
    home = PiHome(tmp_path / "home", base_url=model.url)
    with StandIn(home.connection_file) as redline:
        yield Asking(home, model, redline)
