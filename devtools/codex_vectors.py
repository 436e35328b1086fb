"""EDGE: vectors of Codex, recognised by their layout: rollouts as they were on disk, and the request of a resume.

    rollouts/*.jsonl    the thread, and those that it is based on
    meta.json           the client's version; `fork` or `new` names the thread if it is not the only one
    request.json        the request's `input`; missing if the client refused the thread

The request has the client's own items around the conversation: the base instructions before it (not in 0.104), and
after it the context that it adds and the prompt. Metadata of items is ignored on both sides, and the id of an output
that the client made for a call without one is not in the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final

from devtools.pure.conformance import VectorDifference, compare
from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.pure.format import OLDER_READER, READER, UNANSWERED
from sessions_app.agents.codex.pure.parser import METADATA, describe_item
from sessions_app.sessionlog.entries import Entry, EntryKind, Role
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState, read_session

ROLLOUTS: Final = "rollouts"
META: Final = "meta.json"
REQUEST: Final = "request.json"
OLDER: Final = "0.104"
LIVE: Final = "while the app-server had the thread open"
"""Marks, in the note of a vector, a client that had read the thread before its last line was appended."""
_PLACE: Final = {"number": 0, "offset": 0, "length": 0, "id": "", "parent_id": None}


def is_codex_vector(directory: Path) -> bool:
    return (directory / ROLLOUTS).is_dir() and (directory / META).is_file()


def codex_differences(
    directory: Path, meta: Mapping[str, Any], request: Mapping[str, Any] | None
) -> Iterator[VectorDifference]:
    """The first difference between a request and the one that Redline expects of Codex; none if Codex refused."""
    if request is None:
        return
    is_older = OLDER in meta["client"]
    found = [_comparable(item) for item in _sent(_rollout(directory, meta), meta, is_older=is_older)]
    sent = [_comparable(item) for item in request["input"]]
    # Older versions put the context that they add in front if the conversation begins anew with a summary.
    sent = list(dropwhile(lambda item: _is_added(item, found), sent)) if is_older else sent[1:]
    expected = [_as_in(mine, theirs) for mine, theirs in zip(sent, found, strict=False)]
    yield from compare("input", expected, found)
    *added, prompt = sent[len(found) :] or [{}]
    yield from compare("added", [_role(item) for item in added], [Role.INJECTED] * len(added))
    yield from compare("prompt", _role(prompt), Role.USER)


def _rollout(directory: Path, meta: Mapping[str, Any]) -> Path:
    """The file that was resumed: of a thread with several segments the last one."""
    thread_id = meta.get("fork") or meta.get("new") or ""
    rollouts = (file for file in (directory / ROLLOUTS).glob("*.jsonl") if thread_id in file.name)
    files = sorted(rollouts, key=lambda file: ("_" in file.name, file))
    if not files:
        raise BadInput("not_a_vector", f"{directory} has no rollout of the thread {thread_id}. It was not checked.")
    return files[-1].resolve()


def _sent(path: Path, meta: Mapping[str, Any], *, is_older: bool) -> list[Mapping[str, Any]]:
    reader = OLDER_READER if is_older else READER
    with CODEX.store.open(path) as file:
        log = read_session(CODEX.format.parser(ParserState(), []), split_lines(file.chunks(0)), str(path))
        tree = CODEX.format.tree(log.entries)
        branch = tree.branch(tree.leaf.id)
        if LIVE in meta["note"]:
            last = max(place for place, entry in enumerate(branch) if entry.kind is EntryKind.BOUNDARY)
            branch = branch[:last]

        def line(entry: Entry) -> bytes:
            return file.read_at(entry.offset, entry.length)

        return list(CODEX.format.sent_messages(reader.rebuild(branch), line))


def _comparable(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in METADATA}


def _as_in(item: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """An item without the id that the client made for an output of its own."""
    if item.get("output") == UNANSWERED and "id" not in found:
        item.pop("id", None)
    return item


def _is_added(item: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> bool:
    return _role(item) == Role.INJECTED and item not in found


def _role(item: Mapping[str, Any]) -> str:
    return describe_item(item, _PLACE)[0].role
