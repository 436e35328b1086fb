"""What the tests cost, by file and by kind: `make test-times` loads this plugin.

Processor time is that of the test's process and of all its descendants, the living ones included, so that a server
which several tests share is charged to those that use it. The counts of what was started do not depend on the load of
the machine: they are the figures to manage.
"""

import dataclasses
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import pytest

TICKS: Final = os.sysconf("SC_CLK_TCK")
HEADINGS: Final = ("tests", "processor", "waiting", "pythons", "programs", "forks", "servers", "browsers", "databases")


@dataclasses.dataclass
class Cost:
    """Seconds of processor time and of waiting, and the number of things started.

    A command of Redline is an interpreter (`pythons`), which takes a second; other programs take a hundredth.
    """

    tests: int = 0
    processor: float = 0.0
    waiting: float = 0.0
    pythons: int = 0
    programs: int = 0
    forks: int = 0
    servers: int = 0
    browsers: int = 0
    databases: int = 0

    def add(self, other: Self) -> None:
        for name, value in dataclasses.asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def kind(self) -> str:
        """The heaviest thing that a file needs."""
        if self.browsers:
            return "browser"
        if self.servers:
            return "server"
        if self.pythons or self.programs or self.forks:
            return "process"
        return "database" if self.databases else "pure"


class _Counter:
    """Counts what this process starts, from the audit events of the interpreter."""

    def __init__(self) -> None:
        self.started = Cost()
        self._databases: set[str] = set()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            words = [os.fsdecode(each) for each in arguments[1]]
            if Path(words[0]).name.startswith(("python", "redline")):
                self.started.pythons += 1
            else:
                self.started.programs += 1
            self.started.servers += "serve" in words
            self.started.browsers += any("playwright" in word for word in words)
        elif event == "os.posix_spawn":
            self.started.programs += 1
        elif event == "os.fork":
            self.started.forks += 1
        elif event == "sqlite3.connect":
            path = os.fsdecode(arguments[0])
            if path not in self._databases and ":memory:" not in path:
                self._databases.add(path)
                self.started.databases += 1


def _living(process: int) -> float:
    """Processor seconds of the living descendants of a process, with the children that they have waited for."""
    total = 0.0
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # a process may end while it is looked at
            for child in children.read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / TICKS + _living(int(child))
    return total


def _processor_seconds() -> float:
    return sum(os.times()[:4]) + _living(os.getpid())


class Times:
    """Charges each file with what its tests cost; workers send their figures to the process that started them."""

    def __init__(self) -> None:
        self.files: defaultdict[str, Cost] = defaultdict(Cost)
        self.counter = _Counter()
        sys.addaudithook(self.counter)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.counter.started = Cost()
        began, processor = time.monotonic(), _processor_seconds()
        result = yield
        spent = max(0.0, _processor_seconds() - processor)
        waited = max(0.0, time.monotonic() - began - spent)
        started = dataclasses.replace(self.counter.started, tests=1, processor=spent, waiting=waited)
        self.files[item.location[0]].add(started)
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["times"] = {path: dataclasses.asdict(cost) for path, cost in self.files.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for path, cost in getattr(node, "workeroutput", {}).get("times", {}).items():
            self.files[path].add(Cost(**cost))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        kinds: defaultdict[str, Cost] = defaultdict(Cost)
        for cost in self.files.values():
            kinds[cost.kind].add(cost)
            kinds["all"].add(cost)
        by_cost = sorted(self.files.items(), key=lambda one: one[1].processor + one[1].waiting)
        for title, rows in (("file", by_cost), ("kind", sorted(kinds.items()))):
            terminalreporter.write_line("".join(f"{heading:>11}" for heading in HEADINGS) + f"  {title}")
            for name, cost in rows:
                figures = dataclasses.astuple(cost)
                cells = [f"{one:11.1f}" if isinstance(one, float) else f"{one:11}" for one in figures]
                terminalreporter.write_line("".join(cells) + f"  {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(), "times")
