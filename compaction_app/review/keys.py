"""The keys of the review, as its help lists them. `static/redline/js/review.js` acts on them."""

from __future__ import annotations

from typing import Final

KEYS: Final = (
    ("j k ↓ ↑", "next and previous row"),
    ("n N", "next and previous undecided"),
    ("] [", "next and previous group"),
    ("↵ ←", "open, shut"),
    ("a x", "approve; reject: it is kept, and pinned; both apply to the selection if there is one"),
    ("⇧A ⇧X", "approve or reject what is undecided in the group"),
    ("s ⇧↓ ⇧↑", "select, extend the selection"),
    ("e", "delete only some blocks of it"),
    ("+", "add a deletion beside it"),
    ("u", "undo the last step, and go to it"),
    ("/", "search: a text, or a /pattern/"),
    ("f", "filter by tool, kind, reason or size"),
    ("c", "what surrounds it"),
    ("o", "open it in the session"),
    ("g c", "to the last look before the commit"),
    ("g s", "to the session"),
    ("g t", "to the tree"),
    ("g p", "select by a pattern or by meaning"),
    ("esc", "clear the selection, then the filter"),
)
BUTTONS: Final = (
    ("j", "j", "Next", False),
    ("n", "n", "Next undecided", False),
    ("]", "]", "Next group", True),
    ("Enter", "↵", "Open", False),
    ("a", "a", "Approve", False),
    ("x", "x", "Reject", False),
    ("s", "s", "Select", True),
    ("A", "⇧A", "Approve group", True),
    ("u", "u", "Undo", False),
    ("/", "/", "Search", True),
    ("?", "?", "All keys", False),
)
"""The buttons of the bar: the key that each presses, as it is shown, the words, and whether only a wide bar has it."""
