"""The embedded planner: it chooses deletions offline, without a model, and the same way each time.

    look:    the budget; a search for each of the most telling words of a query, if the user gave one
    choose:  units with the required tokens and little worth
    delete:  the chosen units, in a few batches, each followed by the budget
    again:   choose once more if refusals or estimates left tokens to delete; stop if nothing is left

It acts only through the tools, and learns from refusals: the object that a refusal names is kept, and the rest of the
batch is requested again; if the refusal names none of them, the batch is halved. So every call deletes something, drops
something, or halves a batch, and the run ends.

Worth. A *unit* is the least that can be deleted alone: a tool call with its results, one text or thinking block, one
entry that is neither. Later work can need its references (see `references`), so

    worth(unit) = Σ need(reference), over the references of which the unit is the last kept copy
    need(reference) = Σ weight · age^-0.5, over everything that mentions it; age in entries from the end
    price(unit) = worth / tokens: the unit with the lowest price goes first

The odds that something is needed again are the sum over its past uses, each fading with a power of its age: Anderson
and Schooler measured it for headlines, mail and speech ("Reflections of the environment in memory", Psychological
Science 2, 1991), and the replay of real sessions agrees. Because only the last copy counts, repeats cost nothing, nor
do references that a protected entry also contains; when one copy is deleted, the other gains.

| weight                 | why                                                                              |
|------------------------|----------------------------------------------------------------------------------|
| WRITTEN against SEEN   | text of an agent or a user is written again far more often than tool output      |
| CHANGED                | a read of a file that was changed after it is needed more than other reads       |
| IN_QUERY               | matches of the user's query are deleted late, the fewer the later                |
| SUPERSEDED             | a text followed by a later read or change of the same file is needed less,       |
|                        | the more of its lines occur later                                                |

References are numbered and kept in arrays, so a session of 120 MB takes tens of megabytes.

Choice, given the worth of each unit:

    take       units by their price, lowest first, until the required tokens are out, and usually more
    put back   units that still fit, the most worth per token first
    swap       each of the largest units the other way round, then take and put back again: kept if less worth is lost

By price alone, a large cheap unit would either be skipped, so that everything small and recent is deleted instead, or
be deleted with far more tokens than required. Worth is counted in whole numbers, so that a step can be undone exactly;
the effort is limited by the number of computed prices, so that the same transcript has the same plan on any machine.
"""

from __future__ import annotations

import heapq
import math
import re
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sessions_app.sessionlog.entries import BlockType, Protection, Role, Target, request_of

from .file_touches import FileHistory, StandingLater, Touch, file_calls, touch_of
from .gates import Code, Refusal
from .loop import PlannerTurn, Report
from .mentions import named_text, references
from .parameters import AUTO_DETECTED, QUERY_LENGTH, query as normal_query
from .reasons import ELSEWHERE, NO_NAMES, NOT_MENTIONED, ONLY_THERE, Supersession, repeat_words, swap_words
from .tools import SEARCH_MATCHES_LIMIT, ToolCall, ToolResult
from .transcript import TASK_ROLES, WHOLE, Object, ToolPair, Transcript, TranscriptEntry

WRITTEN: Final = 1.0
SEEN: Final = 0.1
CHANGED: Final = 1.5
IN_QUERY: Final = 3.0
SUPERSEDED: Final = 0.7
DECAY: Final = 0.5
EXAMINED: Final = 200_000
"""The number of characters of an object's text that are examined. Longer texts are worth little per token anyway."""

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
    """The factor by which its worth is reduced because later entries repeat some of its lines."""
    later: int | None = None
    """The unit that supersedes it."""
    references: array[int] = field(default_factory=lambda: array("I"))

    @property
    def position(self) -> int:
        """The transcript position of its last object."""
        return self.objects[-1].position


class Worth:
    """The units of a transcript, and the worth of each, given the units taken out."""

    def __init__(self, transcript: Transcript, found: Mapping[str, float]) -> None:
        """`found` has a weight for each entry found by the query's words: 1 if a word found only this entry."""
        self.transcript = transcript
        self.history = FileHistory(file_calls(transcript))
        self._changed = {call.touch.path: call.position for call in self.history.in_order() if not call.touch.reads}
        """The last change of each file."""
        self.units: list[Unit] = []
        self._last_output: dict[int, int] = {}
        """The last unit with an output of this hash."""
        self._need = array("d")
        self.copies = array("I")
        """For each reference: the number of units with it that are not taken out."""
        self._last_mention = array("I")
        numbers: dict[str, int] = {}
        for unit in units_of(transcript):
            self._examine(unit, numbers)
            entries = {transcript.entries[item.position].entry_id for item in unit.objects}
            unit.bonus = IN_QUERY * max(found.get(entry_id, 0.0) for entry_id in entries)
            self.units.append(unit)
        self._compare()

    def price(self, index: int) -> float:
        """The worth lost per token if this unit is deleted now."""
        unit, copies = self.units[index], self.copies
        # An exact sum, so that it does not depend on how a process numbers references.
        lost = math.fsum([self._need[number] for number in unit.references if copies[number] == 1])
        return (lost + unit.bonus) * unit.factor / unit.tokens

    def need(self, number: int, units: Iterable[int]) -> float:
        """The worth lost with the last copy of a reference, which is in these units."""
        return self._need[number] * max(self.units[index].factor for index in units)

    def bonus(self, index: int) -> float:
        """The worth lost with a unit in addition to that of its references."""
        return self.units[index].bonus * self.units[index].factor

    def is_redundant(self, index: int) -> bool:
        """Whether it is empty or a later unit shows the same: among units of equal price these are deleted first."""
        unit = self.units[index]
        empty = unit.kind == "output" and unit.output is None
        return empty or unit.later is not None or self.repeated_by(index, ()) is not None

    def take_out(self, index: int) -> None:
        for number in self.units[index].references:
            self.copies[number] -= 1

    def put_back(self, index: int) -> None:
        for number in self.units[index].references:
            self.copies[number] += 1

    def split(self, out: Container[int]) -> None:
        """Add the blocks of results that could not be deleted as a whole, all but the smallest of each, as units."""
        for index, unit in enumerate(self.units[:]):
            for found in unit.objects if index not in out else ():
                entry = self.transcript.entries[found.position]
                if found.slot == WHOLE and len(entry.blocks) > 1 and not _is_between_calls(entry):
                    by_size = sorted(range(len(entry.blocks)), key=lambda slot: entry.blocks[slot].tokens)
                    parts = (Object(found.position, slot) for slot in sorted(by_size[1:]))
                    self.units += (_unit(self.transcript, (part,), "part") for part in parts)

    def repeated_by(self, index: int, out: Container[int]) -> int | None:
        """The last unit with the same output; None if that is this unit, or is taken out."""
        unit = self.units[index]
        if unit.kind != "output" or unit.output is None:
            return None
        last = self._last_output[unit.output]
        return None if last == index or last in out else last

    def names_of(self, index: int) -> str:
        """Where the names of a unit that is taken out occur, in words."""
        unit = self.units[index]
        lost = sum(self.copies[number] == 0 for number in unit.references)
        if not unit.references:
            return NO_NAMES
        if not any(self._last_mention[number] > unit.position for number in unit.references):
            return NOT_MENTIONED
        return f"{lost} of the {len(unit.references)} {ONLY_THERE}" if lost else ELSEWHERE

    # ---- construction -----------------------------------------------------------------------------------

    def _examine(self, unit: Unit, numbers: dict[str, int]) -> None:
        """Count the unit's references, and record the files that its calls touched and their results."""
        here: set[int] = set()
        output = ""
        for found in unit.objects:
            entry, text = self.transcript.entries[found.position], named_text(self.transcript, found)
            if found.slot != WHOLE and entry.blocks[found.slot].type == BlockType.TOOL_CALL:
                tool, _, arguments = text.partition("\n")[0].partition(" ")
                unit.tool = unit.tool or tool
                unit.touch = unit.touch or touch_of(tool, arguments)
            elif unit.kind in ("call", "output"):
                output = f"{output}\n{text}" if output else text
            touch = unit.touch
            is_changed = touch is not None and touch.reads and self._changed.get(touch.path, -1) > unit.position
            seen = SEEN * CHANGED if is_changed else SEEN  # the output of a file that was changed after it
            weight = WRITTEN if entry.role in _WRITERS else seen
            mention = weight * float((len(self.transcript) - found.position) ** -DECAY)
            # Sorted, so that references are numbered alike in every process.
            for reference in sorted(references(text[:EXAMINED])):
                number = numbers.setdefault(reference, len(numbers))
                if number == len(self._need):
                    self._need.append(0.0)
                    self.copies.append(0)
                    self._last_mention.append(0)
                self._need[number] += mention
                self._last_mention[number] = max(self._last_mention[number], found.position)
                here.add(number)
        unit.references = array("I", sorted(here))
        unit.output = hash(output) if output.strip() else None
        for number in here:
            self.copies[number] += 1

    def _compare(self) -> None:
        """Record which units are superseded, and which were the last to show an output.

        A superseded unit whose lines also occur later is worth less.
        """
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
            entries = (self.transcript.entries[found.position] for found in unit.objects)
            has_failed = any(entry.protection is Protection.TOOL_ERROR for entry in entries)
            if kind != "part" and not has_failed:
                last.setdefault(path, index)
                if kind != "edit":
                    last_whole.setdefault(path, index)

        standing = self.history.standing(lambda _: True)
        for unit in self.units:
            found = standing.get(unit.call) if unit.call is not None and unit.later is not None else None
            if found is not None and found.standing.total:
                unit.factor = 1 - SUPERSEDED * found.standing.lines / found.standing.total


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


SWAPPED: Final = 30
"""The number of the largest units that are tried the other way round."""
SWAPPED_SHARE: Final = 0.005
"""The minimum size of such a unit, as a share of all tokens."""
ROUNDS: Final = 3
EFFORT: Final = 2_000_000
"""The maximum number of prices computed for swaps."""
SCALE: Final = 1 << 40
"""Worth is counted in whole multiples of 1 / SCALE."""


class Choice(NamedTuple):
    """Units to delete, in the order in which they are requested."""

    units: tuple[int, ...]
    instead_of: Mapping[int, int]
    """For each unit deleted only because of a swap: the largest unit that is kept because of it."""
    looked: int
    """The number of prices computed."""


def choose(worth: Worth, free: Sequence[int], to_go: int, tokens: int, effort: int = EFFORT) -> Choice:
    """Choose among the units that may be deleted; `tokens` are those of the whole transcript."""
    search = _Search(worth, free, to_go, effort)
    search.take()
    search.put_back()
    before = frozenset(search.out)
    search.swap(SWAPPED_SHARE * tokens)
    instead_of = {
        unit: other
        for unit, other in search.instead_of.items()
        if unit in search.out and unit not in before and other not in search.out
    }
    return Choice(tuple(search.out), instead_of, search.looked)


class _Search:
    """The units that are currently in or out, and the value or cost of changing each."""

    def __init__(self, worth: Worth, free: Sequence[int], to_go: int, effort: int) -> None:
        self._free = free
        self._missing = to_go
        """The tokens still to delete; negative if more than required are out."""
        self._effort = effort
        self.looked = 0
        self.out: dict[int, None] = {}
        self.instead_of: dict[int, int] = {}
        self._lost = 0
        """The total worth of the units that are out."""
        self._tokens = [unit.tokens for unit in worth.units]
        self._goes_last = {index: not worth.is_redundant(index) for index in free}
        """Of units with the same price, those are deleted last."""
        self._flipped: list[int] = []
        """The units taken out or put back since the last decision."""
        self._value = {index: round(worth.bonus(index) * SCALE) for index in free}
        """The worth lost with a unit that is in, or regained with one that is out."""
        self._held: dict[int, list[int]] = {}
        """The units with a reference, if several have it and all of them may be deleted."""
        self._need: dict[int, int] = {}
        self._left: dict[int, int] = {}
        """The number of units with a reference that are in."""
        self._sum: dict[int, int] = {}
        """The sum of their indexes: if only one is in, its index."""
        self._shared: dict[int, list[int]] = {index: [] for index in free}
        """The references that a unit shares."""
        self._parts: dict[int, list[int]] = {index: [] for index in free}
        """The entries to which a unit belongs, one for each block."""
        self._blocks: dict[int, int] = {}
        """The number of an entry's blocks that are in."""
        self._rounding: dict[int, int] = {}
        """The tokens by which the separately rounded blocks of an entry exceed the entry: if all of them are deleted,
        fewer tokens are."""
        self._read(worth)
        for index in free:
            for position, slot in worth.units[index].objects:
                entry = worth.transcript.entries[position]
                rounding = sum(block.tokens for block in entry.blocks) - entry.tokens
                if slot != WHOLE and rounding:
                    self._parts[index].append(position)
                    self._blocks[position], self._rounding[position] = len(entry.blocks), rounding

    def _read(self, worth: Worth) -> None:
        holders: dict[int, list[int]] = {}
        for index in self._free:
            for number in worth.units[index].references:
                holders.setdefault(number, []).append(index)
        for number, units in holders.items():
            if worth.copies[number] > len(units):
                # A kept unit has it too.
                continue
            need = round(worth.need(number, units) * SCALE)
            if len(units) == 1:
                self._value[units[0]] += need
                continue
            self._held[number], self._need[number] = units, need
            self._left[number], self._sum[number] = len(units), sum(units)
            for index in units:
                self._shared[index].append(number)

    # ---- steps ------------------------------------------------------------------------------------------

    def take(self, staying: int = -1) -> None:
        """Take out units by their price, except this one, until the required tokens are out.

        Prices only rise as others are taken out: if the cheapest unit by its old price is still the cheapest by its new
        one, it is the cheapest of all.
        """
        if self._missing <= 0:
            return
        value, tokens, goes_last = self._value, self._tokens, self._goes_last
        heap = [
            (value[index] / tokens[index], goes_last[index], index)
            for index in self._free
            if index not in self.out and index != staying
        ]
        self.looked += len(heap)
        heapq.heapify(heap)
        while heap and self._missing > 0:
            price, last, index = heap[0]
            now = value[index] / tokens[index]
            if now > price:
                heapq.heapreplace(heap, (now, last, index))
                continue
            heapq.heappop(heap)
            self._flip(index)

    def put_back(self, gone: int = -1) -> None:
        """Put back whatever still fits, except this one, the most worth per token first.

        The worth that a unit regains only falls as others are put back.
        """
        value, tokens = self._value, self._tokens
        heap = [
            (-value[index] / tokens[index], -index)
            for index in self.out
            if tokens[index] <= -self._missing and index != gone
        ]
        self.looked += len(heap)
        heapq.heapify(heap)
        while heap:
            price, negative = heap[0]
            index = -negative
            now = -value[index] / tokens[index]
            if tokens[index] > -self._missing:
                heapq.heappop(heap)
            elif now > price:
                heapq.heapreplace(heap, (now, negative))
            else:
                heapq.heappop(heap)
                self._flip(index)

    def swap(self, least: float) -> None:
        """Try the largest units, of at least this many tokens, the other way round."""
        if self._missing > 0:
            return
        large = [index for index in self._free if self._tokens[index] >= least]
        large.sort(key=lambda index: (-self._tokens[index], index))
        for _ in range(ROUNDS):
            improved = False
            for index in large[:SWAPPED]:
                if self.looked > self._effort:
                    return
                improved |= self._try(index)
            if not improved:
                return

    def _try(self, index: int) -> bool:
        """Whether less worth is lost with this unit the other way round; undone if not."""
        lost = self._lost
        self._flipped.clear()
        self._flip(index)
        self.take(index)
        self.put_back(index)
        if self._missing <= 0 and self._lost < lost:
            self._note()
            return True
        for flipped in reversed(self._flipped[:]):
            self._flip(flipped)
        return False

    def _note(self) -> None:
        """Record the units that were kept instead of those that a swap took out."""
        changed = {index for index, count in Counter(self._flipped).items() if count % 2}
        came_back = [index for index in changed if index not in self.out]
        if came_back:
            largest = max(came_back, key=lambda index: (self._tokens[index], index))
            self.instead_of.update(dict.fromkeys(sorted(changed.difference(came_back)), largest))

    def _flip(self, index: int) -> None:
        """Take a unit out if it is in, and put it back if it is out."""
        self._flipped.append(index)
        if index in self.out:
            del self.out[index]
            self._missing += self._tokens[index]
            for position in self._parts[index]:
                if not self._blocks[position]:
                    self._missing -= self._rounding[position]
                self._blocks[position] += 1
            self._lost -= self._value[index]
            for number in self._shared[index]:
                self._shift(number, index, -self._need[number])
                self._left[number] += 1
                self._sum[number] += index
        else:
            self.out[index] = None
            self._missing -= self._tokens[index]
            for position in self._parts[index]:
                self._blocks[position] -= 1
                if not self._blocks[position]:
                    self._missing += self._rounding[position]
            self._lost += self._value[index]
            for number in self._shared[index]:
                self._left[number] -= 1
                self._sum[number] -= index
                self._shift(number, index, self._need[number])

    def _shift(self, number: int, index: int, need: int) -> None:
        """Change the worth of the other units with a reference while this one is out, if at most one of them is in."""
        if self._left[number] == 1:
            self._value[self._sum[number]] += need
        elif self._left[number] == 0:
            for other in self._held[number]:
                if other != index:
                    self._value[other] += need


SEARCHES: Final = 8
WORD_LENGTH: Final = 5
BATCHES: Final = 10
BATCH_UNITS: Final = 25
"""A choice is deleted in at most BATCHES batches, each of at least this many units."""
LONG_TOKENS: Final = 1_000
"""An output of this many tokens is called long."""

_WORD: Final = re.compile(r"\w+")
_LOOK: Final = ToolCall("context_compaction_budget", {})


class EmbeddedPlanner:
    """Plans by the price of each unit. It reads the transcript, and changes it only through the tools."""

    name = "embedded"

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._worth: Worth | None = None
        self._chosen: list[int] = []
        """The units still to be requested, in this order."""
        self._batch: list[int] = []
        """The batch whose result the next report contains."""
        self._out: dict[int, None] = {}
        """Units that are chosen or deleted."""
        self._instead_of: dict[int, int] = {}
        """For units that are out because of a swap: a unit that is kept because of it."""
        self._effort = EFFORT
        self._given_up: set[int] = set()
        self._in_blocks: set[int] = set()
        """Positions of entries that may not be deleted as a whole: their blocks are requested one by one."""
        self._batch_units = BATCH_UNITS
        self._limit = BATCH_UNITS
        """The maximum number of units in the next batch: fewer than usual after a refusal that named none of them."""
        self._is_split = False
        """Whether results that must be kept were split into their blocks: the last resort."""
        self._to_go = 0

    def next_turn(self, report: Report) -> PlannerTurn:
        """Look first; then delete until the loop ends the run. An empty turn if nothing is left to delete."""
        if self._worth is None and not report.results and not report.nudge:
            return PlannerTurn([_LOOK, *map(_search, search_words(given_query(self._transcript)))])
        if self._worth is None:
            self._worth = Worth(self._transcript, _found(report.results))
        self._read(report, self._worth)
        if not self._chosen:
            self._choose(self._worth)
        if not self._chosen and not self._is_split:
            self._is_split = True
            self._worth.split(self._out)
            self._choose(self._worth)
        if not self._chosen:
            return PlannerTurn()
        self._batch, self._chosen = self._chosen[: self._limit], self._chosen[self._limit :]
        reasons = self._request(self._worth)
        return PlannerTurn([ToolCall("context_delete", request_of(reasons), reasons), _LOOK])

    # ---- results ----------------------------------------------------------------------------------------

    def _read(self, report: Report, worth: Worth) -> None:
        for result in report.results:
            if result.name == "context_compaction_budget":
                # The planner gets another turn only while the target is not met, regardless of rounding.
                self._to_go = max(1, int(result.details["tokensToDeleteForTarget"]))
            elif result.name == "context_delete":
                if result.refusal is not None:
                    self._learn(result.refusal, worth)
                else:
                    self._limit = min(self._batch_units, 2 * self._limit)
        self._batch = []

    def _learn(self, refusal: Refusal, worth: Worth) -> None:
        """Request the batch again without the refused units, or half of it."""
        self._chosen = self._batch + self._chosen
        if refusal.code in (Code.NO_TASK_LEFT, Code.NO_CONTEXT_LEFT):
            # Entries that bear the task are protected, so this transcript has none: no other choice would succeed.
            self._give_up(range(len(worth.units)), worth)
            return
        if refusal.code is Code.THINKING:
            self._give_up(self._beside_thinking(worth), worth)
        about = self._refused_units(refusal.target, worth)
        if any(index in self._given_up for index in self._batch):
            return
        if about:
            self._give_up(about[-1:], worth)
        elif about is not None and len(self._batch) == 1:
            self._give_up(self._batch, worth)
        elif about is not None:
            self._limit = len(self._batch) // 2

    def _refused_units(self, target: Target | None, worth: Worth) -> list[int] | None:
        """The units of the batch that contain the refused object; None if requesting its blocks may succeed."""
        entry = self._transcript.entry(target.entry_id) if target is not None else None
        if target is None or entry is None:
            return []
        slot = None if target.block_index is None else entry.slot(target.block_index)
        held = [
            (index, found)
            for index in self._batch
            for found in worth.units[index].objects
            if found.position == entry.position and (slot is None or found.slot in (slot, WHOLE))
        ]
        by_block = any(found.slot != WHOLE for _, found in held)
        if slot is None and by_block and entry.position not in self._in_blocks:
            self._in_blocks.add(entry.position)
            return None
        return [index for index, _ in held]

    def _beside_thinking(self, worth: Worth) -> list[int]:
        """Every unit that a guard of all thinking keeps: found together, instead of refusal by refusal."""
        thinking = {
            entry.position
            for entry in self._transcript.entries
            if entry.role == Role.ASSISTANT and entry.bears_thinking
        }
        return [
            index for index, unit in enumerate(worth.units) if any(found.position in thinking for found in unit.objects)
        ]

    def _give_up(self, units: Iterable[int], worth: Worth) -> None:
        self._given_up.update(units)
        for index in self._chosen:
            if index in self._given_up:
                worth.put_back(index)
                del self._out[index]
        self._chosen = [index for index in self._chosen if index not in self._given_up]

    # ---- choice ---------------------------------------------------------------------------------------

    def _choose(self, worth: Worth) -> None:
        free = [
            index
            for index, unit in enumerate(worth.units)
            if unit.may_go and index not in self._out and index not in self._given_up
        ]
        choice = choose(worth, free, self._to_go, self._transcript.tokens, self._effort)
        self._effort -= choice.looked
        self._instead_of.update(choice.instead_of)
        for index in choice.units:
            worth.take_out(index)
            self._chosen.append(index)
            self._out[index] = None
        self._batch_units = self._limit = max(BATCH_UNITS, -(-len(self._chosen) // BATCHES))

    # ---- requests ---------------------------------------------------------------------------------------

    def _request(self, worth: Worth) -> dict[Target, str]:
        """The batch as targets with their reasons. A call is requested by its first result, or by its blocks."""
        waiting = set(self._chosen)
        gone = {found for index in self._out if index not in waiting for found in worth.units[index].objects}
        reasons: dict[Target, str] = {}
        standing = self._standing_later(worth)
        for index in self._batch:
            reason = self._reason(index, worth, standing)
            for target in self._targets(worth.units[index], gone):
                reasons.setdefault(target, reason)
        return reasons

    def _targets(self, unit: Unit, gone: set[Object]) -> Iterable[Target]:
        whole = next((found for found in unit.objects if found.slot == WHOLE), None)
        if whole is not None:
            yield Target(self._transcript.entries[whole.position].entry_id)
        for found in unit.objects:
            entry = self._transcript.entries[found.position]
            # Repair deletes a call's block with its result, but not an earlier block with the same id.
            if found.slot != WHOLE and (whole is None or self._transcript.pairs.made_in(entry, found.slot) is None):
                yield self._block_target(found, gone)

    def _block_target(self, found: Object, gone: set[Object]) -> Target:
        """A block, or its entry: the last block of an entry can be deleted only with it."""
        entry = self._transcript.entries[found.position]
        slots = range(len(entry.blocks))
        if entry.position not in self._in_blocks and all(Object(entry.position, slot) in gone for slot in slots):
            return Target(entry.entry_id)
        return Target(entry.entry_id, entry.blocks[found.slot].index)

    def _standing_later(self, worth: Worth) -> Mapping[int, StandingLater]:
        """The lines of files in a batch that are also in later kept calls, if everything chosen is deleted; empty if no
        reason needs them."""
        if all(worth.units[index].later is None for index in self._batch):
            return {}
        gone = {found for index in self._out for found in worth.units[index].objects}
        return worth.history.standing(lambda found: found not in gone and Object(found.position) not in gone)

    def _reason(self, index: int, worth: Worth, standing: Mapping[int, StandingLater]) -> str:
        unit = worth.units[index]
        entries = self._transcript.entries
        other = self._instead_of.get(index)
        if other is not None and other not in self._out:
            stays = entries[worth.units[other].position].entry_id
            return f"{swap_words(_description(unit), stays)}; {worth.names_of(index)}"
        found = standing.get(unit.call) if unit.call is not None and unit.later is not None else None
        if found is not None and found.call is not None:
            touch, entry_id = found.call.touch, entries[found.call.position].entry_id
            return Supersession(touch.verb, touch.path, entry_id).words(found.standing)
        repeated_by = worth.repeated_by(index, self._out)
        if repeated_by is not None:
            return repeat_words(entries[worth.units[repeated_by].position].entry_id)
        if unit.kind == "output" and unit.output is None:
            return "an output that is empty"
        return _description(unit) if unit.kind == "part" else f"{_description(unit)}; {worth.names_of(index)}"


def given_query(transcript: Transcript) -> str:
    """The query that the user gave; none if it is a user's message of the session."""
    query = transcript.parameters.query
    said = (transcript.text(entry) for entry in transcript.entries if entry.role == Role.USER)
    return AUTO_DETECTED if any(normal_query(None, [text]) == query for text in said) else query


def search_words(query: str) -> list[str]:
    """The words of a query to search for: references first, then the longest; at most SEARCHES, each only once."""
    if query == AUTO_DETECTED:
        return []
    query = query[:QUERY_LENGTH]
    named = sorted(references(query), key=lambda word: (-len(word), word))
    words = {word for word in _WORD.findall(query) if len(word) >= WORD_LENGTH}
    others = sorted(words, key=lambda word: (-len(word), word))
    distinct = {word.lower(): word for word in reversed([*named, *others])}
    return list(reversed(distinct.values()))[:SEARCHES]


def _search(word: str) -> ToolCall:
    arguments = {"pattern": word, "maxMatches": SEARCH_MATCHES_LIMIT, "contextChars": 0}
    return ToolCall("context_search_transcript", arguments)


def _found(results: Sequence[ToolResult]) -> Mapping[str, float]:
    """Weights of the entries found by the searches: higher if a word finds few; truncated ones have no weight."""
    found: dict[str, float] = {}
    for result in results:
        if result.name != "context_search_transcript" or result.details.get("truncated"):
            continue
        matches = [match["entryId"] for match in result.details["matches"]]
        for entry_id in matches:
            found[entry_id] = found.get(entry_id, 0.0) + 1 / len(matches)
    return found


def _description(unit: Unit) -> str:
    if unit.kind == "reasoning":
        return "old reasoning"
    if unit.kind == "part":
        return "a part of an output that has to stay with its call"
    if unit.kind == "message":
        return "an old message of the assistant"
    of = f" of {unit.tool}" if unit.tool else ""
    if unit.kind == "call":
        return f"an old call{of}"
    return f"a long old output{of}" if unit.tokens >= LONG_TOKENS else f"an old output{of}"
