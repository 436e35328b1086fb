"""PURE: the hook command that an agent calls before it compacts, and Redline's entry for it among the user's hooks.

Each agent with such a hook has a `CompactionHook`; only this knows the names of the fields that the agent sends. The
hooks of Claude Code and Codex are in a file that has other settings of the user:

    {"hooks": {"PreCompact": [{"hooks": [
      {"type": "command", "command": "redline ask …", "timeout": 3660, "statusMessage": "Redline waits for your review"}
    ]}]}}

The client shows `statusMessage` as long as the command runs. Without a `matcher` the client calls it for manual and
automatic compactions. Nothing else of the file is changed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, well_formed

from .json_document import Item, JsonDocument, Node, TextEdit

MANUAL: Final = "manual"
THRESHOLD: Final = "threshold"
BRIDGE: Final = 1
"""The version of the hook command, recorded in a connection."""
PREPARATION_CHARACTERS: Final = 300
"""The maximum characters of a text in a preparation: one may take twelve in JSON, and the whole may have 4,000."""


class HookStep(StrEnum):
    """The agent's next step after the hook."""

    COMPACT = "compact"
    CONTINUE = "continue"
    STOP = "stop"


class HookRequest(NamedTuple):
    """The agent's description of the compaction that it is about to make."""

    session: str
    """The absolute path of the session, or its id."""
    reason: str
    """`manual` or `threshold`."""
    preparation: Mapping[str, str]
    """The other texts of the request, for display."""


class HookReply(NamedTuple):
    """The command's output, and its exit code."""

    code: int = 0
    output: str = ""
    errors: str = ""


class CompactionHook(Protocol):
    """The hook of one agent."""

    def review_request(self, sent: bytes) -> HookRequest:
        """The request that the agent sent on standard input. Raises ValueError if it sent anything else."""

    def reply(self, step: HookStep, message: str) -> HookReply:
        """The reply that makes the agent take a step; `message` is one line for the user of the agent."""


def hook_fields(sent: bytes) -> Mapping[str, Any]:
    """The object that an agent sent. Raises ValueError."""
    found = parse(sent)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def hook_request(session: object, trigger: object, preparation: Mapping[str, object]) -> HookRequest:
    """A review request from values of any shape; texts of the preparation are shortened, and other values left out.

    Raises ValueError if no session is named.
    """
    if not isinstance(session, str) or not session or well_formed(session) != session or "\0" in session:
        raise ValueError("it does not name a session")
    shown = {
        name: well_formed(text[:PREPARATION_CHARACTERS]).replace("\0", "")
        for name, text in preparation.items()
        if isinstance(text, str) and text
    }
    return HookRequest(session, MANUAL if trigger == MANUAL else THRESHOLD, shown)


def hook_commands(settings: Mapping[str, Any], events: Sequence[str]) -> tuple[str, ...]:
    """The commands for these events, each with its event and matcher; values of other shapes are skipped.

    `{"hooks": {"PreCompact": [{"matcher": "auto", "hooks": [{"type": "command", "command": "check"}]}]}}` gives
    `PreCompact (auto): check`.
    """
    return tuple(
        f"{event} ({matcher}): {command}" if matcher else f"{event}: {command}"
        for event in events
        for group in fields.objects(fields.mapping(settings, "hooks"), event)
        for matcher in [fields.text(group, "matcher")]
        for hook in fields.objects(group, "hooks")
        if (command := fields.text(hook, "command"))
    )


EVENT: Final = "PreCompact"
HOOKS: Final = "hooks"
TIMEOUT: Final = 3_660
"""Seconds after which the client gives up on the command: a minute more than any wait."""
STATUS: Final = "Redline waits for your review"
_OWN: Final = re.compile(r"redline(?:\.exe)?['\"]?\s+ask\s")


def with_entry(content: bytes, command: str, name: str) -> bytes:
    """The document with Redline's entry, which calls this command; an entry that is there is brought up to date.

    `name` is that of the file, for errors. Raises BadInput `not_json`, `other_shape`.
    """
    document = JsonDocument(content, name)
    value = {"type": "command", "command": command, "timeout": TIMEOUT, "statusMessage": STATUS}
    found = list(_own_entries(document, name))
    if not found:
        return _added(document, value, name)
    if len(found) > 1:
        return with_entry(document.without_item(*found[-1][1:]), command, name)
    node = found[0][0].node
    if _plain(node) == value:
        return content
    return document.replaced(TextEdit(node.start, node.end, document.rendered(value, node)))


def without_entry(content: bytes, before: bytes | None, name: str) -> bytes:
    """The document without Redline's entry, and without the containers that were added for it.

    `before` is the document before Redline's entry was added; None if there was none. Raises BadInput `not_json`,
    `other_shape`.
    """
    document = JsonDocument(content, name)
    found = list(_own_entries(document, name))
    if found:
        return without_entry(document.without_item(*found[-1][1:]), before, name)
    # Members that were there before stay, although they may be empty.
    kept = JsonDocument(before or b"", name).root.member(HOOKS)
    kept_event = kept.member(EVENT) if kept is not None else None
    hooks = document.root.member(HOOKS)
    event = hooks.member(EVENT) if hooks is not None else None
    if hooks is not None and event is not None and not event.items and kept_event is None:
        item = next(one for one in reversed(hooks.items) if one.name == EVENT)
        return without_entry(document.without_item(hooks, item), before, name)
    if hooks is not None and not hooks.items and kept is None:
        item = next(one for one in reversed(document.root.items) if one.name == HOOKS)
        return document.without_item(document.root, item)
    return content


def entry_command(content: bytes, name: str) -> str | None:
    """The command of Redline's entry; None if there is none. Raises BadInput `not_json`, `other_shape`."""
    found = next(_own_entries(JsonDocument(content, name), name), None)
    return str(_plain(found[0].node)["command"]) if found is not None else None


def _added(document: JsonDocument, value: dict[str, Any], name: str) -> bytes:
    group = {HOOKS: [value]}
    hooks = _of_kind(document.root.member(HOOKS), "object", HOOKS, name)
    if hooks is None:
        return document.with_item(document.root, {EVENT: [group]}, HOOKS)
    groups = _of_kind(hooks.member(EVENT), "array", EVENT, name)
    if groups is None:
        return document.with_item(hooks, [group], EVENT)
    return document.with_item(groups, group)


def _own_entries(document: JsonDocument, name: str) -> Iterator[tuple[Item, Node, Item]]:
    """Redline's entries; each with the item to remove and its container: the entry, or its whole group if it has no
    other one."""
    hooks = _of_kind(document.root.member(HOOKS), "object", HOOKS, name)
    groups = _of_kind(hooks.member(EVENT), "array", EVENT, name) if hooks is not None else None
    for group in groups.items if groups is not None else ():
        entries = group.node.member(HOOKS)
        for entry in entries.items if entries is not None else ():
            command = entry.node.member("command")
            if command is not None and isinstance(command.value, str) and _OWN.search(command.value):
                assert groups is not None and entries is not None  # noqa: S101, PT018  # narrows the types
                is_alone = len(entries.items) == 1
                yield (entry, groups, group) if is_alone else (entry, entries, entry)


def _of_kind(node: Node | None, kind: str, member: str, name: str) -> Node | None:
    if node is not None and node.kind != kind:
        raise BadInput(
            "other_shape",
            f"{member} in {name} is not an {kind}, as the agent expects. Nothing was changed. Correct the file first.",
        )
    return node


def _plain(node: Node) -> Any:
    """The value of a node."""
    if node.kind == "object":
        return {item.name: _plain(item.node) for item in node.items}
    if node.kind == "array":
        return [_plain(item.node) for item in node.items]
    return node.value
