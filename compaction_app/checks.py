"""System checks for hooks that cannot be used, each with an id and a hint."""

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
    """redline.E002: a module in `hooks` cannot be imported. It may pin something, so nothing is planned without it."""
    del app_configs, kwargs
    hint = (
        "Install it where Redline is installed, or put its directory on PYTHONPATH; or delete it from hooks "
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
    """redline.W005: a module in `hooks` connects no receiver, so it is never called."""
    del app_configs, kwargs
    hint = (
        "Decorate one of its functions with @receiver(session_before_compact) or with another of its signals; "
        "docs/hooks.md shows how."
    )
    return [
        checks.Warning(f"The hook {module} connects no receiver.", hint=hint, id=HOOK_CONNECTS_NOTHING)
        for module in silent()
    ]
