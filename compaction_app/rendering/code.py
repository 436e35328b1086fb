"""PURE: programs, terminal output and diffs as HTML, which has to be sanitized. Few classes are used, so that code
stays easy to read.

Programs: keywords, strings, names and comments are marked. The language comes from a file's name or from a fence; it is
guessed only for JSON and diffs. Other texts, long texts and long lines stay plain: highlighting takes about a
microsecond for each character.

Terminal output: colours and styles become classes. Only sequences that set a style, or erase to the end of a line, are
removed from the text: all others, which could make a terminal hide or move text, are shown as escapes. Red is only for
deletions, so an ANSI red is plum.

Diffs: a sign begins each line, because colour alone carries no information. A call that edits a file names its old and
its new text but not their position, so that a diff has no line numbers.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from html import escape
from typing import Any, Final, NamedTuple

from pygments.lexer import Lexer, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Operator, String, Token

from sessions_app.sessionlog.text import printable_lines

from .markup import spans

LIMIT: Final = 20_000
"""The maximum length of a highlighted text, in characters."""
LINES: Final = 800
"""The maximum number of lines of a highlighted text: some lexers take quadratic time for blank lines."""
LINE_LIMIT: Final = 1_000
"""The maximum length of a line of a highlighted text, in characters: no human writes longer ones."""
REACH: Final = 400
"""How far a rule that repeats words and blanks may look, in characters. Searching for the bracket of a declaration, the
rules of Java and C# would read the whole rest, from each word again."""
_REPEATED_WORDS: Final = r"\s+)+?"
JSON_LIMIT: Final = 200_000
"""The maximum length of a text that is parsed as JSON, in characters."""
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
    """Like `highlighted`, for the output of a tool that read a file: numbers at the beginnings of its lines are not
    part of the program.
    """
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


ESCAPE: Final = "\x1b"
_SEQUENCE: Final = re.compile(r"\x1b\[([0-9;:]{0,60})m|\x1b\[[0-2]?K|\x1b\(B")
_COLOURS: Final = ("", "red", "green", "yellow", "blue", "violet", "cyan", "")
"""The colours of the codes 30 to 37. Black and white are the text's own colour: a page has two themes."""
_STYLES: Final = {1: "strong", 2: "faint", 3: "slanted", 4: "underlined"}
_ENDS: Final = {22: ("strong", "faint"), 23: ("slanted",), 24: ("underlined",)}
_EXTENDED: Final = (38, 48, 58)
"""They take the following codes: 5 and a number, or 2 and three numbers."""


def coloured(text: str) -> str | None:
    """A recorded output as HTML, which has to be sanitized; None if it sets no style."""
    return spans(_styled_pieces(text)) if ESCAPE in text and _SEQUENCE.search(text) else None


def without_styles(text: str) -> str:
    """The text alone, without the sequences that `coloured` removes."""
    return _SEQUENCE.sub("", text) if ESCAPE in text else text


def _styled_pieces(text: str) -> Iterator[tuple[str, str]]:
    colour, styles, end = "", frozenset[str](), 0
    for found in _SEQUENCE.finditer(text):
        yield _classes(colour, styles), printable_lines(text[end : found.start()])
        end = found.end()
        if found[1] is not None:
            colour, styles = _styled(colour, styles, found[1])
    yield _classes(colour, styles), printable_lines(text[end:])


def _styled(colour: str, styles: frozenset[str], parameters: str) -> tuple[str, frozenset[str]]:
    """The colour and the styles after one sequence."""
    codes = iter([int(code or 0) for code in re.split("[;:]", parameters)])
    for code in codes:
        if code == 0:
            colour, styles = "", frozenset()
        elif code in _STYLES:
            styles |= {_STYLES[code]}
        elif code in _ENDS:
            styles -= set(_ENDS[code])
        elif 30 <= code <= 37 or 90 <= code <= 97:
            colour = _COLOURS[code % 10]
        elif code == 39:
            colour = ""
        elif code in _EXTENDED:
            extended = _extended(codes)
            colour = extended if code == 38 else colour
    return colour, styles


def _extended(codes: Iterable[int]) -> str:
    """The colour that the codes after one of _EXTENDED name: by name for the first sixteen, none for others."""
    rest = iter(codes)
    mode = next(rest, 0)
    if mode == 5:
        number = next(rest, 0)
        return _COLOURS[number % 8] if number < 16 else ""
    if mode == 2:
        for _ in range(3):
            next(rest, 0)
    return ""


def _classes(colour: str, styles: Iterable[str]) -> str:
    return " ".join(f"ansi__{name}" for name in (colour, *sorted(styles)) if name)


COMPARED_LINES: Final = 400
"""The maximum number of lines of two texts that are compared line by line. For longer texts, the old one is removed and
the new one added, except for common lines at the beginning and the end."""
AROUND: Final = 3
"""The number of unchanged lines that are shown on each side of a change."""
GAP: Final = "⋯"
_Operation = tuple[str, int, int, int, int]
"""As in `difflib`: the operation, and the lines of both texts that it concerns."""
_SIGN_CLASSES: Final = {"+": "diff__added", "-": "diff__removed", " ": "diff__line", "@": "diff__gap"}


class TextChange(NamedTuple):
    """A part of a file, before and after."""

    old: str
    new: str


class DiffLine(NamedTuple):
    """A line of a diff: `+`, `-`, a blank for an unchanged line, or `@` for the gap between two places."""

    sign: str
    text: str


def diff_of(changes: Iterable[TextChange]) -> Iterator[DiffLine]:
    """The lines of a diff of several places of a file."""
    for number, change in enumerate(changes):
        if number:
            yield DiffLine("@", GAP)
        yield from _lines(_lines_of(change.old), _lines_of(change.new))


def diff_of_patch(lines: Iterable[str]) -> Iterator[DiffLine]:
    """The lines of a patch whose lines already have their signs; a line without one is a heading."""
    for line in lines:
        if line[:1] in ("+", "-", " "):
            yield DiffLine(line[0], line[1:])
        else:
            yield DiffLine("@" if line else " ", line)


def counts(lines: Iterable[DiffLine]) -> tuple[int, int]:
    """The number of lines that a diff adds and removes."""
    signs = [line.sign for line in lines]
    return signs.count("+"), signs.count("-")


def diff_markup(lines: Iterable[DiffLine]) -> str:
    """A diff as HTML, which has to be sanitized."""
    return "".join(map(_markup, lines))


def _markup(line: DiffLine) -> str:
    sign = "" if line.sign == "@" else line.sign
    return f'<span class="{_SIGN_CLASSES[line.sign]}">{sign}{escape(printable_lines(line.text))}\n</span>'


def _lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    for number, group in enumerate(_groups(old, new)):
        if number:
            yield DiffLine("@", GAP)
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (DiffLine(" ", line) for line in old[old_start:old_end])
                continue
            yield from (DiffLine("-", line) for line in old[old_start:old_end])
            yield from (DiffLine("+", line) for line in new[new_start:new_end])


def _groups(old: Sequence[str], new: Sequence[str]) -> Iterable[Sequence[_Operation]]:
    """The operations that turn the old text into the new one, those of one place together."""
    if len(old) + len(new) <= COMPARED_LINES:
        return SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(AROUND)
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    ends = len(old) - last, len(new) - last
    shown = min(AROUND, first), min(AROUND, last)
    return [
        [
            ("equal", first - shown[0], first, first - shown[0], first),
            ("replace", first, ends[0], first, ends[1]),
            ("equal", ends[0], ends[0] + shown[1], ends[1], ends[1] + shown[1]),
        ]
    ]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of lines that two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))
