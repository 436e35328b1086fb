"""Styles and pages agree: every style is used by some page, and every class has a style."""

import re
from pathlib import Path
from typing import Final

from django.template.base import Lexer, TokenType

from compaction_app.core.token_map import KINDS
from compaction_app.rendering.markup import CLASSES
from sessions_app.web.middleware import Stylesheet
from tests.html import elements
from tests.paths import PROJECT

SHEET: Final = PROJECT / "static/redline/redline.css"
FILES: Final = sorted((PROJECT / "static/redline/css").glob("*.css"))
TEMPLATES: Final = sorted(path for path in (PROJECT / "templates").rglob("*.html") if path.parent.name != "admin")
SCRIPTS: Final = sorted((PROJECT / "static/redline/js").rglob("*.js"))
FILTERS: Final = sorted(PROJECT.glob("*/templatetags/*.py"))
FORMS: Final = sorted({*PROJECT.glob("*_app/pages/**/*.py"), *PROJECT.glob("*_app/*/forms.py")})

VARIABLE: Final = "…"
DRAWN: Final = {
    "band--…": ("quiet",),
    "chart-box--…": ("narrow", "wide"),
    "chart__strategy--…": ("bound", "embedded", "other"),
    "field--…": ("style",),
    "sessions__…": ("agent", "context", "session", "size", "used"),
    "tie--…": ("first", "last", "mid", "none", "through"),
    "is-…": ("approved", "faint", "kept", "lost", "new", "none", "open", "pair", "refused", "rejected", "struck"),
    "kind--…": tuple(KINDS),
    "hit__text--…": ("assistant", "machine", "person", "thinking"),
}
"""Classes that a template completes with a variable, and the values used by pages."""
ICON_SIZE: Final = re.compile(r'\{% icon [^%]*size="(\w+)"')
UNSTYLED: Final = {"hit__text--assistant", "sessions__session", "tie--through"}
"""Classes that look like their block."""


def selectors(text: str) -> str:
    """The text before the braces."""
    bare = re.sub(r"/\*.*?\*/|\"[^\"]*\"", "", text, flags=re.DOTALL)
    return "\n".join(re.findall(r"([^{};]+)\{", bare))


def styled_classes() -> set[str]:
    return set(re.findall(r"\.(-?[a-z][\w-]*)", selectors(Stylesheet(SHEET).text)))


def template_classes(path: Path) -> set[str]:
    """The classes of a template's elements, in any of its branches."""
    kept = {TokenType.TEXT: "{}", TokenType.VAR: VARIABLE, TokenType.BLOCK: " ", TokenType.COMMENT: " "}
    tokens = Lexer(path.read_text(encoding="utf-8")).tokenize()
    markup = "".join(kept[token.token_type].format(token.contents) for token in tokens)
    return {name for found in elements(markup, "[class]") for name in str(found.attributes["class"]).split()}


def drawn_classes() -> set[str]:
    """Every class that an element of a page can have."""
    written = set().union(*(template_classes(path) for path in TEMPLATES))
    sizes = set().union(*(ICON_SIZE.findall(path.read_text(encoding="utf-8")) for path in TEMPLATES))
    assert {name for name in written if VARIABLE in name} == set(DRAWN)
    completed = {name.replace(VARIABLE, value) for name, values in DRAWN.items() for value in values}
    code = "".join(path.read_text(encoding="utf-8") for path in [*SCRIPTS, *FILTERS])
    added = set(re.findall(r'(?:classList\.(?:add|toggle)\(|class=)"([\w-]+)"', code))
    forms = "".join(path.read_text(encoding="utf-8") for path in FORMS)
    added |= set(" ".join(re.findall(r'"class": "([^"]+)"', forms)).split())
    rendered = set().union(*CLASSES.values())
    return rendered | written - set(DRAWN) | completed | added | {"icon", *(f"icon--{size}" for size in sizes)}


def test_every_style_is_used_and_every_class_has_a_style():
    assert styled_classes() - drawn_classes() - {"htmx-request"} == set()
    assert drawn_classes() - styled_classes() == UNSTYLED


def test_every_file_is_imported_once_and_every_property_defined_and_used():
    imported = re.findall(r'^@import "(.+)";$', SHEET.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(imported) == [f"css/{path.name}" for path in FILES]
    assert [path.name for path in FILES if "@import" in path.read_text(encoding="utf-8")] == []
    text = Stylesheet(SHEET).text
    defined = set(re.findall(r"^\s*(--[\w-]+):", text, flags=re.MULTILINE))
    assert defined == set(re.findall(r"var\((--[\w-]+)", text))


# ---- how pages load them -----------------------------------------------------------------------------------


def test_all_styles_are_one_response_which_is_not_sent_again_unchanged(client):
    response = client.get("/static/redline/redline.css")
    assert response.headers["Content-Type"] == "text/css; charset=utf-8"
    text = response.content.decode()
    assert "@import" not in text
    assert all(path.read_text(encoding="utf-8") in text for path in FILES)
    assert response.headers["Cache-Control"] == "max-age=60, public"
    again = client.get("/static/redline/redline.css", headers={"if-none-match": response.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_changed_text_changes_the_etag(tmp_path):
    sheet = tmp_path / "sheet.css"
    sheet.write_text('@import "part.css";\n', encoding="utf-8")
    tags = set()
    for colour in ("red", "blue"):
        (tmp_path / "part.css").write_text(f"a {{ color: {colour} }}\n", encoding="utf-8")
        tags.add(Stylesheet(sheet).etag)
    assert len(tags) == 2


def test_styles_only_accept_get(client):
    assert client.post("/static/redline/redline.css").status_code == 405
