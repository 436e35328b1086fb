"""Every command, whatever its arguments, ends with a documented exit code and an explanation, without a traceback.

Each list of arguments is run twice: as it is, and with `--json`, where standard output has one document.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation, Result
from tests.paths import PROJECT

CODES: Final = range(7)
"""The codes in the README, except for 130: these commands are not interrupted."""
TIMEOUT: Final = 120

ODD_PATHS: Final = {
    "empty": "",
    "blank": " ",
    "nowhere": "{there}/nowhere.jsonl",
    "directory": "{there}",
    "below-a-file": "{there}/s.jsonl/x",
    "fifo": "{there}/fifo.jsonl",
    "socket": "{there}/socket.jsonl",
    "device": "/dev/zero",
    "null": "/dev/null",
    "terminal": "/dev/tty",
    "own-memory": "{there}/memory.jsonl",
    "own-pipe": "{there}/stdin.jsonl",
    "process": "/proc/self/environ",
    "loop": "{there}/loop.jsonl",
    "dangling": "{there}/dangling.jsonl",
    "long": "{there}/" + "x" * 5_000,
    "deep": "{there}" + "/.." * 2_000 + "/x",
    "escape": "{there}/\x1b]0;title\x07\u202e.jsonl",
    "newline": "{there}/a\nb.jsonl",
    "surrogate": "{there}/\udcff\udcfe.jsonl",
    "user": "~nobody-of-that-name/x.jsonl",
    "option": "-x",
    "after-dashes": "--",
    "not-a-session": "{there}/text.jsonl",
    "binary": "{there}/binary.jsonl",
    "no-newline": "{there}/header.jsonl",
}
PATH_COMMANDS: Final = (
    "tree",
    "context",
    "doctor",
    "compact",
    "backups",
    "restore",
    "migrate-session",
    "check_vectors",
)
SESSION: Final = "{there}/s.jsonl"
OTHERS: Final[list[list[str]]] = [
    [],
    ["help", "nothing"],
    ["help", "tree", "extra"],
    ["--help", "--help"],
    ["--version", "--version"],
    ["version", "extra"],
    [""],
    [" "],
    ["\0"],
    ["\udcff"],
    ["../tree"],
    ["tree.py"],
    ["__init__"],
    ["migrate"],
    ["runserver"],
    ["shell"],
    ["--settings=nowhere", "tree", SESSION],
    ["tree", "--settings", "nowhere", SESSION],
    ["tree", "--traceback", SESSION],
    ["tree", SESSION, SESSION],
    ["tree", SESSION, "--", "--json"],
    ["tree", "\0"],
    ["context", SESSION, "--leaf"],
    ["context", SESSION, "--leaf", ""],
    ["context", SESSION, "--leaf", "\udcff"],
    ["context", SESSION, "--leaf", "\x1b[2J"],
    ["context", SESSION, "--reader", "\udcff"],
    ["context", SESSION, "--reader", "x" * 100_000],
    ["compact", SESSION, "--ratio", "1e999"],
    ["compact", SESSION, "--ratio", "nan"],
    ["compact", SESSION, "--ratio", "-0"],
    ["compact", SESSION, "--ratio", "٠.٥"],
    ["compact", SESSION, "--ratio=", "--dry-run"],
    ["compact", SESSION, "--preserve-recent", "9" * 30],
    ["compact", SESSION, "--preserve-recent", "9" * 5_000],
    ["compact", SESSION, "--preserve-recent", "-" + "9" * 30],
    ["compact", SESSION, "--preserve-recent", "0x10"],
    ["compact", SESSION, "--query", ""],
    ["compact", SESSION, "--query", "\udcff"],
    ["compact", SESSION, "--query", "\x1b]0;x\x07"],
    ["compact", SESSION, "--query", "(" * 10_000, "--dry-run"],
    ["compact", SESSION, "--query", "word " * 20_000, "--dry-run"],
    ["compact", SESSION, "--planner", ""],
    ["compact", SESSION, "--planner", "/"],
    ["compact", SESSION, "--planner", "a/b/c"],
    ["compact", SESSION, "--planner", "\udcff/\udcff"],
    ["compact", SESSION, "--planner", "x" * 100_000],
    ["compact", SESSION, "--thinking", "high"],
    ["compact", SESSION, "--thinking", "\udcff"],
    ["compact", SESSION, "--leaf", "e1"],
    ["compact", SESSION, "--leaf", "e1", "--yes"],
    ["compact", SESSION, "--yes=1"],
    ["compact", SESSION, "--ye"],
    ["compact", "--yes"],
    ["index", "--follow", SESSION],
    ["index", "--follow", "--rebuild"],
    ["index", ""],
    ["index", "\0"],
    ["index", "{there}/nowhere"],
    ["index", "{there}/fifo.jsonl"],
    ["index", "{there}/socket.jsonl"],
    ["index", "/dev/zero"],
    ["index", "{there}/memory.jsonl"],
    ["index", "{there}/loop.jsonl"],
    ["index", "{there}/dangling.jsonl"],
    ["index", "{there}/\udcff\udcfe.jsonl"],
    ["index", "{there}/" + "x" * 5_000],
    ["index", "{there}"],
    ["index", SESSION, SESSION],
    ["index", "/proc/self/fd"],
    ["index", "/proc/self/task"],
    ["sessions", "extra"],
    ["sessions", "--limit=-1"],
    ["serve", "--port", "-1"],
    ["serve", "--port", "65536"],
    ["serve", "--port", "9" * 30],
    ["serve", "--port", "1e3"],
    ["serve", "--port", ""],
    ["serve", "--port", "٨٠٨٠"],
    ["serve", "extra"],
    ["address", "--port", "-1"],
    ["address", "--port", "65536"],
    ["address", "--port", "9" * 30],
    ["address", "--port", "none"],
    ["fake_provider", "--port", "-1"],
    ["fake_provider", "--port", "70000"],
    ["fake_provider", "--port", "9" * 30],
    ["fake_provider", "--script", "nothing"],
    ["fake_provider", "--script", "\udcff"],
    ["fake_provider", "--script", "calls-" + "9" * 30, "--port", "x"],
    ["fake_provider", "--pace", "nan"],
    ["fake_provider", "--pace", "-1"],
    ["fake_provider", "--pace", "much"],
    ["token", "--new=1"],
    ["token", "extra"],
    ["worker", "--run", "999"],
    ["worker", "--run", "0"],
    ["worker", "--run", "-5"],
    ["worker", "--run", "9" * 30],
    ["worker", "--run", "x"],
    ["worker", "--run", "1", "--until-idle"],
    ["check_vectors", "{there}/text.jsonl", "/dev/null"],
    ["check_vectors", "{there}/binary.jsonl.gz"],
    ["check_vectors", "{there}/deep.json"],
    ["check_vectors", "{there}/list.json"],
    ["bench", "nothing"],
    ["bench", ""],
    ["bench", "\udcff"],
    ["restore", "{there}/s.jsonl.2025-01-01T00-00-00-000Z.compact.bak"],
    ["restore", "{there}/s.jsonl.9999-99-99T99-99-99-999Z.compact.bak", "--yes"],
    ["restore", "{there}/.2025-01-01T00-00-00-000Z.compact.bak", "--yes"],
    ["restore", "/", "--yes"],
    ["restore", "{there}/fifo.jsonl.2025-01-01T00-00-00-000Z.compact.bak", "--yes", "--unverified"],
    ["restore", "\0", "--yes"],
    ["migrate-session", "{there}/old-fifo.jsonl"],
    ["doctor", "{there}/old-fifo.jsonl", "--fix"],
    ["doctor", "{there}/binary.jsonl", "--fix"],
    ["models"],
    ["models", "\udcff"],
    ["models", "add", "a/\udcff", "--window", "9000"],
    ["models", "add", "a/b", "--window", "9" * 5_000, "--base-url", "http://localhost/v1"],
    ["models", "add", "a/b", "--window", "9000", "--base-url", "http://[::1"],
    ["models", "add", "a/b", "--window", "9000", "--base-url", "http://localhost:99999/v1"],
    ["models", "add", "a/b", "--window", "9000", "--key-variable", "="],
    ["models", "add", "a/b", "--window", "9000", "--key-variable", "\0"],
    ["models", "add", "a/b", "--window", "9000", "--price-in", "1e999"],
    ["models", "test", ""],
    ["models", "test", "/"],
    ["models", "remove", "nobody", "--yes"],
    ["models", "remove", "\x1b[2J/x"],
    ["backups", "{there}/\udcff.jsonl"],
    ["models"],
    ["models", "nothing"],
    ["models", "add"],
    ["models", "add", "\udcff/\udcff", "--window", "8000"],
    ["models", "add", "a/b", "--window", "9" * 30, "--base-url", "http://127.0.0.1"],
    ["models", "add", "a/b", "--window", "-1", "--base-url", "http://127.0.0.1"],
    ["models", "add", "a/b", "--window", "8000", "--base-url", "file:///etc/passwd"],
    ["models", "add", "a/b", "--window", "8000", "--base-url", "\x1b[2J"],
    ["models", "remove", ""],
    ["models", "remove", "x" * 10_000],
    ["models", "test", "a/b"],
    ["completion"],
    ["completion", "tcsh"],
    ["completion", "\udcff"],
]
PROCESSES: Final = 40
"""How many of the lists also run in a separate process, every other one with `--json`."""


def lists() -> Iterator[tuple[str, list[str]]]:
    for command in PATH_COMMANDS:
        for name, path in ODD_PATHS.items():
            yield f"{command}-{name}", [command, path]
    for number, arguments in enumerate(OTHERS):
        yield f"{(arguments or ['nothing'])[0][:12].encode('unicode_escape').decode()}-{number}", arguments


LISTS: Final = dict(lists())


@pytest.fixture
def there(redline: Installation) -> Path:
    """A directory with everything that is not a session, and one that is."""
    directory = redline.home / "there"
    place(directory / "s.jsonl", session_bytes(working_session(steps=3, words=30)))
    os.mkfifo(directory / "fifo.jsonl")
    os.mkfifo(directory / "fifo.jsonl.2025-01-01T00-00-00-000Z.compact.bak")
    with socket.socket(socket.AF_UNIX) as unix:
        # Its name has a limit of 108 bytes, wherever the tests keep their files.
        here = os.open(".", os.O_RDONLY)
        os.chdir(directory)
        try:
            unix.bind("socket.jsonl")
        finally:
            os.fchdir(here)
            os.close(here)
    (directory / "memory.jsonl").symlink_to("/proc/self/mem")
    (directory / "stdin.jsonl").symlink_to("/proc/self/fd/0")
    (directory / "loop.jsonl").symlink_to("loop.jsonl")
    (directory / "dangling.jsonl").symlink_to("nowhere")
    place(directory / "text.jsonl", b"no session\n")
    place(directory / "binary.jsonl", bytes(range(256)) * 10)
    place(directory / "binary.jsonl.gz", bytes(range(256)) * 10)
    place(directory / "header.jsonl", b'{"type":"session","version":3,"id":"x"}')
    place(directory / "deep.json", b"[" * 100_000)
    place(directory / "list.json", b"[1]")
    return directory


def filled(arguments: list[str], there: Path) -> list[str]:
    return [argument.replace("{there}", str(there)) for argument in arguments]


def assert_explained(ended: Result, arguments: list[str]) -> None:
    assert ended.code in CODES, (arguments, ended)
    assert "Traceback" not in ended.out + ended.err, arguments
    assert "\x1b" not in ended.out + ended.err, arguments
    if ended.code > 1:
        assert ended.err.startswith("redline: ") or "Nothing was written." in ended.out, arguments


def assert_one_document(ended: Result, arguments: list[str]) -> None:
    assert ended.code in CODES, (arguments, ended)
    assert "Traceback" not in ended.out + ended.err, arguments
    document = json.loads(ended.out)
    assert ended.out.count("\n") == 1, arguments
    if ended.code > 1 and "error" in document:
        assert document["error"].keys() == {"code", "message"}, arguments


def with_json(arguments: list[str]) -> list[str]:
    return [*arguments[:1], "--json", *arguments[1:]] if arguments else ["help", "--json"]


@pytest.mark.parametrize("name", LISTS)
def test_any_arguments_end_with_an_explanation(redline: Installation, there: Path, name: str) -> None:
    arguments = filled(LISTS[name], there)
    assert_explained(redline.call(*arguments), arguments)
    assert_one_document(redline.call(*with_json(arguments)), arguments)


def is_executable(arguments: list[str]) -> bool:
    """Whether a system hands such arguments to a process: no NUL, and not too long."""
    return not any("\0" in argument or len(argument) > 100_000 for argument in arguments)


def run_process(redline: Installation, arguments: list[str], **streams: Any) -> Result:
    ended = subprocess.run(
        [sys.executable, "-m", "redline", *map(os.fsencode, arguments)],
        cwd=PROJECT,
        env=redline.environment(),
        timeout=TIMEOUT,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )
    out, err = ((one or b"").decode("utf-8", "replace") for one in (ended.stdout, ended.stderr))
    return Result(ended.returncode, out, err)


SAMPLE: Final = [name for name in LISTS if is_executable(LISTS[name])][:: len(LISTS) // PROCESSES]


@pytest.mark.parametrize("name", SAMPLE)
def test_any_arguments_of_a_process_end_with_an_explanation(
    redline: Installation, there: Path, name: str
) -> None:
    arguments = filled(LISTS[name], there)
    if SAMPLE.index(name) % 2:
        assert_one_document(run_process(redline, with_json(arguments)), arguments)
    else:
        assert_explained(run_process(redline, arguments), arguments)


def test_there_are_enough_argument_lists() -> None:
    assert len(LISTS) >= 150
    assert len(SAMPLE) >= PROCESSES


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("command", ["tree", "sessions", "compact"])
def test_closed_standard_streams_end_without_a_traceback(
    redline: Installation, there: Path, command: str, closed: tuple[int, ...]
) -> None:
    session = there / "s.jsonl"
    before = session.read_bytes()
    program = "".join(f"exec {descriptor}>&-; " for descriptor in closed) + 'exec "$@"'
    arguments = [command] if command == "sessions" else [command, str(session)]
    ended = subprocess.run(
        ["sh", "-c", program, "sh", sys.executable, "-m", "redline", *arguments],
        cwd=PROJECT,
        env=redline.environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert "Traceback" not in ended.stdout + ended.stderr
    assert ended.returncode == (5 if command == "compact" else 0)
    assert session.read_bytes() == before
    # No output was written into a file of Redline's.
    assert redline.call("sessions", "--json").code == 0
