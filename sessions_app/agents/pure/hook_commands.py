"""PURE: the commands that Claude Code and Codex call when they compact, as their files name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def hook_commands(found: object, events: Sequence[str]) -> tuple[str, ...]:
    """The commands for these events, each with its event and matcher; values of other shapes are skipped.

    `{"PreCompact": [{"matcher": "auto", "hooks": [{"type": "command", "command": "check"}]}]}` gives
    `PreCompact (auto): check`.
    """
    return tuple(
        f"{event} ({matcher}): {command}" if matcher else f"{event}: {command}"
        for event in events
        for group in _objects(found.get(event) if isinstance(found, dict) else None)
        for matcher in [_text(group.get("matcher"))]
        for hook in _objects(group.get("hooks"))
        if (command := _text(hook.get("command")))
    )


def _objects(found: object) -> Iterator[dict[str, object]]:
    return (one for one in found if isinstance(one, dict)) if isinstance(found, list) else iter(())


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""
