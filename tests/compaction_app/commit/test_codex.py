"""Threads of Codex are compacted by either writer; a kill leaves them as before or as after."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from compaction_app.backups.service import list_backups
from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import Approved, commit
from compaction_app.models import AuditEntry, Backup, Compaction
from sessions_app.agents.registry import READERS
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session, settle_interrupted
from sessions_app.storage.session_loader import load_session
from tests.files import place, snapshot
from tests.installation import Installation
from tests.kill_steps import killed_before
from tests.plans import approved_plan
from tests.sessions_app.agents.codex.rollouts import THREAD, work

from .test_kill_commands import ROUNDS, SEED, killed

READER: Final = "codex"
YES: Final = Confirmations(live=True, below_target=True)
MOST: Final = 2_000
all_writers = pytest.mark.parametrize(
    ("writer", "paginated"),
    [
        pytest.param("compacted", True, id="compacted"),
        pytest.param("compacted", False, id="compacted in a legacy thread"),
        pytest.param("fork", True, id="fork"),
        pytest.param("fork", False, id="fork of a legacy thread"),
    ],
)


class Kills:
    """A commit that is done again and again, and the check of what a kill has left of it."""

    def __init__(self, redline: Installation, writer: str, paginated: bool) -> None:
        directory = redline.home / ".codex" / "sessions" / "2026" / "01" / "05"
        self.path = directory / f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl"
        self.content, self.writer = work(paginated=paginated).content, writer
        self.put_back()
        self.before = context_ids(self.path)

    def put_back(self) -> None:
        for model in (Compaction, Backup):
            model.objects.all().delete()
        for beside in self.path.parent.glob("*"):
            beside.unlink()
        index_file(place(self.path, self.content))
        self.audited = AuditEntry.objects.count()
        self.approved: Approved = approved_plan(self.path, reader=READER, writer=self.writer)

    def act(self) -> None:
        commit(self.approved, YES, datetime.now(UTC))

    def act_and_wait(self, begin: Callable[[str], object]) -> None:
        begin("commit")
        self.act()
        begin("done")
        time.sleep(60)

    def outcome(self) -> str:
        """Whether the commit is made, with all its records, or not at all, once Redline has started again."""
        settle_interrupted()
        made = [one for one in self.path.parent.glob("*.jsonl") if one != self.path]
        for session in (self.path, *made):
            with lock_session(session):
                pass
        found = self.path.read_bytes()
        assert found.startswith(self.content)
        assert found.endswith(b"\n")
        assert not [name for name in snapshot(self.path.parent) if name.startswith(".")]
        for listed in list_backups(self.path):
            assert listed.file.path.read_bytes() == self.content
            assert listed.recorded == hashlib.sha256(self.content).hexdigest()
        is_made = bool(made) or found != self.content
        assert AuditEntry.objects.count() == self.audited + is_made
        if not is_made:
            assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)
            return "before"
        assert (found == self.content, len(made)) == ((True, 1) if self.writer == "fork" else (False, 0))
        row = Compaction.objects.get()
        assert (row.writer, row.created) == (self.writer, str(made[0]) if made else "")
        gone = {target.entry_id for target in self.approved.targets}
        left = [entry_id for entry_id in self.before if entry_id not in gone]
        assert context_ids(made[0] if made else self.path) == left
        return "after"


def context_ids(path: Path) -> list[str]:
    loaded = load_session(path)
    branch = loaded.tree.branch(loaded.leaf_id)
    return [message.entry.id for message in READERS[READER].rebuild(branch).messages]


@all_writers
def test_a_commit_killed_before_any_step_is_completed_or_leaves_nothing(
    redline: Installation, writer: str, paginated: bool
) -> None:
    kills = Kills(redline, writer, paginated)
    found: Counter[str] = Counter()
    for step in range(1, MOST):
        was_killed = killed_before(step, kills.act)
        found[kills.outcome()] += 1
        if not was_killed:
            break
        kills.put_back()
    else:
        raise AssertionError(f"more than {MOST} steps")
    assert found.keys() == {"before", "after"}
    assert min(found.values()) > 3


@all_writers
def test_a_commit_killed_at_any_moment_is_completed_or_leaves_nothing(
    redline: Installation, capsys: pytest.CaptureFixture[str], writer: str, paginated: bool
) -> None:
    dice = random.Random(SEED)
    kills = Kills(redline, writer, paginated)
    began = time.perf_counter()
    kills.act()
    longest_us = int(1.5e6 * (time.perf_counter() - began))
    found: Counter[str] = Counter()
    for _ in range(ROUNDS):
        kills.put_back()
        killed(kills.act_and_wait, dice.randrange(longest_us))
        found[kills.outcome()] += 1
    with capsys.disabled():
        print(f"\n{ROUNDS} kills of a commit by {writer}, seed {SEED}: it was {dict(found)}")
