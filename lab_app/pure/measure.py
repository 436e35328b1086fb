"""PURE: the replay loss: the share of the references needed later that a plan would have deleted.

    branch ──cuts──▶ ReplayCut: a prefix, and what came after it ──needs──▶ Needs ──loss of a plan──▶ Loss

A branch is cut at 40, 60 and 80% of its messages, moved on past tool results. *Prefix*: the messages before the cut;
*future*: the messages after it, as many as the horizon. A reference is *needed* if the assistant writes it in the
future, it was not seen earlier in the future, and it stands in the prefix but not in its last two messages: the model
must have taken it from there. The loss is the share of the needed references that occur nowhere in the part of the
prefix that a plan keeps. Past sessions cannot show alternative actions of the agent, so the figure serves to compare
plans; it is not a probability.

A reference is a token of five characters or more with one of `_ . / : -`, a digit, or a capital after its first
character. Its components are separated by `. / : -`. A measure decides what is a reference, and where it stands:

|                           | components                                   | substrings (the older measure)      |
|---------------------------|----------------------------------------------|-------------------------------------|
| arguments of a call       | decoded                                      | as JSON: `\\nfoo` is read as `nfoo`  |
| `foo_bar` stands in       | `foo_bar` and `src/foo_bar.py`               | also in `foo_bar_baz`, `my_foo_bar` |
| `well-known`              | is not a reference                           | is a reference                      |
| shown earlier, if it is   | among the components of the shown text       | the identical token                 |

`bound` is the minimum loss of a plan of a given size, found by a plan that knows the future: no plan under the same
rules can do much better. The choice of the kept units is a problem without a fast exact solution (maximum coverage with
a budget), so two greedy choices are made and the better one is improved by swaps; the result may be a little above the
true bound.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from compaction_app.core.embedded import Unit, units_of
from compaction_app.core.mentions import decoded, references as tokens
from compaction_app.core.transcript import WHOLE, Object, Transcript, TranscriptEntry
from sessions_app.sessionlog.entries import BlockType, Entry, Role, Target, blocks_by_entry

Place = TypeVar("Place", bound=Hashable)

_OUTSIDE: Final = r"(?<![A-Za-z0-9_])"
_END: Final = r"(?![A-Za-z0-9_])"
_BOUNDED: Final = re.compile(_OUTSIDE + r"[A-Za-z_][A-Za-z0-9_]*(?:[./:\-][A-Za-z0-9_]+)*", re.ASCII)
_SEPARATORS: Final = re.compile(r"[./:\-]")
_HYPHENATED: Final = re.compile(r"[A-Za-z][a-z]*(?:-[A-Za-z][a-z]*)+", re.ASCII)


class ReplayMeasure(StrEnum):
    """How references are recognised and found again."""

    COMPONENTS = "components"
    SUBSTRINGS = "substrings"

    def references(self, text: str) -> set[str]:
        if self is ReplayMeasure.SUBSTRINGS:
            return tokens(text)
        found = tokens("\n".join(set(_BOUNDED.findall(text))))
        return {name for name in found if not _HYPHENATED.fullmatch(name)}

    def call_text(self, tool: str, arguments: str) -> str:
        """The text of a call in which references are searched."""
        if self is ReplayMeasure.SUBSTRINGS:
            return f"{tool} {arguments}"
        return "\n".join([tool, *decoded(arguments)])


class NameIndex(Generic[Place]):
    """The references at each place."""

    def __init__(self, measure: ReplayMeasure, places: Iterable[tuple[Place, Iterable[str]]]) -> None:
        """`places` come in order, each with the references in its text."""
        self._is_bounded = measure is ReplayMeasure.COMPONENTS
        self._order: dict[Place, int] = {}
        self._places: dict[str, list[Place]] = {}
        for place, names in places:
            self._order[place] = len(self._order)
            for name in names:
                self._places.setdefault(name, []).append(place)
        self._names = list(self._places)
        self._with_component: dict[str, list[int]] = {}
        """The names that have a component: only these can contain a reference with it."""
        self._joined = ""
        self._starts: list[int] = []
        if self._is_bounded:
            for number, name in enumerate(self._names):
                for component in set(_SEPARATORS.split(name)):
                    self._with_component.setdefault(component, []).append(number)
        else:
            self._joined = "\n".join(self._names)
            start = 0
            for name in self._names:
                self._starts.append(start)
                start += len(name) + 1

    def same(self, reference: str) -> tuple[Place, ...]:
        """The places with the identical token, in order."""
        return tuple(self._places.get(reference, ()))

    def standing(self, reference: str) -> tuple[Place, ...]:
        """The places at which a reference occurs, in order: as a token or as part of one."""
        found: set[Place] = set()
        for number in self._having(reference) if self._is_bounded else self._containing(reference):
            found.update(self._places[self._names[number]])
        return tuple(sorted(found, key=self._order.__getitem__))

    def _having(self, reference: str) -> Iterator[int]:
        """The names in which a reference occurs as whole components."""
        components = set(_SEPARATORS.split(reference))
        rarest = min((self._with_component.get(one, []) for one in components), key=len)
        return (number for number in rarest if _is_part(reference, self._names[number]))

    def _containing(self, reference: str) -> Iterator[int]:
        """The names that contain a reference, once for each place."""
        at = self._joined.find(reference)
        while at >= 0:
            yield bisect.bisect_right(self._starts, at) - 1
            at = self._joined.find(reference, at + 1)


def _is_part(reference: str, name: str) -> bool:
    """Whether a reference is one or more whole components of a name."""
    at = name.find(reference)
    while at >= 0:
        if not (_is_inner(name, at - 1) or _is_inner(name, at + len(reference))):
            return True
        at = name.find(reference, at + 1)
    return False


def _is_inner(text: str, at: int) -> bool:
    """Whether a character belongs to a component."""
    return 0 <= at < len(text) and (text[at] == "_" or text[at].isalnum())


# ---- cuts, and the references needed after them ----------------------------------------------------------

CUTS: Final = (0.4, 0.6, 0.8)
HORIZONS: Final = (20, 40, 100)
"""The number of messages after a cut that are examined."""
HORIZON: Final = 40
MINIMUM_MESSAGES: Final = 40
MINIMUM_TOKENS: Final = 8_000
MINIMUM_NEEDED: Final = 10
RECENT_MESSAGES: Final = 2

Prepare = Callable[[Sequence[Entry]], Transcript | None]
"""The transcript of a branch or of its beginning, by the rules of its agent (`core.transcript.prepare`)."""
Stays = Callable[[Object], bool]

_WRITTEN: Final = frozenset({BlockType.TEXT, BlockType.THINKING})


class Need(NamedTuple):
    """A reference that the future takes from the prefix."""

    reference: str
    needed_in: str
    """The entry of the future in which the assistant writes it."""
    places: tuple[Object, ...]
    """Its places in the prefix, in transcript order: blocks, and entries without blocks."""


class Lost(msgspec.Struct, frozen=True):
    """A needed reference that a plan deletes."""

    reference: str
    needed_in: str
    """The entry of the future in which the assistant writes it."""
    stood_in: tuple[str, ...]
    """The entries of the prefix in which it occurs, in their order."""


class Loss(NamedTuple):
    """The result for one cut: the number of needed references, and those that the plan deletes."""

    cut: float
    needed: int
    lost: tuple[Lost, ...]

    @property
    def share(self) -> float:
        return len(self.lost) / self.needed


class ReplayCut:
    """A branch divided at one position: the input of a planner, and the messages that followed."""

    def __init__(self, share: float, prefix: Transcript, whole: Transcript, at: int, texts: _Texts) -> None:
        self.share = share
        """The fraction of the messages before it, before it moved past tool results."""
        self.prefix = prefix
        self.at = at
        """The number of messages before it."""
        self._whole = whole
        self._texts = texts
        self._indexes: dict[ReplayMeasure, NameIndex[Object]] = {}

    @property
    def next_entry_id(self) -> str:
        """The first entry after the cut."""
        return self._whole.entries[self.at].entry_id

    def needs(self, measure: ReplayMeasure = ReplayMeasure.COMPONENTS, horizon: int = HORIZON) -> Needs | None:
        """The needs of the messages up to the horizon; None if they are too few to be measured."""
        index = self._index(measure)
        recent = len(self.prefix) - RECENT_MESSAGES
        found = []
        for reference, entry_id in self._written(measure, horizon):
            places = index.standing(reference)
            if places and places[-1].position < recent:
                found.append(Need(reference, entry_id, places))
        return Needs(self, tuple(found)) if len(found) >= MINIMUM_NEEDED else None

    def _index(self, measure: ReplayMeasure) -> NameIndex[Object]:
        """The places of each reference in the prefix."""
        if measure not in self._indexes:
            prefix = self.prefix
            self._indexes[measure] = NameIndex(
                measure,
                (
                    (found, self._texts.references(measure, _shown_text(prefix, entry, found, measure)))
                    for entry in prefix.entries
                    for found in _places(entry)
                ),
            )
        return self._indexes[measure]

    def _written(self, measure: ReplayMeasure, horizon: int) -> Iterator[tuple[str, str]]:
        """The references that the assistant writes after the cut before they were shown, with the first entry of each,
        in order."""
        future = self._whole.entries[self.at : self.at + horizon]
        shown: list[tuple[int, set[str]]] = []
        written: dict[str, int] = {}
        for number, entry in enumerate(future):
            here: set[str] = set()
            for found in _places(entry):
                here |= self._texts.references(measure, _shown_text(self._whole, entry, found, measure))
                text = _written_text(self._whole, entry, found, measure)
                for name in sorted(self._texts.references(measure, text)):
                    written.setdefault(name, number)
            shown.append((number, here))
        index = NameIndex(measure, shown)
        find = index.same if measure is ReplayMeasure.SUBSTRINGS else index.standing
        for name, number in written.items():
            if find(name)[0] == number:
                yield name, future[number].entry_id


class Needs(NamedTuple):
    """The references that the future of a cut needs from its prefix, by one measure up to one horizon."""

    cut: ReplayCut
    needs: tuple[Need, ...]

    def loss(self, targets: Collection[Target]) -> Loss:
        """The loss of a plan: the entries and blocks of the prefix that it deletes."""
        gone = blocks_by_entry(targets)
        entries = self.cut.prefix.entries

        def stays(found: Object) -> bool:
            entry = entries[found.position]
            if entry.entry_id not in gone:
                return True
            blocks = gone[entry.entry_id]
            return blocks is not None and (found.slot == WHOLE or entry.blocks[found.slot].index not in blocks)

        return self.loss_if(stays)

    def loss_if(self, stays: Stays) -> Loss:
        """The loss if these blocks, and these entries without blocks, are kept."""
        entries = self.cut.prefix.entries
        lost = tuple(
            Lost(
                need.reference,
                need.needed_in,
                tuple(dict.fromkeys(entries[found.position].entry_id for found in need.places)),
            )
            for need in self.needs
            if not any(map(stays, need.places))
        )
        return Loss(self.cut.share, len(self.needs), lost)


class _Texts:
    """The references in texts, found once for all cuts of a branch."""

    def __init__(self) -> None:
        self._known: dict[tuple[ReplayMeasure, str], set[str]] = {}

    def references(self, measure: ReplayMeasure, text: str) -> set[str]:
        known = self._known.get((measure, text))
        if known is None:
            known = self._known[measure, text] = measure.references(text)
        return known


def cuts(branch: Sequence[Entry], prepare: Prepare) -> Iterator[ReplayCut]:
    """The cuts at which a branch can be measured; none if it is too short."""
    whole = prepare(branch)
    if whole is None or len(whole) < MINIMUM_MESSAGES:
        return
    places = {entry.id: place for place, entry in enumerate(branch)}
    texts = _Texts()
    for share in CUTS:
        at = _cut_position(whole.entries, share)
        if at >= len(whole):
            continue
        prefix = prepare(branch[: places[whole.entries[at].entry_id]])
        if prefix is not None and prefix.tokens >= MINIMUM_TOKENS:
            yield ReplayCut(share, prefix, whole, at, texts)


def cut_between(prefix: Transcript, whole: Transcript, at: int) -> ReplayCut:
    """A cut after which `whole` replaces `prefix`: the first `at` entries of `whole` stand for the messages before
    it.
    """
    return ReplayCut(0.0, prefix, whole, at, _Texts())


def _cut_position(entries: Sequence[TranscriptEntry], share: float) -> int:
    at = int(len(entries) * share)
    while at < len(entries) and entries[at].role == Role.TOOL_RESULT:
        at += 1
    return at


def _places(entry: TranscriptEntry) -> Iterator[Object]:
    """The blocks of an entry, or an entry without blocks."""
    slots = range(len(entry.blocks)) if entry.blocks else (WHOLE,)
    return (Object(entry.position, slot) for slot in slots)


def _shown_text(transcript: Transcript, entry: TranscriptEntry, found: Object, measure: ReplayMeasure) -> str:
    """The text of a block, or of an entry without blocks, with the references that it keeps for the model."""
    if found.slot == WHOLE:
        return transcript.text(entry)
    block = entry.blocks[found.slot]
    if block.type == BlockType.TOOL_CALL and measure is not ReplayMeasure.SUBSTRINGS:
        return _call_text(transcript, entry, found, measure)
    return transcript.block_text(entry, block)


def _written_text(transcript: Transcript, entry: TranscriptEntry, found: Object, measure: ReplayMeasure) -> str:
    """The assistant's own text: without the id of a call, which the provider generated."""
    if entry.role != Role.ASSISTANT:
        return ""
    if found.slot == WHOLE:
        return "" if measure is ReplayMeasure.SUBSTRINGS else transcript.text(entry)
    block = entry.blocks[found.slot]
    if block.type == BlockType.TOOL_CALL:
        return _call_text(transcript, entry, found, measure)
    return transcript.block_text(entry, block) if block.type in _WRITTEN else ""


def _call_text(transcript: Transcript, entry: TranscriptEntry, found: Object, measure: ReplayMeasure) -> str:
    block = entry.blocks[found.slot]
    text = transcript.block_text(entry, block).removeprefix(f"{BlockType.TOOL_CALL} {block.call_id} ")
    tool, _, arguments = text.partition(" ")
    return measure.call_text(tool, arguments)


# ---- the minimum loss ------------------------------------------------------------------------------------

SWAPS: Final = 40
"""The maximum number of swaps that are tried."""


def bound(needs: Needs, share: float) -> Loss:
    """The loss of the best plan found that deletes this share of the prefix's tokens and knows the needed
    references."""
    search = _Search(needs, share)
    kept = search.best()
    gone = {
        found for index, unit in enumerate(search.units) if unit.may_go and index not in kept for found in unit.objects
    }
    return needs.loss_if(lambda found: found not in gone and Object(found.position) not in gone)


class _Search:
    def __init__(self, needs: Needs, share: float) -> None:
        prefix = needs.cut.prefix
        self.units: list[Unit] = list(units_of(prefix))
        held: dict[Object, set[int]] = {}
        for index, unit in enumerate(self.units):
            for found in unit.objects:
                held.setdefault(found, set()).add(index)
        self._covers: dict[int, set[int]] = {}
        """The needed references of each deletable unit that has any, without those that other units certainly keep."""
        for number, need in enumerate(needs.needs):
            units = {
                index
                for place in need.places
                for index in held.get(place, ()) or held.get(Object(place.position, WHOLE), ())
            }
            if all(self.units[index].may_go for index in units):
                for index in units:
                    self._covers.setdefault(index, set()).add(number)
        sure = sum(unit.tokens for unit in self.units if not unit.may_go)
        self._room = int(prefix.tokens * (1 - share)) - sure
        """The tokens of deletable units that may be kept."""

    def best(self) -> set[int]:
        """The kept units with needed references."""
        kept = max((self._fill(()), self._empty()), key=self._value)
        for index in sorted(self._covers, key=lambda index: (-self.units[index].tokens, index))[:SWAPS]:
            other = self._fill(kept - {index}, without=index) if index in kept else self._fill((index,))
            if self._value(other) > self._value(kept):
                kept = other
        return kept

    def _value(self, kept: Iterable[int]) -> int:
        return len(set[int]().union(*(self._covers[index] for index in kept)))

    def _fill(self, start: Iterable[int], without: int = -1) -> set[int]:
        """Keep the units that add the most references per token, as long as there is room."""
        kept = set(start)
        room = self._room - sum(self.units[index].tokens for index in kept)
        if room < 0:
            return set()
        covered = set[int]().union(*(self._covers[index] for index in kept))
        waiting = set(self._covers) - kept - {without}
        while True:
            worth = [
                (len(self._covers[index] - covered) / self.units[index].tokens, -index)
                for index in waiting
                if self.units[index].tokens <= room
            ]
            most, negative = max(worth, default=(0.0, 0))
            if not most:
                return kept
            waiting.remove(-negative)
            kept.add(-negative)
            covered |= self._covers[-negative]
            room -= self.units[-negative].tokens

    def _empty(self) -> set[int]:
        """Delete the units that lose the fewest references per token, until the rest fits; then fill the remaining
        room."""
        kept = set(self._covers)
        copies: dict[int, int] = {}
        for index in kept:
            for number in self._covers[index]:
                copies[number] = copies.get(number, 0) + 1
        room = self._room - sum(self.units[index].tokens for index in kept)
        while room < 0 and kept:
            _, index = min(
                (
                    sum(copies[number] == 1 for number in self._covers[index]) / self.units[index].tokens,
                    index,
                )
                for index in kept
            )
            kept.remove(index)
            room += self.units[index].tokens
            for number in self._covers[index]:
                copies[number] -= 1
        return self._fill(kept)
