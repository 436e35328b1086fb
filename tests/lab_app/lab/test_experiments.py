"""Promises of experiments: every session is tried, what was measured is kept whatever happens, and no session is
written to."""

import threading

import pytest

from compaction_app.models import Provider
from compaction_app.planning.model_registry import model_named
from lab_app.lab import experiments
from lab_app.lab.experiments import delete_experiment, measure_experiment, start_experiment, stop_experiment
from lab_app.lab.views import trials_in
from lab_app.models import Experiment
from lab_app.pure.strategies import STRATEGIES, strategies_named
from sessions_app.index.indexer import index_file
from sessions_app.jobs.job import LEASE_SECONDS, LeaseWatch
from sessions_app.jobs.recorder import Terminated
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, Conflict
from tests.factories import session_bytes, working_session
from tests.files import place, unchanged
from tests.lab_app.lab_sessions import worked_session
from tests.scripted_models import add_scripted

State = Experiment.State
TWO = strategies_named(["embedded", "oldest"])


@pytest.fixture
def session(known_root):
    return index_file(place(known_root / "long.jsonl", session_bytes(worked_session())))


@pytest.fixture
def provider(redline, provider):
    add_scripted(provider, "good-plan", window=300_000)
    return provider


def measured(experiment: Experiment) -> Experiment:
    measure_experiment(experiment.pk, "one")
    experiment.refresh_from_db()
    return experiment


def test_each_session_is_tried_none_is_written_to_and_one_that_cannot_be_read_is_noted(session, known_root):
    short = index_file(place(known_root / "short.jsonl", session_bytes(working_session(steps=3))))
    with unchanged(known_root):
        experiment = measured(start_experiment([session, short], TWO, [0.3, 0.5]))
        assert (experiment.state, experiment.failure, experiment.keeps) == (State.DONE, "", [0.5, 0.3])
        long, none = experiment.measured.order_by("pk")
        trials = trials_in(long)
        assert {(one.strategy, one.keep) for one in trials} == {
            (strategy, keep) for strategy in ("bound", "embedded", "oldest") for keep in (0.5, 0.3)
        }
        assert experiment.trials == len(trials)
        assert (none.trials, none.failure) == ([], "")
        assert None not in (long.measured_at, none.measured_at, experiment.ended_at)
    short.real_path().unlink()
    experiment = measured(start_experiment([short, session], TWO, [0.5]))
    gone, long = experiment.measured.order_by("pk")
    assert experiment.state == State.DONE
    assert "short.jsonl" in gone.failure
    assert long.trials


def test_without_a_session_nothing_is_started_and_what_is_queued_is_stopped_at_once(session):
    with pytest.raises(BadInput, match="No session matches"):
        start_experiment([], TWO, [0.5])
    assert not Experiment.objects.exists()
    experiment = start_experiment([session], TWO, [0.5])
    stop_experiment(experiment)
    measured(experiment)
    assert (experiment.state, experiment.trials) == (State.STOPPED, 0)
    with pytest.raises(Conflict, match="has ended"):
        stop_experiment(experiment)


def test_a_stopped_experiment_keeps_what_was_measured(session, known_root, monkeypatch):
    another = index_file(place(known_root / "another.jsonl", session_bytes(worked_session())))
    experiment = start_experiment([session, another], TWO, [0.5])
    stores = experiments.ExperimentRecorder.store_progress

    def store_and_stop(recorder: experiments.ExperimentRecorder) -> None:
        stores(recorder)
        if recorder.job.measured.exclude(measured_at=None).exists():
            recorder.stop_requested = True

    monkeypatch.setattr(experiments.ExperimentRecorder, "store_progress", store_and_stop)
    monkeypatch.setattr(experiments, "STORE_SECONDS", 0)
    measured(experiment)
    first, second = experiment.measured.order_by("pk")
    assert experiment.state == State.STOPPED
    assert "What was tested by then is kept" in experiment.failure
    assert first.trials
    assert second.measured_at is None


def test_an_interrupted_worker_says_so(session):
    ending = threading.Event()
    ending.set()
    experiment = start_experiment([session], TWO, [0.5])
    with pytest.raises(Terminated):
        measure_experiment(experiment.pk, "one", ending)
    experiment.refresh_from_db()
    assert (experiment.state, experiment.failure.split(".")[0]) == (State.FAILED, "Its worker was stopped")


def test_an_experiment_whose_worker_is_gone_is_given_up(session, clock):
    experiment = start_experiment([session], TWO, [0.5])
    assert Experiment.claim(experiment.pk, "dead") is not None
    assert Experiment.claim(experiment.pk, "other") is None
    watch = LeaseWatch(Experiment)
    watch.give_up_dead()
    clock.watch(watch, LEASE_SECONDS + 2)
    experiment.refresh_from_db()
    assert (experiment.state, "Its worker ended" in experiment.failure) == (State.FAILED, True)


def test_only_what_has_ended_can_be_deleted_and_an_experiment_without_a_worker_is_ended(session):
    experiment = start_experiment([session], TWO, [0.5])
    with pytest.raises(Conflict, match="is not finished"):
        delete_experiment(experiment)
    measured(experiment)
    delete_experiment(experiment)
    assert not Experiment.objects.exists()
    assert Session.objects.filter(pk=session.pk).exists()
    experiment = start_experiment([session], TWO, [0.5])
    assert Experiment.fail_unstarted(experiment.pk, "exit code 1")
    experiment.refresh_from_db()
    assert (experiment.state, "exit code 1" in experiment.failure) == (State.FAILED, True)
    assert not Experiment.fail_unstarted(experiment.pk, "again")


def test_a_model_is_tried_and_what_it_was_sent_is_counted(session, provider):
    model = model_named("scripted/good-plan")
    experiment = measured(start_experiment([session], [STRATEGIES["oldest"]], [0.5], model))
    assert experiment.state == State.DONE, experiment.failure
    (row,) = experiment.measured.all()
    planned = [one for one in trials_in(row) if one.strategy == "scripted/good-plan"]
    assert planned
    assert all(one.tokens_after < one.tokens_before and not one.failure for one in planned)
    assert experiment.traffic.requests == len(provider.requests)


def test_nothing_is_sent_to_another_address_and_a_model_that_is_not_reached_is_noted(session, provider, monkeypatch):
    experiment = start_experiment([session], TWO, [0.5], model_named("scripted/good-plan"))
    Provider.objects.update(base_url="http://127.0.0.1:9/v1")
    measured(experiment)
    assert (experiment.state, "Nothing was sent" in experiment.failure) == (State.FAILED, True)
    assert not provider.requests
    monkeypatch.setattr("compaction_app.providers.client.FIRST_WAIT", 0.01)
    model = model_named("scripted/good-plan")
    experiment = measured(start_experiment([session], [STRATEGIES["oldest"]], [0.5], model))
    (row,) = experiment.measured.all()
    trials = trials_in(row)
    assert {one.strategy for one in trials if not one.failure} == {"bound", "oldest"}
    assert all("127.0.0.1:9" in one.failure for one in trials if one.strategy == "scripted/good-plan")
