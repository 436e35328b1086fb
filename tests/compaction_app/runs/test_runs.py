"""Promises of runs: every step is a row, one worker has the lease, and nothing is lost when it dies."""

import io
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction_app.core.loop import PlannerTurn, Report
from compaction_app.core.review_fold import Kind
from compaction_app.core.states import REVIEWABLE, RunState
from compaction_app.models import Decision, Proposal, Run, RunEvent
from compaction_app.planning import plan, snapshots
from compaction_app.planning.snapshots import read_snapshot_texts, snapshot_of
from compaction_app.runs import commands, worker
from compaction_app.runs.commands import plan_again, resume_run, start_run, stop_run
from compaction_app.runs.worker import work
from compaction_app.scripted.server import ScriptedProvider
from redline.serving import SWEEP_SECONDS
from sessions_app.index.indexer import index_file
from sessions_app.jobs import job, recorder as job_recorder
from sessions_app.jobs.job import BEAT_SECONDS, LEASE_SECONDS, LeaseWatch, worker_name
from sessions_app.jobs.recorder import Terminated
from sessions_app.models import Session
from sessions_app.server import broadcast
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.web.server_log import kept_log
from tests.factories import session_bytes, whole, working_session
from tests.files import place
from tests.html import addresses, assert_inert, element, elements, field, missing, text_of, text_sent
from tests.installation import Installation, refusal
from tests.lease_clock import Clock
from tests.runs import failure_of, finish_run
from tests.scripted_models import add_scripted
from tests.wait import WAIT_SECONDS, wait_until


def started(session: Session, planner: str = "embedded", **parameters: Any) -> Run:
    return start_run(session, planner=planner, requested_parameters=parameters)


def planned(session: Session, planner: str = "embedded", **parameters: Any) -> Run:
    return finish_run(started(session, planner, **parameters))


def claimed(session: Session) -> Run:
    run = started(session)
    Run.claim(run.pk, "one", started_at=timezone.now())
    return run


def state_of(run: Run) -> str:
    run.refresh_from_db()
    return str(run.state)


def swept() -> list[int]:
    """The runs that are given up when no heartbeat comes for the length of a lease."""
    with pytest.MonkeyPatch.context() as patched:
        clock = Clock()
        patched.setattr(job, "time", clock)
        watch = LeaseWatch(Run)
        assert watch.give_up_dead() == []
        return clock.watch(watch, LEASE_SECONDS)


@pytest.fixture
def stubborn(monkeypatch):
    """Registers a planner that acts before each of its turns, and never deletes anything."""

    def put(act: Callable[[], object]) -> None:
        def next_turn(report: Report) -> PlannerTurn:
            act()
            return PlannerTurn()

        planner = SimpleNamespace(name="stubborn", next_turn=next_turn)
        monkeypatch.setitem(plan.PLANNERS, "stubborn", lambda _: planner)

    return put


def test_a_run_keeps_every_step_and_proposes_the_chosen_targets_with_their_origins(session):
    run = planned(session)
    assert run.state == RunState.TARGET_MET
    events = list(run.events.order_by("seq"))
    assert [event.seq for event in events] == list(range(1, run.last_seq + 1))
    assert (events[0].kind, events[-1].kind) == ("prepared", "ended")
    assert [event.data["call"] for event in events if event.kind == "called"] == list(range(1, run.calls + 1))
    assert events[-1].data["percent"] == run.stats["percentReduction"] >= 50
    proposals = list(run.proposals.order_by("order"))
    added = [target for event in run.events.filter(kind="called") for target in event.data["added"]]
    assert [Target(row.entry_id, row.block_index).to_json() for row in proposals] == added
    assert {row.source for row in proposals} == {Proposal.Source.PLANNER, Proposal.Source.REPAIR}
    assert all(row.reason for row in proposals if row.source == Proposal.Source.PLANNER)
    assert all(run.events.filter(kind="called", data__call=row.call).exists() for row in proposals)


def test_requested_parameters_are_kept_with_their_sources_and_a_snapshot_with_its_texts(session):
    run = planned(session, compression_ratio=0.7, preserve_recent=None, query="the parser")
    assert run.parameters == {"compression_ratio": 0.7, "preserve_recent": 2, "query": "the parser"}
    assert run.sources == {"compression_ratio": "this plan", "preserve_recent": "default", "query": "this plan"}
    kept = snapshot_of(run)
    texts = read_snapshot_texts(session.real_path(), kept.prepared)
    assert len(texts) == len(kept.transcript) == session.entry_count
    assert texts["e3"].joined(kept.transcript.entry("e3").blocks).startswith("line_1_0 line_1_1")
    path = session.real_path()
    path.write_bytes(path.read_bytes().replace(b"Step 1.", b"Step X."))
    assert refusal(lambda: read_snapshot_texts(path, kept.prepared)) == "4 session_rewritten"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ZeroDivisionError(), "ZeroDivisionError"),
        (Terminated(), "Its worker was stopped"),
        (KeyboardInterrupt(), "Its worker was stopped"),
    ],
    ids=["a bug", "a signal", "an interrupt from the terminal"],
)
def test_what_ends_a_worker_is_raised_and_leaves_its_run_interrupted(session, stubborn, error, failure):
    stubborn(Mock(side_effect=error))
    run = started(session, "stubborn")
    with pytest.raises(type(error)):
        work(run.pk, worker_name())
    assert state_of(run) == RunState.INTERRUPTED
    assert failure in run.failure


def test_a_run_that_deletes_nothing_or_has_nothing_to_compact_fails(session, stubborn, known_root):
    stubborn(lambda: None)
    run = planned(session, "stubborn")
    assert run.state == RunState.FAILED
    assert [event.kind for event in run.events.order_by("seq")] == ["prepared", "nudged", "ended"]
    path = place(known_root / "short.jsonl", session_bytes(working_session(steps=0)[:2]))
    run = planned(index_file(path))
    assert "fewer than two entries" in failure_of(run)


def test_what_cannot_be_done_is_refused_and_changes_nothing(session):
    assert refusal(lambda: started(session, "nobody")) == "2 unknown_planner"
    assert not Run.objects.exists()
    run = started(session)
    assert refusal(lambda: started(session)) == "4 run_in_flight"
    stop_run(run)
    assert state_of(run) == RunState.CANCELLED, "a run that waits is stopped immediately"
    assert refusal(lambda: stop_run(run)) == "4 wrong_state"
    run = planned(session)
    assert refusal(lambda: resume_run(run)) == "4 wrong_state"
    other = started(session)
    assert refusal(lambda: plan_again(run)) == "4 run_in_flight"
    assert state_of(run) == RunState.TARGET_MET
    stop_run(other)
    Run.objects.filter(pk=run.pk).update(state=RunState.SUPERSEDED)
    assert state_of(run) == RunState.SUPERSEDED
    assert refusal(lambda: plan_again(run)) == "4 wrong_state"
    assert Run.objects.count() == 3


def test_only_one_worker_can_claim_a_run_and_renew_its_lease(session):
    run = started(session)
    assert Run.claim(run.pk, "one", started_at=timezone.now()) is not None
    assert Run.claim(run.pk, "two", started_at=timezone.now()) is None
    assert not Run.objects.queued().exists()
    assert Run.renew(run.pk, "one") is False
    assert Run.renew(run.pk, "two") is None
    run.refresh_from_db()
    assert run.beats == 1


def test_no_event_comes_twice_with_a_second_task_or_with_the_same_number(session):
    run = planned(session)
    events = run.events.count()
    work(run.pk, worker_name())
    assert run.events.count() == events
    with pytest.raises(IntegrityError), transaction.atomic():
        RunEvent.objects.create(run=run, seq=1, kind="called", at=timezone.now(), data={})


def test_a_silent_worker_is_given_up_and_writes_nothing_more(session, stubborn):
    given_up: list[int] = []
    stubborn(lambda: given_up.extend(swept()))
    run = planned(session, "stubborn")
    assert (given_up, run.state) == ([run.pk], RunState.INTERRUPTED)
    assert [event.kind for event in run.events.all()] == ["prepared"]


def test_a_run_that_is_stopped_ends_after_its_turn_and_keeps_what_it_had(session, stubborn):
    stubborn(lambda: stop_run(Run.objects.get()))
    run = planned(session, "stubborn")
    assert run.state == RunState.CANCELLED
    assert run.state in REVIEWABLE


def killed(session: Session, redline: Installation, provider: ScriptedProvider) -> Run:
    """A run whose worker, a separate process, was killed after its first deletions: its model sends nothing more."""
    add_scripted(provider, "stalls")
    run = started(session, "scripted/stalls")
    child = redline.start("worker", "--plan", run.pk)
    wait_until(Proposal.objects.filter(run=run).exists)
    child.kill()
    child.communicate()
    assert state_of(run) == RunState.RUNNING
    return run


def test_a_killed_worker_loses_nothing_and_its_run_resumes(session, redline):
    with ScriptedProvider() as provider:
        run = killed(session, redline, provider)
    events = list(run.events.order_by("seq").values_list("seq", "kind"))
    kept = list(run.proposals.order_by("order").values_list("entry_id", "block_index"))
    assert kept
    assert (swept(), state_of(run)) == ([run.pk], RunState.INTERRUPTED)
    Run.objects.update(planner="embedded", base_url="")
    run.refresh_from_db()
    resume_run(run)
    assert finish_run(run).state == RunState.TARGET_MET
    after = list(run.events.order_by("seq").values_list("seq", "kind"))
    assert after[: len(events)] == events
    assert [seq for seq, _ in after] == list(range(1, run.last_seq + 1))
    carried = run.events.get(kind="carried").data
    assert (carried["kept"], carried["dropped"]) == (len(kept), [])
    proposed = set(run.proposals.values_list("entry_id", "block_index"))
    # A block that went before the rest of its entry is now part of the entry.
    assert all({(entry_id, index), (entry_id, None)} & proposed for entry_id, index in kept)


def test_targets_that_are_no_longer_valid_are_dropped_and_listed(session):
    run = planned(session)
    Run.objects.filter(pk=run.pk).update(state=RunState.INTERRUPTED)
    Proposal.objects.create(
        run=run, order=10_000, entry_id="gone", source=Proposal.Source.PLANNER, call=1, tool="context_delete"
    )
    resume_run(run)
    finish_run(run)
    carried = RunEvent.objects.get(run=run, kind="carried").data
    assert [(drop["entryId"], drop["code"]) for drop in carried["dropped"]] == [("gone", "unknown_entry")]
    assert not run.proposals.filter(entry_id="gone").exists()


def decide(run: Run, kind: str, *targets: str) -> None:
    seq = run.decisions.count() + 1
    said = [whole(entry_id) for entry_id in targets]
    Decision.objects.create(run=run, seq=seq, kind=kind, targets=said, at=timezone.now())


def test_planning_again_keeps_what_was_decided(session):
    run = planned(session)
    wanted, unwanted = run.proposals.filter(source=Proposal.Source.PLANNER).order_by("order")[:2]
    decide(run, Kind.APPROVE, wanted.entry_id)
    decide(run, Kind.REJECT, unwanted.entry_id)
    later = finish_run(plan_again(run))
    assert (state_of(run), later.state) == (RunState.SUPERSEDED, RunState.TARGET_MET)
    assert later.replaces == run
    kept = later.proposals.get(entry_id=wanted.entry_id)
    assert (kept.reason, kept.source) == (wanted.reason, wanted.source)
    assert not later.proposals.filter(entry_id=unwanted.entry_id).exists()
    assert {row.kind for row in later.decisions.all()} == {Kind.APPROVE, Kind.REJECT}


def test_the_form_shows_sources_refuses_a_ratio_out_of_range_and_leads_to_the_run(browser, session):
    address = f"{session.get_absolute_url()}/compact"
    page = browser.get(address)
    assert (field(page, "keep"), text_of(page).count("Source: default")) == ("50", 3)
    for keep in ("0", "100", "nan", "all", "-1", "1e999"):
        assert "between 0 and 100" in text_sent(browser.post(address, {"keep": keep, "planner": "embedded"}), 422), keep
    assert not Run.objects.exists()
    answer = browser.post(address, {"keep": "60", "preserve_recent": "2", "planner": "embedded"})
    run = Run.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, f"{address}?plan={run.pk}")
    assert run.requested_parameters == {"compression_ratio": 0.6}


def test_the_run_page_shows_each_call_with_a_transcript_and_in_flight_follows_its_rows(browser, session):
    run = planned(session)
    page = browser.get(f"/plans/{run.pk}/log")
    drawn = [one.attributes["data-seq"] for one in elements(page, "[data-seq]")]
    assert drawn == [str(event.seq) for event in run.events.order_by("seq")]
    assert not elements(page, "[ws-connect]")
    assert f"/plans/{run.pk}" in addresses(page)
    assert "attachment" in browser.get(f"/plans/{run.pk}/transcript.jsonl")["Content-Disposition"]
    run = started(session)
    page = browser.get(f"/plans/{run.pk}/log")
    assert element(page, "[ws-connect]").attributes["ws-connect"] == f"/ws/plans/{run.pk}/log"
    assert elements(page, 'noscript meta[http-equiv="refresh"]')


def test_hostile_arguments_and_sentences_are_inert_on_a_run_page(browser, session):
    run, evil = planned(session), "<script>alert(1)</script>\x1b[31m\u202e"
    data = {
        **dict.fromkeys(("tool", "sentence", "message"), evil),
        "call": 99,
        "code": "unknown_tool",
        "arguments": {evil: evil, "deletions": [evil, {"entryId": evil}]},
        "target": {"kind": "entry", "entryId": evil},
        "details": {"matches": [{"entryId": evil, "snippet": evil}], "text": evil},
    }
    run.last_seq += 1
    run.save(update_fields=["last_seq"])
    RunEvent.objects.create(run=run, seq=run.last_seq, kind="called", at=timezone.now(), data=data)
    assert_inert(browser.get(f"/plans/{run.pk}/log"))


def test_the_list_of_runs_takes_a_handful_of_queries(browser, session):
    run = planned(session)
    run.state = RunState.SUPERSEDED
    for number in range(30):
        run.pk = number + 1
        run.save()
    for show in ("", "?show=done"):
        browser.get(f"/inbox{show}")
        with CaptureQueriesContext(connection) as queries:
            page = browser.get(f"/inbox{show}")
        assert len(queries) <= 7, show
    assert text_of(page).count("replaced by a later plan") == 30


class Gone(io.StringIO):
    """The pipe to a server that was killed."""

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_run_continues_if_its_announcements_fail(session, monkeypatch):
    monkeypatch.setattr(broadcast, "_parent", Gone())
    assert planned(session).state == RunState.TARGET_MET


def test_a_run_whose_database_failed_is_resumed_to_its_end(session):
    step = worker.Recorder.step

    def fail(self: Any, *arguments: Any, **named: Any) -> None:
        if self.job.proposals.exists():
            raise OperationalError("database is locked")
        step(self, *arguments, **named)

    run = started(session, compression_ratio=0.1)
    with patch.object(worker.Recorder, "step", fail), pytest.raises(SystemFailure, match="database is locked"):
        work(run.pk, worker_name())
    assert state_of(run) == RunState.INTERRUPTED
    assert "Redline's own database" in run.failure
    assert run.failure.endswith("What had been validated is kept.")
    kept = run.proposals.count()
    assert kept
    resume_run(run)
    assert finish_run(run).state in REVIEWABLE - {RunState.INTERRUPTED}
    assert run.events.get(kind="carried").data["kept"] == kept


def test_a_run_that_was_not_even_prepared_or_gets_no_worker_fails_in_words(session, monkeypatch):
    monkeypatch.setattr(snapshots, "prepare_snapshot", Mock(side_effect=ZeroDivisionError))
    run = started(session)
    with pytest.raises(ZeroDivisionError):
        work(run.pk, worker_name())
    assert state_of(run) == RunState.FAILED
    assert "Nothing was planned" in run.failure
    run = started(session)
    assert Run.fail_unstarted(run.pk, "exit code 2")
    assert state_of(run) == RunState.FAILED
    assert run.failure == "Its worker could not be started (exit code 2); the log says why. Nothing was planned."


@pytest.fixture
def as_command(monkeypatch):
    """A test that calls `worker` in this process leaves no trace of it."""
    monkeypatch.setattr(broadcast, "_parent", None)
    usual = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, usual)


@pytest.mark.usefixtures("as_command")
def test_the_log_says_where_a_worker_failed_and_nothing_of_what_it_read(session, redline, stubborn):
    stubborn(Mock(side_effect=ValueError("a secret of the session")))
    run = started(session, "stubborn")
    with kept_log(redline.data) as path:
        ended = redline.call("worker", "--plan", run.pk)
    seen = path.read_text(encoding="utf-8")
    assert ended.code == 1
    assert not missing(seen, f"plan {run.pk} failed", "test_runs.py", "  ValueError\n")
    assert "secret" not in seen + ended.err + ended.out


@contextmanager
def held_database(seconds: float) -> Iterator[None]:
    """Another writer blocks the database for a while, from now on."""
    name, begun = str(connection.settings_dict["NAME"]), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(name, timeout=WAIT_SECONDS, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            begun.set()
            time.sleep(seconds)
            other.execute("COMMIT")

    holder = threading.Thread(target=hold)
    holder.start()
    begun.wait()
    try:
        yield
    finally:
        holder.join()


@pytest.fixture
def impatient(session, monkeypatch):
    """Statements wait for the database for a moment only."""
    connection.close()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_run_ends_though_the_database_is_busy(session):
    run = started(session)
    begun = Run.claim(run.pk, "one", started_at=timezone.now())
    with held_database(0.4):
        worker.Recorder(begun, "one").end(RunState.INTERRUPTED, "Its worker was stopped")
    assert state_of(run) == RunState.INTERRUPTED


@pytest.mark.usefixtures("impatient")
def test_a_heart_beats_on_after_a_busy_database(session, stubborn, monkeypatch):
    def think() -> None:
        with held_database(0.8):
            pass
        known = Run.objects.get().beats
        wait_until(lambda: Run.objects.get().beats != known, "no beat came")

    monkeypatch.setattr(job_recorder, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(job_recorder, "BEAT_AGAIN_SECONDS", 0.05)
    stubborn(think)
    assert planned(session, "stubborn").events.filter(kind="ended").exists()


def test_another_worker_of_the_same_run_begins_another_lease_and_is_given_up_when_it_is_over(session, clock):
    run, watch = claimed(session), LeaseWatch(Run)
    assert (watch.give_up_dead(), clock.watch(watch, LEASE_SECONDS - 1)) == ([], [])
    Run.change(run.pk, RunState.INTERRUPTED)
    resume_run(run)
    Run.claim(run.pk, "two", started_at=timezone.now())
    assert (clock.watch(watch, LEASE_SECONDS), clock.watch(watch, 1)) == ([], [run.pk])


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)], ids=["back", "forward"])
def test_a_jump_of_the_clock_neither_ends_a_living_run_nor_keeps_a_dead_one(session, clock, monkeypatch, jump):
    run, watch = claimed(session), LeaseWatch(Run)
    jumped = timezone.now() + jump
    monkeypatch.setattr(timezone, "now", lambda: jumped)
    for _ in range(2 * LEASE_SECONDS // BEAT_SECONDS):
        assert clock.watch(watch, BEAT_SECONDS) == []
        # The time of day does not change: only the counter shows that the worker is alive.
        Run.renew(run.pk, "one")
    assert clock.watch(watch, LEASE_SECONDS + 1) == [run.pk]


def test_a_watcher_that_was_stopped_together_with_the_worker_has_not_watched(session, clock):
    """As if all processes of a machine were frozen, but not its monotonic clock."""
    run, watch = claimed(session), LeaseWatch(Run)
    assert watch.give_up_dead() == []
    for _ in range(3):
        clock.now += 3_600
        assert watch.give_up_dead() == []
        Run.renew(run.pk, "one")
    assert clock.watch(watch, 2) == []


def test_a_new_watcher_waits_for_the_whole_lease(session, clock):
    run = started(session)
    Run.claim(run.pk, "one", started_at=timezone.now() - timedelta(days=1))
    watch = LeaseWatch(Run)
    assert (clock.watch(watch, LEASE_SECONDS), clock.watch(watch, 1)) == ([], [run.pk])


def test_a_lease_outlasts_some_heartbeats_and_a_killed_run_is_interrupted_in_time():
    assert job.LEASE_SECONDS >= 5 * job.BEAT_SECONDS
    # A server needs some seconds to start, and the run is given up at the look after the end of its lease.
    assert job.LEASE_SECONDS + 2 * SWEEP_SECONDS <= 30 - 8
    assert SWEEP_SECONDS <= job.LONGEST_CHECK_SECONDS


def test_a_look_that_had_to_wait_for_the_database_counts_for_nothing(session, clock):
    """While it waited, no worker could send a heartbeat."""

    @contextmanager
    def after_a_while(usual: Callable[[], Any] = transaction.atomic) -> Iterator[None]:
        clock.now += job.AT_ONCE_SECONDS + 1
        with usual():
            yield

    run, watch = claimed(session), LeaseWatch(Run)
    assert clock.watch(watch, LEASE_SECONDS) == []
    with patch.object(transaction, "atomic", after_a_while):
        assert clock.watch(watch, 1) == []
    assert (clock.watch(watch, LEASE_SECONDS), clock.watch(watch, 1)) == ([], [run.pk])


def test_what_was_validated_outlives_a_worker_that_does_not_start_unless_the_run_is_claimed(session):
    run = planned(session)
    Run.objects.filter(pk=run.pk).update(state=RunState.INTERRUPTED)
    resume_run(run)
    assert Run.fail_unstarted(run.pk, "exit code 2")
    assert state_of(run) == RunState.INTERRUPTED
    assert "exit code 2" in run.failure
    run = claimed(session)
    assert not Run.fail_unstarted(run.pk, "exit code 2")
    assert state_of(run) == RunState.RUNNING


def test_that_a_run_is_to_stop_is_announced_when_it_is_a_row(session, monkeypatch):
    seen: list[bool] = []

    def hear(group: str, **fact: object) -> None:
        seen.append(connection.in_atomic_block)

    monkeypatch.setattr(commands, "publish", hear)
    stop_run(claimed(session))
    assert seen == [False]
