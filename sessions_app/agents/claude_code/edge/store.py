"""EDGE: the session files of Claude Code, the long outputs beside them, and the running clients that have one open.

    <configuration>/projects/<project>/<session>.jsonl                a session
    <configuration>/projects/<project>/<first session>/tool-results/<name>.txt
                                                                      an output that is too long for it; an entry has
                                                                      this path and the beginning of the output
    <configuration>/sessions/<pid>.json                               a client, until it ends

A fork names the directory of the session that it was made from. Only the two names of an output are taken from the
text, which is not trusted. Clients register themselves:

| recorded    | what it shows                                                                                     |
|-------------|---------------------------------------------------------------------------------------------------|
| `sessionId` | the session that the client has open                                                              |
| `procStart` | when its process started: a client that was killed leaves its file, and another process may have  |
|             | its id now                                                                                        |
| `pidDomain` | the computer and the process namespace (a container, for example) in which the id is valid        |

Older clients record only the first. What does not prove that the client has ended, or has another session open, counts
as open; what cannot be read or belongs to another computer is uncertain. No link in the path of a file is followed.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import OpenElsewhere, Store
from sessions_app.agents.claude_code.pure.parser import shows_format
from sessions_app.agents.edge.json_file import read_json_file
from sessions_app.agents.pure import fields
from sessions_app.disk.files import file_state, real_path, scan_directory
from sessions_app.sessionlog.errors import BadInput

from .settings import DIRECTORY, config_directory

OUTPUT_DIRECTORY: Final = "tool-results"
_NAMED: Final = re.compile(rf"/([0-9a-f-]{{36}})/{OUTPUT_DIRECTORY}/([A-Za-z0-9_-]{{1,128}}\.txt)(?![\w.-])")
_SEARCHED: Final = 4_096
"""The number of characters searched for the name, which comes before the preview of the output."""


def companion_of(path: Path, text: str) -> Path | None:
    """The file beside a session with the full output that an entry only begins; None if there is none."""
    named = _NAMED.search(text, 0, _SEARCHED)
    if named is None:
        return None
    companion = path.parent / named.group(1) / OUTPUT_DIRECTORY / named.group(2)
    try:
        return companion if file_state(companion) is not None else None
    except BadInput:
        return None


PROJECTS: Final = "projects"
REGISTER: Final = "sessions"
MAX_PID: Final = 2**31 - 1
LABEL: Final = "Claude Code"
_PROCESSES: Final = Path("/proc")
_MACHINE: Final = Path("/etc/machine-id")
_START: Final = 19
"""The place of the start time among the fields of a process after its name."""
_TICKS: Final = re.compile(r"[0-9]{1,9}")
"""A start time in ticks since the computer was started; a longer number may count something else."""


def open_elsewhere(session: Path, configuration: Path) -> OpenElsewhere | None:
    """Whether a running client has a session open, given its real path and the user's configuration directory.

    None proves nothing: the client may run on another computer, with another register.
    """
    clients: set[int] = set()
    possible: set[int] = set()
    for register in _registers(session.parent.parent, configuration):
        try:
            for pid, recorded, runs in _clients(register):
                if recorded == session.stem and runs:
                    clients.add(pid)
                elif (recorded is None and runs is not False) or (recorded == session.stem and runs is None):
                    possible.add(pid)
        except FileNotFoundError:
            continue  # no client was ever started with this configuration
        except OSError:
            return OpenElsewhere(f"may be open in {LABEL}: {register} cannot be read", is_certain=False)
    if clients:
        return OpenElsewhere(f"is open in {LABEL} ({_processes(clients)})")
    if possible:
        reason = "which did not record its session, or runs elsewhere"
        return OpenElsewhere(f"may be open in {LABEL} ({_processes(possible)}, {reason})", is_certain=False)
    return None


def open_sessions(root: Path, configuration: Path) -> set[str]:
    """The ids of the sessions below a root that running clients certainly have open.

    The root is the directory of all projects, that of one, or a configuration directory.
    """
    projects = (root, root.parent, root / PROJECTS)
    registers = {register for place in projects for register in _registers(place, configuration)}
    found: set[str] = set()
    for register in registers:
        with suppress(OSError):  # it is not there, or cannot be seen
            found |= {recorded for _, recorded, runs in _clients(register) if recorded is not None and runs}
    return found


def _processes(pids: set[int]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, sorted(pids)))}"


def _registers(projects: Path, configuration: Path) -> Iterator[Path]:
    """The registers of the clients that may have a session of these projects open. Their directory may be a link in the
    configuration directory.
    """
    if projects.name == PROJECTS:
        yield projects.with_name(REGISTER)
    own = real_path(configuration)
    if own != projects.parent and real_path(own / PROJECTS) == projects:
        yield own / REGISTER


def _clients(register: Path) -> Iterator[tuple[int, str | None, bool | None]]:
    """The process ids that files, or links, are named after, with the session that a client has open, if its file shows
    that, and whether it runs; None if that cannot be seen. Raises OSError."""
    with scan_directory(register) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        stem, _, ending = name.partition(".")
        if ending == "json" and stem.isascii() and stem.isdigit() and 0 < int(stem) <= MAX_PID:
            found = read_json_file(register / f"{int(stem)}.json", inside=register)
            if found.exists:
                yield int(stem), fields.text_or_none(found.values, "sessionId"), _runs(int(stem), found.values)


def _runs(pid: int, recorded: Mapping[str, Any]) -> bool | None:
    """Whether a client runs; None if its process cannot be seen from here."""
    start, known = _start_of(pid), fields.text(recorded, "procStart")
    is_comparable = start is not None and _TICKS.fullmatch(known) is not None
    if is_comparable and start == known:
        return True
    own = _own_domain()
    if own is not None and recorded.get("pidDomain", own) != own:
        return None
    return not is_comparable and _exists(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    return True


def _own_domain() -> str | None:
    """The computer and the process namespace of this process, as clients record them; None if the system has none."""
    try:
        namespace = (_PROCESSES / "self" / "ns" / "pid").readlink()
    except OSError:
        return None
    machine = _MACHINE.read_text("utf-8", "replace").strip() if _MACHINE.is_file() else ""
    return f"linux:{machine}:{namespace}"


def _start_of(pid: int) -> str | None:
    """When a process started, in the system's ticks since it booted; None if the system does not show it."""
    try:
        stat = (_PROCESSES / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return next(iter(stat.rpartition(")")[2].split()[_START:]), None)


class ClaudeCodeStore(Store):
    recognises = staticmethod(shows_format)
    companion_of = staticmethod(companion_of)

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        return (str(config_directory(Path("~"), environment) / PROJECTS),)

    def owns(self, path: Path) -> bool:
        return DIRECTORY in path.parts

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        return open_elsewhere(path, config_directory(Path.home()))

    def open_sessions(self, root: Path) -> set[str]:
        return open_sessions(root, config_directory(Path.home()))
