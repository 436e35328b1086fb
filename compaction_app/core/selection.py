"""PURE: selections by a pattern or by meaning, as units: objects deleted together are selected together.

| kind       | value                | selects                                                               |
|------------|----------------------|-----------------------------------------------------------------------|
| `pattern`  | text, or /a pattern/ | units that contain it, as the planners' search finds it               |
| `tool`     | a tool               | its calls with their results                                          |
| `file`     | a path               | every read of the file but the last                                   |
| `older`    | an entry             | everything before it                                                  |
| `thinking` |                      | thinking                                                              |
| `repeated` |                      | outputs that a later call repeats verbatim                            |

Nothing is decided here. A selection becomes a separate plan, or is compared with a review: its proposed units, those
that could be added, and the reasons for keeping the rest. Units that may not be deleted are also selected, so that they
can be named with the reason.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from sessions_app.sessionlog.entries import Target, request_of

from .airlock import Airlock
from .embedded import Unit, units_of
from .file_touches import file_calls
from .gates import Code, Refusal, Restraints
from .patterns import Pattern, compile_pattern
from .review_fold import Review, ReviewItem
from .transcript import WHOLE, Object, Transcript

DELIMITER: Final = "/"
"""Encloses a pattern that is a regular expression."""


class SelectionKind(StrEnum):
    """The criterion of a selection."""

    PATTERN = "pattern"
    TOOL = "tool"
    FILE = "file"
    OLDER = "older"
    THINKING = "thinking"
    REPEATED = "repeated"


VALUED: Final = frozenset({SelectionKind.PATTERN, SelectionKind.TOOL, SelectionKind.FILE, SelectionKind.OLDER})
"""The kinds that need a value."""


class Criterion(NamedTuple):
    """The criterion of a selection, with its value if it needs one."""

    kind: SelectionKind
    value: str = ""

    @property
    def words(self) -> str:
        """The selected objects, in words."""
        return _WORDS[self.kind].format(self.value)


_WORDS: Final = {
    SelectionKind.PATTERN: "everything with {}",
    SelectionKind.TOOL: "all results of {}",
    SelectionKind.FILE: "all reads of {} but the last",
    SelectionKind.OLDER: "everything older than {}",
    SelectionKind.THINKING: "all thinking",
    SelectionKind.REPEATED: "outputs that are repeated later",
}


def pattern_of(value: str) -> Pattern | Refusal:
    """The pattern of a text, or of an expression between slashes, ready to search with. Case is ignored."""
    regex = len(value) > 2 and value.startswith(DELIMITER) and value.endswith(DELIMITER)
    return compile_pattern(value[1:-1] if regex else value, regex=regex, case_sensitive=False)


def select(criterion: Criterion, transcript: Transcript) -> list[Unit] | Refusal:
    """The units of a transcript with texts that a criterion selects, in order; a refusal if its value cannot be
    used."""
    if criterion.kind in VALUED and not criterion.value:
        return Refusal(Code.INVALID_ARGUMENTS, "Nothing was selected: say what to select.")
    units = units_of(transcript)
    match criterion.kind:
        case SelectionKind.PATTERN:
            pattern = pattern_of(criterion.value)
            if isinstance(pattern, Refusal):
                return pattern
            return [unit for unit in units if any(map(pattern.found_in, _texts(transcript, unit.objects)))]
        case SelectionKind.TOOL:
            return [unit for unit in units if unit.call is not None and unit.tool == criterion.value]
        case SelectionKind.FILE:
            reads = [call for call in file_calls(transcript) if call.touch.reads and call.touch.path == criterion.value]
            earlier = {call.order for call in sorted(reads, key=lambda call: call.position)[:-1]}
            return [unit for unit in units if unit.call in earlier]
        case SelectionKind.OLDER:
            entry = transcript.entry(criterion.value)
            if entry is None:
                words = f"Nothing was selected: the transcript has no entry {criterion.value}."
                return Refusal(Code.UNKNOWN_ENTRY, words)
            return [unit for unit in units if unit.position < entry.position]
        case SelectionKind.THINKING:
            return [unit for unit in units if unit.kind == "reasoning"]
        case SelectionKind.REPEATED:
            return _repeated(list(units), transcript)


def _repeated(units: list[Unit], transcript: Transcript) -> list[Unit]:
    """The units whose results a later unit repeats."""
    outputs = [_output(transcript, unit) if unit.call is not None else None for unit in units]
    last = {output: number for number, output in enumerate(outputs) if output is not None}
    return [
        unit
        for number, (unit, output) in enumerate(zip(units, outputs, strict=True))
        if output is not None and last[output] != number
    ]


def _output(transcript: Transcript, unit: Unit) -> int | None:
    """The hash of a call's results; None if they are blank."""
    results = [found for found in unit.objects if found.slot == WHOLE]
    text = "\n".join(_texts(transcript, results))
    return hash(text) if text.strip() else None


def _texts(transcript: Transcript, objects: Iterable[Object]) -> Iterator[str]:
    for found in objects:
        entry = transcript.entries[found.position]
        if found.slot == WHOLE:
            yield transcript.text(entry)
        else:
            yield transcript.block_text(entry, entry.blocks[found.slot])


class Addable(NamedTuple):
    """A unit that was not proposed and may be deleted, and the target that names it."""

    target: Target
    unit: Unit


class RefusedUnit(NamedTuple):
    """A unit that may not be deleted, and the reason."""

    target: Target
    refusal: Refusal


class ReviewSelection(NamedTuple):
    """The selected units of a review, in the order of the transcript, without those merely deleted with others."""

    proposed: tuple[ReviewItem, ...]
    """The items that take decisions."""
    addable: tuple[Addable, ...]
    refused: tuple[RefusedUnit, ...]


def review_selection(
    units: Sequence[Unit],
    transcript: Transcript,
    review: Review,
    thinking_guard: str,
    *,
    in_part: bool = False,
) -> ReviewSelection:
    """The review's view of selected units. `in_part`: an entry is selected if any of its blocks is."""
    airlock = Airlock(transcript, Restraints(frozenset(review.pins), thinking_guard))
    proposed: dict[Target, ReviewItem] = {}
    addable: list[Addable] = []
    refused: list[RefusedUnit] = []
    selected = {found for unit in units for found in unit.objects}
    for unit in units:
        named = list(targets_of(unit, transcript))
        items = [
            review.items[target]
            for target in named
            if target in review.items and (in_part or _is_covered(target, transcript, selected))
        ]
        if items:
            lead = items[0].leader or items[0].target
            proposed[lead] = review.items[lead]
        elif not any(target in review.would_go for target in named):
            judged = airlock.judge_request(request_of([named[0]]))
            if isinstance(judged, Refusal):
                refused.append(RefusedUnit(named[0], judged))
            else:
                addable.append(Addable(named[0], unit))
    return ReviewSelection(tuple(proposed.values()), tuple(addable), tuple(refused))


def _is_covered(target: Target, transcript: Transcript, selected: Container[Object]) -> bool:
    """Whether everything that a target deletes of its entry is selected."""
    entry = transcript.entry(target.entry_id)
    if entry is None or target.block_index is not None or Object(entry.position) in selected:
        return True
    return all(Object(entry.position, slot) in selected for slot in range(len(entry.blocks)))


def targets_of(unit: Unit, transcript: Transcript) -> Iterator[Target]:
    """The targets that name a unit or a part of it, the one that deletes all of it first: for a call, its result.

    The only block of an entry is named by its entry.
    """
    objects = sorted(unit.objects, key=lambda found: found.slot != WHOLE)
    for found in objects:
        yield _target(found, transcript)
    for found in objects:
        if found.slot != WHOLE:
            yield Target(transcript.entries[found.position].entry_id)


def _target(found: Object, transcript: Transcript) -> Target:
    entry = transcript.entries[found.position]
    if found.slot == WHOLE or len(entry.blocks) == 1:
        return Target(entry.entry_id)
    return Target(entry.entry_id, entry.blocks[found.slot].index)
