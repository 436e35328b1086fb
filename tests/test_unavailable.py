"""A busy database, a full disk, a refused file: reported as such, and pages can be shown without writing."""

import html
import json
import sqlite3
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from django.db import connection
from django.urls import URLPattern, get_resolver
from django.utils import timezone
from filelock import FileLock

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.core.states import RunState
from compaction_app.models import Compaction, Handshake, PlannerModel, Provider, Run, RunEvent, SummaryDraft
from compaction_app.review.lines import ref_of
from compaction_app.runs import worker
from compaction_app.runs.commands import start_run
from compaction_app.runs.worker import work
from lab_app.models import Experiment
from redline.configuration import RootSetting
from sessions_app.database.sqlite import left_out_if_busy, only_this_database
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.jobs.job import worker_name
from sessions_app.models import Root, Session
from sessions_app.server.running_server import LOCK_FILE, RunningServer
from tests.clients import body_of, script_client
from tests.compaction_app.rendering.test_pictures import png
from tests.factories import chain, session_bytes, user, working_session
from tests.files import place, snapshot
from tests.html import missing, text_of
from tests.installation import Installation
from tests.plans import approved_plan
from tests.processes import in_child, limit_file_size
from tests.server import start_server

SHORT: Final = 0.05
"""How long a statement waits for another writer in these tests, in seconds."""
LONG: Final = "x" * 4_000
"""A query for which the database has to grow."""
CODES: Final = {"busy": 5, "disk_full": 60, "read_only": 60}
"""Error codes, each with the seconds after which a browser or a script may try again."""


@pytest.fixture
def session(known_root):
    return index_file(place(known_root / "work.jsonl", session_bytes(working_session())))


@pytest.fixture
def impatient(session, monkeypatch):
    connection.close()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", SHORT)


@contextmanager
def another_writer(database: Path | str) -> Iterator[None]:
    """Another connection holds the lock for writing."""
    with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def busy() -> AbstractContextManager[None]:
    return another_writer(str(connection.settings_dict["NAME"]))


@contextmanager
def pragma(name: str, value: Callable[[int], int]) -> Iterator[None]:
    """Set a limit of the connection, computed from the number of pages in the database."""
    with connection.cursor() as cursor:
        # Free pages would be used first.
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA page_count")
        (pages,) = cursor.fetchone()
        cursor.execute(f"PRAGMA {name}")
        (usual,) = cursor.fetchone()
        cursor.execute(f"PRAGMA {name} = {value(pages)}")
        yield
        cursor.execute(f"PRAGMA {name} = {usual}")


def failing(code: str) -> AbstractContextManager[None]:
    """Make SQLite refuse writes with its own result code for this error."""
    makers = {
        "busy": busy,
        "disk_full": lambda: pragma("max_page_count", lambda pages: pages),
        "read_only": lambda: pragma("query_only", lambda _: 1),
    }
    return makers[code]()


# ---- pages and scripts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
@pytest.mark.usefixtures("impatient")
def test_a_form_that_cannot_be_processed_is_answered_with_the_reason_and_a_script_with_the_code(browser, session, code):
    below = f"sessions/{session.root_id}/{session.relative_path}/compact"
    asked = json.dumps({"query": LONG})
    with failing(code):
        to_form = browser.post(f"/{below}", {"keep": "50", "planner": "embedded", "query": LONG})
        to_script = script_client().post(f"/api/{below}", asked, content_type="application/json")
    for answer in (to_form, to_script):
        assert (answer.status_code, answer["Retry-After"]) == (503, str(CODES[code]))
    page = text_of(to_form)
    assert "busy" in page if code == "busy" else "disk is full" in page or "read-only" in page
    assert "No session was harmed." in page
    assert "mistake" not in page
    error = to_script.json()["error"]
    assert error["code"] == code
    assert "try again" in error["message"].lower()
    assert not Run.objects.exists()


@pytest.mark.usefixtures("impatient")
def test_other_errors_remain_bugs(browser, session, monkeypatch):
    browser.raise_request_exception = False
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE compaction_app_runevent")
    run = Run.objects.create(session=session, planner="embedded", created_at=timezone.now())
    assert browser.get(f"/plans/{run.pk}/log").status_code == 500


@pytest.mark.parametrize("code", ["damaged", "gone"])
def test_a_database_that_cannot_be_used_any_more_is_no_bug_wherever_it_is_met(browser, session, redline, code):
    connection.close()
    database = redline.data / "redline.sqlite3"
    browser.raise_request_exception = False
    with FileLock(redline.data / LOCK_FILE), only_this_database() as identity:
        RunningServer(8_000, plain=False, database=identity).keep(redline.data)
        database.write_bytes(b"no database" * 1_000) if code == "damaged" else database.rename(redline.data / "moved")
        _ask_everywhere(browser, session, redline, code)
    assert database.exists() == (code == "damaged"), "no other one was made"


def _ask_everywhere(browser: Any, session: Session, redline: Installation, code: str) -> None:
    asked = [
        browser.get(one) for one in ("/", session.get_absolute_url(), "/inbox", "/no-such-page", "/settings/agents")
    ]
    answered = [*asked, browser.post("/theme", {"theme": "dark"}), script_client().get("/api/sessions")]
    statuses = [one.status_code for one in answered]
    assert statuses == [503, 503, 503, 503, 503, 303, 503], statuses
    message = answered[-1].json()["error"]["message"]
    assert message in text_of(answered[0])
    assert answered[-1].json()["error"]["code"] == code
    assert missing(message, "No session was harmed", "the runs", "`redline undo` needs", "the audit log") == []
    connection.close()
    ended = redline.call("sessions", "--json")
    assert (ended.code, ended.json["error"]) == (6, answered[-1].json()["error"])
    assert ("redline index --salvage" in message) == (code == "damaged")


def test_a_real_server_reports_a_busy_database_and_answers_reads_until_it_is_deleted(tmp_path):
    """It is configured to wait only briefly."""
    place(tmp_path / "sessions" / "work.jsonl", session_bytes(working_session()))
    with start_server(tmp_path, REDLINE_DATABASE_SECONDS=str(SHORT)) as server:
        address = server.session("Mend the parser.")
        with another_writer(server.data / "redline.sqlite3"):
            for page in ("/", "/settings", "/settings/models", "/inbox", address):
                server.get(page)
            with pytest.raises(urllib.error.HTTPError) as refused:
                server.post(f"{address}/compact", f"{address}/compact", keep="50", planner="embedded")
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (503, "5")
        assert "Redline is busy" in refused.value.read().decode()
        server.post(f"{address}/compact", f"{address}/compact", keep="50", planner="embedded")
        (server.data / "redline.sqlite3").unlink()
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.get("/")
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (503, "60")
        assert "Redline's database is gone" in html.unescape(refused.value.read().decode())


# ---- no page writes --------------------------------------------------------------------------------------


@pytest.fixture
def staged(session, redline):
    """By the name of each pattern, a URL that it matches."""
    path = Path(session.root.path) / session.relative_path
    written = start_run(session, planner="embedded", requested_parameters={})
    work(written.pk, worker_name())
    Run.objects.update(state=RunState.COMMITTED)
    committed = commit(approved_plan(path), Confirmations(live=True), timezone.now())
    session.refresh_from_db()
    run = start_run(session, planner="embedded", requested_parameters={}, automatic=True)
    work(run.pk, worker_name())
    RunEvent.objects.create(run=written, seq=1_000, kind="asked", at=timezone.now(), data={"turn": 1, "characters": 1})
    Compaction.objects.update(run=written)
    place(redline.data / "sessions" / "kept.jsonl", session_bytes(working_session()))
    index_roots()
    Provider.objects.create(name="own", dialect="openai", base_url="http://127.0.0.1:1/v1")
    model = PlannerModel.objects.create(provider="own", name="m", window=20_000, output_limit=1_000)
    proposed = run.proposals.order_by("order")[0]
    shown = {"type": "image", "mimeType": "image/png", "data": b64encode(png(1, 1)).decode()}
    picture = session_bytes(chain(user("Look.") | {"content": [shown]}))
    seen = index_file(place(Path(session.root.path) / "seen.jsonl", picture))
    now = timezone.now()
    draft = SummaryDraft.objects.create(
        session=session, leaf_id="e3", state=SummaryDraft.State.READY, text="So far.", created_at=now
    )
    of_draft = draft.get_absolute_url()
    experiment = Experiment.objects.create(version="1", created_at=now).get_absolute_url()
    times = {"asked_at": now, "polled_at": now, "ends_at": now + timedelta(hours=1)}
    words = {"connection": "pi", "agent": "pi", "reason": "manual", "honours": "edits", "then": "compact"}
    asked = Handshake.objects.create(session=session, run=run, **times, **words)
    at = f"/sessions/{session.root_id}/{session.relative_path}"
    backup = f"{at}/backups/{committed.backup.path.name}"
    of_run, of_provider, of_handshake = f"/plans/{run.pk}", "/settings/providers/own", f"/inbox/agents/{asked.pk}"
    return {
        "list": "/",
        **below("", "import settings theme demo"),
        "hide_introduction": "/introduction/hide",
        "palette": "/go",
        **below("/settings", "agents models windows browser advanced"),
        "automatic_planning": "/settings/planning",
        "audit": "/history",
        "all_backups": "/history/backups",
        "verify_backups": "/history/backups/verify",
        "log_out": "/log-out",
        "runs": "/inbox",
        "search": "/search?q=needle",
        "remove": "/import/kept.jsonl/remove",
        **{f"{name}_agent": f"/settings/agents/codex/{name}" for name in ("connect", "remove", "test")},
        "session": at,
        **below(at, "reader preview migrate compact backups download timeline fork doctor tree summarise lost"),
        "text": f"{at}/text?entry=e3",
        "entry": f"{at}/entries/e3",
        "place": f"{at}/place?number=1",
        "compaction_settings": f"{at}/settings",
        "export": f"{at}/export?format=markdown",
        "select_for_plan": f"{at}/select",
        "session_hindsight": f"{at}/hindsight",
        "lost_report": f"{at}/lost/report",
        "reindex": f"{at}/read-anew",
        "compare_branches": f"{at}/tree/compare",
        "move": f"{at}/tree/move?entry=e3",
        "label": f"{at}/tree/label?entry=e3",
        "fork_from": f"{at}/tree/fork?entry=e3",
        "picture": f"/sessions/{seen.root_id}/{seen.relative_path}/entries/e1/picture",
        "experiments": "/insights/benchmark",
        "new_experiment": "/insights/benchmark/new",
        "hindsight": "/insights/costs",
        "experiment": experiment,
        **{f"{name}_experiment": f"{experiment}/{name}" for name in ("stop", "delete")},
        **{f"experiment_{kind}": f"{experiment}.{kind}" for kind in ("csv", "json")},
        "draft": of_draft,
        **{f"{name}_draft": f"{of_draft}/{name}" for name in ("stop", "use", "discard", "append")},
        "draft_lost": f"{of_draft}/replaced",
        "restore": f"{backup}/restore",
        **{f"{name}_backup": f"{backup}/{name}" for name in ("verify", "delete", "download")},
        "api_sessions": "/api/sessions",
        "api_session": f"/api{at}",
        "api_compact": f"/api{at}/compact",
        "api_run": f"/api/runs/{run.pk}",
        "api_stop": f"/api/runs/{run.pk}/stop",
        "api_earlier_run": f"/api/runs/{run.pk}",
        "api_earlier_stop": f"/api/runs/{run.pk}/stop",
        "api_handshakes": "/api/handshakes",
        "api_handshake": f"/api/handshakes/{asked.pk}",
        "waiting_agents": "/inbox/agents/waiting",
        "handshakes": "/inbox/agents",
        "handshake": of_handshake,
        "decline_handshake": f"{of_handshake}/decline",
        "take_back_handshake": f"{of_handshake}/take-back",
        "run": f"{of_run}/log",
        "review": of_run,
        "commit": f"{of_run}/confirm",
        **below(of_run, "stop resume again decide select dismiss"),
        "review_markdown": f"{of_run}/review.md",
        "review_json": f"{of_run}/review.json",
        "approve_rest": f"{of_run}/approve-rest",
        "review_place": f"{of_run}/place?number=1",
        "evidence": f"{of_run}/evidence?of={ref_of(proposed.target)}",
        "stays": f"{of_run}/stays?from=0&to=9",
        "transcript": f"{of_run}/transcript.jsonl",
        "handoff": f"{of_run}/handoff.md",
        "words": f"/plans/{written.pk}/requests/1000",
        **below(f"/plans/{written.pk}", "result certify undo"),
        "add_model": "/settings/models/add",
        "model": f"/settings/models/{model.pk}",
        **{f"{name}_model": f"/settings/models/{model.pk}/{name}" for name in ("remove", "test")},
        "add_provider": "/settings/providers/add",
        "provider": of_provider,
        "remove_provider": f"{of_provider}/remove",
        "agreement": f"{of_provider}/agreement",
    }


def below(address: str, names: str) -> dict[str, str]:
    """URLs that end with the name of their pattern."""
    return {name: f"{address}/{name}" for name in names.split()}


def test_every_address_is_staged(staged):
    ours = [found for found in get_resolver().url_patterns if str(found.pattern) == ""]
    names = {
        pattern.name
        for included in ours
        for pattern in included.url_patterns
        if isinstance(pattern, URLPattern) and pattern.name
    }
    assert names <= staged.keys()


@pytest.mark.parametrize("code", ["busy", "read_only"])
@pytest.mark.usefixtures("impatient")
def test_no_page_writes_to_the_database_or_to_the_data_directory(browser, staged, redline, code):
    asking = script_client()
    with failing(code):
        before = snapshot(redline.data)
        for name, address in staged.items():
            answer = (asking if address.startswith("/api/") else browser).get(address)
            body_of(answer)
            assert answer.status_code < 500, name
            assert answer.status_code != 404, name
        after = snapshot(redline.data)
    assert {name: content for name, content in before.items() if "sqlite3" not in name} == {
        name: content for name, content in after.items() if "sqlite3" not in name
    }


def test_the_settings_page_shows_an_unscanned_root_without_creating_a_row(browser, redline, settings, tmp_path):
    index_roots()
    rows = list(Root.objects.values_list())
    assert browser.get("/import").status_code == 200
    page = text_of(browser.get("/settings"))
    assert "not searched yet" not in page
    added = [*settings.REDLINE.roots, RootSetting(path=tmp_path / "new")]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": added})
    page = text_of(browser.get("/settings"))
    assert not missing(page, str(tmp_path / "new"), "not searched yet")
    assert list(Root.objects.values_list()) == rows
    assert not (redline.data / "sessions").exists()


@pytest.mark.usefixtures("impatient")
def test_a_review_is_shown_even_if_that_cannot_be_recorded_until_later(browser, staged):
    with busy():
        assert browser.get(staged["review"]).status_code == 200
        assert Run.objects.get(automatic=True).reviewed_at is None
    browser.head(staged["review"])
    browser.get(staged["review"], headers={"purpose": "prefetch"})
    assert Run.objects.get(automatic=True).reviewed_at is None
    browser.get(staged["review"])
    assert Run.objects.get(automatic=True).reviewed_at is not None


@pytest.mark.usefixtures("impatient")
def test_an_optional_write_does_not_shorten_the_wait_of_the_next_one():
    def wait() -> int:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            return int(cursor.fetchone()[0])

    usual = wait()
    with busy(), left_out_if_busy("A test"):
        assert wait() == 0
        Run.objects.create(session_id=1, planner="embedded", created_at=timezone.now())
    assert wait() == usual == round(SHORT * 1_000)
    assert not Run.objects.exists()


# ---- commands and workers --------------------------------------------------------------------------------


def test_a_command_reports_a_busy_database(redline, known_root):
    path = place(known_root / "new.jsonl", session_bytes(working_session()))
    with busy():
        ended = redline.call("index", path, "--json", REDLINE_DATABASE_SECONDS=str(SHORT))
    assert ended.refused("another process has been writing to it for 0.05 s") == "6 busy"


@pytest.mark.parametrize("code", ["disk_full", "read_only"])
def test_a_command_reports_disk_errors(redline, known_root, code):
    path = place(known_root / "new.jsonl", session_bytes(working_session(steps=400)))
    with failing(code):
        ended = redline.call("index", path, "--json")
    assert ended.refused("No session was harmed.") == f"6 {code}"


def test_a_limit_on_file_sizes_is_a_disk_failure(redline, known_root):
    path = place(known_root / "new.jsonl", session_bytes(working_session(steps=2_000)))
    size = (redline.data / "redline.sqlite3").stat().st_size
    ended = in_child(lambda: redline.call("index", path, "--json").out, limit_file_size(size))
    assert json.loads(ended)["error"]["code"] == "disk_failed"


@pytest.mark.parametrize("code", ["busy", "disk_full"])
@pytest.mark.usefixtures("impatient")
def test_a_run_ended_by_the_database_says_so_and_can_be_resumed(session, monkeypatch, code):
    step = worker.Recorder.step

    def fail(self: Any, *arguments: Any, **named: Any) -> None:
        if self.job.proposals.exists():
            with failing(code):
                Run.objects.filter(pk=self.job.pk).update(planner_note="x" * 100_000)
        step(self, *arguments, **named)

    run = start_run(session, planner="embedded", requested_parameters={"compression_ratio": 0.1})
    monkeypatch.setattr(worker.Recorder, "step", fail)
    with pytest.raises(Exception, match=r"Redline's own database .* (is busy|cannot grow)"):
        work(run.pk, worker_name())
    run.refresh_from_db()
    assert run.state == RunState.INTERRUPTED
    assert "Redline failed because of a bug" not in run.failure
    assert run.failure.endswith("What had been validated is kept.")
