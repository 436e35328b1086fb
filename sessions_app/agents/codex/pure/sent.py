"""The items of a request, as Codex sends them of a rebuilt context (rules 6 and 7 of `reader`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.jsjson import parse

from .parser import is_part
from .records import CONTENT_IN, summary_item, without_metadata

_ANSWERS: Final = {
    "function_call": "function_call_output",
    "local_shell_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""The type of the output that Codex makes for a call without one."""
UNANSWERED: Final = "aborted"


def item_json(message: Message, raw: bytes) -> dict[str, Any]:
    """A message of a context as an item, given the recorded bytes of its entry: without its metadata, and with only
    its remaining blocks."""
    data = parse(raw)
    if isinstance(data, str):
        return summary_item(data)
    recorded = data if is_part(message.entry.id) else fields.mapping(data, "payload")
    item = without_metadata(recorded)
    field = CONTENT_IN.get(message.entry.type, "")
    if message.blocks is not None and isinstance(item.get(field), list):
        item[field] = [item[field][block.index] for block in message.blocks]
    return item


def sent_items(
    context: ActiveContext, line: Callable[[Entry], bytes], *, with_ids: bool = True
) -> Iterator[Mapping[str, Any]]:
    """The items of the conversation in a request; `line` reads the recorded bytes of an entry."""
    calls = {call_id for message in context.messages for call_id in message.entry.call_ids()}
    answered = {message.entry.result_for for message in context.messages if message.role == Role.TOOL_RESULT}
    for message in context.messages:
        if message.role == Role.TOOL_RESULT and message.entry.result_for not in calls:
            continue
        item = item_json(message, line(message.entry))
        if not with_ids:
            item.pop("id", None)
        yield item
        for call_id in message.entry.call_ids():
            if call_id not in answered and item["type"] in _ANSWERS:
                yield {"type": _ANSWERS[item["type"]], "call_id": call_id, "output": UNANSWERED}
