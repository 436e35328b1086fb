"""An undo puts the rows of a session of OpenCode back as they were, whole or in part."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compaction_app.models import Compaction, Undo
from compaction_app.undo.compaction_state import latest_state
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import UndoRequest, undo
from sessions_app.index.index_store import session_row
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.commit.test_row_change import (
    CALL,
    RESULT,
    THINKING,
    approved,
    done,
    everything,
    sent,
)
from tests.installation import Installation
from tests.opencode_stores import OpenCodeStore, text, worked_session


@pytest.fixture
def store(redline: Installation) -> OpenCodeStore:
    return OpenCodeStore(redline.home / ".local" / "share" / "opencode")


@pytest.fixture
def path(store: OpenCodeStore) -> Path:
    return worked_session(store)


def undone(path: Path, entry_ids: Collection[str] = ()) -> None:
    undo(
        UndoRequest(load_session(path), entry_ids=entry_ids),
        UndoConfirmations(live=True),
        datetime.now(UTC),
    )


@pytest.mark.parametrize("writer", ["delete", "prune"])
def test_the_rows_are_as_before(store: OpenCodeStore, path: Path, writer: str) -> None:
    before = everything(store)
    done(approved(path, writer, CALL, RESULT))
    assert everything(store) != before
    undone(path)
    assert everything(store) == before
    assert Undo.objects.get().is_whole
    with pytest.raises(RedlineError) as raised:
        undone(path)
    assert raised.value.code == "no_compaction"


def test_a_preview_waits_for_nobody_and_writes_nothing(store: OpenCodeStore, path: Path) -> None:
    before = sent(path)
    done(approved(path, "prune", CALL, RESULT))
    now = everything(store)
    with closing(store.connect()) as writer:
        writer.execute("BEGIN IMMEDIATE")
        state = latest_state(session_row(path), load_session(path))
        writer.execute("ROLLBACK")
    assert [entry.id for entry in state.branch if entry.id in (CALL, RESULT)] == [CALL, RESULT]
    assert everything(store) == now
    assert sent(path) != before


def test_what_was_said_since_stays(store: OpenCodeStore, path: Path) -> None:
    before = sent(path)
    done(approved(path, "delete", CALL, RESULT))
    store.user("And then?")
    store.assistant(text("Then nothing."))
    undone(path)
    assert sent(path) == [
        *before,
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": "Then nothing."},
    ]


def test_single_entries_are_put_back(store: OpenCodeStore, path: Path) -> None:
    before = everything(store)
    done(approved(path, "delete", CALL, RESULT, THINKING))
    undone(path, [THINKING])
    assert [row["id"] for row in before["part"] if row not in everything(store)["part"]] == [RESULT]
    undone(path)
    assert everything(store) == before


def test_a_fork_is_deleted_if_nobody_continued_it(store: OpenCodeStore, path: Path) -> None:
    before = everything(store)
    done(approved(path, "fork", CALL, RESULT))
    undone(path)
    assert everything(store) == before


def test_a_fork_that_was_continued_stays(store: OpenCodeStore, path: Path) -> None:
    made = done(approved(path, "fork", CALL, RESULT)).created
    assert made is not None
    store.user("More.", session_id=made.name)
    now = everything(store)
    with pytest.raises(RedlineError, match="was continued") as raised:
        undone(path)
    assert raised.value.code == "fork_continued"
    assert everything(store) == now


def test_rows_that_somebody_has_changed_since_stay(store: OpenCodeStore, path: Path) -> None:
    done(approved(path, "prune", CALL, RESULT))
    store.run("UPDATE part SET data = replace(data, 'output', 'other') WHERE id = ?", RESULT)
    now = everything(store)
    with pytest.raises(RedlineError, match="changed again since") as raised:
        undone(path)
    assert raised.value.code == "rows_changed"
    assert everything(store) == now
    assert Compaction.objects.count() == 1


def test_without_its_backup_a_compaction_is_not_undone(store: OpenCodeStore, path: Path) -> None:
    done(approved(path, "prune", CALL, RESULT))
    Path(Compaction.objects.get().backup.path).unlink()
    now = everything(store)
    with pytest.raises(RedlineError, match=r"has these rows, unless") as raised:
        undone(path)
    assert raised.value.code == "backup_gone"
    assert everything(store) == now


def test_compactions_of_the_same_rows_are_undone_one_by_one(store: OpenCodeStore, path: Path) -> None:
    before = everything(store)
    done(approved(path, "prune", CALL, RESULT))
    pruned = everything(store)
    done(approved(path, "delete", CALL, RESULT))
    undone(path)
    assert everything(store) == pruned
    undone(path)
    assert everything(store) == before
