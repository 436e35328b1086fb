"""The worth of each part of a transcript, and its cost in tokens.

A *unit* is the least that can be deleted alone: a tool call with its results, one text or thinking block, one entry
that is neither. Later work can need its references (see `references`), so

    worth(unit) = Σ need(reference), over the references of which the unit is the last kept copy
    need(reference) = Σ weight · age^-0.5, over everything that mentions it; age in entries from the end
    price(unit) = worth / tokens: the unit with the lowest price goes first

The odds that something is needed again are the sum over its past uses, each fading with a power of its age: Anderson
and Schooler measured it for headlines, mail and speech ("Reflections of the environment in memory", Psychological
Science 2, 1991), and the replay of real sessions agrees. Because only the last copy counts, repeats cost nothing, nor
do references that a protected entry also contains; when one copy is deleted, the other gains.

| weight                 | why                                                                              |
|------------------------|----------------------------------------------------------------------------------|
| WRITTEN against SEEN   | text of an agent or a user is written again far more often than tool output       |
| CHANGED                | a read of a file that was changed after it is needed more than other reads        |
| IN_QUERY               | matches of the user's query are deleted late, the fewer the later                 |
| SUPERSEDED             | a text followed by a later read or change of the same file is needed less,        |
|                        | the more of its lines occur later                                                 |

References are numbered and kept in arrays, so a session of 120 MB takes tens of megabytes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sessions_app.sessionlog.entries import BlockType, Role
from sessions_app.sessionlog.protection import Protection

from .file_touches import Touch, file_calls, touch_of
from .pairing import ToolPair
from .references import named_text, references
from .standing_lines import FileHistory
from .transcript import Transcript
from .transcript_entries import TASK_ROLES, WHOLE, Object, TranscriptEntry

WRITTEN: Final = 1.0
SEEN: Final = 0.1
CHANGED: Final = 1.5
IN_QUERY: Final = 3.0
SUPERSEDED: Final = 0.7
DECAY: Final = 0.5
EXAMINED: Final = 200_000
"""Characters of an object's text that are examined. Longer texts are worth little per token anyway."""

_WRITERS: Final = TASK_ROLES | {Role.ASSISTANT}


@dataclass(slots=True)
class Unit:
    """Objects that are deleted together. `objects` are a call's blocks before its results, each in transcript order."""

    objects: tuple[Object, ...]
    kind: str
    """`message`, `reasoning`, `call`, `output` if most of it is tool results, or `part` of one."""
    tool: str
    tokens: int
    may_go: bool
    touch: Touch | None = None
    call: int | None = None
    """The order of the tool call's pair."""
    output: int | None = None
    """The hash of the tool results; None if they are blank."""
    bonus: float = 0.0
    factor: float = 1.0
    """The remaining part of its worth, because later entries also have its lines."""
    later: int | None = None
    """The unit that supersedes it."""
    references: array[int] = field(default_factory=lambda: array("I"))

    @property
    def position(self) -> int:
        """The transcript position of its last object."""
        return self.objects[-1].position


class ReferenceCounts(NamedTuple):
    """The number of a unit's references, of those without a remaining copy, and of those mentioned later."""

    names: int
    lost: int
    mentioned_later: int


class Worth:
    """The units of a transcript, and the worth of each, given the units taken out."""

    def __init__(self, transcript: Transcript, found: Mapping[str, float]) -> None:
        """`found` has a weight for each entry that the query's words found (1: a word found it and nothing else)."""
        self._transcript = transcript
        self.history = FileHistory(file_calls(transcript))
        self._changed = {call.touch.path: call.position for call in self.history.in_order() if not call.touch.reads}
        """The last change of each file."""
        self.units: list[Unit] = []
        self._last_output: dict[int, int] = {}
        """The last unit with an output of this hash."""
        self._need = array("d")
        self._copies = array("I")
        self._last_mention = array("I")
        numbers: dict[str, int] = {}
        for unit in units_of(transcript):
            self._examine(unit, numbers)
            self._add_bonus(unit, found)
            self.units.append(unit)
        self._compare()
        self._discount()

    def price(self, index: int) -> float:
        """The loss per token if this unit is deleted now."""
        unit, copies = self.units[index], self._copies
        # An exact sum, so that it does not depend on how a process numbers references.
        lost = math.fsum([self._need[number] for number in unit.references if copies[number] == 1])
        return (lost + unit.bonus) * unit.factor / unit.tokens

    def copies(self, number: int) -> int:
        """The number of units with a reference that are not taken out."""
        return self._copies[number]

    def need(self, number: int, units: Iterable[int]) -> float:
        """The loss with the last copy of a reference that these units have."""
        return self._need[number] * max(self.units[index].factor for index in units)

    def bonus(self, index: int) -> float:
        """The loss with a unit besides its references."""
        return self.units[index].bonus * self.units[index].factor

    def rounding(self, position: int) -> int:
        """The tokens by which the separately rounded blocks of an entry exceed the entry as a whole."""
        entry = self._transcript.entries[position]
        return sum(block.tokens for block in entry.blocks) - entry.tokens

    def blocks(self, position: int) -> int:
        return len(self._transcript.entries[position].blocks)

    def is_redundant(self, index: int) -> bool:
        """Whether it is empty or a later unit shows the same: of units with the same price these are deleted first."""
        unit = self.units[index]
        empty = unit.kind == "output" and unit.output is None
        return empty or unit.later is not None or self.repeated_by(index, ()) is not None

    def take_out(self, index: int) -> None:
        for number in self.units[index].references:
            self._copies[number] -= 1

    def put_back(self, index: int) -> None:
        for number in self.units[index].references:
            self._copies[number] += 1

    def split(self, out: Container[int]) -> None:
        """Add the blocks of results that could not be deleted as a whole, all but the smallest of each, as units."""
        for index, unit in enumerate(self.units[:]):
            for found in unit.objects if index not in out else ():
                entry = self._transcript.entries[found.position]
                if found.slot == WHOLE and len(entry.blocks) > 1 and not _is_between_calls(entry):
                    by_size = sorted(range(len(entry.blocks)), key=lambda slot: entry.blocks[slot].tokens)
                    parts = (Object(found.position, slot) for slot in sorted(by_size[1:]))
                    self.units += (_unit(self._transcript, (part,), "part") for part in parts)

    def repeated_by(self, index: int, out: Container[int]) -> int | None:
        """The last unit with the same output, if it is a later one and not taken out."""
        unit = self.units[index]
        if unit.kind != "output" or unit.output is None:
            return None
        last = self._last_output[unit.output]
        return None if last == index or last in out else last

    def standing(self, index: int) -> ReferenceCounts:
        """The references of a unit that is taken out."""
        unit = self.units[index]
        lost = sum(self._copies[number] == 0 for number in unit.references)
        later = sum(self._last_mention[number] > unit.position for number in unit.references)
        return ReferenceCounts(len(unit.references), lost, later)

    # ---- construction -----------------------------------------------------------------------------------

    def _examine(self, unit: Unit, numbers: dict[str, int]) -> None:
        """Count the unit's references, and record the files that its calls touched and their results."""
        here: set[int] = set()
        output = ""
        for found in unit.objects:
            entry, text = self._transcript.entries[found.position], named_text(self._transcript, found)
            if _is_call(entry, found):
                tool, _, arguments = text.partition("\n")[0].partition(" ")
                unit.tool = unit.tool or tool
                unit.touch = unit.touch or touch_of(tool, arguments)
            elif unit.kind in ("call", "output"):
                output = f"{output}\n{text}" if output else text
            weight = WRITTEN if entry.role in _WRITERS else self._seen(unit)
            mention = weight * self._fading(found.position)
            # Sorted, so that references are numbered alike in every process.
            for reference in sorted(references(text[:EXAMINED])):
                number = numbers.setdefault(reference, len(numbers))
                if number == len(self._need):
                    self._need.append(0.0)
                    self._copies.append(0)
                    self._last_mention.append(0)
                self._need[number] += mention
                self._last_mention[number] = max(self._last_mention[number], found.position)
                here.add(number)
        unit.references = array("I", sorted(here))
        unit.output = hash(output) if output.strip() else None
        for number in here:
            self._copies[number] += 1

    def _seen(self, unit: Unit) -> float:
        """The weight of a tool's output: higher for a file that was changed after it."""
        touch = unit.touch
        is_changed = touch is not None and touch.reads and self._changed.get(touch.path, -1) > unit.position
        return SEEN * CHANGED if is_changed else SEEN

    def _add_bonus(self, unit: Unit, found: Mapping[str, float]) -> None:
        entries = {self._transcript.entries[item.position].entry_id for item in unit.objects}
        unit.bonus = IN_QUERY * max(found.get(entry_id, 0.0) for entry_id in entries)

    def _compare(self) -> None:
        """Record which units are superseded, and which were the last to show an output."""
        last: dict[str, int] = {}
        last_whole: dict[str, int] = {}
        for index in reversed(range(len(self.units))):
            unit = self.units[index]
            if unit.output is not None and unit.kind == "output":
                self._last_output.setdefault(unit.output, index)
            if unit.touch is None:
                continue
            kind, path = unit.touch
            # One change does not repeat the change before it; only the whole file does.
            unit.later = (last if kind in ("read", "part") else last_whole).get(path)
            if kind != "part" and not self._failed(unit):
                last.setdefault(path, index)
                if kind != "edit":
                    last_whole.setdefault(path, index)

    def _discount(self) -> None:
        """Reduce the worth of units whose lines also occur later."""
        standing = self.history.standing(lambda _: True)
        for unit in self.units:
            found = standing.get(unit.call) if unit.call is not None and unit.later is not None else None
            if found is not None and found.standing.total:
                unit.factor = 1 - SUPERSEDED * found.standing.lines / found.standing.total

    def _failed(self, unit: Unit) -> bool:
        entries = self._transcript.entries
        return any(entries[found.position].protection is Protection.TOOL_ERROR for found in unit.objects)

    def _fading(self, position: int) -> float:
        return float((len(self._transcript) - position) ** -DECAY)


def units_of(transcript: Transcript) -> Iterator[Unit]:
    """Every object of the transcript in one unit, in the order of the units' first objects.

    Blocks that share a call id are deleted together, regardless of their entries: no call remains without its answer. A
    result that makes calls itself is in several units, and is kept.
    """
    answers = {result.position for call in transcript.pairs.calls for result in call.results}
    calls: set[int] = set()
    for entry in transcript.entries:
        if entry.position in answers and not entry.call_ids:
            continue
        if (entry.role != Role.ASSISTANT and not entry.call_ids) or not entry.blocks:
            kind = "message" if entry.role == Role.ASSISTANT else "output"
            yield _unit(transcript, (Object(entry.position),), kind)
            continue
        for slot, block in enumerate(entry.blocks):
            call = transcript.pairs.of_block(entry, slot)
            if call is None:
                kind = "reasoning" if block.is_thinking else "message"
                yield _unit(transcript, (Object(entry.position, slot),), kind)
            elif call.order not in calls:
                calls.add(call.order)
                yield _call_unit(transcript, call)


def _call_unit(transcript: Transcript, call: ToolPair) -> Unit:
    unit = _unit(transcript, call.objects, "call")
    unit.call = call.order
    answered = sum(transcript.entries[result.position].tokens for result in call.results)
    if call.results and answered * 2 >= unit.tokens:
        unit.kind = "output"
    return unit


def _unit(transcript: Transcript, objects: tuple[Object, ...], kind: str) -> Unit:
    entries = [transcript.entries[found.position] for found in objects]
    tokens = sum(
        entry.tokens if found.slot == WHOLE else entry.blocks[found.slot].tokens
        for entry, found in zip(entries, objects, strict=True)
    )
    may_go = tokens > 0 and not any(
        entry.is_protected or _is_between_calls(entry) or found in transcript.latest_thinking
        for entry, found in zip(entries, objects, strict=True)
    )
    tool = next((entry.tool_name for entry in entries if entry.tool_name), "")
    return Unit(objects, kind, tool, max(tokens, 1), may_go)


def _is_between_calls(entry: TranscriptEntry) -> bool:
    """Whether a result makes calls itself, as only in a damaged session: repair would continue from call to call, and
    past the blocks that share an id."""
    return entry.result_for is not None and bool(entry.call_ids)


def _is_call(entry: TranscriptEntry, found: Object) -> bool:
    return found.slot != WHOLE and entry.blocks[found.slot].type == BlockType.TOOL_CALL
