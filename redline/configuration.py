"""What the user can configure, and where each value comes from.

Two sources, the first wins: environment variables `REDLINE_*`, and `redline.toml` in the data directory. A
mistake in either is not fatal here: it is kept, and shown as a system check with an id.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import secrets
import stat
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt
from pydantic_core import PydanticCustomError

from sessions_app.agents.registry import AGENTS, READERS
from sessions_app.sessionlog.errors import SystemFailure

FILE_NAME = "redline.toml"
SECRET_KEY_FILE = "secret_key"  # noqa: S105  # a file name
DATABASE_FILE = "redline.sqlite3"
PREFIX = "REDLINE_"
IN_JSON = ("roots", "windows")
"""Fields that a variable gives as JSON."""


def _one_of(names: Sequence[str]) -> BeforeValidator:
    """Takes these names and nothing else."""

    def check(given: object) -> object:
        if given not in names:
            known = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
            raise PydanticCustomError("unknown_name", "Input should be {known}", {"known": known})
        return given

    return BeforeValidator(check)


class RootSetting(BaseModel):
    """A directory with sessions: which agent writes there, and how to read what it writes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    agent: Annotated[str, _one_of([*AGENTS, ""])] = ""
    reader: Annotated[str, _one_of([*READERS, ""])] = ""

    @pydantic.field_validator("path")
    @classmethod
    def _expand(cls, path: Path) -> Path:
        if "\0" in str(path):
            raise ValueError("a path cannot contain a NUL character")
        whole = _expanded(path)
        if not whole.is_absolute():
            raise ValueError(f"{path} depends on the current directory; begin it with / or ~")
        return whole


def default_roots() -> list[RootSetting]:
    """Where the agents keep their sessions."""
    return [RootSetting(path=Path(agent.sessions), agent=agent.key) for agent in AGENTS.values()]


class Configuration(BaseModel):
    """The configuration in force."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    roots: list[RootSetting] = Field(default_factory=default_roots)
    """Directories to index. In the environment: JSON."""
    windows: dict[str, PositiveInt] = Field(default_factory=dict)
    """Context windows in tokens by model id; they win over what the agents and Redline know."""
    thinking_guard: Literal["latest", "all"] = "latest"
    """Whether the last assistant keeps its thinking, or all of them do."""
    live_minutes: float = Field(default=5, ge=0, le=525_600)
    """A session written to within so many minutes counts as live."""
    lock_seconds: float = Field(default=10, ge=0, le=3_600)
    """How long a write waits for another Redline process."""

    database_seconds: float = Field(default=20, gt=0, le=20)
    """How long a statement waits while another process writes to Redline's own database."""
    answer_minutes: float = Field(default=30, gt=0, le=1_440)
    """How long one answer of a model may take as a whole; a model that reasons takes minutes."""

    work_in: Literal["server", "worker"] = "server"
    """Where runs are worked on: beside the server, or in processes that `redline worker` starts."""
    plan_by_itself: bool = False
    """Plan sessions that are due by itself, so that a proposal waits; never commit."""
    plan_by_itself_with: str = "embedded"
    """The planner for that: `embedded`, a model as `provider/name`, or `session` for each session's own model. A model
    plans only where you agreed to that for its provider; else the embedded planner does."""
    hooks: list[str] = Field(default_factory=list)
    """Modules that are asked before a compaction is planned. In the environment: JSON, or names with commas between."""

    @pydantic.field_validator("hooks", mode="before")
    @classmethod
    def _named(cls, hooks: object) -> object:
        if not isinstance(hooks, str):
            return hooks
        if hooks.lstrip().startswith("["):
            return json.loads(hooks)
        return [name.strip() for name in hooks.split(",") if name.strip()]


def _expanded(path: Path) -> Path:
    """The path with `~` replaced by a home directory. Raises ValueError if there is no such user."""
    try:
        return path.expanduser()
    except RuntimeError as fault:
        raise ValueError(f"{path}: {fault}") from fault


def data_directory() -> Path:
    """`$REDLINE_DATA_DIR`, else the platform's directory for a user's data; made where it is missing, and private.

    Raises SystemFailure `no_data_directory`, `foreign_data_directory` and `open_data_directory`.
    """
    named = os.environ.get("REDLINE_DATA_DIR")
    directory = Path(named) if named else platformdirs.user_data_path("redline")
    try:
        directory = _expanded(directory).absolute()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(directory)
    except (OSError, ValueError) as fault:
        raise SystemFailure(
            "no_data_directory",
            f"The data directory {directory} cannot be made: {getattr(fault, 'strerror', fault)}. Nothing was done. "
            "Set REDLINE_DATA_DIR to a directory that you may write to.",
        ) from fault
    return directory


def _close_to_others(directory: Path) -> None:
    """See to it that only this user can use the directory.

    One that is open to others is closed if they could read it at most, and it is empty or Redline's. Into one that
    they may write to they may have put a configuration, which names modules to run. Raises SystemFailure, OSError.
    """
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise SystemFailure(
            "foreign_data_directory",
            f"The data directory {directory} belongs to another user (uid {found.st_uid}). Nothing was done. "
            "Set REDLINE_DATA_DIR to a directory of your own.",
        )
    mode = stat.S_IMODE(found.st_mode)
    if not mode & 0o077:
        return
    names = {entry.name for entry in directory.iterdir()}
    if names and mode & 0o022:
        raise SystemFailure(
            "open_data_directory",
            f"Other users can write to the data directory {directory} (mode {mode:o}). Nothing was read from it. "
            f"Check that everything in it is yours, then close it: chmod 700 {directory}",
        )
    if names and names.isdisjoint((FILE_NAME, SECRET_KEY_FILE, DATABASE_FILE)):
        raise SystemFailure(
            "open_data_directory",
            f"Other users can read the data directory {directory} (mode {mode:o}), and it holds other things than "
            "Redline's. Nothing was done. Set REDLINE_DATA_DIR to a directory of its own.",
        )
    directory.chmod(0o700)


def secret_key(directory: Path) -> str:
    """The key of this installation, made at the first start; only its user may read it.

    Raises SystemFailure `no_secret_key`.
    """
    path = directory / SECRET_KEY_FILE
    try:
        if not path.exists():
            # Linked into place whole, so that two first starts at once agree on one key.
            with tempfile.NamedTemporaryFile("w", dir=directory, prefix=f".{SECRET_KEY_FILE}.") as draft:
                draft.write(secrets.token_urlsafe(50))
                draft.flush()
                with contextlib.suppress(FileExistsError):
                    path.hardlink_to(draft.name)
        return path.read_text(encoding="ascii")
    except OSError as fault:
        raise SystemFailure(
            "no_secret_key", f"The key {path} cannot be read or made: {fault.strerror}. Nothing was done."
        ) from fault


def load(directory: Path) -> tuple[Configuration, list[str]]:
    """The configuration, and what is wrong with it in words. With a fault, the defaults are in force."""
    path = directory / FILE_NAME
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        values = {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        return _defaults(), [f"{path} is no TOML: {fault}"]
    except OSError as fault:
        return _defaults(), [f"{path} cannot be read: {fault.strerror}"]
    try:
        variables = _variables()
        # A table in the environment adds to the file's; anything else takes its place.
        for name, value in variables.items():
            table = values.get(name)
            values[name] = (
                {**table, **value} if isinstance(table, dict) and isinstance(value, dict) else value
            )
        return Configuration(**values), []
    except pydantic.ValidationError as fault:
        return _defaults(), [
            f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
            for error in fault.errors(include_url=False, include_input=False, include_context=False)
        ]
    except ValueError as fault:
        return _defaults(), [str(fault)]


def _variables() -> dict[str, Any]:
    """The values that environment variables set, by field. Raises ValueError if one that must be JSON is not."""
    texts = {name.upper(): text for name, text in os.environ.items()}
    found: dict[str, Any] = {}
    for name in Configuration.model_fields:
        variable = f"{PREFIX}{name.upper()}"
        if variable not in texts:
            continue
        found[name] = texts[variable]
        if name in IN_JSON:
            try:
                found[name] = json.loads(texts[variable])
            except (ValueError, RecursionError) as fault:
                raise ValueError(f"{variable} is not JSON: {fault}") from fault
    return found


def sources(directory: Path, faults: Sequence[str]) -> dict[str, list[str]]:
    """By field, where its value comes from: the variable, the file, both where they add up; none: the default.

    `faults` are those that `load` found: with one, all is as by default.
    """
    if faults:
        return {name: [] for name in Configuration.model_fields}
    path = directory / FILE_NAME
    values = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    set_here = {name.upper() for name in os.environ}
    found = {}
    for name in Configuration.model_fields:
        variable = f"{PREFIX}{name.upper()}"
        named = [variable] if variable in set_here else []
        # Tables of both places add up, anything else of the environment takes the file's place.
        if name in values and (not named or isinstance(values[name], dict)):
            named.append(FILE_NAME)
        found[name] = named
    return found


def misspelt() -> list[tuple[str, str]]:
    """Variables that set nothing, but are named almost like one that would; each with that one.

    The file is strict about its names; among variables there are some of other programs, and of the tests.
    """
    known = [f"{PREFIX}{name.upper()}" for name in (*Configuration.model_fields, "data_dir")]
    set_here = sorted(name.upper() for name in os.environ if name.upper().startswith(PREFIX))
    return [
        (name, near[0])
        for name in set_here
        if name not in known and (near := difflib.get_close_matches(name, known, n=1, cutoff=0.85))
    ]


def _defaults() -> Configuration:
    return Configuration.model_construct(
        roots=default_roots(),
        windows={},
        thinking_guard="latest",
        live_minutes=5,
        lock_seconds=10,
        database_seconds=20,
        answer_minutes=30,
        work_in="server",
        plan_by_itself=False,
        plan_by_itself_with="embedded",
        hooks=[],
    )
