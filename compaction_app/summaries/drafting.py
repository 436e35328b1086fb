"""A worker's work on one draft: call the hooks, then the model, and store the answer.

    claim → the session now → hooks → one or two requests ⇄ row → ready | failed

Streamed text is stored immediately, so that it can be watched, and is kept if the request fails.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from compaction_app.core.states import EventKind
from compaction_app.models import SummaryDraft
from compaction_app.planning.model_registry import ResolvedModel, endpoint_of, model_named
from compaction_app.planning.model_request import Summarizer
from compaction_app.providers.usage import UsageTotals
from sessions_app.jobs.recorder import JobRecorder, work_under_lease
from sessions_app.sessionlog.errors import BadInput, Stopped
from sessions_app.sessionlog.text import editable

from .drafts import State, ask_hooks_about, supplied_as_row, task_of

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
    model = _model_of(draft)
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


def _model_of(draft: SummaryDraft) -> ResolvedModel:
    """The model of a draft. Requests go only to the confirmed address: raises BadInput `moved_elsewhere`."""
    model = model_named(draft.planner)
    if model.base_url != draft.base_url:
        raise BadInput(
            "moved_elsewhere",
            f"The address of {model.planner} is now {model.base_url}, but this draft was requested from "
            f"{draft.base_url}. Nothing was sent. Ask again.",
        )
    return model
