"""`redline context --messages`: the messages of a context as each agent sends them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.claude_sessions import SESSION_ID, ClaudeSession, text
from tests.factories import assistant, chain, session_bytes, user
from tests.factories import text as pi_text
from tests.files import place
from tests.installation import Installation
from tests.opencode_stores import OpenCodeStore
from tests.sessions_app.agents.codex import rollouts


def pi_session(home: Path) -> Path:
    recorded = session_bytes(chain(user("go"), assistant(pi_text("done"))))
    return place(home / ".pi" / "agent" / "sessions" / "s.jsonl", recorded)


def claude_session(home: Path) -> Path:
    session = ClaudeSession()
    session.user("go")
    session.reply("m1", text("done"))
    return place(home / ".claude" / "projects" / "-work" / f"{SESSION_ID}.jsonl", session.content)


def codex_session(home: Path) -> Path:
    rollout = rollouts.Rollout(rollouts.meta(), rollouts.user("go"), rollouts.answer("done"))
    name = f"rollout-2026-01-05T10-00-00-{rollouts.THREAD}.jsonl"
    return place(home / ".codex" / "sessions" / name, rollout.content)


def opencode_session(home: Path) -> Path:
    store = OpenCodeStore(home / ".local" / "share" / "opencode")
    path = store.session()
    store.user("go")
    store.assistant("done")
    return path


@pytest.mark.parametrize("session", [pi_session, claude_session, codex_session, opencode_session])
def test_each_agents_messages(session: object, redline: Installation) -> None:
    assert callable(session)
    path = session(redline.home)
    shown = redline.call("context", path, "--json", "--messages").json
    sent = [(message["role"], json.dumps(message["content"])) for message in shown["messages"]]
    assert [role for role, _ in sent] == ["user", "assistant"]
    assert ["go" in sent[0][1], "done" in sent[1][1]] == [True, True]
    assert "messages" not in redline.call("context", path, "--json").json


def test_messages_are_for_json(redline: Installation) -> None:
    found = redline.call("context", pi_session(redline.home), "--messages")
    assert found.code == 2
    assert "--messages is for --json" in found.err


def test_numbers_that_are_too_large_are_sent_as_null(redline: Installation) -> None:
    path = claude_session(redline.home)
    path.write_bytes(path.read_bytes().replace(b'"done"', b'"done", "n": 1e400, "s": "\\ud800"'))
    (_, reply) = redline.call("context", path, "--json", "--messages").json["messages"]
    (block,) = reply["content"]
    assert (block["n"], block["s"]) == (None, "\ud800")
