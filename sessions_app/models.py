"""The index: what Redline knows of session files, and can find out again. The files stay the truth.

A session is known by its root and its path below it. Rebuilding the index touches nothing that a human has
decided: a vanished file is marked missing, and a header id that turns up elsewhere is a hint, never a key.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from django.db import models

from .agents.base import Agent
from .agents.registry import AGENTS, agent_at
from .querysets import SessionQuerySet, live_since
from .sessionlog.context import why_due
from .sessionlog.errors import BadInput
from .storage.files import real_path

UNQUOTED: Final = "/~:@!$&'()*+,;="
"""What stands for itself in a path: RFC 3986."""


class Root(models.Model):
    """A directory in which sessions are looked for."""

    path = models.TextField(unique=True)
    agent = models.CharField(max_length=20, blank=True, default="")
    reader = models.CharField(max_length=20, blank=True, default="")
    """The configured reader; empty where none is."""
    chosen_reader = models.CharField(max_length=20, blank=True, default="")
    """The user's choice on the settings page, which wins over the configured one."""
    configured = models.BooleanField(default=False)
    """False for a directory that was only named on the command line: the web does not show it."""

    def __str__(self) -> str:
        return self.path


class Session(models.Model):
    """One session file, and what its last reading found."""

    root = models.ForeignKey(Root, on_delete=models.CASCADE, related_name="sessions")
    relative_path = models.TextField()
    reader = models.CharField(max_length=20, blank=True, default="")
    """The user's choice; empty where Redline chooses."""

    header_id = models.TextField(blank=True, default="")
    version = models.PositiveSmallIntegerField(default=0)
    cwd = models.TextField(blank=True, default="")
    name = models.TextField(blank=True, default="")
    first_user_message = models.TextField(blank=True, default="")
    title = models.TextField(blank=True, default="")
    """The name, else the beginning of the first user message that is more than noise: see `sessionlog.noise`."""
    leaf_id = models.TextField(blank=True, default="")
    provider = models.TextField(blank=True, default="")
    model = models.TextField(blank=True, default="")
    read_as = models.CharField(max_length=20, blank=True, default="")
    """The reader that the context tokens were counted with."""
    window = models.PositiveIntegerField(null=True)
    """The model's context window in tokens; null where it is unknown."""
    window_source = models.TextField(blank=True, default="")
    reserve_tokens = models.PositiveIntegerField(default=0)
    """What the agent's settings keep free of the window."""

    size = models.BigIntegerField(default=0)
    entry_count = models.PositiveIntegerField(default=0)
    damage_count = models.PositiveIntegerField(default=0)
    compaction_count = models.PositiveIntegerField(default=0)
    context_tokens = models.BigIntegerField(null=True)
    context_source = models.CharField(max_length=10, blank=True, default="")
    overflow = models.BigIntegerField(null=True)
    """The largest window, in tokens, that the branch's last assistant message says to have been too small; null where
    it says none. See `sessionlog.overflow`."""
    last_used = models.DateTimeField(null=True)
    """When the file was last written to."""
    mtime_ns = models.BigIntegerField(null=True)
    """The same in nanoseconds, as the file system has it."""
    indexed_at = models.DateTimeField(null=True)
    own_write_ns = models.BigIntegerField(null=True)
    """The file's mtime in nanoseconds after Redline last wrote to it."""
    imported_at = models.DateTimeField(null=True)
    """When it was put into the managed root; null for a session that an agent left."""
    missing = models.BooleanField(default=False)
    fault = models.TextField(blank=True, default="")
    """Why the file could not be read, where it could not."""

    schema = models.PositiveSmallIntegerField(default=0)
    """The version of what is indexed; another one is indexed anew."""
    fingerprint: models.JSONField[Any, Any] = models.JSONField(null=True)
    state: models.JSONField[Any, Any] = models.JSONField(null=True)
    """Where the next reading goes on: see `sessionlog.session.ParserState` and `sessionlog.context.Tally`."""
    damage: models.JSONField[Any, Any] = models.JSONField(default=list)

    objects = SessionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["root", "relative_path"], name="session_by_path"),
        ]
        indexes = [models.Index(fields=["-mtime_ns"], name="session_mtime")]

    def __str__(self) -> str:
        return self.relative_path

    def get_absolute_url(self) -> str:
        """As `reverse` gives it, but without loading the pages: commands list thousands of sessions."""
        return f"/sessions/{self.root_id}/{quote(self.relative_path, safe=UNQUOTED)}"

    @property
    def path(self) -> Path:
        """Where it lies by its row. Nothing is looked at: a link there now is not noticed."""
        return Path(self.root.path, self.relative_path)

    def real_path(self) -> Path:
        """The path, to open the file. Raises BadInput `outside_root` if a link now leads elsewhere."""
        if real_path(self.path) != self.path:
            raise BadInput(
                "outside_root",
                f"{self.path} is no longer the indexed file: it is now a link to another file. Nothing was opened.",
            )
        return self.path

    @property
    def heading(self) -> str:
        """Its title, else the name of its file."""
        return self.title or self.path.name

    def is_live(self, now: datetime, mtime_ns: int | None = None) -> bool:
        """Whether somebody other than Redline wrote to the file in the last minutes.

        `mtime_ns` is that of the file as it is now, if the index may not know it yet.
        """
        if mtime_ns is None and not self.missing:
            mtime_ns = self.mtime_ns
        return mtime_ns is not None and mtime_ns > live_since(now) and mtime_ns != self.own_write_ns

    @property
    def fill_percent(self) -> int | None:
        """How full the window is, at most 100; None if that is not known."""
        if self.context_tokens is None or not self.window:
            return None
        return min(100, round(100 * self.context_tokens / self.window))

    @property
    def due_percent(self) -> float | None:
        """Where compaction falls due, in percent of the window."""
        if not self.window or self.window <= self.reserve_tokens:
            return None
        return round(100 * (self.window - self.reserve_tokens) / self.window, 1)

    @property
    def due(self) -> Literal["", "threshold", "overflow"]:
        """Why the agent would compact it by itself; empty where it would not."""
        return why_due(self.context_tokens, self.overflow, self.window, self.reserve_tokens)

    @property
    def reader_choice(self) -> str:
        """The reader that the user chose, for the session or for its root; empty where nobody chose."""
        return self.reader or self.root.chosen_reader

    @property
    def agent(self) -> Agent:
        """The agent whose files it is read as, as its root is configured or its place shows."""
        return AGENTS.get(self.root.agent) or agent_at(self.path)

    @property
    def has_header(self) -> bool:
        """Whether the file begins with a session header. While it is indexed anew, nothing else is known."""
        return self.state is None or self.state["parser"].get("header") is not None

    def has_entry(self, entry_id: str) -> bool:
        return self.entries.filter(entry_id=entry_id).exists()

    @property
    def own_entries(self) -> frozenset[str]:
        """The ids of the entries that Redline appended: they say nothing of the agent that owns the session."""
        if self.pk is None:
            return frozenset()
        return frozenset(self.compactions.values_list("entry_id", flat=True))


class Entry(models.Model):
    """One line's place in the file, and what the rules need of it. No content is copied."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="entries", db_index=False)
    number = models.PositiveIntegerField()
    offset = models.BigIntegerField()
    length = models.PositiveIntegerField()
    entry_id = models.TextField()
    parent_id = models.TextField(null=True)  # noqa: DJ001  # a root has no parent, which is not an empty id
    digest = models.BinaryField()
    """The rest of a `sessionlog.entries.Entry`."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "number"], name="entry_by_number")]
        indexes = [models.Index(fields=["session", "entry_id"], name="entry_by_id")]

    def __str__(self) -> str:
        return self.entry_id
