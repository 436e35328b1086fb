"""EDGE: a client's program, run without a terminal, the user's environment, or a network.

It gets a given environment, an empty pipe as standard input, and a limit on time and output. Whatever it
started in its process group is ended with it.
"""
# WAS sessions_app/agents/edge/dry_resume/scratch: """EDGE: the place in which a client runs instead of the user's home."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

OUTPUT_LIMIT: Final = 1 << 20
"""Bytes that are kept of each output, from its end."""


SECONDS: Final = 120
"""The time that one run may take; it usually takes one to four seconds."""
ERROR_SHOWN: Final = 500
"""Characters of an error that are passed on."""


class ClientUnusable(Exception):
    """A client does not work with what it is given."""


class ClientExit(NamedTuple):
    """How a program ended: its exit code, None if it took too long, and the end of its outputs."""

    code: int | None
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """Why it failed, as far as it said so."""
        if self.code is None:
            return f"it did not end within {SECONDS} seconds."
        said = (self.errors.strip() or self.output.strip()).splitlines()
        return said[-1][:ERROR_SHOWN] if said else f"exit code {self.code}."


def run_client(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], seconds: float = SECONDS
) -> ClientExit:
    """Run a client's program until it ends, or for as many seconds. Raises ClientUnusable if it cannot be run."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        # Files instead of pipes: what the program leaves behind may keep them open, and nobody waits for that.
        try:
            process = subprocess.Popen(  # noqa: S603  # the user's own program
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except OSError as fault:
            raise ClientUnusable(f"{command[0]}: {fault.strerror}.") from fault
        try:
            assert process.stdin is not None  # noqa: S101  # it is a pipe
            process.stdin.close()
            code = _code(process, seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return ClientExit(code, _end(output), _end(errors))


def _code(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - OUTPUT_LIMIT))
    return output.read(OUTPUT_LIMIT).decode("utf-8", "replace")


NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that does not exist: a request that would leave the computer fails at once."""


class Scratch(NamedTuple):
    """A home directory, a project in it, and the base URL of the only model."""

    home: Path
    project: Path
    model_url: str

    @property
    def environment(self) -> dict[str, str]:
        """An environment with nothing of the user's but the path to programs."""
        home = self.home
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "TMPDIR": str(home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
        }


def new_scratch(directory: Path, model_url: str) -> Scratch:
    """An empty home in an existing directory."""
    home = directory.resolve()
    project = home / "project"
    project.mkdir(exist_ok=True)
    return Scratch(home, project, model_url)
