"""The shape of a target in a request: an object with ids, and nothing else."""

from __future__ import annotations

from typing import Final

from sessions_app.sessionlog.targets import Target

from .errors import Code, Refusal

_KEYS: Final = {"entry": {"kind", "entryId"}, "content_block": {"kind", "entryId", "blockIndex"}}
UNUSABLE_INDEX: Final = -1


def read_target(raw: object, number: int) -> Target | Refusal:
    """One target of a request, whose `number` counts from 1; a malformed index becomes UNUSABLE_INDEX."""
    place = f"Deletion {number} of the request"
    if not isinstance(raw, dict):
        return Refusal(
            Code.REQUEST_SHAPE,
            f"{place} is not an object. Nothing was deleted. Send an object with kind and entryId.",
        )
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        return Refusal(
            Code.UNSUPPORTED_KIND,
            f'{place} has an unknown kind. Nothing was deleted. Use "entry" or "content_block".',
        )
    if not raw.keys() <= _KEYS[kind]:
        return Refusal(
            Code.NOT_ID_ONLY,
            f"{place} contains more than ids. Nothing was deleted. "
            f"With kind {kind}, send {', '.join(sorted(_KEYS[kind]))}: no text and no other field.",
        )
    entry_id = raw.get("entryId")
    if not isinstance(entry_id, str) or not entry_id:
        return Refusal(
            Code.INVALID_ENTRY_ID,
            f"{place} has an entryId that is empty or not a string. Nothing was deleted. "
            "Use an id that a tool has returned.",
        )
    if kind == "entry":
        return Target(entry_id)
    index = raw.get("blockIndex")
    if isinstance(index, float) and index.is_integer():
        index = int(index)
    if isinstance(index, bool) or not isinstance(index, int):
        index = UNUSABLE_INDEX
    return Target(entry_id, index)
