"""A separate installation for a test, and its commands: each in a new process as a user runs it, or in this one.

It has a data directory, a home and a database. The user's own files are not touched.
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self
from unittest import mock

from asgiref.local import Local
from django.conf import empty, settings as django_settings
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import StateApps

from redline.main import run
from sessions_app.sessionlog.errors import RedlineError
from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS

UNSAFE_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that a terminal could act on, or that could hide or reverse text."""


SETTINGS: Final = ("redline.settings", "redline.command_settings")
NOWHERE: Final = os.open(os.devnull, os.O_WRONLY)


class Result(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on standard output; fails if there is anything else."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The code of the JSON error, which has a code and a message only."""
        error = self.json["error"]
        assert self.json.keys() == {"error"}
        assert error.keys() == {"code", "message"}
        assert error["message"]
        return str(error["code"])

    @property
    def refusal(self) -> str:
        """The exit code and the code of the JSON error, such as `2 bad_arguments`."""
        return f"{self.code} {self.error}"

    def ok(self) -> Self:
        """Itself; fails unless the command succeeded."""
        assert self.code == 0, self
        return self

    def refused(self, *words: str) -> str:
        """The same of an error whose message says these words."""
        message = self.json["error"]["message"]
        assert all(one in message for one in words), message
        return self.refusal


@dataclass(frozen=True)
class Installation:
    """A data directory and a home. `run` starts a process, `call` uses this one; both have the same effect.

    `call` takes a hundredth of the time. `run` is for what only a process has: streams, signals, imports, an exit code.
    """

    data: Path
    home: Path

    @property
    def sessions(self) -> Path:
        """Atomic's session directory: files in it are known to be Atomic's."""
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
        """`python -m redline …` in a separate process, without a terminal."""
        return finish(self.start(*arguments, **environment))

    def call(self, *arguments: object, stdin: str | None = None, **environment: str) -> Result:
        """The same in this process, on the database of the test.

        The settings are loaded again, as in a new process, if variables are given or if the installation is not the one
        that this process uses. What apps load when they start, such as hooks, is not.
        """
        is_new = bool(environment) or self.data != django_settings.REDLINE_DATA_DIR
        settings = load_settings(self.environment(**environment)) if is_new else contextlib.nullcontext()
        out, err = _Output(), _Output()
        code: int | str | None = 0
        usual = os.umask(0o077)
        try:
            with settings, _input(stdin), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                run(["redline", *map(str, arguments)])
        except SystemExit as ended:
            code = ended.code
        finally:
            os.umask(usual)
        assert isinstance(code, int | None), code
        return Result(code or 0, out.text, err.text)


class _Output(io.TextIOWrapper):
    """A standard stream with the settings that `redline.main` gives it. It stays open: a logger may keep it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)

    def fileno(self) -> int:
        """A descriptor that can be watched; nothing is written to it."""
        return NOWHERE

    @property
    def text(self) -> str:
        self.seek(0)
        return self.read()


@contextlib.contextmanager
def _input(text: str | None) -> Iterator[None]:
    if text is None:
        yield
        return
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))):
        yield


@contextlib.contextmanager
def load_settings(environment: dict[str, str]) -> Iterator[None]:
    """Let this process have this environment, and load the settings from it and connect to their database, at the
    first use of each, as a new process does."""
    usual = django_settings._wrapped, {name: sys.modules.pop(name, None) for name in SETTINGS}
    here = {"_settings": None, "_connections": Local(connections.thread_critical)}
    with mock.patch.dict(os.environ, environment, clear=True), mock.patch.dict(vars(connections), here):
        vars(connections).pop("settings", None)
        django_settings._wrapped = empty
        try:
            yield
        finally:
            if "settings" in vars(connections):
                connections.close_all()
            django_settings._wrapped, modules = usual
            sys.modules.update({name: module for name, module in modules.items() if module is not None})


def _argument(argument: object) -> str | os.PathLike[str]:
    return argument if isinstance(argument, os.PathLike) else str(argument)


def finish(process: subprocess.Popen[str]) -> Result:
    out, err = process.communicate(timeout=WAIT_SECONDS)
    return Result(process.returncode, out, err)


@contextlib.contextmanager
def use_installation(installation: Installation, empty_database: Path, settings: Any) -> Iterator[None]:
    """Make this process use the installation, with a copy of the empty database."""
    installation.data.mkdir(mode=0o700)
    database = installation.data / "redline.sqlite3"
    shutil.copyfile(empty_database, database)
    settings.REDLINE_DATA_DIR = installation.data
    usual = os.environ["HOME"]
    os.environ["HOME"] = str(installation.home)
    try:
        with use_database(database):
            yield
    finally:
        os.environ["HOME"] = usual


@contextlib.contextmanager
def use_database(path: Path) -> Iterator[None]:
    """Connect this process to another database file."""
    usual = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = path
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = usual


@contextlib.contextmanager
def override_configuration(**values: object) -> Iterator[None]:
    """Override values of the configuration, as in `override_configuration(live_minutes=0)`."""
    usual = django_settings.REDLINE
    django_settings.REDLINE = usual.model_copy(update=values)
    try:
        yield
    finally:
        django_settings.REDLINE = usual


def refusal(act: Callable[[], object], *words: str) -> str:
    """`done`, or the exit code and the code of the failure, such as `4 other_branch`, which says these words."""
    try:
        act()
    except RedlineError as error:
        failure = error
    else:
        return "done"
    assert all(one in failure.message for one in words), failure.message
    return f"{failure.exit_code} {failure.code}"


def migrate_to(*targets: tuple[str, str]) -> StateApps:
    """Bring this process's database to these migrations, each with its app, also to those that another one replaces;
    returns the models of that time."""
    executor = MigrationExecutor(connection)
    executor.loader = MigrationLoader(connection, replace_migrations=False)
    for replacing in executor.loader.replacements:
        MigrationRecorder(connection).record_unapplied(*replacing)
        executor.loader.applied_migrations.pop(replacing, None)
    executor.migrate([*targets])
    return executor.loader.project_state([*targets]).apps
