"""Parallel test workers collect the tests independently: each has to find the same ones, in the same order.

pytest-xdist compares what its workers have collected, each with another order of hashes. It cannot see what differs
between two days, or between two orders of hashes that agree by chance.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.paths import PROJECT

CHANCE: Final = frozenset(
    "now utcnow today time time_ns monotonic random randrange randint choice uuid1 uuid4 urandom token_hex".split()
)
"""Functions whose results differ between two processes."""
CALLED: Final = re.compile(rf"\b(?:{'|'.join(CHANCE)})\(")


def at_import(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that a module makes when it is imported, with those in decorators and in defaults of arguments."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*child.decorator_list, child.args):
                yield from at_import(ast.Expression(part))
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from at_import(child)


def name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def drawn_at_import(path: Path) -> list[int]:
    """The lines of a module of tests that depend on the moment or on chance while it is imported."""
    text = path.read_text(encoding="utf-8")
    if not CALLED.search(text):
        return []
    return [call.lineno for call in at_import(ast.parse(text)) if name_of(call) in CHANCE]


def test_no_module_of_tests_depends_on_the_moment_or_on_chance_when_it_is_imported():
    found = {str(path.relative_to(PROJECT)): drawn_at_import(path) for path in (PROJECT / "tests").rglob("*.py")}
    assert len(found) > 100
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_such_a_module_is_found(tmp_path):
    module = tmp_path / "test_x.py"
    module.write_text("import time\n@mark(time.time())\ndef f(x=now()):\n    now()\n\nNAMES = [today() for x in y]\n")
    assert drawn_at_import(module) == [2, 3, 6]


def test_no_test_is_collected_for_each_member_of_a_set(request):
    """Its order would be that of the hashes, which differs between processes."""
    values = [(item.name, mark.args[1]) for item in request.session.items for mark in item.iter_markers("parametrize")]
    assert not [name for name, given in values if isinstance(given, set | frozenset)]
