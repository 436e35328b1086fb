"""Drafts of summaries."""

from __future__ import annotations

import hashlib
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from django.db import models
from django.urls import reverse

from compaction_app.planning.usage import UsageTotals
from sessions_app.models import Session


class SummaryDraftQuerySet(models.QuerySet["SummaryDraft"]):
    def shown(self) -> Self:
        """Those of sessions in configured roots: pages show no others."""
        return self.filter(session__root__configured=True)

    def with_session(self) -> Self:
        return self.select_related("session__root")

    def queued(self) -> Self:
        return self.filter(state=SummaryDraft.State.QUEUED)

    def asking(self) -> Self:
        return self.filter(state=SummaryDraft.State.ASKING)

    def unfinished(self) -> Self:
        """Those that are not appended."""
        return self.exclude(state=SummaryDraft.State.APPENDED)

    def numbers(self) -> list[int]:
        """Their keys, the oldest first."""
        return list(self.order_by("pk").values_list("pk", flat=True))


class SummaryDraft(models.Model):
    """The draft of a summary: what a model or a hook wrote, and what a human made of it.

        queued ──▶ asking ──▶ ready ──▶ appended
           ╲          ╲──▶ failed ──▶ ready, with the partial text
            ╲──────────────▶

    It is generated or a human's, and never verbatim. Only what a human confirmed is appended to the session.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        ASKING = "asking", "being written"
        READY = "ready", "a draft"
        FAILED = "failed", "failed"
        APPENDED = "appended", "appended"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="drafts")
    entry_id = models.TextField(blank=True, default="")
    """The entry that a move leads to, if it is the summary of the branch that is left; empty for a compaction."""
    is_leaf = models.BooleanField(default=False)
    """Whether that move continues after a user's message instead of before it."""
    leaf_id = models.TextField()
    """The session's last entry when it was drafted: a draft is of no use once the session has continued."""
    focus = models.TextField(blank=True, default="")
    """What the summary should emphasise, in the user's words."""
    planner = models.TextField(blank=True, default="")
    """The model of the request, as `provider/name`; empty if there was none."""
    base_url = models.TextField(blank=True, default="")
    """The model's address, as confirmed before the request."""

    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    failure = models.TextField(blank=True, default="")
    stop_requested = models.BooleanField(default=False)
    worker = models.TextField(blank=True, default="")
    """The worker that has the lease."""
    beats = models.PositiveBigIntegerField(default=0)
    """The number of heartbeats: see `runs.lease.LeaseWatch`."""
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    edited_at = models.DateTimeField(null=True)
    """When its text was last saved."""

    generated = models.TextField(blank=True, default="")
    """What the model or the hook wrote; the partial text while it is being written."""
    text = models.TextField(blank=True, default="")
    """The text as it is now, without the lists of files."""
    is_cut = models.BooleanField(default=False)
    """Whether the limit of the model's output cut it off."""
    supplied: models.JSONField[Any, Any] = models.JSONField(null=True)
    """What a hook supplied beside the text; null if none did. See `drafts.supplied_by`."""
    hook_messages: models.JSONField[Any, Any] = models.JSONField(default=list)
    """What each hook answered, in words."""
    usage: models.JSONField[Any, Any] = models.JSONField(null=True)
    """What a model was sent and returned, as `planning.usage.UsageTotals.to_json`; null if nothing left the machine."""
    appended_id = models.TextField(blank=True, default="")
    """The entry that it became."""

    objects = SummaryDraftQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["session", "-id"], name="draft_by_session"),
            models.Index(fields=["state"], name="draft_by_state"),
        ]

    def __str__(self) -> str:
        return f"draft {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("compaction:draft", args=(self.pk,))

    @property
    def is_of_branch(self) -> bool:
        """Whether it summarises a branch that a move leaves, not the beginning of a context."""
        return bool(self.entry_id)

    @property
    def is_active(self) -> bool:
        return self.state in (self.State.QUEUED, self.State.ASKING)

    @property
    def is_edited(self) -> bool:
        return self.text.strip() != self.generated.strip()

    @property
    def text_digest(self) -> str:
        """What a page that shows the text says of it when it saves another one."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def model_host(self) -> str:
        """Host and port to which its request goes; empty without a model."""
        return urlsplit(self.base_url).netloc

    @property
    def traffic(self) -> UsageTotals | None:
        """What was sent and received; None if nothing has left the machine."""
        return msgspec.convert(self.usage, UsageTotals) if self.usage else None
