"""A hook that cannot be used is a system check with an id and a hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error, register

from sessions_app.checks import CONFIGURATION

from .hooks import silent, unloaded

HOOK_NOT_LOADED = "redline.E002"
HOOK_CONNECTS_NOTHING = "redline.W005"


@register(CONFIGURATION)
def check_hooks(app_configs: object, **kwargs: Any) -> Sequence[CheckMessage]:
    """redline.E002: a module in `hooks` cannot be imported. What it would keep could go, so nothing is done."""
    del app_configs, kwargs
    hint = (
        "Install it where Redline is installed, or put its directory on PYTHONPATH; or take it out of hooks "
        "(REDLINE_HOOKS, or redline.toml)."
    )
    return [
        Error(
            f"The hook {module or '(without a name)'} cannot be imported: {why}.",
            hint=hint,
            id=HOOK_NOT_LOADED,
        )
        for module, why in unloaded()
    ]


@register(CONFIGURATION)
def check_hooks_connect(app_configs: object, **kwargs: Any) -> Sequence[CheckMessage]:
    """redline.W005: a module in `hooks` connects no receiver, so that it is never asked and never told."""
    del app_configs, kwargs
    hint = (
        "Decorate a function of it with @receiver(session_before_compact) or @receiver(session_compact); "
        "docs/hooks.md shows how."
    )
    return [
        checks.Warning(f"The hook {module} connects nothing.", hint=hint, id=HOOK_CONNECTS_NOTHING)
        for module in silent()
    ]
