"""The pages of an undo. The first lists what a plan deleted, in the groups of its review: some of it can be ticked, or
one group, or all of it. The second shows what would come back and how, requires the confirmations, and does it.

    by = reason | tool | file | turn          the groups
    only = missed | large | unopened          only these deletions
    q = TEXT or /PATTERN/                     only those that contain it
    open = KEY, rows = N                      the group whose rows are shown, and how many of them
    entry = ID, …                             what is ticked
    choice = shown, group = KEY, all = 1      the second page: for what is ticked, for a group, for everything; also
                                              for entries alone, without the fields of the list

All of these are fields of one form, so that ticks are kept while groups are opened and rows are searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.changes.forms import ConfirmForm
from compaction_app.changes.undo import (
    CompactionState,
    compaction_state,
    planned,
    texts_with,
    undo as undo_compaction,
    undo_of_run,
    undo_rows,
)
from compaction_app.core.file_touches import touch_of
from compaction_app.core.gates import Refusal
from compaction_app.core.groups import Grouping, group_key
from compaction_app.core.patterns import Pattern
from compaction_app.core.undo_ways import UndoWay
from compaction_app.entries.view import EntryWords, call_path, call_words
from compaction_app.lookups import compaction_of, known_run
from compaction_app.models import Compaction, Run
from compaction_app.planning.snapshots import is_prepared
from compaction_app.review.account import ReviewAccount, ReviewUnit, StruckMap, account_of, struck_map
from compaction_app.review.grouped_review import NO_FILE, ReviewFilter, filter_of
from sessions_app.document.document import Document
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import NO_TEXTS, BlockType, Entry, Texts, call_parts
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.pages import redirect, require_valid, status_of, view_or_fault

ROWS: Final = 60
"""The number of rows that a group shows at first, and that each press of its button adds."""
LARGE: Final = 500
"""More tokens than this make a deletion a large one."""
EXAMPLES: Final = 3
CHOICE: Final = "choice"
"""The name of the button that shows what would come back: a request with it needs something that is ticked."""
MISSED: Final = "Asked for again since then"
PAIRED: Final = "Belongs to another deletion"
ONLY: Final = {"missed": "Missed since", "large": f"Over {LARGE} tokens", "unopened": "Not opened then"}
"""The chips that narrow the list."""
GROUPINGS: Final = {
    Grouping.REASON: "Reason",
    Grouping.TOOL: "Tool",
    Grouping.FILE: "File",
    Grouping.TURN: "Turn",
}


# ---- what was deleted --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeletedUnit:
    """What one decision deleted and is still deleted. Tokens are in the measure of the context."""

    entry_id: str
    """Bringing it back brings back all of the unit, and what belongs with it."""
    tool: str
    words: str
    path: str
    """The file that its call names; empty if it names none."""
    reason: str
    turn: int
    tokens: int
    is_opened: bool
    is_missed: bool
    """Whether the agent asked for the same again since."""
    is_reachable: bool
    """Whether it can be brought back: it was not summarised since."""

    def is_in(self, only: str) -> bool:
        """Whether a chip shows it."""
        return {
            "missed": self.is_missed,
            "large": self.tokens > LARGE,
            "unopened": not self.is_opened,
        }.get(only, True)

    def group(self, by: Grouping) -> str:
        """The title of its group."""
        if by is Grouping.TOOL:
            return self.tool
        if by is Grouping.FILE:
            return self.path or NO_FILE
        if by is Grouping.TURN:
            return f"Turn {self.turn:,}" if self.turn else "Before the first turn"
        return MISSED if self.is_missed else self.reason

    @property
    def example(self) -> str:
        return Path(self.path).name if self.path else self.words


@dataclass(frozen=True, slots=True)
class StillDeleted:
    """What a compaction still deletes in the present session."""

    compaction: Compaction
    present: Document
    state: CompactionState
    without: ActiveContext
    """The context without the compaction."""

    @classmethod
    def of(cls, compaction: Compaction) -> StillDeleted:
        """Raises the errors of `compaction_state` and of reading the session."""
        present = Document.of_session(compaction.session)
        state = compaction_state(compaction, present)
        return cls(compaction, present, state, present.reading.reader.rebuild(state.branch))

    def texts(self, entries: Sequence[Entry]) -> dict[str, Texts]:
        """The texts of deleted entries, wherever they are now."""
        return texts_with(self.compaction, self.state.targets, self.present, entries)


@dataclass(frozen=True, slots=True)
class LaterCalls:
    """The calls that the agent made after a plan was saved: the files that it read, and all of them in words."""

    paths: Mapping[str, datetime | None]
    calls: Mapping[tuple[str, str], datetime | None]

    def asks_for(self, tool: str, words: str, path: str) -> bool:
        """Whether one of them is the same call, or reads the same file."""
        return path in self.paths or (tool, words) in self.calls


def later_calls(deleted: StillDeleted) -> LaterCalls:
    """The calls since a compaction, in the session that continued from it. Raises the errors of reading it."""
    paths: dict[str, datetime | None] = {}
    calls: dict[tuple[str, str], datetime | None] = {}
    document, created = deleted.present, deleted.state.created
    if created is not None and document.agent.store.state(created) is not None:
        document = Document.to_change(created)
    since, project = deleted.compaction.written_at, deleted.compaction.session.cwd
    later = [
        message
        for message in document.context(document.leaf_id).messages
        if message.entry.moment is not None and message.entry.moment > since
    ]
    texts = document.texts([message.source for message in later])
    for message in later:
        for block in message.blocks or ():
            if block.type != BlockType.TOOL_CALL:
                continue
            text = texts.get(message.source.id, NO_TEXTS).block(block.index)
            touch = touch_of(*call_parts(text, block.call_id or ""))
            if touch is not None and touch.reads:
                paths[call_path(text, block.call_id or "", project)] = message.entry.moment
            calls[call_words(text, block.call_id or "", project)] = message.entry.moment
    return LaterCalls(paths, calls)


def units_of(deleted: StillDeleted, account: ReviewAccount | None) -> list[DeletedUnit]:
    """What a plan deleted and is still deleted: the units of its review, then entries without one."""
    entry_ids = dict.fromkeys(target.entry_id for target in deleted.state.targets)
    context = {message.entry.id: message for message in deleted.without.messages}
    later = later_calls(deleted)
    found: list[DeletedUnit] = []
    covered: set[str] = set()
    for unit in account.approved if account is not None and not account.is_unread else ():
        together = [unit.target, *unit.followers]
        entry_id = next((target.entry_id for target in together if target.entry_id in entry_ids), "")
        covered.update(target.entry_id for target in together)
        if entry_id:
            found.append(_unit(unit, entry_id, later, is_reachable=entry_id in context))
    rest = [entry_id for entry_id in entry_ids if entry_id not in covered]
    return [*found, *_units_without_review(deleted, rest, context)]


def _unit(unit: ReviewUnit, entry_id: str, later: LaterCalls, *, is_reachable: bool) -> DeletedUnit:
    line = unit.line
    return DeletedUnit(
        entry_id,
        line.tool,
        line.words,
        line.path,
        unit.title,
        unit.turn,
        unit.tokens,
        unit.is_opened,
        later.asks_for(line.tool, line.words, line.path),
        is_reachable,
    )


def _units_without_review(
    deleted: StillDeleted, entry_ids: Sequence[str], context: Mapping[str, Message]
) -> Iterator[DeletedUnit]:
    """Deleted entries that no unit has: all of them, if the session cannot be read as it was reviewed."""
    there = [context[entry_id] for entry_id in entry_ids if entry_id in context]
    texts = deleted.texts([message.source for message in there])
    reasons = {raw["entryId"]: raw["reason"] for raw in deleted.compaction.origins}
    size = deleted.compaction.session.context_size
    for entry_id in entry_ids:
        message = context.get(entry_id)
        words = EntryWords(entry_id, "entry", "", 0)
        if message is not None:
            words = EntryWords.of_message(message, texts.get(message.source.id, NO_TEXTS))
        tokens = size.of(words.tokens) if size is not None else words.tokens
        reason = reasons.get(entry_id, "") or PAIRED
        is_there = message is not None
        yield DeletedUnit(entry_id, words.author, words.words, "", reason, 0, tokens, False, False, is_there)


# ---- the list ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """Deletions that are shown together; `rows` are those that are shown now."""

    title: str
    units: Sequence[DeletedUnit]
    rows: Sequence[DeletedUnit] = ()

    @property
    def key(self) -> str:
        return group_key(self.title)

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def left(self) -> int:
        """The number of rows that are not shown, if any are."""
        return len(self.units) - len(self.rows)

    @property
    def next_rows(self) -> int:
        return len(self.rows) + ROWS

    @property
    def examples(self) -> str:
        """The most frequent files, or beginnings of texts."""
        named = Counter(unit.example for unit in self.units if unit.example)
        return ", ".join(name[:40] for name, _ in named.most_common(EXAMPLES))


@dataclass(frozen=True)
class DeletedList:
    """What a plan deleted, as the first page lists it."""

    units: Sequence[DeletedUnit]
    chosen: ReviewFilter
    only: str
    opened: str
    """The key of the group whose rows are shown; empty for the one of what was asked for again."""
    shown: int
    """The number of its rows that are shown at most."""
    ticked: frozenset[str]

    @cached_property
    def matching(self) -> list[DeletedUnit]:
        """The deletions with the text or pattern. Raises BadInput if it cannot be used."""
        pattern = self.chosen.pattern()
        if isinstance(pattern, Refusal):
            raise BadInput(pattern.code.value, pattern.message)
        return [unit for unit in self.units if pattern is None or _has(unit, pattern)]

    @cached_property
    def groups(self) -> list[DeletedGroup]:
        """The groups of what is shown: the one that was asked for again first, then by tokens."""
        by_title: dict[str, list[DeletedUnit]] = {}
        for unit in self.matching:
            if unit.is_in(self.only):
                by_title.setdefault(unit.group(self.chosen.by), []).append(unit)
        found = [DeletedGroup(title, sorted(units, key=lambda unit: -unit.tokens)) for title, units in by_title.items()]
        found.sort(key=lambda group: (group.title != MISSED, -group.tokens))
        opened = self.opened or group_key(MISSED)
        if not self.opened and self.chosen.q and len(found) == 1:
            opened = found[0].key
        return [replace(one, rows=one.units[: self.shown]) if one.key == opened else one for one in found]

    @property
    def chips(self) -> list[tuple[str, str, int]]:
        """The chips: name, words, and how many deletions each shows."""
        return [(name, words, sum(unit.is_in(name) for unit in self.matching)) for name, words in ONLY.items()]

    @property
    def hidden_ticks(self) -> list[str]:
        """The ticked entries without a row."""
        rows = {unit.entry_id for group in self.groups for unit in group.rows}
        return sorted(self.ticked - rows)

    @property
    def ticked_units(self) -> list[DeletedUnit]:
        return [unit for unit in self.units if unit.entry_id in self.ticked]

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def ticked_tokens(self) -> int:
        return sum(unit.tokens for unit in self.ticked_units)

    @property
    def missed(self) -> list[DeletedUnit]:
        return [unit for unit in self.units if unit.is_missed]

    def group(self, key: str) -> DeletedGroup | None:
        return next((group for group in self.groups if group.key == key), None)


def _has(unit: DeletedUnit, pattern: Pattern) -> bool:
    return any(map(pattern.found_in, (f"{unit.tool} {unit.words}", unit.path, unit.reason)))


def list_of(deleted: StillDeleted, account: ReviewAccount | None, fields: QueryDict) -> DeletedList:
    """The list for the fields of the page's form. Without any, what was asked for again is ticked."""
    units = units_of(deleted, account)
    ticked = frozenset(fields.getlist("entry"))
    if not fields:
        ticked = frozenset(unit.entry_id for unit in units if unit.is_missed and unit.is_reachable)
    rows = fields.get("rows", "")
    given = {name: fields.getlist(name)[-1] for name in fields if fields.getlist(name)}
    return DeletedList(
        units=units,
        chosen=filter_of({"by": given.get("by", ""), "q": given.get("q", "")}),
        only=given["only"] if given.get("only") in ONLY else "",
        opened=given.get("open", ""),
        shown=min(int(rows), len(units)) if rows.isascii() and rows.isdigit() and len(rows) < 6 else ROWS,
        ticked=ticked,
    )


# ---- what would come back ----------------------------------------------------------------------------------


def view_undo(compaction: Compaction, chosen: Collection[str], now: datetime) -> dict[str, Any]:
    """The effect an undo of a compaction, or of chosen entries, would have now, for its page.

    `partners` is the number of deletions that are reverted because they belong with the chosen ones, such as a result
    with its call; `back` is the number of entries that come back, in whole or in part. Raises the errors of
    `plan_undo`.
    """
    plan = planned(undo_of_run(compaction, chosen), now)
    back = list(dict.fromkeys(target.entry_id for target in plan.back))
    context = {message.entry.id: message for message in plan.without.messages}
    shown = [context[entry_id] for entry_id in back[:ROWS] if entry_id in context]
    texts = texts_with(compaction, plan.state.targets, plan.present, [message.source for message in shown])
    return {
        "plan": plan,
        "entries": [
            (EntryWords.of_message(message, texts.get(message.source.id, NO_TEXTS)), message.entry.id in chosen)
            for message in shown
        ],
        "more": len(back) - len(shown),
        "is_part": bool(chosen),
        "partners": len(set(plan.back) - set(plan.wanted)),
        "back": len(back),
        "removed": str(plan.state.created) if plan.way is UndoWay.REMOVAL else "",
    }


# ---- the views ---------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
def undo(request: HttpRequest, run: int) -> HttpResponse:
    """List what a plan deleted; show what would come back; bring it back once the confirmations are given."""
    found = known_run(run)
    compaction = compaction_of(found)
    if request.method != "POST":
        return _show_asked(request, found, compaction)
    chosen = request.POST.getlist("entry")
    form = ConfirmForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        undone = undo_compaction(undo_of_run(compaction, chosen), data["yes"], timezone.now(), shown=data["plan"])
    except RedlineError as fault:
        return _show(request, found, compaction, chosen, fault, form)
    messages.success(request, render_to_string("undo/done.html", {"undone": undone}), extra_tags="done")
    return redirect("compaction:result", found.pk)


def _show_asked(request: HttpRequest, run: Run, compaction: Compaction) -> HttpResponse:
    """The second page if its fields ask for it, otherwise the list."""
    fields = request.GET
    chosen = fields.getlist("entry")
    if "all" in fields:
        return _show(request, run, compaction, [])
    if chosen and (CHOICE in fields or "by" not in fields):
        return _show(request, run, compaction, chosen)
    try:
        account = account_of(run) if is_prepared(run) else None
        listed = list_of(StillDeleted.of(compaction), account, fields)
        group = listed.group(fields.get("group", ""))
    except RedlineError as fault:
        return _show(request, run, compaction, [], fault)
    if group is not None:
        return _show(request, run, compaction, [unit.entry_id for unit in group.units if unit.is_reachable])
    return render(request, "undo/choose.html", _context(run, compaction) | _list_context(listed, account, fields))


def _list_context(listed: DeletedList, account: ReviewAccount | None, fields: QueryDict) -> dict[str, Any]:
    drawn: StruckMap | None = None
    if account is not None and not account.is_unread:
        drawn = struck_map(account.transcript, account.review)
    return {
        "listed": listed,
        "groupings": GROUPINGS.items(),
        "is_choice_missing": CHOICE in fields,
        "account": account,
        "map": drawn,
        "with_them": listed.ticked_tokens + (account.after.tokens if account is not None else 0),
    }


def _context(run: Run, compaction: Compaction) -> dict[str, Any]:
    return {"run": run, "compaction": compaction, "rows": undo_rows(compaction), "active_nav": "history"}


def _show(
    request: HttpRequest,
    run: Run,
    compaction: Compaction,
    chosen: list[str],
    fault: RedlineError | None = None,
    form: ConfirmForm | None = None,
) -> HttpResponse:
    view, fault = view_or_fault(lambda: view_undo(compaction, chosen, timezone.now()), fault)
    plan = view["plan"] if view is not None else None
    form = (form or ConfirmForm()).of_shown(plan)
    context = {
        "view": view,
        "chosen": chosen,
        "fault": fault,
        "form": form,
        "missing": form.missing(plan, fault),
    }
    return render(request, "undo/undo.html", _context(run, compaction) | context, status=status_of(fault))
