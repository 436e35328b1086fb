"""Compares the context of OpenCode's sessions with the messages that the client sent on resume.

A vector is a directory with `store.json`, `meta.json` and `request.json`. The store has the rows of the session, of its
messages and of its parts, or of the older JSON store each document by its path.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from devtools.pure.conformance import VectorDifference, compare
from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.opencode.pure.lines import MESSAGE, PART, Row, in_order, render, revert_rows, session_row
from sessions_app.sessionlog.jsjson import parse, split_lines, stringify
from sessions_app.sessionlog.session import ParserState

STORE: Final = "store.json"
PROBE: Final = "go on"
"""The prompt with which the client was resumed; the command line of the older one quotes it."""


def opencode_differences(store: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[VectorDifference]:
    """The first difference between the messages of a request and those of the session in a store."""
    lines = list(store_lines(store))
    parser = OPENCODE.format.parser(ParserState(), [])
    recorded = [found for line in split_lines(lines) for found in parser.read(line)]
    tree = OPENCODE.format.tree([found.entry for found in recorded])
    context = OPENCODE.format.generations[0].reader.rebuild(tree.branch(tree.leaf.id))
    whole = b"".join(lines)
    sent = OPENCODE.format.sent_messages(context, lambda entry: whole[entry.offset : entry.offset + entry.length])
    messages = list(request["messages"])
    # The client's own system message is in front, the probe at the end.
    yield from compare("messages", messages[1:-1], list(sent))
    if PROBE not in str(messages[-1].get("content")):
        yield VectorDifference("probe", "$", PROBE, messages[-1].get("content"))


def is_opencode_store(store: Mapping[str, Any]) -> bool:
    """Whether a store has one session, in one of the two forms."""
    if {"session", "messages", "parts"} <= store.keys():
        return isinstance(store["session"], Mapping)
    return sum(path.startswith("session/") for path in store) == 1


def store_lines(store: Mapping[str, Any]) -> Iterator[bytes]:
    """The lines of the session in a store."""
    session, messages, parts = _rows(store) if "messages" in store else _documents(store)
    rows = [
        session_row(session, 0),
        *in_order({row.id: row for row in messages}, ((row.message_id, row) for row in parts)),
    ]
    revert = session.get("revert")
    if revert:
        data = str(revert).encode() if isinstance(revert, str) else stringify(revert).encode()
        rows += revert_rows(data, parse(data), rows)
    for row in rows:
        yield render(row, row.data or b"")


_Stored = tuple[Mapping[str, Any], list[Row], list[Row]]


def _rows(store: Mapping[str, Any]) -> _Stored:
    messages = [_row(MESSAGE, found["id"], found["data"]) for found in store["messages"]]
    parts = [_row(PART, found["id"], found["data"], found["message_id"]) for found in store["parts"]]
    return store["session"], messages, parts


def _documents(store: Mapping[str, Any]) -> _Stored:
    """The rows for the documents of the one session in an older store."""
    of_type: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(store):
        of_type.setdefault(path.partition("/")[0], []).append(store[path])
    (session,) = of_type["session"]
    messages = [_row(MESSAGE, found["id"], found) for found in of_type[MESSAGE]]
    parts = [_row(PART, found["id"], found, found["messageID"]) for found in of_type[PART]]
    return session, messages, parts


def _row(row_type: str, row_id: str, recorded: object, message_id: str = "") -> Row:
    data = stringify(recorded).encode()
    return Row(row_type, row_id, len(data), message_id=message_id, data=data)
