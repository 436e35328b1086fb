"""Markup that pages share. It is built into all templates, so none has to load it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from django import template
from django.forms import BoundField
from django.template import defaulttags
from django.template.base import Node, Parser, TextNode, Token
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from sessions_app.models import Session
from sessions_app.search.pure.query import SnippetPart
from sessions_app.sessionlog.context import Basis, ContextSize, significant
from sessions_app.sessionlog.text import one_line

from .formatting import ago, escape_line, escape_text

register = template.Library()

MOMENT_FORMS: Final = {
    "clock": "%H:%M",
    "weekday": "%a %H:%M",
    "day": "%-d %b",
    "date": "%A, %-d %B %Y",
    "minute": "%-d %b %Y, %H:%M",
    "second": "%-d %b %Y, %H:%M:%S",
}


@register.tag
def url(parser: Parser, token: Token) -> Node:
    """Django's tag of this name. An address without arguments is the same on every page, so it is computed once."""
    node = defaulttags.url(parser, token)
    if node.args or node.kwargs or node.asvar or node.view_name.is_var:
        return node
    return TextNode(escape(reverse(node.view_name.var)))


@register.simple_tag
@cache
def icon(name: str, size: str = "", label: str = "") -> SafeString:
    """An icon from templates/icons.html, hidden from screen readers unless it has a label."""
    return format_html(
        '<svg class="icon{}" viewBox="0 0 16 16" {}><use href="#i-{}"/></svg>',
        f" icon--{size}" if size else "",
        format_html('aria-label="{}"', label) if label else mark_safe('aria-hidden="true"'),
        name,
    )


@register.simple_tag
@cache
def agent_name(key: str, label: str) -> SafeString:
    """An agent by its shape and name: a shape is told from another faster than a word."""
    return format_html('<span class="agent">{}{}</span>', icon(f"agent-{key}", "small") if key else "", label)


@register.simple_tag
@cache
def key(names: str, words: str) -> SafeString:
    """A row in a page's list of keys: the names of keys, separated by blanks, and their effect. `Ctrl_K` is Ctrl and K
    together."""
    keys = format_html_join(" ", "<kbd>{}</kbd>", ((name.replace("_", " "),) for name in names.split()))
    return format_html("<dt>{}</dt><dd>{}</dd>", keys, words)


@register.simple_tag
def swatch(kind: str) -> SafeString:
    """The pattern of a kind of content, as a legend shows it."""
    return format_html(
        '<svg class="swatch" viewBox="0 0 16 9" aria-hidden="true">'
        '<rect class="kind kind--{}" width="16" height="9"/></svg>',
        kind,
    )


@register.filter
def line_words(words: str) -> SafeString | str:
    """A call described in one line. On a phone, a path at its start is shown without directories."""
    line = escape_line(words)
    file = line.partition(" ")[0]
    directories = file[: file.rfind("/") + 1]
    if not directories:
        return line
    return format_html('<span class="wide-only">{}</span>{}', directories, line[len(directories) :])


@register.simple_tag
def session_link(session: Session) -> SafeString:
    """A link to a session's page, with its title; the keys g and s follow it."""
    title = one_line(session.title or session.relative_path, 90)
    return format_html('<a href="{}" data-go="s">{}</a>', session.get_absolute_url(), title)


_BASIS: Final = {
    Basis.REPORTED: "The provider reported it with the last answer.",
    Basis.ABOUT: "The last report or count, more or less what has come and gone since, in the same measure.",
    Basis.COUNTED: "Counted by a tokenizer, because the provider reported nothing of this context.",
}


@register.simple_tag
def context_size(size: ContextSize, short: bool = False) -> SafeString:
    """The size of a context: about 178,000 tokens; 177,657 tokens, reported; or ≈ 178,000, if it has to be short."""
    sign = "≈\u202f" if size.is_rounded else ""
    shown = f"{sign}{size.shown:,}" if short else str(size)
    return format_html('<data class="tabular" value="{}" title="{}">{}</data>', size.tokens, _BASIS[size.basis], shown)


@register.inclusion_tag("components/context_gauge.html")
def context_gauge(session: Session, size: ContextSize | None) -> dict[str, Any]:
    """How much of its window a session's context fills, with a tick where the agent compacts it."""
    return {"session": session, "filled": session.fill_percent_of(size) or 0}


@register.simple_tag
def part(tokens: int, struck: bool = False) -> SafeString:
    """A number of tokens in a context: 71,900, or −71,900 if they are struck. The element's value is the exact
    number.
    """
    shown = f"{significant(tokens):,}"
    if not struck:
        return format_html('<data value="{}">{}</data>', tokens, shown)
    return format_html('<data class="red" value="{}">−{}</data>', tokens, shown)


@register.simple_block_tag
def field(content: str, field: BoundField, unit: str = "", style: str = "") -> SafeString:
    """A form field with its label, its error and, as the content of the tag, its help text."""
    context = {"field": field, "unit": unit, "style": style, "help": content}
    return render_to_string("components/field.html", context)


@register.simple_tag
def moment(at: datetime | None, form: str) -> SafeString:
    """A time in the zone of this computer, in one of MOMENT_FORMS or as "ago"; the exact one in UTC is its title."""
    if at is None:
        return SafeString()
    exact = at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    words = ago(at) if form == "ago" else timezone.localtime(at).strftime(MOMENT_FORMS[form])
    return format_html('<time datetime="{}Z" title="{} UTC">{}</time>', exact, exact.replace("T", " "), words)


@register.simple_tag
def marked(parts: Sequence[SnippetPart]) -> SafeString:
    """A snippet of a text, with its matches marked."""
    if not parts:
        return SafeString()
    pattern = "".join("<mark>{}</mark>" if part.marked else "{}" for part in parts)
    return format_html(pattern, *(escape_text(part.text) for part in parts))


@register.filter
def struck(text: str) -> SafeString:
    """A deleted text, struck through line by line, without the indent."""
    return format_html("<del>{}</del>", format_html_join("\n", '{}<span class="strike">{}</span>', _indented(text)))


def _indented(text: str) -> Iterator[tuple[str, str]]:
    for line in escape_text(text).split("\n"):
        rest = line.strip()
        yield line[: len(line) - len(line.lstrip())], rest


@register.filter
def price(dollars: float | None) -> SafeString:
    """US dollars as a price: $3, $0.25; "unknown" if there is none."""
    if dollars is None:
        return mark_safe('<span class="quiet">unknown</span>')
    return format_html("${}", f"{dollars:g}")
