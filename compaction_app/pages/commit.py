"""The tabs Confirm and Result of a plan. Confirm: what needs the reviewer's yes, how the plan is saved, the largest
deletions, and what it saves. Result: how to continue, the context before and after, what was checked, and the deleted
units by reason with their proposers and approvals.

Two confirmations belong to the page alone: that some deletions were never opened, and that some of these have names
mentioned nowhere else. The change itself requires the others (`ChangePlan.needs`). A saved plan can be checked again
against the present file, with the agent's own package if it is installed.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from django import forms
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.changes.change import CHANGE_IS_MADE, lines_of, write_facts
from compaction_app.changes.compaction import Preflight, approval, commit as commit_plan, preflight_of
from compaction_app.changes.forms import ConfirmationField, ConfirmForm, missing_in
from compaction_app.changes.proof import approved_messages, certificate_in
from compaction_app.changes.records import NOT_RECORDED
from compaction_app.changes.undo import undo_rows
from compaction_app.core.effects import tokens_back
from compaction_app.core.groups import only_here
from compaction_app.core.handshake_states import HandshakeState
from compaction_app.core.states import RunState
from compaction_app.core.stats import InputCost, input_cost
from compaction_app.core.token_map import draw, pieces_of
from compaction_app.core.transcript import moved
from compaction_app.handshakes.approval import ReviewedPlan, applied_by, approve
from compaction_app.handshakes.lifecycle import waiting_handshake
from compaction_app.lookups import compaction_of, known_run
from compaction_app.models import Compaction, Run
from compaction_app.planning.model_registry import prices_of_session
from compaction_app.planning.snapshots import is_prepared, mark_of, snapshot_of
from compaction_app.providers.types import dollars
from compaction_app.review.account import (
    UNOPENED,
    UNREAD_NAMES,
    LastLook,
    ReviewAccount,
    UnitGroup,
    account_of,
    groups_of,
    last_look,
    review_document,
    review_markdown as review_as_markdown,
    samples_of,
    struck_map,
    undecided_look,
)
from compaction_app.review.notes import SHOWN, notes_in, save_notes, spans_of
from compaction_app.runs.commands import record_opened
from compaction_app.runs.reviews import approve_undecided, require_same_plan
from compaction_app.session_activity import effect_of
from sessions_app.agents.base import AgentServer
from sessions_app.agents.pure.formats import Append, Change, NewFile, SessionWriter
from sessions_app.agents.registry import reading_by
from sessions_app.cli import resume_line
from sessions_app.database.sqlite import left_out_if_busy
from sessions_app.document.document import Document
from sessions_app.index.roots import managed_path
from sessions_app.index.session_reading import indexed_reading
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import Certificate, PackageOutcome
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import Role, Target
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError, TargetNotMet
from sessions_app.sessionlog.handoff import handoff as handoff_text
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.storage.session_certificate import certify as certify_session
from sessions_app.web.credentials import is_shown
from sessions_app.web.pages import acts_on_post, redirect, require_valid, status_of

MOMENT: Final = "YYYY-MM-DDThh-mm-ss-mmmZ"
"""A placeholder of the same length for the time in the backup's name."""
LINES_SHOWN: Final = 4_000
"""The number of bytes of the appended lines that the page shows."""
PLAN_AGAIN: Final = frozenset({"plan_changed", "plan_refused", "other_branch", "reader_changed", "session_rewritten"})
"""Errors that a new plan on the current session can fix."""
WRITER_FAILS: Final = frozenset(
    {
        "not_writable",
        "unknown_writer",
        "refused_writer",
        "open_in_agent",
        "not_proven",
        "no_line_id",
        "archived_thread",
        "newer_thread",
        "closing_unseen",
    }
)
"""The failures of one writer that another one may avoid."""
READ_ONLY: Final = "read_only_agent"
"""The failure for an agent whose sessions Redline cannot write."""
NAMED: Final = 5
"""The number of faults of a saved plan that the page names."""
WRITTEN: Final = CHANGE_IS_MADE | {NOT_RECORDED}
"""Failures after which the change is made."""


class CommitForm(ConfirmForm):
    """The confirmations, the writer, and the digest of the plan that the page showed."""

    yes = ConfirmationField(UNOPENED, UNREAD_NAMES)
    writer = forms.CharField(required=False)


class RestForm(forms.Form):
    """The approval of everything undecided: the version of the review, and the plan, that the page showed."""

    seen = forms.IntegerField(min_value=0, max_value=999_999_999)
    mark = forms.CharField(required=False)


@require_http_methods(["GET", "HEAD", "POST"])
def commit(request: HttpRequest, run: int) -> HttpResponse:
    """Show what a plan would change and what needs a yes; save it once everything is confirmed."""
    found = known_run(run)
    if Compaction.objects.filter(run=found).exists():
        # A second click, or a second window: show the result.
        return redirect("compaction:result", found.pk)
    if request.method != "POST":
        return _show_undecided(request, found) if "undecided" in request.GET else _show(request, found)
    form = CommitForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        save_notes(found, notes_in(request.POST))
        asked = waiting_handshake(found, timezone.now())
        approved, now = approval(found, data["writer"]), timezone.now()
        require_yes(form, last_look(account_of(found)))
        if asked is not None:
            approve(asked, ReviewedPlan(approved, data["yes"], now, data["plan"]))
            return redirect("compaction:handshake", asked.pk)
        commit_plan(approved, data["yes"], now, shown=data["plan"])
    except (ConfirmationNeeded, TargetNotMet) as unconfirmed:
        return _show(request, found, unconfirmed, form)
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect("compaction:result", found.pk)


def _show(
    request: HttpRequest, run: Run, fault: RedlineError | None = None, form: CommitForm | None = None
) -> HttpResponse:
    view, look, samples = None, None, {}
    asked = waiting_handshake(run, timezone.now())
    writer = (request.POST or request.GET).get("writer", "")
    was_written = fault is not None and fault.code in WRITTEN
    if not was_written:
        try:
            view = view_commit(run, timezone.now(), writer)
            look = last_look(account_of(run))
            samples = _samples(request, look)
            if samples:
                # What is shown is opened: the page says so.
                look = last_look(account_of(run))
        except RedlineError as unshown:
            # A missing confirmation of what can no longer be shown does not matter.
            fault = unshown if fault is None or isinstance(fault, ConfirmationNeeded | TargetNotMet) else fault
    plan = view["plan"] if view is not None else None
    form = (form or CommitForm()).of_shown(plan)
    ticks = ticks_of(look, plan) if look is not None and plan is not None else []
    is_unconfirmed = isinstance(fault, ConfirmationNeeded | TargetNotMet)
    missing = missing_in(form, ticks) if is_unconfirmed else []
    context: dict[str, Any] = {
        "run": run,
        "tab": "confirm",
        "view": view,
        "fault": fault,
        "can_plan_again": fault is not None and fault.code in PLAN_AGAIN,
        "was_written": was_written,
        "is_read_only": fault is not None and fault.code == READ_ONLY,
        "other_writers": other_writers(run, writer) if fault and fault.code in WRITER_FAILS else (),
        "ticks": ticks,
        "given": form["yes"].value() or [],
        "missing": missing,
        "ticks_missing": len(missing_in(form, ticks)),
        "plan": plan,
        "kept_query": f"{urlencode({'writer': writer})}&" if writer else "",
        "active_nav": "inbox",
        "asked": asked,
        "applied_by": applied_by(asked, plan.writer).name if asked is not None and plan is not None else "",
    }
    if view is not None and look is not None:
        context |= {
            "look": look,
            "proposal_count": len(look.account.units),
            "cost": view_cost(look.account),
            **samples,
        }
    return render(request, "commit/commit.html", context, status=status_of(fault))


def _show_undecided(request: HttpRequest, run: Run, fault: RedlineError | None = None) -> HttpResponse:
    """The additional approvals if everything undecided is approved, shown before that."""
    context: dict[str, Any] = {"run": run, "tab": "confirm", "fault": fault, "undecided": True, "active_nav": "inbox"}
    context["kept_query"] = "undecided=1&"
    try:
        look = undecided_look(account_of(run))
        count = len(look.account.units)
        context |= {"look": look, "proposal_count": count, "mark": mark_of(run), **_samples(request, look)}
    except RedlineError as unshown:
        context["fault"] = fault = fault or unshown
    return render(request, "commit/undecided.html", context, status=status_of(fault))


def _samples(request: HttpRequest, look: LastLook) -> dict[str, Any]:
    """The spot check of the group that an address names, which marks the shown units as opened."""
    key = request.GET.get("look", "")
    group = look.group(key)
    if group is None:
        return {}
    run, samples = look.account.run, samples_of(look.account, group.unopened)
    if is_shown(request):
        with left_out_if_busy(f"The spot check of run {run.pk}"):
            record_opened(run, [sample["unit"].target for sample in samples], timezone.now())
    return {"samples": samples, "sampled": group, "looked_at": key}


@acts_on_post(lambda run: f"{reverse('compaction:commit', args=[run])}?undecided=1")
def approve_rest(request: HttpRequest, run: int) -> HttpResponse:
    """Approve everything undecided: one decision, which can be undone like any other."""
    found, form = known_run(run), RestForm(request.POST)
    try:
        require_valid(form)
        require_same_plan(found, form.cleaned_data["mark"], mark_of(found))
        approve_undecided(found, timezone.now(), form.cleaned_data["seen"])
    except RedlineError as fault:
        return _show_undecided(request, found, fault)
    return redirect("compaction:commit", found.pk)


@require_safe
def handoff(request: HttpRequest, run: int) -> HttpResponse:
    """The conversation that the approved plan leaves, as Markdown: for agents whose sessions Redline cannot write."""
    found = known_run(run)
    try:
        text = handoff_of(found)
    except RedlineError as fault:
        return _show(request, found, fault)
    return _markdown(text, f"run-{found.pk}-handoff.md")


@require_safe
def result(request: HttpRequest, run: int) -> HttpResponse:
    """The result, before and after, and how to undo it."""
    return _show_result(request, known_run(run))


@acts_on_post(lambda run: reverse("compaction:result", args=[run]))
def certify(request: HttpRequest, run: int) -> HttpResponse:
    """Check the written session again, with the agent's own package if it is installed."""
    found = known_run(run)
    try:
        certify_again(compaction_of(found), timezone.now())
    except RedlineError as fault:
        return _show_result(request, found, fault)
    return redirect("compaction:result", found.pk)


def _show_result(request: HttpRequest, run: Run, fault: RedlineError | None = None) -> HttpResponse:
    compaction = compaction_of(run)
    context: dict[str, Any] = {
        "run": run,
        "view": view_result(compaction),
        "rows": undo_rows(compaction),
        "asked": run.handshakes.filter(state=HandshakeState.APPLIED).last(),
        "fault": fault,
        "tab": "result",
        "active_nav": "inbox",
    }
    if is_prepared(run):
        account = account_of(run)
        deleted = deleted_of(account)
        context |= {"deleted": deleted, "proposal_count": len(account.units), "cost": view_cost(account)}
        context["chosen"] = next((row for row in deleted["rows"] if row.key == request.GET.get("reason")), None)
    return render(request, "commit/result.html", context, status=status_of(fault))


@require_safe
def review_markdown(request: HttpRequest, run: int) -> HttpResponse:
    """The review as a Markdown file."""
    del request
    return _markdown(review_as_markdown(*_reviewed(run)), f"run-{run}-review.md")


@require_safe
def review_json(request: HttpRequest, run: int) -> HttpResponse:
    """The review as a JSON file."""
    del request
    headers = {"Content-Disposition": f'attachment; filename="run-{run}-review.json"'}
    return JsonResponse(review_document(*_reviewed(run)), headers=headers)


def _markdown(text: str, name: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text.encode("utf-8", "replace"), "text/markdown; charset=utf-8", headers=headers)


def _reviewed(number: int) -> tuple[ReviewAccount, Compaction | None]:
    """The account of a run's review, and its compaction. Raises Http404 if there is nothing to review."""
    run = known_run(number)
    if not is_prepared(run):
        raise Http404(f"Run {number} was never prepared, so there is nothing to review.")
    return account_of(run), Compaction.objects.select_related("backup").filter(run=run).first()


# ---- what needs a yes --------------------------------------------------------------------------------------

SHORT: Final = {
    "below_target": "target missed",
    "live": "the session is live",
    "after_torn_line": "a torn last line",
    "switch_branch": "another branch becomes active",
    "not_honoured": "the agent is not known",
}
"""The confirmations of the change in a few words, for the bar at the foot of the page."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One thing that needs the reviewer's yes."""

    name: str
    sentence: str
    why: str
    short: str
    units: UnitGroup | None = None
    """The units that it is about, if it is about some of them."""


def ticks_of(look: LastLook, plan: Preflight) -> list[Tick]:
    """What needs the reviewer's yes: first the ones of the page, then the target, then those of the change."""
    required = sorted(plan.confirmations, key=lambda one: one.name != "below_target")
    return [*ticks_of_look(look), *(Tick(*one, SHORT[one.name]) for one in required)]


def ticks_of_look(look: LastLook) -> list[Tick]:
    """What needs the reviewer's yes because it was not opened."""
    found = []
    unopened, names = look.unopened, look.unread_names
    if unopened.count:
        count, tokens = unopened.count, f"{significant(unopened.tokens):,}"
        sentence = f"{count:,} of {len(look.units):,} {'is' if count == 1 else 'are'} approved without being opened"
        why = f"You approved {unopened.in_bulk:,} of them with others, in one step."
        if unopened.in_bulk in (0, count):
            them = "it" if count == 1 else "them"
            why = f"You approved {them} {'with others, in one step' if unopened.in_bulk else 'one by one'}."
        found.append(Tick(UNOPENED, f"{sentence}, −{tokens}", why, f"{count:,} not opened", unopened))
    if names.count:
        verb, them = ("contains", "it") if names.count == 1 else ("contain", "them")
        sentence = f"{names.count:,} {verb} names mentioned nowhere else, and you did not open {them}"
        found.append(Tick(UNREAD_NAMES, sentence, _names_lost(names), "names mentioned nowhere else", names))
    return found


def _names_lost(group: UnitGroup) -> str:
    """The largest of the units with such names, in words."""
    unit = group.unopened[0]
    counts = only_here(unit.reason)
    what = " ".join(filter(None, (unit.line.tool, one_line(unit.line.words, 60))))
    names = f"the model could not look up {plural(counts[0], 'name')} any more" if counts is not None else ""
    first = f"{what}, −{significant(unit.tokens):,}"
    return f"{'The largest is ' if group.count > 1 else ''}{first}{f': {names}' if names else ''}."


def require_yes(form: CommitForm, look: LastLook) -> None:
    """Raise ConfirmationNeeded `not_opened` if the reviewer's yes to something that was not opened is missing."""
    for tick in missing_in(form, ticks_of_look(look)):
        raise ConfirmationNeeded("not_opened", f"{tick.sentence}. Nothing was written. Confirm that.", "")


# ---- before the commit -------------------------------------------------------------------------------------


def view_commit(run: Run, now: datetime, writer: str = "") -> dict[str, Any]:
    """The effect a commit of this run by a writer would have now, for its page: the lines to be written, the place, and
    the requirements. Raises the errors of `approval` and `preflight_of`."""
    plan = preflight_of(approval(run, writer), now)
    present, targets, transcript = plan.present, plan.validated.targets, snapshot_of(run).transcript
    path = present.path
    backup = path.with_name(f"{path.name}.{MOMENT}.compact.bak")
    branch = present.branch(plan.parent_id)
    unapplied = plan.writer.unapplied(branch, targets)
    spans = spans_of(branch, targets, run.notes) if plan.writer.holds_notes else []
    with lines_of(present) as line:
        change = plan.make(write_facts(present, line, backup, now))
        moves = moved(
            transcript.entries,
            targets,
            present.reading.generation.turns,
            lambda entry_id: line(present.tree.entry(entry_id)),
        )
    lines = change.lines if isinstance(change, Append) else ()
    text = b"\n".join(lines)
    rows, created = _rows_and_name(change, plan.server)
    ends_with_newline = present.fingerprint.size == present.state.size
    return {
        "plan": plan,
        # The ways to save the plan, each with its effect on the session.
        "writers": [(one, effect_of(one, plan.activity)) for one in present.reading.writers],
        # Those that are not offered, each with the reason.
        "refused": present.reading.refused.items(),
        # The beginning of the text that would be appended.
        "lines": text[:LINES_SHOWN].decode("utf-8", "replace"),
        "line_count": len(lines),
        "line_bytes": len(text) + 1,
        "is_cut": len(text) + 1 > LINES_SHOWN,
        "file_bytes_after": present.state.size + (not ends_with_newline) + len(text) + 1,
        # The database rows that would be changed, or copied into a new session, and the name of the new session.
        "rows": rows,
        "created": created,
        "backup": backup.name,
        # The approved deletions that the agent keeps nevertheless.
        "brought_back": len(unapplied),
        "tokens_back": tokens_back(run.context_size, transcript, targets, unapplied),
        # In their place the writer writes the user's notes, if it does.
        "spans": spans,
        "more_spans": max(0, len(spans) - SHOWN),
        # The messages that are sent before something that precedes them now.
        "moved": moves,
        # The fraction to be kept, in percent.
        "keep": f"{100 * run.compression_ratio:g}",
        # Whether nothing can be written by this writer, because the agent has the session open.
        "is_blocked": plan.writer.appends and plan.activity.is_open_elsewhere and not plan.approved.is_awaited,
    }


def _rows_and_name(change: Change, server: AgentServer | None) -> tuple[int, str]:
    """The number of rows that a change writes, and the name of the new session that it makes, if any."""
    if isinstance(change, NewFile):
        return 0, change.name
    if isinstance(change, Append):
        return 0, ""
    changed = sum(server is None or server.changes(one.table) for one in change.changes)
    return changed + len(change.copies), change.created


def handoff_of(run: Run) -> str:
    """The conversation that an approved plan leaves, as Markdown. Raises the errors of `approval`."""
    approved = approval(run)
    loaded = approved.document
    reading = reading_by(approved.reader, "it was planned so")
    context = reading.reader.rebuild(loaded.tree.branch(approved.leaf_id))
    kept = [message for message in approved_messages(context, approved.targets) if message.sent]
    return handoff_text(kept, loaded.texts([message.source for message in kept]))


def other_writers(run: Run, writer: str) -> list[SessionWriter]:
    """The other writers, for a plan that this one, or the best one, cannot write."""
    reading = indexed_reading(run.session)
    if reading is None or not is_prepared(run):
        return []
    refusing = writer or snapshot_of(run).prepared.writer or reading.writers[0].name
    return [one for one in reading.writers if one.name != refusing]


# ---- the result --------------------------------------------------------------------------------------------


def view_result(compaction: Compaction) -> dict[str, Any]:
    """The result of a compaction, for its page: its figures, and the last appended line or the new session."""
    run, session = compaction.run, compaction.session
    whole = {raw["entryId"] for raw in compaction.origins if raw.get("blockIndex") is None}
    line, number, length = _appended_line(compaction)
    is_in_database = session.agent.store.database(session.path) is not None
    is_restored = run is not None and run.state == RunState.RESTORED
    notes = run.notes if run is not None and compaction.created else {}
    new_session, certificate = _new_session(compaction), certificate_in(compaction)
    return {
        "compaction": compaction,
        "entries": sum(raw.get("blockIndex") is None for raw in compaction.origins),
        "blocks": sum(raw.get("blockIndex") is not None for raw in compaction.origins),
        "line": line,
        "line_number": number,
        "line_bytes": length,
        # The command that continues the session, or the new one.
        "resume": resume_line(session.agent, Path(compaction.created) if compaction.created else session.path),
        "is_in_database": is_in_database,
        # Whether a backup can replace the session.
        "can_restore": not (is_in_database or session.agent.store.is_append_only),
        "new_session": new_session,
        "continued": new_session or session,
        "certificate": certificate,
        "checks": checks_of(compaction, certificate) if certificate is not None else [],
        # The user's notes in the new session, each with the first entry of its span.
        "notes": [(entry_id, words) for entry_id, words in notes.items() if entry_id in whole],
        # In Redline's own directory, no agent looks for a session.
        "is_imported": session.root.path == str(managed_path()),
        # Undone since, or a restore has removed its line; and undone by an undo that no restore has removed.
        "is_restored": is_restored,
        "is_undone": is_restored and compaction.undos.filter(is_whole=True).exists(),
        "keep": f"{100 * float(compaction.parameters['compression_ratio']):g}",
        "backup_name": Path(compaction.backup.path).name,
    }


class PlanCheck(NamedTuple):
    """One thing that was checked of a saved plan, with its evidence."""

    holds: bool
    sentence: str
    evidence: list[str]


def checks_of(compaction: Compaction, certificate: Certificate) -> list[PlanCheck]:
    """The checks of a saved plan, as sentences: what is wrong stands below the one that failed."""
    agent, backup = compaction.session.agent, compaction.backup
    package, difference = certificate.package, certificate.difference
    messages = plural(certificate.messages, "message")
    is_refused = bool(certificate.refusal) or (package is not None and package.outcome.is_bad)
    if package is not None and package.outcome is PackageOutcome.EQUAL:
        opened = f"loaded by its own reader {package.version}, {messages}"
    else:
        opened = f"{messages} as in {certificate.versions or certificate.reader}"
    faults = [certificate.refusal, package.detail if package is not None else ""]
    found = [
        PlanCheck(
            not is_refused, f"{agent.label} {'cannot' if is_refused else 'can'} continue from this", [opened, *faults]
        )
    ]
    if difference is not None:
        same = "Nothing but the approved plan is missing"
        found.append(
            PlanCheck(False, "It differs from the approved plan", [difference])
            if difference
            else PlanCheck(True, same, ["compared message by message; everything else is kept word for word"])
        )
    broken = [one.sentence for one in certificate.unrepaired[:NAMED]]
    whole = "Every call has its result" if not broken else "A provider would refuse it"
    repaired = [f"{one.sentence} The agent mends that itself." for one in certificate.violations if one.is_repaired]
    found.append(PlanCheck(not broken, whole, broken or repaired[:NAMED]))
    copy = f"{Path(backup.path).name}, SHA-256 {backup.sha256[:12]}…"
    found.append(PlanCheck(True, "A backup was made and checked first", [copy]))
    return [check._replace(evidence=[one for one in check.evidence if one]) for check in found]


def certify_again(compaction: Compaction, now: datetime) -> None:
    """Check the context from which the agent would continue now, and store the result.

    The comparison with the approved plan was made before the write, and is kept. Raises BadInput `unknown_entry` if the
    compaction is no longer in the file, and the errors of reading the session.
    """
    created = compaction.created
    document = Document.to_change(Path(created)) if created else Document.of_session(compaction.session)
    reading = document.reading
    found = certify_session(
        document,
        reading.agent,
        reading.reader,
        now,
        leaf_id="" if created else compaction.entry_id,
        package=reading.agent.client.find_package(None),
    )
    before = certificate_in(compaction)
    found = msgspec.structs.replace(found, difference=before.difference if before is not None else None)
    Compaction.objects.filter(pk=compaction.pk).update(certificate=found.to_json())


def _new_session(compaction: Compaction) -> Session | None:
    """The new session in the index; None if none was made, or it no longer exists."""
    created = Path(compaction.created)
    if not compaction.created:
        return None
    beside = compaction.session.root.sessions.present()
    name = str(Path(compaction.session.relative_path).with_name(created.name))
    return beside.filter(relative_path=name).select_related("root").first()


def _appended_line(compaction: Compaction) -> tuple[str, int | None, int]:
    """The present line in the file; empty if it is no longer there, or not indexed yet."""
    row = compaction.session.entries.filter(entry_id=compaction.entry_id).first()
    if row is None:
        return "", None, 0
    try:
        with compaction.session.agent.store.open(compaction.session.real_path()) as reader:
            raw = reader.read_at(row.offset, row.length)
    except RedlineError:
        return "", None, 0
    return raw[:LINES_SHOWN].decode("utf-8", "replace"), row.number, row.length


# ---- what was deleted --------------------------------------------------------------------------------------


def deleted_of(account: ReviewAccount) -> dict[str, Any]:
    """What an account's approved plan deleted, for the page: by reason, the largest sum first, and the maps of the
    context before and after, drawn at one scale."""
    goes = account.review.goes
    times = [unit.approval.at for unit in account.approved if unit.approval is not None]
    stays = [
        piece
        for piece, target in pieces_of(account.transcript, goes)
        if target not in goes and Target(target.entry_id) not in goes
    ]
    return {
        "account": account,
        "look": last_look(account),
        "rows": groups_of(account.approved, account.kept),
        "before": struck_map(account.transcript, account.review),
        "after": draw(stays, account.transcript.tokens),
        "approved_from": min(times, default=None),
        "approved_to": max(times, default=None),
    }


# ---- the cost ----------------------------------------------------------------------------------------------

LEFT, RIGHT, BOTTOM, HEIGHT = 8, 288, 128, 108
"""The start, the end, the baseline and the height of the drawing, in its units."""
LABEL: Final = 112
"""The width of the words below the end of a rising line."""
BEYOND: Final = 1.6
"""The number of requests that the drawing shows, as a multiple of that at which both lines cross."""
FEWEST: Final = 8
"""The minimum number of requests that the drawing shows."""


def view_cost(account: ReviewAccount) -> dict[str, Any]:
    """The saving and the cost of the approved plan, for the page. Tokens are in the measure of the context."""
    entries, session = account.transcript.entries, account.run.session
    first = min(
        (entry.position for target in account.review.goes if (entry := account.transcript.entry(target.entry_id))),
        default=len(entries),
    )
    stats = account.review.approved_stats
    following = sum(entry.tokens for entry in entries[first:]) - (stats.tokens_before - stats.tokens_after)
    rewritten = account.before.of(max(0, following))
    known = prices_of_session(session, Path.home())
    before, after = account.before.tokens, account.after.tokens
    view: dict[str, Any] = {
        "model": session.model,
        "saved_tokens": before - after,
        # The first request writes the kept tokens after the first deletion to the prompt cache again.
        "rewritten": rewritten,
        # The turn of the first deletion.
        "turn": sum(entry.role == Role.USER for entry in entries[: first + 1]),
        "known": known,
    }
    if known is None:
        return view
    cost = input_cost(before, after, rewritten, known.value.read, known.value.write)
    counted = (("Cached input", known.value.cache_read), ("Writing to the cache", known.value.cache_write))
    return {
        **view,
        "money": {name: dollars(getattr(cost, name)) for name in ("before", "after", "saved", "once")},
        "pays_after": cost.pays_after,
        "plot": _plot(cost, cost.pays_after) if cost.pays_after is not None else None,
        "assumptions": [
            f"{what} is counted as input, because its price is not known." for what, price in counted if price is None
        ],
    }


def _plot(cost: InputCost, pays_after: int) -> dict[str, Any]:
    """The cost of input by the number of requests, as two lines that cross where the compaction begins to pay."""
    requests = max(FEWEST, math.ceil(BEYOND * pays_after))
    most = max(cost.as_is(requests), cost.struck(requests))

    def place(count: float, spent: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * count / requests
        return round(x, 1), round(BOTTOM - HEIGHT * spent / most, 1)

    def line(first: float, last: float) -> str:
        (x, y), (end_x, end_y) = place(0, first), place(requests, last)
        return f"M{x} {y}L{end_x} {end_y}"

    as_is, struck, cross = cost.as_is(requests), cost.struck(requests), cost.once / cost.saved
    return {
        "requests": requests,
        "as_is": line(0, as_is),
        "struck": line(cost.once, struck),
        "cross": place(cross, cost.struck(cross)),
        "as_is_total": dollars(as_is),
        "struck_total": dollars(struck),
        "as_is_y": max(10.0, place(requests, as_is)[1] - 6),
        "struck_y": min(BOTTOM - 6.0, place(0, cost.struck(requests * (1 - LABEL / (RIGHT - LEFT))))[1] + 14),
    }
