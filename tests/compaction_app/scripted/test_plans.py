"""Whole plans, by the official clients with the real tools: each script ends as intended, in both dialects."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from compaction_app.core.messages import result_text
from compaction_app.core.prompt import manifest_of, user_prompt
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.scripted.request import Dialect
from compaction_app.scripted.server import ScriptedProvider
from tests.budget import FACTOR
from tests.compaction_app.scripted.official_clients import DIALECTS, Read, ask, results
from tests.factories import transcript_of, user, working_session

GOOD = (
    *("good-plan", "parallel-calls", "split-bytes", "pings", "whole-calls", "no-usage", "fifty-searches"),
    *("hostile", "thinking-signed", "thinking-plain", "stops-early", "nonsense-arguments", "unknown-tool"),
    *("missing-argument", "overloaded-twice", "cut-before", "calls-7"),
)
BROKEN = ("overflow-later", "error-midway", "cut-inside", "cut-after")
FAULTS = (anthropic.APIError, openai.APIError, httpx2.RemoteProtocolError)


@dataclass
class Run:
    """The outcome of a conversation: the tools over the session, the calls, and the answers."""

    workbench: Workbench
    called: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    answers: list[Read] = field(default_factory=list)


def workbench() -> Workbench:
    """A session of many steps, which needs several batches."""
    messages = (one["message"] for one in working_session(steps=24)[1:])
    return Workbench(DeletionStore(transcript_of(user("größer"), *messages, compression_ratio=0.4)))


def converse(provider: ScriptedProvider, dialect: Dialect, model: str, *, retries: int = 3) -> Run:
    """Drive a model through the tools until the target is met or it answers with prose twice."""
    run = Run(workbench())
    store = run.workbench.store
    prompt = user_prompt(manifest_of(store.transcript), store.transcript.parameters, run.workbench.budget)
    messages: list[Any] = [{"role": "user", "content": prompt}]
    # Anthropic's accumulation refuses arguments that are not valid JSON, so they are read without a stream there.
    streams = dialect == "openai" or model != "nonsense-arguments"
    for _ in range(30):
        read = ask(provider, dialect, model, messages, streams=streams, max_retries=retries)
        run.answers.append(read)
        messages.append(read.message)
        if not read.calls:
            if len(run.answers) > 1 and not run.answers[-2].calls:
                return run
            messages.append({"role": "user", "content": "The target is not reached. Delete more."})
            continue
        messages += results(dialect, read, answered(run, read.calls))
        if store.target_met:
            return run
    raise AssertionError("the script goes on for ever")


def answered(run: Run, calls: Sequence[tuple[str, Any]]) -> list[str]:
    texts = []
    for name, arguments in calls:
        gave = run.workbench.call(ToolCall(name, arguments))
        run.called.append(name)
        if gave.refusal is not None:
            run.refused.append(gave.refusal.code.value)
        texts.append(result_text(gave))
    return texts


def in_turn(names: Sequence[str]) -> list[tuple[Dialect, str]]:
    """Each script in one dialect, by turns; with a larger budget in both.

    How a dialect says something is tried with the official clients' own tests; the moves of a script are the same.
    """
    return list(zip(itertools.cycle(DIALECTS), names) if FACTOR == 1 else itertools.product(DIALECTS, names))


@pytest.mark.parametrize(("dialect", "name"), in_turn(GOOD))
def test_a_plan_reaches_its_target(dialect, name):
    with ScriptedProvider() as provider:
        run = converse(provider, dialect, name)
        assert provider.faults == []
    assert run.workbench.store.target_met
    assert "context_delete" in run.called
    if name == "fifty-searches":
        assert run.called[:50] == ["context_search_transcript"] * 50
    if name == "calls-7":
        assert run.called[:7] == ["context_compaction_budget"] * 7
    assert run.refused == ["unknown_tool"] or name != "unknown-tool"
    assert run.answers[0].calls == [] or name != "stops-early"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_plan_takes_several_deletions(dialect):
    with ScriptedProvider() as provider:
        run = converse(provider, dialect, "good-plan")
        parallel = converse(provider, dialect, "parallel-calls")
    assert run.called.count("context_delete") > 1
    assert run.refused == []
    assert any(len(read.calls) > 1 and read.calls[-1][0] == "context_delete" for read in parallel.answers)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_plan_that_never_reaches_its_target_ends_with_prose(dialect):
    with ScriptedProvider() as provider:
        run = converse(provider, dialect, "never-reaches")
    assert not run.workbench.store.target_met
    assert len(run.workbench.store.targets) > 0
    assert [bool(read.calls) for read in run.answers] == [True, True, False, False]


@pytest.mark.parametrize(("dialect", "name"), in_turn(BROKEN))
def test_errors_occur_after_a_valid_deletion(dialect, name):
    with ScriptedProvider() as provider:
        deleted: list[str] = []
        for attempt in range(2):
            with pytest.raises(FAULTS):
                converse(provider, dialect, name, retries=0)
            deleted.append(provider.requests[-1].raw.decode())
            # Budget, one deletion, then the error; the next conversation gets the same.
            assert len(provider.requests) == 3 * (attempt + 1)
        assert provider.faults == []
    assert all("percentReduction" in body for body in deleted)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_changed_thinking_is_refused(dialect):
    for name in ("thinking-signed", "thinking-plain"):
        with ScriptedProvider() as provider:
            messages: list[Any] = [{"role": "user", "content": "Begin."}]
            read = ask(provider, dialect, name, messages)
            messages_with_results = results(dialect, read, ["{}"] * len(read.calls))
            assert ask(provider, dialect, name, [*messages, read.message, *messages_with_results]).stop
            for changed in spoiled(dialect, name, read.message):
                with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)):
                    ask(provider, dialect, name, [*messages, changed, *messages_with_results])
            assert len(provider.faults) == len(spoiled(dialect, name, read.message)) > 1


def spoiled(dialect: Dialect, name: str, message: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer as careless clients return it: without its thinking, in another order, or with changed text."""
    if dialect == "openai":
        field_name = "reasoning_details" if name == "thinking-signed" else "reasoning_content"
        without = {key: value for key, value in message.items() if key != field_name}
        kept = message[field_name]
        return [without, {**message, field_name: kept[:-1]}, {**message, field_name: kept[::-1]}]
    first, *others = message["content"]
    return [
        {**message, "content": others},
        {**message, "content": [*others, first]},
        {**message, "content": [{**first, "thinking": first["thinking"].strip() + " "}, *others]},
        {**message, "content": [{**first, "signature": ""}, *others]},
    ]
