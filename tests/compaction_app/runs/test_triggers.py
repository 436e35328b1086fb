"""Promises of automatic planning: a session that is due is planned, once, and never committed."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from websockets.sync.client import ClientConnection

from compaction_app.core.handshake_states import HandshakeState
from compaction_app.core.states import RunState
from compaction_app.hooks import Cancel, session_before_compact
from compaction_app.models import Agreement, Backup, Compaction, Handshake, PlannerModel, Provider, Run
from compaction_app.providers.addresses import origin_of
from compaction_app.runs.automatic import AT_ONCE, FRESH, REST, automatic_planner, plan_due, skipped_because
from compaction_app.runs.commands import start_run, stop_run
from compaction_app.runs.unseen_proposals import dismiss, mark_seen, new_proposals
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.index.context_window_lookup import ContextWindowLookup, refresh_windows
from sessions_app.index.index_store import remember_own_write
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.pages.list import ListFilters, browse
from sessions_app.sessionlog.context import significant
from tests.browser.scenarios import newest_run
from tests.clients import page
from tests.compaction_app.runs.test_run_socket import arrived
from tests.factories import assistant, chain, session_bytes, text, user, working_session
from tests.files import append_as_agent, backdate, place, snapshot
from tests.html import Source, addresses, element, elements, link, text_of, texts
from tests.installation import override_configuration
from tests.runs import approve_proposals, finish_run
from tests.scripted_models import add_scripted
from tests.server import start_server
from tests.wait import WAIT_SECONDS

MODEL = {"provider": "p", "model": "small-model"}
WINDOW = 50_000
FULL = {"input": 48_000, "output": 10, "totalTokens": 48_010}
TOO_LONG = {"stopReason": "error", "errorMessage": "prompt is too long: 51000 tokens > 50000 maximum"}
HOSTILE = "Mend \u202e<b>the</b>\x1b[2J parser."


@pytest.fixture(autouse=True)
def small_window(known_root):
    with override_configuration(windows={"small-model": WINDOW}, plan_by_itself=True):
        yield


def said(entry_id: str, parent_id: Any, message: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": entry_id, "parentId": parent_id, "timestamp": "t", "message": message}


def recorded(*messages: dict[str, Any], title: str = "Mend the parser.", cwd: str = "/nowhere") -> list[Any]:
    """A session worth compacting, and what an agent wrote after it."""
    found = working_session()
    found[0] = {**found[0], "cwd": cwd}
    found[1]["message"]["content"] = title
    for number, message in enumerate(messages, 1):
        found.append(said(f"said{number}", found[-1]["id"], message))
    return found


def full(**more: Any) -> dict[str, Any]:
    return assistant(text("Done."), **MODEL, usage=FULL, **more)


def put(root: Path, *messages: dict[str, Any], name: str = "work", hours: float = 1, **more: Any) -> Session:
    path = place(root / f"{name}.jsonl", session_bytes(recorded(*messages, **more)))
    return index_file(backdate(path, hours=hours))


def write_on(session: Session, number: int, message: dict[str, Any]) -> Session:
    """An agent continued the session, some time ago."""
    path = session.real_path()
    append_as_agent(path, session_bytes([said(f"later{number}", session.leaf_id, message)]))
    return index_file(backdate(path, hours=0.5))


def look(after: timedelta = timedelta()) -> list[int]:
    return plan_due(timezone.now() + after, Path.home()).started


def begun(after: timedelta = timedelta()) -> Run:
    """The one run that a check starts."""
    [number] = look(after)
    return Run.objects.get(pk=number)


def planned(after: timedelta = timedelta()) -> Run:
    """The same, worked on to its end."""
    return finish_run(begun(after))


def plan_by_hand(session: Session) -> Run:
    return finish_run(start_run(session, planner="embedded", requested_parameters={}))


def fail(run: int, now: datetime | None = None) -> None:
    assert Run.change(run, RunState.FAILED, failure="for no reason", ended_at=now or timezone.now())


def why_left(session: Session) -> str:
    return skipped_because(session, timezone.now(), Path.home())


def test_a_session_is_due_past_its_threshold_or_with_any_window_after_an_overflow(known_root):
    assert put(known_root, full()).due == "threshold"
    assert put(known_root, assistant(text("x"), **MODEL, usage={"totalTokens": 30_000})).due == ""
    unknown = {"provider": "p", "model": "nobody-knows-it"}
    session = put(known_root, assistant(**unknown, **TOO_LONG))
    assert (session.due, session.window) == ("overflow", None)
    assert put(known_root, assistant(**unknown, **TOO_LONG), assistant(text("x"), **unknown)).due == ""


def test_a_session_that_its_agent_does_not_compact_automatically_is_never_due(known_root, tmp_path, browser):
    project = tmp_path / "project"
    settings = place(project / ".atomic" / "settings.json", b'{"compaction": {"enabled": false}}')
    for message, shown in ((full(), ""), (assistant(**MODEL, **TOO_LONG), "overflow")):
        session = put(known_root, message, cwd=str(project))
        assert (session.due, session.due_at, session.due_percent) == ("", None, None)
        assert not Session.objects.due().exists()
        # That the model refused the context is still said.
        assert text_of(page(browser, "/")).count("context too long") == bool(shown)
        assert "does not compact automatically" in text_of(page(browser, session.get_absolute_url()))
    settings.write_bytes(b'{"compaction": {"enabled": true}}')
    refresh_windows(ContextWindowLookup())
    assert [one.due for one in Session.objects.due()] == ["overflow"]
    session.refresh_from_db()
    assert f"compacts at {session.due_at:,}" in text_of(page(browser, session.get_absolute_url()))


def test_a_session_of_pi_is_not_due_while_pi_would_keep_all_of_it(redline):
    settings = place(redline.home / ".pi" / "agent" / "settings.json", b"{}")
    path = redline.home / ".pi" / "agent" / "sessions" / "s.jsonl"
    place(path, session_bytes(chain(user("x"), full(), user("y" * 400), assistant(**MODEL, **TOO_LONG))))
    assert index_file(path).due == ""
    settings.write_text('{"compaction": {"keepRecentTokens": 100}}')
    assert index_file(path).due == "overflow"
    settings.write_text('{"compaction": {"keepRecentTokens": 500}}')
    assert index_file(path).due == ""


def test_an_overflow_is_kept_while_a_file_grows(known_root):
    session = put(known_root, full())
    session = write_on(session, 1, assistant(**MODEL, **TOO_LONG))
    assert session.due == "overflow"
    session = write_on(session, 2, user("Go on."))
    assert session.due == "overflow"
    session = write_on(session, 3, assistant(text("x"), **MODEL, usage={"totalTokens": 9_000}))
    assert session.due == ""


def test_the_list_says_why_a_session_is_due(known_root, browser):
    unknown = assistant(provider="p", model="nobody-knows-it", **TOO_LONG)
    put(known_root, full(), name="full", title="the full one")
    put(known_root, unknown, name="over", title="the overflown one")
    put(known_root, name="fine", title="the fine one")
    listing = browse(ListFilters(show="due"), timezone.now())
    due = {row.session.title: row.session.due for group in listing["groups"] for row in group.rows}
    assert due == {"the full one": "threshold", "the overflown one": "overflow"}
    assert Session.objects.get(title="the overflown one").as_json()["dueReason"] == "overflow"
    (row,) = [row for row in elements(browser.get("/?show=due"), "tr") if "the overflown one" in text_of(row)]
    assert "context too long" in texts(row, ".mark--strong")
    assert "window unknown" in text_of(row)


@pytest.mark.parametrize(("message", "reason"), [(full(), "threshold"), (assistant(**MODEL, **TOO_LONG), "overflow")])
def test_a_session_that_is_due_is_planned_and_nothing_is_written(known_root, message, reason):
    session = put(known_root, message)
    before = snapshot(known_root)
    run = planned()
    assert (run.session_id, run.reason, run.automatic, run.planner) == (session.pk, reason, True, "embedded")
    assert (run.state, snapshot(known_root)) == (RunState.TARGET_MET, before)
    assert list(Run.objects.unseen()) == [run]


def test_what_is_not_due_abandoned_missing_or_unreadable_is_left(known_root):
    put(known_root)
    assert look() == []
    session = put(known_root, full(), hours=1 + FRESH.total_seconds() / 3600)
    assert look() == []
    session = put(known_root, full())
    for change in ({"missing": True}, {"missing": False, "fault": "it cannot be read"}):
        Session.objects.filter(pk=session.pk).update(**change)
        assert look() == [], change
    Session.objects.filter(pk=session.pk).update(fault="")
    assert len(look()) == 1


@pytest.mark.parametrize("name", [".atomic/settings.json", ".pi/settings.json"])
def test_what_the_project_switched_off_is_left_but_not_for_a_human(known_root, tmp_path, name):
    path = place(tmp_path / "project" / name, b'{"compaction": {"enabled": false}}')
    session = put(known_root, full(), cwd=str(tmp_path / "project"))
    assert look() == []
    assert str(path) in why_left(session)
    assert session.due == ""
    run = plan_by_hand(session)
    assert (run.reason, run.automatic) == ("manual", False)


def test_what_the_user_switched_off_a_project_can_switch_on(known_root, redline, tmp_path):
    place(redline.home / ".atomic" / "agent" / "settings.json", b'{"compaction": {"enabled": false}}')
    place(tmp_path / "p" / ".atomic" / "settings.json", b'{"compaction": {"enabled": true}}')
    off = put(known_root, full(), name="off")
    put(known_root, full(), name="on", cwd=str(tmp_path / "p"))
    assert [Run.objects.get(pk=one).session.relative_path for one in look()] == ["on.jsonl"]
    assert "disables automatic compaction" in why_left(off)


def test_what_could_not_or_may_not_be_written_to_is_left(known_root, monkeypatch):
    old = session_bytes(recorded(full())).replace(b'"version": 3', b'"version": 2', 1)
    assert "version 2" in why_left(index_file(place(known_root / "old.jsonl", old)))
    assert look() == []
    session = put(known_root, full())
    monkeypatch.setattr(os, "access", lambda path, _: path != session.path)
    assert "is not writable" in why_left(session)
    assert look() == []


def test_what_redline_itself_wrote_is_skipped_until_an_agent_continues(known_root):
    session = put(known_root, full())
    remember_own_write(known_root / "work.jsonl", session.size)
    assert look() == []
    write_on(session, 1, full())
    assert len(look()) == 1


def test_a_session_is_not_planned_twice_while_its_proposal_waits(known_root):
    session = put(known_root, full())
    run = begun()
    assert look() == [], "its run is under way"
    finish_run(run)
    write_on(session, 1, full())
    assert look(after=2 * REST) == [], "its proposal waits"
    mark_seen(run)
    assert look() == [], "somebody is looking at it"
    assert len(look(after=2 * REST)) == 1


def test_a_session_is_not_planned_automatically_during_a_run_nor_as_it_was(known_root):
    run = start_run(put(known_root, full()), planner="embedded", requested_parameters={})
    assert look() == []
    finish_run(run)
    mark_seen(run)
    assert look(after=2 * REST) == [], "it was planned as it is"


def test_a_failure_rests_before_it_is_tried_again(known_root):
    session = put(known_root, full())
    fail(begun().pk)
    assert look(after=2 * REST) == [], "the session is as it was then"
    assert not Run.objects.unseen().exists()
    session = write_on(session, 1, full())
    path = known_root / session.relative_path
    os.utime(path)
    index_file(path)
    assert look() == [], "it failed just now"
    assert len(look(after=2 * REST)) == 1


def continue_session(session: Session, number: int) -> Session:
    """An agent continues the session, after everything that was done to it so far."""
    write_on(session, number, full())
    # The clock of the file system lags a little behind ours.
    then = time.time() + 1
    os.utime(session.real_path(), (then, then))
    return index_file(session.real_path())


def test_the_rest_after_failures_doubles_up_to_a_day(known_root):
    session = put(known_root, full())
    now, rests = timezone.now(), [1, 2, 4, 8, 16, 32, 64, 128, 144, 144]
    far = now + timedelta(days=9)
    for number, tens in enumerate(rests, 1):
        session = continue_session(session, number)
        Session.objects.update(mtime_ns=int(far.timestamp() * 1e9), last_used=far)
        [run] = plan_due(now, Path.home()).started
        fail(run, now)
        session = continue_session(session, 100 + number)
        Session.objects.update(mtime_ns=int(far.timestamp() * 1e9), last_used=far)
        rest = timedelta(minutes=10 * tens)
        assert plan_due(now + rest - timedelta(seconds=1), Path.home()).started == [], number
        now += rest
    last = Session.objects.get()
    assert skipped_because(last, now - timedelta(hours=3), Path.home()) == (
        "planning it failed 10 times in a row; the next attempt is in 3 hours, if an agent continues it"
    )


def test_a_run_started_by_hand_ends_the_series_of_failures(known_root):
    session = put(known_root, full())
    for number in range(3):
        fail(begun(after=number * 10 * REST).pk)
        session = continue_session(session, number)
    assert look(after=2 * REST) == []
    plan_by_hand(session)
    continue_session(session, 9)
    assert len(look()) == 1


def stopped() -> None:
    stop_run(begun())


def cancelled() -> None:
    session_before_compact.connect(cancel := lambda **_: Cancel("not on a Friday"))
    run = planned()
    session_before_compact.disconnect(cancel)
    assert (run.state, "not on a Friday" in run.failure) == (RunState.FAILED, True)


@pytest.mark.parametrize(
    ("end", "why"), [(stopped, "automatic planning was stopped"), (cancelled, "a hook cancelled automatic planning")]
)
def test_a_session_whose_run_was_ended_is_skipped_until_a_run_is_started_by_hand(known_root, end, why):
    session = put(known_root, full())
    end()
    session = continue_session(session, 1)
    assert (look(), look(after=100 * REST)) == ([], [])
    assert why in why_left(session)
    assert not Run.objects.unseen().exists()
    plan_by_hand(session)
    continue_session(session, 2)
    assert len(look()) == 1


def test_what_was_stopped_is_begun_again_after_a_compaction(known_root):
    session = put(known_root, full())
    stop_run(begun())
    session = continue_session(session, 1)
    assert look(after=2 * REST) == []
    backup = Backup.objects.create(
        session=session, path="b", sha256="0", size=1, taken_at=timezone.now(), reason=Backup.Reason.COMPACT
    )
    Compaction.objects.create(
        session=session, backup=backup, entry_id="e", leaf_id="e", planner="embedded",
        written_at=timezone.now(), parameters={}, stats={}, origins={},
    )  # fmt: skip
    assert len(look()) == 1


def test_a_proposal_of_an_older_state_says_so(known_root, browser):
    session = put(known_root, full())
    planned()
    assert "older plan ready" not in text_of(browser.get("/"))
    assert "it has continued since" not in text_of(browser.get("/inbox"))
    continue_session(session, 1)
    assert "older plan ready" in text_of(browser.get("/"))
    assert "it has continued since its proposal was planned" in text_of(browser.get("/inbox"))


def test_at_most_two_run_at_once(known_root):
    for number in range(AT_ONCE + 2):
        put(known_root, full(), name=f"work{number}", hours=1 + number)
    looked = plan_due(timezone.now(), Path.home())
    assert len(looked.started) == AT_ONCE
    assert looked.postponed
    names = [Run.objects.get(pk=number).session.relative_path for number in looked.started]
    assert names == ["work0.jsonl", "work1.jsonl"], "those last written to first"
    assert look() == []
    finish_run(Run.objects.get(pk=looked.started[0]))
    assert len(look()) == 1


@pytest.fixture
def model(known_root):
    Provider.objects.create(name="here", dialect="openai", base_url="http://127.0.0.1:9/v1")
    return PlannerModel.objects.create(
        provider="here", name="small-model", window=32_000, output_limit=4_000, thinking_levels=["low", "high"]
    )


def agree() -> None:
    Agreement.objects.create(provider="here", origin="http://127.0.0.1:9", agreed_at=timezone.now())


@pytest.mark.parametrize("asked", ["here/small-model", "session"])
def test_a_model_plans_automatically_only_with_permission(known_root, model, asked):
    session = put(known_root, full())
    with override_configuration(plan_by_itself_with=asked):
        chosen = automatic_planner(session)
        assert chosen.planner == "embedded"
        assert "You have not allowed automatic planning with here/small-model" in chosen.note
        agree()
        assert automatic_planner(session).planner == "here/small-model"


def test_nothing_is_sent_to_a_model_without_permission(known_root):
    own = {"provider": "scripted", "model": "good-plan"}
    level = {"type": "thinking_level_change", "id": "level", "parentId": "e27", "timestamp": "t"}
    last = said("last", "level", assistant(text("Done."), **own, usage=FULL))
    path = place(known_root / "work.jsonl", session_bytes([*recorded(), {**level, "thinkingLevel": "high"}, last]))
    with (
        ScriptedProvider() as provider,
        override_configuration(plan_by_itself_with="session", windows={"good-plan": WINDOW}),
    ):
        add_scripted(provider, "good-plan", thinking_levels=["low", "medium"])
        session = index_file(path)
        run = planned()
        assert (run.planner, run.state, provider.requests) == ("embedded", RunState.TARGET_MET, [])
        assert "You have not allowed automatic planning" in run.planner_note
        mark_seen(run)
        origin = origin_of(provider.base_url("openai"))
        Agreement.objects.create(provider="scripted", origin=origin, agreed_at=timezone.now())
        write_on(session, 1, assistant(text("More."), **own, usage=FULL))
        run = planned(after=2 * REST)
        assert (run.planner, run.thinking, run.planner_note) == ("scripted/good-plan", "medium", "")
        assert (run.state, run.automatic) == (RunState.TARGET_MET, True)
        assert provider.requests
    assert list(Run.objects.unseen()) == [run]


@pytest.mark.parametrize(
    ("moved", "field"), [(Agreement, "origin"), (PlannerModel, "base_url")], ids=["agreed", "used"]
)
def test_a_permission_for_another_host_does_not_count(known_root, model, moved, field):
    agree()
    moved.objects.update(**{field: "http://127.0.0.1:10"})
    with override_configuration(plan_by_itself_with="here/small-model"):
        assert automatic_planner(put(known_root, full())).planner == "embedded"


def test_the_page_of_runs_names_the_planner_in_force_first(known_root, model, browser):
    with override_configuration(plan_by_itself_with="here/small-model"):
        page = text_of(browser.get("/inbox"))
        assert "are planned with the embedded planner. Their plans wait here." in page
        assert "planned with here/small-model" not in page
        message = page[page.index("here/small-model is configured for this, but not used yet.") :]
        assert "You have not allowed automatic planning" in message
        assert "The Models page has that setting." in message, message[:400]
        assert link(browser.get("/inbox"), "Models page") == "/settings/models"
        agree()
        page = text_of(browser.get("/inbox"))
        assert "are planned with here/small-model. Their plans wait here." in page
        assert "not used yet" not in page


def test_the_run_says_why_another_planner_was_used(known_root, browser):
    put(known_root, full())
    with override_configuration(plan_by_itself_with="nobody/nothing"):
        run = begun()
        assert run.planner == "embedded"
        for words in (run.planner_note, *(text_of(browser.get(page)) for page in (f"/plans/{run.pk}/log", "/inbox"))):
            assert "There is no planner nobody/nothing" in words


def badge(browser: Client, address: str = "/settings") -> int:
    """The number of waiting proposals in the head of a page."""
    return shown_badge(browser.get(address))


def shown_badge(page: Source) -> int:
    found = element(page, "#waiting")
    return 0 if "hidden" in found.attributes else int(text_of(found).split()[0])


def test_plans_that_are_ready_are_counted_and_linked_until_they_are_dismissed(known_root, browser):
    put(known_root, full())
    put(known_root, name="other")
    assert badge(browser) == 0
    run = planned()
    for address in ("/", "/inbox", f"/plans/{run.pk}/log", "/settings", "/nowhere"):
        assert badge(browser, address) == 1, address
    assert re.search(r"<title>\(1\)\s+Inbox", browser.get("/inbox").content.decode())
    address = link(browser.get("/"), plan_mark(run))
    assert (address, browser.get(address).status_code, badge(browser)) == (f"/plans/{run.pk}", 200, 1)
    assert browser.post(f"/plans/{run.pk}/dismiss").status_code == 303
    assert badge(browser) == 0
    assert "plan ready" not in text_of(browser.get("/"))
    assert "dismissed" in text_of(element(browser.get("/inbox?show=done"), ".inbox__row"))
    assert browser.get(address).status_code == 200, "it can still be reviewed"


def plan_mark(run: Run) -> str:
    """The mark of a session with a plan that is ready."""
    run.refresh_from_db()
    return f"plan ready −{significant(run.struck):,}"


def test_a_failed_plan_waits_with_its_cause_until_it_is_dismissed(known_root, browser):
    put(known_root, full())
    run = planned()
    Run.objects.filter(pk=run.pk).update(state="failed", failure=f"{HOSTILE} refused the connection.")
    assert badge(browser) == 1
    assert link(browser.get("/"), "plan failed") == f"/plans/{run.pk}/log"
    page = browser.get("/inbox")
    assert "refused the connection." in text_of(element(page, ".inbox__row"))
    assert not elements(page, "img")
    assert text_of(element(page, ".list-head .facts")) == "1 failed"
    browser.post(f"/plans/{run.pk}/dismiss")
    assert badge(browser) == 0
    assert "Nothing needs you." in text_of(browser.get("/inbox"))


def test_a_plan_that_was_begun_says_how_far_it_is_and_is_continued(known_root, browser):
    run = plan_by_hand(put(known_root))
    approve_proposals(run, first=1)
    row = element(browser.get("/inbox"), ".inbox__row")
    assert re.search(r"you began: 1 approved, \d+ undecided", text_of(row))
    assert link(row, "Continue") == f"/plans/{run.pk}"


def test_a_plan_that_somebody_started_and_left_waits_in_the_header_the_list_and_its_session(known_root, browser):
    session = put(known_root)
    left = plan_by_hand(session)
    assert badge(browser) == 1
    assert link(browser.get("/"), plan_mark(left)) == f"/plans/{left.pk}"
    assert "you started it, none opened" in text_of(element(browser.get("/inbox"), ".inbox__row"))
    assert link(browser.get(session.get_absolute_url()), plan_mark(left)) == f"/plans/{left.pk}"
    again = plan_by_hand(session)
    assert (badge(browser), link(browser.get("/"), plan_mark(again))) == (1, f"/plans/{again.pk}")
    browser.get(f"/plans/{again.pk}")
    assert badge(browser) == 1, "a later plan takes the place of an earlier one, opened or not"
    unfinished = browser.get(session.get_absolute_url())
    assert f"You began to review plan {again.pk}." in text_of(unfinished)
    assert link(unfinished, "Continue") == f"/plans/{again.pk}"
    Run.change(again.pk, RunState.SUPERSEDED)
    assert "You began to review" not in text_of(browser.get(session.get_absolute_url()))
    assert badge(browser) == 0


def test_the_plan_of_an_agent_that_asked_is_announced_by_its_question_alone(known_root, browser):
    run = plan_by_hand(put(known_root))
    times = dict.fromkeys(("asked_at", "ends_at", "polled_at"), timezone.now())
    Handshake.objects.create(run=run, session=run.session, agent="pi", state=HandshakeState.DECLINED, **times)
    assert badge(browser) == 0
    assert "ready for your review" not in text_of(browser.get(run.session.get_absolute_url()))


def test_the_inbox_shows_the_configuration_and_skipped_sessions(known_root, redline, browser):
    put(known_root, full(), title=HOSTILE)
    place(redline.home / ".atomic" / "agent" / "settings.json", b'{"compaction": {"enabled": false}}')
    answer = browser.get("/inbox")
    page = text_of(answer)
    assert "Automatic planning is on Sessions that are almost full are planned with the embedded planner." in page
    assert "disables automatic compaction" in page
    assert "\u202e" not in page
    assert "the" not in texts(answer, "b")
    with override_configuration(plan_by_itself=False):
        page = text_of(browser.get("/inbox"))
    assert "Automatic planning is off" in page
    assert "disables automatic compaction" not in page


def test_a_proposal_is_announced_once_and_earlier_ones_are_not(known_root):
    put(known_root, full(), title=HOSTILE)
    known, facts = new_proposals(set())
    assert (known, facts) == (set(), [])
    run = planned()
    assert new_proposals(None) == ({run.pk}, [])
    known, [fact] = new_proposals(known)
    tell = fact["page"]["tell"]
    assert (fact["page"]["waiting"], tell["address"]) == (1, f"/plans/{run.pk}")
    assert tell["words"].isprintable()
    assert "<b>the</b>" in tell["words"], "a system shows it as text"
    assert new_proposals(known) == ({run.pk}, [])
    dismiss(run)
    assert new_proposals(known) == (set(), [{"page": {"waiting": 0}}])


def next_message(socket: ClientConnection) -> dict[str, Any]:
    """The first JSON message of the socket."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        message = str(socket.recv(timeout=WAIT_SECONDS))
        if message.startswith("{"):
            return json.loads(message)
    raise AssertionError("nothing was told")


def test_an_agent_that_fills_its_window_finds_a_proposal_of_a_separate_worker_waiting(tmp_path):
    """Configures its server: it plans automatically, and leaves its runs to a worker that is started separately."""
    configured = {"REDLINE_PLAN_BY_ITSELF": "true", "REDLINE_WORK_IN": "worker"}
    path = place(tmp_path / "sessions" / "work.jsonl", session_bytes(recorded()))
    with start_server(tmp_path, **configured, REDLINE_WINDOWS=json.dumps({"small-model": WINDOW})) as server:
        server.session("Mend the parser.")
        assert shown_badge(server.get("/")) == 0
        with server.socket("/ws/sessions") as quiet_page, server.socket("/ws/sessions") as page:
            page.send(json.dumps({"query": "", "asked": 1}))
            append_as_agent(path, session_bytes([recorded(full())[-1]]))
            before = path.read_bytes()
            run = f"/plans/{server.wait_for(lambda: newest_run(server))}/log"
            assert "waiting for a worker" in server.text(run)
            with server.socket(f"/ws{run}") as watched:
                watched.send('{"after": 0}')
                command = [sys.executable, "-m", "redline", "worker"]
                with subprocess.Popen(command, env=server.environment, stdout=subprocess.PIPE) as worker:
                    # Nothing is announced between the two: the socket finds the rows by looking.
                    seen = arrived(watched)
                    worker.terminate()
                    assert worker.wait(timeout=WAIT_SECONDS) == 0
            assert seen == list(range(1, len(seen) + 1))
            for socket in (page, quiet_page):
                message = next_message(socket)
                assert message["waiting"] == 1
                assert "Mend the parser." in message["tell"]["words"]
        page_of_list = server.get("/")
        assert shown_badge(page_of_list) == 1
        assert message["tell"]["address"] in addresses(element(page_of_list, "#listing"))
        assert "made by itself because the session is almost full" in server.text("/inbox")
        with server.socket("/ws/sessions") as socket:
            plan = message["tell"]["address"]
            assert "Mend the parser." in server.text(plan)
            server.post("/inbox", f"{plan}/dismiss")
            assert next_message(socket) == {"waiting": 0}
        assert snapshot(server.root) == {"work.jsonl": before}
