"""Forks before what a user says, by the writers of agents that have no copy of a branch."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from compaction_app.navigation.fork import fork_session, plan_fork
from sessions_app.agents.registry import agent_at
from sessions_app.index.index_store import session_row
from sessions_app.index.indexer import index_file
from sessions_app.index.session_reading import reading_of_session
from sessions_app.sessionlog.entries import Role
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import text
from tests.compaction_app.undo.scenes import codex_scene
from tests.files import backdate, place
from tests.installation import Installation
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.paths import corpus
from tests.sessions_app.agents.claude_code.writing import ClaudeSession
from tests.sessions_app.agents.codex.rollouts import Rollout, answer, meta, user


def codex_thread(redline: Installation) -> Path:
    talk = Rollout(meta(), user("One."), answer("Done."), user("Two."), answer("Done."))
    return codex_scene(redline, talk, "fork").path


def opencode_session(redline: Installation) -> Path:
    return worked_session(OpenCodeStore(redline.home / ".local" / "share" / "opencode"))


def claude_session(redline: Installation) -> Path:
    """A real session if there is one."""

    found = corpus()
    directory = redline.home / ".claude" / "projects" / "p"
    if found is not None and (real := sorted(found.glob("claude-code/*.jsonl"))):
        return backdate(place(directory / real[0].name, real[0].read_bytes()))
    session = ClaudeSession()
    for turn in range(2):
        session.user(f"Step {turn}.")
        session.reply(f"r{turn}", text("Done."))
    return backdate(place(directory / "s.jsonl", session.content))


def context(path: Path, leaf_id: str = "") -> list[tuple[str, int]]:
    """The messages that the agent rebuilds, as roles and sizes."""
    loaded = load_session(path)
    reading = reading_of_session(session_row(path), path, loaded.log.entries, loaded.log.state)
    rebuilt = reading.reader.rebuild(loaded.tree.branch(leaf_id or loaded.leaf_id))
    return [(message.role, message.tokens) for message in rebuilt.messages]


@pytest.mark.parametrize("make", [codex_thread, opencode_session, claude_session])
def test_a_fork_ends_before_what_a_user_says(redline, make):
    path = make(redline)
    index_file(path)
    tree = load_session(path).tree
    said = [entry for entry in tree.branch(tree.leaf.id) if entry.role == Role.USER][-1]
    plan = plan_fork(path, said.id, datetime.now(UTC))
    assert not plan.is_copy
    assert plan.destination.leaf_id is not None
    wanted = context(path, plan.destination.leaf_id)
    made = fork_session(path, said.id, datetime.now(UTC)).real_path()
    assert made != path
    assert agent_at(made) is agent_at(path)
    assert context(made) == wanted
