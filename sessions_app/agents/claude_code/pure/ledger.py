"""The request ledger in sessions of Claude Code 2.1.310 and newer: a proof of Redline's reading on the user's own file.

    api-request-blob    a message that no line of the session gives, with its hash
    api-request         a request: its messages, as hashes: the first `keep` of the request `base`, then `tail`

The hash of a message is the SHA-256 of its JSON: keys sorted, no spaces, a text as one block, without `cache_control`.
Each request was made of the lines before it. What Redline makes of these lines is compared with what was sent: the
messages are the same if their hashes are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.certificate import LedgerResult
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry

from .reader import ClaudeCodeReader
from .sent import sent_messages
from .tree import ClaudeCodeTree

REQUEST: Final = "api-request"
BLOB: Final = "api-request-blob"
EFFORT: Final = "output_config"
COMPARED: Final = 10
"""How many requests are compared, the last ones: each is read from the beginning of the session."""


class RecordedRequest(NamedTuple):
    """A request in the ledger, on a line of the session, and its messages as hashes."""

    number: int
    id: str
    hashes: tuple[str, ...]
    effort: Any
    """What the client said about the effort of the reply, in a message of the system."""


def ledger_result(
    entries: Sequence[Entry], line: Callable[[Entry], bytes], compared: int = COMPARED
) -> LedgerResult | None:
    """The comparison for the last requests of a session, given by its entries; None if it has no ledger."""
    ledger = [(entry.number, json.loads(line(entry))) for entry in entries if entry.type in (REQUEST, BLOB)]
    requests = list(recorded_requests(ledger))
    if not requests:
        return None
    blobs = {fields.text(data, "hash") for _, data in ledger if data.get("type") == BLOB}
    counts = [0, 0, 0, 0]
    for request in requests[-compared:]:
        before = [entry for entry in entries if entry.number < request.number]
        rest = _not_reproduced(request, _messages(before, line))
        recorded = sum(one in blobs for one in rest)
        counts[0] += recorded == len(rest)
        counts[1] += len(request.hashes)
        counts[2] += len(request.hashes) - len(rest)
        counts[3] += recorded
    equal, messages, reproduced, recorded = counts
    return LedgerResult(len(requests), min(compared, len(requests)), equal, messages, reproduced, recorded)


def _not_reproduced(request: RecordedRequest, messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The hashes of a request's messages that are not among these, in the same order."""
    hashes, rest, place = [], [], 0
    for message in messages:
        hashes.append({message_hash(message)})
        if message["role"] == "system":
            hashes[-1].add(message_hash({**message, EFFORT: request.effort}))
    for one in request.hashes:
        at = next((at for at in range(place, len(hashes)) if one in hashes[at]), None)
        if at is None:
            rest.append(one)
        else:
            place = at + 1
    return rest


def recorded_requests(ledger: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[RecordedRequest]:
    """The requests on these lines, given with their numbers. A request whose base is not there is left out."""
    known: dict[str, tuple[str, ...]] = {}
    for number, data in ledger:
        request_id, base = fields.text_or_none(data, "id"), fields.text_or_none(data, "base")
        keep = data.get("keep")
        if data.get("type") != REQUEST or not isinstance(data.get("tail"), list) or request_id is None:
            continue
        kept: tuple[str, ...] = ()
        if isinstance(keep, int) and keep:
            if base is None or base not in known or keep > len(known[base]):
                continue
            kept = known[base][:keep]
        hashes = (*kept, *fields.texts(data, "tail"))
        known[request_id] = hashes
        yield RecordedRequest(number, request_id, hashes, fields.mapping(data, "params").get(EFFORT))


def _messages(entries: Sequence[Entry], line: Callable[[Entry], bytes]) -> Iterator[Mapping[str, Any]]:
    tree = ClaudeCodeTree(entries)
    context: ActiveContext = ClaudeCodeReader().rebuild(tree.branch(tree.leaf.id))
    return sent_messages(context, line, closed=False)


def message_hash(message: Mapping[str, Any]) -> str:
    """The ledger's hash of a message."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(content, list):
        content = [
            {name: value for name, value in block.items() if name != "cache_control"}
            if isinstance(block, dict)
            else block
            for block in content
        ]
    text = json.dumps({**message, "content": content}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
