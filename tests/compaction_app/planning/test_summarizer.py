"""Summaries by models: the scripts of both dialects over a real socket, what is sent, and how a request ends."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from compaction_app.core.states import EventKind
from compaction_app.core.summary_prompt import SummaryKind
from compaction_app.planning import model_request
from compaction_app.planning.model_registry import endpoint_of, model_named
from compaction_app.planning.model_request import Summarizer, SummaryPart, WrittenSummary
from compaction_app.providers.client import Patience
from compaction_app.providers.error_mapping import Overflow, ProviderError
from compaction_app.providers.types import UsageTotals
from compaction_app.scripted import scripts
from compaction_app.scripted.scripts import SCRIPTS
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.sessionlog.errors import Stopped
from tests.scripted_models import add_scripted
from tests.wait import WAIT_SECONDS

HISTORY = SummaryPart(SummaryKind.HISTORY, "[User]: Where is the cache?\n\n[Assistant]: In src/cache.py.", 2_048)
LASTING = "long-thinking"
"""It reasons for ten minutes."""
PATIENT = Patience(connect=WAIT_SECONDS, first_byte=WAIT_SECONDS, between=WAIT_SECONDS, attempts=3, longest_wait=0.05)
"""A slow machine is no fault of a provider; a retry waits for a moment only."""
TURN = SummaryPart(SummaryKind.TURN, "[User]: Now mend it.", 1_024)


@dataclass
class Listener:
    """Remembers the kinds of events, and stops after so many."""

    stops_after: int = 10_000
    kinds: list[str] = field(default_factory=list)

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        del data, usage
        self.kinds.append(kind)

    def is_stopped(self) -> bool:
        return len(self.kinds) >= self.stops_after


@pytest.fixture(params=["anthropic", "openai"])
def provider(redline, request, monkeypatch):
    monkeypatch.setattr(model_request, "patience_for", lambda _: PATIENT)
    with ScriptedProvider() as scripted:
        add_scripted(scripted, *SCRIPTS, dialect=request.param, output_limit=8_192)
        yield scripted


@pytest.fixture
def write(provider):
    def written(script: str, *parts: SummaryPart, listener: Listener | None = None) -> WrittenSummary:
        model = model_named(f"scripted/{script}")
        usage = UsageTotals(model.host)
        return Summarizer(model, endpoint_of(model), listener or Listener(), usage).write(parts or [HISTORY])

    return written


def test_a_summary_is_one_request_and_a_divided_turn_is_two(write):
    listener = Listener()
    summary = write("good-plan", listener=listener)
    assert summary.texts[SummaryKind.HISTORY].startswith("## Goal\n")
    assert not summary.is_cut
    assert (listener.kinds[0], listener.kinds[-1]) == (EventKind.ASKED, EventKind.ANSWERED)
    assert listener.kinds.count(EventKind.ASKED) == 1
    assert set(write("good-plan", TURN).texts) == {SummaryKind.TURN}, "a turn without a history"
    listener = Listener()
    summary = write("good-plan", HISTORY, TURN, listener=listener)
    assert listener.kinds.count(EventKind.ASKED) == 2
    assert "## Goal" in summary.texts[SummaryKind.HISTORY]
    assert "## Original Request" in summary.texts[SummaryKind.TURN]


def test_a_request_is_repeated_if_that_may_help(write):
    for script in ("overloaded-twice", "cut-before", "error-inside-once"):
        listener = Listener()
        assert write(script, listener=listener).texts, script
        assert EventKind.RETRIED in listener.kinds, script


def test_a_summary_does_not_depend_on_its_transmission_and_one_that_was_cut_off_says_so(write):
    usual = write("good-plan").texts
    ways = ("pings", "no-usage", "no-done", "not-streamed", "thinking-plain", "whole-calls")
    assert [way for way in ways if write(way).texts != usual] == []
    summary = write("cut-by-limit")
    assert summary.texts == {SummaryKind.HISTORY: "I delete all of"}
    assert summary.is_cut


def test_every_script_ends_with_a_summary_or_a_reason(write, monkeypatch):
    impatient = replace(PATIENT, first_byte=0.3, between=0.3)
    monkeypatch.setattr(model_request, "patience_for", lambda _: impatient)
    monkeypatch.setattr(scripts, "SLOWLY", 0.001)

    def ending(script: str) -> str:
        try:
            return "".join(write(script).texts.values())
        except ProviderError as fault:
            return fault.message

    assert [script for script in sorted(SCRIPTS.keys() - {LASTING}) if not ending(script)] == []


def test_what_is_too_long_refused_or_stopped_is_no_summary(write):
    listener = Listener()
    long = HISTORY._replace(conversation="word " * 100_000)
    with pytest.raises(Overflow, match="window"):
        write("good-plan", long, listener=listener)
    assert not listener.kinds
    with pytest.raises(Overflow):
        write("overflow")
    with pytest.raises(ProviderError, match="no summary") as refused:
        write("refuses")
    assert refused.value.code == "no_summary"
    with pytest.raises(Stopped):
        write(LASTING, listener=Listener(stops_after=2))
