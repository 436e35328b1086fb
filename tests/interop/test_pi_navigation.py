"""Real pi: after moves, labels and forks of its sessions it rebuilds the contexts that Redline rebuilds."""

import random
from pathlib import Path

import pytest

from compaction_app.hooks import Adjust, session_before_tree
from compaction_app.navigation.entry_append import AppendConfirmations, append_entries
from compaction_app.navigation.fork import fork_session
from compaction_app.navigation.moves import destination_of, move_to, set_label
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.outline import labels
from sessions_app.storage.session_loader import load_session
from tests.interop.pi_sessions import SMALLEST, copy_of, each_writable, rebuilt_by_pi, require_same
from tests.interop.test_pi import NOW

PLACES = 2
CONFIRMED = AppendConfirmations(live=True)


@pytest.fixture
def path(name, sessions, redline):
    """A copy of a session among pi's, in the index."""
    copy = copy_of(sessions[name], redline.home / ".pi" / "agent" / "sessions" / "--home--", redline.home)
    index_file(copy)
    Session.objects.update(reader="pi")
    return copy


def places_of(path: Path) -> list[str]:
    """Entries to move to and fork from: some by chance, the last one, and one before each compaction."""
    loaded = load_session(path)
    tree = loaded.tree
    dice = random.Random(7)
    chosen = dice.sample([entry.id for entry in tree.entries[1:-1]], PLACES)
    chosen += [entry.parent_id for entry in tree.entries if entry.is_compaction and entry.parent_id]
    return [one for one in chosen if destination_of(tree, one).leaf_id not in (None, loaded.leaf_id)]


@each_writable
def test_pi_rebuilds_the_same_after_moves_labels_and_forks(name, path):
    places = places_of(path)
    assert places
    for number, entry_id in enumerate(places):
        append_entries(path, set_label(entry_id, f"place {number}"), CONFIRMED, NOW)
        append_entries(path, move_to(entry_id), CONFIRMED, NOW)
        loaded = require_same(path)
        rebuilt = rebuilt_by_pi(path)
        leaf_id = destination_of(loaded.tree, entry_id).leaf_id
        assert leaf_id is not None
        made = fork_session(path, entry_id, NOW).real_path()
        assert rebuilt_by_pi(made) == rebuilt
        forked = load_session(made)
        on_branch = {entry.id for entry in loaded.tree.branch(leaf_id)}
        assert dict(labels(forked.tree)) == {
            one: words for one, words in labels(loaded.tree).items() if one in on_branch
        }
        append_entries(path, set_label(entry_id, ""), CONFIRMED, NOW)
        assert rebuilt_by_pi(path) == rebuilt
        made.unlink()


@pytest.mark.parametrize("name", [SMALLEST])
def test_pi_rebuilds_the_same_after_a_move_that_a_hook_labels(name, path):
    entry_id = places_of(path)[0]
    session_before_tree.connect(lambda **_: Adjust(label="tried"), weak=False, dispatch_uid="label")
    try:
        append_entries(path, move_to(entry_id), CONFIRMED, NOW)
    finally:
        session_before_tree.disconnect(dispatch_uid="label")
    assert labels(require_same(path).tree)[entry_id] == "tried"
