"""Old threads of Amp are read, and what is kept of them becomes Markdown; nothing is written to them."""

import json
from typing import Any

import pytest

from sessions_app.agents.amp.agent import AMP
from sessions_app.agents.base import Agent
from sessions_app.agents.registry import agent_of
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.diagnosis import violations
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.handoff import handoff
from sessions_app.storage.session_loader import load_opened, load_session
from tests.claude_sessions import Object, answer, call, text, thinking
from tests.files import place, unchanged


def said(role: str, *blocks: Object, **fields: Any) -> Object:
    return {"role": role, "content": list(blocks), **fields}


def read(call_id: str, path: str) -> Object:
    return {**call(call_id, "Read"), "input": {"path": path}}


THREAD: dict[str, Any] = {
    "v": 9,
    "id": "T-1",
    "created": 1_750_000_000_000,
    "title": "A thread",
    "env": {"initial": {"trees": [{"uri": "file:///home/dev/project"}]}},
    "messages": [
        said("user", text("Look.")),
        said("assistant", thinking("Hm."), text("I look."), read("t1", "a"), read("t2", "b"), usage={"model": "a-m"}),
        said("user", answer("t1", "```one```"), answer("t2", [text("two")]), text("And then?")),
        said("assistant", text("Done.")),
    ],
}


@pytest.fixture
def path(tmp_path):
    return place(tmp_path / "amp" / "threads" / "T-1.json", json.dumps(THREAD, indent=2).encode())


def test_results_are_entries_of_their_own(path):
    loaded = load_session(path)
    branch = loaded.tree.branch(loaded.leaf_id)
    texts = loaded.texts(branch)
    assert [(entry.role, texts[entry.id].joined(entry.blocks)) for entry in branch] == [
        (Role.USER, "Look."),
        (Role.ASSISTANT, 'Hm.\nI look.\ntoolCall t1 Read {"path":"a"}\ntoolCall t2 Read {"path":"b"}'),
        (Role.TOOL_RESULT, "```one```"),
        (Role.TOOL_RESULT, "two"),
        (Role.USER, "And then?"),
        (Role.ASSISTANT, "Done."),
    ]
    assert not violations(AMP.format.generations[0].reader.rebuild(branch))


def test_an_agent_that_is_only_read_needs_a_store_and_a_format(path):
    agent = Agent("amp", AMP.store, AMP.format)
    with agent.store.open(path) as reader:
        assert load_opened(agent, reader).log.entries == load_session(path).log.entries
    assert (agent.bridge, agent.client.can_be_run, agent.client.has_package) == (None, False, False)
    assert not agent.settings.for_project("/", path.parent).compacts_automatically


def test_a_thread_is_found_and_indexed_and_nothing_is_written_to_it(redline, path):
    assert AMP.store.discover(path.parent).paths == (path,)
    assert not AMP.settings.for_project("/", path.parent).compacts_automatically
    assert agent_of(path) == "amp"
    session = index_file(path)
    assert (session.title, session.cwd, session.model) == ("A thread", "/home/dev/project", "a-m")
    with unchanged(path):
        found = redline.call("compact", path, "--yes", "--ratio", "0.9", "--preserve-recent", "0")
        assert found.code != 0
        assert "on its servers" in found.err
    assert [one.name for one in path.parent.iterdir()] == ["T-1.json"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"id": "T-1"}', '{"id": 1, "messages": []}', "{"])
def test_another_document_is_not_a_thread(path, content):
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RedlineError, match="not a thread of Amp"):
        load_session(path)


@pytest.mark.parametrize(
    "message", [7, {}, {"role": 5, "content": 5}, {"role": "user", "content": [7, {"type": []}, None]}]
)
def test_a_damaged_message_does_not_hide_the_others(path, message):
    path.write_text(json.dumps({**THREAD, "messages": [message, *THREAD["messages"]]}), encoding="utf-8")
    assert len(load_session(path).log.entries) >= 7


def test_what_is_kept_becomes_markdown(path):
    loaded = load_session(path)
    branch = loaded.tree.branch(loaded.leaf_id)
    messages = AMP.format.generations[0].reader.rebuild(branch).messages
    kept = [message for message in messages if message.entry.result_for != "t2"]
    assert handoff(kept, loaded.texts(branch)) == (
        "## User\n\nLook.\n\n"
        '## Assistant\n\nI look.\n\nCalled Read {"path":"a"}\n\nCalled Read {"path":"b"}\n\n'
        "## Tool result\n\n````\n```one```\n````\n\n"
        "## User\n\nAnd then?\n\n"
        "## Assistant\n\nDone.\n"
    )
