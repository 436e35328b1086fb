"""An agent's interface for people, in a terminal of its own: tmux keeps the screen, and types what a test types."""

import shutil
import subprocess
import tempfile
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import pytest

from tests.wait import wait_until

COLUMNS: Final = 120
ROWS: Final = 40
HISTORY: Final = 5_000
"""Lines that are kept above the screen."""
SOCKET: Final = "redline"
CLEAR: Final = "C-u"
"""The key that clears what was typed."""
RETYPE_SECONDS: Final = 10
PRESS_SECONDS: Final = 2
FRAME: Final = "So"
"""The Unicode category of what frames and rules are drawn with, and of other ornaments."""


def tmux_program() -> str:
    """The program tmux. A test is reported as not checked if it is not installed."""
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("not checked: tmux is not installed, in which the interfaces for people run")
    return program


class Terminal:
    """A program in a terminal of 120 columns and 40 rows, from `__enter__` to `__exit__`.

    Its tmux has a socket and a configuration of its own.
    """

    def __init__(self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> None:
        self._command = list(command)
        self._cwd = cwd
        self._environment = environment
        # The path of a socket has 108 characters at most: those of tests may be longer.
        self._sockets = tempfile.TemporaryDirectory(prefix="redline-tmux-")
        self._tmux = [tmux_program(), "-L", SOCKET, "-f", "/dev/null"]

    def __enter__(self) -> Self:
        settings = {"remain-on-exit": "on", "status": "off", "history-limit": str(HISTORY)}
        options = [word for name, value in settings.items() for word in ("set-option", "-g", name, value, ";")]
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        new = ["new-session", "-d", *size, "-c", str(self._cwd), "--", *self._command]
        self._run("start-server", ";", *options, *new)
        return self

    def __exit__(self, *fault: object) -> None:
        self._call("kill-server")
        self._sockets.cleanup()

    def type(self, text: str) -> None:
        """Type a text, without Enter."""
        self._run("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names, such as Enter, Escape or Down."""
        self._run("send-keys", *keys)

    @property
    def screen(self) -> str:
        """What is on the screen now, in lines."""
        return self._run("capture-pane", "-p")

    @property
    def has_ended(self) -> bool:
        return self._run("display-message", "-p", "#{pane_dead}").strip() == "1"

    def shows(self, text: str, *, above: bool = False) -> bool:
        """Whether a text is on the screen, or with `above` also above it; without frames, and however wrapped."""
        return _unwrapped(text) in _unwrapped(self._run("capture-pane", "-p", *(("-S", "-") if above else ())))

    def wait_for(self, text: str) -> None:
        """Wait until a text is on the screen or above it."""
        self._wait(lambda: self.shows(text, above=True), f"{text} is not shown")

    def wait_until_gone(self, text: str) -> None:
        """Wait until a text is not on the screen any more."""
        self._wait(lambda: not self.shows(text), f"{text} is still shown")

    def enter(self, line: str) -> None:
        """Type a line instead of what may be there, and press Enter as soon as it is shown.

        It is typed again if it is not shown after a while: programs discard what was typed before they are ready.
        """

        def type_line() -> None:
            self.press(CLEAR)
            self.type(line)

        self._repeat(type_line, RETYPE_SECONDS, lambda: self.shows(line), f"{line} was typed, and is not shown")
        self.press("Enter")

    def press_until(self, key: str, text: str) -> None:
        """Press a key again and again, until a text is shown."""
        self._repeat(lambda: self.press(key), PRESS_SECONDS, lambda: self.shows(text), f"{text} is not shown")

    def _repeat(self, act: Callable[[], None], seconds: float, look: Callable[[], bool], what: str) -> None:
        """Act, and again whenever so many seconds have passed, until what is looked for is there."""
        ends_at = 0.0

        def acted() -> bool:
            nonlocal ends_at
            if time.monotonic() > ends_at:
                act()
                ends_at = time.monotonic() + seconds
            return look()

        self._wait(acted, what)

    def _wait(self, look: Callable[[], object], what: str) -> object:
        try:
            return wait_until(look, what)
        except AssertionError as fault:
            raise AssertionError(f"{what}:\n{self.screen}") from fault

    def _run(self, *arguments: str) -> str:
        ended = self._call(*arguments)
        assert ended.returncode == 0, (arguments, ended.stderr)
        return ended.stdout

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**self._environment, "TMUX_TMPDIR": self._sockets.name}
        command = [*self._tmux, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", errors="replace")


def _unwrapped(screen: str) -> str:
    """A text without spaces and line breaks: programs wrap what they show anywhere."""
    return "".join(one for one in screen if not one.isspace() and unicodedata.category(one) != FRAME)
