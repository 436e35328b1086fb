"""PURE: programs with their keywords, strings, names and comments marked. Four classes, so that code stays quiet.

The language comes from a file's name or from a fence; it is guessed only for JSON and diffs. Other texts, long texts
and long lines stay plain: highlighting takes about a microsecond for each character.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from pygments.lexer import Lexer, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Operator, String, Token

from .markup import spans

LIMIT: Final = 20_000
"""Longer texts are not highlighted, in characters."""
LINES: Final = 800
"""Texts with more lines are not highlighted either: the lexers of some languages take quadratic time for blank ones."""
LINE_LIMIT: Final = 1_000
"""Texts with a longer line are not highlighted either: no human wrote it."""
REACH: Final = 400
"""How far a rule that repeats words and blanks may look, in characters. Searching for the bracket of a declaration, the
rules of Java and C# would read the whole rest, from each word again."""
_REPEATED_WORDS: Final = r"\s+)+?"
JSON_LIMIT: Final = 200_000
"""Longer texts are not parsed as JSON, in characters."""
_NUMBER: Final = re.compile(r" {0,8}[0-9]{1,7}(?:→|\t|\| ?|: ?)")
"""The beginning of a line in a file that a tool read, as agents write it."""
_PATCHES: Final = ("diff --git ", "diff -", "Index: ")
_LANGUAGES: Final[Mapping[str, str]] = {
    "bash": "bash sh shell zsh console shell-session",
    "c": "c h",
    "cpp": "cpp c++ cc cxx hpp hh",
    "csharp": "csharp c# cs",
    "css": "css",
    "dart": "dart",
    "diff": "diff patch",
    "docker": "docker dockerfile",
    "elixir": "elixir ex exs",
    "erlang": "erlang erl",
    "go": "go golang",
    "graphql": "graphql gql",
    "haskell": "haskell hs",
    "hcl": "hcl tf terraform",
    "html": "html htm",
    "ini": "ini cfg conf",
    "java": "java",
    "javascript": "javascript js jsx mjs cjs",
    "json": "json json5 jsonc jsonl",
    "julia": "julia jl",
    "kotlin": "kotlin kt kts",
    "lua": "lua",
    "make": "make makefile mk",
    "nix": "nix",
    "php": "php",
    "powershell": "powershell ps1",
    "protobuf": "protobuf proto",
    "python": "python py pyi python3",
    "r": "r",
    "ruby": "ruby rb",
    "rust": "rust rs",
    "scala": "scala",
    "scss": "scss",
    "sql": "sql",
    "swift": "swift",
    "toml": "toml",
    "typescript": "typescript ts tsx mts cts",
    "xml": "xml svg",
    "yaml": "yaml yml",
    "zig": "zig",
}
LANGUAGES: Final = {alias: language for language, aliases in _LANGUAGES.items() for alias in aliases.split()}
"""Languages by their names in fences and file extensions."""
_CLASSES: Final[Mapping[Any, str]] = {
    Comment: "code__note",
    Comment.Preproc: "code__word",
    Keyword: "code__word",
    Keyword.Type: "code__name",
    Operator.Word: "code__word",
    String: "code__string",
    Name.Attribute: "code__name",
    Name.Class: "code__name",
    Name.Decorator: "code__name",
    Name.Function: "code__name",
    Name.Tag: "code__name",
    Token.Generic.Inserted: "diff__added",
    Token.Generic.Deleted: "diff__removed",
    Token.Generic.Subheading: "diff__gap",
}


def language_of(path: str) -> str:
    """The language of a file, by its name; empty if unknown."""
    name = posixpath.basename(path.replace("\\", "/")).lower()
    stem, _, extension = name.rpartition(".")
    return LANGUAGES.get(extension if stem else name, "")


def is_patch(text: str) -> bool:
    """Whether a text begins as the output of a program that compares files."""
    return text.startswith(_PATCHES)


def highlighted(text: str, language: str) -> str | None:
    """A printable text in one of LANGUAGES as HTML, which has to be sanitized.

    None if it is too long, or the language is unknown.
    """
    known = _known(text, language)
    return None if known is None else spans(_pieces(text, known))


def highlighted_file(text: str, language: str) -> str | None:
    """The same for the output of a tool that read a file: numbers at the beginnings of its lines are not part of the
    program."""
    known = _known(text, language)
    if known is None:
        return None
    lines = text.split("\n")
    numbers = [_NUMBER.match(line) for line in lines]
    if sum(map(bool, numbers)) * 2 < len(lines):
        return spans(_pieces(text, known))
    code = "\n".join(line[found.end() :] for line, found in zip(lines, numbers, strict=True) if found)
    coded = iter(_by_line(_pieces(code, known)))
    return spans(
        piece
        for at, (line, found) in enumerate(zip(lines, numbers, strict=True))
        for piece in (
            *((("", "\n"),) if at else ()),
            *((("code__note", found[0]), *next(coded)) if found else (("", line),)),
        )
    )


def _known(text: str, language: str) -> str | None:
    """The language by its own name, if a text in it is to be highlighted."""
    lines = text.split("\n") if len(text) <= LIMIT else []
    is_short = 0 < len(lines) <= LINES and all(len(line) <= LINE_LIMIT for line in lines)
    return LANGUAGES.get(language.lower()) if is_short else None


def _by_line(pieces: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The pieces of each line, without the line breaks."""
    line: list[tuple[str, str]] = []
    for classes, text in pieces:
        first, *others = text.split("\n")
        line.append((classes, first))
        for other in others:
            yield line
            line = [(classes, other)]
    yield line


def pretty_json(text: str) -> str | None:
    """An object or an array with one value on each line; None for any other text."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > JSON_LIMIT:
        return None
    try:
        value = json.loads(text, object_pairs_hook=_each_once)
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all different, so that no value is hidden. Raises ValueError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is used twice")
    return found


def _pieces(text: str, language: str) -> Iterator[tuple[str, str]]:
    # Lexers expect a line break at the end.
    for start, kind, piece in lexer_of(language).get_tokens_unprocessed(text + "\n"):
        yield _class_of(kind), piece[: len(text) - start]


@cache
def lexer_of(language: str) -> Lexer:
    """The lexer of a language, by its own name."""
    lexer: Any = get_lexer_by_name(language)
    if isinstance(lexer, RegexLexer):
        lexer._tokens = {state: list(map(_near, rules)) for state, rules in lexer._tokens.items()}
    found: Lexer = lexer
    return found


def _near(rule: tuple[Any, ...]) -> tuple[Any, ...]:
    """A rule of a lexer that looks no farther than REACH if it repeats words."""
    match, *rest = rule
    pattern = match.__self__
    if _REPEATED_WORDS not in pattern.pattern:
        return rule
    return (lambda text, start: pattern.match(text, start, start + REACH), *rest)


@cache
def _class_of(kind: Any) -> str:
    while kind is not Token:
        if kind in _CLASSES:
            return _CLASSES[kind]
        kind = kind.parent
    return ""
