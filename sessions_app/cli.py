"""The base of all commands: output, errors and prompts.

With `--json` a command prints one JSON document on standard output and nothing else there; errors have the form
`{"error": {"code", "message"}}`. Text from transcripts and file names is escaped before it reaches a terminal: it may
contain sequences that move the cursor, set the title or reverse the reading direction.

Exit codes: 0 success, 1 a check failed, 2 invalid input, 3 target not met and nothing written, 4 conflict,
5 not confirmed, 6 system failure, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TextIO

import django
from django.apps import apps
from django.core import checks
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from sessions_app.database.sqlite import failure_of
from sessions_app.disk.files import reported
from sessions_app.sessionlog.text import one_line, printable as printable

from .checks import CONFIGURATION
from .earlier_names import FLAGS, report_renamed
from .sessionlog.errors import BadInput, RedlineError, SystemFailure
from .sessionlog.jsjson import well_formed
from .terminal import Screen

if TYPE_CHECKING:
    # Commands that only read a session do not load the models.
    from .agents.base import Agent
    from .document.document import Document
    from .models import Session
    from .storage.session_loader import LoadedSession

SESSION_HELP: Final = "a session: its path, its short id as `redline sessions` prints it, or its id in the agent"
"""The help of an argument of the type `session`."""
LEAF_HELP: Final = "the last entry of the branch (default: the file's last entry)"
"""The help of the flag `--branch`."""
DONE: Final = 0
CHECK_FAILED: Final = 1
INTERRUPTED: Final = 130
PORTS: Final = 65_536


class SessionName(NamedTuple):
    """A session named on the command line, by path or id."""

    text: str

    @property
    def is_path(self) -> bool:
        """Whether it is the path of a file, or does not look like an id."""
        return os.path.lexists(self.text) or re.fullmatch(r"[0-9A-Za-z_-]+", self.text) is None


NEWEST: Final = SessionName("")
"""The default of an optional session argument: the newest session of this folder."""
NEWEST_HELP: Final = f"{SESSION_HELP} (default: the newest session of this folder)"


def shell_quoted(text: str) -> str:
    """The text as one printable word of a command line; control characters are escaped for bash, zsh and ksh."""
    if printable(text) == text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(map(_shell_escape, escaped)) + "'"


def resume_line(agent: Agent, path: Path) -> str:
    """The command line that continues a session in its agent."""
    return " ".join(map(shell_quoted, agent.client.resume_command(path)))


def _shell_escape(character: str) -> str:
    if printable(character) == character:
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def shell_path(path: Path) -> str:
    """A path as a command argument: if it looks like a flag, it gets the prefix `./`."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def wants_json(argv: Sequence[str]) -> bool:
    """Whether a command line has the flag `--json`; arguments after `--` are not flags."""
    return "--json" in argv[: argv.index("--") if "--" in argv else None]


def text_lines(text: str) -> list[str]:
    """A text line by line, printable."""
    return [printable(line.removesuffix("\r").expandtabs(4)) for line in text.split("\n")]


def report_failure(failure: RedlineError, *, as_json: bool) -> int:
    """Print an error, to standard output as JSON or to standard error as text; returns the exit code."""
    if as_json:
        error: dict[str, Any] = {"code": failure.code, "message": failure.message}
        sys.stdout.write(json.dumps({"error": error}) + "\n")
    else:
        sys.stderr.write(f"redline: {printable(failure.message)}\n")
    return failure.exit_code


class Progress:
    """A progress line on standard error that overwrites itself, if that is a terminal and the work takes long."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._next = clock() + 0.5
        self._shown = 0
        self._active = self._stream.isatty()

    def show(self, text: str) -> None:
        """Show the text, at most five times a second and not in the first half second."""
        if not self._active or self._clock() < self._next:
            return
        self._next = self._clock() + 0.2
        # A line that wraps could not be overwritten.
        line = one_line(text, min(100, shutil.get_terminal_size().columns - 1))
        self._stream.write("\r" + line.ljust(self._shown))
        self._stream.flush()
        self._shown = len(line)

    def clear(self) -> None:
        if self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._stream.flush()
            self._shown = 0


class _Parser(CommandParser):
    """Reports invalid arguments like every other error.

    Every text and every `Path` argument of every command is validated; `type="port"` is a port, and `type="session"`
    a session, which is a `Path` once the command runs.
    """

    def __init__(self, *, as_json: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._as_json = as_json
        self.register("type", None, _text)
        self.register("type", Path, _path)
        self.register("type", "port", _port)
        self.register("type", "session", _session)

    def error(self, message: str) -> NoReturn:
        raise BadInput(
            "bad_arguments",
            f"{message}. Nothing was done. `redline {self._command} --help` shows the arguments.",
        )

    def print_help(self, file: Any = None) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps({"help": self.format_help()}) + "\n")
        else:
            super().print_help(file)

    @property
    def _command(self) -> str:
        return " ".join((self.prog or "redline").split()[1:])


def _text(text: str) -> str:
    if well_formed(text) != text:
        raise ArgumentTypeError("it is not UTF-8 text")
    return text


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ArgumentTypeError("it is not a path")
    return Path(text)


def _session(text: str) -> SessionName:
    _path(text)
    return SessionName(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < PORTS):
        raise ArgumentTypeError(f"{text} is not a port: a number from 0 to {PORTS - 1}")
    return int(text)


class RedlineCommand(BaseCommand):
    """Base of all commands: `--json`, exit codes, error messages, and no traceback for users' errors.

    A subclass implements `run`, prints with `say` and `show_json`, and returns an exit code or None for 0.
    """

    needs_database = False
    as_json = False
    earlier_words: Mapping[str, str] = {}
    """The present word for each earlier one that the first argument may be."""
    _output_fault: OSError | None = None
    name: str = ""
    newest: str = ""
    """The short id, title and agent of the newest session of this folder, if the command line names no session."""
    requires_system_checks: tuple[str, ...] = ()
    """No checks by Django: `_run` checks the configuration, and reports errors like any others."""

    @property
    def summary(self) -> str:
        """The first sentence of the help, without its full stop."""
        return str(self.help).partition(". ")[0].removesuffix(".")

    def run(self, options: dict[str, Any]) -> int | None:
        raise NotImplementedError

    def warns(self, options: dict[str, Any]) -> bool:
        """Whether configuration warnings are shown; a child process leaves them to its server."""
        del options
        return True

    def report(self, failure: RedlineError) -> int:
        """Print an error; returns the exit code."""
        return report_failure(failure, as_json=self.as_json)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        program = Path(prog_name).name
        # No abbreviated flags: a flag that writes must be given in full.
        parser = _Parser(
            as_json=self.as_json,
            prog=f"{program} {subcommand}",
            description=self.help,
            allow_abbrev=False,
            **kwargs,
        )
        self.add_arguments(parser)
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        self.as_json, self.name = wants_json(argv), argv[1]
        self.progress = Progress()
        try:
            parser = self.create_parser(argv[0], argv[1])
            options = vars(parser.parse_args(self._renamed(argv[2:], parser)))
            code = self._run(options)
        except RedlineError as failure:
            self.progress.clear()
            code = self.report(failure)
        except KeyboardInterrupt:
            self.progress.clear()
            sys.stderr.write("redline: interrupted\n")
            code = INTERRUPTED
        with self._tolerating_closed_output():
            sys.stdout.flush()
        if self._output_fault is not None:
            reason = self._output_fault.strerror
            sys.stderr.write(
                f"redline: standard output could not be written: {reason}. The command's work is complete.\n"
            )
            code = code or SystemFailure.exit_code
        sys.exit(code)

    def _renamed(self, arguments: list[str], parser: CommandParser) -> list[str]:
        """The arguments with the present names of their flags. A line on standard error names the present one."""
        known = parser._option_string_actions  # argparse offers no other list
        end = arguments.index("--") if "--" in arguments else len(arguments)
        renamed, earlier_words = list(arguments), self.earlier_words
        for position, argument in enumerate(arguments[:end]):
            word, equals, value = argument.partition("=")
            if word.startswith("-"):
                now = FLAGS.get(word, word)
                is_renamed = now in known and word not in known
            else:
                now, earlier_words = earlier_words.get(word, word), {}
                is_renamed = now != word
            if is_renamed:
                report_renamed(word, now)
                renamed[position] = f"{now}{equals}{value}"
        return renamed

    @contextmanager
    def _tolerating_closed_output(self) -> Iterator[None]:
        """A command does its work whether or not its output can be written.

        A reader that closes the pipe is not an error; a full disk is, and is reported at the end.
        """
        try:
            yield
        except OSError as fault:
            if not isinstance(fault, BrokenPipeError):
                self._output_fault = fault
            # The rest of the buffer is discarded, because Python would report the error again on exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def execute(self, *args: Any, **options: Any) -> None:
        """Run from Python: errors are raised unchanged; a non-zero exit code becomes CommandError."""
        del args
        self.progress = Progress()
        code = self._run({"as_json": False, **options})
        if code:
            raise CommandError(f"exit code {code}", returncode=code)

    def _run(self, options: dict[str, Any]) -> int:
        self._check(warn=self.warns(options))
        self.as_json = options["as_json"]
        try:
            if self.needs_database:
                self.open_database()
            return self.run(self._with_paths(options)) or DONE
        except DatabaseError as fault:
            raise failure_of(fault) from fault
        finally:
            self.progress.clear()

    def _with_paths(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options, with the path of the session in place of each session argument."""

        def path_of(value: object) -> object:
            if isinstance(value, list):
                return list(map(path_of, value))
            if value == NEWEST:
                return self.newest_session(is_asked=not options.get("yes")).path
            return self._named_path(value) if isinstance(value, SessionName) else value

        return {name: path_of(value) for name, value in options.items()}

    def _named_path(self, name: SessionName) -> Path:
        """The path of a named session. Raises the errors of `session_with_id`."""
        if name.is_path:
            return Path(name.text)
        self._load_index()
        from .index.named_session import session_with_id

        return session_with_id(name.text).path

    def newest_session(self, *, is_asked: bool = True) -> Session:
        """The newest session of the current directory; a line on standard error names it.

        `is_asked`: the command asks for confirmation before it acts. Otherwise, or without a terminal, raises BadInput
        `bad_arguments`. Also raises what `named_session.newest_session` raises.
        """
        if not is_asked or not self.can_ask:
            why = "without a terminal" if is_asked else "with --yes"
            raise BadInput(
                "bad_arguments",
                f"The session must be named {why}. Nothing was done. `redline sessions` lists them, with their ids; "
                f"`redline {self.name} --help` shows the arguments.",
            )
        self._load_index()
        from .index.named_session import newest_session

        with reported(Path(os.curdir), "Nothing was done."):
            directory = str(Path.cwd())
        session = newest_session(directory, datetime.now(UTC), lambda read: self.progress.show(str(read)))
        self.progress.clear()
        agent = session.agent_label or "unknown agent"
        self.newest = f"{session.short_id} “{one_line(session.heading, 60)}” ({agent})"
        sys.stderr.write(f"The newest session of this folder is {self.newest}: {printable(session.path)}\n")
        return session

    def _load_index(self) -> None:
        """Load the models and make the database ready; a command with a path may need neither."""
        if not apps.ready:
            django.setup()
        if not self.needs_database:
            self.open_database()

    def open_database(self) -> None:
        """Make the database ready, and complete the steps of killed processes. Raises the errors of `open_database`."""
        from sessions_app.database.migrated import open_database

        from .index.session_locks import settle_interrupted

        open_database()
        settle_interrupted()

    def open_document(self, path: Path, reader: str = "") -> Document:
        """Read a whole session and show the progress. An empty `reader` means the one that its pages use.

        Raises the errors of `Document.of_file`.
        """
        from .document.document import Document

        document = Document.of_file(path, reader, self._show_read)
        self.warn_if_taken_over(document.path)
        return document

    def load_session(self, path: Path) -> LoadedSession:
        """Read a whole session, and show the progress. Raises the errors of `load_session`."""
        from .storage.session_loader import load_session

        loaded = load_session(path, self._show_read)
        self.warn_if_taken_over(loaded.path)
        return loaded

    def _show_read(self, read: int) -> None:
        self.progress.show(f"{read >> 20} MB read")

    def warn_if_taken_over(self, path: Path) -> None:
        """Warn if a newer version of the agent has taken over the session at a real path."""
        from .agents.registry import agent_at

        agent = agent_at(path)
        if agent.store.taken_over(path):
            self.progress.clear()
            self.stderr.write(f"redline: {printable(agent.store.read_only(path))}")

    def _check(self, *, warn: bool) -> None:
        """Check the configuration and show its warnings. Raises BadInput `bad_configuration`."""
        faults = []
        for found in checks.run_checks(tags=[CONFIGURATION]):
            if found.is_silenced():
                continue
            message = f"{found.msg} {found.hint or ''} ({found.id})"
            if found.is_serious():
                faults.append(message)
            elif warn:
                self.stderr.write(f"redline: warning: {printable(message)}")
        if faults:
            raise BadInput("bad_configuration", f"{' '.join(faults)} Nothing was done.")

    @cached_property
    def screen(self) -> Screen:
        """Standard output."""
        return Screen(sys.stdout)

    def say(self, line: str = "", style: str = "") -> None:
        """Print a line, except with `--json`. The line must already be printable."""
        if not self.as_json:
            self.progress.clear()
            with self._tolerating_closed_output():
                self.stdout.write(self.screen.paint(line, style))

    def say_all(self, lines: Iterable[str], *, paged: bool = True) -> None:
        """Print lines, through a pager if they do not fit the terminal."""
        if self.as_json:
            return
        if self.screen.is_terminal and paged:
            self.progress.clear()
            lines = list(lines)
            if self.screen.page(lines):
                return
        for line in lines:
            self.say(line)

    def show_json(self, document: object) -> None:
        """Print the JSON document, if `--json` was given."""
        if self.as_json:
            with self._tolerating_closed_output():
                self.stdout.write(json.dumps(document, ensure_ascii=True, allow_nan=False))

    def ask(self, question: str) -> bool:
        """Prompt on the terminal; only `y` and `yes` confirm."""
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    @property
    def can_ask(self) -> bool:
        """Whether there is a terminal to prompt on."""
        return not self.as_json and sys.stdin.isatty() and sys.stderr.isatty()
