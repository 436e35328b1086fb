"""The account of a review: each decided unit with its removed tokens, its proposer and reason, its approver and time.

Confirm, the result and the exports are made from it, so their numbers are the same. `LastLook` has the units that
Confirm shows: the largest, the others by group, those that were never opened, and what of that needs the reviewer's
yes. The largest unopened ones can be shown with the beginnings of their texts, as a spot check. `struck_map` draws the
transcript as a token map with the deletions struck through. `review_document` and `review_markdown` are the exports.

Texts of sessions are hostile. In the Markdown they are code spans, so that nothing in them is markup, and control
characters are shown as escapes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

from compaction_app.core import effects
from compaction_app.core.groups import Grouping, group_key
from compaction_app.core.reasons import has_names_only_there
from compaction_app.core.review_fold import Approval, Review, Reviewer, ReviewItem, ReviewStatus, approvals
from compaction_app.core.token_map import KINDS, Piece, Share, TokenMap, draw, pieces_of
from compaction_app.core.transcript import Transcript
from compaction_app.entries.view import joined_in_short
from compaction_app.models import Compaction, Proposal, Run
from compaction_app.planning.snapshots import read_snapshot_texts, snapshot_of
from compaction_app.runs.commands import opened_targets
from compaction_app.runs.reviews import decisions_in_force, reviewed
from sessions_app.cli import printable
from sessions_app.sessionlog.context import ContextSize, apportion, significant
from sessions_app.sessionlog.entries import Target, Texts
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.text import plural, without_images

from .grouped_review import GroupTitles
from .lines import UNKNOWN, Outline, ProposalLine, anchor, lines_of, ref_of


@dataclass(frozen=True, slots=True)
class ReviewUnit:
    """The object of one decision: a leading item of the review. Tokens are in the measure of the session's context."""

    item: ReviewItem
    line: ProposalLine
    title: str
    """The reason without its particulars: the title of its group."""
    why: str
    """The particulars of the reason, which distinguish it within its group."""
    turn: int
    tokens: int
    """The tokens removed by deciding it, with those deleted with it; for a rejected unit, those it would have
    removed."""
    pair_tokens: int
    """Of these, the tokens of objects merely deleted with it."""
    approval: Approval | None
    is_opened: bool
    followers: Sequence[Target] = ()
    """What is decided with it."""

    @property
    def target(self) -> Target:
        return self.item.target

    @property
    def because(self) -> str:
        """The short reason of the proposal: its particulars, otherwise the title of its group."""
        return self.title if self.why in ("", f"turn {self.turn}") else self.why

    @property
    def is_undecided(self) -> bool:
        return self.item.standing is ReviewStatus.UNDECIDED

    @property
    def is_kept(self) -> bool:
        return self.item.standing in effects.STAYING

    @property
    def is_approved(self) -> bool:
        return not (self.is_undecided or self.is_kept)

    @property
    def is_bulk(self) -> bool:
        """Whether it was approved together with others; objects deleted with their pair were not decided alone
        either."""
        return self.is_approved and (self.approval is None or self.approval.is_bulk)

    @property
    def place(self) -> str:
        """The query and the fragment of its place in the review."""
        query = f"?at={ref_of(Target(self.target.entry_id))}"
        return f"{query}#{anchor(self.item.position, self.target)}"

    @property
    def reason(self) -> str:
        return self.item.origin.reason if self.item.origin is not None else ""

    @property
    def call(self) -> int:
        """The number of the planner's call that proposed it; 0 if none did."""
        return self.item.origin.call if self.item.origin is not None else 0


@dataclass(frozen=True)
class ReviewAccount:
    """All units of a review, in the order of the plan, and the resulting plan."""

    run: Run
    version: int
    transcript: Transcript
    review: Review
    units: Sequence[ReviewUnit]
    before: ContextSize
    """The size of the planned context."""
    is_unread: bool
    """Whether the session has changed since, so that its texts can no longer be shown."""

    @property
    def after(self) -> ContextSize:
        """The size of the context without the approved deletions."""
        return self.before.without(effects.removed_estimate(self.transcript, self.review.goes))

    @property
    def struck(self) -> int:
        """The tokens that the approved plan removes: the sum of its units."""
        return sum(unit.tokens for unit in self.approved)

    @property
    def approved(self) -> list[ReviewUnit]:
        return [unit for unit in self.units if unit.is_approved]

    @property
    def undecided(self) -> list[ReviewUnit]:
        return [unit for unit in self.units if unit.is_undecided]

    @property
    def kept(self) -> list[ReviewUnit]:
        return [unit for unit in self.units if unit.is_kept]

    @property
    def entries(self) -> int:
        """The number of entries that the approved plan removes as a whole."""
        return sum(target.block_index is None for target in self.review.goes)

    @property
    def blocks(self) -> int:
        """The number of blocks that it removes individually."""
        return len(self.review.goes) - self.entries

    @cached_property
    def kinds(self) -> list[AmountRow]:
        return _rows(self, effects.sums_by_kind(self.transcript, self.review.goes), KINDS)

    @cached_property
    def tools(self) -> list[AmountRow]:
        return _rows(self, _most(effects.sums_by_tool(self.transcript, self.review.goes)), {})


def account_of(run: Run) -> ReviewAccount:
    """The account of a run's review, even if its session can no longer be read. Raises BadInput `not_prepared`."""
    reviewer, review, version, _, mark = reviewed(run)
    transcript = reviewer.transcript
    parts: defaultdict[Target, list[effects.PlanPart]] = defaultdict(list)
    for part in effects.plan_parts(transcript, review):
        parts[part.leader].append(part)
    leads = list(review.leads())
    lines: Mapping[Target, ProposalLine] = {}
    is_unread = False
    try:
        lines = lines_of(run, mark, transcript, leads)
    except RedlineError:
        is_unread = True
    outline = Outline(transcript, review)
    titles = GroupTitles(outline, lines)
    approved = approvals((made.step, made.at) for made in decisions_in_force(run))
    opened = opened_targets(run)
    size = run.context_size
    estimates = {item.target: _estimate(reviewer, item, parts.get(item.target, ())) for item in leads}
    tokens = effects.in_measure(size, review, {target: whole for target, (whole, _) in estimates.items()})
    units = []
    for item in leads:
        together = [item.target, *review.followers.get(item.target, ())]
        units.append(
            ReviewUnit(
                item=item,
                line=lines.get(item.target, UNKNOWN),
                title=titles.reason(item),
                why=titles.why(item, Grouping.REASON),
                turn=outline.turn_number(item.position),
                tokens=tokens[item.target],
                pair_tokens=size.of(estimates[item.target][1]),
                approval=next((approved[one] for one in together if one in approved), None),
                is_opened=not opened.isdisjoint(together),
                followers=together[1:],
            )
        )
    return ReviewAccount(run, version, transcript, review, units, size, is_unread)


def _estimate(reviewer: Reviewer, item: ReviewItem, parts: Sequence[effects.PlanPart]) -> tuple[int, int]:
    """The estimated tokens that a unit removes, and of these, the tokens merely deleted with it."""
    if not parts and item.standing in effects.STAYING:
        return effects.full_effect(reviewer.transcript, reviewer, item.target), 0
    return sum(part.cell.tokens for part in parts), sum(part.cell.tokens for part in parts if not part.is_own)


# ---- confirm ----------------------------------------------------------------------------

LARGEST: Final = 10
"""The number of units that are listed individually."""
TOOLS: Final = 12
"""The number of tools that have a separate row."""
SAMPLE: Final = 5
"""The number of units of a group that a spot check shows."""
SAMPLE_LINES: Final = 24
SAMPLE_CHARACTERS: Final = 2_000
"""The number of characters of a text that a spot check shows."""
UNOPENED: Final = "unopened"
"""The key of the units that were never opened, and the name of the confirmation that they need."""
UNREAD_NAMES: Final = "names"
"""The same for the units that have names mentioned nowhere else and were never opened."""
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
class UnitGroup:
    """Units that are shown together, such as those with one reason, and their sums."""

    title: str
    key: str
    """Identifies it in addresses."""
    units: Sequence[ReviewUnit]
    kept: int = 0
    """Units with the same reason that are kept."""

    @property
    def count(self) -> int:
        return len(self.units)

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def opened(self) -> int:
        return sum(unit.is_opened for unit in self.units)

    @property
    def unopened(self) -> list[ReviewUnit]:
        """The largest unopened units."""
        found = [unit for unit in self.units if not unit.is_opened]
        return sorted(found, key=lambda unit: -unit.tokens)[:SAMPLE]

    @property
    def in_bulk(self) -> int:
        return sum(unit.is_bulk for unit in self.units)

    @property
    def singly(self) -> int:
        return self.count - self.in_bulk

    @property
    def calls(self) -> tuple[int, int]:
        """The first and the last call of the planner that proposed some of them; 0 if none did."""
        calls = [unit.call for unit in self.units if unit.call]
        return (min(calls), max(calls)) if calls else (0, 0)

    @property
    def proposer(self) -> str:
        """Their proposer, if it was not a call of the planner."""
        sources = {unit.item.source for unit in self.units}
        if sources == {Proposal.Source.HOOK}:
            return "a hook"
        return "you" if sources == {Proposal.Source.HUMAN} else "an earlier plan"


def groups_of(units: Iterable[ReviewUnit], kept: Iterable[ReviewUnit] = ()) -> list[UnitGroup]:
    """The units by reason, the largest group first, with the number of kept units of each reason."""
    found: dict[str, list[ReviewUnit]] = {}
    for unit in units:
        found.setdefault(unit.title, []).append(unit)
    left = Counter(unit.title for unit in kept)
    groups = [UnitGroup(title, group_key(title), found.get(title, ()), left[title]) for title in {**found, **left}]
    return sorted(groups, key=lambda group: (-group.tokens, group.title))


@dataclass(frozen=True)
class LastLook:
    """The units that Confirm shows, and their totals."""

    account: ReviewAccount
    units: Sequence[ReviewUnit]
    """The deleted units, or those that would be deleted if everything undecided were approved."""

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def percent(self) -> int:
        """The share of the context that the units have, in percent."""
        before = self.account.before.tokens
        return round(100 * self.tokens / before) if before else 0

    @property
    def percent_left(self) -> int:
        return 100 - self.percent

    @property
    def pair_tokens(self) -> int:
        """The tokens of objects that are merely deleted with others."""
        return sum(unit.pair_tokens for unit in self.units)

    @cached_property
    def largest(self) -> list[ReviewUnit]:
        return sorted(self.units, key=lambda unit: -unit.tokens)[:LARGEST]

    @property
    def largest_tokens(self) -> int:
        return sum(unit.tokens for unit in self.largest)

    @property
    def largest_percent(self) -> int:
        return round(100 * self.largest_tokens / self.tokens) if self.tokens else 0

    @property
    def largest_opened(self) -> int:
        return sum(unit.is_opened for unit in self.largest)

    @cached_property
    def others(self) -> UnitGroup:
        """The units that are not among the largest, as one group."""
        largest = {unit.target for unit in self.largest}
        return UnitGroup("", "", [unit for unit in self.units if unit.target not in largest])

    @cached_property
    def groups(self) -> list[UnitGroup]:
        """The units that are not among the largest, by reason; the largest group first."""
        return groups_of(self.others.units)

    @cached_property
    def unopened(self) -> UnitGroup:
        """The units that were never opened."""
        return UnitGroup("what you did not open", UNOPENED, [unit for unit in self.units if not unit.is_opened])

    @cached_property
    def unread_names(self) -> UnitGroup:
        """The unopened units whose reason states that some names occur in no kept entry."""
        found = [unit for unit in self.unopened.units if has_names_only_there(unit.reason)]
        return UnitGroup("what has names mentioned nowhere else", UNREAD_NAMES, found)

    def group(self, key: str) -> UnitGroup | None:
        """The group with this key; None if there is none."""
        return next((one for one in (*self.groups, self.unopened, self.unread_names) if one.key == key), None)

    @property
    def in_bulk(self) -> UnitGroup:
        """The units approved in bulk, or undecided, as one group."""
        return UnitGroup("", "", [unit for unit in self.units if unit.is_undecided or unit.is_bulk])

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
    def kept_tokens(self) -> int:
        return sum(unit.tokens for unit in self.account.kept)


def last_look(account: ReviewAccount) -> LastLook:
    """The summary of the approved units."""
    return LastLook(account, account.approved)


def undecided_look(account: ReviewAccount) -> LastLook:
    """The summary of the units that would also be approved: all undecided ones."""
    return LastLook(account, account.undecided)


def _rows(account: ReviewAccount, sums: Sequence[effects.KindSum], names: Mapping[str, str]) -> list[AmountRow]:
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


def _most(sums: Sequence[effects.KindSum]) -> list[effects.KindSum]:
    """The tools with the most struck tokens; the others as one row, and content that belongs to no tool."""
    found = [one for one in sums if one.name]
    rest = [one for one in sums if not one.name]
    others, shown = found[TOOLS:], found[:TOOLS]
    if others:
        name = plural(len(others), "other")
        shown.append(effects.KindSum(name, sum(one.struck for one in others), sum(one.stays for one in others)))
    return [*shown, *(one._replace(name=NO_TOOL) for one in rest)]


def samples_of(account: ReviewAccount, units: Iterable[ReviewUnit]) -> list[dict[str, Any]]:
    """Units with the beginnings of their texts, for the page.

    Raises Conflict `session_rewritten` and the errors of reading.
    """
    shown = [unit for unit in units if unit.item.position >= 0]
    entries = [account.transcript.entries[unit.item.position] for unit in shown]
    prepared = snapshot_of(account.run).prepared
    texts = read_snapshot_texts(account.run.session.real_path(), prepared, entries)
    found = []
    for unit in shown:
        whole = without_images(_text(account, unit.target, texts[unit.target.entry_id]))
        text = "\n".join(whole[:SAMPLE_CHARACTERS].splitlines()[:SAMPLE_LINES])
        found.append({"unit": unit, "text": text, "is_cut": len(text) < len(whole.rstrip())})
    return found


def _text(account: ReviewAccount, target: Target, texts: Texts) -> str:
    entry = account.transcript.entry(target.entry_id)
    if target.block_index is not None:
        return texts.block(target.block_index)
    return joined_in_short(texts, entry.blocks if entry is not None else None)


# ---- exports ---------------------------------------------------------------------------------------------

WORDS: Final = 160
"""The maximum length of a unit's line, and of its reason, in the Markdown. The JSON has the full texts."""
_BACKTICKS: Final = re.compile("`+")
_STATUS: Final = {
    ReviewStatus.UNDECIDED: "undecided",
    ReviewStatus.APPROVED: "approved",
    ReviewStatus.REJECTED: "rejected",
    ReviewStatus.GOES_WITH_PAIR: "deleted with its pair",
    ReviewStatus.KEPT_WITH_PAIR: "kept with its pair",
    ReviewStatus.REFUSED: "refused",
    ReviewStatus.NARROWED: "narrowed",
}


def review_document(account: ReviewAccount, compaction: Compaction | None) -> dict[str, Any]:
    """The review as a JSON document. Tokens are in the measure of the context, whose basis is named."""
    run = account.run
    return {
        "run": run.pk,
        "session": str(run.session.path),
        "agent": run.session.agent.key,
        "planner": run.planner,
        "state": run.state,
        "version": account.version,
        "tokens": {
            "before": account.before.tokens,
            "beforeBasis": str(account.before.basis),
            "struck": account.struck,
            "after": account.after.tokens,
            "afterBasis": str(account.after.basis),
        },
        "textsReadable": not account.is_unread,
        "entries": account.entries,
        "blocks": account.blocks,
        "kinds": [_amount(row) for row in account.kinds],
        "tools": [_amount(row) for row in account.tools],
        "proposals": [_unit(unit) for unit in account.units],
        "compaction": None if compaction is None else _compaction(compaction),
        "notes": run.notes,
    }


def _amount(row: AmountRow) -> dict[str, Any]:
    return {"name": row.name, "before": row.before, "struck": row.struck, "stays": row.stays}


def _unit(unit: ReviewUnit) -> dict[str, Any]:
    origin, approval = unit.item.origin, unit.approval
    return {
        **unit.target.to_json(),
        "turn": unit.turn,
        "tool": unit.line.tool,
        "words": unit.line.words,
        "status": str(unit.item.standing),
        "tokens": unit.tokens,
        "tokensOfPair": unit.pair_tokens,
        "group": unit.title,
        "reason": unit.reason,
        "proposedBy": {
            "source": unit.item.source,
            "call": origin.call if origin is not None else 0,
            "tool": origin.tool if origin is not None else "",
        },
        "approvedAt": _moment(approval.at) if approval is not None else None,
        "approvedTogether": approval.together if approval is not None else 0,
        "opened": unit.is_opened,
    }


def _compaction(compaction: Compaction) -> dict[str, Any]:
    return {
        "entryId": compaction.entry_id,
        "writer": compaction.writer,
        "writtenAt": _moment(compaction.written_at),
        "created": compaction.created,
        "backup": compaction.backup.path,
        "backupSha256": compaction.backup.sha256,
    }


# ---- Markdown ----------------------------------------------------------------------------------------------


def review_markdown(account: ReviewAccount, compaction: Compaction | None) -> str:
    """The review as Markdown."""
    return "\n".join(_lines(account, compaction)) + "\n"


def _lines(account: ReviewAccount, compaction: Compaction | None) -> Iterator[str]:
    run = account.run
    yield f"# Review of plan {run.pk}"
    yield ""
    yield f"- Session: {_code(str(run.session.path))}"
    yield f"- Agent: {_code(run.session.agent.label)}"
    yield f"- Planner: {_code(run.planner)}"
    yield (
        f"- Context: {account.before} before, {account.after} after; about "
        f"{plural(significant(account.struck), 'token')} deleted"
    )
    yield (
        f"- {len(account.approved):,} approved, {len(account.kept):,} kept, {len(account.undecided):,} undecided; "
        f"{plural(account.entries, 'entry')} and {plural(account.blocks, 'block')} deleted"
    )
    if account.is_unread:
        yield "- The session has changed since: its texts cannot be shown any more"
    if compaction is not None:
        yield f"- Written: {_moment(compaction.written_at)} by {_code(compaction.writer)}"
        yield f"- Backup: {_code(compaction.backup.path)}, SHA-256 {compaction.backup.sha256}"
    for entry_id, words in run.notes.items():
        yield f"- Note in place of the deletion that begins with {_code(entry_id)}: {_code(words)}"
    for name, rows in (("Kind", account.kinds), ("Tool", account.tools)):
        yield from _amounts(name, rows, account)
    for name, units in (("Approved", account.approved), ("Kept", account.kept), ("Undecided", account.undecided)):
        if units:
            yield from _units(name, units)


def _amounts(name: str, rows: Sequence[AmountRow], account: ReviewAccount) -> Iterator[str]:
    yield from (
        "",
        f"## By {name.lower()}",
        "",
        f"| {name} | Before | Deleted | Kept |",
        "|---|---:|---:|---:|",
    )
    for row in rows:
        figures = " | ".join(f"{significant(tokens):,}" for tokens in (row.before, row.struck, row.stays))
        yield f"| {_code(row.name)} | {figures} |"
    yield f"| All | {account.before.shown:,} | {significant(account.struck):,} | {account.after.shown:,} |"


def _units(name: str, units: Sequence[ReviewUnit]) -> Iterator[str]:
    yield from ("", f"## {name}", "")
    yield "| Turn | What | Tokens | Reason | Proposed by | Decision | Opened |"
    yield "|---:|---|---:|---|---|---|---|"
    for unit in units:
        what = f"{unit.line.tool} {unit.line.words}"
        yield (
            f"| {unit.turn} | {_code(what)} | {significant(unit.tokens):,} | {_code(unit.reason)} | {_proposer(unit)} "
            f"| {_decision(unit)} | {'yes' if unit.is_opened else 'no'} |"
        )
    yield f"| | All {len(units):,} | {significant(sum(unit.tokens for unit in units)):,} | | | | |"


def _proposer(unit: ReviewUnit) -> str:
    return f"call {unit.call}" if unit.call else _code(unit.item.source)


def _decision(unit: ReviewUnit) -> str:
    status, approval = _STATUS[unit.item.standing], unit.approval
    if approval is None:
        return status
    together = f"with {plural(approval.together - 1, 'other')}" if approval.is_bulk else "alone"
    return f"{status} {_moment(approval.at)}, {together}"


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _code(text: str) -> str:
    """A text on one line as a code span, which contains no markup; in a table, a bar would end its cell."""
    line = printable(" ".join(text.split())).replace("|", "\\|")
    if not line:
        return ""
    shown = line if len(line) <= WORDS else f"{line[: WORDS - 1]}…"
    fence = "`" * (max(map(len, _BACKTICKS.findall(shown)), default=0) + 1)
    return f"{fence} {shown} {fence}"


_APPROVED, _OPEN, _STAYS = "user", "text", "custom"
"""The strike is drawn on the same grid, with kinds for the fate of a piece."""


@dataclass(frozen=True, slots=True)
class StruckMap:
    """The map, the strikes over it as paths, and the same in numbers."""

    ground: TokenMap
    approved: str
    undecided: str
    shares: list[Share]
    """The deleted tokens of each kind, and their part of it."""
    tokens: int
    before: list[int]
    """The amount drawn on the map before each entry, by its position, and then the total."""


def struck_map(transcript: Transcript, review: Review, total: int | None = None) -> StruckMap:
    """The map of a transcript under a review. `total` is the deleted amount in another measure; None for the plan's."""
    pieces: list[Piece] = []
    strikes: list[Piece] = []
    kinds: dict[str, tuple[int, int]] = {}
    drawn = dict.fromkeys((entry.entry_id for entry in transcript.entries), 0)
    for piece, target in pieces_of(transcript, review.would_go):
        whole = Target(target.entry_id)
        fate = _STAYS
        if target in review.goes or whole in review.goes:
            fate = _APPROVED
        elif target in review.would_go or whole in review.would_go:
            fate = _OPEN
        pieces.append(piece)
        drawn[target.entry_id] += piece.tokens
        strikes.append(Piece(fate, piece.tokens))
        before, gone = kinds.get(piece.kind, (0, 0))
        kinds[piece.kind] = (before + piece.tokens, gone + (piece.tokens if fate != _STAYS else 0))
    paths = dict(draw(strikes).paths)
    found = [kind for kind in KINDS if kinds.get(kind, (0, 0))[1]]
    struck = [kinds[kind][1] for kind in found]
    tokens = sum(struck) if total is None else total
    return StruckMap(
        ground=draw(pieces),
        approved=paths.get(_APPROVED, ""),
        undecided=paths.get(_OPEN, ""),
        shares=[
            Share(kind, KINDS[kind], part, round(100 * kinds[kind][1] / max(1, kinds[kind][0]), 1))
            for kind, part in zip(found, apportion(tokens, struck), strict=True)
        ],
        tokens=tokens,
        before=list(accumulate(drawn.values(), initial=0)),
    )
