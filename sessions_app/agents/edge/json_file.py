"""EDGE: the small JSON and TOML files that agents keep for themselves, such as their settings.

A session's `cwd` is untrusted data. The only file that is read there is the project's settings, at most 1 MB; it is
never written, and links out of the project are not followed. A file that is not a readable object is skipped, and
reported as a fault.
"""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sessions_app.disk.files import open_file, stat_file
from sessions_app.sessionlog.jsjson import parse

SIZE_LIMIT: Final = 1_000_000
# What is not closed goes to the end, instead of being looked for again after each character.
_STRING_OR_COMMENT: Final = re.compile(rb'("(?:[^"\\]|\\.)*+"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rb'("(?:[^"\\]|\\.)*+"?)|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonFile:
    """The object in a file; if it cannot be used, or there is no file, an empty one."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    """The reason why an existing file cannot be used."""
    exists: bool = True


def read_json_file(path: Path, inside: Path | None = None) -> JsonFile:
    """The object in a file, which may be a link, but not to a path outside `inside`."""
    return _read_file(path, inside, parse, "JSON")


def read_commented_json_file(path: Path, inside: Path | None = None) -> JsonFile:
    """As `read_json_file`, for a file that may have comments and trailing commas."""

    def parse_commented(data: bytes) -> Any:
        kept = _STRING_OR_COMMENT.sub(lambda found: found[1] or b" ", data)
        return parse(_TRAILING_COMMA.sub(lambda found: found[1] or b"", kept))

    return _read_file(path, inside, parse_commented, "JSON")


def read_toml_file(path: Path) -> JsonFile:
    """The table in a TOML file."""
    return _read_file(path, None, lambda data: tomllib.loads(data.decode()), "TOML")


def existing_files(
    cwd: str,
    names: Sequence[str],
    others: Iterable[Path],
    read: Callable[[Path, Path | None], JsonFile] = read_json_file,
) -> list[JsonFile]:
    """The files with these names in the project of a session, then the others, without those that do not exist."""
    project = Path(cwd)
    is_usable = project.is_absolute() and "\0" not in cwd
    found = [read(project / name, project) for name in names] if is_usable else []
    return [file for file in [*found, *(read(path, None) for path in others)] if file.exists]


def _read_file(path: Path, inside: Path | None, decode: Callable[[bytes], Any], form: str) -> JsonFile:
    try:
        real = Path(os.path.realpath(path))
        if inside is not None and not real.is_relative_to(os.path.realpath(inside)):
            return JsonFile(path, fault=f"it is a link out of {inside}")
        data = _read_small(real)
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):
        # No file can have a name that cannot be encoded.
        return JsonFile(path, exists=False)
    except OSError as fault:
        return JsonFile(path, fault=fault.strerror or str(fault))
    if len(data) > SIZE_LIMIT:
        return JsonFile(path, fault=f"it is larger than {SIZE_LIMIT} bytes")
    try:
        values = decode(data)
    except ValueError as fault:
        return JsonFile(path, fault=f"it is not valid {form}: {fault}")
    return JsonFile(path, values) if isinstance(values, dict) else JsonFile(path, fault=f"it is not a {form} object")


def _read_small(path: Path) -> bytes:
    # A path from a hostile cwd could be a pipe or a device, and opening one affects the other end.
    _require_file(stat_file(path))
    # If it becomes one in between, opening it at least does not block.
    descriptor = open_file(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        _require_file(os.fstat(descriptor))
        return file.read(SIZE_LIMIT + 1)


def _require_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is not a regular file")
