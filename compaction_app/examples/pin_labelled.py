"""A hook: what carries a label stays.

Switched on by `REDLINE_HOOKS=compaction_app.examples.pin_labelled`, or in `redline.toml`:

    hooks = ["compaction_app.examples.pin_labelled"]

An agent writes a label as an entry of its own, on whatever branch it stands. Of several labels of one entry the
latest counts, and an empty one takes the label away.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from compaction_app.hooks import Pin, Target, session_before_compact
from sessions_app.sessionlog.outline import labels
from sessions_app.storage.session_loader import LoadedSession


@receiver(session_before_compact)
def keep_what_is_labelled(*, loaded: LoadedSession, **others: Any) -> Pin:
    """Pin every entry that carries a label."""
    del others
    return Pin([Target(entry_id) for entry_id in labels(loaded.tree)], "it carries a label")
