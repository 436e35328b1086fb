"""The audit log: an entry for each change of a session, appended in the transaction that records the change.

    AuditEntry ──append──▶ chained to the one before ──▶ the head, in a file of the data directory

The head is written after the transaction. If the process is killed in between, the head is behind the log, which is not
a break; the next entry moves it. A head that contradicts the log is never moved, so that the contradiction stays.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import filelock
import msgspec
from django.conf import settings
from django.db import transaction

from compaction_app.core.audit_chain import EMPTY_CHAIN, NO_ENTRY, ChainBreak, ChainHead, find_break
from compaction_app.models import AuditEntry
from sessions_app.disk.files import sync, sync_directory, write_all

HEAD_FILE: Final = "audit-head.json"
LOCK_SECONDS: Final = 10

logger = logging.getLogger("redline")


class FileContent(msgspec.Struct, frozen=True):
    """The content of a file, as its size in bytes and its SHA-256."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class AuditState:
    """The number of entries, the hash of the last one, and the break of the chain, if any."""

    count: int
    sha256: str
    broken: ChainBreak | None


def append(entry: AuditEntry, before: FileContent | None = None, after: FileContent | None = None) -> None:
    """Add an entry to the log, unless its change is already recorded. Raises DatabaseError.

    `before` is the session before the change, None if there was none; `after` is the session, or the new file, after
    it, None if unknown. To be called in the transaction that records the change.
    """
    with transaction.atomic():
        if AuditEntry.objects.filter(change=entry.change).exists():
            return
        last = AuditEntry.objects.order_by("-number").first()
        if last is None:
            _move_head()  # so that a missing head is a break from the first entry on
        if before is not None:
            entry.bytes_before, entry.sha256_before = before.size, before.sha256
        if after is not None:
            entry.bytes_after, entry.sha256_after = after.size, after.sha256
        entry.number = last.number + 1 if last is not None else 1
        entry.previous = last.sha256 if last is not None else NO_ENTRY
        entry.sha256 = entry.hash()
        entry.save(force_insert=True)
        transaction.on_commit(_move_head)


def verify() -> AuditState:
    """Read the whole log and verify its chain."""
    # The head first: an entry that is added meanwhile does not count as a break.
    head = _read_head()
    links = [entry.link for entry in AuditEntry.objects.order_by("number")]
    return AuditState(len(links), links[-1].sha256 if links else NO_ENTRY, find_break(links, head))


def _move_head() -> None:
    """Set the head to the last entry, unless it contradicts the log or has been lost."""
    locks: Path = settings.REDLINE_DATA_DIR / "locks"
    try:
        locks.mkdir(mode=0o700, exist_ok=True)
        with filelock.FileLock(locks / "audit-head.lock", timeout=LOCK_SECONDS):
            head = _read_head()
            last = AuditEntry.objects.order_by("-number").first()
            if head is None and last is None:
                _write_head(EMPTY_CHAIN)
            elif head is not None and last is not None and last.number > head.count:
                in_log = AuditEntry.objects.filter(number=head.count, sha256=head.sha256)
                if head == EMPTY_CHAIN or in_log.exists():
                    _write_head(ChainHead(last.number, last.sha256))
    except (OSError, filelock.Timeout) as fault:
        logger.warning("The head of the audit log was not written: %s. The next entry does it.", fault)


def _head_path() -> Path:
    path: Path = settings.REDLINE_DATA_DIR / HEAD_FILE
    return path


def _read_head() -> ChainHead | None:
    """The head of the log; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(_head_path().read_bytes(), type=ChainHead)
    except (OSError, msgspec.DecodeError):
        return None


def _write_head(head: ChainHead) -> None:
    path = _head_path()
    draft = path.with_suffix(".draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, msgspec.json.encode(head))
        sync(fd)
    finally:
        os.close(fd)
    draft.replace(path)
    sync_directory(path.parent)
