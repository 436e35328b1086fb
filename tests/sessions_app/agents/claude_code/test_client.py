"""How a dry resume runs Claude Code."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.claude_code.client import ClaudeCodeProgram, sessions_directory
from sessions_app.agents.claude_code.sent import INTERRUPTED
from sessions_app.agents.dry_resume.scratch import new_scratch
from tests.claude_sessions import answer

SESSION = "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture
def scratch(tmp_path):
    return new_scratch(tmp_path, "http://127.0.0.1:1")


def test_a_session_is_continued_by_the_name_of_its_file(scratch):
    assert ClaudeCodeProgram("claude").place(f"{SESSION}.jsonl", [b"one\n", b"two"], scratch) == SESSION
    assert (sessions_directory(scratch) / f"{SESSION}.jsonl").read_bytes() == b"one\ntwo"


def test_a_copy_with_another_name_gets_an_id(scratch):
    session_id = ClaudeCodeProgram("claude").place("notes.jsonl", [b"one\n"], scratch)
    assert str(uuid.UUID(session_id)) == session_id
    assert (sessions_directory(scratch) / f"{session_id}.jsonl").exists()


def test_the_directory_of_a_project_is_named_after_its_path(scratch):
    name = sessions_directory(scratch).name
    assert name.endswith("-project")
    assert name.replace("-", "").isalnum()
    assert name.isascii()


def test_everything_that_the_client_writes_is_in_its_home(scratch):
    environment = ClaudeCodeProgram("claude").environment(scratch)
    assert Path(environment["CLAUDE_CONFIG_DIR"]).is_relative_to(scratch.home)
    assert environment["ANTHROPIC_BASE_URL"] == scratch.model_url


def test_a_request_for_a_title_is_not_a_turn():
    client = ClaudeCodeProgram("claude")
    messages = [{"role": "user", "content": "go"}]
    assert client.messages({"messages": messages}) is None
    assert client.messages({"messages": messages, "tools": [{}]}) == messages


def test_the_sentence_about_an_interrupted_call_is_in_short():
    def results(content: str) -> list[dict[str, Any]]:
        found = [answer("t1", content), answer("t2", "fine")]
        return [{"role": "user", "content": found}]

    body = {"messages": results(f"{INTERRUPTED[:-1]}: it is not known why.]"), "tools": [{}]}
    assert ClaudeCodeProgram("claude").messages(body) == results(INTERRUPTED)
