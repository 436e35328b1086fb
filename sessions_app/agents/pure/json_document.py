"""PURE: a JSON document written by the user, in which one value is added or removed and every other byte stays.

Comments, commas before a closing bracket, a byte order mark and any indentation are accepted, and stay. A new value
gets the indentation and the line breaks of the document; in a container on one line it stays on that line.

    {"a": 1}         add "b" at the end     {"a": 1, "b": []}         remove it       {"a": 1}

All positions are characters.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sessions_app.sessionlog.errors import BadInput

DEPTH_LIMIT: Final = 100
BYTE_ORDER_MARK: Final = "\ufeff"
_GAP: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
"""White space and comments."""
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_BLANKS: Final = re.compile(r"[ \t]*")
_SAME_LINE: Final = re.compile(r"(?:[ \t]+|/\*[^\n]*?\*/)*(?://[^\r\n]*)?")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?:true|false|null)(?!\w)", re.ASCII)


class TextEdit(NamedTuple):
    """A replacement of the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class Node:
    """A value of a document: its text is between `start` and `end`."""

    start: int
    end: int = -1
    value: Any = None
    """The value of a string, a number, true, false or null."""
    kind: str = "scalar"
    items: list[Item] = field(default_factory=list)
    """An object's or array's items, in order."""

    def member(self, name: str) -> Node | None:
        """The value with this name; if there are several, the last one counts."""
        return next((item.node for item in reversed(self.items) if item.name == name), None)


@dataclass(slots=True)
class Item:
    """A member of an object, or an element of an array, from `start` (of its name) to the end of its value."""

    start: int
    node: Node
    name: str | None
    blank: int
    """The start of the white space before it."""
    follows_line_comment: bool
    """Whether that white space ends a comment."""
    comma: int = -1
    """The position of the comma after it; -1 if there is none."""


class JsonDocument:
    """A document and its values. Raises BadInput `not_json` if it is not an object as described above."""

    def __init__(self, content: bytes, name: str) -> None:
        try:
            self.text = content.decode()
        except UnicodeDecodeError as fault:
            raise _unreadable(name, f"it is not UTF-8 text (byte {fault.start:,})") from fault
        self._name = name
        self._at = len(BYTE_ORDER_MARK) if self.text.startswith(BYTE_ORDER_MARK) else 0
        self._skip()
        self.is_empty = self._at == len(self.text)
        """Whether there is no value at all."""
        self.root = Node(self._at, self._at) if self.is_empty else self._read(0)
        self._skip()
        if self._at != len(self.text):
            raise self._fault("something follows the object")
        if not self.is_empty and self.root.kind != "object":
            raise _unreadable(name, "it is not a JSON object")
        self.newline = "\r\n" if "\r\n" in self.text[: self.text.find("\n") + 1] else "\n"
        own = self._indent_of(self.root.items[0]) if self.root.items else ""
        self.indent = own or "  "
        """The indentation of one level."""

    @property
    def is_strict(self) -> bool:
        """Whether it is strict JSON, without comments and trailing commas, as some programs require."""
        try:
            json.loads(self.text.removeprefix(BYTE_ORDER_MARK))
        except ValueError:
            return False
        return True

    def replaced(self, *places: TextEdit) -> bytes:
        """The document with these edits, which must not overlap."""
        text = self.text
        for place in sorted(places, reverse=True):
            text = text[: place.start] + place.text + text[place.end :]
        return text.encode()

    def with_item(self, container: Node, value: Any, name: str | None = None) -> bytes:
        """The document with another item at the end of an object or array."""
        if self.is_empty:
            text = self._rendered({name: value}, "", is_inline=False)
            return (self.text + text + self.newline).encode()
        outer = self._indent_of(container)
        # Whether the items of a container are on one line, or the items of the document if it has none.
        shown = container if container.items else self.root
        is_inline = bool(shown.items) and "\n" not in self.text[shown.start : shown.end]
        inner = outer + self.indent
        label = f"{json.dumps(name)}: " if name is not None else ""
        new = label + self._rendered(value, inner, is_inline=is_inline)
        if not container.items:
            place = container.start + 1
            if not is_inline:
                has_lines = "\n" in self.text[place : container.end]
                new = self.newline + inner + new + ("" if has_lines else self.newline + outer)
            return self.replaced(TextEdit(place, place, new))
        last = container.items[-1]
        before = " " if is_inline else self.newline + inner
        place = last.comma + 1 if last.comma >= 0 else last.node.end
        if not is_inline:
            # A comment on the line of the last item stays there.
            place = self._end_of_line(place, container.end - 1)
        if last.comma >= 0:
            return self.replaced(TextEdit(place, place, f"{before}{new},"))
        if place == last.node.end:
            return self.replaced(TextEdit(place, place, f",{before}{new}"))
        return self.replaced(TextEdit(last.node.end, last.node.end, ","), TextEdit(place, place, before + new))

    def without_item(self, container: Node, item: Item) -> bytes:
        """The document without an item, its comma, and the white space before it."""
        start, end = item.blank, (item.comma + 1 if item.comma >= 0 else item.node.end)
        if len(container.items) == 1 and not self.text[end : container.end - 1].strip():
            end = container.end - 1  # nothing else is in it, unless a comment is before it
        elif container.items[0] is item and "\n" not in self.text[start : item.start]:
            start, end = item.start, self._after_blanks(end)  # the next one takes its place on the line
        if item.follows_line_comment and not self.text.startswith(("\n", "\r"), self._after_blanks(end)):
            start = item.start
        removed = TextEdit(start, end, "")
        if item.comma >= 0 or len(container.items) == 1:
            return self.replaced(removed)
        comma = container.items[-2].comma
        return self.replaced(TextEdit(comma, comma + 1, ""), removed)

    def rendered(self, value: Any, at: Node) -> str:
        """A value as text, formatted to replace the value `at`."""
        is_inline = "\n" not in self.text[at.start : at.end]
        return self._rendered(value, self._indent_of(at), is_inline=is_inline)

    def _rendered(self, value: Any, outer: str, *, is_inline: bool) -> str:
        if is_inline:
            return json.dumps(value, ensure_ascii=False)
        lines = json.dumps(value, ensure_ascii=False, indent=self.indent).split("\n")
        return (self.newline + outer).join(lines)

    def _indent_of(self, node: Node | Item) -> str:
        """The indentation of the line on which a node or item begins."""
        line = self.text.rfind("\n", 0, node.start) + 1
        return self.text[line : self._after_blanks(line)]

    def _after_blanks(self, at: int) -> int:
        found = _BLANKS.match(self.text, at)
        assert found is not None  # noqa: S101  # it matches nothing, too
        return found.end()

    def _end_of_line(self, at: int, limit: int) -> int:
        """The position after the comments that follow on the same line, if the line ends after them."""
        found = _SAME_LINE.match(self.text, at, limit)
        assert found is not None  # noqa: S101  # it matches nothing, too
        is_end = self.text.startswith(("\n", "\r"), self._after_blanks(found.end()))
        return at + len(found[0].rstrip(" \t")) if is_end else at

    # Parsing ------------------------------------------------------------------------------------------------

    def _read(self, depth: int) -> Node:
        if depth > DEPTH_LIMIT:
            raise self._fault(f"it is nested more than {DEPTH_LIMIT} deep")
        opening = self.text[self._at : self._at + 1]
        if opening in ("{", "["):
            return self._read_container(depth, is_object=opening == "{")
        kind = "string" if opening == '"' else "scalar"
        found = (_STRING if kind == "string" else _SCALAR).match(self.text, self._at)
        if found is None:
            raise self._fault("a value is missing or damaged")
        node = Node(self._at, found.end(), json.loads(found[0]), kind)
        self._at = found.end()
        return node

    def _read_container(self, depth: int, *, is_object: bool) -> Node:
        node = Node(self._at, kind="object" if is_object else "array")
        closing = "}" if is_object else "]"
        self._at += 1
        while True:
            gap = self._skip()
            if self.text.startswith(closing, self._at):
                self._at += 1
                node.end = self._at
                return node
            if node.items and node.items[-1].comma < 0:
                raise self._fault("a comma is missing")
            start = self._at
            name = self._read_name() if is_object else None
            comments = list(_COMMENT.finditer(gap))
            blank = start - len(gap) + (comments[-1].end() if comments else 0)
            is_line = bool(comments) and comments[-1][0].startswith("//")
            node.items.append(Item(start, self._read(depth + 1), name, blank, is_line))
            self._skip()
            if self.text.startswith(",", self._at):
                node.items[-1].comma = self._at
                self._at += 1

    def _read_name(self) -> str:
        found = _STRING.match(self.text, self._at)
        if found is None:
            raise self._fault("the name of a member is missing or damaged")
        self._at = found.end()
        self._skip()
        if not self.text.startswith(":", self._at):
            raise self._fault("a colon is missing")
        self._at += 1
        self._skip()
        return str(json.loads(found[0]))

    def _skip(self) -> str:
        """Pass white space and comments, and return them."""
        found = _GAP.match(self.text, self._at)
        assert found is not None  # noqa: S101  # it matches nothing, too
        self._at = found.end()
        return found[0]

    def _fault(self, what: str) -> BadInput:
        line = self.text.count("\n", 0, self._at) + 1
        return _unreadable(self._name, f"line {line:,}: {what}")


def _unreadable(name: str, why: str) -> BadInput:
    return BadInput("not_json", f"{name} cannot be read: {why}. Nothing was changed. Correct the file first.")
