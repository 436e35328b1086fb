"""Recorded vectors of each agent: a session passes if Redline reads what the agent sent, and every difference fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from devtools.agent_vectors import reader_of
from devtools.vector_files import find_cases
from sessions_app.agents.pi.pure.format import fields_of, message_hash
from sessions_app.sessionlog.errors import BadInput
from tests import claude_sessions as claude, opencode_stores as opencode
from tests.factories import (
    assistant,
    bash,
    block,
    call,
    chain,
    context_edit,
    result,
    session_bytes,
    summary_compaction,
    text,
    user,
    whole,
)
from tests.installation import Installation
from tests.sessions_app.agents.codex import rollouts as codex

RECORDED = chain(user("a"), user("b"), summary_compaction("S", "e2"), user("c"), context_edit("e4", None))
SUMMARY = {"role": "compactionSummary", "summary": "S"}
MESSAGES = [SUMMARY, {**user("b"), "stopReason": None}]
READING: dict[str, Any] = {"agent": "pi 0.87.1", "messages": MESSAGES, "sources": ["e3", "e2"]}


def write_reading(directory: Path, case: dict[str, Any], recorded: list[dict[str, Any]] = RECORDED) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "one.jsonl").write_bytes(session_bytes(recorded))
    (directory / "one.context.json").write_text(json.dumps(case))


def write_plan(
    directory: Path,
    contexts: dict[str, list[dict[str, Any]]],
    *targets: dict[str, Any],
    beside: bool = True,
    recorded: list[dict[str, Any]] = RECORDED,
) -> None:
    """A plan with these targets; `contexts` has the messages for each pair of a writer and an agent."""
    directory.mkdir(parents=True)
    place = directory / "session.jsonl"
    if not beside:
        place = directory.parent.parent / "sessions" / "pi" / "s.jsonl"
        place.parent.mkdir(parents=True)
    place.write_bytes(session_bytes(recorded))
    plan = {"session": "pi/s.jsonl", "leafId": "e5", "deletedTargets": list(targets)}
    (directory / "plan.json").write_text(json.dumps(plan))
    hashed = {
        pair: [[one["role"], message_hash(fields_of(one))] for one in messages] for pair, messages in contexts.items()
    }
    by = {pair: {"leaf": "e5", "context": pair} for pair in hashed}
    (directory / "contexts.json").write_text(json.dumps({"by": by, "contexts": hashed}))


def checked(redline: Installation, path: Path) -> tuple[int, Any]:
    ended = redline.call("check_vectors", path, "--json")
    return ended.code, ended.json


PASSED = (0, {"passed": 1, "failed": 0, "failures": []})


def test_a_reading_passes_if_the_messages_and_their_sources_are_the_agents(redline, tmp_path):
    write_reading(tmp_path / "pi-reading", READING)
    assert checked(redline, tmp_path) == PASSED
    assert checked(redline, tmp_path / "pi-reading" / "one.context.json") == PASSED
    write_reading(tmp_path / "pi-reading", {"agent": "pi", "messages": [], "sources": []}, chain())
    assert checked(redline, tmp_path) == PASSED, "a session without entries has no messages"


@pytest.mark.parametrize(
    ("changed", "section", "path"),
    [
        ({"messages": [MESSAGES[1]]}, "messages", "$[0].role"),
        ({"messages": [*MESSAGES, SUMMARY]}, "messages", "$.length"),
        ({"messages": [SUMMARY, user("other")]}, "messages", "$[1].content"),
        ({"sources": ["e2", "e3"]}, "sources", "$[0]"),
        ({"error": "cannot be opened"}, "error", "$"),
    ],
)
def test_a_different_reading_fails(redline, tmp_path, changed, section, path):
    write_reading(tmp_path, READING | changed)
    failure = {"case": "one.context.json", "section": section, "path": path}
    assert checked(redline, tmp_path) == (1, {"passed": 0, "failed": 1, "failures": [failure]})


@pytest.mark.parametrize(
    "recorded",
    [RECORDED[1:], chain(user("a"), {"type": "context_edit", "targetId": "e1"})],
    ids=["no-header", "no-replacement"],
)
def test_a_session_that_pi_refuses_is_refused_here(redline, tmp_path, recorded):
    write_reading(tmp_path, {"agent": "pi", "error": "pi's own words"}, recorded)
    assert checked(redline, tmp_path) == PASSED
    write_reading(tmp_path, READING, recorded)
    assert checked(redline, tmp_path)[1]["failures"][0]["section"] == "error"


@pytest.mark.parametrize("beside", [True, False])
def test_a_plan_compares_the_untouched_session_for_each_agent(redline, tmp_path, beside, monkeypatch):
    whole = [user("a"), user("b"), user("c")]
    contexts = {"session|pi-1.5.2": MESSAGES, "session|atomic-0.8.30a1": whole, "session|atomic-6031a926": whole}
    monkeypatch.delenv("REDLINE_CORPUS", raising=False)
    write_plan(tmp_path / "plans" / "00-one", contexts, beside=beside)
    (tmp_path / "plans" / "index.json").write_text("[]")
    assert checked(redline, tmp_path / "plans") == PASSED
    assert checked(redline, tmp_path / "plans" / "00-one" / "plan.json") == PASSED


def test_the_sessions_of_plans_are_among_the_real_ones(redline, tmp_path, monkeypatch):
    write_plan(tmp_path / "a" / "plans" / "00-one", {"session|pi-1.5.2": MESSAGES}, beside=False)
    monkeypatch.setenv("REDLINE_CORPUS", str(tmp_path / "a" / "sessions"))
    assert checked(redline, tmp_path / "a" / "plans") == PASSED
    monkeypatch.setenv("REDLINE_CORPUS", str(tmp_path))
    assert redline.call("check_vectors", tmp_path / "a" / "plans", "--json").refusal == "2 no_such_file"


def test_a_different_context_fails_and_names_the_writer_and_the_agent(redline, tmp_path):
    write_plan(tmp_path / "00-one", {"session|pi-1.5.2": MESSAGES, "session|pi-0.86.1": MESSAGES})
    failure = {"case": "00-one", "section": "session|pi-0.86.1", "path": "$.length"}
    assert checked(redline, tmp_path)[1]["failures"] == [failure]


WORK = chain(
    *(user("a"), assistant(text("b"), call("c1")), result("c1"), summary_compaction("S", "e2"), bash("ls", "d")),
    *(user("e"), assistant(text("f"), text("g"))),
)
KEPT = [WORK[number]["message"] for number in (2, 3, 5, 6, 7)]
LAST = {**KEPT[-1], "content": KEPT[-1]["content"][1:]}
REST = [SUMMARY, KEPT[2], KEPT[3], LAST]
WHOLE = [WORK[1]["message"], *KEPT[:2], *REST[1:]]


def test_a_plan_is_written_by_each_writer_that_the_agent_honours(redline, tmp_path):
    contexts = {
        "context_edit|pi-1.5.2": REST,
        "fork|pi-0.86.1": REST,
        "fork|pi-0.87.1": REST,
        "fork|atomic-0.8.30a1": REST[1:],
        "fork|atomic-6031a926": REST[1:],
        "context_compaction|atomic-0.8.30a1": REST[1:],
        # Forms that are not written, or not honoured, are not compared.
        "rebranch|pi-1.5.2": [],
        "verbatim|atomic-6031a926": [],
        "context_edit|atomic-6031a926": [],
        "context_compaction|pi-1.5.2": [],
    }
    # pi no longer sends e1: it is left out of the plan for pi.
    targets = (whole("e1"), whole("e2"), whole("e3"), block("e7", 0))
    write_plan(tmp_path / "00-one", contexts, *targets, recorded=WORK)
    assert checked(redline, tmp_path) == PASSED


@pytest.mark.parametrize(
    "pair", ["context_edit|pi-1.5.2", "fork|pi-0.87.1", "fork|atomic-6031a926", "context_compaction|atomic-0.8.30a1"]
)
def test_a_write_with_another_result_fails(redline, tmp_path, pair):
    untouched = WHOLE if "atomic" in pair else [SUMMARY, *KEPT]
    write_plan(tmp_path / "00-one", {pair: untouched}, whole("e3"), whole("e2"), recorded=WORK)
    assert checked(redline, tmp_path)[1]["failures"][0]["section"] == pair


def test_a_plan_that_a_writer_must_not_apply_passes_if_the_airlock_refuses_it(redline, tmp_path, monkeypatch):
    targets = (whole("e5"), whole("e2"), whole("e3"))
    write_plan(tmp_path / "00-one", {"context_edit|pi-1.5.2": []}, *targets, recorded=WORK)
    assert checked(redline, tmp_path) == PASSED
    monkeypatch.setattr("devtools.agent_vectors.validate", lambda *_: None)
    assert checked(redline, tmp_path)[0] == 1


def test_what_lies_beside_readings_and_plans_is_not_a_vector(redline, tmp_path):
    write_reading(tmp_path / "pi-reading", READING)
    write_plan(tmp_path / "plans" / "00-one", {})
    for place in (tmp_path, tmp_path / "plans", tmp_path / "plans" / "00-one"):
        (place / "appended.jsonl").write_bytes(session_bytes(RECORDED))
    assert checked(redline, tmp_path) == (0, {"passed": 2, "failed": 0, "failures": []})


@pytest.mark.parametrize("case", [{}, {"messages": 7}])
def test_a_reading_without_a_result_is_not_a_vector(redline, tmp_path, case):
    write_reading(tmp_path, case)
    assert redline.call("check_vectors", tmp_path, "--json").refusal == "2 not_a_vector"


def test_the_name_of_an_agent_gives_the_reader():
    agents = ("pi-0.86.1", "pi-0.87.1", "pi-1.5.2", "atomic-0.8.30a1", "atomic-6031a926")
    assert [reader_of(agent) for agent in agents] == ["pi-0.86", "pi", "pi", "atomic-0.8", "atomic-0.9"]


def sent_message(role: str, *blocks: Any) -> claude.Object:
    return {"role": role, "content": [claude.text(block) if isinstance(block, str) else block for block in blocks]}


def write_claude_code(directory: Path, lines: list[claude.Object], **clients: Any) -> Path:
    (directory / "one.jsonl").write_bytes(claude.timed(lines))
    file = directory / "one.json"
    file.write_text(json.dumps({"file": "one.jsonl", "clients": clients}))
    return file


def differences(path: Path) -> list[str]:
    return [str(found) for case in find_cases([path]) for found in case.differences()]


TWO = {"context": [sent_message("user", "p1"), sent_message("assistant", "r1")]}


@pytest.mark.parametrize("by_file", [True, False])
def test_equal_contexts_of_claude_code_pass(tmp_path, *, by_file):
    file = write_claude_code(tmp_path, [*claude.talk(1)], **{"2.1.330": TWO, "2.1.112": TWO})
    path = file if by_file else tmp_path
    assert [case.name for case in find_cases([path])] == ["one.json"]
    assert differences(path) == []


def test_each_client_that_sent_something_else_is_named(tmp_path):
    other = {"context": [sent_message("user", "p1"), sent_message("assistant", "other")]}
    write_claude_code(tmp_path, [*claude.talk(1)], **{"2.1.330": TWO, "2.1.112": other, "2.1.1": {"error": "refused"}})
    assert differences(tmp_path) == ["2.1.112 $[1].content[0].text: expected 'other', found 'r1'"]


def test_claude_codes_own_words_are_not_compared(tmp_path):
    queued = claude.attachment("a", "p1", type="queued_command", prompt="more")
    lines = [claude.user("p1", None), queued, claude.reply("r1", "a", claude.call("c1"))]
    interrupted = claude.answer("c1", "[Tool call interrupted: who knows]", is_error=True)
    for words, count in (("You were told:\nmore\nListen.", 0), ("You were told nothing.", 1)):
        context = [
            *(sent_message("user", "p1"), sent_message("system", words), sent_message("assistant", claude.call("c1"))),
            *(sent_message("user", interrupted), sent_message("assistant", "No response requested.")),
        ]
        write_claude_code(tmp_path, lines, **{"2.1.330": {"context": context}})
        assert len(differences(tmp_path)) == count


def test_a_file_of_claude_code_without_clients_or_with_one_without_a_version_is_refused(tmp_path):
    file = write_claude_code(tmp_path, [*claude.talk(1)], newest=TWO)
    with pytest.raises(BadInput, match="newest is not a version"):
        differences(tmp_path)
    file.write_text("{}")
    with pytest.raises(BadInput, match="has no requests of clients"):
        differences(tmp_path)


ANSWERED = {"type": "function_call_output", "id": "fco_made", "call_id": "c1", "output": "aborted"}
ASKED, CALLED, SAID, GO_ON = codex.user("a"), codex.call("c1"), codex.answer("b"), codex.user("go on")


def write_codex(directory: Path, recorded: list[codex.Item], sent: list[codex.Item] | None, **more: Any) -> Path:
    directory.mkdir()
    codex.Rollout(codex.meta(), *recorded).save(directory / "rollouts")
    (directory / "meta.json").write_text(json.dumps({"client": "codex-cli 0.169.0", "note": "", **more}))
    if sent is not None:
        (directory / "request.json").write_text(json.dumps({"input": sent}))
    return directory


def test_a_request_of_codex_passes_if_it_has_the_items_that_codex_sends(redline, tmp_path):
    note = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    asked, instructions = codex.user("a", id="msg_1"), codex.developer("instructions")
    sent = [instructions, asked, CALLED, ANSWERED, SAID, codex.environment(), GO_ON]
    write_codex(tmp_path / "01-x", [codex.user("a", id="msg_1", **note), CALLED, SAID], sent)
    write_codex(tmp_path / "02-older", [asked], [ASKED, codex.developer(), GO_ON], client="codex-cli 0.104.0")
    write_codex(tmp_path / "03-refused", [ASKED], None)
    assert checked(redline, tmp_path) == (0, {"passed": 3, "failed": 0, "failures": []})
    assert checked(redline, tmp_path / "01-x") == PASSED


def test_another_request_of_codex_fails(redline, tmp_path):
    recorded = [ASKED, CALLED, codex.output("c1"), codex.compacted(ASKED, SAID)]
    write_codex(tmp_path / "01", recorded, [codex.developer(), ASKED, codex.answer("c"), GO_ON])
    write_codex(tmp_path / "02", recorded, [codex.developer(), ASKED, GO_ON])
    write_codex(tmp_path / "03", recorded, [codex.developer(), ASKED, SAID, codex.answer("more"), GO_ON])
    write_codex(tmp_path / "04", recorded, [codex.developer(), ASKED, SAID])
    failures = checked(redline, tmp_path)[1]["failures"]
    expected = [("01", "input"), ("02", "input"), ("03", "added"), ("04", "prompt")]
    assert [(one["case"], one["section"]) for one in failures] == expected


def test_the_thread_of_codex_that_was_resumed_is_named(redline, tmp_path):
    other, said = "01a20000-0000-7000-8000-000000000002", codex.user("b")
    directory = write_codex(tmp_path / "01", [ASKED], [codex.developer(), said, GO_ON], fork=other)
    name = f"rollout-2026-01-05T10-00-00-{other}.jsonl"
    codex.Rollout(codex.meta(other), said).save(directory / "rollouts", name)
    assert checked(redline, tmp_path) == PASSED


def test_what_an_open_client_of_codex_does_not_see_is_left_out(redline, tmp_path):
    note = "appended while the app-server had the thread open"
    sent = [codex.developer(), ASKED, SAID, GO_ON]
    write_codex(tmp_path / "01", [ASKED, SAID, codex.compacted(ASKED)], sent, note=note)
    assert checked(redline, tmp_path) == PASSED


def test_a_vector_of_codex_without_its_fields_is_named(redline, tmp_path):
    (write_codex(tmp_path / "01", [ASKED], []) / "meta.json").write_text("{}")
    assert redline.call("check_vectors", tmp_path, "--json").refusal == "2 not_a_vector"


PROBE = {"role": "user", "content": "go on"}
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"run c1"}'}}
SENT = [
    {"role": "system", "content": "[instructions]"},
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": "I will.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    PROBE,
]


@pytest.fixture
def store(tmp_path):
    store = opencode.OpenCodeStore(tmp_path / "opencode")
    store.session()
    store.user("Go.")
    store.assistant(opencode.text("I will."), opencode.tool("c1", "one"))
    return store


def rows_of(store: opencode.OpenCodeStore) -> dict[str, Any]:
    (session,) = store.run("SELECT * FROM session")
    found = {name: store.run(f"SELECT * FROM {name} ORDER BY id") for name in ("message", "part")}  # noqa: S608  # ours
    for row in (*found["message"], *found["part"]):
        row["data"] = json.loads(row["data"])
    return {"session": session, "messages": found["message"], "parts": found["part"]}


def write_opencode(directory: Path, store: object, sent: list[dict[str, Any]]) -> Path:
    directory.mkdir()
    for name, content in {"store": store, "request": {"messages": sent}, "meta": {"client": "x"}}.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def test_a_request_of_opencode_passes_only_if_it_has_the_messages_of_the_session(redline, tmp_path, store):
    vectors = tmp_path / "vectors"
    vectors.mkdir()
    write_opencode(vectors / "01-rows", rows_of(store), SENT)
    storage = opencode.documents(tmp_path / "older", store).parents[2]
    files = {str(one.relative_to(storage)): json.loads(one.read_bytes()) for one in sorted(storage.rglob("*.json"))}
    write_opencode(vectors / "02-documents", files, SENT)
    assert "2 passed, 0 failed" in redline.call("check_vectors", vectors).out
    assert "1 passed, 0 failed" in redline.call("check_vectors", vectors / "01-rows").out
    other = [*SENT[:3], {**SENT[3], "content": "two"}, PROBE]
    found = redline.call("check_vectors", write_opencode(tmp_path / "01-rows", rows_of(store), other))
    assert "0 passed, 1 failed" in found.out
    assert found.code == 1


def test_a_store_of_opencode_without_a_session_is_not_a_vector(redline, tmp_path):
    found = redline.call("check_vectors", write_opencode(tmp_path / "01", {"x": 1}, SENT))
    assert "is not a session of OpenCode" in found.err
