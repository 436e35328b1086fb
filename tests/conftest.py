"""Fixtures of all tests: a separate installation, a root with sessions, and browsers."""

from tests.isolation import TEMPORARY_DIRECTORIES

# isort: split
import gc
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from django.db import connection
from hypothesis import HealthCheck, settings as hypothesis_settings
from xdist.scheduler.loadfile import LoadFileScheduling

from compaction_app.scripted.server import ScriptedProvider
from redline.configuration import Configuration, RootSetting
from sessions_app.database.migrated import open_database
from sessions_app.document.document import forget_documents
from sessions_app.index import progress
from sessions_app.jobs import job
from tests.budget import FACTOR, USUAL
from tests.clients import authorized_client, new_client
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation, use_database, use_installation
from tests.lease_clock import Clock
from tests.processes import give_to_nobody
from tests.server import start_shared_server

# A shell's background job ignores interrupts, and would pass this on to the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine, not on Redline. `make test` tries the same examples each time, so
# that it fails for a change only; `make test-all` tries more, and others each time.
hypothesis_settings.register_profile(
    "redline",
    deadline=None,
    max_examples=USUAL * FACTOR,
    derandomize=FACTOR == 1,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("redline")


PARTS: Final = "tests/browser/test_shots.py"
LONGEST_FIRST: Final = (
    PARTS,
    "tests/test_secrets.py",
    "tests/browser/test_live_model.py",
    "tests/compaction_app/runs/test_model_runs.py",
    "tests/browser/test_journey.py",
    "tests/compaction_app/planning/test_summarizer.py",
    "tests/browser",
    "tests/compaction_app/commit",
    "tests/compaction_app/runs",
    "tests/test_numbers.py",
    "tests/compaction_app",
)
"""The order in which workers take files, those that take longest first: a worker that gets one last ends late."""


class ByFile(LoadFileScheduling):
    """One worker takes the tests of a file, which share what they set up; the parts of the pages go to any."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(PARTS) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        found = (number for number, path in enumerate(LONGEST_FIRST) if item.location[0].startswith(path))
        return next(found, len(LONGEST_FIRST))

    items.sort(key=place)


def pytest_unconfigure() -> None:
    for directory in TEMPORARY_DIRECTORIES:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_indexing():
    """Forget what a follower announced in an earlier test: this process remembers it."""
    progress.remember({"indexing": None, "roots": {}})


@pytest.fixture(autouse=True)
def no_branches():
    """Forget the branches of earlier tests: this process remembers them."""
    forget_documents()


@pytest.fixture
def fresh(tmp_path, django_db_blocker):
    """An unused installation: not even its data directory exists."""
    home = tmp_path / "home"
    home.mkdir()
    with django_db_blocker.unblock():
        yield Installation(tmp_path / "data", home)


@pytest.fixture(scope="session")
def django_db_setup():
    """Refuse pytest-django's own database, which is in memory: this process could not leave it for one in a file."""
    pytest.fail("Use the fixture `redline` instead of the mark `django_db`.")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory, django_db_blocker):
    """A migrated database without rows, to be copied: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("database") / "redline.sqlite3"
    with django_db_blocker.unblock(), use_database(path):
        open_database()
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def redline(fresh, empty_database, settings, django_db_blocker):
    """An installation whose database, a file, is also the one of this process."""
    with django_db_blocker.unblock(), use_installation(fresh, empty_database, settings):
        yield fresh


@pytest.fixture
def path(redline):
    """A session of Atomic, not written to recently."""
    return place(redline.sessions / "s.jsonl", session_bytes(working_session()))


@pytest.fixture
def public(empty_database, settings, django_db_blocker):
    """The same, owned by the user that `become_nobody` becomes. Sessions go into `home`."""
    base = Path(tempfile.mkdtemp(prefix="redline-public-"))
    installation = Installation(base / "data", base / "home")
    installation.home.mkdir()
    with django_db_blocker.unblock(), use_installation(installation, empty_database, settings):
        for command in ("index", "sessions", "tree", "context", "compact", "migrate-session"):
            installation.call(command, "--help")  # that user may not be able to import their modules
        connection.close()
        base.chmod(0o755)
        give_to_nobody(installation.home, installation.data, *installation.data.iterdir())
        yield installation
    for path in (base, *base.rglob("*")):
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(base)


@pytest.fixture
def known_root(tmp_path, settings, redline):
    """A configured root in which a test puts its sessions."""
    directory = tmp_path / "shown"
    directory.mkdir()
    usual = Configuration()
    settings.REDLINE = usual.model_copy(update={"roots": [RootSetting(path=directory, agent="atomic")]})
    from sessions_app.index.roots import configured_roots

    configured_roots()
    return directory


@pytest.fixture
def idle_root(known_root, settings):
    """A configured root whose sessions never count as live, whenever they were written."""
    settings.REDLINE = settings.REDLINE.model_copy(update={"windows": {"m-small": 1_000}, "live_minutes": 0})
    return known_root


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    """The server of this worker, for all tests that neither configure nor end it: they take a `place_in` it."""
    with start_shared_server(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture
def client(redline):
    return new_client()


@pytest.fixture
def browser(redline):
    """A browser with the launch cookie."""
    return authorized_client()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(job, "time", clock)
    return clock


@pytest.fixture
def provider():
    with ScriptedProvider() as scripted:
        yield scripted


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported and collected stays: no garbage collection looks at it, and forks share its memory."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result
