"""The page before a commit: the deleted units, the unopened ones, and those approved in bulk.

The largest unopened units can be shown with the beginnings of their texts, as a spot check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compaction_app.core.effects import KindSum, sums_by_kind, sums_by_tool
from compaction_app.core.token_map import KINDS
from compaction_app.entries.view import joined_in_short
from compaction_app.planning.snapshots import read_snapshot_texts, snapshot_of
from sessions_app.sessionlog.context import apportion
from sessions_app.sessionlog.entries import Target, Texts
from sessions_app.sessionlog.text import plural, without_images

from .units import ReviewAccount, ReviewUnit

LARGEST: Final = 10
"""Units that are listed individually."""
TOOLS: Final = 12
"""Tools that have a separate row."""
SAMPLE: Final = 5
"""Units of a group that a spot check shows."""
SAMPLE_LINES: Final = 24
SAMPLE_CHARACTERS: Final = 2_000
"""Characters of a text that a spot check shows."""
NAMES_ONLY_THERE: Final = "what holds names found nowhere else"
NO_TOOL: Final = "no tool"
NOT_PLANNED: Final = "Not up for compaction"
"""The part of the context outside the entries of the plan, such as instructions and the descriptions of tools."""
NOT_SENT: Final = "Recorded, but not sent"
"""The content of the plan's entries that the context lacks."""


@dataclass(frozen=True, slots=True)
class AmountRow:
    """The struck tokens of one kind of content, or of one tool."""

    kind: str
    """One of KINDS; empty for a tool."""
    name: str
    struck: int
    stays: int

    @property
    def before(self) -> int:
        return self.struck + self.stays

    @property
    def percent(self) -> int:
        return round(100 * self.struck / self.before) if self.before else 0


@dataclass(frozen=True, slots=True)
class BulkGroup:
    """The units with one reason that were, or would be, approved together."""

    title: str
    key: str
    units: Sequence[ReviewUnit]

    @property
    def count(self) -> int:
        return len(self.units)

    @property
    def opened(self) -> int:
        return sum(unit.is_opened for unit in self.units)

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def unopened(self) -> list[ReviewUnit]:
        """The largest unopened units."""
        found = [unit for unit in self.units if not unit.is_opened]
        return sorted(found, key=lambda unit: -unit.tokens)[:SAMPLE]


@dataclass(frozen=True, slots=True)
class LastLook:
    """Units and their totals."""

    account: ReviewAccount
    units: Sequence[ReviewUnit]
    """The deleted units, or those that would be deleted if everything undecided were approved."""
    kinds: Sequence[AmountRow]
    tools: Sequence[AmountRow]

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def percent(self) -> int:
        """Their share of the context."""
        before = self.account.before.tokens
        return round(100 * self.tokens / before) if before else 0

    @property
    def percent_left(self) -> int:
        return 100 - self.percent

    @property
    def pair_tokens(self) -> int:
        """The tokens of objects that are merely deleted with others."""
        return sum(unit.pair_tokens for unit in self.units)

    @property
    def largest(self) -> list[ReviewUnit]:
        return sorted(self.units, key=lambda unit: -unit.tokens)[:LARGEST]

    @property
    def largest_tokens(self) -> int:
        return sum(unit.tokens for unit in self.largest)

    @property
    def largest_percent(self) -> int:
        return round(100 * self.largest_tokens / self.tokens) if self.tokens else 0

    @property
    def groups(self) -> list[BulkGroup]:
        """The units approved in bulk, or undecided, by reason; the largest first."""
        found: dict[str, list[ReviewUnit]] = {}
        for unit in self.units:
            if unit.is_undecided or unit.is_bulk:
                found.setdefault(unit.title, []).append(unit)
        groups = [BulkGroup(title, units[0].key, units) for title, units in found.items()]
        return sorted(groups, key=lambda group: (-group.tokens, group.title))

    @property
    def with_names_only_there(self) -> BulkGroup:
        """The units with names that occur nowhere else, however they were approved."""
        return BulkGroup(NAMES_ONLY_THERE, "names", [unit for unit in self.units if unit.has_names_only_there])

    def group(self, key: str) -> BulkGroup | None:
        """The group with this key; None if there is none."""
        return next((one for one in (*self.groups, self.with_names_only_there) if one.key == key), None)

    @property
    def in_bulk(self) -> BulkGroup:
        """All units as one group."""
        return BulkGroup("", "", [unit for group in self.groups for unit in group.units])

    @property
    def singly(self) -> int:
        """The number of units approved individually."""
        return len(self.units) - self.in_bulk.count

    @property
    def by_hand(self) -> list[ReviewUnit]:
        return [unit for unit in self.units if unit.item.added]

    @property
    def opened(self) -> int:
        return sum(unit.is_opened for unit in self.account.units)

    @property
    def never_opened(self) -> int:
        return sum(not unit.is_opened for unit in self.units)

    @property
    def kept_tokens(self) -> int:
        return sum(unit.tokens for unit in self.account.kept)


def last_look(account: ReviewAccount) -> LastLook:
    """The summary of the approved units."""
    transcript, goes = account.transcript, account.review.goes
    kinds = _rows(account, sums_by_kind(transcript, goes), KINDS)
    tools = _rows(account, _most(sums_by_tool(transcript, goes)), {})
    return LastLook(account, account.approved, kinds, tools)


def undecided_look(account: ReviewAccount) -> LastLook:
    """The summary of the units that would also be approved: all undecided ones."""
    return LastLook(account, account.undecided, (), ())


def _rows(account: ReviewAccount, sums: Sequence[KindSum], names: Mapping[str, str]) -> list[AmountRow]:
    """The rows in the measure of the context, to which they add up; `names` are those of kinds."""
    size = account.before
    struck = apportion(account.struck, [one.struck for one in sums])
    stays = size.shares([one.stays for one in sums])
    rows = [
        AmountRow(one.name if names else "", names.get(one.name, one.name), gone, left)
        for one, gone, left in zip(sums, struck, stays, strict=True)
    ]
    rest = size.tokens - sum(struck) - sum(stays)
    if rest:
        rows.append(AmountRow("", NOT_PLANNED if rest > 0 else NOT_SENT, 0, rest))
    return rows


def _most(sums: Sequence[KindSum]) -> list[KindSum]:
    """The tools with the most struck tokens; the others as one row, and content that belongs to no tool."""
    found = [one for one in sums if one.name]
    rest = [one for one in sums if not one.name]
    others, shown = found[TOOLS:], found[:TOOLS]
    if others:
        name = plural(len(others), "other")
        shown.append(KindSum(name, sum(one.struck for one in others), sum(one.stays for one in others)))
    return [*shown, *(one._replace(name=NO_TOOL) for one in rest)]


@dataclass(frozen=True, slots=True)
class UnitSample:
    """One unit with the beginning of its text."""

    unit: ReviewUnit
    text: str
    is_cut: bool


def samples_of(account: ReviewAccount, units: Iterable[ReviewUnit]) -> list[UnitSample]:
    """Units with their texts. Raises Conflict `session_rewritten` and the errors of reading."""
    shown = [unit for unit in units if unit.item.position >= 0]
    entries = [account.transcript.entries[unit.item.position] for unit in shown]
    prepared = snapshot_of(account.run).prepared
    texts = read_snapshot_texts(account.run.session.real_path(), prepared, entries)
    found = []
    for unit in shown:
        whole = without_images(_text(account, unit.target, texts[unit.target.entry_id]))
        text = "\n".join(whole[:SAMPLE_CHARACTERS].splitlines()[:SAMPLE_LINES])
        found.append(UnitSample(unit, text, len(text) < len(whole.rstrip())))
    return found


def _text(account: ReviewAccount, target: Target, texts: Texts) -> str:
    entry = account.transcript.entry(target.entry_id)
    if target.block_index is not None:
        return texts.block(target.block_index)
    return joined_in_short(texts, entry.blocks if entry is not None else None)
