"""Runs of models with a real server: many in one process, and a stop that closes the connection to the provider."""

import json
from typing import Any

import pytest

from compaction_app.scripted.server import ScriptedProvider
from tests.browser.scenarios import query_number, run_number, title, titled_session
from tests.scripted_models import added_provider, start_model
from tests.server import Server, place_in

NAMES = ("first", "second", "third")


@pytest.fixture(scope="module")
def provider():
    with ScriptedProvider(pace=0.02) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def server(shared_server, provider):
    models = ("calls-20", "long-thinking")
    with (
        place_in(shared_server, "model-serving") as mine,
        added_provider(mine, "serving", provider.base_url("openai"), *models),
    ):
        for name in NAMES:
            mine.put(f"{name}.jsonl", titled_session(name, steps=20))
        yield mine


def state(server: Server, run: str) -> dict[str, Any]:
    return json.loads(server.get(f"/api{run}"))


def test_runs_of_models_share_one_process_and_none_loses_an_event(server):
    runs = [start_model(server, server.session(title(name)), "serving/calls-20") for name in NAMES]
    for run in runs:
        server.wait_for(lambda run=run: state(server, run)["state"] == "target_met")
        assert state(server, run)["calls"] > 20
    # The name of a worker begins with its host and its process.
    processes = (
        "SELECT count(DISTINCT substr(worker, 1, length(worker) - 8)) FROM compaction_app_run WHERE id BETWEEN ? AND ?"
    )
    assert query_number(server, processes, run_number(runs[0]), run_number(runs[-1])) == 1


def test_a_stop_closes_the_connection_to_the_provider(server, provider):
    run = start_model(server, server.session(title("first")), "serving/long-thinking")
    server.wait_for(lambda: "What was acted on" in server.text(run))
    known = len(provider.closed)
    server.post(run, f"{run}/stop")
    provider.wait_for(lambda: len(provider.closed) > known)
    server.wait_for(lambda: state(server, run)["state"] == "cancelled")
