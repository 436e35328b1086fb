"""Running commands: as a user does, in a process of their own, or in this one where a process adds nothing.

Either way with a data directory, a home and a database of the test's own. Nothing of the user's is touched.

    pytest_plugins = ["tests.running"]      gives a test module the fixtures below

PYTEST_DONT_REWRITE: it is imported before pytest could.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from django.conf import settings as django_settings
from django.db import connection

from compaction_app.planning.plan import prepare_plan, run_planner
from compaction_app.services.committing import Approved
from redline.main import run
from sessions_app.database import open_database
from sessions_app.loading import load_session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.readers import READERS
from tests.building import PROJECT, assistant, call, chain, result, text, user
from tests.patience import WAIT_SECONDS

NOBODY = 65534
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What a terminal could act on, or what could hide or turn text around."""


class Result(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output; fails where there is anything else."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The code of the JSON failure, which has a code and a message and nothing else."""
        error = self.json["error"]
        assert self.json.keys() == {"error"}
        assert error.keys() == {"code", "message"}
        assert error["message"]
        return str(error["code"])


@dataclass(frozen=True)
class Installation:
    """A data directory and a home. `run` starts a process, `call` stays in this one; both mean the same."""

    data: Path
    home: Path

    @property
    def sessions(self) -> Path:
        """Where Atomic keeps its sessions: what lies there is known to be Atomic's."""
        return self.home / ".atomic" / "agent" / "sessions"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLINE_")}
        return {**kept, "REDLINE_DATA_DIR": str(self.data), "HOME": str(self.home), **more}

    def start(
        self,
        *arguments: object,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        **environment: str,
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "redline", *map(os.fspath, map(_argument, arguments))],
            cwd=PROJECT,
            env=self.environment(**environment),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )

    def run(self, *arguments: object, **environment: str) -> Result:
        """`python -m redline …` in a process of its own, without a terminal."""
        return finish(self.start(*arguments, **environment))

    def call(self, *arguments: object) -> Result:
        """The same in this process, on the database of the test."""
        argv = ["redline", *map(str, arguments)]
        out, err = io.StringIO(), io.StringIO()
        code: int | str | None = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run(argv)
            except SystemExit as ended:
                code = ended.code
        assert isinstance(code, int | None), code
        return Result(code or 0, out.getvalue(), err.getvalue())


def _argument(argument: object) -> str | os.PathLike[str]:
    return argument if isinstance(argument, os.PathLike) else str(argument)


def finish(process: subprocess.Popen[str]) -> Result:
    out, err = process.communicate(timeout=WAIT_SECONDS)
    return Result(process.returncode, out, err)


# Fixtures ---------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(tmp_path: Path) -> Installation:
    """An installation that was never used: its data directory is not even there."""
    home = tmp_path / "home"
    home.mkdir()
    return Installation(tmp_path / "data", home)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Path:
    """A migrated database without rows, to be copied: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("database") / "redline.sqlite3"
    with django_db_blocker.unblock(), _on_database(path):
        open_database()
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def redline(
    fresh: Installation, empty_database: Path, settings: Any, django_db_blocker: Any
) -> Iterator[Installation]:
    """An installation whose database, a file, is also the one of this process."""
    with django_db_blocker.unblock(), _installed(fresh, empty_database, settings):
        yield fresh


@pytest.fixture
def public(empty_database: Path, settings: Any, django_db_blocker: Any) -> Iterator[Installation]:
    """The same, with everything in the hands of the user that `as_nobody` becomes. Sessions go into `home`."""
    base = Path(tempfile.mkdtemp(prefix="redline-public-"))
    installation = Installation(base / "data", base / "home")
    installation.home.mkdir()
    with django_db_blocker.unblock(), _installed(installation, empty_database, settings):
        for command in ("index", "sessions", "tree", "context", "compact", "migrate-session"):
            installation.call(command, "--help")  # that user may not be able to import what they need
        connection.close()
        base.chmod(0o755)
        give_away(installation.home, installation.data, *installation.data.iterdir())
        yield installation
    for path in (base, *base.rglob("*")):
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(base)


@contextlib.contextmanager
def _installed(installation: Installation, empty_database: Path, settings: Any) -> Iterator[None]:
    installation.data.mkdir(mode=0o700)
    database = installation.data / "redline.sqlite3"
    shutil.copyfile(empty_database, database)
    settings.REDLINE_DATA_DIR = installation.data
    usual = os.environ["HOME"]
    os.environ["HOME"] = str(installation.home)
    try:
        with _on_database(database):
            yield
    finally:
        os.environ["HOME"] = usual


@contextlib.contextmanager
def _on_database(path: Path) -> Iterator[None]:
    usual = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = path
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = usual


@contextlib.contextmanager
def configured(**values: object) -> Iterator[None]:
    """Other values of the configuration in force, as in `configured(live_minutes=0)`."""
    usual = django_settings.REDLINE
    django_settings.REDLINE = usual.model_copy(update=values)
    try:
        yield
    finally:
        django_settings.REDLINE = usual


# Files ------------------------------------------------------------------------------------------------------


def quiet(path: Path, hours: float = 1) -> Path:
    """The file as if nobody had written to it for a while: an agent is not taken to have it open."""
    then = time.time() - 3600 * hours
    os.utime(path, (then, then))
    return path


def place(path: Path, content: bytes) -> Path:
    """A quiet file with this content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return quiet(path)


def snapshot(directory: Path) -> dict[str, bytes | str]:
    """Everything below a directory: the bytes of files, the targets of links."""
    found: dict[str, bytes | str] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


# Children ---------------------------------------------------------------------------------------------------


def in_child(act: Callable[[], str], prepare: Callable[[], object] = lambda: None) -> str:
    """What `act` tells in a forked process, which `prepare` may rob of rights first; it has 20 seconds.

    The interpreter is not started anew: another user may not be able to read it.
    """
    connection.close()  # a connection must not be carried across a fork
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = "died"
        try:
            signal.alarm(20)
            prepare()
            told = act()
        except BaseException as error:  # noqa: BLE001  the parent compares it with what it expects
            told = repr(error)
        finally:
            os.write(writing, told.encode()[:60_000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(pid, 0)
    return told


def as_nobody() -> None:
    """Root may do everything, so it becomes nobody. Any other user is restricted enough as he is."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def give_away(*paths: Path) -> None:
    """Hands paths to the user that `as_nobody` becomes."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)


def refusal(act: Callable[[], object]) -> str:
    """`done`, or the exit code and the code of the failure, as in `4 other_branch`."""
    try:
        act()
    except RedlineError as failure:
        return f"{failure.exit_code} {failure.code}"
    return "done"


# Sessions and plans -----------------------------------------------------------------------------------------


def working_session(*, steps: int = 12, words: int = 300) -> list[dict[str, Any]]:
    """A session worth compacting, in one branch: a task, then calls with long results, then a last word.

    Its ids are e1, e2, …; step n calls `c{n}` in e{2n}, and e{2n+1} answers. The last entry is e{2 steps + 3}.
    """
    worked = [
        recorded
        for step in range(1, steps + 1)
        for recorded in (
            assistant(text(f"Step {step}."), call(f"c{step}", path=f"src/part_{step}.py")),
            result(f"c{step}", " ".join(f"line_{step}_{number}" for number in range(words))),
        )
    ]
    return chain(user("Mend the parser."), *worked, assistant(text("It is mended.")), user("Now the tests."))


def reviewed(path: Path, leaf_id: str | None = None, **own: object) -> Approved:
    """What a human approves who approves everything that the embedded planner proposes."""
    plan = prepare_plan(load_session(path), leaf_id=leaf_id, own=own)
    for _ in run_planner(plan):
        pass
    return Approved(
        loaded=plan.loaded,
        leaf_id=plan.leaf_id,
        parameters=plan.transcript.parameters,
        targets=plan.validated.targets,
        planner=plan.planner,
        origins=plan.origins,
    )


def kept_ids(path: Path, leaf_id: str | None = None) -> list[tuple[str, list[int] | None]]:
    """The active context as Atomic reads it: entry ids with the indexes of the blocks that are left."""
    loaded = load_session(path)
    branch = loaded.tree.branch(leaf_id or loaded.leaf_id)
    return [
        (message.entry.id, None if message.blocks is None else [block.index for block in message.blocks])
        for message in READERS["atomic-0.8"].rebuild(branch).messages
    ]


def without(kept: list[tuple[str, list[int] | None]], targets: list[dict[str, Any]]) -> list[Any]:
    """The context minus what a compaction deletes, by the plain meaning of its targets."""
    gone = {target["entryId"] for target in targets if target["kind"] == "entry"}
    blocks = {(target["entryId"], target["blockIndex"]) for target in targets if target["kind"] != "entry"}
    return [
        (entry_id, None if left is None else [index for index in left if (entry_id, index) not in blocks])
        for entry_id, left in kept
        if entry_id not in gone
    ]
