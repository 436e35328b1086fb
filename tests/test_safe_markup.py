"""One module declares texts of sessions safe, and takes nothing that was not sanitized."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from django.template import engines

from compaction_app.rendering.markup import Markup, sanitized
from compaction_app.templatetags.rendered import rendered
from tests.paths import PROJECT

DECLARES: Final = "compaction_app/templatetags/rendered.py"
PACKAGES: Final = ("redline", "sessions_app", "compaction_app", "lab_app")
_SAFE: Final = frozenset({"mark_safe", "SafeString", "SafeText"})


def declared(path: Path) -> Iterator[str]:
    """What a module declares safe that is not a literal; and markup that it makes without sanitizing it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        is_literal = all(isinstance(one, ast.Constant) for one in node.args)
        if (name in _SAFE and not is_literal) or (name == "Markup" and node.args):
            yield name


def test_one_module_declares_texts_safe_and_one_makes_markup():
    modules = [path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")]
    found = {str(path.relative_to(PROJECT)): list(declared(path)) for path in modules}
    assert {path: names for path, names in found.items() if names} == {
        DECLARES: ["mark_safe"],
        "compaction_app/rendering/markup.py": ["Markup"],
    }


@pytest.mark.parametrize("words", ["|safe", "autoescape off", "safeseq", "|json_script"])
def test_no_template_turns_escaping_off(words):
    templates = (PROJECT / "templates").rglob("*.html")
    assert not [path.name for path in templates if words in path.read_text(encoding="utf-8")]


def test_sanitized_markup_is_shown_as_it_is_and_other_texts_are_refused():
    template = engines["django"].from_string("{{ text|rendered }}")
    assert template.render({"text": sanitized("<p>a</p><b onclick=c>d</b>")}) == "<p>a</p>d"
    assert isinstance(sanitized("x"), Markup)
    with pytest.raises(TypeError):
        rendered("<p>x</p>")
    with pytest.raises(TypeError):
        template.render({"text": "<p>x</p>"})
