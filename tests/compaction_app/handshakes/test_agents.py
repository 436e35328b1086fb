"""Each agent gets an approved plan in the way that it honours, and it can be undone like any other."""

import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.utils import timezone

from compaction_app.changes.change import Confirmations
from compaction_app.changes.undo import UndoRequest, planned, undo
from compaction_app.handshakes import approval
from compaction_app.handshakes.approval import approve
from compaction_app.handshakes.sweep import look_after_handshakes
from compaction_app.models import Compaction
from sessions_app.agents.registry import agent_at
from sessions_app.document.document import Document
from sessions_app.index import indexer
from sessions_app.models import Session
from sessions_app.storage.session_loader import load_session
from tests.browser.agent_sessions import register_as_open
from tests.claude_sessions import SESSION_ID
from tests.compaction_app.handshakes.conftest import AskingAgent, approved, reviewed_plan, state_of
from tests.compaction_app.undo.scenes import claude_work
from tests.files import backdate, place, unchanged
from tests.installation import refusal
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.sessions import use_root


def seen(path: Path) -> list[str]:
    """The entries that the model sees."""
    loaded, agent = load_session(path), agent_at(path)
    context = agent.format.generations[0].reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    return [message.entry.id for message in context.messages]


def undone(path: Path) -> None:
    request, now = UndoRequest(Document.to_change(path)), timezone.now()
    undo(request, Confirmations(live=True), now, shown=planned(request, now).digest())


def test_what_pi_applied_is_undone_like_any_other(agent):
    before = seen(agent.path)
    agent.applied(approved(agent.planned()))
    assert len(seen(agent.path)) < len(before)
    backdate(agent.path)
    undone(agent.path)
    assert seen(agent.path) == before


@pytest.fixture
def store(redline, settings):
    found = OpenCodeStore(redline.home / ".local" / "share" / "opencode")
    use_root(settings, found.directory, "opencode")
    return found


def delete_parts(store: OpenCodeStore, parts: list[dict[str, Any]]) -> None:
    """Change the parts as OpenCode's own interface does."""
    for part in parts:
        assert part["data"] is None
        store.run("DELETE FROM part WHERE id = ? AND message_id = ?", part["part"], part["message"])


def long_session(store: OpenCodeStore) -> Path:
    """A session whose outputs are long enough to be deleted."""
    path = worked_session(store)
    store.run(
        "UPDATE part SET data = json_set(data, '$.state.output', ?) WHERE json_extract(data, '$.type') = 'tool'",
        "word " * 4_000,
    )
    return path


def test_opencode_gets_the_parts_and_redline_finds_them_deleted(store):
    path = long_session(store)
    asking = AskingAgent(path, agent="opencode", honours="parts")
    handshake = approved(asking.planned(leaf=""))
    answer = asking.poll(handshake.pk)
    assert answer["do"] == "apply"
    assert answer["parts"]
    delete_parts(store, answer["parts"][:-1])
    look_after_handshakes(timezone.now())
    assert asking.poll(handshake.pk)["state"] == "approved", "not all of it is there"
    delete_parts(store, answer["parts"])
    assert asking.report("applied", handshake.pk)["state"] == "applied"
    compaction = Compaction.objects.get()
    assert (compaction.writer, compaction.certificate is not None) == ("delete", True)
    undone(path)
    assert {part["part"] for part in answer["parts"]} <= {row["id"] for row in store.run("SELECT id FROM part")}


def test_rows_that_change_while_they_are_looked_at_are_looked_at_again(store):
    asking = AskingAgent(long_session(store), agent="opencode", honours="parts")
    handshake = approved(asking.planned(leaf=""))
    first, *rest = asking.poll(handshake.pk)["parts"]

    def index_file(path: Path) -> Session:
        session = indexer.index_file(path)
        delete_parts(store, [first])
        return session

    with patch.object(approval, "index_file", index_file):
        assert refusal(lambda: approval.settle_approved(handshake, timezone.now())) == "4 session_rewritten"
    delete_parts(store, rest)
    look_after_handshakes(timezone.now())
    assert asking.poll(handshake.pk)["state"] == "applied"


def test_parts_that_were_not_deleted_are_no_compaction(store):
    path, rows = long_session(store), store.run("SELECT * FROM part ORDER BY id")
    asking = AskingAgent(path, agent="opencode", honours="parts")
    assert asking.report("applied", approved(asking.planned(leaf="")).pk)["state"] == "failed"
    assert store.run("SELECT * FROM part ORDER BY id") == rows
    assert not Compaction.objects.exists()


@pytest.fixture
def claude(redline, settings):
    projects = redline.home / ".claude" / "projects"
    path = place(projects / "-home-dev-project" / f"{SESSION_ID}.jsonl", claude_work().content)
    use_root(settings, projects, "claude-code")
    return AskingAgent(path, agent="claude-code", honours="nothing")


def test_claude_code_is_given_a_fork_at_once(claude):
    with unchanged(claude.path):
        answer = claude.poll(approved(claude.planned(leaf=""), "fork").pk)
        assert (answer["state"], answer["do"]) == ("applied", "continue")
        assert f"claude --resume {Path(Compaction.objects.get().created).stem}" in answer["message"]


def test_a_boundary_waits_until_claude_code_has_closed_the_session(claude):
    before = claude.path.read_bytes()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as client:
        register_as_open(claude.path, client.pid)
        handshake = approved(claude.planned(leaf=""), "boundary")
        answer = claude.poll(handshake.pk)
        assert (answer["state"], answer["do"]) == ("approved", "continue")
        assert f"claude --resume {SESSION_ID}" in answer["message"]
        look_after_handshakes(timezone.now())
        assert claude.path.read_bytes() == before
    look_after_handshakes(timezone.now())
    assert state_of(handshake) == "applied"
    assert claude.path.read_bytes().startswith(before)
    assert Compaction.objects.get().writer == "boundary"


def test_without_a_sign_that_a_session_is_open_nothing_waits_for_it_to_be_closed(claude):
    handshake = claude.planned(leaf="")
    assert refusal(lambda: approved(handshake, "boundary")) == "4 closing_unseen"
    assert claude.poll(handshake.pk)["state"] == "waiting"
    approve(handshake, reviewed_plan(handshake, "fork"))
    assert claude.poll(handshake.pk)["state"] == "applied"
