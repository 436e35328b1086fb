"""The layout of templates: a change of one word is a change of one line.

djlint checks their content. Its formatter is not used: it adds white space to inline text and to `<pre>`, where it is
visible.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from django.conf import settings

from sessions_app.sessionlog.text import plural

TEMPLATES: Final = Path(settings.TEMPLATES[0]["DIRS"][0])
LONGEST: Final = 120
INDENT: Final = 2
TOKEN: Final = re.compile(
    r"""
    \{%\ (?P<end>end)?(?P<block>if|for|with|spaceless|partialdef|field)\b[^\n]*?%\}
    | \{%\ (?P<branch>elif|else|empty)\b[^\n]*?%\}
    | \{%.*?%\} | \{\{.*?\}\} | \{\#.*?\#\} | <!.*?>
    | </(?P<close>[\w-]+)>
    | <(?P<open>[\w-]+)(?:\{%.*?%\}|\{\{.*?\}\}|"(?:\{%.*?%\}|\{\{.*?\}\}|[^"])*"|'[^']*'|[^<>"'])*>
    """,
    re.VERBOSE | re.DOTALL,
)
VOID: Final = ("meta", "link", "input", "br")
BLOCKS: Final = re.compile(
    r"<(?:article|aside|dd|details|dialog|div|dl|dt|fieldset|footer|form|h[1-6]|header|legend|li|main|nav|ol|option|p"
    r"|pre|section|select|summary|table|tbody|td|textarea|tfoot|th|thead|tr|ul)\b"
)


def names() -> list[str]:
    return sorted(path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*.html"))


def indents(text: str) -> Iterator[tuple[int, int]]:
    """The indent of each line, and its depth: the number of enclosing elements and template tags that begin a line.

    `{% block %}` does not count. Lines inside a tag, with its attributes, are omitted.
    """
    starts = {match.end() for match in re.finditer(r"^ *(?=\S)", text, re.MULTILINE)}
    around: list[bool] = []
    closing: int | None = None
    position = 0
    for token in TOKEN.finditer(text):
        closes = bool(token["end"] or token["close"])
        if closing is not None and not (closes and token.start() == position):
            yield closing, sum(around)
            closing = None
        yield from ((start, sum(around)) for start in sorted(starts) if position <= start < token.start())
        begins = token.start() in starts
        if closes:
            around.pop()
            closing = token.start() if begins else closing
        elif begins:
            yield token.start(), sum(around) - (around[-1] if token["branch"] else 0)
        if not closes and opens(token):
            around.append(begins)
        position = token.end()


def opens(token: re.Match[str]) -> bool:
    if token["open"]:
        return token["open"] not in VOID and not token[0].endswith("/>")
    return bool(token["block"])


def faults_of(name: str) -> Iterator[str]:
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    for start, depth in indents(text):
        line = text.count("\n", 0, start) + 1
        indent = start - (text.rfind("\n", 0, start) + 1)
        if indent != depth * INDENT:
            yield f"{name} line {line}: indented by {indent}, nested by {depth * INDENT}"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST:
            yield f"{name} line {number}: {len(line)} characters"
        if len(BLOCKS.findall(line)) > 1:
            yield f"{name} line {number}: more than one element"
        if line != line.rstrip() or "\t" in line:
            yield f"{name} line {number}: trailing space or a tab"


def test_a_template_has_one_element_on_a_line_and_shows_its_nesting():
    faults = [fault for name in names() for fault in faults_of(name)]
    assert not faults, "\n".join(faults)


def test_a_count_is_followed_by_a_noun_that_agrees_with_it():
    plurals = re.compile(r"\|count \}\}\s+(?:more |other |earlier )?(?!is\b|ms\b)[a-z]+s\b(?!\{)")
    found = {name: plurals.findall((TEMPLATES / name).read_text(encoding="utf-8")) for name in names()}
    # Where there is one, another sentence is shown.
    found["review/groups.html"].remove("|count }} proposals")
    assert {name: words for name, words in found.items() if words} == {}, 'say |counted:"noun"'


@pytest.mark.parametrize(
    ("noun", "words"),
    [
        ("entry", "entries"),
        ("reply", "replies"),
        ("day", "days"),
        ("match", "matches"),
        ("damaged line", "damaged lines"),
    ],
)
def test_a_noun_is_in_the_plural_unless_there_is_one(noun, words):
    assert [plural(number, noun) for number in (0, 1, 1_204)] == [f"0 {words}", f"1 {noun}", f"1,204 {words}"]
