"""The embedded planner: it chooses deletions offline, without a model, and the same way each time.

    look:    the budget; a search for each of the most telling words of a query, if the user gave one
    choose:  units with the required tokens and little worth (see `choice` and `scoring`)
    delete:  the chosen units, in a few batches, each followed by the budget
    again:   choose once more if refusals or estimates left tokens to delete; stop if nothing is left

It acts only through the tools, and learns from refusals: the object that a refusal names is kept, and the rest of the
batch is requested again; if the refusal names none of them, the batch is halved. So every call deletes something, drops
something, or halves a batch, and the run ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.targets import Target, request_of

from .choice import EFFORT, choose
from .errors import Code, Refusal
from .loop import PlannedCall, PlannerTurn, Report
from .parameters import AUTO_DETECTED, QUERY_LENGTH
from .parameters import query as normal_query
from .reasons import ELSEWHERE, NO_NAMES, NOT_MENTIONED, ONLY_THERE, Supersession, repeat_words, swap_words
from .references import references
from .scoring import Unit, Worth
from .standing_lines import StandingLater
from .tools import SEARCH_MATCHES_LIMIT, ToolCall, ToolResult
from .transcript import Transcript
from .transcript_entries import WHOLE, Object

SEARCHES: Final = 8
WORD_LENGTH: Final = 5
BATCHES: Final = 10
BATCH_UNITS: Final = 25
"""A choice is deleted in at most BATCHES batches, each of at least this many units."""
LONG_TOKENS: Final = 1_000
"""An output of this many tokens is called long."""

_WORD: Final = re.compile(r"\w+")
_LOOK: Final = PlannedCall(ToolCall("context_compaction_budget", {}))


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
        return PlannerTurn([PlannedCall(ToolCall("context_delete", request_of(reasons)), reasons), _LOOK])

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
            if found.slot != WHOLE and (whole is None or not self._goes_with_result(found)):
                yield self._block_target(found, gone)

    def _goes_with_result(self, found: Object) -> bool:
        """Whether repair deletes a call's block with its result: an earlier block with the same id has to be named."""
        return self._transcript.pairs.made_in(self._transcript.entries[found.position], found.slot) is not None

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
            return f"{swap_words(_description(unit), stays)}; {_standing(index, worth)}"
        found = standing.get(unit.call) if unit.call is not None and unit.later is not None else None
        if found is not None and found.call is not None:
            touch, entry_id = found.call.touch, entries[found.call.position].entry_id
            return Supersession(touch.verb, touch.path, entry_id).words(found.standing)
        repeated_by = worth.repeated_by(index, self._out)
        if repeated_by is not None:
            return repeat_words(entries[worth.units[repeated_by].position].entry_id)
        if unit.kind == "output" and unit.output is None:
            return "an output that is empty"
        return _description(unit) if unit.kind == "part" else f"{_description(unit)}; {_standing(index, worth)}"


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


def _search(word: str) -> PlannedCall:
    arguments = {"pattern": word, "maxMatches": SEARCH_MATCHES_LIMIT, "contextChars": 0}
    return PlannedCall(ToolCall("context_search_transcript", arguments))


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


def _standing(index: int, worth: Worth) -> str:
    standing = worth.standing(index)
    if not standing.names:
        return NO_NAMES
    if not standing.mentioned_later:
        return NOT_MENTIONED
    if not standing.lost:
        return ELSEWHERE
    return f"{standing.lost} of the {standing.names} {ONLY_THERE}"
