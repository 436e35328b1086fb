"""The page of an undo: the entries that would come back, the method, the required confirmations; and the undo."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.changes.forms import ConfirmForm
from compaction_app.changes.undo import UndoPlan, planned, texts_with, undo as undo_compaction, undo_of_run, undo_rows
from compaction_app.core.undo_ways import UndoWay
from compaction_app.entries.view import EntryWords
from compaction_app.lookups import compaction_of, known_run
from compaction_app.models import Compaction, Run
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import NO_TEXTS, Entry, Target, Texts
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.pages import redirect, require_valid, status_of, view_or_fault

SHOWN: Final = 200
"""The number of deleted entries that the page shows."""


def view_undo(compaction: Compaction, chosen: Collection[str], now: datetime) -> dict[str, Any]:
    """The effect an undo of a compaction, or of chosen entries, would have now, for its page.

    `partners` is the number of deletions that are reverted because they belong with the chosen ones, such as a result
    with its call; `back` is the number of entries that come back, in whole or in part. Raises the errors of
    `plan_undo`.
    """
    plan = planned(undo_of_run(compaction, chosen), now)
    by_entry: dict[str, list[Target]] = {}
    for target in plan.state.targets:
        by_entry.setdefault(target.entry_id, []).append(target)
    messages = {message.entry.id: message for message in plan.without.messages}
    order = [entry.id for entry in plan.state.branch if entry.id in by_entry]
    # Chosen entries are always shown, so that they can be unchosen.
    shown = [entry_id for place, entry_id in enumerate(order) if place < SHOWN or entry_id in chosen]
    texts = _texts(plan, [messages[entry_id].source for entry_id in shown if entry_id in messages])
    back = {target.entry_id for target in plan.back}
    return {
        "plan": plan,
        "entries": [
            _deleted_entry(by_entry[entry_id], messages.get(entry_id), texts, chosen, back) for entry_id in shown
        ],
        "more": len(order) - len(shown),
        "is_part": bool(chosen),
        "partners": len(set(plan.back) - set(plan.wanted)),
        "back": len(back),
        "removed": str(plan.state.created) if plan.way is UndoWay.REMOVAL else "",
    }


def _texts(plan: UndoPlan, entries: Sequence[Entry]) -> dict[str, Texts]:
    """The texts of entries that a compaction has deleted, wherever they are now."""
    state = plan.state
    if state.row is None:
        return plan.present.texts(entries)
    return texts_with(state.row, state.targets, plan.present, entries)


def _deleted_entry(
    targets: Iterable[Target],
    message: Message | None,
    texts: dict[str, Texts],
    chosen: Collection[str],
    back: Collection[str],
) -> dict[str, Any]:
    """An entry that is deleted, or has lost blocks, for the page."""
    indexes = {target.block_index for target in targets}
    entry_id = next(iter(targets)).entry_id
    said, blocks = EntryWords(entry_id, "entry", "", 0), 0
    if message is not None:
        if None not in indexes:
            lost = tuple(block for block in message.blocks or () if block.index in indexes)
            message = msgspec.structs.replace(message, blocks=lost, tokens=sum(block.tokens for block in lost))
            blocks = len(indexes)
        said = EntryWords.of_message(message, texts.get(message.source.id, NO_TEXTS))
    return {
        "said": said,
        # The number of its deleted blocks; 0 if all of it is deleted.
        "blocks": blocks,
        "is_chosen": entry_id in chosen,
        "comes_back": entry_id in back,
        # An entry that has been summarised since cannot be brought back.
        "is_reachable": message is not None,
    }


CHOICE: Final = "choice"
"""The name of the button that shows which entries would come back: a request with it needs chosen entries."""


@require_http_methods(["GET", "HEAD", "POST"])
def undo(request: HttpRequest, run: int) -> HttpResponse:
    """Show how a compaction, or chosen entries of it, would be undone; undo it once the confirmations are given."""
    found = known_run(run)
    compaction = compaction_of(found)
    chosen = (request.POST if request.method == "POST" else request.GET).getlist("entry")
    if request.method != "POST":
        return _show(request, found, compaction, chosen, is_choice_missing=CHOICE in request.GET and not chosen)
    form = ConfirmForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        undone = undo_compaction(undo_of_run(compaction, chosen), data["yes"], timezone.now(), shown=data["plan"])
    except RedlineError as fault:
        return _show(request, found, compaction, chosen, fault, form)
    messages.success(request, render_to_string("undo/done.html", {"undone": undone}), extra_tags="done")
    return redirect("compaction:result", found.pk)


def _show(
    request: HttpRequest,
    run: Run,
    compaction: Compaction,
    chosen: list[str],
    fault: RedlineError | None = None,
    form: ConfirmForm | None = None,
    *,
    is_choice_missing: bool = False,
) -> HttpResponse:
    view, fault = view_or_fault(lambda: view_undo(compaction, chosen, timezone.now()), fault)
    plan = view["plan"] if view is not None else None
    form = (form or ConfirmForm()).of_shown(plan)
    context = {
        "run": run,
        "compaction": compaction,
        "view": view,
        "rows": undo_rows(compaction),
        "chosen": chosen,
        "fault": fault,
        "form": form,
        "missing": form.missing(plan, fault),
        "is_choice_missing": is_choice_missing,
        "active_nav": "inbox",
    }
    return render(request, "undo/undo.html", context, status=status_of(fault))
