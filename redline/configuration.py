"""The user's configuration, and the source of each value.

Environment variables `REDLINE_*` take precedence over `redline.toml` in the data directory. An error in either is not
fatal here: it is stored, and reported as a system check with an id.
"""

import difflib
import json
import os
import secrets
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import platformdirs
import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveInt,
)
from pydantic_core import PydanticCustomError

from sessions_app.agents.registry import AGENTS, READERS, default_roots as agents_roots
from sessions_app.disk.files import content_created_once
from sessions_app.disk.loopback import loopback_address
from sessions_app.sessionlog.errors import SystemFailure

FILE_NAME = "redline.toml"
SECRET_KEY_FILE = "secret_key"  # noqa: S105  # a file name
DATABASE_FILE = "redline.sqlite3"
PREFIX = "REDLINE_"
IN_JSON = ("roots", "windows", "prices", "servers")
"""Fields whose environment variables contain JSON."""


def _one_of(names: Sequence[str]) -> BeforeValidator:
    """A validator that accepts these names only."""

    def check(given: object) -> object:
        if given not in names:
            known = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
            raise PydanticCustomError("unknown_name", "Input should be {known}", {"known": known})
        return given

    return BeforeValidator(check)


class RootSetting(BaseModel):
    """A directory with sessions: the agent that writes them, and the reader for them."""

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


class PriceSetting(BaseModel):
    """Prices of a model's input in US dollars for a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: NonNegativeFloat
    cache_read: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None


def default_roots() -> list[RootSetting]:
    """The agents' default session directories."""
    return [RootSetting(path=Path(path), agent=agent) for path, agent in agents_roots(os.environ)]


class Configuration(BaseModel):
    """The effective configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: list[RootSetting] = Field(default_factory=default_roots)
    """Folders that are searched for sessions. In the environment: JSON."""
    windows: dict[str, PositiveInt] = Field(default_factory=dict)
    """Context windows in tokens by model id; they take precedence over those of the agents and of Redline's table."""
    prices: dict[str, PriceSetting] = Field(default_factory=dict)
    """Prices of models' input by model id, in US dollars for a million tokens: `input`, `cache_read` and `cache_write`.
    They take precedence over those of the Models page and of the agents; without any, list prices count. A name without
    the date of a version is also that of its dated versions."""
    servers: dict[
        Annotated[str, _one_of([key for key, agent in AGENTS.items() if agent.store.has_server])],
        Annotated[str, AfterValidator(lambda address: str(loopback_address(address)))],
    ] = Field(default_factory=dict)
    """Addresses on this machine of agents' running servers, by agent, such as `http://127.0.0.1:4096`. If only that
    server has a session's database open, the session is changed through it."""
    thinking_guard: Literal["latest", "all"] = "latest"
    """Whether the last assistant message keeps its thinking, or all of them do."""
    live_minutes: float = Field(default=5, ge=0, le=525_600)
    """A session counts as live for this many minutes after the last write."""
    lock_seconds: float = Field(default=10, ge=0, le=3_600)
    """How long a write waits for another Redline process."""

    database_seconds: float = Field(default=20, gt=0, le=20)
    """How long a statement waits while another process writes to Redline's own database."""
    answer_minutes: float = Field(default=30, gt=0, le=1_440)
    """The longest time for one complete answer of a model; reasoning models take minutes."""

    work_in: Literal["server", "worker"] = "server"
    """Which processes work on plans: those of the server, or those that `redline worker` starts."""
    plan_by_itself: bool = False
    """Plan sessions automatically when they are almost full; a plan is never confirmed automatically. The settings page
    has a switch for it."""
    plan_by_itself_with: str = "embedded"
    """The planner for that: `embedded`, `prune`, a model as `provider/name`, or `session` for each session's own model.
    If you have not agreed to a model's provider, the embedded planner is used instead."""
    lab: bool = True
    """Include the benchmark and what compactions cost: pages, commands and background work. Recorded results are always
    kept."""
    hooks: list[str] = Field(default_factory=list)
    """Modules called before a compaction is planned. In the environment: JSON, or names separated by commas."""

    @pydantic.field_validator("hooks", mode="before")
    @classmethod
    def _named(cls, hooks: object) -> object:
        if not isinstance(hooks, str):
            return hooks
        if hooks.lstrip().startswith("["):
            return json.loads(hooks)
        return [name.strip() for name in hooks.split(",") if name.strip()]


VARIABLES: Final = {name: f"{PREFIX}{name.upper()}" for name in Configuration.model_fields}
"""The environment variable of each field."""


def _expanded(path: Path) -> Path:
    """The path with `~` replaced by a home directory. Raises ValueError if there is no such user."""
    try:
        return path.expanduser()
    except RuntimeError as fault:
        raise ValueError(f"{path}: {fault}") from fault


def data_directory() -> Path:
    """`$REDLINE_DATA_DIR`, otherwise the platform's directory for user data; created if it is missing, and private.

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
            f"The data directory {directory} cannot be created: {getattr(fault, 'strerror', fault)}. Nothing was done. "
            "Set REDLINE_DATA_DIR to a directory that you may write to.",
        ) from fault
    return directory


def _close_to_others(directory: Path) -> None:
    """Ensure that only this user can use the directory.

    A directory that others can only read is closed to them, if it is empty or Redline's. If others can write to it, it
    is refused: they may have added a configuration, which names modules to run. Raises SystemFailure, OSError.
    """
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise SystemFailure(
            "foreign_data_directory",
            f"The data directory {directory} belongs to another user (uid {found.st_uid}). Nothing was done. "
            "Set REDLINE_DATA_DIR to a directory that you own.",
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
            f"Other users can read the data directory {directory} (mode {mode:o}), and it contains files that are not "
            "Redline's. Nothing was done. Set REDLINE_DATA_DIR to a directory for Redline only.",
        )
    directory.chmod(0o700)


def secret_key(directory: Path) -> str:
    """The secret key of this installation, created at the first start; only its user can read it.

    Raises SystemFailure `no_secret_key`.
    """
    path = directory / SECRET_KEY_FILE
    try:
        return content_created_once(path, lambda: secrets.token_urlsafe(50))
    except OSError as fault:
        raise SystemFailure(
            "no_secret_key", f"The key {path} cannot be read or created: {fault.strerror}. Nothing was done."
        ) from fault


def load(directory: Path) -> tuple[Configuration, list[str]]:
    """The configuration, and error messages. If there are any errors, the defaults are used."""
    try:
        values, variables = _values(directory), _variables()
        # A table in the environment is merged into the file's; any other value replaces the file's.
        for name, value in variables.items():
            table = values.get(name)
            values[name] = {**table, **value} if isinstance(table, dict) and isinstance(value, dict) else value
        return Configuration(**values), []
    except pydantic.ValidationError as fault:
        found = fault.errors(include_url=False, include_input=False, include_context=False)
        faults = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in found]
    except ValueError as fault:
        faults = [str(fault)]
    return Configuration.model_construct(), faults


def _values(directory: Path) -> dict[str, Any]:
    """The values of the file, by field; none if there is no file. Raises ValueError if it cannot be read."""
    path = directory / FILE_NAME
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise ValueError(f"{path} is not valid TOML: {fault}") from fault
    except OSError as fault:
        raise ValueError(f"{path} cannot be read: {fault.strerror}") from fault


def _variables() -> dict[str, Any]:
    """The values of environment variables, by field. Raises ValueError if one that must be JSON is not."""
    texts = {name.upper(): text for name, text in os.environ.items()}
    found: dict[str, Any] = {name: texts[variable] for name, variable in VARIABLES.items() if variable in texts}
    for name in filter(found.__contains__, IN_JSON):
        try:
            found[name] = json.loads(found[name])
        except (ValueError, RecursionError) as fault:
            raise ValueError(f"{VARIABLES[name]} is not JSON: {fault}") from fault
    return found


def sources(directory: Path, faults: Sequence[str]) -> dict[str, list[str]]:
    """By field, the sources of its value: the variable, the file, or both if they are merged; none for the default.

    `faults` are those that `load` found: if there are any, all values are defaults.
    """
    if faults:
        return {name: [] for name in VARIABLES}
    values = _values(directory)
    set_here = {name.upper() for name in os.environ}
    found = {}
    for name, variable in VARIABLES.items():
        named = [variable] if variable in set_here else []
        # Tables of both sources are merged; any other value in the environment replaces the file's.
        if name in values and (not named or isinstance(values[name], dict)):
            named.append(FILE_NAME)
        found[name] = named
    return found


def misspelt() -> list[tuple[str, str]]:
    """Variables that set nothing but resemble the name of one that would; each with that name.

    Names in the file are checked strictly; the environment also has variables of other programs and of the tests.
    """
    known = [*VARIABLES.values(), f"{PREFIX}DATA_DIR"]
    set_here = sorted(name.upper() for name in os.environ if name.upper().startswith(PREFIX))
    return [
        (name, near[0])
        for name in set_here
        if name not in known and (near := difflib.get_close_matches(name, known, n=1, cutoff=0.85))
    ]
