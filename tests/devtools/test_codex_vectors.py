"""Vectors of Codex: rollouts, and the request of a resume."""

import json
from pathlib import Path
from typing import Any

from tests.installation import Installation
from tests.sessions_app.agents.codex.rollouts import (
    Item,
    Rollout,
    answer,
    call,
    compacted,
    developer,
    environment,
    meta,
    output,
    user,
)

ANSWERED = {"type": "function_call_output", "id": "fco_made", "call_id": "c1", "output": "aborted"}


def vector(
    directory: Path, recorded: list[Item], sent: list[Item] | None, client: str = "codex-cli 0.169.0", **more: Any
) -> Path:
    directory.mkdir()
    Rollout(meta(), *recorded).save(directory / "rollouts")
    (directory / "meta.json").write_text(json.dumps({"client": client, "note": "", **more}))
    if sent is not None:
        (directory / "request.json").write_text(json.dumps({"input": sent}))
    return directory


def checked(redline: Installation, *paths: Path) -> Any:
    return redline.call("check_vectors", *paths, "--json").json


def test_a_request_passes_if_it_has_the_items_that_codex_sends(redline, tmp_path):
    note = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    vector(
        tmp_path / "01-x",
        [user("a", id="msg_1", **note), call("c1"), answer("b")],
        [
            developer("instructions"),
            user("a", id="msg_1"),
            call("c1"),
            ANSWERED,
            answer("b"),
            environment(),
            user("go on"),
        ],
    )
    vector(
        tmp_path / "02-older",
        [user("a", id="msg_1")],
        [user("a"), developer(), user("go on")],
        client="codex-cli 0.104.0",
    )
    vector(tmp_path / "03-refused", [user("a")], None)
    assert checked(redline, tmp_path) == {"passed": 3, "failed": 0, "failures": []}
    assert checked(redline, tmp_path / "01-x")["passed"] == 1


def test_another_request_fails(redline, tmp_path):
    instructions, prompt = developer(), user("go on")
    recorded = [user("a"), call("c1"), output("c1"), compacted(user("a"), answer("b"))]
    vector(tmp_path / "01", recorded, [instructions, user("a"), answer("c"), prompt])
    vector(tmp_path / "02", recorded, [instructions, user("a"), prompt])
    vector(tmp_path / "03", recorded, [instructions, user("a"), answer("b"), answer("more"), prompt])
    vector(tmp_path / "04", recorded, [instructions, user("a"), answer("b")])
    failures = checked(redline, tmp_path)["failures"]
    expected = [("01", "input"), ("02", "input"), ("03", "added"), ("04", "prompt")]
    assert [(one["case"], one["section"]) for one in failures] == expected


def test_the_thread_that_was_resumed_is_named(redline, tmp_path):
    other = "01a20000-0000-7000-8000-000000000002"
    directory = vector(tmp_path / "01", [user("a")], [developer(), user("b"), user("go on")], fork=other)
    Rollout(meta(other), user("b")).save(directory / "rollouts", f"rollout-2026-01-05T10-00-00-{other}.jsonl")
    assert checked(redline, tmp_path)["passed"] == 1


def test_what_an_open_client_does_not_see_is_left_out(redline, tmp_path):
    note = "appended while the app-server had the thread open"
    sent = [developer(), user("a"), answer("b"), user("go on")]
    vector(tmp_path / "01", [user("a"), answer("b"), compacted(user("a"))], sent, note=note)
    assert checked(redline, tmp_path)["passed"] == 1


def test_a_vector_without_its_fields_is_named(redline, tmp_path):
    directory = vector(tmp_path / "01", [user("a")], [])
    (directory / "meta.json").write_text("{}")
    found = redline.call("check_vectors", tmp_path, "--json")
    assert found.error == "not_a_vector"
