"""Promises of the run that `redline compact` makes: its own process works on it, and a browser can review it."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.commit.preflight import Approved, Confirmations
from compaction_app.commit.service import approval, commit
from compaction_app.core.decisions import Kind
from compaction_app.core.loop import Report
from compaction_app.core.states import RunState
from compaction_app.models import Compaction, PlannerModel, Provider, Run
from compaction_app.planning import planners
from compaction_app.runs.commands import begin_run, new_run, start_run, stop_run
from compaction_app.runs.lease import claim
from compaction_app.runs.reviews import approve_proposals, decide, review_of, undo
from compaction_app.runs.worker import STOPPED
from devtools.scripted.server import ScriptedProvider
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.targets import Target
from tests.browser.scenarios import approve_everything
from tests.browser.scenarios import start_run as start_there
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import text_of
from tests.installation import Installation
from tests.paths import PROJECT
from tests.server import Server, start_server
from tests.wait import WAIT_SECONDS


@pytest.fixture
def path(known_root: Path) -> Path:
    return place(known_root / "work.jsonl", session_bytes(working_session()))


def the_run() -> Run:
    return Run.objects.get()


# What is left of it ---------------------------------------------------------------------------------------


def test_a_plan_that_was_not_confirmed_waits_as_a_run_in_the_browser(
    redline: Installation, browser: Client, path: Path
) -> None:
    shown = redline.call("compact", path, "--ratio", "0.4", "--json")
    assert shown.code == 5
    run = the_run()
    assert shown.json["run"] == run.pk
    assert (run.state, run.requested_parameters, run.automatic) == (
        RunState.TARGET_MET,
        {"compression_ratio": 0.4},
        False,
    )
    assert [event.seq for event in run.events.order_by("seq")] == list(range(1, run.last_seq + 1))
    assert [event.kind for event in run.events.order_by("seq")][:: run.last_seq - 1] == ["prepared", "ended"]
    proposed = [Target(row.entry_id, row.block_index) for row in run.proposals.order_by("order")]
    assert [target.to_json() for target in proposed] == shown.json["deletedTargets"]
    assert run.stats == shown.json["stats"]
    assert not run.decisions.exists()
    assert f"/runs/{run.pk}/review" in browser.get(f"/runs/{run.pk}").content.decode()
    assert "Nothing is approved yet" in text_of(browser.get(f"/runs/{run.pk}/review"))


def test_what_it_commits_is_the_compaction_of_its_run(
    redline: Installation, browser: Client, path: Path
) -> None:
    written = redline.call("compact", path, "--yes", "--json")
    assert written.code == 0, written
    run = the_run()
    compaction = Compaction.objects.get()
    assert (run.pk, run.state, compaction.run) == (written.json["run"], RunState.COMMITTED, run)
    assert compaction.entry_id == written.json["entryId"]
    assert [step.kind for step in run.decisions.all()] == [Kind.APPROVE]
    assert review_of(run).undecided == 0
    assert browser.get(f"/runs/{run.pk}/result").status_code == 200
    assert redline.call("restore", written.json["backupPath"], "--yes").code == 0
    run.refresh_from_db()
    assert run.state == RunState.RESTORED


def test_a_dry_run_leaves_no_run(redline: Installation, path: Path) -> None:
    shown = redline.call("compact", path, "--dry-run", "--json")
    assert (shown.code, shown.json["run"]) == (0, None)
    assert not Run.objects.exists()
    assert not Session.objects.exists()


def test_a_plan_that_could_never_be_written_leaves_no_run(redline: Installation, known_root: Path) -> None:
    path = place(known_root / "work.jsonl", session_bytes(working_session()[1:]))
    assert redline.call("compact", path, "--yes", "--json").error == "no_header"
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--leaf", "nowhere"], "unknown_entry"), (["--planner", "x"], "unknown_planner")]
)
def test_a_mistake_in_the_arguments_leaves_no_run(
    redline: Installation, path: Path, arguments: list[str], code: str
) -> None:
    assert redline.call("compact", path, "--json", *arguments).error == code
    assert not Run.objects.exists()


def test_a_run_that_fails_says_so_in_the_browser_too(redline: Installation, known_root: Path) -> None:
    path = place(known_root / "short.jsonl", session_bytes(working_session(steps=0)[:2]))
    refused = redline.call("compact", path, "--json")
    assert (refused.code, refused.error) == (2, "nothing_to_compact")
    assert (the_run().state, the_run().failure) == (RunState.FAILED, refused.json["error"]["message"])


def test_a_session_outside_of_all_roots_is_compacted_as_ever(
    redline: Installation, browser: Client, tmp_path: Path
) -> None:
    path = place(tmp_path / "elsewhere" / "work.jsonl", session_bytes(working_session()))
    written = redline.call("compact", path, "--yes", "--not-honoured", "--json")
    assert written.code == 0, written
    assert the_run().state == RunState.COMMITTED
    # Its directory is not configured, so pages do not show it.
    assert browser.get(f"/runs/{the_run().pk}").status_code == 404
    assert f"/runs/{the_run().pk}" not in browser.get("/runs/").content.decode()


def test_it_plans_during_another_run_of_the_session(redline: Installation, path: Path) -> None:
    other = start_run(index_file(path), planner="embedded", requested_parameters={})
    assert redline.call("compact", path, "--yes").code == 0
    other.refresh_from_db()
    assert other.state == RunState.QUEUED


# A decision in the browser --------------------------------------------------------------------------------


@pytest.fixture
def approved(redline: Installation, path: Path) -> Approved:
    """A run that the command planned, and what it showed before its prompt."""
    redline.call("compact", path)
    approve_proposals(the_run(), timezone.now())
    shown = approval(the_run())
    undo(the_run(), timezone.now())
    return shown


def test_a_proposal_that_was_rejected_meanwhile_is_not_written(approved: Approved, path: Path) -> None:
    before, run = path.read_bytes(), the_run()
    decide(run, Kind.REJECT, [approved.targets[0]], timezone.now())
    with pytest.raises(RedlineError) as refused:
        approve_proposals(run, timezone.now())
    assert refused.value.code == "decided_elsewhere"
    assert path.read_bytes() == before


def test_nothing_more_is_written_than_was_shown(approved: Approved, path: Path) -> None:
    before, run = path.read_bytes(), the_run()
    kept = next(entry_id for entry_id in ("e5", "e7", "e25") if Target(entry_id) not in approved.targets)
    decide(run, Kind.ADD, [Target(kept)], timezone.now())
    approve_proposals(run, timezone.now())
    with pytest.raises(RedlineError) as refused:
        commit(approved, Confirmations(), timezone.now())
    assert refused.value.code == "plan_differs"
    assert path.read_bytes() == before


# Who works on it ------------------------------------------------------------------------------------------


def test_no_other_worker_can_claim_its_run(redline: Installation, path: Path) -> None:
    run = new_run(index_file(path), "embedded", {})
    begin_run(run, "mine")
    assert not Run.objects.queued().exists()
    assert claim(run.pk, "another", timezone.now()) is None
    assert Run.objects.get().worker == "mine"


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have the embedded planner act before each of its turns."""

    def put(act: Callable[[], object]) -> None:
        usual = planners.PLANNERS["embedded"]

        def make(transcript: Any) -> Any:
            planner = usual(transcript)
            next_turn = planner.next_turn

            def acted(report: Report) -> Any:
                act()
                return next_turn(report)

            planner.next_turn = acted  # type: ignore[method-assign]  # of this planner only
            return planner

        monkeypatch.setitem(planners.PLANNERS, "embedded", make)  # type: ignore[arg-type]  # constant to others

    return put


def test_a_stop_from_the_browser_ends_it(redline: Installation, path: Path, acting: Any) -> None:
    before = path.read_bytes()
    acting(lambda: stop_run(the_run()))
    ended = redline.call("compact", path, "--yes", "--json")
    assert (ended.code, ended.error) == (4, "run_stopped")
    assert the_run().state == RunState.CANCELLED
    assert path.read_bytes() == before


def test_a_run_that_was_given_up_is_not_committed(redline: Installation, path: Path, acting: Any) -> None:
    """As if the command had been suspended for a while, watched by a server."""
    before = path.read_bytes()

    def give_up() -> None:
        Run.objects.update(state=RunState.INTERRUPTED)

    acting(give_up)
    ended = redline.call("compact", path, "--yes", "--json")
    assert (ended.code, ended.error) == (4, "run_given_up")
    assert the_run().state == RunState.INTERRUPTED
    assert path.read_bytes() == before


def test_an_interrupt_leaves_its_run_interrupted(redline: Installation, path: Path, acting: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    acting(interrupt)
    assert redline.call("compact", path, "--yes").code == 130
    assert (the_run().state, the_run().failure) == (RunState.INTERRUPTED, STOPPED)


# An LLM planner -------------------------------------------------------------------------------------------


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as scripted:
        yield scripted


@pytest.fixture
def compact_with(redline: Installation, known_root: Path, provider: ScriptedProvider) -> Callable[..., Any]:
    """`redline compact` with a script as the planner."""
    url = provider.base_url("openai")
    Provider.objects.create(name="scripted", dialect="openai", base_url=url)
    path = place(known_root / "work.jsonl", session_bytes(working_session(steps=20)))

    def compact(script: str, *arguments: str) -> Any:
        PlannerModel.objects.create(provider="scripted", name=script, window=100_000, output_limit=8_000)
        return redline.call("compact", path, "--planner", f"scripted/{script}", *arguments)

    return compact


def test_the_usage_of_a_model_is_kept_with_the_run(compact_with: Callable[..., Any]) -> None:
    ended = compact_with("good-plan", "--yes", "--json")
    assert ended.code == 0, ended
    run = the_run()
    assert (run.state, run.usage) == (RunState.COMMITTED, ended.json["usage"])
    assert run.usage["requests"] == run.events.filter(kind="asked").count() > 0
    assert Compaction.objects.get().planner == "scripted/good-plan"


def test_a_provider_that_fails_ends_the_command_and_its_run(compact_with: Callable[..., Any]) -> None:
    ended = compact_with("wrong-key", "--yes", "--json")
    assert ended.code != 0
    assert the_run().state == RunState.FAILED
    assert the_run().failure.startswith(ended.json["error"]["message"])
    assert the_run().events.filter(kind="ended").exists()


# With a server --------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, provider: ScriptedProvider) -> Iterator[Server]:
    """A server with two sessions, and with a model that deletes something and then stops sending."""
    root = tmp_path / "sessions"
    for name in ("first", "second"):
        recorded = working_session()
        recorded[1]["message"]["content"] = f"Mend the {name} parser."
        place(root / f"{name}.jsonl", session_bytes(recorded))
    with start_server(tmp_path, roots=root) as running:
        url = provider.base_url("openai")
        running.post("/providers/add", "/providers/add", name="scripted", dialect="openai", base_url=url)
        limits = {"window": "100000", "output_limit": "8000"}
        running.post("/models/add", "/models/add", provider="scripted", name="stalls", **limits)
        yield running


def start_command(server: Server, *arguments: str) -> subprocess.Popen[str]:
    """`redline compact` of the first session in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "redline", "compact", str(server.root / "first.jsonl"), *arguments],
        cwd=PROJECT,
        env=server.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def row_of(server: Server, run: int) -> dict[str, Any]:
    with closing(sqlite3.connect(server.data / "redline.sqlite3")) as database:
        database.row_factory = sqlite3.Row
        row = database.execute("SELECT * FROM compaction_app_run WHERE id = ?", (run,)).fetchone()
    return dict(row) if row is not None else {}


@pytest.fixture
def stalled(server: Server) -> Iterator[subprocess.Popen[str]]:
    """A command in the middle of run 1: its model has deleted something, and sends nothing more."""
    child = start_command(server, "--yes", "--planner", "scripted/stalls")
    server.wait_for(lambda: row_of(server, 1).get("calls", 0) > 1)  # the first one only reads the budget
    yield child
    child.kill()
    child.communicate()


def test_a_browser_reviews_and_commits_what_a_command_left(server: Server) -> None:
    child = start_command(server, "--json")
    out, _ = child.communicate(timeout=WAIT_SECONDS)
    assert child.returncode == 5
    shown = json.loads(out)
    page = f"/runs/{shown['run']}"
    assert "the target is met" in server.text(page)
    approve_everything(server, page)
    server.post(f"{page}/commit", f"{page}/commit")
    written = json.loads((server.root / "first.jsonl").read_bytes().splitlines()[-1])
    assert written["type"] == "context_compaction"
    assert written["deletedTargets"] == shown["deletedTargets"]


def test_the_workers_of_a_server_leave_its_run_alone(server: Server, stalled: subprocess.Popen[str]) -> None:
    worker = row_of(server, 1)["worker"]
    assert worker.split(":")[1] == str(stalled.pid)
    other = start_there(server, server.session("Mend the second parser."))
    server.wait_for(lambda: "Review the proposals" in server.text(other))
    assert (row_of(server, 1)["worker"], row_of(server, 1)["state"]) == (worker, RunState.RUNNING)
    assert stalled.poll() is None


def test_it_is_watched_and_stopped_in_the_browser(server: Server, stalled: subprocess.Popen[str]) -> None:
    before = (server.root / "first.jsonl").read_bytes()
    assert 'data-seq="1"' in server.get("/runs/1")
    server.post("/runs/1", "/runs/1/stop")
    _, err = stalled.communicate(timeout=WAIT_SECONDS)
    assert stalled.returncode == 4
    assert "Run 1 was stopped" in err
    assert row_of(server, 1)["state"] == RunState.CANCELLED
    assert (server.root / "first.jsonl").read_bytes() == before


def test_the_run_of_a_killed_command_is_interrupted_and_can_be_resumed(
    server: Server, stalled: subprocess.Popen[str]
) -> None:
    before = (server.root / "first.jsonl").read_bytes()
    stalled.kill()
    server.wait_for(lambda: row_of(server, 1)["state"] == RunState.INTERRUPTED)
    assert "Its worker is gone" in server.text("/runs/1")
    server.post("/runs/1", "/runs/1/resume")
    server.wait_for(lambda: "earlier deletions were kept" in server.text("/runs/1"))
    server.post("/runs/1", "/runs/1/stop")
    server.wait_for(lambda: row_of(server, 1)["state"] == RunState.CANCELLED)
    assert (server.root / "first.jsonl").read_bytes() == before


def test_an_interrupt_from_the_terminal_ends_it_and_its_run(
    server: Server, stalled: subprocess.Popen[str]
) -> None:
    stalled.send_signal(signal.SIGINT)
    _, err = stalled.communicate(timeout=WAIT_SECONDS)
    assert (stalled.returncode, err) == (130, "redline: interrupted\n")
    assert (row_of(server, 1)["state"], row_of(server, 1)["failure"]) == (RunState.INTERRUPTED, STOPPED)
