"""A process killed at any moment while it writes files leaves a complete session: as before, or as after.

This is about the files alone; in `test_kill_commands` the database, the lock and the next command take part.
"""

import hashlib
import random
from datetime import UTC, datetime

import pytest

from sessions_app.storage import append, backups, locks, restore
from sessions_app.storage.files import BACKUP_SUFFIX
from sessions_app.storage.locks import RecoveryKind
from tests import kill_steps
from tests.files import fingerprint_of, never_complete, snapshot, state_of
from tests.installation import Installation


class Kills:
    """A session that is backed up and appended to, or restored as well, and the check of what a kill has left."""

    def __init__(self, redline: Installation) -> None:
        dice = random.Random(kill_steps.SEED)
        self.data, self.session = redline.data, redline.home / "s.jsonl"
        self.line = b'{"type":"context_compaction","text":"' + dice.randbytes(30_000).hex().encode() + b'"}'
        lines = (dice.randbytes(500).hex().encode() for _ in range(300))
        self.before = b"".join(b'{"id":"%08x","text":"%s"}\n' % one for one in enumerate(lines))
        self.after = self.before + self.line + b"\n"
        self.session.write_bytes(self.before)
        self.world = kill_steps.World(redline.data, redline.home)

    def append(self) -> None:
        with locks.session_lock(self.data, self.session, 5) as locked:
            backups.back_up(locked, fingerprint_of(self.session), datetime.now(UTC))
            append.append_lines(locked, [self.line], state_of(self.session), never_complete)

    def restore(self) -> None:
        (backup,) = backups.list_backups(self.session)
        with locks.session_lock(self.data, self.session, 5) as locked:
            digest, state = backup.recorded_sha256, state_of(self.session)
            restored = restore.restore(locked, backup.path, digest, state, datetime.now(UTC))
            backups.delete_backup(restored.previous_backup.path)

    def both(self) -> None:
        self.append()
        self.restore()

    def outcome(self) -> str:
        """What the session is like; the next lock has nothing to mend in it, and removes what is unfinished."""
        left = self.session.read_bytes()
        assert left in (self.before, self.after)
        for name, content in snapshot(self.session.parent).items():
            if name.endswith(BACKUP_SUFFIX):
                assert content in (self.before, self.after), name
                digest = hashlib.sha256(content).hexdigest()
                assert backups.recorded_sha256(self.session.with_name(name)) == digest, name
        with locks.session_lock(self.data, self.session, 5) as locked:
            assert locked.recovery.kind not in (RecoveryKind.UNRESOLVED, RecoveryKind.CUT_OFF)
            assert self.session.read_bytes() == left
        assert not [name for name in snapshot(self.session.parent) if name.startswith(".")]
        assert not list((self.data / "locks").glob("*.intent"))
        return "before" if left == self.before else "after"


@pytest.fixture
def kills(redline):
    return Kills(redline)


def test_a_kill_at_any_moment_leaves_the_session_as_before_or_as_after(kills):
    kill_steps.assert_any_kill_leaves_one_of_two_states(kills.world.put_back, kills.both, kills.outcome)
