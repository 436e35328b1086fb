"""Vectors of pi and Atomic: each kind is recognised by its layout, and every difference fails its case."""

import json
from pathlib import Path
from typing import Any

import pytest

from devtools.agent_vectors import reader_of
from sessions_app.agents.pi.messages import fields_of, message_hash
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


def test_a_session_without_entries_has_no_messages(redline, tmp_path):
    write_reading(tmp_path, {"agent": "pi", "messages": [], "sources": []}, chain())
    assert checked(redline, tmp_path) == PASSED


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
    ended = redline.call("check_vectors", tmp_path / "a" / "plans", "--json")
    assert (ended.code, ended.error) == (2, "no_such_file")


def test_a_different_context_fails_and_names_the_writer_and_the_agent(redline, tmp_path):
    write_plan(tmp_path / "00-one", {"session|pi-1.5.2": MESSAGES, "session|pi-0.86.1": MESSAGES})
    failure = {"case": "00-one", "section": "session|pi-0.86.1", "path": "$.length"}
    assert checked(redline, tmp_path)[1]["failures"] == [failure]


WORK = chain(
    user("a"),
    assistant(text("b"), call("c1")),
    result("c1"),
    summary_compaction("S", "e2"),
    bash("ls", "d"),
    user("e"),
    assistant(text("f"), text("g")),
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
        "fork|atomic-0.8.30a1": [WORK[5]["message"], KEPT[3], LAST],
        "fork|atomic-6031a926": [WORK[5]["message"], KEPT[3], LAST],
        "context_compaction|atomic-0.8.30a1": [WORK[5]["message"], KEPT[3], LAST],
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
    ended = redline.call("check_vectors", tmp_path, "--json")
    assert (ended.code, ended.error) == (2, "not_a_vector")


def test_the_name_of_an_agent_gives_the_reader():
    agents = ("pi-0.86.1", "pi-0.87.1", "pi-1.5.2", "atomic-0.8.30a1", "atomic-6031a926")
    assert [reader_of(agent) for agent in agents] == ["pi-0.86", "pi", "pi", "atomic-0.8", "atomic-0.9"]
