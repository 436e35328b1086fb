"""Finds what is wrong with a session file of pi or Atomic, line by line and in its tree.

    lines ──SessionParser──▶ entries, damage of lines ──SessionTree──▶ damage of the tree
                └─▶ faults that only a diagnosis looks for

The consequences of a fault depend on its place: whether it is on the branch that the agents continue, and whether it is
the last entry. They are computed when the whole file was read.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sessions_app.sessionlog.controls import EditControl, SummaryControl
from sessions_app.sessionlog.diagnosis import FINDINGS_KEPT, Examination, damage_finding
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.session import Damage, DamageKind, Recorded, require_session
from sessions_app.sessionlog.tree import SessionTree

from . import consequences
from .consequences import Consequences
from .controls import new_content
from .fragments import fragments
from .parser import CURRENT_VERSION, SessionParser, parse_line

EDITABLE: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL_RESULT, Role.CUSTOM})
"""The roles of the messages that pi applies an edit to."""
NO_HEADER: Final = "the session has no header line"


def examine(lines: Iterable[Line], name: str) -> Examination:
    """The faults of a file. Raises BadInput `not_a_session` if no line has a header or an entry."""
    examiner = _Examiner()
    for line in lines:
        examiner.read(line)
    require_session(examiner.parser.state, name)
    return examiner.examination()


def lacks_message(data: Mapping[str, Any]) -> bool:
    """Whether an object is an entry for a message, and has none."""
    return data.get("type") == "message" and not isinstance(data.get("message"), dict)


def lacks_replacement(data: Mapping[str, Any]) -> bool:
    """Whether an object is an edit that does not say what replaces its target."""
    return data.get("type") == "context_edit" and not _is_replacement(data.get("replacement", ""))


def _is_replacement(recorded: object) -> bool:
    if isinstance(recorded, dict):
        return isinstance(recorded.get("content"), str | list)
    return recorded is None


class _Examiner:
    """Reads the lines of a file once."""

    def __init__(self) -> None:
        self.parser = SessionParser()
        self._entries: list[Entry] = []
        self._faults: list[tuple[Damage, Callable[[], Consequences]]] = []
        self._more = 0
        self._has_value = False
        """Whether the agents found a value in the lines so far."""
        self._has_assistant = False
        self._last_value = -1
        """The offset of the last line with a value that is not a header."""
        self._active: frozenset[int] = frozenset()
        """The offsets of the entries on the branch that the agents continue."""
        self._applied: frozenset[int] = frozenset()
        """The offsets of the edits that pi applies to it."""

    def read(self, line: Line) -> None:
        header = self.parser.state.header
        recorded = next(iter(self.parser.read(line)), None)
        is_header = self.parser.state.header is not header
        faults, self.parser.damage = self.parser.damage, []
        for damage in faults:
            self._read_damage(damage, line)
        if is_header:
            self._read_header(line)
        if recorded is not None:
            self._read_entry(recorded, line)
        if is_header or recorded is not None:
            self._read_bytes(line, is_header=is_header)
            self._has_value = True

    def examination(self) -> Examination:
        tree = SessionTree(self._entries, FINDINGS_KEPT)
        if not self.parser.state.version:
            self._add(DamageKind.NO_HEADER, Line(1, 0, b""), NO_HEADER, consequences.not_a_session)
        if self._entries:
            active = tree.branch(tree.leaf.id)
            self._active = frozenset(entry.offset for entry in active)
            self._applied = frozenset(_applied_edits(active))
        found = [
            damage_finding(damage, consequence(), is_repairable=damage.kind is not DamageKind.NOT_UTF8)
            for damage, consequence in self._faults
        ]
        found += [damage_finding(damage, self._in_tree(damage)) for damage in tree.damage]
        return Examination(found, self._more + tree.damaged - len(tree.damage), tree)

    # ---- one line ----------------------------------------------------------------------------------------

    def _read_damage(self, damage: Damage, line: Line) -> None:
        match damage.kind:
            case DamageKind.NOT_JSON:
                detail = damage.detail + self._recoverable(line)
                self._add(damage.kind, line, detail, self._unreadable)
            case DamageKind.TORN_LINE:
                detail = damage.detail + self._recoverable(line)
                self._add(damage.kind, line, detail, partial(self._unterminated, is_torn=True))
            case DamageKind.NOT_AN_OBJECT:
                self._read_value(damage, line)
            case DamageKind.NO_ID:
                self._read_entry_without_id(damage, line)
            case DamageKind.NO_HEADER:
                self._add(damage.kind, line, damage.detail, consequences.not_a_session)
            case DamageKind.SECOND_HEADER:
                self._add(damage.kind, line, damage.detail, consequences.second_header)

    def _recoverable(self, line: Line) -> str:
        """What a repair can take from a line that is not JSON."""
        found = [one.data for one in fragments(line.raw, is_first=line.offset == 0) if one.data is not None]
        if not found:
            return ""
        # A file may have its only records on such lines.
        self.parser.state.recognised = True
        return f"; {len(found)} record{'s' if len(found) > 1 else ''} on it can be recovered"

    def _read_value(self, damage: Damage, line: Line) -> None:
        value = parse_line(line.raw) if line.offset == 0 else parse(line.raw)
        is_skipped = not value and not isinstance(value, list)
        is_first = not self._has_value
        if not is_skipped:
            self._has_value, self._last_value = True, line.offset
        is_array = isinstance(value, list)
        consequence = partial(self._value, line.offset, is_skipped=is_skipped, is_first=is_first, is_array=is_array)
        self._add(damage.kind, line, damage.detail, consequence)

    def _read_entry_without_id(self, damage: Damage, line: Line) -> None:
        self._has_value, self._last_value = True, line.offset
        recorded = parse_line(line.raw).get("id")
        consequence = partial(self._entry_without_id, line.offset, is_accepted=bool(recorded))
        self._add(damage.kind, line, damage.detail, consequence)

    def _read_header(self, line: Line) -> None:
        data = parse_line(line.raw)
        if not self._has_value and not isinstance(data.get("id"), str):
            self._add(DamageKind.NO_HEADER_ID, line, "the header has no usable id", consequences.not_a_session)

    def _read_entry(self, recorded: Recorded, line: Line) -> None:
        entry, data = recorded.entry, recorded.data
        self._entries.append(entry)
        self._last_value = line.offset
        if lacks_message(data):
            is_fatal = data.get("message") is None
            consequence = partial(
                self._no_message, line.offset, is_fatal=is_fatal, is_before_assistant=not self._has_assistant
            )
            self._add(DamageKind.NO_MESSAGE, line, f"entry {entry.id} has no message", consequence)
        elif lacks_replacement(data):
            is_empty = new_content(data) is None
            edit = partial(self._edit, line.offset, is_missing="replacement" not in data, is_empty=is_empty)
            detail = f"edit {entry.id} has no replacement that can be used"
            self._add(DamageKind.NO_REPLACEMENT, line, detail, edit)
        self._has_assistant = self._has_assistant or entry.role == Role.ASSISTANT

    def _read_bytes(self, line: Line, *, is_header: bool) -> None:
        if line.offset == 0 and line.raw.startswith(BOM_UTF8):
            consequence = partial(consequences.byte_order_mark, has_header=is_header)
            self._add(DamageKind.BYTE_ORDER_MARK, line, "the file begins with a byte order mark", consequence)
        if not line.complete:
            detail = "the last line has no newline"
            self._add(DamageKind.NO_NEWLINE, line, detail, partial(self._unterminated, is_torn=False))
        if not _is_utf8(line.raw):
            self._add(DamageKind.NOT_UTF8, line, "contains bytes that are not UTF-8", consequences.invalid_utf8)

    def _add(self, kind: DamageKind, line: Line, detail: str, consequence: Callable[[], Consequences]) -> None:
        if len(self._faults) < FINDINGS_KEPT:
            damage = Damage(kind, line.number, line.offset, len(line.raw), detail)
            self._faults.append((damage, consequence))
        else:
            self._more += 1

    # ---- consequences, when the file was read ------------------------------------------------------------

    @property
    def _is_old(self) -> bool:
        return self.parser.state.version < CURRENT_VERSION

    def _unreadable(self) -> Consequences:
        return consequences.unreadable_line(is_old=self._is_old)

    def _unterminated(self, *, is_torn: bool) -> Consequences:
        return consequences.unterminated_line(is_torn=is_torn, is_old=self._is_old)

    def _value(self, offset: int, *, is_skipped: bool, is_first: bool, is_array: bool) -> Consequences:
        # Version 1 gets ids when it is converted; a number or a text cannot have one.
        is_version_1 = self.parser.state.version == 1
        return consequences.value_that_is_not_an_object(
            is_skipped=is_skipped,
            is_first=is_first,
            is_leaf=offset == self._last_value and not is_version_1,
            stops_conversion=is_version_1 and not is_array,
        )

    def _entry_without_id(self, offset: int, *, is_accepted: bool) -> Consequences:
        is_leaf = offset == self._last_value
        return consequences.entry_without_id(is_accepted=is_accepted, is_leaf=is_leaf)

    def _no_message(self, offset: int, *, is_fatal: bool, is_before_assistant: bool) -> Consequences:
        is_active = offset in self._active
        return consequences.message_entry_without_message(
            is_fatal=is_fatal and (is_active or is_before_assistant), is_active=is_active
        )

    def _edit(self, offset: int, *, is_missing: bool, is_empty: bool) -> Consequences:
        return consequences.edit_without_content(
            is_missing=is_missing, is_empty=is_empty, is_applied=offset in self._applied
        )

    def _in_tree(self, damage: Damage) -> Consequences:
        is_active = damage.offset in self._active
        if damage.kind is DamageKind.DUPLICATE_ID:
            return consequences.repeated_id()
        if damage.kind is DamageKind.CYCLE:
            return consequences.cycle(is_active=is_active)
        return consequences.missing_parent(is_active=is_active)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _applied_edits(branch: Sequence[Entry]) -> Iterator[int]:
    """The offsets of the edits that pi applies at the end of a branch: the last one of each target in its context."""
    context = _context_of(branch)
    editable = {entry.id for entry in context if entry.is_message and entry.role in EDITABLE}
    last = {entry.control.target_id: entry for entry in context if isinstance(entry.control, EditControl)}
    return (edit.offset for target, edit in last.items() if target in editable)


def _context_of(branch: Sequence[Entry]) -> Sequence[Entry]:
    """The entries that pi's context consists of, without the latest compaction's summary."""
    for at in range(len(branch) - 1, -1, -1):
        control = branch[at].control
        if isinstance(control, SummaryControl):
            start = next((i for i in range(at) if branch[i].id == control.first_kept_id), at)
            return branch[start:]
    return branch
