"""Pages as their users see them: words, links and form fields, whatever the layout of the markup.

Every function takes a response, its HTML (a whole page or a part of one), or an element of a parsed page.
"""

from collections.abc import Container, Iterator
from typing import Any, Final

from django.http import HttpResponse
from selectolax.lexbor import LexborHTMLParser, LexborNode

HOSTILE_TEXTS: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "\x1b]0;owned\x07 \x1b[2J",
    "\u202egnp.exe",
    "{{ 7|add:7 }}{% debug %}",
    "a\x00b",
    "\ud800 lone",
)
"""Texts that a session may contain and that must do nothing on a page: markup, control characters, template code."""

Element = LexborNode
Source = HttpResponse | str | LexborHTMLParser | LexborNode


def parse(source: Source) -> LexborHTMLParser | LexborNode:
    """The parsed page; a part of one, such as a single table row, keeps its outermost elements."""
    if isinstance(source, LexborHTMLParser | LexborNode):
        return source
    content = source if isinstance(source, str) else source.content.decode()
    if content.lstrip()[:9].lower() == "<!doctype":
        return LexborHTMLParser(content)
    return LexborHTMLParser(content, is_fragment=True, fragment_tag="template")


def elements(source: Source, css: str) -> list[Element]:
    return parse(source).css(css)


def element(source: Source, css: str) -> Element:
    """The only element that matches."""
    found = elements(source, css)
    assert len(found) == 1, f"{len(found)} elements match {css}"
    return found[0]


def outermost(source: HttpResponse | str) -> list[Element]:
    """The outermost elements of a part of a page; for a whole page its `html`."""
    found = parse(source).css("*")
    return [one for one in found if one.parent is None or one.parent not in found]


def text_of(source: Source) -> str:
    """The words on one line, with one blank wherever a tag or a line ends, without the page's title."""
    parsed = parse(source)
    whole = parsed.body if isinstance(parsed, LexborHTMLParser) and parsed.body else parsed
    return " ".join(whole.text(separator=" ").split())


def text_sent(answer: Any, status: int) -> str:
    """The words of a page that is sent with this status."""
    assert answer.status_code == status
    return text_of(answer)


def texts(source: Source, css: str) -> list[str]:
    return [text_of(found) for found in elements(source, css)]


def missing(found: Container[Any], *expected: Any) -> list[Any]:
    """What should be in a text or a list and is not."""
    return [one for one in expected if one not in found]


def ids(source: Source) -> list[str]:
    return [str(found.id) for found in elements(source, "[id]")]


def classes(found: Element) -> list[str]:
    return str(found.attributes.get("class") or "").split()


def links(source: Source) -> list[tuple[str, str]]:
    """The words and the URL of each link."""
    return [(text_of(found), str(found.attributes["href"])) for found in elements(source, "a[href]")]


def link(source: Source, words: str) -> str:
    """The URL of the only link with these words."""
    found = [address for shown, address in links(source) if shown == words]
    assert len(found) == 1, f"{len(found)} links say {words!r}"
    return found[0]


def addresses(source: Source) -> list[str]:
    """The URLs to which the page leads and from which it loads: links, forms, resources and htmx requests."""
    names = ("href", "src", "action", "hx-get")
    return [str(one.attributes[name]) for name in names for one in elements(source, f"[{name}]")]


def form(source: Source, action: str) -> Element:
    """The only form with this action."""
    found = [one for one in elements(source, "form") if one.attributes.get("action") == action]
    assert len(found) == 1, f"{len(found)} forms are sent to {action}"
    return found[0]


def actions(source: Source) -> list[str]:
    return [str(one.attributes.get("action")) for one in elements(source, "form")]


def values(source: Source, name: str) -> list[str]:
    """The values of all fields, choices and buttons with this name, selected or not."""
    return [str(found.attributes.get("value") or "") for found in elements(source, f'[name="{name}"]')]


def fields(source: Source) -> dict[str, list[str]]:
    """What a browser sends for the unchanged forms, without the buttons."""
    sent: dict[str, list[str]] = {}
    for found in elements(source, "input[name], select[name], textarea[name]"):
        sent.setdefault(str(found.attributes["name"]), []).extend(_sent_values(found))
    return {name: given for name, given in sent.items() if given}


def field(source: Source, name: str) -> str:
    """The only value that a browser sends for an unchanged field."""
    found = fields(source).get(name, [])
    assert len(found) == 1, f"{name} is sent with {found}"
    return found[0]


def hidden_fields(source: Source) -> dict[str, str]:
    """The hidden fields that are sent, by name."""
    hidden = elements(source, 'input[type="hidden"][name]')
    return {str(one.attributes["name"]): str(one.attributes.get("value") or "") for one in hidden}


def csrf_field(source: Source) -> dict[str, str]:
    """The CSRF field that every form of this page sends."""
    return {"csrfmiddlewaretoken": values(source, "csrfmiddlewaretoken")[0]}


def _sent_values(control: Element) -> Iterator[str]:
    given = control.attributes
    if control.tag == "textarea":
        yield control.text()
    elif control.tag == "select":
        options = [one for one in control.css("option") if "disabled" not in one.attributes]
        chosen = [one for one in options if "selected" in one.attributes] or options[:1]
        yield from (str(one.attributes.get("value", text_of(one)) or "") for one in chosen)
    elif given.get("type") not in ("checkbox", "radio") or "checked" in given:
        yield str(given.get("value") or "")


def active_markup(source: Source) -> list[str]:
    """Inline code that the page could execute: scripts, handlers, `javascript:` URLs, style attributes."""
    return [
        f"{found.tag} {name}={value}"
        for found in elements(source, "*")
        for name, value in [*found.attributes.items(), *_inline_script(found)]
        if _acts(name, (value or "").strip().lower())
    ]


def _inline_script(found: Element) -> list[tuple[str, str]]:
    inline = found.tag == "script" and "src" not in found.attributes
    return [("script", found.text())] if inline else []


def _acts(name: str, value: str) -> bool:
    is_address = name in ("href", "src", "action", "formaction") or name.startswith("hx-")
    return (
        name in ("script", "style")
        or name.startswith(("on", "hx-on"))
        or (is_address and value.startswith("javascript:"))
    )


def assert_inert(page: HttpResponse) -> None:
    """Check that none of HOSTILE_TEXTS is active on the page, and that no hostile control character is sent."""
    active = active_markup(page)
    assert not active, active
    assert not elements(page, 'img[src="x"]')
    assert not set(page.content.decode()) & set("\x00\x07\x1b\u202e\ud800")
    assert "14{% debug" not in page.content.decode()
