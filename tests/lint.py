"""Rules of test code that no linter knows: `make lint` runs this module.

A page changes while it is looked at. What reads it without waiting for a value races it, and fails by chance.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.paths import PROJECT

READ_AT_ONCE: Final = frozenset(
    {"all", "all_inner_texts", "all_text_contents", "count", "is_checked", "is_enabled", "is_hidden", "is_visible"}
)
"""Methods of a locator that answer at once. Tests use `expect`, or `tests/browser/acts.py`, which waits first."""
CHECKED: Final = ("tests/browser", "tests/interop", "tests/interop_clients")
ALLOWED: Final = PROJECT / "tests" / "browser" / "acts.py"


def faults_in(path: Path) -> Iterator[str]:
    """The calls without arguments of such methods, in a module that drives a browser; `bytes.count` has one."""
    source = path.read_text(encoding="utf-8")
    if "playwright" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or node.args or node.keywords:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in READ_AT_ONCE:
            place = f"{path.relative_to(PROJECT)}:{node.lineno}"
            yield f"{place}: .{node.func.attr}() reads a page at once: use expect, or acts.py"


def main() -> None:
    paths = [path for directory in CHECKED for path in sorted((PROJECT / directory).rglob("*.py"))]
    faults = [fault for path in paths if path != ALLOWED for fault in faults_in(path)]
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
