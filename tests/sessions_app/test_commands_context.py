"""`redline context --messages`: the messages of a context as each agent sends them."""

import json
from pathlib import Path

import pytest

from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.claude_sessions import SESSION_ID, ClaudeSession, text
from tests.factories import assistant, chain, session_bytes, summary_compaction, user
from tests.factories import text as pi_text
from tests.files import place
from tests.html import text_of
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
def test_each_agents_messages(session, redline):
    assert callable(session)
    path = session(redline.home)
    shown = redline.call("context", path, "--json", "--messages").json
    sent = [(message["role"], json.dumps(message["content"])) for message in shown["messages"]]
    assert [role for role, _ in sent] == ["user", "assistant"]
    assert ["go" in sent[0][1], "done" in sent[1][1]] == [True, True]
    assert "messages" not in redline.call("context", path, "--json").json


def test_messages_are_for_json(redline):
    found = redline.call("context", pi_session(redline.home), "--messages")
    assert found.code == 2
    assert "--messages is for --json" in found.err


def test_numbers_that_are_too_large_are_sent_as_null(redline):
    path = claude_session(redline.home)
    path.write_bytes(path.read_bytes().replace(b'"done"', b'"done", "n": 1e400, "s": "\\ud800"'))
    (_, reply) = redline.call("context", path, "--json", "--messages").json["messages"]
    (block,) = reply["content"]
    assert (block["n"], block["s"]) == (None, "\ud800")


def summarised_session(path: Path) -> Path:
    """A session whose agent honours its summary: 900 tokens are reported, and 11,000 are recorded before it."""
    recorded = chain(
        user("old " * 4_000),
        assistant(pi_text("older " * 4_000)),
        user("go on"),
        summary_compaction("What came before.", "e3"),
        user("and now"),
        assistant(pi_text("done"), usage={"totalTokens": 900}),
    )
    return place(path, session_bytes(recorded))


def test_a_reader_that_reads_far_more_than_was_reported_is_named_with_one_that_fits(redline):
    path = summarised_session(redline.home / ".pi" / "agent" / "sessions" / "s.jsonl")
    assert redline.call("context", path, "--json").json["fittingReader"] is None
    other = redline.call("context", path, "--reader", "atomic-0.8", "--json").json
    assert other["fittingReader"] == "pi", "900 are more than pi finds, and far less than the other one"
    assert "--reader pi" in redline.call("context", path, "--reader", "atomic-0.8").out


def test_the_page_of_a_session_names_it_too(browser, known_root):
    session = index_file(summarised_session(known_root / "s.jsonl"))
    Session.objects.filter(pk=session.pk).update(reader="atomic-0.8")
    index_file(session.path)
    shown = text_of(browser.get(session.get_absolute_url()))
    assert "The provider reported far fewer tokens than atomic-0.8 reads here. What pi reads would fit" in shown


def test_the_list_names_it_too(browser, known_root):
    session = index_file(summarised_session(known_root / "s.jsonl"))
    for reader, is_named in (("pi", False), ("atomic-0.8", True), ("pi", False)):
        Session.objects.filter(pk=session.pk).update(reader=reader)
        index_file(session.path)
        assert ("pi would fit" in text_of(browser.get("/"))) is is_named
