"""EDGE: a small configuration file of an agent, replaced as a whole or not at all.

A name that is a link stays a link: its target is replaced, if that is a regular file of this user. A file in a project
must not be outside of it.
"""

import os
import secrets
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sessions_app.sessionlog.errors import BadInput, Conflict

from .copies import created
from .files import opened, pread, real_path, reported, stat_file, sync_directory, write_all

SIZE_LIMIT: Final = 1_000_000
NOTHING: Final = "Nothing was changed."
DRAFT: Final = "redline-draft"


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A file as it was read. `content` is None if there was none."""

    path: Path
    """Its name in the agent's configuration."""
    real: Path
    """Its path without links."""
    content: bytes | None

    @property
    def is_link(self) -> bool:
        """Whether its path, or a directory of it below the home directory, is a link."""
        base = Path.home() if self.path.is_relative_to(Path.home()) else self.path.parent
        return real_path(base) / self.path.relative_to(base) != self.real


def read_configuration_file(path: Path, inside: Path | None = None) -> ConfigurationFile:
    """The file with this name, which must not lead out of `inside`.

    Raises BadInput `outside`, `not_a_file`, `not_yours`, `too_large`, `dangling_link`, and SystemFailure.
    """
    real = real_path(path)
    if inside is not None and not real.is_relative_to(real_path(inside)):
        raise BadInput("outside", f"{path} leads out of {inside}, to {real}. {NOTHING} Delete the link first.")
    with reported(real, NOTHING):
        try:
            found = stat_file(real)
        except FileNotFoundError:
            if path.is_symlink():
                raise BadInput(
                    "dangling_link",
                    f"{path} is a link to {real}, which does not exist. {NOTHING} Delete the link first.",
                ) from None
            return ConfigurationFile(path, real, None)
    if not stat.S_ISREG(found.st_mode):
        raise BadInput("not_a_file", f"{real} is not a regular file. {NOTHING}")
    if found.st_uid != os.geteuid():
        raise BadInput("not_yours", f"{real} belongs to another user. {NOTHING} Run as its owner.")
    return ConfigurationFile(path, real, _read(real))


def missing_directories(file: ConfigurationFile) -> tuple[str, ...]:
    """The missing directories above a new file, the outermost first."""
    missing: list[str] = []
    directory = file.real.parent
    while not os.path.lexists(directory):
        missing.insert(0, str(directory))
        directory = directory.parent
    return tuple(missing)


def replace_configuration_file(file: ConfigurationFile, content: bytes | None) -> None:
    """Write the file and its missing directories, or delete the file if `content` is None.

    An existing file keeps its mode and owner; a new one is private. Raises Conflict `file_changed` if it has changed
    since it was read, and SystemFailure.
    """
    missing = missing_directories(file)
    try:
        with reported(file.real, NOTHING):
            for directory in missing if content is not None else ():
                Path(directory).mkdir(exist_ok=True)
        _replace(file, content)
    except BaseException:
        remove_directories(missing)
        raise


def remove_directories(paths: tuple[str, ...]) -> None:
    """Remove those of the directories that are empty; they are given with the outermost first."""
    for path in reversed(paths):
        with suppress(OSError):  # it is gone, or no longer empty
            Path(path).rmdir()


def _replace(file: ConfigurationFile, content: bytes | None) -> None:
    with reported(file.real, NOTHING), ExitStack() as undo:
        if content is None:
            _require_unchanged(file)
            file.real.unlink()
        else:
            draft = file.real.with_name(f".{file.real.name}.{DRAFT}-{secrets.token_hex(4)}")
            like = stat_file(file.real) if file.content is not None else None
            with created(draft, like, undo) as descriptor:
                write_all(descriptor, content)
            _require_unchanged(file)
            draft.replace(file.real)
        sync_directory(file.real.parent)


def _require_unchanged(file: ConfigurationFile) -> None:
    present = _read(file.real) if os.path.lexists(file.real) else None
    if real_path(file.path) != file.real or present != file.content:
        raise Conflict(
            "file_changed",
            f"{file.path} was changed by another program meanwhile. {NOTHING} Look at it again.",
        )


def _read(real: Path) -> bytes:
    with opened(real, os.O_RDONLY, NOTHING) as fd, reported(real, NOTHING):
        content = pread(fd, 0, SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise BadInput("too_large", f"{real} is larger than {SIZE_LIMIT:,} bytes. {NOTHING}")
    return content
