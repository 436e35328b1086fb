"""PURE: the replay loss: the share of the references needed later that a plan would have deleted.

    branch ──cuts──▶ ReplayCut: a prefix, and what came after it ──needs──▶ Needs ──loss of a plan──▶ Loss

A branch is cut at 40, 60 and 80% of its messages, moved on past tool results. *Prefix*: the messages before the cut;
*future*: the messages after it, as many as the horizon. A reference is *needed* if the assistant writes it in the
future, it was not seen earlier in the future, and it stands in the prefix but not in its last two messages: the model
must have taken it from there. The loss is the share of the needed references that occur nowhere in the part of the
prefix that a plan keeps. Past sessions cannot show alternative actions of the agent, so the figure serves to compare
plans; it is not a probability. The measure (`names`) defines references and their places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from compaction_app.core.transcript import WHOLE, Object, Transcript, TranscriptEntry
from sessions_app.sessionlog.entries import BlockType, Entry, Role, Target, blocks_by_entry

from .names import NameIndex, ReplayMeasure

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


class Lost(NamedTuple):
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
        return Needs(self, measure, horizon, tuple(found)) if len(found) >= MINIMUM_NEEDED else None

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
    measure: ReplayMeasure
    horizon: int
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
    """A cut after which `whole` has replaced `prefix`: `at` entries of it correspond to the messages before."""
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
