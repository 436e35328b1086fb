"""Filters that format numbers, sizes, times and paths for pages."""

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Final

from django import template
from django.utils import timezone

from sessions_app.models import Session
from sessions_app.sessionlog import context
from sessions_app.sessionlog.context import ContextSize
from sessions_app.sessionlog.model_facts import undated
from sessions_app.sessionlog.text import duration_words, one_line, plural, printable, printable_lines

register = template.Library()
register.filter(one_line)
register.filter(undated)
register.filter("duration", duration_words)

SHOWN_ID: Final = 14
"""The maximum length of an id that is not abbreviated."""
_RANDOM_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


@register.filter
def count(number: int | None) -> str:
    """A number with thousands separators: 12,817."""
    return "" if number is None else f"{number:,}"


@register.filter
def counted(number: int | None, noun: str) -> str:
    """A number with its noun: 1 entry, 12,817 entries."""
    return "" if number is None else plural(number, noun)


@register.filter
def thousands(number: int | None) -> str:
    """A window in thousands of tokens: 200k."""
    return "" if number is None else f"{number / 1000:,.0f}k"


@register.filter
def short_id(entry_id: str) -> str:
    """An entry's id as it is shown beside the entry: the start of a random UUID, both ends of another long id."""
    if _RANDOM_UUID.fullmatch(entry_id):
        return entry_id[:8]
    return entry_id if len(entry_id) <= SHOWN_ID else f"{entry_id[:4]}…{entry_id[-8:]}"


@register.filter
def size(number: int) -> str:
    """A size in decimal units: 412 B, 947 kB, 2.4 MB, 1.2 GB."""
    if number < 1_000:
        return f"{number} B"
    if number < 1_000_000:
        return f"{number / 1000:,.0f} kB"
    if number < 1_000_000_000:
        return f"{number / 1_000_000:,.1f} MB"
    return f"{number / 1_000_000_000:,.1f} GB"


@register.filter
def ago(moment: datetime | None) -> str:
    """A relative time: now, 38 min ago, 2 h ago, yesterday, Tuesday, 14 Feb 2026."""
    if moment is None:
        return "never"
    now = timezone.localtime()
    local = timezone.localtime(moment)
    seconds = (now - local).total_seconds()
    if -60 < seconds < 60:
        return "now"
    if 0 < seconds < 3_600:
        return f"{seconds // 60:.0f} min ago"
    days = (now.date() - local.date()).days
    if days == 0 and seconds > 0:
        return f"{seconds // 3_600:.0f} h ago"
    if days == 1:
        return "yesterday"
    return f"{local:%A}" if 0 < days < 7 else f"{local.day} {local:%b %Y}"


@register.filter
def home(path: str | Path) -> str:
    """A path with ~ for the user's home directory, printable."""
    path = str(path)
    own = os.path.expanduser("~")  # noqa: PTH111  # Path.home takes ten times as long, in each row
    return printable(f"~{path[len(own) :]}" if path == own or path.startswith(own + "/") else path)


@register.filter
def escape_line(text: str | None) -> str:
    """A text on one line, with every control and direction character escaped; empty for None."""
    return "" if text is None else printable(" ".join(text.split()))


@register.filter
def heading(session: Session) -> str:
    """The title of a session for the title of a page: one line of at most 70 characters."""
    return one_line(session.heading, 70)


@register.filter
def tokens(number: int) -> str:
    """A short number of tokens, to at most three digits below a million: 94, 1.5k, 33.8k, 178k."""
    if number < 1_000:
        return str(number)
    return f"{number / 1000:,.{int(number < 100_000)}f}k"


@register.filter
def significant(number: int) -> int:
    """A number that is not exact, to three significant digits: 71,922 is 71,900."""
    return context.significant(number)


@register.filter
def signed(tokens: int) -> str:
    """The tokens that a decision deletes, −71,900, or restores, +71,900; 0 if none."""
    return f"{'−' if tokens > 0 else '+' if tokens else ''}{count(context.significant(abs(tokens)))}"


@register.filter
def in_measure(estimate: int, size: ContextSize | None) -> str:
    """An estimate in the measure of a context, to three significant digits: 71,900."""
    return count(context.significant(estimate if size is None else size.of(estimate)))


@register.filter
def tokens_in(estimate: int, size: ContextSize | None) -> str:
    """As `in_measure`, with the noun: 1 token, 71,900 tokens."""
    return plural(context.significant(estimate if size is None else size.of(estimate)), "token")


@register.filter
def short_in_measure(estimate: int, size: ContextSize | None) -> str:
    """As `in_measure`, abbreviated: 71.9k."""
    return tokens(context.significant(estimate if size is None else size.of(estimate)))


@register.filter
def escape_text(text: str) -> str:
    """A text with its line breaks and tabs; every other control and direction character is escaped."""
    return printable_lines(text)
