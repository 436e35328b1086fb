"""Runs of models with a real server: many in one process, a stop that closes, a killed process that loses nothing."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.scripted.server import ScriptedProvider
from tests.factories import session_bytes, working_session
from tests.server import Server, put_session, start_server

RUNS = 6


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(pace=0.02) as scripted:
        yield scripted


@pytest.fixture
def server(tmp_path: Path, provider: ScriptedProvider) -> Iterator[Server]:
    with start_server(tmp_path) as running:
        source = tmp_path / "source.jsonl"
        source.write_bytes(session_bytes(working_session(steps=20)))
        for number in range(RUNS):
            put_session(running, source, f"s{number}.jsonl")
        url = provider.base_url("openai")
        running.post("/providers/add", "/providers/add", name="scripted", dialect="openai", base_url=url)
        for script in ("good-plan", "calls-20", "long-thinking", "stalls"):
            limits = {"window": "100000", "output_limit": "8000"}
            running.post("/models/add", "/models/add", provider="scripted", name=script, **limits)
        yield running


def sessions(server: Server) -> list[str]:
    server.session("s0.jsonl")
    root = server.session("s0.jsonl").rsplit("/", 1)[0]
    return [f"{root}/s{number}.jsonl" for number in range(RUNS)]


def start(server: Server, session: str, script: str) -> str:
    planner = f"scripted/{script}"
    return server.post(
        f"{session}/compact?planner={planner}", f"{session}/compact", planner=planner, keep="40"
    )


def state(server: Server, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.get(f"/api{run}"))
    return found


def workers(server: Server, runs: list[str]) -> set[str]:
    """The processes that worked on the runs, as the database knows them."""
    numbers = {int(run.rsplit("/", 1)[1]) for run in runs}
    with sqlite3.connect(server.data / "redline.sqlite3") as database:
        rows = database.execute("SELECT id, worker FROM compaction_app_run").fetchall()
    return {worker.split(":")[1] for number, worker in rows if worker and number in numbers}


def test_runs_of_models_share_one_process_and_none_loses_an_event(server: Server) -> None:
    runs = [start(server, session, "calls-20") for session in sessions(server)]
    for run in runs:
        server.wait_for(lambda run=run: state(server, run)["state"] == "target_met")
        assert state(server, run)["calls"] > 20
    assert len(workers(server, runs)) == 1


def test_a_stop_closes_the_connection_to_the_provider(server: Server, provider: ScriptedProvider) -> None:
    run = start(server, sessions(server)[0], "long-thinking")
    server.wait_for(lambda: "streamed" if "What was acted on" in server.text(run) else "")
    known = len(provider.closed)
    server.post(run, f"{run}/stop")
    provider.wait_for(lambda: len(provider.closed) > known)
    server.wait_for(lambda: state(server, run)["state"] == "cancelled")


def test_a_killed_process_loses_nothing_and_its_run_continues(server: Server) -> None:
    run = start(server, sessions(server)[0], "stalls")
    server.wait_for(lambda: state(server, run)["percent"])
    (worker,) = workers(server, [run])
    os.kill(int(worker), signal.SIGKILL)
    server.wait_for(lambda: state(server, run)["state"] == "interrupted")
    planned = state(server, run)["percent"]
    server.post(run, f"{run}/resume")
    server.wait_for(lambda: "earlier deletions were kept" in server.text(run))
    assert state(server, run)["percent"] == planned
    assert worker not in workers(server, [run])
    server.post(run, f"{run}/stop")
    server.wait_for(lambda: state(server, run)["state"] == "cancelled")


def test_a_model_run_does_not_start_before_its_disclosure(server: Server) -> None:
    session = sessions(server)[0]
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.post(
            f"{session}/compact", f"{session}/compact", planner="scripted/good-plan", disclosed="", keep="40"
        )
    assert refused.value.code == 409
    assert "127.0.0.1" in refused.value.read().decode()
