"""Markdown: what is drawn, and that nothing in it acts, loads or hides where it leads."""

from typing import Final

import pytest

from compaction_app.rendering.markdown import CELLS, LIMIT, rendered_markdown
from compaction_app.rendering.markup import CLASSES, sanitized
from sessions_app.sessionlog.text import printable_lines
from tests.html import HOSTILE_TEXTS, active_markup, classes, elements, link, links, text_of, texts

TAGS: Final = frozenset(
    "p br hr blockquote ol ul li h3 h4 h5 h6 strong em code table thead tbody tr th td a div pre span".split()
)
ATTRIBUTES: Final = frozenset({"href", "rel", "start", "class", "tabindex", "role", "aria-label"})
EVIL: Final = (
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt&colon;alert(1))",
    "[a](java\nscript:alert(1))",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](data:text/html,<script>alert(1)</script>)",
    "<javascript:alert(1)>",
    "![a](javascript:alert(1)) ![b](http://evil.example/x.png) ![c](data:image/svg+xml;base64,PHN2Zz4=)",
    '[a](http://evil.example/"onmouseover="alert(1))',
    '[a](http://evil.example "title\\" onmouseover=alert(1)")',
    "[a]: javascript:alert(1)\n\n[a] ![a]",
    "<a href='javascript:alert(1)' style='position:fixed' onclick=alert(1)>x</a>",
    "<div\nonclick=alert(1)\n\n>x</div>",
    "<style>*{display:none}</style><base href=//evil.example><form action=//evil.example><input autofocus>",
    '```" onclick="alert(1)\nx\n```',
    "```<img src=x onerror=alert(1)>\n</code></pre><img src=x onerror=alert(1)>\n```",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "`</code><script>alert(1)</script>`",
    "| <svg onload=alert(1)> | b |\n|:-:|---|\n| <img src=x onerror=alert(1)> | [c](javascript:d) |",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=alert(1)&#62;",
    "[\u202egnp.exe](http://evil.example/\u202etxt) &#x202e;&#8238;&#x1b;[2J &#0; &#xd800;",
    "x <!-- --> <![CDATA[ y ]]> <?php z ?> <!DOCTYPE html>",
    "1. a\n" + "> " * 200 + "deep\n" + "- " * 200 + "deep",
    *HOSTILE_TEXTS,
)


def markup_of(text: str) -> str:
    return sanitized(rendered_markdown(printable_lines(text)) or "")


@pytest.mark.parametrize("text", EVIL, ids=[f"evil{number}" for number in range(len(EVIL))])
def test_nothing_in_a_hostile_text_acts_or_is_loaded(text):
    markup = markup_of(text)
    assert not active_markup(markup)
    for one in elements(markup, "*"):
        assert one.tag in TAGS | {"html", "head", "body", "template"}
        assert set(one.attributes) <= ATTRIBUTES
        assert set(classes(one)) <= CLASSES.get(str(one.tag), frozenset())
    assert all(where.startswith(("http://", "https://", "mailto:")) for _, where in links(markup))
    assert not set(markup) & set("\x00\x07\x1b\u202e\ud800")


def test_tags_are_words_a_line_break_stays_and_what_stands_between_two_tildes_is_not_struck():
    shown = text_of(markup_of("<system-reminder>Be *brief*.</system-reminder>"))
    assert shown == "<system-reminder>Be brief .</system-reminder>"
    assert "one<br>" in markup_of("one\ntwo")
    assert text_of(markup_of("~~kept~~")) == "~~kept~~"


def test_a_link_says_where_it_leads_whatever_its_words_and_tells_nothing():
    said = "See [the docs](https://docs.example/a), <https://docs.example/b> and <me@docs.example>."
    markup = markup_of(said)
    shown = "See the docs (https://docs.example/a) , https://docs.example/b and me@docs.example ."
    assert (text_of(markup), link(markup, "the docs")) == (shown, "https://docs.example/a")
    assert {one.attributes["rel"] for one in elements(markup, "a")} == {"noopener noreferrer nofollow"}
    assert "(https://evil.example)" in text_of(markup_of("[https://good.example](https://evil.example)"))
    shown = texts(markup_of(f"[a](https://docs.example/{'x' * 500})"), ".rich__target")
    assert shown == [f"(https://docs.example/{'x' * 59}…)"]


@pytest.mark.parametrize("target", ["src/parse.py", "/etc/passwd", "ftp://host/x", "#here"])
def test_a_target_outside_the_web_is_words(target):
    markup = markup_of(f"In [parse.py]({target}).")
    assert text_of(markup) == f"In parse.py ({target}) ."
    assert not links(markup)


def test_an_image_is_a_link_or_words_and_a_long_text_stays_plain():
    image = markup_of("![The plan](https://docs.example/a.png)")
    assert links(image) == [("The plan", "https://docs.example/a.png")]
    assert text_of(markup_of("![](plan.png)")) == "image (plan.png)"
    assert rendered_markdown("x" * LIMIT) is not None
    assert rendered_markdown("x" * (LIMIT + 1)) is None


def test_headings_begin_below_those_of_the_page_skip_no_level_and_end_at_the_last():
    def headings(said: str) -> str:
        return " ".join(f"{one.tag}:{one.text()}" for one in elements(markup_of(said), "h3,h4,h5,h6"))

    assert headings("## A\n#### B\n# C\n### D\n#### E") == "h3:A h4:B h3:C h4:D h5:E"
    assert headings("\n".join(f"{'#' * level} x" for level in range(1, 7))) == "h3:x h4:x h5:x h6:x h6:x h6:x"


def test_code_and_tables_scroll_by_keyboard_and_code_names_its_language_and_is_whole():
    (code,) = elements(markup_of("```python\ndef f(): # x\n```"), "pre")
    assert (code.attributes["tabindex"], code.attributes["aria-label"]) == ("0", "Code, python")
    assert texts(code, ".code__word, .code__name, .code__note") == ["def", "f", "# x"]
    (code,) = elements(markup_of("```\n\n  a\n\tb\n\n```"), "pre")
    assert code.text() == "\n  a\n\tb"
    (table,) = elements(markup_of("| a | b |\n|---|--:|\n| 1 | 2 |"), "div")
    assert (table.attributes["tabindex"], texts(table, "th, td")) == ("0", ["a", "b", "1", "2"])


@pytest.mark.parametrize("columns", [3, 1_000])
def test_a_table_that_is_filled_up_to_very_many_cells_stays_plain(columns):
    head = f"|{'a|' * columns}\n|{'-|' * columns}\n"
    rows = CELLS // (columns + 1) - 3
    drawn = rendered_markdown(head + "b\n" * rows)
    assert drawn is not None
    assert 0 < drawn.count("<td") <= CELLS
    assert rendered_markdown(head + "b\n" * (rows + 4)) is None
