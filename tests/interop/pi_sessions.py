"""The sessions that real pi and Atomic are given, and what Redline reads in them.

They are those of the corpus; without one, a generated session. One of them is in the core.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.agents.base import RebuiltMessage
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.registry import READERS
from sessions_app.disk.files import SessionReader
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.storage.session_certificate import rebuilt_messages
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.files import place
from tests.interop.pi_runs import installed_pis, package
from tests.paths import corpus, corpus_sessions

DIRECTORY = corpus()
PATHS: Final = corpus_sessions(DIRECTORY) if DIRECTORY is not None else []
NAMES: Final = [path.name for path in PATHS] or ["generated.jsonl"]


def header_of(session: Path) -> dict[str, Any]:
    with session.open("rb") as file:
        first = json.loads(file.readline())
    return first if first.get("type") == "session" else {}


_WRITABLE: Final = [path for path in PATHS if header_of(path).get("version") == 3]
WRITABLE: Final = [path.name for path in _WRITABLE] or NAMES
"""Those with a header of version 3, which Redline writes to."""
SMALLEST: Final = min(_WRITABLE, key=lambda path: path.stat().st_size).name if _WRITABLE else NAMES[0]
core = pytest.mark.core
each_session = pytest.mark.parametrize("name", NAMES)
_marked = [pytest.param(name, marks=core if name == SMALLEST else ()) for name in WRITABLE]
each_writable = pytest.mark.parametrize("name", _marked)


def copy_of(session: Path, directory: Path, cwd: Path) -> Path:
    """A copy in a directory, which names a working directory that exists: pi requires that."""
    header, rest = session.read_bytes().split(b"\n", 1)
    described = {**json.loads(header), "cwd": str(cwd)}
    return place(directory / session.name, json.dumps(described).encode() + b"\n" + rest)


def context_of(loaded: LoadedSession, reader: str = "pi") -> ActiveContext:
    return READERS[reader].rebuild(loaded.tree.branch(loaded.leaf_id))


def fields_of(loaded: LoadedSession, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as pi rebuilds them."""
    with SessionReader(loaded.path) as reader:

        def line(entry: Any) -> bytes:
            return reader.read_at(entry.offset, entry.length)

        return [
            dict(PI.format.message_json(one, line(one.entry), line(one.edit) if one.edit else None))
            for one in messages
            if one.sent
        ]


def rebuilt_by_pi(session: Path, directories: Sequence[Path] = ()) -> tuple[RebuiltMessage, ...]:
    """The context that each installed pi since 0.87 rebuilds, or those in these directories; it is the same."""
    (found,) = {package(one).rebuild([session.read_bytes()]) for one in directories or installed_pis()}
    assert (found.refusal, found.failure) == ("", "")
    return found.messages


def require_same(session: Path) -> LoadedSession:
    """Pi rebuilds a session as Redline does; returns it."""
    loaded = load_session(session)
    assert rebuilt_by_pi(session) == rebuilt_messages(loaded, PI, context_of(loaded))
    return loaded
