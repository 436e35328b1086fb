"""EDGE: the files beside a session in which the client keeps outputs that are too long for it.

    <project>/<session>.jsonl                    an entry names …/<first session>/tool-results/<name>.txt
    <project>/<first session>/tool-results/<name>.txt      the output

A fork names the directory of the session that it was made of. Only these two names are taken from the text, which is
not trusted; no link is followed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.files import file_state

DIRECTORY: Final = "tool-results"
_NAMED: Final = re.compile(rf"/([0-9a-f-]{{36}})/{DIRECTORY}/([A-Za-z0-9_-]{{1,128}}\.txt)(?![\w.-])")
_SEARCHED: Final = 4_096
"""The name comes first; the rest is a preview of the output."""


def companion_of(session: Path, text: str) -> Path | None:
    """The file with the whole of an output, of which an entry has the beginning; None if there is none."""
    named = _NAMED.search(text, 0, _SEARCHED)
    if named is None:
        return None
    path = session.parent / named.group(1) / DIRECTORY / named.group(2)
    try:
        return path if file_state(path) is not None else None
    except BadInput:
        return None
