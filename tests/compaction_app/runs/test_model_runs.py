"""Runs of models: the same scripts through both dialects, over a real socket, and what is kept of each."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from compaction_app.core.states import RunState
from compaction_app.core.tools import ToolCall, ToolResult, Workbench
from compaction_app.models import PlannerModel, Proposal, Provider, Run
from compaction_app.planning import llm_planner, model_request
from compaction_app.providers.client import Patience
from compaction_app.runs.commands import plan_again, resume_run, start_run, stop_run
from compaction_app.runs.worker import work
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.index.indexer import index_file
from sessions_app.jobs.job import worker_name
from sessions_app.sessionlog.errors import BadInput, Conflict
from tests.budget import FACTOR
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.runs import failure_of, finish_run
from tests.scripted_models import add_scripted
from tests.wait import WAIT_SECONDS

DIALECTS = ("anthropic", "openai")


@pytest.fixture
def session(known_root):
    return index_file(place(known_root / "work.jsonl", session_bytes(working_session(steps=20))))


PATIENT = Patience(connect=WAIT_SECONDS, first_byte=WAIT_SECONDS, between=WAIT_SECONDS, attempts=3, longest_wait=5)


STALL_SECONDS = 8
"""How long an answer may pause before it is given up: a busy machine pauses for seconds, too."""


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Sets what is waited for with each request: by default, a slow machine is no fault of a provider."""

    def wait(of_request: Callable[[], Patience]) -> None:
        monkeypatch.setattr(model_request, "patience_for", lambda _: of_request())

    wait(lambda: PATIENT)
    return wait


both = pytest.mark.parametrize("dialect", DIALECTS, indirect=True)


@pytest.fixture
def dialect(request):
    """One dialect, unless a test asks for `both`."""
    return str(getattr(request, "param", "anthropic"))


@pytest.fixture
def start(session, provider, dialect):
    """Starts a run whose planner is a script."""

    def started(script: str, window: int = 100_000, **more: Any) -> Run:
        fields = {"window": window, "price_in": 3.0, "price_out": 15.0, "thinking_levels": ["low", "high"]}
        add_scripted(provider, script, dialect=dialect, **fields)
        return start_run(session, planner=f"scripted/{script}", requested_parameters={}, **more)

    return started


@pytest.fixture
def plan(start):
    """Plans with a script to the end."""
    return lambda script, **more: finish_run(start(script, **more))


def resumed(run: Run, provider: ScriptedProvider) -> Run:
    """The run, resumed with a model that plans well."""
    resume_run(run)
    add_scripted(provider, "good-plan")
    Run.objects.filter(pk=run.pk).update(planner="scripted/good-plan")
    return finish_run(run)


def data_of(run: Run, kind: str) -> list[dict[str, Any]]:
    return list(run.events.filter(kind=kind).order_by("seq").values_list("data", flat=True))


def kinds_of(run: Run) -> list[str]:
    return list(run.events.order_by("seq").values_list("kind", flat=True))


WHOLE = {
    "anthropic": (
        "good-plan", "thinking-signed", "thinking-plain", "parallel-calls", "split-bytes", "no-usage", "not-streamed",
        "stops-early", "unknown-tool", "cut-by-limit", "overloaded-twice", "error-inside-once",
    ),
    "openai": (
        "good-plan", "thinking-signed", "thinking-plain", "pings", "whole-calls", "no-done", "fifty-searches",
        "hostile", "nonsense-arguments", "missing-argument", "rate-limited", "cut-before", "calls-5",
    ),
}  # fmt: skip
"""Each script in one dialect, and in both what each returns in its own way; `make test-long` takes all in both. How a
dialect says something is proven by the tests of the providers."""
RETRIES = {"overloaded-twice": 2, "rate-limited": 1, "error-inside-once": 1, "cut-before": 1}


@pytest.mark.parametrize(
    ("dialect", "script"),
    [
        (dialect, script)
        for dialect, usual in WHOLE.items()
        for script in (usual if FACTOR == 1 else dict.fromkeys(itertools.chain(*WHOLE.values())))
    ],
    indirect=["dialect"],
)
def test_a_script_that_plans_reaches_the_target(plan, provider, script):
    run = plan(script, thinking="high" if script.startswith("thinking") else "")
    assert run.state == RunState.TARGET_MET, run.failure
    assert run.stats["percentReduction"] >= 50
    assert provider.faults == []
    events = list(run.events.order_by("seq"))
    assert [event.seq for event in events] == list(range(1, run.last_seq + 1))
    assert [one["call"] for one in data_of(run, "called")] == list(range(1, run.calls + 1))
    assert run.usage["requests"] == len(data_of(run, "asked"))
    assert run.usage["requests"] == len(data_of(run, "answered")) + len(data_of(run, "retried"))
    assert run.usage["estimated"] == (script == "no-usage")
    assert run.usage["cost"] > 0
    retried = data_of(run, "retried")
    assert [one["attempt"] for one in retried] == list(range(1, RETRIES.get(script, 0) + 1))
    assert all(one["why"] for one in retried)
    if script == "rate-limited":
        assert retried[0]["seconds"] >= 1
        assert provider.requests[1].at - provider.requests[0].at >= 1


def test_what_streams_is_kept_word_for_word(plan):
    run = plan("split-bytes")
    pieces = [piece for one in data_of(run, "streamed") if one["turn"] == 1 for piece in one["pieces"]]
    assert "".join(text for kind, *_, text in pieces if kind == "text") == "Größe, 大きさ, 🔎."
    arguments = "".join(text for kind, *index, text in pieces if kind == "arguments" and index == [0])
    assert "größer als 大きさ 🔎" in arguments
    names = [(index[0], text) for kind, *index, text in pieces if kind == "call"]
    assert names == [(0, "context_search_transcript"), (1, "context_compaction_budget")]


def test_each_call_is_kept_with_the_turn_and_place_it_was_made_in(plan):
    run = plan("fifty-searches")
    called = [(one["turn"], one["index"]) for one in data_of(run, "called")]
    assert called[:50] == [(1, index) for index in range(50)]
    kinds = kinds_of(run)
    assert kinds[:2] == ["prepared", "asked"]
    assert kinds.index("answered") < kinds.index("called")


def test_every_wrong_call_gets_a_correction_and_none_ends_the_run(plan):
    run = plan("nonsense-arguments")
    assert [one.get("code") for one in data_of(run, "called")][:5] == [
        "invalid_arguments", "invalid_arguments", "request_shape", "invalid_arguments", "invalid_arguments",
    ]  # fmt: skip
    assert data_of(run, "called")[0]["arguments"] == '{"deletions": [{"kind": "entry", '


@both
def test_an_unknown_tool_is_refused_with_the_names_of_the_known_ones(plan, provider, dialect):
    first = data_of(plan("unknown-tool"), "called")[0]
    assert (first["tool"], first["code"]) == ("context_summarize", "unknown_tool")
    assert b"context_grep_delete" in provider.requests[1].raw.split(b"There is no tool")[1]
    if dialect == "anthropic":
        content = provider.requests[1].body["messages"][-1]["content"]
        assert [one.get("is_error", False) for one in content] == [True, False]


def test_a_model_is_notified_that_the_output_limit_cut_its_answer(plan, provider):
    plan("cut-by-limit")
    assert b"reached the output limit" in provider.requests[1].raw


def test_what_the_model_says_is_the_reason_of_its_deletions_and_it_plans_again_at_its_level(plan):
    run = plan("good-plan", thinking="low")
    streamed = [one["pieces"] for one in data_of(run, "streamed")]
    said = {"".join(text for kind, *_, text in pieces if kind == "text") for pieces in streamed}
    reasons = run.proposals.filter(source=Proposal.Source.PLANNER).values_list("reason", flat=True)
    assert set(reasons) <= {*said, ""}
    again = plan_again(run)
    assert (again.planner, again.thinking) == (run.planner, "low")


@both
def test_the_thinking_level_is_sent(plan, provider, dialect):
    plan("thinking-signed", thinking="high")
    body = provider.requests[0].body
    assert body.get("thinking" if dialect == "anthropic" else "reasoning_effort")
    assert "high" in str(body.get("reasoning_effort", "high"))


def test_a_level_that_the_model_does_not_take_is_refused(start):
    with pytest.raises(BadInput, match="takes low, high"):
        start("good-plan", thinking="xhigh")


@both
def test_only_a_manifest_is_sent_before_a_tool_call_and_a_shorter_one_for_a_small_window(plan, provider):
    plan("good-plan")
    first = provider.requests[0].body
    assert len(first["messages"]) == (1 if "system" in first else 2)
    assert len(provider.requests[0].raw) < 100_000
    whole = len(provider.requests[0].raw)
    PlannerModel.objects.all().delete()
    assert data_of(plan("good-plan", window=8_000), "asked")[0]["characters"] < whole


@pytest.mark.parametrize(
    "script", ["error-midway", "cut-inside", "cut-after", pytest.param("stalls", marks=pytest.mark.long)]
)
def test_a_fault_in_the_middle_fails_the_run_and_keeps_what_was_validated(plan, provider, patience, script):
    if script == "stalls":
        patience(lambda: replace(PATIENT, between=STALL_SECONDS))
    run = plan(script)
    patience(lambda: PATIENT)
    assert run.state == RunState.FAILED
    kept = run.proposals.count()
    assert kept > 0
    assert "What had been validated is kept." in run.failure
    # The calls of the answer that broke off were not run.
    assert data_of(run, "called")[-1]["turn"] < data_of(run, "asked")[-1]["turn"]
    again = resumed(run, provider)
    assert (again.state, data_of(again, "carried")[0]["kept"]) == (RunState.TARGET_MET, kept)
    assert again.usage["requests"] == len(data_of(again, "asked"))


@pytest.mark.parametrize(
    ("script", "words", "requests"),
    [
        ("overloaded", "verload", 2), ("server-error", "", 2), ("cut-always", "", 2), ("error-inside", "verload", 2),
        ("quota-used", "", 1), ("wrong-key", "key", 1), ("unknown-model", "unknown-model", 1),
        ("rate-limited-long", "", 1),
    ],
)  # fmt: skip
def test_a_provider_that_does_not_answer_fails_the_run_in_words(plan, provider, patience, script, words, requests):
    """What is permanent is not asked again."""
    patience(lambda: replace(PATIENT, attempts=2))
    run = plan(script)
    assert words in failure_of(run)
    assert "127.0.0.1" in run.failure or "scripted" in run.failure
    assert data_of(run, "ended")[0]["state"] == "failed"
    assert not run.proposals.exists()
    assert (len(provider.requests), len(data_of(run, "retried"))) == (requests, requests - 1)
    assert run.failure.endswith("Nothing was planned.")
    assert (run.usage["requests"], run.usage["input"], run.usage["cost"]) == (requests, 0, None)
    assert run.usage["sent"] > 0


def test_an_overflow_of_the_provider_ends_a_run_with_what_was_validated(plan):
    run = plan("overflow-later")
    assert run.state == RunState.BELOW_TARGET
    assert run.proposals.exists()
    assert run.failure


@pytest.mark.parametrize("script", ["overflow", "too-large"])
def test_an_overflow_before_anything_was_validated_fails_the_run(plan, script):
    run = plan(script)
    assert "too long for" in failure_of(run)
    assert run.failure.endswith("Nothing was planned.")


def test_a_model_that_never_reaches_the_target_is_nudged_once_and_ends_below_it(plan):
    run = plan("never-reaches")
    assert (run.state, kinds_of(run).count("nudged")) == (RunState.BELOW_TARGET, 1)


def test_a_model_that_never_finishes_or_whose_calls_are_all_refused_is_stopped(plan, monkeypatch):
    monkeypatch.setattr(llm_planner, "TURNS", 7)
    run = plan("calls-50")
    assert (run.state, len(data_of(run, "asked"))) == (RunState.FAILED, 7)
    assert "has not finished after 7 requests" in run.failure
    monkeypatch.setattr(llm_planner, "FRUITLESS_TURNS", 2)
    run = plan("nonsense-arguments")
    assert "refused" in failure_of(run)
    assert len(data_of(run, "asked")) == 2


def test_one_call_that_is_taken_ends_the_count_of_refused_answers(plan, monkeypatch):
    call = Workbench.call

    def refuse_every_other(bench: Workbench, tool_call: ToolCall) -> ToolResult:
        is_refused = bench.call_count in (0, 2)
        return call(bench, ToolCall("no_such_tool", {}) if is_refused else tool_call)

    monkeypatch.setattr(llm_planner, "FRUITLESS_TURNS", 2)
    monkeypatch.setattr(Workbench, "call", refuse_every_other)
    run = plan("calls-5")
    assert [one.get("code") for one in data_of(run, "called")][:3] == ["unknown_tool", None, "unknown_tool"]
    assert run.state == RunState.TARGET_MET, run.failure


def test_old_results_are_dropped_before_the_window_is_full(plan, provider):
    run = plan("fifty-searches", window=12_000)
    assert run.state == RunState.TARGET_MET, run.failure
    trimmed = data_of(run, "trimmed")
    assert trimmed
    assert trimmed[0]["results"] > 0
    assert max(one["characters"] for one in data_of(run, "asked")) / 3 < 12_000


def test_an_answer_that_broke_off_is_estimated_and_not_asked_again_during_another_run(plan, session):
    run = plan("cut-inside")
    whole = data_of(run, "answered")
    assert run.usage["estimated"] is True
    assert run.usage["counted"] == len(whole) + 1
    assert run.usage["output"] > sum(one["output"] for one in whole)
    assert run.usage["received"] > sum(one["characters"] for one in whole)
    pieces = [piece for one in data_of(run, "streamed") if one["turn"] == 3 for piece in one["pieces"]]
    assert ["text", "I go on."] in pieces
    start_run(session, planner="embedded", requested_parameters={})
    with pytest.raises(Conflict, match="is being made"):
        resume_run(run)


def test_a_run_continues_only_at_the_confirmed_address(plan, provider):
    run = plan("cut-inside")
    count = len(provider.requests)
    Provider.objects.update(base_url="http://127.0.0.1:9/v1")
    for act in (resume_run, plan_again):
        with pytest.raises(BadInput, match="Nothing was sent"):
            act(run)
    run.refresh_from_db()
    assert (run.state, len(provider.requests)) == (RunState.FAILED, count)


@pytest.mark.parametrize(("is_automatic", "words"), [(False, "Nothing was sent"), (True, "no longer allowed")])
def test_a_waiting_run_is_not_sent_to_another_address_or_without_permission(start, provider, is_automatic, words):
    run = start("good-plan", automatic=is_automatic)
    if not is_automatic:
        Provider.objects.update(base_url="http://127.0.0.1:9/v1")
    assert words in failure_of(finish_run(run))
    assert provider.requests == []


def test_the_first_call_after_a_resume_has_no_gain_and_the_next_number(plan, provider):
    run = plan("cut-inside")
    last = run.calls
    again = resumed(run, provider)
    first = next(one for one in data_of(again, "called") if one["call"] == last + 1)
    assert (first["tool"], first["gain"]) == ("context_compaction_budget", 0)
    assert [one["call"] for one in data_of(again, "called")] == list(range(1, again.calls + 1))


def test_a_stop_closes_the_connection_and_keeps_what_was_validated(start, provider):
    run = start("stalls")

    def body() -> None:
        work(run.pk, worker_name())
        connection.close()

    thread = threading.Thread(target=body)
    thread.start()
    provider.wait_for(lambda: run.proposals.exists() and not provider.requests[-1].answered_at)
    stop_run(run)
    provider.wait_until_closed()
    thread.join()
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert run.proposals.exists()


def test_a_stop_between_two_calls_of_an_answer_leaves_the_others_out(start, monkeypatch):
    run, call = start("fifty-searches"), Workbench.call

    def stop_at_the_third(bench: Workbench, tool_call: ToolCall) -> ToolResult:
        result = call(bench, tool_call)
        if bench.call_count == 3:
            stop_run(run)
        return result

    monkeypatch.setattr(Workbench, "call", stop_at_the_third)
    stopped = finish_run(run)
    assert (stopped.state, stopped.calls) == (RunState.CANCELLED, 3)
