"""EDGE: the programs of pi and Atomic, the extension that makes them ask for a review, and pi's own package.

The context that the package rebuilds of a session is compared with Redline's. It runs on a copy in a temporary
directory, which is also its home: opening a session migrates and repairs it. It needs no network.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sessions_app.agents.base import OUT_OF_REPOSITORY, TEST_VARIABLE, Client, PackageContext, RebuiltMessage
from sessions_app.agents.bridges import FileBridge
from sessions_app.agents.edge.dry_resume import Scratch, run_client
from sessions_app.agents.edge.installed_version import program_on_path
from sessions_app.agents.pi.pure.format import OlderPiReader, PiReader, fields_of
from sessions_app.agents.pure.formats import Reader
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse

PACKAGE: Final = "@earendil-works/pi-coding-agent"
SESSION_MANAGER: Final = Path("dist", "core", "session-manager.js")
SCRIPT: Final = Path(__file__).with_name("rebuild.mjs")
LEAST_NODE: Final = (22, 19)
FIRST_WITH_EDITS: Final = (0, 87)
"""The first version that applies `context_edit` entries."""
SECONDS: Final = 120
"""The timeout for one session, in seconds; 100 MB take less than ten."""
ERROR_SHOWN: Final = 500
"""The number of characters of an error that is passed on."""


@dataclass(frozen=True, slots=True)
class PiPackage:
    """An installed package. `directory` is an absolute path."""

    directory: Path
    version: str

    @property
    def name(self) -> str:
        return PACKAGE

    @property
    def reader(self) -> Reader:
        """The reader for sessions of this version."""
        return PiReader() if _numbers(self.version) >= FIRST_WITH_EDITS else OlderPiReader()

    def rebuild(self, content: Iterable[bytes], leaf_id: str = "") -> PackageContext:
        """The context of a session with this content, at this leaf or, without one, at the session's own leaf."""
        node = _find_node(self.directory)
        if node is None:
            needed = ".".join(map(str, LEAST_NODE))
            return PackageContext(failure=f"pi {self.version} needs Node.js {needed} or newer, which was not found.")
        with tempfile.TemporaryDirectory(prefix="redline-certify-") as scratch:
            session, result = Path(scratch, "session.jsonl"), Path(scratch, "result")
            with session.open("wb") as copy:
                copy.writelines(content)
            arguments = (self.directory / SESSION_MANAGER, session, leaf_id, result)
            failure = _run(node, [SCRIPT, *arguments], Path(scratch))
            if failure:
                return PackageContext(failure=f"pi {self.version} could not be run: {failure}")
            return _read_result(result.read_bytes().splitlines(), str(session))


class SharedClient(Client):
    """The program of pi, or of an agent derived from it."""

    def __init__(self, program: str) -> None:
        self.program = program

    def resume_command(self, path: Path) -> Sequence[str]:
        return self.program, "--session", str(path)


class PiClient(SharedClient):
    has_package = True

    def find_package(self, directory: Path | None) -> PiPackage | None:
        """The package in a directory, or in its `node_modules`; without a directory, the package of the program on the
        PATH.
        """
        if directory is None:
            command = program_on_path(self.program)
            parents = Path(command).resolve().parents if command is not None else ()
            return next(filter(None, map(_package_at, parents)), None)
        absolute = directory.absolute()
        found = _package_at(absolute) or _package_at(absolute / "node_modules" / PACKAGE)
        if found is None:
            raise BadInput(
                "no_agent_package",
                f"{directory} does not contain the package {PACKAGE}. Nothing was checked. "
                "Choose the directory of the package, or the one in which it was installed.",
            )
        return found


def _package_at(directory: Path) -> PiPackage | None:
    try:
        described = json.loads((directory / "package.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(described, dict) or described.get("name") != PACKAGE:
        return None
    return PiPackage(directory, str(described.get("version")))


def _find_node(package: Path) -> Path | None:
    """The Node.js that was installed with a package, otherwise the one on the path, if it is new enough."""
    beside = package.parent.parent / ".bin" / "node"
    on_path = program_on_path("node")
    for node in (beside, Path(on_path) if on_path is not None else None):
        if node is not None and node.is_file() and _node_version(node) >= LEAST_NODE:
            return node.absolute()
    return None


def _node_version(node: Path) -> tuple[int, ...]:
    try:
        found = subprocess.run([node, "--version"], capture_output=True, timeout=SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return _numbers(found.stdout.decode("utf-8", "replace"))


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _run(node: Path, arguments: list[Path | str], scratch: Path) -> str:
    """Run one of Redline's scripts; returns the error, or an empty text."""
    environment = {"HOME": str(scratch), "TMPDIR": str(scratch), "PATH": os.defpath}
    try:
        ended = subprocess.run(  # noqa: S603
            [node, *arguments],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {SECONDS} seconds."
    except OSError as fault:
        return f"{fault.strerror}."
    if ended.returncode:
        return ended.stderr.decode("utf-8", "replace").strip()[-ERROR_SHOWN:] or f"exit code {ended.returncode}."
    return ""


def _read_result(lines: list[bytes], copy: str) -> PackageContext:
    """The result that the script wrote; in pi's error, the path of the copy is replaced."""
    first = parse(lines[0])
    if "error" in first:
        return PackageContext(refusal=str(first["error"]).replace(copy, "the session")[:ERROR_SHOWN])
    messages = map(parse, lines[1:])
    # A damaged session has messages that are not objects; pi passes them on.
    return PackageContext(tuple(RebuiltMessage.of(fields_of(one) if isinstance(one, dict) else {}) for one in messages))


SOURCE: Final = Path(__file__).with_name("redline.ts")
EXTENSIONS: Final = "extensions"
START_SECONDS: Final = 30
"""The timeout of a start in seconds; it usually takes less than one."""


class ExtensionBridge(FileBridge):
    """An extension in the directory of pi, or of an agent derived from it.

    ~/.pi/agent/extensions/redline.ts; PI_CODING_AGENT_DIR names another directory
    PROJECT/.pi/extensions/redline.ts
    """

    source = SOURCE

    def __init__(self, key: str, label: str, directory: str) -> None:
        self._label = label
        self._directory = directory
        self._variable = f"{key.upper()}_CODING_AGENT_DIR"

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        within = (
            f"{self._label} loads it only if you trust the project: it asks when it is started there.",
            OUT_OF_REPOSITORY,
        )
        return (
            *(within if in_project else ()),
            f"A running {self._label} asks Redline after /reload, or when it is started again.",
        )

    def path(self, home: Path, project: Path | None) -> Path:
        if project is not None:
            return project / self._directory / EXTENSIONS / SOURCE.name
        named = os.environ.get(self._variable, "")
        configured = home / named[2:] if named.startswith("~/") else Path(named)
        base = configured if configured.is_absolute() else home / self._directory / "agent"
        return base / EXTENSIONS / SOURCE.name

    def start(self, program: str, scratch: Scratch) -> str:
        ended = run_client(
            [program, "--mode", "rpc", "--no-session"],
            cwd=scratch.project,
            environment={**scratch.environment, TEST_VARIABLE: "1"},
            seconds=START_SECONDS,
        )
        return ended.last_words
