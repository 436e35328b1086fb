"""Drafts of summaries."""

from __future__ import annotations

import hashlib
from typing import Any, Self

from django.db import models
from django.urls import reverse

from sessions_app.jobs.job import JobQuerySet
from sessions_app.models import Session

from .model_jobs import ModelJob


class SummaryDraftQuerySet(JobQuerySet["SummaryDraft"]):
    def unfinished(self) -> Self:
        """The drafts that are not appended."""
        return self.exclude(state=SummaryDraft.State.APPENDED)

    def waiting(self) -> Self:
        """The drafts that wait for the user: written, or failed."""
        return self.filter(state__in=(SummaryDraft.State.READY, SummaryDraft.State.FAILED))


class SummaryDraft(ModelJob):
    """The draft of a summary: the text of a model or a hook, and its edited version.

        queued ──▶ asking ──▶ ready ──▶ appended
           ╲          ╲──▶ failed ──▶ ready, with the partial text
            ╲──────────────▶

    The text is generated or written by a human, and never verbatim. Only what a human confirmed is appended to the
    session.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        ASKING = "asking", "being written"
        READY = "ready", "a draft"
        FAILED = "failed", "failed"
        APPENDED = "appended", "appended"

    NOUN = "draft"
    TRANSITIONS = {
        State.QUEUED: frozenset({State.ASKING, State.FAILED}),
        State.ASKING: frozenset({State.READY, State.FAILED}),
        State.FAILED: frozenset({State.READY}),
        State.READY: frozenset({State.READY, State.APPENDED}),
        State.APPENDED: frozenset(),
    }
    WORKING = State.ASKING
    ABANDONED = FAILED = State.FAILED
    NOTHING_DONE = "Nothing was sent."
    KEPT = "Nothing was written."
    WORK = "compaction_app.summaries.drafts.write_draft"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="drafts")
    entry_id = models.TextField(blank=True, default="")
    """The target entry of a move, for the summary of the branch that is left; empty for a compaction."""
    is_leaf = models.BooleanField(default=False)
    """Whether that move continues after a user's message instead of before it."""
    leaf_id = models.TextField()
    """The session's last entry when the draft was requested. Once the session has continued, the draft is useless."""
    focus = models.TextField(blank=True, default="")
    """The emphasis of the summary, in the user's words."""
    planner = models.TextField(blank=True, default="")
    """The model of the request, as `provider/name`; empty if there was none."""

    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    edited_at = models.DateTimeField(null=True)
    """When its text was last saved."""

    generated = models.TextField(blank=True, default="")
    """The text of the model or the hook; a partial text while it is being written."""
    text = models.TextField(blank=True, default="")
    """The present text, without the lists of files."""
    is_cut = models.BooleanField(default=False)
    """Whether the limit of the model's output truncated it."""
    supplied: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The data that a hook supplied in addition to the text; null if none did. See `drafts.supplied_by`."""
    hook_messages: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The answer of each hook, in words."""
    appended_id = models.TextField(blank=True, default="")
    """The entry of the appended summary."""

    objects = SummaryDraftQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["session", "-id"], name="draft_by_session"),
            models.Index(fields=["state"], name="draft_by_state"),
        ]

    @classmethod
    def to_work_on(cls) -> SummaryDraftQuerySet:
        return cls.objects.with_session()

    def get_absolute_url(self) -> str:
        return reverse("compaction:draft", args=(self.pk,))

    @property
    def is_of_branch(self) -> bool:
        """Whether it summarises a branch that a move leaves, not the beginning of a context."""
        return bool(self.entry_id)

    @property
    def is_edited(self) -> bool:
        return self.text.strip() != self.generated.strip()

    @property
    def text_digest(self) -> str:
        """Digest of the text, sent back by the form to detect a concurrent edit."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
