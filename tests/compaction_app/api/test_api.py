"""The API: it needs the token and nothing else, answers in JSON, and never commits."""

import itertools
import json
import stat
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.urls import reverse

from compaction_app.core.states import RunState
from compaction_app.models import PlannerModel, Provider, Run
from compaction_app.runs.worker import work
from sessions_app.index.indexer import index_file, index_paths, index_roots
from sessions_app.jobs.job import worker_name
from sessions_app.models import Session
from sessions_app.server.running_server import API_TOKEN_FILE, api_token, browser_host, is_api_token
from tests.browser.scenarios import title, titled_session
from tests.clients import authorized_client, new_client, script_client
from tests.factories import chain, session_bytes, user, working_session
from tests.files import append_as_agent, backdate, place, snapshot
from tests.html import text_of
from tests.server import place_in

JSON = "application/json"
HERE = "http://127.0.0.1"
"""The address for scripts."""


@pytest.fixture
def session(known_root):
    return index_file(place(known_root / "below" / "work.jsonl", session_bytes(working_session())))


@pytest.fixture
def address(session):
    return f"/api/sessions/{session.root_id}/{session.relative_path}/compact"


@pytest.fixture
def script(redline):
    return script_client()


def pages() -> str:
    """The address of the pages in the user's browser."""
    return f"http://{browser_host(django_settings.REDLINE_DATA_DIR)}:80"


def ask(client: Client, address: str, **wanted: Any) -> Any:
    return client.post(address, json.dumps(wanted), content_type=JSON)


def failure(answer: Any) -> tuple[int, str]:
    """The status and the code of a failure, which has a code and a message and nothing else."""
    assert answer["Content-Type"] == JSON
    answered = answer.json()
    assert (answered.keys(), answered["error"].keys()) == ({"error"}, {"code", "message"})
    assert answered["error"]["message"].endswith((".", ")"))
    return answer.status_code, answered["error"]["code"]


def named_sessions(known_root: Path, *names: str) -> None:
    """Sessions with these names, the first one used last."""
    for hours, name in enumerate(names):
        backdate(place(known_root / f"{name}.jsonl", session_bytes(chain(user(f"about {name}")))), hours + 1)
    index_roots()


def test_the_sessions_are_listed_as_the_command_lists_them(script, known_root, redline):
    named_sessions(known_root, "new", "a b/wört%2F?x", "odd\n#;,'~")
    place(known_root.parent / "elsewhere" / "s.jsonl", session_bytes(chain(user("not configured"))))
    index_paths([known_root.parent / "elsewhere"])
    answered = script.get("/api/sessions").json()
    printed = redline.call("sessions", "--json").json
    assert answered["sessions"] == [one for one in printed if one["url"]]
    assert [(one["url"], one["api"]) for one in printed if one["title"] == "not configured"] == [(None, None)]
    assert answered["next"] is None
    for one in answered["sessions"]:
        found = Session.objects.get(pk=one["id"])
        assert one["url"] == reverse("compaction:session", args=(found.root_id, found.relative_path))
        assert script.get(one["api"]).json() == one
        assert script.post(one["api"] + "/compact").status_code in (202, 400), "a run of one message is refused"


def test_a_long_list_comes_in_pages(script, known_root):
    named_sessions(known_root, *"abcdefg")
    Session.objects.filter(title__endswith="e").update(last_used=None)
    Session.objects.filter(title__endswith="f").update(last_used=None)
    address, pages = "/api/sessions?limit=3", []
    while address:
        answered = script.get(address).json()
        pages.append([one["title"] for one in answered["sessions"]])
        address = answered["next"]
    assert pages == [["about a", "about b", "about c"], ["about d", "about g", "about e"], ["about f"]]


def test_a_list_is_filtered_by_title_and_project_and_an_invalid_query_is_bad_input(script, known_root):
    limits = [f"limit={limit}" for limit in ("0", "1001", "-1", "x", "%F0%9F%98%80")]
    for query in (*limits, "after=x", "after=" + "9" * 30):
        assert failure(script.get(f"/api/sessions?{query}")) == (400, "bad_query"), query
    assert failure(script.get("/api/sessions?after=4711")) == (400, "no_such_session")
    named_sessions(known_root, "parser", "lexer", "parser & lexer")
    first = script.get("/api/sessions", {"q": "PARSER", "limit": "1"}).json()
    second = script.get(first["next"]).json()
    found = [[one["title"] for one in answered["sessions"]] for answered in (first, second)]
    assert (found, second["next"]) == ([["about parser"], ["about parser & lexer"]], None)
    assert len(script.get("/api/sessions?q=home").json()["sessions"]) == 3


def test_a_run_is_started_with_the_three_parameters(script, address, session):
    answer = ask(script, address, compression_ratio=0.25, preserve_recent=4, query="the parser")
    assert answer.status_code == 202
    run = Run.objects.get()
    assert run.requested_parameters == {"compression_ratio": 0.25, "preserve_recent": 4, "query": "the parser"}
    assert (run.session_id, run.planner, run.reason, run.automatic) == (session.pk, "embedded", "manual", False)
    urls = {"url": f"{pages()}/plans/{run.pk}", "stateUrl": f"{HERE}/api/plans/{run.pk}"}
    assert answer.json() == {"plan": run.pk, "run": run.pk, "state": "queued", **urls}


def test_an_empty_body_uses_the_effective_settings_and_a_second_run_is_a_conflict(script, address):
    assert script.post(address, b"", content_type=JSON).status_code == 202
    assert Run.objects.get().requested_parameters == {}
    assert failure(ask(script, address)) == (409, "run_in_flight")


def test_a_form_body_is_accepted(script, address):
    form = {"compression_ratio": "0.25", "preserve_recent": "4", "query": "", "branch": "e5"}
    assert script.post(address, form).status_code == 202
    run = Run.objects.get()
    assert run.requested_parameters == {"compression_ratio": 0.25, "preserve_recent": 4}
    assert run.leaf_id == "e5"


BODIES = [
    b"{", b"[]", b"7", b"null", b"\xff", b"[" * 100_000, b'{"compression_ratio": "0.5"}',
    b'{"compression_ratio": true}',
    b'{"compression_ratio": NaN}', b'{"compression_ratio": 1e999}', b'{"preserve_recent": 1.5}',
    b'{"preserve_recent": 99999999999999999999}', b'{"query": 7}', b'{"query": "\\ud800"}', b'{"branch": "a\\u0000"}',
    b'{"branch": "e5", "leaf": "e5"}',
    b'{"planner": null}', b'{"ratio": 0.5}', b'{"commit": true}', json.dumps({"query": "x" * 4_001}).encode(),
]  # fmt: skip


def test_an_invalid_body_starts_nothing(script, address, settings):
    for body in BODIES:
        assert failure(script.post(address, body, content_type=JSON)) == (400, "bad_body"), body[:40]
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    assert failure(ask(script, address, query="x" * 200)) == (400, "bad_request")
    assert not Run.objects.exists()


def test_a_value_out_of_range_or_unknown_and_a_session_that_needs_migration_start_nothing(script, address, known_root):
    refused: list[tuple[dict[str, Any], str]] = [
        ({"compression_ratio": 1}, "bad_ratio"), ({"compression_ratio": 0}, "bad_ratio"),
        ({"preserve_recent": -1}, "bad_preserve_recent"), ({"planner": "nobody/nothing"}, "unknown_planner"),
        ({"planner": ""}, "unknown_planner"), ({"save_as": "nobody"}, "unknown_writer"),
        ({"thinking": "high"}, "bad_thinking"), ({"branch": "nowhere"}, "unknown_entry"),
    ]  # fmt: skip
    for wanted, code in refused:
        assert failure(ask(script, address, **wanted)) == (400, code), wanted
    assert not Run.objects.exists()
    old = b'{"type":"session"}\n{"type":"message","message":{"role":"user","content":"x"}}\n'
    session = index_file(place(known_root / "old.jsonl", old))
    assert failure(ask(script, f"/api/sessions/{session.root_id}/old.jsonl/compact")) == (400, "needs_migration")


@pytest.mark.parametrize(("wanted", "level"), [({}, "low"), ({"thinking": "off"}, ""), ({"thinking": "high"}, "high")])
def test_the_named_model_plans_and_thinks_as_the_session_does_unless_told(script, address, session, wanted, level):
    change = {"type": "thinking_level_change", "id": "level", "parentId": session.leaf_id, "thinkingLevel": "medium"}
    append_as_agent(session.path, session_bytes([change]))
    index_file(session.path)
    Provider.objects.create(name="here", dialect="openai", base_url="http://127.0.0.1:9/v1")
    PlannerModel.objects.create(
        provider="here", name="small", window=32_000, output_limit=4_000, thinking_levels=["low", "high"]
    )
    assert ask(script, address, planner="here/small", **wanted).status_code == 202
    run = Run.objects.get()
    assert (run.planner, run.thinking) == ("here/small", level)


def test_a_run_is_reported_from_start_to_plan(script, address, session):
    started = ask(script, address, compression_ratio=0.5).json()
    answered = script.get(started["stateUrl"]).json()
    assert {"state": "queued", "active": True, "percent": 0.0, "target": 50.0}.items() <= answered.items()
    parameters = {"compression_ratio": 0.5, "preserve_recent": 2}
    assert answered["parameters"] == {**parameters, "query": None}
    sources = {"compression_ratio": "this plan", "preserve_recent": "default", "query": "default"}
    assert answered["sources"] == sources
    assert (answered["reviewUrl"], answered["confirmUrl"], answered["stats"]) == (None, None, None)
    before = snapshot(Path(session.root.path))
    work(started["plan"], worker_name())
    answered = script.get(started["stateUrl"]).json()
    planned = {"state": "target_met", "active": False, "targetMet": True, "failure": "", "usage": None}
    assert planned.items() <= answered.items()
    assert (answered["parameters"], answered["sources"]) == ({**parameters, "query": "Now the tests."}, sources)
    assert answered["percent"] == answered["stats"]["percentReduction"] >= 50
    assert answered["calls"] > 0
    assert answered["reviewUrl"] == f"{pages()}/plans/{started['plan']}"
    assert answered["confirmUrl"] == f"{pages()}/plans/{started['plan']}/confirm"
    assert answered["stopUrl"] is None
    assert answered["startedAt"] < answered["endedAt"]
    assert snapshot(Path(session.root.path)) == before, "a script can plan, and nothing more"


def test_earlier_names_are_accepted_and_answered(script, address, session):
    run = Run.objects.get(pk=ask(script, address, writer="fork", leaf="e5").json()["run"])
    assert (run.writer, run.leaf_id) == ("fork", "e5")
    answered = script.get(f"/api/runs/{run.pk}").json()
    assert answered == script.get(f"/api/plans/{run.pk}").json()
    for earlier, now in {
        "run": "plan", "struck": "deleted", "byItself": "automatic", "commitUrl": "confirmUrl"
    }.items():  # fmt: skip
        assert answered[earlier] == answered[now], earlier
    assert script.post(f"/api/runs/{run.pk}/stop").status_code == 202
    (listed,) = script.get("/api/sessions").json()["sessions"]
    assert (listed["due"], listed["dueReason"]) == (listed["almostFull"], listed["almostFullReason"])


def test_a_run_is_stopped(script, address):
    number = ask(script, address).json()["plan"]
    answer = script.post(f"/api/plans/{number}/stop")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert Run.objects.get().state == RunState.CANCELLED
    assert failure(script.post(f"/api/plans/{number}/stop")) == (409, "wrong_state")


def test_an_unknown_address_is_404_and_a_wrong_method_405_in_json(script, session, address):
    for unknown in ("plans/999", "plans/99999999999999999999", "plans/x", "runs/999", "", "sessions/1/x.jsonl"):
        assert failure(script.get(f"/api/{unknown}")) == (404, "not_found"), unknown
    for unknown in ("999/work.jsonl", "1/../../work.jsonl", "1/nothing.jsonl"):
        assert failure(script.post(f"/api/sessions/{unknown}/compact")) == (404, "not_found"), unknown
    answer = script.get(address)
    assert (*failure(answer), answer["Allow"]) == (405, "bad_method", "POST")
    number = ask(script, address).json()["plan"]
    assert script.post(f"/api/plans/{number}")["Allow"] == "GET, HEAD"


def test_a_wrong_token_is_refused_even_with_the_cookie(browser, address, redline):
    token = api_token(redline.data)
    wrong = ("", "Bearer", "Bearer ", "Bearer x", "Bearer ü", "Bearer " + "a" * 5_000)
    spoiled = (f"Basic {token}", f"Bearer {token}x", f"Bearer {token} x", token)
    for client, given in itertools.product((new_client(), browser), (*wrong, *spoiled)):
        answer = client.post(address, b"{}", content_type=JSON, headers={"authorization": given})
        assert failure(answer) == (401, "unauthorized"), given
        assert answer["WWW-Authenticate"] == "Bearer"
        assert token not in answer.content.decode()
    assert not Run.objects.exists()


def test_without_a_token_the_error_says_how_to_get_one_and_each_is_refused_before(address, client, known_root, redline):
    answer = client.post(address)
    assert failure(answer) == (401, "unauthorized")
    assert "redline token" in answer.json()["error"]["message"]
    assert client.get("/api/sessions").status_code == 401
    for given in ("Bearer ", "Bearer x"):
        assert client.post(address, headers={"authorization": given}).status_code == 401
    (redline.data / API_TOKEN_FILE).write_text("")
    assert client.post(address, headers={"authorization": "Bearer "}).status_code == 401


def test_the_token_opens_no_page(script, session):
    for page in ("/", "/inbox", "/settings", "/settings/models", f"/sessions/{session.root_id}/x", "/ws/sessions"):
        assert script.get(page).status_code == 403, page
        assert script.post(page).status_code == 403, page


def test_with_the_cookie_alone_a_form_token_is_needed(address, redline):
    known = authorized_client(enforce_csrf_checks=True)
    assert failure(ask(known, address)) == (403, "not_sent_from_here")
    assert not Run.objects.exists()
    known.get("/import")
    token = known.cookies["csrftoken"].value
    answer = known.post(address, b"{}", content_type=JSON, headers={"x-csrftoken": token})
    assert answer.status_code == 202
    answer = known.get(answer.json()["stateUrl"])
    assert answer.status_code == 200


def test_the_token_is_private_and_lasts_until_replaced(redline):
    first = redline.call("token").out.strip()
    path = redline.data / API_TOKEN_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert redline.call("token", "--json").json == {"token": first}
    assert [one.name for one in redline.data.glob(".api_token*")] == []
    renewed = redline.call("token", "--new").out.strip()
    assert renewed != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_api_token(redline.data, renewed)
    assert not is_api_token(redline.data, first)


@pytest.fixture
def server(shared_server):
    with place_in(shared_server, "a b") as mine:
        mine.put("wörk.jsonl", titled_session("scripted"))
        yield mine


def test_a_script_plans_a_session_on_a_running_server(server):
    page = server.session(title("scripted"))
    token = api_token(server.data)

    def call(address: str, body: bytes | None = None, brings: str = token) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {brings}", "Content-Type": JSON}
        url = address if address.startswith("http") else server.plain + address
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read())

    status, started = call(f"/api{page}/compact", b'{"compression_ratio": 0.3}')
    assert (status, started["url"]) == (202, f"{server.base}/plans/{started['plan']}")
    answered = server.wait_for(lambda: not (found := call(started["stateUrl"])[1])["active"] and found)
    assert (answered["state"], answered["target"]) == ("target_met", 70.0)
    assert title("scripted") in text_of(server.get(answered["reviewUrl"].removeprefix(server.base)))
    assert (call(f"/api{page}/compact", b"{}", brings="another")[0], call("/api/nowhere")[0]) == (401, 404)
    status, listed = call("/api/sessions?q=scripted")
    assert status == 200
    assert page in [one["url"] for one in listed["sessions"]]
    for kept in (server.data / "logs").iterdir():
        assert token not in kept.read_text(errors="replace")


def test_an_internal_error_is_500_in_json(script, address, monkeypatch):
    script.raise_request_exception = False
    monkeypatch.setattr("compaction_app.api.views.known_session", Mock(side_effect=ZeroDivisionError))
    assert failure(script.post(address)) == (500, "redline_failed")
