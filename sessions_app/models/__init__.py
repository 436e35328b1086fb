"""The index of session files, which can be rebuilt. The files are authoritative.

A session is identified by its root and its path below it. Rebuilding the index changes no user's decisions: a missing
file is marked as missing, and a header id that appears elsewhere is a hint, never a key.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import msgspec
from django.conf import settings
from django.db import connection, models
from django.db.models import F, Q
from django.db.models.functions import Concat

from sessions_app.agents.base import Agent, AgentSettings
from sessions_app.agents.registry import AGENTS, READERS, agent_by, agent_of, agent_with_reader, key_of_reader
from sessions_app.disk.files import real_path
from sessions_app.earlier_names import with_earlier_names
from sessions_app.sessionlog.context import ANY_WINDOW, Basis, ContextSize, InheritedMeasure, has_overflown, why_due
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.session import ParserState

PAGE_PATH: Final = r"[\s\S]+(?:\.jsonl?(?:\.zst)?|\.db/[^/]+)"
"""The paths of sessions in addresses: a file, or a name in a database. A file name may contain anything."""
SESSION_ROUTE: Final = rf"^sessions/(?P<root>[0-9]{{1,18}})/(?P<path>{PAGE_PATH})"
"""The pattern of `Session.get_absolute_url`, with which the routes of its pages begin."""
SHORT_ID_LENGTH: Final = 8
UNQUOTED: Final = "/~:@!$&'()*+,;="
"""The characters of a path that need no escape: RFC 3986."""
OVERFLOWN: Final = Q(overflow__gte=ANY_WINDOW) | Q(overflow__gte=F("window"))
"""Sessions whose last assistant message reported that the context was too long."""
PAST_THRESHOLD: Final = Q(context_tokens__gt=F("window") - F("reserve_tokens"))
ENOUGH_TO_COMPACT: Final = Q(tokens_after_first__gte=F("keep_recent_tokens"))
DUE: Final = (PAST_THRESHOLD | OVERFLOWN) & ENOUGH_TO_COMPACT & Q(compacts_automatically=True, taken_over="")
"""The rule of `Session.due`."""
HAS_ENTRIES: Final = Q(missing=False, state__isnull=False, indexed_at__isnull=False)
"""Sessions whose file exists and was read, so that their entries are in the index, by the schema of the row."""
AS_PATH: Final = Concat("root__path", models.Value("/"), "relative_path", output_field=models.TextField())
"""The path of a session as text, to compare it in the database."""
WRITTEN_BY_OTHERS: Final = ~Q(own_write_ns=F("mtime_ns"))

INDEXED_FIELDS: Final = (
    "header_id version parent_path is_subagent cwd name first_user_message title leaf_id provider model read_as "
    "fitting_reader window window_source recorded_window reserve_tokens keep_recent_tokens compacts_automatically "
    "size entry_count damage_count damage compaction_count context_tokens context_basis context_ratio context_estimate "
    "tokens_after_first overflow broken broken_at last_used mtime_ns indexed_at missing taken_over fault schema "
    "fingerprint state"
).split()
"""The fields that reading a file determines. All others are users' decisions, and may change meanwhile."""
READING_FIELDS: Final = ("root__path", "root__agent", "relative_path", "read_as", "version")
"""The fields that are needed to read a file."""


def insert_statement(model: type[models.Model]) -> str:
    """A statement that inserts a row with all columns in the order of the model's fields; Django takes thirty times as
    long to build one.
    """
    columns = [connection.ops.quote_name(str(field.column)) for field in model._meta.concrete_fields]
    places = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO {model._meta.db_table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608  # names of columns


class Root(models.Model):
    """A directory that is searched for sessions."""

    path = models.TextField(unique=True)
    agent = models.CharField(max_length=20, blank=True, default="")
    reader = models.CharField(max_length=20, blank=True, default="")
    """The configured reader; empty if none is."""
    chosen_reader = models.CharField(max_length=20, blank=True, default="")
    """The user's choice on the settings page, which takes precedence over the configured reader."""
    added = models.BooleanField(default=False)
    """Whether the user added it on the settings page."""
    name = models.TextField(blank=True, default="")
    """The user's name for it on the settings page; empty if there is none."""
    configured = models.BooleanField(default=False)
    """False for a directory that was only given on the command line: the pages do not show it."""
    unread = models.TextField(blank=True, default="")
    """A sentence about the agent's content there that Redline cannot read yet; empty if there is none."""

    def __str__(self) -> str:
        return self.path


class ChosenWindow(models.Model):
    """A context window that the user chose on the settings page."""

    model = models.TextField(unique=True)
    tokens = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.model


class ChosenSetting(models.Model):
    """A value that the user chose on the settings page for a field of the configuration."""

    name = models.TextField(unique=True)
    value: models.JSONField[Any, Any] = models.JSONField()

    def __str__(self) -> str:
        return self.name


def live_since(now: datetime) -> int:
    """The time, in nanoseconds, since which a write by others makes a session live."""
    return int((now.timestamp() - 60 * settings.REDLINE.live_minutes) * 1e9)


def live(now: datetime) -> Q:
    """The rule of `Session.is_live`."""
    return Q(mtime_ns__gt=live_since(now), missing=False) & WRITTEN_BY_OTHERS


class SessionQuerySet(models.QuerySet["Session"]):
    def shown(self) -> Self:
        """The sessions of configured roots: pages and the API show no others."""
        return self.filter(root__configured=True)

    def among(self, keys: Iterable[int]) -> Self:
        """The sessions with these keys, passed as one JSON parameter: Django takes a millisecond for hundreds of
        parameters.
        """
        listed = models.Func(
            models.Value(json.dumps(list(keys))),
            template="(SELECT value FROM json_each(%(expressions)s))",
            output_field=models.BigIntegerField(),
        )
        return self.filter(pk__in=listed)

    def due(self) -> Self:
        return self.filter(DUE)

    def present(self) -> Self:
        """Sessions whose file is not marked as missing."""
        return self.filter(missing=False)

    def of_agent(self, key: str) -> Self:
        """The sessions of the agent with this key: see `Session.agent_key`."""
        readers = [reader.name for reader in READERS.values() if key_of_reader(reader.name) == key]
        return self.filter(Q(read_as__in=readers) | Q(read_as="", root__agent=key))

    def children_of(self, parent: Session) -> Self:
        """The sessions that were forked from another one, or started by it."""
        names = [name for name in (parent.header_id, str(parent.path)) if name]
        return self.filter(Q(parent_path__in=names) | Q(made_from=str(parent.path))).exclude(pk=parent.pk)

    def parent_of(self, child: Session) -> Session | None:
        """The session that a session was forked from, or that started it; None if it is not known.

        An id may be in several roots: that of the session itself comes first.
        """
        if not child.parent:
            return None
        named = self.filter(header_id=child.parent).exclude(pk=child.pk)
        return named.filter(root=child.root).first() or named.first() or self._at(Path(child.parent))

    def _at(self, path: Path) -> Session | None:
        """The session at a path."""
        found = self.select_related("root").filter(relative_path__endswith=path.name)
        return next((one for one in found if one.path == path), None)

    def originals(self) -> Self:
        """The sessions that are not forks of indexed ones, which have the same texts."""
        rows = self.model.objects.filter(missing=False).values_list("header_id", "root__path", "relative_path")
        known = {name for header_id, *path in rows for name in (header_id, "/".join(path))}
        named = self.filter(is_subagent=False).exclude(parent_path="", made_from="")
        forks = named.values_list("pk", "parent_path", "made_from")
        return self.exclude(pk__in=[key for key, *parents in forks if not known.isdisjoint(filter(None, parents))])

    def started_by(self, session: Session, ids: Iterable[str]) -> dict[str, Session]:
        """The sessions of subagents in the root of a session, by the ids in their headers. If several have the same id,
        one that names the session as its parent is chosen."""
        found = self.filter(root=session.root_id, is_subagent=True, header_id__in=ids)
        names = (session.header_id, str(session.path))
        return {one.header_id: one for one in sorted(found, key=lambda one: one.parent_path in names)}

    def with_model(self) -> Self:
        """Sessions with an existing file and a model."""
        return self.present().exclude(model="")

    def containing(self, text: str) -> Self:
        """Sessions with this text in their title or project."""
        return self.filter(Q(title__icontains=text) | Q(cwd__icontains=text))

    def for_display(self) -> Self:
        """The sessions with their roots, and without the fields that only the indexer reads."""
        return self.select_related("root").defer("state", "fingerprint", "damage")

    def for_reading(self) -> Self:
        """The sessions with only the fields needed to read their files."""
        return self.select_related("root").only(*READING_FIELDS)

    def for_hits(self) -> Self:
        """The sessions with the fields that search results show, and those needed to read the files."""
        return self.select_related("root").only(*READING_FIELDS, "title", "cwd", "last_used")

    def latest_first(self) -> Self:
        return self.order_by(F("last_used").desc(nulls_last=True), "pk")


class Session(models.Model):
    """One session file, and the results of its last reading."""

    root = models.ForeignKey(Root, on_delete=models.CASCADE, related_name="sessions")
    relative_path = models.TextField()
    reader = models.CharField(max_length=20, blank=True, default="")
    """The user's choice; empty if Redline chooses."""

    header_id = models.TextField(blank=True, default="")
    version = models.PositiveSmallIntegerField(default=0)
    parent_path = models.TextField(blank=True, default="")
    """The path or the id of the session that it was forked from, or that started it: data, not to be opened. Empty if
    there is none."""
    made_from = models.TextField(blank=True, default="")
    """The path of the session from which Redline made it; empty if Redline did not. Not every agent's forks record
    their origin."""
    is_subagent = models.BooleanField(default=False)
    """Whether the parent session started it as a subagent."""
    cwd = models.TextField(blank=True, default="")
    name = models.TextField(blank=True, default="")
    first_user_message = models.TextField(blank=True, default="")
    title = models.TextField(blank=True, default="")
    """The name, or the beginning of the first user message that is not noise: see `sessionlog.text.is_noise`."""
    leaf_id = models.TextField(blank=True, default="")
    provider = models.TextField(blank=True, default="")
    model = models.TextField(blank=True, default="")
    read_as = models.CharField(max_length=20, blank=True, default="")
    """The reader with which the context tokens were counted."""
    fitting_reader = models.CharField(max_length=20, blank=True, default="")
    """Another reader whose context fits the last report, if this is far too small for the present one's; otherwise
    empty."""
    window = models.PositiveIntegerField(null=True)
    """The model's context window in tokens; null if it is unknown."""
    window_source = models.TextField(blank=True, default="")
    recorded_window = models.PositiveIntegerField(null=True)
    """The window that the session itself records; null if it records none."""
    reserve_tokens = models.PositiveIntegerField(default=0)
    """The tokens of the window that the agent's settings leave free."""
    keep_recent_tokens = models.PositiveIntegerField(default=0)
    """The tokens that the agent keeps when it compacts; with fewer after the first message it does not compact."""
    compacts_automatically = models.BooleanField(default=True)
    """Whether the agent compacts it automatically, by its settings: if not, it is never due."""

    size = models.BigIntegerField(default=0)
    entry_count = models.PositiveIntegerField(default=0)
    damage_count = models.PositiveIntegerField(default=0)
    compaction_count = models.PositiveIntegerField(default=0)
    context_tokens = models.BigIntegerField(null=True)
    context_basis = models.CharField(max_length=10, blank=True, default="")
    context_ratio = models.FloatField(default=1.0)
    """See `sessionlog.context.ContextSize`."""
    context_estimate = models.BigIntegerField(default=0)
    """The context in characters / 4, as the agents estimate."""
    inherited: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The measure of the context that Redline compacted, as `sessionlog.context.InheritedMeasure`; null if there is
    none."""
    tokens_after_first = models.BigIntegerField(default=0)
    """The estimate of the context after its first message: see `sessionlog.context.ActiveContext.after_first`."""
    overflow = models.BigIntegerField(null=True)
    """The largest window, in tokens, that the branch's last assistant message reports as too small; null if it reports
    none. See `sessionlog.context.has_overflown`."""
    broken = models.TextField(blank=True, default="")
    """Why it cannot be continued: a sentence about the agent's or the provider's error; empty if it can."""
    broken_at = models.TextField(blank=True, default="")
    """The entry that causes this error."""
    last_used = models.DateTimeField(null=True)
    """The time of the last entry of the conversation; if none records one, when the file was last written to."""
    mtime_ns = models.BigIntegerField(null=True)
    """The modification time of the file in nanoseconds, as in the file system."""
    indexed_at = models.DateTimeField(null=True)
    own_write_ns = models.BigIntegerField(null=True)
    """The file's mtime in nanoseconds after Redline last wrote to it."""
    imported_at = models.DateTimeField(null=True)
    """When it was imported; null for an agent's own session."""
    missing = models.BooleanField(default=False)
    taken_over = models.TextField(blank=True, default="")
    """How a newer version of its agent took it over, such as "taken over by OpenCode 2"; then the index lacks some or
    all of the content that the agent continues. Empty if the agent continues it."""
    fault = models.TextField(blank=True, default="")
    """Why the file could not be read; empty if it could."""

    schema = models.PositiveSmallIntegerField(default=0)
    """The version of the indexed data; sessions with another version are indexed again."""
    fingerprint: models.JSONField[Any, Any] = models.JSONField(null=True)
    state: models.JSONField[Any, Any] = models.JSONField(null=True)
    """Where the next reading continues: see `sessionlog.session.ParserState` and `sessionlog.context.Tally`."""
    damage: models.JSONField[Any, Any] = models.JSONField(default=list)

    objects = SessionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["root", "relative_path"], name="session_by_path"),
        ]
        indexes = [
            models.Index(fields=["-mtime_ns"], name="session_mtime"),
            models.Index(fields=["-last_used"], name="session_last_used"),
            # What searches need of all sessions, from the index alone: whole rows have kilobytes of parser state.
            models.Index(fields=["root", "read_as", "cwd", "mtime_ns"], name="session_facts"),
            models.Index(fields=["schema"], condition=HAS_ENTRIES, name="session_with_entries"),
        ]

    def __str__(self) -> str:
        return self.relative_path

    def get_absolute_url(self) -> str:
        """The result of `reverse`, without loading the pages: commands list thousands of sessions."""
        return f"/sessions/{self.root_id}/{quote(self.relative_path, safe=UNQUOTED)}"

    @property
    def has_page(self) -> bool:
        """Whether pages show it: it is in a configured root, under a name that an address can have."""
        return self.root.configured and re.fullmatch(PAGE_PATH, self.relative_path) is not None

    @property
    def path(self) -> Path:
        """The path according to its row. The disk is not checked: a link that is there now is not noticed."""
        return Path(self.root.path, self.relative_path)

    def real_path(self) -> Path:
        """The path, to open the file. Raises BadInput `outside_root` if a link now leads elsewhere."""
        path = self.path
        if real_path(path) != path:
            raise BadInput(
                "outside_root",
                f"{path} is no longer the indexed file: it is now a link to another file. Nothing was opened.",
            )
        return path

    def as_stored(self) -> Session:
        """Its row as it is now. Raises Conflict `not_indexed` if it was removed."""
        found = Session.objects.select_related("root").filter(pk=self.pk).first()
        if found is None:
            raise Conflict("not_indexed", f"{self.path} was deleted from the index meanwhile. Try again.")
        return found

    @property
    def short_id(self) -> str:
        """Its name on a command line, derived from its path, so that a copy has a different one."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:SHORT_ID_LENGTH]

    @property
    def heading(self) -> str:
        """The title, or the name of the file."""
        return self.title or self.path.name

    @property
    def parent(self) -> str:
        """The path or the id of the session that it was forked from, or that started it; empty if there is none."""
        return self.parent_path or self.made_from

    @property
    def parent_name(self) -> str:
        """The name of the file of which it is a fork; empty if it is not one."""
        return Path(self.parent).name

    def is_live(self, now: datetime, mtime_ns: int | None = None) -> bool:
        """Whether anyone other than Redline wrote to the file in the last minutes.

        `mtime_ns` is that of the current file, if the index may be out of date.
        """
        if mtime_ns is None and not self.missing:
            mtime_ns = self.mtime_ns
        return mtime_ns is not None and mtime_ns > live_since(now) and mtime_ns != self.own_write_ns

    @property
    def context_size(self) -> ContextSize | None:
        """The size of its context; None while it is unknown."""
        if self.context_tokens is None:
            return None
        return ContextSize(self.context_tokens, Basis(self.context_basis), self.context_ratio, self.context_estimate)

    @property
    def inherited_measure(self) -> InheritedMeasure | None:
        return msgspec.convert(self.inherited, InheritedMeasure | None)

    def fill_percent_of(self, size: ContextSize | None) -> int | None:
        """The part of the window that a context uses, in percent, at most 100; None if that is unknown."""
        if size is None or not self.window:
            return None
        return min(100, round(100 * size.tokens / self.window))

    @property
    def fill_percent(self) -> int | None:
        return self.fill_percent_of(self.context_size)

    @property
    def due_at(self) -> int | None:
        """The tokens beyond which its agent compacts it automatically; None if that is unknown, or if it never does."""
        if not self.compacts_automatically or not self.window or self.window <= self.reserve_tokens:
            return None
        return self.window - self.reserve_tokens

    @property
    def due_percent(self) -> float | None:
        """The threshold `due_at` in percent of the window."""
        return round(100 * self.due_at / self.window, 1) if self.window and self.due_at else None

    @property
    def due(self) -> Literal["", "threshold", "overflow"]:
        """Why the agent would compact it automatically; empty if it would not."""
        is_kept = self.taken_over or not self.compacts_automatically
        if is_kept or self.tokens_after_first < self.keep_recent_tokens:
            return ""
        return why_due(self.context_tokens, self.overflow, self.window, self.reserve_tokens)

    @property
    def has_overflown(self) -> bool:
        """Whether its model last responded that the context is too long."""
        return has_overflown(self.overflow, self.window)

    @property
    def agent_key(self) -> str:
        """The agent that owns it, by its last reading or its root; empty if neither shows one."""
        return key_of_reader(self.read_as) or self.root.agent

    @property
    def agent_label(self) -> str:
        """The name of that agent for people; empty if it is unknown."""
        return AGENTS[self.agent_key].label if self.agent_key in AGENTS else ""

    @property
    def is_old(self) -> bool:
        """Whether its format is older than that of its agent: then it cannot be written to."""
        return 0 < self.version < self.agent.format.current_version

    @property
    def read_only(self) -> str:
        """Sentences on why nothing can be written for it, not even to a copy; empty if something can."""
        if self.is_subagent:
            return (
                "This is the session of a subagent, which only the session that started it continues. Compact that one."
            )
        if self.version > self.agent.format.current_version:
            return f"This is a version {self.version} session, which Redline does not know, so it is only read."
        return self.agent.store.read_only(self.path)

    @property
    def can_hand_off(self) -> bool:
        """Whether a plan can be made although nothing can be written: the kept messages are given as Markdown."""
        return self.agent.store.read_only(self.path) != ""

    @property
    def unarchive_command(self) -> str:
        """The command that makes its agent continue it again; empty if the agent has not archived it."""
        return shlex.join(self.agent.client.unarchive_command(self.path))

    @property
    def reader_choice(self) -> str:
        """The reader that the user chose for the session or its root; empty if there is none."""
        return self.reader or self.root.chosen_reader

    @property
    def agent(self) -> Agent:
        """The agent whose parser reads it, by its root, its last reading, its location or its content."""
        return AGENTS.get(self.root.agent) or agent_with_reader(self.read_as) or agent_by(self.found_agent)

    @cached_property
    def found_agent(self) -> str:
        """The key of the agent, from its location or its content; this may read the beginning of the file."""
        return agent_of(self.path)

    @property
    def continuing_agent(self) -> Agent:
        """The agent that continues it, by its reader: its settings apply. Agents may share a parser."""
        return agent_with_reader(self.read_as) or self.agent

    def agent_settings(self, home: Path) -> AgentSettings:
        """The settings of that agent for the session's project and model."""
        return self.continuing_agent.settings.for_project(self.cwd, home, (self.provider, self.model))

    @property
    def parser_state(self) -> ParserState:
        """The state of its parser after the last complete line that was indexed; a new one during indexing."""
        return msgspec.convert(self.state["parser"], ParserState) if self.state is not None else ParserState()

    @property
    def has_header(self) -> bool:
        """Whether the file begins with a session header. True while it is being indexed again."""
        return self.state is None or self.state["parser"].get("header") is not None

    def has_entry(self, entry_id: str) -> bool:
        return self.entries.filter(entry_id=entry_id).exists()

    @property
    def own_entries(self) -> dict[str, str]:
        """The last entry of each of Redline's writes, mapped to the entry after which it was written; both are ids.

        Entries that Redline appended are no evidence of the session's agent.
        """
        if self.pk is None:
            return {}
        names = ("entry_id", "leaf_id")
        return dict([*self.compactions.values_list(*names), *self.undos.values_list(*names)])

    def as_json(self) -> dict[str, Any]:
        """The session in the format for scripts. Sizes in bytes, context and window in tokens; times are UTC.

        Only sessions in configured roots have a page, and so URLs.
        """
        url = self.get_absolute_url() if self.has_page else None
        document = {
            "id": self.pk,
            "shortId": self.short_id,
            "url": url,
            "api": f"/api{url}" if url else None,
            "path": str(self.path),
            "title": self.title,
            "project": self.cwd,
            "agent": self.agent_key,
            "model": self.model,
            "entries": self.entry_count,
            "size": self.size,
            "contextTokens": self.context_tokens,
            "contextBasis": self.context_basis,
            "contextWindow": self.window,
            "windowSource": self.window_source,
            "almostFull": bool(self.due),
            "almostFullReason": self.due,
            "lastUsed": self.last_used.isoformat() if self.last_used else None,
            "damaged": self.damage_count,
            "forkOf": (not self.is_subagent and self.parent) or None,
            "subagentOf": (self.is_subagent and self.parent) or None,
            "broken": {"entry": self.broken_at, "reason": self.broken} if self.broken else None,
            "missing": self.missing,
            "takenOver": self.taken_over or None,
            "fault": self.fault,
        }
        return with_earlier_names(document, due="almostFull", dueReason="almostFullReason")


class Entry(models.Model):
    """The position of one entry in the file, and the data that the rules need. No content is copied.

    The columns from `kind` on repeat values for queries; the digest has all of them.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="entries", db_index=False)
    number = models.PositiveIntegerField()
    """Its line; a line may contain several entries."""
    offset = models.BigIntegerField()
    length = models.PositiveIntegerField()
    entry_id = models.TextField()
    parent_id = models.TextField(null=True)  # noqa: DJ001  # a root has no parent, which is not an empty id
    digest = models.BinaryField()
    """The other fields of a `sessionlog.entries.Entry`."""
    kind = models.PositiveSmallIntegerField(default=0)
    """A `sessionlog.entries.EntryKind`."""
    role = models.TextField(blank=True, default="")
    tool = models.TextField(blank=True, default="")
    """The tool whose result it is; empty if it is not a result."""
    tokens = models.BigIntegerField(default=0)
    """The estimate of the whole entry as recorded."""
    recorded_at = models.DateTimeField(null=True)
    """The time that it records; null if it records none."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "offset"], name="entry_by_offset")]
        indexes = [models.Index(fields=["session", "entry_id"], name="entry_by_id")]

    def __str__(self) -> str:
        return self.entry_id
