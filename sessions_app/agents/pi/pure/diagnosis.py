"""Finds what is wrong with a session file of pi or Atomic, line by line and in its tree.

    lines ──SessionParser──▶ entries, damage of lines ──SessionTree──▶ damage of the tree
                └─▶ faults that only a diagnosis looks for

The consequences of a fault depend on its place: whether it is on the branch that the agents continue, and whether it is
the last entry. They are computed when the whole file was read.

The consequences were measured with the session managers of pi 0.86.1 and 0.87.1, of Atomic 0.8.30, and of Atomic after
0.9.15. All read a session alike. A line that is not JSON is skipped. The first value must be a header with an id; null,
false, 0 and empty texts do not count. Of entries with the same id the last one counts. The context is the path from the
last entry to a root. The agents differ in what they do with a session without a header, and after a last line without a
newline; only pi 0.87 and newer apply edits.

An agent writes one object per line. A line has more if a newline was lost, if two processes wrote at the same time, or
if a process appended after an incomplete line. A record inside the damage is recognised by its type and by what follows
it: another record, blanks or NUL bytes, or the end of the line. An object inside an incomplete record is followed by a
comma or a bracket; it is not a record.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.diagnosis import FINDINGS_KEPT, AgentConsequence, Examination, Severity, damage_finding
from sessions_app.sessionlog.entries import EditControl, Entry, Role, SummaryControl
from sessions_app.sessionlog.jsjson import Line, parse, refuse_constant
from sessions_app.sessionlog.session import Damage, DamageKind, Recorded, require_session
from sessions_app.sessionlog.tree import SessionTree

from .parser import CURRENT_VERSION, KNOWN_TYPES, SessionParser, new_content, parse_line

PI_0_87: Final = "pi 0.87 and newer"
PI_BEFORE_0_87: Final = "pi before 0.87"
ATOMIC_0_9_11: Final = "Atomic 0.9.11 and newer"
ATOMIC_0_9_9: Final = "Atomic 0.9.9 and 0.9.10"
ATOMIC_0_8: Final = "Atomic 0.8.26 to 0.9.8"
ALL_PI: Final = (PI_0_87, PI_BEFORE_0_87)
ALL_ATOMIC: Final = (ATOMIC_0_9_11, ATOMIC_0_9_9, ATOMIC_0_8)
EVERY_GENERATION: Final = (*ALL_PI, *ALL_ATOMIC)
"""The labels of all generations."""

Consequences = tuple[AgentConsequence, ...]

REFUSED: Final = "refuses to open the session"


def same(severity: Severity, text: str, generations: tuple[str, ...] = EVERY_GENERATION) -> Consequences:
    """The same consequence in all generations, or in these."""
    return tuple(AgentConsequence(generation, severity, text) for generation in generations)


def harmless(text: str) -> Consequences:
    return same(Severity.NONE, text)


NOT_A_SESSION: Final = (
    *same(Severity.FATAL, REFUSED, (*ALL_PI, ATOMIC_0_9_11, ATOMIC_0_9_9)),
    *same(
        Severity.FATAL,
        "empties the file when it opens the session, up to 0.9.3; refuses to open it from 0.9.4 on",
        (ATOMIC_0_8,),
    ),
)
"""The consequences if the first value of the file is not a header with an id."""
SKIPPED: Final = same(Severity.LOSS, "skips the line")
SECOND_HEADER: Final = harmless("ignores the line")
REPEATED_ID: Final = same(Severity.LOSS, "reads only the last entry with this id, and does not send this one")
INVALID_UTF8: Final = same(Severity.LOSS, "reads each invalid byte sequence as \N{REPLACEMENT CHARACTER}")
IGNORED_EDIT: Final = same(Severity.NONE, "ignores edits", (PI_BEFORE_0_87, *ALL_ATOMIC))
"""The consequences of an edit for agents that ignore it: only pi 0.87 and newer apply edits, and only the last one of a
target."""

HEADER_TYPE: Final = "session"
ATTEMPTS: Final = 10_000
"""A damaged line with more beginnings of objects than this is not searched further."""
_BEGIN: Final = re.compile(r'\{[ \t\r]*"')
_END: Final = re.compile(rb"[ \t\r\0]*(?:\{|\Z)")
_JSON_BLANKS: Final = re.compile(rb"[ \t\r]*")
_BETWEEN: Final = b" \t\r\v\f\0" + BOM_UTF8


_decode: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=refuse_constant).raw_decode


class Fragment(NamedTuple):
    """A part of a line, from `start` up to, but without, `end`: a record, or bytes that are not one."""

    start: int
    end: int
    data: dict[str, Any] | None


def fragments(raw: bytes, *, is_first: bool) -> list[Fragment]:
    """The parts of a line without its newline, without gaps. `is_first` is for the first line of a file."""
    start = len(BOM_UTF8) if is_first and raw.startswith(BOM_UTF8) else 0
    body = raw[start:]
    mark = [Fragment(0, start, None)] if start else []
    try:
        data = parse(body)
    except ValueError:
        return mark + [one._replace(start=one.start + start, end=one.end + start) for one in _search(body)]
    if isinstance(data, dict):
        return [*mark, Fragment(start, len(raw), data)]
    return [Fragment(0, len(raw), None)] if raw else []


def _search(raw: bytes) -> Iterator[Fragment]:
    done = 0
    for start, end, data in _records(raw):
        if done < start:
            yield Fragment(done, start, None)
        yield Fragment(start, end, data)
        done = end
    if done < len(raw):
        yield Fragment(done, len(raw), None)


def _records(raw: bytes) -> Iterator[tuple[int, int, dict[str, Any]]]:
    # Latin-1 makes each byte a character, and changes no character that JSON's structure consists of.
    text = raw.decode("latin-1")
    done = position = 0
    for _ in range(ATTEMPTS):
        found = _BEGIN.search(text, position)
        if found is None:
            return
        start = found.start()
        try:
            end = _decode(text, start)[1]
        except (ValueError, RecursionError):  # the object is incomplete
            position = start + 1
            continue
        position = end
        data = _record(raw[start:end])
        follows_record = not raw[done:start].strip(_BETWEEN)
        if data is not None and (follows_record or _END.match(raw, end)):
            blanks = _JSON_BLANKS.match(raw, end)
            done = position = blanks.end() if blanks else end
            yield start, done, data


def _record(raw: bytes) -> dict[str, Any] | None:
    data = fields.object_in(raw)
    recorded_type = fields.text(data, "type") if data is not None else ""
    return data if recorded_type == HEADER_TYPE or recorded_type in KNOWN_TYPES else None


EDITABLE: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL_RESULT, Role.CUSTOM})
"""The roles of messages whose content an edit replaces. An edit can omit messages of every role."""
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
    """Whether an object is an edit without a valid replacement."""
    is_edit, recorded = data.get("type") == "context_edit", data.get("replacement", "")
    has_content = isinstance(recorded, dict) and isinstance(recorded.get("content"), str | list)
    return is_edit and not has_content and recorded is not None


class _Examiner:
    """Reads the lines of a file once."""

    def __init__(self) -> None:
        self.parser = SessionParser()
        self._entries: list[Entry] = []
        self._faults: list[tuple[Damage, Consequences | Callable[[], Consequences]]] = []
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
        if is_header and not self._has_value and not isinstance(parse_line(line.raw).get("id"), str):
            self._add(DamageKind.NO_HEADER_ID, line, "the header has no usable id", NOT_A_SESSION)
        if recorded is not None:
            self._read_entry(recorded, line)
        if is_header or recorded is not None:
            self._read_bytes(line, is_header=is_header)
            self._has_value = True

    def examination(self) -> Examination:
        tree = SessionTree(self._entries, FINDINGS_KEPT)
        if not self.parser.state.version:
            self._add(DamageKind.NO_HEADER, Line(1, 0, b""), NO_HEADER, NOT_A_SESSION)
        if self._entries:
            active = tree.branch(tree.leaf.id)
            self._active = frozenset(entry.offset for entry in active)
            self._applied = frozenset(_applied_edits(active))
        findings = [
            damage_finding(
                damage, found() if callable(found) else found, is_repairable=damage.kind is not DamageKind.NOT_UTF8
            )
            for damage, found in self._faults
        ]
        findings += [damage_finding(damage, self._in_tree(damage)) for damage in tree.damage]
        return Examination(findings, self._more + tree.damaged - len(tree.damage), tree)

    # ---- one line ----------------------------------------------------------------------------------------

    def _read_damage(self, damage: Damage, line: Line) -> None:
        kind, detail = damage.kind, damage.detail
        match kind:
            case DamageKind.NOT_JSON:
                self._add(kind, line, detail + self._recoverable(line), self._unreadable)
            case DamageKind.TORN_LINE:
                self._add(kind, line, detail + self._recoverable(line), partial(self._unterminated, is_torn=True))
            case DamageKind.NOT_AN_OBJECT:
                self._read_value(detail, line)
            case DamageKind.NO_ID:
                self._has_value, self._last_value = True, line.offset
                is_number = bool(parse_line(line.raw).get("id"))
                found = harmless("accepts the id") if is_number else partial(self._entry_without_id, line.offset)
                self._add(kind, line, detail, found)
            case DamageKind.NO_HEADER | DamageKind.SECOND_HEADER:
                self._add(kind, line, detail, NOT_A_SESSION if kind is DamageKind.NO_HEADER else SECOND_HEADER)

    def _recoverable(self, line: Line) -> str:
        """The records that a repair can take from a line that is not JSON, in words."""
        found = [one.data for one in fragments(line.raw, is_first=line.offset == 0) if one.data is not None]
        if not found:
            return ""
        # A file may have its only records on such lines.
        self.parser.state.recognised = True
        return f"; {len(found)} record{'s' if len(found) > 1 else ''} on it can be recovered"

    def _read_value(self, detail: str, line: Line) -> None:
        value = parse_line(line.raw) if line.offset == 0 else parse(line.raw)
        is_skipped = not value and not isinstance(value, list)
        is_first = not self._has_value
        if not is_skipped:
            self._has_value, self._last_value = True, line.offset
        found = partial(self._value, line.offset, is_array=isinstance(value, list))
        known = harmless("skips the line") if is_skipped else NOT_A_SESSION if is_first else None
        self._add(DamageKind.NOT_AN_OBJECT, line, detail, known or found)

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
            # It makes the first line invalid JSON.
            found = NOT_A_SESSION if is_header else SKIPPED
            self._add(DamageKind.BYTE_ORDER_MARK, line, "the file begins with a byte order mark", found)
        if not line.complete:
            detail = "the last line has no newline"
            self._add(DamageKind.NO_NEWLINE, line, detail, partial(self._unterminated, is_torn=False))
        if not _is_utf8(line.raw):
            self._add(DamageKind.NOT_UTF8, line, "contains bytes that are not UTF-8", INVALID_UTF8)

    def _add(self, kind: DamageKind, line: Line, detail: str, found: Consequences | Callable[[], Consequences]) -> None:
        if len(self._faults) < FINDINGS_KEPT:
            damage = Damage(kind, line.number, line.offset, len(line.raw), detail)
            self._faults.append((damage, found))
        else:
            self._more += 1

    # ---- consequences, when the file was read ------------------------------------------------------------

    @property
    def _is_old(self) -> bool:
        return self.parser.state.version < CURRENT_VERSION

    def _unreadable(self) -> Consequences:
        """A line that is not JSON. A file of an old version is written again when it is opened."""
        if self._is_old:
            return same(Severity.LOSS, "skips the line, and deletes it when it converts the file to version 3")
        return SKIPPED

    def _unterminated(self, *, is_torn: bool) -> Consequences:
        """A last line without its newline. A conversion to version 3 writes complete lines."""
        if self._is_old:
            return self._unreadable() if is_torn else harmless("reads the line")
        reads = "skips the line" if is_torn else "reads the line"
        lost = "which is lost as well" if is_torn else "so that both are lost"
        in_pi = Severity.LOSS if is_torn else Severity.NONE
        return (
            *same(in_pi, f"{reads}, and completes it with a newline", ALL_PI),
            *same(Severity.LOSS, f"{reads}, and appends its next record to it, {lost}", ALL_ATOMIC),
        )

    def _value(self, offset: int, *, is_array: bool) -> Consequences:
        """A line with JSON that is not an object; the agents skip null, false, 0 and an empty text."""
        # Version 1 gets ids when it is converted; a number or a text cannot have one.
        is_version_1 = self.parser.state.version == 1
        if is_version_1 and not is_array:
            return same(Severity.FATAL, "fails when it converts the file to version 3")
        if offset == self._last_value and not is_version_1:
            return same(Severity.FATAL, "continues after this line, with nothing of the conversation")
        return harmless("keeps it as an entry that nothing refers to")

    def _entry_without_id(self, offset: int) -> Consequences:
        """An entry whose id is missing or not a text. The agents accept a number as an id."""
        if offset == self._last_value:
            return same(Severity.FATAL, "begins a new branch with the next message, without anything before it")
        return same(Severity.LOSS, "does not send the entry, because nothing can refer to it")

    def _no_message(self, offset: int, *, is_fatal: bool, is_before_assistant: bool) -> Consequences:
        """`is_fatal`: the agents read a field of a message that is missing or null. Another value has no role."""
        if is_fatal and offset in self._active:
            return same(Severity.FATAL, "fails when it opens the session")
        if is_fatal and is_before_assistant:
            return same(Severity.FATAL, "fails when it records the next message")
        return harmless("does not send the entry")

    def _edit(self, offset: int, *, is_missing: bool, is_empty: bool) -> Consequences:
        """`is_missing`: without a replacement; `is_empty`: one without content; otherwise its content is not text or
        blocks."""
        if offset not in self._applied:
            in_pi = AgentConsequence(PI_0_87, Severity.NONE, "does not apply the edit")
        elif is_missing:
            in_pi = AgentConsequence(PI_0_87, Severity.FATAL, "fails when it opens the session")
        elif is_empty:
            in_pi = AgentConsequence(PI_0_87, Severity.LOSS, "sends the edited message without content")
        else:
            in_pi = AgentConsequence(PI_0_87, Severity.FATAL, "fails at the next prompt")
        return in_pi, *IGNORED_EDIT

    def _in_tree(self, damage: Damage) -> Consequences:
        if damage.kind is DamageKind.DUPLICATE_ID:
            return REPEATED_ID
        is_active = damage.offset in self._active
        if damage.kind is DamageKind.CYCLE and is_active:
            return same(Severity.FATAL, "never finishes opening the session, and fills its memory")
        if damage.kind is DamageKind.CYCLE:
            return same(
                Severity.LOSS, "does not show these entries, because the beginning of the session does not lead to them"
            )
        cut = "sends nothing of" if is_active else "cuts the branch off from"
        return same(Severity.LOSS, f"{cut} what came before this entry")


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _applied_edits(branch: Sequence[Entry]) -> Iterator[int]:
    """The offsets of the edits that pi applies at the end of a branch: the last one of each target in its context."""
    # pi's context, without the summary of the latest compaction.
    context = branch
    for at in range(len(branch) - 1, -1, -1):
        control = branch[at].control
        if isinstance(control, SummaryControl):
            context = branch[next((i for i in range(at) if branch[i].id == control.first_kept_id), at) :]
            break
    editable = {entry.id for entry in context if entry.is_message and entry.role in EDITABLE}
    last = {entry.control.target_id: entry for entry in context if isinstance(entry.control, EditControl)}
    return (edit.offset for target, edit in last.items() if target in editable)
