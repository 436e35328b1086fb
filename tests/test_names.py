"""Names: each public class name in the source means one thing."""

import ast
from collections import defaultdict
from typing import Final

from tests.paths import PROJECT

PRESCRIBED: Final = frozenset({"Command", "Migration", "Meta"})
"""Names that Django prescribes."""
ROW_AND_VALUE: Final = frozenset({"Entry", "Backup"})
"""Names of a database row and of the pure value that it stores."""


def test_no_two_public_classes_share_a_name():
    places = defaultdict(list)
    for package in ("redline", "sessions_app", "compaction_app", "lab_app", "devtools"):
        for path in sorted((PROJECT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(PROJECT)))
    assert "Run" in places
    shared = {name: found for name, found in places.items() if len(found) > 1 and name not in PRESCRIBED}
    assert shared.keys() <= ROW_AND_VALUE, shared
    assert all(len(found) == 2 for found in shared.values())
