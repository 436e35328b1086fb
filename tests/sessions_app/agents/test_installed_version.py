"""The installed version of an agent: its program is found safely, asked once, and cannot hang Redline."""

import os
from pathlib import Path

import pytest

from sessions_app.agents.edge import installed_version as module
from sessions_app.agents.edge.installed_version import installed_version
from tests.wait import WAIT_SECONDS, wait_until

NAME = "some-agent"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The only directory of PATH with the agent; shells still find theirs."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join([str(directory), "/usr/bin", "/bin"]))
    return directory


@pytest.fixture(autouse=True)
def asked_anew():
    yield
    module._printed_version.cache_clear()


def write(directory: Path, script: str) -> Path:
    program = directory / NAME
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 0.87.1", (0, 87, 1)),
        ("echo some-agent v1.5.2", (1, 5, 2)),
        ("echo 0.8.30-alpha.1", (0, 8, 30)),
        ("echo 0.9.11 >&2", (0, 9, 11)),
        ('test "$1" = --version && echo 1.2.3', (1, 2, 3)),
        # It gets no input, and does not run in a project.
        ('test "$(cat)" = "" && test "$PWD" = / && echo 1.2.3', (1, 2, 3)),
        *((odd, None) for odd in ("echo unknown", "echo 87.1", "echo 99999999.1.1")),
        *((ends, None) for ends in ("echo 1.2.3; exit 1", "true", "kill -9 $$")),
    ],
)
def test_the_version_is_what_the_program_prints(programs, script, version):
    write(programs, script)
    assert installed_version(NAME) == version


def test_without_a_program_there_is_no_version(programs, monkeypatch):
    assert installed_version(NAME) is None
    write(programs, "echo 1.2.3").chmod(0o644)
    assert installed_version(NAME) is None
    (programs / NAME).write_bytes(b"not a program")
    (programs / NAME).chmod(0o755)
    assert installed_version(NAME) is None
    monkeypatch.delenv("PATH")
    assert installed_version(NAME) is None


@pytest.mark.parametrize("relative", ["", ".", "bin"])
def test_a_program_of_the_working_directory_is_never_run(programs, monkeypatch, relative):
    write(programs, f"touch {programs / 'was-run'}; echo 1.2.3")
    monkeypatch.chdir(programs if relative != "bin" else programs.parent)
    monkeypatch.setenv("PATH", relative)
    assert installed_version(NAME) is None
    assert not (programs / "was-run").exists()


def test_a_program_is_asked_once_until_it_changes(programs):
    log = programs / "log"
    program = write(programs, f"echo asked >> {log}; echo 1.2.3")
    assert [installed_version(NAME) for _ in range(3)] == [(1, 2, 3)] * 3
    assert log.read_text() == "asked\n"
    write(programs, f"echo asked >> {log}; echo 1.3.0")
    os.utime(program, ns=(1, 1))
    assert installed_version(NAME) == (1, 3, 0)
    assert log.read_text() == "asked\n" * 2


def test_a_program_that_does_not_end_is_stopped_with_what_it_started(programs, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.5)
    write(programs, f"sleep {WAIT_SECONDS * 2} & echo $! > {programs / 'pid'}; echo 1.2.3; wait")
    assert installed_version(NAME) is None
    started = programs / "pid"
    if number := started.read_text().strip() if started.exists() else "":
        wait_until(lambda: not _runs(number), "what the program started still runs")


def _runs(number: str) -> bool:
    """Whether a process runs; one that has ended may still wait for its parent."""
    try:
        state = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"
