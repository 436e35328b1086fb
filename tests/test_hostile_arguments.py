"""Every command, whatever its arguments, ends with a documented exit code and an explanation, without a traceback.

Each command line is run twice: as it is, and with `--json`, where standard output has one document.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.factories import session_bytes, working_session
from tests.files import place, unchanged
from tests.installation import Result
from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS

CODES: Final = range(7)
"""The codes in the README, except for 130: these commands are not interrupted."""
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
PATH_COMMANDS: Final = "tree context doctor compact backups restore migrate-session check_vectors".split()
SESSION: Final = "{there}/s.jsonl"
BACKUP: Final = ".2025-01-01T00-00-00-000Z.compact.bak"
MODEL: Final = ["models", "add", "a/b", "--window", "9000"]
LONG_NUMBER: Final = "9" * 30
OTHERS: Final[dict[tuple[str, ...], list[str]]] = {
    (): ["", "\0", "\udcff", "../tree", "tree.py", "__init__", "migrate", "runserver", "shell"],
    ("help",): ["nothing", "tree extra"],
    ("--help",): ["--help"],
    ("--version",): ["--version"],
    ("version",): ["extra"],
    ("--settings=nowhere",): ["tree {there}/s.jsonl"],
    ("tree", SESSION): ["--settings nowhere", "--traceback", SESSION, "-- --json"],
    ("tree",): ["\0"],
    ("context", SESSION): ["--branch", "--branch ", "--branch \udcff", "--branch \x1b[2J", "--open-as \udcff"],
    ("context", SESSION, "--open-as"): ["x" * 100_000],
    ("compact", SESSION, "--ratio"): ["1e999", "nan", "-0", "٠.٥"],
    ("compact", SESSION): ["--ratio= --dry-run", "--yes=1", "--ye", "--branch e1", "--branch e1 --yes"],
    ("compact", SESSION, "--preserve-recent"): [LONG_NUMBER, "9" * 5_000, f"-{LONG_NUMBER}", "0x10"],
    ("compact", SESSION, "--dry-run", "--query"): ["(" * 10_000, "word\t" * 20_000],
    ("compact", SESSION, "--query"): ["", "\udcff", "\x1b]0;x\x07"],
    ("compact", SESSION, "--planner"): ["", "/", "a/b/c", "\udcff/\udcff", "x" * 100_000],
    ("compact", SESSION, "--thinking"): ["high", "\udcff"],
    ("compact",): ["--yes"],
    ("index", "--follow"): [SESSION, "--rebuild"],
    ("index",): [
        *("", "\0", "/dev/zero", "/proc/self/fd", "/proc/self/task", f"{SESSION} {SESSION}", "{there}"),
        *("{there}/nowhere", "{there}/fifo.jsonl", "{there}/socket.jsonl", "{there}/memory.jsonl"),
        *("{there}/loop.jsonl", "{there}/dangling.jsonl", "{there}/\udcff\udcfe.jsonl", "{there}/" + "x" * 5_000),
    ],
    ("sessions",): ["extra", "--limit=-1"],
    ("serve", "--port"): ["-1", "65536", LONG_NUMBER, "1e3", "", "٨٠٨٠"],
    ("serve",): ["extra"],
    ("address", "--port"): ["-1", "65536", LONG_NUMBER, "none"],
    ("fake_provider", "--port"): ["-1", "70000", LONG_NUMBER],
    ("fake_provider", "--script"): ["nothing", "\udcff", f"calls-{LONG_NUMBER} --port x"],
    ("fake_provider", "--pace"): ["nan", "-1", "much"],
    ("token",): ["--new=1", "extra"],
    ("worker", "--plan"): ["999", "0", "-5", LONG_NUMBER, "x", "1 --until-idle"],
    ("check_vectors",): [
        *("{there}/text.jsonl /dev/null", "{there}/binary.jsonl.gz", "{there}/deep.json", "{there}/list.json")
    ],
    ("restore", "--yes"): [
        *("{there}/s.jsonl.9999-99-99T99-99-99-999Z.compact.bak", "{there}/" + BACKUP, "/", "\0"),
        "{there}/fifo.jsonl" + BACKUP + " --unverified",
    ],
    ("restore",): [SESSION + BACKUP],
    ("migrate-session",): ["{there}/old-fifo.jsonl"],
    ("health", "--fix"): ["{there}/old-fifo.jsonl", "{there}/binary.jsonl"],
    ("models",): ["\udcff", "nothing", "add"],
    ("models", "add", "a/\udcff", "--window"): ["9000"],
    ("models", "add", "\udcff/\udcff", "--window"): ["8000"],
    (*MODEL[:4], "9" * 5_000, "--base-url"): ["http://localhost/v1"],
    (*MODEL[:4], LONG_NUMBER, "--base-url"): ["http://127.0.0.1"],
    (*MODEL[:4], "-1", "--base-url"): ["http://127.0.0.1"],
    (*MODEL, "--base-url"): ["http://[::1", "http://localhost:99999/v1", "file:///etc/passwd", "\x1b[2J"],
    (*MODEL, "--key-variable"): ["=", "\0"],
    (*MODEL, "--price-in"): ["1e999"],
    ("models", "test"): ["", "/", "a/b"],
    ("models", "delete"): ["nobody --yes", "\x1b[2J/x", "", "x" * 10_000],
    ("backups",): ["{there}/\udcff.jsonl"],
    ("completion",): ["tcsh", "\udcff"],
}
"""The beginnings of command lines, each with its ends: words between blanks."""
IN_A_PROCESS: Final[list[list[str]]] = [["tree", ODD_PATHS["surrogate"]], ["health", ODD_PATHS["own-pipe"]], ["\udcff"]]
"""Arguments that may reach a process in another form; the first two in the text for people, the last one in JSON."""


def lines() -> Iterator[list[str]]:
    yield from ([command, path] for command in PATH_COMMANDS for path in ODD_PATHS.values())
    yield from ([], [" "], ["models"], ["completion"])
    for beginning, ends in OTHERS.items():
        yield from ([*beginning, *end.split(" ")] for end in ends)


COMMANDS: Final = [*dict.fromkeys((line or [""])[0] for line in lines())]


@pytest.fixture
def there(redline):
    """A directory with everything that is not a session, and one that is."""
    directory = redline.home / "there"
    place(directory / "s.jsonl", session_bytes(working_session(steps=3, words=30)))
    os.mkfifo(directory / "fifo.jsonl")
    os.mkfifo(directory / f"fifo.jsonl{BACKUP}")
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


@pytest.mark.parametrize("command", COMMANDS, ids=ascii)
def test_any_arguments_end_with_an_explanation(redline, there, command):
    for line in lines():
        if (line or [""])[0] != command:
            continue
        arguments = filled(line, there)
        assert_explained(redline.call(*arguments), arguments)
        assert_one_document(redline.call(*with_json(arguments)), arguments)


def test_any_arguments_of_a_process_end_with_an_explanation(redline, there):
    for number, one in enumerate(IN_A_PROCESS):
        arguments = filled(one, there)
        is_for_people = number < 2
        command = arguments if is_for_people else with_json(arguments)
        ended = redline.run(*command)
        assert ended.code == 2, arguments
        (assert_explained if is_for_people else assert_one_document)(ended, arguments)


@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [("compact", (0,), 5), ("tree", (1,), 0), ("compact", (2,), 5), ("compact", (0, 1, 2), 5)],
)
def test_closed_standard_streams_end_without_a_traceback(redline, there, command, closed, code):
    session = there / "s.jsonl"
    with unchanged(session):
        program = "".join(f"exec {descriptor}>&-; " for descriptor in closed) + 'exec "$@"'
        ended = subprocess.run(
            ["sh", "-c", program, "sh", sys.executable, "-m", "redline", command, str(session)],
            cwd=PROJECT,
            env=redline.environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert "Traceback" not in ended.stdout + ended.stderr
        assert ended.returncode == code
    # No output was written into a file of Redline's.
    assert redline.call("sessions", "--json").code == 0
