"""Sessions of a configured root: written, indexed, and the URLs of their pages."""

from pathlib import Path
from typing import Any

from redline.configuration import RootSetting
from sessions_app.index.indexer import index_roots
from sessions_app.index.roots import configured_roots
from sessions_app.models import Session
from tests.factories import chain, session_bytes, user
from tests.files import place


def place_session(path: Path, *messages: Any) -> Path:
    """A file with a session of these messages; a text is one of the user."""
    return place(path, session_bytes(chain(*(user(one) if isinstance(one, str) else one for one in messages))))


def add_session(root: Path, name: str, recorded: list[Any], reader: str = "") -> str:
    """Write a session and index it, to be read by this reader if one is named; returns the URL of its page."""
    (root / name).write_bytes(session_bytes(recorded))
    index_roots()
    found = Session.objects.get(relative_path=name)
    if reader:
        Session.objects.filter(pk=found.pk).update(reader=reader)
    return f"/sessions/{found.root_id}/{name}"


def use_root(settings: Any, directory: Path, agent: str | None) -> None:
    """Have one configured root: a directory of sessions of this agent, or of an unknown one."""
    root = RootSetting(path=directory) if agent is None else RootSetting(path=directory, agent=agent)
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": [root]})
    configured_roots()
