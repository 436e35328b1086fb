"""PURE: the commands that Claude Code and Codex call when they compact, as their files name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import fields


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
