"""Queries of the index that are used in more than one place."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from django.conf import settings
from django.db.models import BigIntegerField, F, Func, Q, QuerySet, Value

from .agents.registry import READERS, key_of_reader
from .sessionlog.overflow import ANY_WINDOW

if TYPE_CHECKING:
    from .models import Session

OVERFLOWN: Final = Q(overflow__gte=ANY_WINDOW) | Q(overflow__gte=F("window"))
"""The last assistant message reported that the context was too long."""
PAST_THRESHOLD: Final = Q(context_tokens__gt=F("window") - F("reserve_tokens"))
ENOUGH_TO_COMPACT: Final = Q(tokens_after_first__gte=F("keep_recent_tokens"))
DUE: Final = (PAST_THRESHOLD | OVERFLOWN) & ENOUGH_TO_COMPACT & Q(compacts_automatically=True, taken_over="")
"""The rule of `Session.due`."""
HAS_ENTRIES: Final = Q(missing=False, state__isnull=False, indexed_at__isnull=False)
"""The file is there and was read: its entries are in the index, by the schema of the row."""
WRITTEN_BY_OTHERS: Final = ~Q(own_write_ns=F("mtime_ns"))


def live_since(now: datetime) -> int:
    """A session that others wrote to after this time is live. In nanoseconds, like the times of files."""
    return int((now.timestamp() - 60 * settings.REDLINE.live_minutes) * 1e9)


def live(now: datetime) -> Q:
    """The rule of `Session.is_live`."""
    return Q(mtime_ns__gt=live_since(now), missing=False) & WRITTEN_BY_OTHERS


class SessionQuerySet(QuerySet["Session"]):
    def shown(self) -> Self:
        """The sessions of configured roots: pages and the API show no others."""
        return self.filter(root__configured=True)

    def among(self, keys: Iterable[int]) -> Self:
        """The sessions with these keys. Django takes a millisecond for a query with hundreds of parameters."""
        listed = Func(
            Value(json.dumps(list(keys))),
            template="(SELECT value FROM json_each(%(expressions)s))",
            output_field=BigIntegerField(),
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
        """Without the forks of sessions in the index: what they say is in those."""
        rows = self.model.objects.filter(missing=False).values_list("header_id", "root__path", "relative_path")
        known = {name for header_id, *path in rows for name in (header_id, "/".join(path))}
        named = self.filter(is_subagent=False).exclude(parent_path="", made_from="")
        forks = named.values_list("pk", "parent_path", "made_from")
        return self.exclude(pk__in=[key for key, *parents in forks if not known.isdisjoint(filter(None, parents))])

    def started_by(self, session: Session, ids: Iterable[str]) -> dict[str, Session]:
        """The sessions of subagents in the root of a session, by these ids in their headers: if several have one id,
        one that names the session as its parent."""
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
        """With their roots, and without the fields that only the indexer reads."""
        return self.select_related("root").defer("state", "fingerprint", "damage")

    def for_reading(self) -> Self:
        """With what is needed to read their files, and no other fields."""
        return self.select_related("root").only("root__path", "root__agent", "relative_path", "read_as", "version")

    def for_hits(self) -> Self:
        """With what is shown of them above what a search found, and what is needed to read their files."""
        return self.select_related("root").only(
            "root__path", "root__agent", "relative_path", "read_as", "version", "title", "cwd", "last_used"
        )

    def latest_first(self) -> Self:
        return self.order_by(F("last_used").desc(nulls_last=True), "pk")
