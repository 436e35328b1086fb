"""`redline undo`: the latest compaction, a named one, or single entries."""

import json

import pytest

from compaction_app.models import Undo
from sessions_app.storage.session_loader import load_session
from tests.files import backdate, snapshot

from .scenes import deleted_by, scene

EVERY = [("atomic-0.8", "context-compaction"), ("pi", "context-edit"), ("pi", "fork")]


@pytest.fixture(params=EVERY, ids=lambda pair: pair[1])
def compacted(redline, request):
    return scene(redline, *request.param)


def test_it_says_what_would_happen_and_needs_a_confirmation(redline, compacted):
    compacted.compact()
    before = snapshot(compacted.path.parent)
    refused = redline.call("undo", compacted.path)
    assert (refused.code, "would be undone" in refused.out) == (5, True)
    assert "redline undo" in refused.err
    assert "--yes" in refused.err
    dry = redline.call("undo", compacted.path, "--dry-run", "--json")
    assert dry.code == 0
    assert (dry.json["undone"], dry.json["needs"], dry.json["whole"]) == (False, ["--yes"], True)
    assert snapshot(compacted.path.parent) == before


def test_it_undoes_the_latest_compaction(redline, compacted):
    before = compacted.context()
    committed = compacted.compact()
    done = redline.call("undo", compacted.path, "--yes", "--json")
    assert done.code == 0
    assert done.json["compaction"] == committed.entry_id
    assert done.json["undone"] is True
    assert compacted.context() == before
    if committed.created is not None:
        assert done.json["removed"] == str(committed.created)
        assert not committed.created.exists()
    else:
        assert done.json["way"] == "leaf"
        assert done.json["entryId"] == load_session(compacted.path).leaf_id
    again = redline.call("undo", compacted.path, "--yes", "--json")
    assert again.error == "no_compaction"


def test_it_brings_entries_back_with_their_pairs(redline, compacted):
    committed = compacted.compact()
    entry_id = deleted_by(committed)[0].entry_id
    done = redline.call(
        "undo", compacted.path, "--compaction", committed.entry_id, "--entry", entry_id, "--yes", "--json"
    )
    assert done.code == 0
    back = {target["entryId"] for target in done.json["broughtBack"]}
    assert entry_id in back
    assert len(back) == 2
    assert not done.json["whole"]
    assert not Undo.objects.get().is_whole


def test_a_live_session_needs_its_own_confirmation(redline, compacted):
    committed = compacted.compact()
    touched = committed.created or compacted.path
    backdate(touched, hours=0)
    refused = redline.call("undo", compacted.path, "--yes", "--json")
    assert refused.error == "session_live"
    assert "--live" in json.loads(refused.out)["error"]["message"]
    assert redline.call("undo", compacted.path, "--yes", "--live").code == 0


def test_a_session_without_a_compaction_has_nothing_to_undo(redline, compacted):
    before = snapshot(compacted.path.parent)
    assert redline.call("undo", compacted.path, "--yes", "--json").error == "no_compaction"
    assert redline.call("undo", compacted.path, "--compaction", "e3", "--yes", "--json").error == "not_ours"
    assert snapshot(compacted.path.parent) == before
