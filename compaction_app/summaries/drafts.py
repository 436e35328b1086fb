"""Drafts of summaries: the user's actions on them, and a worker's work on one.

    start ─▶ a worker requests it ─▶ ready ─▶ edited ─▶ appended, under the lock and after a backup
         ╰─ without a model: ready immediately, to be written by hand

    claim → the session now → hooks → one or two requests ⇄ row → ready | failed

Hooks are called before a summary is drafted, and before a human's summary is appended. Streamed text is stored
immediately, so that it can be watched, and is kept if the request fails.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from django.db import transaction
from django.utils import timezone

from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.entries import NOT_APPENDED, AppendPlan, append_entries, plan_append
from compaction_app.core.states import EventKind
from compaction_app.core.transcript import prepare
from compaction_app.models import SummaryDraft
from compaction_app.planning import hook_runner
from compaction_app.planning.model_registry import endpoint_of, model_named
from compaction_app.planning.model_request import Summarizer
from compaction_app.planning.plan import confirmed_model, effective_parameters
from compaction_app.providers.types import UsageTotals
from sessions_app.agents.pure.formats import FileLists
from sessions_app.disk.files import FileState
from sessions_app.index.index_store import session_row
from sessions_app.jobs.pool import wake_workers
from sessions_app.jobs.recorder import JobRecorder, work_under_lease
from sessions_app.models import Session
from sessions_app.recent import Recent
from sessions_app.sessionlog.errors import BadInput, Conflict, Stopped
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.text import editable, is_noise

from .summary_task import SummaryTask, branch_task, compaction_task, require_not_moved


class AskedHooks(NamedTuple):
    """The task as changed by the hooks, and their answers."""

    task: SummaryTask
    supplied: hook_runner.HookSummary | None
    """The draft of a hook; then no model is used."""
    messages: tuple[str, ...]
    label: str | None = None
    """The label that the hooks request for a move; None if no hooks were called for one."""


def ask_hooks_about(task: SummaryTask, stop: Callable[[], bool] = hook_runner.never) -> AskedHooks:
    """Call the hooks for a summary. Raises the errors of `ask_tree_hooks` and `ask_summary_hooks`, and BadInput
    `cancelled_by_hook`."""
    present = task.present
    session = session_row(present.path)
    if task.move is not None:
        answers = hook_runner.ask_tree_hooks(present, task.move, session, stop)
        task = task.with_focus(answers.focus)
    else:
        branch, reading = present.branch(), present.reading
        settings = effective_parameters(reading.agent.settings.for_project(present.log.cwd, Path.home()), {}).values
        transcript = prepare(branch, present.texts(branch), settings, reading.rules(), is_noise)
        if transcript is None or task.preparation is None:
            raise BadInput("nothing_to_summarise", f"{present.path} has nothing to summarise. Nothing was appended.")
        answers = hook_runner.ask_summary_hooks(present, present.leaf_id, transcript, task.preparation, session, stop)
    answers.require_not_cancelled()
    messages = tuple(one.text for one in answers.messages)
    label = None if task.move is None else answers.label
    return AskedHooks(keeping(task, answers.supplied), answers.supplied, messages, label)


def keeping(task: SummaryTask, supplied: hook_runner.HookSummary | None) -> SummaryTask:
    """The task with the kept entries and the files of a hook's summary."""
    if supplied is None:
        return task
    return replace(task.keeping_from(supplied.first_kept_id), files=supplied.files, from_hook=True)


def tell_hooks(task: SummaryTask, lines: tuple[bytes, ...], text: str, backup: Path) -> None:
    """Notify the hooks of a compaction that was appended; those of a move are notified when it is appended."""
    if task.is_compaction:
        path, summary = task.present.path, task.complete(text)
        hook_runner.after_compact(path, session_row(path), lines, backup, from_hook=task.from_hook, summary=summary)


State = SummaryDraft.State
LONGEST_TEXT: Final = 1_000_000
"""The maximum length of a summary, in characters."""
CACHED: Final = 2


class WantedSummary(NamedTuple):
    """The requested summary."""

    entry_id: str = ""
    """The target entry of a move, for the summary of the branch that is left; empty for a compaction."""
    is_leaf: bool = False
    """Whether that move continues after a user's message instead of before it: see `destination_of`."""
    focus: str = ""


def new_task(session: Session, wanted: WantedSummary, window: int | None = None) -> SummaryTask:
    """The present task of a summary. Raises the errors of `branch_task` and `compaction_task`."""
    path = session.real_path()
    if wanted.entry_id:
        return branch_task(path, wanted.entry_id, wanted.focus, window, is_leaf=wanted.is_leaf)
    return compaction_task(path, wanted.focus)


def start_draft(session: Session, wanted: WantedSummary, planner: str = "") -> SummaryDraft:
    """Request a draft from a model; without one, the draft is ready to be written by hand.

    Raises BadInput `unknown_planner`, Conflict `draft_in_flight` if another draft of this session is being written, and
    the errors of `new_task`.
    """
    model = model_named(planner) if planner else None
    task = new_task(session, wanted, model.window if model is not None else None)
    now = timezone.now()
    draft = SummaryDraft(
        session=session,
        entry_id=wanted.entry_id,
        is_leaf=wanted.is_leaf,
        leaf_id=task.present.leaf_id,
        focus=well_formed(wanted.focus),
        created_at=now,
    )
    if model is None:
        draft.state, draft.ended_at, draft.text = State.READY, now, editable(task.previous)
        draft.save()
        return draft
    draft.planner, draft.base_url = model.planner, model.base_url
    with transaction.atomic():
        _require_none_active(session)
        draft.save()
        transaction.on_commit(wake_workers)
    return draft


def keep_supplied(session: Session, wanted: WantedSummary, leaf_id: str, asked: AskedHooks) -> SummaryDraft | None:
    """Store the draft that a hook supplied to a command; None if none did.

    Its files and the first kept entry are not in its text: they are used when it is appended, and its text can be
    edited on its page.
    """
    if asked.supplied is None:
        return None
    text, now = editable(asked.supplied.text), timezone.now()
    return SummaryDraft.objects.create(
        session=session,
        entry_id=wanted.entry_id,
        leaf_id=leaf_id,
        focus=well_formed(wanted.focus),
        created_at=now,
        ended_at=now,
        state=State.READY,
        generated=text,
        text=text,
        supplied=supplied_as_row(asked.supplied),
        hook_messages=list(asked.messages),
    )


def kept_draft(session: Session, wanted: WantedSummary, leaf_id: str) -> SummaryDraft | None:
    """The latest draft that `keep_supplied` stored for such a summary, if it is not appended yet."""
    found = session.drafts.filter(planner="", supplied__isnull=False, state=State.READY)
    return found.filter(entry_id=wanted.entry_id, leaf_id=leaf_id).order_by("-pk").first()


def stop_draft(draft: SummaryDraft) -> None:
    """Stop the request for a draft; the partial text is kept. Raises Conflict `not_being_written`."""
    failure = f"You stopped it before anything was sent. {NOT_APPENDED}"
    if SummaryDraft.end(draft.pk, State.FAILED, failure, leaving={State.QUEUED}):
        return
    if not SummaryDraft.objects.working().filter(pk=draft.pk).update(stop_requested=True):
        raise Conflict("not_being_written", f"Draft {draft.pk} is not being written. There was nothing to stop.")


def edit_partial_text(draft: SummaryDraft) -> None:
    """Make the partial text of a failed draft ready to be edited. Raises Conflict `not_a_draft`."""
    text = editable(draft.generated)
    if not SummaryDraft.change(draft.pk, State.READY, leaving={State.FAILED}, text=text, is_cut=True):
        raise _no_draft(draft)


def save_text(draft: SummaryDraft, text: str, edited: str = "") -> None:
    """Store an edited text. `edited` is the digest of the text before the edit, if known.

    Raises Conflict `not_a_draft` if the draft cannot be edited, and `edited_elsewhere` if its stored text has another
    digest: then the draft has the stored text.
    """
    with transaction.atomic():
        stored = SummaryDraft.objects.filter(pk=draft.pk).first()
        if stored is not None and edited and stored.text_digest != edited and stored.text != editable(text):
            draft.text, draft.edited_at = stored.text, stored.edited_at
            raise Conflict(
                "edited_elsewhere",
                f"Draft {draft.pk} was edited in another window since this page showed it. This text was not saved. "
                "Save it again to replace the other one, or load the page anew to see that.",
            )
        draft.text, draft.edited_at = editable(text), timezone.now()
        if not SummaryDraft.change(
            draft.pk, State.READY, leaving={State.READY}, text=draft.text, edited_at=draft.edited_at
        ):
            raise _no_draft(draft)


def discard_draft(draft: SummaryDraft) -> None:
    """Delete a draft that was not appended. Raises Conflict `being_written`."""
    gone, _ = SummaryDraft.objects.filter(pk=draft.pk).exclude(state__in=(State.ASKING, State.QUEUED)).delete()
    if not gone:
        raise Conflict("being_written", f"Draft {draft.pk} is being written. It was not deleted. Stop it first.")


# ---- a draft and its session -----------------------------------------------------------------------------

_recent: Final = Recent[tuple[int, FileState | None, str], SummaryTask](CACHED)


def task_of(draft: SummaryDraft) -> SummaryTask:
    """The range that a draft would replace. Raises Conflict `session_moved` if the session has continued since, and the
    errors of `new_task`."""
    task = new_task(draft.session, WantedSummary(draft.entry_id, draft.is_leaf, draft.focus))
    require_not_moved(task.present, draft.leaf_id)
    return keeping(task, supplied_by(draft))


def shown_task_of(draft: SummaryDraft) -> SummaryTask:
    """Like `task_of`, cached until the session changes: a draft is judged whenever it is edited."""
    session = draft.session
    key = (draft.pk, session.agent.store.state(session.real_path()), session.reader_choice)
    return _recent.get(key, lambda: task_of(draft))


def supplied_by(draft: SummaryDraft) -> hook_runner.HookSummary | None:
    """The data that a hook supplied; None if none did."""
    row: Mapping[str, Any] | None = draft.supplied
    if row is None:
        return None
    files = FileLists(tuple(row["read"]), tuple(row["modified"]))
    return hook_runner.HookSummary(draft.generated, files, row["firstKept"], row["why"])


def supplied_as_row(supplied: hook_runner.HookSummary) -> dict[str, Any]:
    """The data that a hook supplied in addition to the text, as stored."""
    return {
        "read": list(supplied.files.read),
        "modified": list(supplied.files.modified),
        "firstKept": supplied.first_kept_id,
        "why": supplied.why,
    }


# ---- appending -------------------------------------------------------------------------------------------


class DraftPlan(NamedTuple):
    """The effect that appending a draft would have now."""

    task: SummaryTask
    append: AppendPlan
    digest: str
    """Identifies the plan and the text: a confirmation is valid for these only."""


def plan_draft(draft: SummaryDraft, now: datetime) -> DraftPlan:
    """The effect of appending a draft. Raises BadInput `empty_summary`, Conflict `not_a_draft`, and the errors of
    `task_of` and `plan_append`."""
    if draft.state != State.READY:
        raise _no_draft(draft)
    task = task_of(draft)
    plan = plan_append(task.present.path, task.change(draft.text), now)
    return DraftPlan(task, plan, hashlib.sha256(f"{plan.digest()} {draft.text}".encode()).hexdigest()[:32])


def append_draft(draft: SummaryDraft, confirmations: Confirmations, now: datetime, shown: str) -> Applied[AppendPlan]:
    """Append a draft as shown. Raises the errors of `plan_draft`, the hooks and `append_entries`, and Conflict
    `draft_differs`; then nothing was appended."""
    plan = plan_draft(draft, now)
    if plan.digest != shown:
        raise Conflict(
            "draft_differs",
            f"The draft or the session has changed since this was shown. {NOT_APPENDED} Check it again.",
        )
    if plan.task.is_compaction:
        ask_hooks_about(plan.task)
    path, make = plan.task.present.path, plan.task.change(draft.text)
    appended = append_entries(path, make, confirmations, now, shown=plan.append.digest(), draft=draft.pk)
    tell_hooks(plan.task, appended.made.lines, draft.text, appended.backup_path)
    return appended


def _require_none_active(session: Session) -> None:
    other = session.drafts.active().first()
    if other is not None:
        raise Conflict(
            "draft_in_flight",
            f"Draft {other.pk} of {session.real_path()} is being written. Nothing was sent. Stop it first.",
        )


def _no_draft(draft: SummaryDraft) -> Conflict:
    return Conflict(
        "not_a_draft",
        f"Draft {draft.pk} cannot be edited or appended now. {NOT_APPENDED} Load its page again.",
    )


# ---- a worker's work -------------------------------------------------------------------------------------

STORE_SECONDS: Final = 0.3
"""The shortest time between two updates of the streamed text."""


@dataclass
class DraftRecorder(JobRecorder[SummaryDraft]):
    """Stores the text and the totals of a draft, as long as its worker has the lease."""

    _streamed: str = ""
    _stored: float = 0.0

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        """Store the totals, and the streamed text; a further request begins a new part of the text."""
        if kind == EventKind.ASKED and data["turn"] > 1 and self._streamed:
            self._streamed += "\n\n"
        elif kind == EventKind.STREAMED:
            self._streamed += "".join(text for what, *_, text in data["pieces"] if what == "text")
            if time.monotonic() - self._stored < STORE_SECONDS:
                return
        self._stored = time.monotonic()
        self.store(generated=self._streamed, usage=usage)

    def ready(self, text: str, **fields: Any) -> None:
        """End the draft with its text; does nothing if the lease is lost."""
        text = editable(text)
        self.end(State.READY, generated=text, text=text, **fields)

    def failed(self, failure: str) -> None:
        """End the draft without a complete text; the streamed part is kept."""
        self.end(State.FAILED, failure, **({"generated": self._streamed} if self._streamed else {}))


def write_draft(draft_id: int, worker: str, ending: threading.Event | None = None) -> None:
    """Work on a queued draft to its end, unless another worker has it. Every outcome is recorded in its row.

    `ending` is set if this process must end and its main thread is another one: see `Terminated`. A bug is raised, as
    is a SystemFailure of the database.
    """
    draft = SummaryDraft.claim(draft_id, worker)
    if draft is not None:
        recorder = DraftRecorder(draft, worker, ending)
        work_under_lease(recorder, lambda: _write(recorder))


def _write(recorder: DraftRecorder) -> None:
    draft = recorder.job
    model = confirmed_model(draft.planner, draft.base_url, "this draft was requested from", "Ask again.")
    asked = ask_hooks_about(task_of(draft), recorder.has_to_end)
    recorder.store(hook_messages=list(asked.messages))
    if asked.supplied is not None:
        recorder.ready(asked.supplied.text, supplied=supplied_as_row(asked.supplied))
        return
    if recorder.is_stopped():
        raise Stopped
    summarizer = Summarizer(model, endpoint_of(model), recorder, UsageTotals(model.host))
    written = summarizer.write(asked.task.parts)
    recorder.ready(asked.task.text_of(written.texts), is_cut=written.is_cut)
