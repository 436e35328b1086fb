"""The subjects of a conversation that a later text can still mention: four measures, counted without judgement.

| measure  | counted subjects                                           | mentioned if                                 |
|----------|------------------------------------------------------------|----------------------------------------------|
| paths    | files that tool calls name                                 | a path ends with its shortest ending that no |
|          |                                                            | other of them has: at least the file's name  |
| names    | identifiers in FREQUENT statements or more: those with a   | it occurs as a whole word                    |
|          | capital or an underscore inside, but not options           |                                              |
| errors   | lines of failed results that begin with the word error or  | it occurs verbatim                           |
|          | with an exception, after their place in a file             |                                              |
| messages | messages of the user                                       | it occurs verbatim                           |

A statement is one block of a message, or a message without blocks; for a tool call, the values of its arguments. Blanks
and line breaks count alike.

`references` are the names, paths and numbers that an agent uses for things: with them the embedded planner finds what
later work still mentions, and the lab the cost of a past deletion.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, NamedTuple

from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import BlockType, Role, Texts, call_parts
from sessions_app.sessionlog.text import is_noise
from sessions_app.sessionlog.tool_names import PATH_ARGUMENTS

from .transcript import WHOLE, Object, Transcript

FREQUENT: Final = 5
NAME_LENGTH: Final = 80
"""The maximum length of a name, in characters: longer words are data."""
PATH_LENGTH: Final = 1_000
ERROR_LENGTH: Final = 300
"""The number of characters of an error's text that are compared."""
EXIT_CODE_WITHIN: Final = 400
"""The number of characters at the beginning and at the end of a result in which the exit code of a command is
sought."""

PLACES: Final = 1_000
"""The number of places at which the words of a message are compared with their surroundings."""

_OUTPUTS: Final = frozenset({Role.TOOL_RESULT, Role.COMMAND})
_UNSPOKEN: Final = frozenset({Role.SYSTEM, Role.INJECTED})
_PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE)
_WORD: Final = re.compile(r"(?<![\w-])[A-Za-z_]\w*", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]", re.ASCII)
_PATH: Final = re.compile(r"[\w.@~+%#$/-]+")
_LINES: Final = re.compile(r":(?:raw|[0-9]+(?:-[0-9]+)?)(?:,[0-9]+(?:-[0-9]+)?)*\s*\Z")
"""The text after the path in an argument that names some lines of a file, as in `src/parse.py:108-175`."""
_EXIT_CODE: Final = re.compile(r"exit(?:ed with)?[ _]code\W{0,4}[1-9]", re.IGNORECASE)
_ERROR: Final = re.compile(
    r"^[ \t]*(?:E[ \t]+)?(?:[^\s:()]+(?:\(\d+,\d+\)|(?::\d+){1,2}):?[ ]?(?:-[ ])?)?"
    r"((?:[\w.]*(?:Error|Exception)|error(?:\[\w+\]|[ ]\w{1,12})?|fatal(?:[ ]error)?|panic)(?:[ ]\[\w+\])?:[ ]*\S.*)$",
    re.MULTILINE,
)


class Statement(NamedTuple):
    """A text of the conversation, with its kind and its origin."""

    entry_id: str
    role: str
    text: str
    failed: bool = False
    tool: str = ""
    """The tool, if it is a call."""
    paths: tuple[str, ...] = ()
    """The files that a call names."""


class Subject(NamedTuple):
    """A subject of a conversation: its first place, and the number of its uses."""

    words: str
    entry_id: str
    uses: int


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of a conversation, those with the most uses first; messages in their order."""

    paths: tuple[Subject, ...] = ()
    names: tuple[Subject, ...] = ()
    errors: tuple[Subject, ...] = ()
    messages: tuple[Subject, ...] = ()

    def only(self, wanted: Callable[[str, Subject], bool]) -> Subjects:
        """The subjects that `wanted` accepts, given the name of the measure and the subject."""
        return Subjects(
            **{name: tuple(found for found in getattr(self, name) if wanted(name, found)) for name in MEASURES}
        )


MEASURES: Final = tuple(measure.name for measure in fields(Subjects))


def statements_of(messages: Iterable[Message], texts: Mapping[str, Texts], project: str = "") -> Iterator[Statement]:
    """The statements of messages, without additions by the agent itself. `texts` are by the id of each message's
    source.

    A relative path is resolved from `project`, the session's directory.
    """
    for message in messages:
        if message.role in _UNSPOKEN:
            continue
        entry, found = message.entry, texts[message.source.id]
        if message.blocks is None or found.whole is not None:
            yield Statement(entry.id, message.role, message.text(found), entry.failed)
            continue
        for block in message.blocks:
            text = found.block(block.index)
            if block.type == BlockType.TOOL_CALL:
                yield _call(entry.id, text, block.call_id or "", project)
            elif block.type != BlockType.IMAGE:
                yield Statement(entry.id, message.role, text, entry.failed)


def subjects_of(statements: Iterable[Statement]) -> Subjects:
    """The subjects of statements, by measure."""
    paths, names, errors, messages = _Register(), _Register(), _Register(), _Register()
    is_name = cache(lambda word: len(word) <= NAME_LENGTH and _NAME.search(word) is not None)
    for statement in statements:
        paths.add(statement.paths, statement.entry_id)
        names.add(filter(is_name, set(_WORD.findall(statement.text))), statement.entry_id)
        if statement.role == Role.USER and not is_noise(statement.text):
            messages.add(filter(None, [_flat(statement.text)]), statement.entry_id)
        if statement.role in _OUTPUTS and _has_failed(statement):
            errors.add((_flat(line)[:ERROR_LENGTH] for line in _ERROR.findall(statement.text)), statement.entry_id)
    return Subjects(paths.ranked(1), names.ranked(FREQUENT), errors.ranked(1), messages.in_order())


class Mentions:
    """Finds the subjects that a set of statements mentions."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        found = list(statements)
        self._words = {word for statement in found for word in _WORD.findall(statement.text)}
        self._paths: dict[str, set[str]] = {}
        """Every path, by the name of its file."""
        for statement in found:
            named = {path.rstrip(".") for path in _PATH.findall(statement.text)}
            for path in named.union(statement.paths):
                self._paths.setdefault(posixpath.basename(path), set()).add(path)
        self._text = "\n" + "\n".join(_flat(statement.text) for statement in found)

    def of(self, subjects: Subjects) -> Subjects:
        """Those of the subjects that the statements mention."""
        endings = _endings([path.words for path in subjects.paths])
        return Subjects(
            tuple(path for path in subjects.paths if self._has_path(endings[path.words])),
            tuple(name for name in subjects.names if name.words in self._words),
            tuple(error for error in subjects.errors if self._has(error.words)),
            tuple(message for message in subjects.messages if self._has(message.words)),
        )

    def _has(self, words: str) -> bool:
        """Whether the text has these words, not as a part of longer ones."""
        end = 0
        for _ in range(PLACES):
            start = self._text.find(words, end)
            if start < 0:
                return False
            end = start + len(words)
            if not (self._text[start - 1].isalnum() or self._text[end : end + 1].isalnum()):
                return True
        return False

    def _has_path(self, ending: str) -> bool:
        known = self._paths.get(posixpath.basename(ending), ())
        return any(path == ending or path.endswith(f"/{ending}") for path in known)


class _Register:
    """Subjects as they occur, with their uses."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, words: Iterable[str], entry_id: str) -> None:
        for one in words:
            self._uses[one] += 1
            self._first.setdefault(one, entry_id)

    def in_order(self) -> tuple[Subject, ...]:
        return tuple(Subject(words, entry_id, self._uses[words]) for words, entry_id in self._first.items())

    def ranked(self, least: int) -> tuple[Subject, ...]:
        """The subjects with at least this many uses."""
        used = (subject for subject in self.in_order() if subject.uses >= least)
        return tuple(sorted(used, key=lambda subject: (-subject.uses, subject.words)))


def _has_failed(statement: Statement) -> bool:
    ends = statement.text[:EXIT_CODE_WITHIN], statement.text[-EXIT_CODE_WITHIN:]
    return statement.failed or any(_EXIT_CODE.search(end) for end in ends)


def _flat(text: str) -> str:
    """The text with one blank in place of several blanks or a line break."""
    return " ".join(text.split())


def _endings(paths: list[str]) -> dict[str, str]:
    """For each path, its shortest ending that no other path has."""
    ends = {path: list(_ends(path)) for path in paths}
    shared = Counter(end for found in ends.values() for end in found)
    return {path: next((end for end in found if shared[end] == 1), path) for path, found in ends.items()}


def _ends(path: str) -> Iterator[str]:
    """The endings of a path in whole components, from the file's name on."""
    parts = path.strip("/").split("/")
    for start in range(len(parts) - 1, -1, -1):
        yield "/".join(parts[start:])


def _call(entry_id: str, text: str, call_id: str, project: str) -> Statement:
    """The statement of a call: the values of its arguments, and the files that it names."""
    tool, arguments = call_parts(text, call_id)
    values = _decoded(arguments)
    said = "\n".join(_strings(values))
    named = [
        value
        for name, value in (values.items() if isinstance(values, dict) else ())
        if name in PATH_ARGUMENTS and isinstance(value, str)
    ]
    named += [added or moved for added, moved in _PATCHED.findall(said)]
    paths = dict.fromkeys(filter(None, (_path(one, project) for one in named)))
    return Statement(entry_id, Role.ASSISTANT, said, tool=tool, paths=tuple(paths))


def _path(recorded: str, project: str) -> str:
    """A path without detours and without lines of the file; empty if it names no file."""
    recorded = _LINES.sub("", recorded)
    if not recorded.strip() or len(recorded) > PATH_LENGTH or "\n" in recorded:
        return ""
    path = posixpath.normpath(posixpath.join(project, recorded.strip()))
    return "" if path in (".", "/", posixpath.normpath(project or "/")) else path


REFERENCE_LENGTH: Final = 5
_TOKEN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./:\-][A-Za-z0-9_]+)*", re.ASCII)
_DISTINCTIVE: Final = re.compile(r"[_./:\-0-9]|(?<=.)[A-Z]", re.ASCII)
_BETWEEN_TOKENS: Final = bytes(code if _TOKEN.fullmatch(f"a{chr(code)}a") else ord(" ") for code in range(256))
"""For each byte: the byte itself if it may be inside a token, otherwise a blank."""


def references(text: str) -> set[str]:
    """The references in a text: tokens of five characters or more that do not look like ordinary words.

    A token is a reference if it contains one of `_ . / : -`, a digit, or a capital after its first character.
    """
    # Most words recur, and most are ordinary: the others are searched only once each.
    words = set(text.encode("ascii", "replace").translate(_BETWEEN_TOKENS).split())
    others = [word for word in words if not (word.isalpha() and word[1:].islower())]
    tokens = _TOKEN.findall(b" ".join(others).decode())
    return {token for token in tokens if len(token) >= REFERENCE_LENGTH and _DISTINCTIVE.search(token)}


def named_text(transcript: Transcript, found: Object) -> str:
    """The text of an object in which its references are found. The id of a call was generated by the provider, and is
    not a reference."""
    entry = transcript.entries[found.position]
    if found.slot == WHOLE and entry.call_ids:
        blocks = (Object(found.position, slot) for slot in range(len(entry.blocks)))
        return "\n".join(named_text(transcript, block) for block in blocks)
    if found.slot == WHOLE:
        return transcript.text(entry)
    block = entry.blocks[found.slot]
    text = transcript.block_text(entry, block)
    if block.type != BlockType.TOOL_CALL:
        return text
    call = text.split(" ", 2)[-1]
    # In JSON, a name at the beginning of a line follows an n: it is read as recorded, and decoded.
    return "\n".join([call, *decoded(call.partition(" ")[2])]) if "\\" in call else call


def decoded(arguments: str, *, with_names: bool = True) -> Iterator[str]:
    """The texts among a call's arguments, with the names of the arguments; the unchanged arguments if they are not
    JSON."""
    return _strings(_decoded(arguments), with_names=with_names)


def _decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _strings(value: object, *, with_names: bool = False) -> Iterator[str]:
    """The texts in a decoded value."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value if with_names else ()
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, str):
            yield value
