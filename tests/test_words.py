"""One word for one thing: pages and commands have one verb for deleting and one for keeping."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.paths import PROJECT

DELETE: Final[Mapping[str, str]] = {
    "delete": r"delet(?:es?|ed|ing|ions?)",
    "strike": r"str(?:ikes?|iking)|struck(?! through| if|:)",
    "remove": r"remov(?:es?|ed|ing|als?)",
    "prune": r"prun(?:es|ed|ing)",
    "discard": r"discard(?:s|ed|ing)?",
    "drop": r"drop(?:s|ped|ping)",
    "leave out": r"(?:leaves?|leaving|left) out",
    "take out": r"(?:takes?|taking|taken|took) out",
    "go": r"goes(?! by| into| to)|gone|go along|(?:would|will|can|may) go",
    "erase": r"eras(?:es?|ed|ing)",
}
KEEP: Final[Mapping[str, str]] = {
    "keep": r"keep(?:s|ing)?|kept",
    "stay": r"stay(?:s|ed|ing)?(?! logged in)",
    "survive": r"surviv(?:es?|ed|ing|ors?)",
    "stand": r"still stands?|standing|stood",
    "remain": r"remain(?:s|ed|ing)?",
    "retain": r"retain(?:s|ed|ing)?",
    "preserve": r"preserv(?:es?|ed|ing)",
}
INTERNAL: Final[Mapping[str, str]] = {
    "what people call it": "",
    "confirm": r"last look|commit(?:s|ted)?",
    "checked": r"certif\w+",
    "health": r"doctor",
    "what compactions cost; benchmark": r"hindsight|labs?|experiments?",
    "opened as; saved as": r"(?:session|other|another|its|the|this|no|newer) (?:readers?|writers?)|read as",
    "folder": r"roots?",
    "the agent continues here": r"leaf",
    "plan": r"(?:this|the|a|new|earlier|later) runs?|runs? \d+",
    "you": r"somebody|nobody",
}
"""Words of the code, each under what people call it."""
SHOWN: Final = frozenset({"alt", "aria-label", "aria-description", "placeholder", "title"})
"""The attributes whose values people read or hear."""
NAMES: Final = frozenset({"code", "kbd", "pre", "samp", "script", "style"})
"""Elements with names and texts that are not Redline's words."""


class Text(NamedTuple):
    """A text that people read, and its place."""

    place: str
    words: str


class _Words(HTMLParser):
    """The texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []
        self._inside = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._inside += tag in NAMES
        self.found += [(self.getpos()[0], value or "") for name, value in attributes if name in SHOWN]

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag in NAMES

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.found.append((self.getpos()[0], data))


def _without_tags(source: str) -> str:
    """A template without comments, tags and variables. The texts that tags are given, and line breaks, are kept."""

    def words_in(tag: re.Match[str]) -> str:
        given = [one for one in re.findall(r'"([^"]*)"', tag[0]) if " " in one]
        return f" {'. '.join(given)} " + "\n" * tag[0].count("\n")

    def nothing(tag: re.Match[str]) -> str:
        return "\n" * tag[0].count("\n")

    source = re.sub(r"{#.*?#}|{% comment.*?endcomment %}|{{.*?}}", nothing, source, flags=re.DOTALL)
    return re.sub(r"{%.*?%}", words_in, source, flags=re.DOTALL)


def texts_of_template(path: Path) -> Iterator[Text]:
    reader = _Words()
    reader.feed(_without_tags(path.read_text(encoding="utf-8")))
    reader.close()
    for line, words in reader.found:
        yield Text(f"{path.relative_to(PROJECT)}:{line}", " ".join(words.split()))


def texts_of_module(path: Path) -> Iterator[Text]:
    """The texts in a module: what has more than one word, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in statements]
    for node in constants:
        if isinstance(node.value, str) and " " in node.value.strip():
            yield Text(f"{path.relative_to(PROJECT)}:{node.lineno}", node.value)


def other_words(texts: Iterable[Text], verbs: Mapping[str, str]) -> list[str]:
    """The places with another verb than the first of these. Names in backticks, flags and filters are not words."""
    _, *others = verbs
    found = []
    for place, words in texts:
        plain = re.sub(r"`[^`]*`|--[\w-]+|\b\w+:\w+", "", words)
        found += [
            f"{place}: {verb}: {words}" for verb in others if re.search(rf"\b(?:{verbs[verb]})\b", plain, re.IGNORECASE)
        ]
    return found


FOLDERS: Final = sorted({path.parent for path in (PROJECT / "templates").rglob("*.html")})
COMMANDS: Final = sorted(
    [*PROJECT.glob("*_app/management/**/*.py"), PROJECT / "sessions_app" / "cli.py", PROJECT / "redline" / "main.py"]
)


@pytest.mark.parametrize("verbs", [DELETE, KEEP], ids=["delete", "keep"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pages_have_one_verb_for_deleting_and_one_for_keeping(folder, verbs):
    found = [one for path in sorted(folder.glob("*.html")) for one in other_words(texts_of_template(path), verbs)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("verbs", [DELETE, KEEP], ids=["delete", "keep"])
def test_commands_have_one_verb_for_deleting_and_one_for_keeping(verbs):
    found = [one for path in COMMANDS for one in other_words(texts_of_module(path), verbs)]
    assert not found, "\n".join(found)


def test_pages_and_commands_have_no_words_of_the_code():
    pages = [text for path in sorted((PROJECT / "templates").rglob("*.html")) for text in texts_of_template(path)]
    texts = [*pages, *(text for path in COMMANDS for text in texts_of_module(path))]
    found = other_words(texts, INTERNAL)
    assert not found, "\n".join(found)


def test_other_words_are_found_in_texts_labels_and_tags(tmp_path):
    template = PROJECT / "templates" / "none.html"
    source = (
        '<p title="What goes">{# it stays #}\n{% tag with label="Remove it" %}<code>prune</code>{{ kept }} Dropped</p>'
    )
    reader = _Words()
    reader.feed(_without_tags(source))
    reader.close()
    texts = (Text(f"{template.name}:{line}", words) for line, words in reader.found)
    assert [one.split(": ")[1] for one in other_words(texts, DELETE)] == ["go", "remove", "drop"]
