"""Deletion requests: ids only, never text.

    {"kind": "entry", "entryId": "1a2b3c4d"}
    {"kind": "content_block", "entryId": "1a2b3c4d", "blockIndex": 0}

`blockIndex` counts in the content array as recorded, whatever was deleted from it before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sessions_app.sessionlog.targets import Target as Target


def request_of(targets: Iterable[Target]) -> dict[str, Any]:
    """A deletion request for these targets, in this order."""
    return {"deletions": [target.to_json() for target in targets]}
