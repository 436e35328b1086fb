"""What the list shows of what Redline did, and the preview beside it."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.core.states import RunState
from compaction_app.models import Handshake, Run
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from tests.factories import chain, session_bytes, user, working_session
from tests.files import backdate, place
from tests.html import HOSTILE_TEXTS, assert_inert, element, elements, link, text_of, texts
from tests.runs import approve_proposals, commit_approved, plan_session


@pytest.fixture
def work(known_root):
    path = place(known_root / "work.jsonl", session_bytes(working_session()))
    backdate(path)
    return index_file(path)


def marks(browser: Client, session: Session) -> list[str]:
    return texts(element(browser.get("/"), f"#session-{session.pk}"), ".mark")


def test_a_plan_waits_with_its_number_until_it_is_confirmed(browser, work):
    run = plan_session(work)
    waits = f"plan ready −{run.struck // 100 * 100:,}"[:14]
    (mark,) = marks(browser, work)
    assert mark.startswith(waits)
    assert link(browser.get("/"), mark) == run.get_absolute_url()
    assert "Needs you 1" in texts(browser.get("/"), ".tabs a")
    assert texts(browser.get("/?show=needs"), "a.name") == [work.heading]
    commit_approved(approve_proposals(run), "context-compaction")
    assert "Needs you 0" in texts(browser.get("/"), ".tabs a")
    (mark,) = marks(browser, work)
    assert mark.startswith("compacted −")
    assert link(browser.get("/"), mark) == f"/plans/{run.pk}/result"


def test_a_new_session_is_marked_with_what_it_lacks_and_its_origin(browser, work):
    run = plan_session(work)
    commit_approved(approve_proposals(run), "fork")
    index_roots()
    made = Session.objects.exclude(made_from="").get()
    compacted, origin = marks(browser, made)
    assert compacted.startswith("compacted −")
    assert origin == f"fork of {work.heading}"
    assert marks(browser, work) == []


def test_a_plan_that_failed_needs_you_and_leads_to_its_log(browser, work):
    run = plan_session(work)
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED, failure="No.")
    (mark,) = marks(browser, work)
    assert mark == "plan failed"
    assert "Needs you 1" in texts(browser.get("/"), ".tabs a")


def test_an_agent_that_waits_comes_first(browser, work):
    plan_session(work)
    now = timezone.now()
    times = {"asked_at": now, "ends_at": now + timedelta(minutes=5), "polled_at": now}
    Handshake.objects.create(session=work, connection="c", agent="pi", reason="threshold", honours="plan", **times)
    first, *_ = marks(browser, work)
    assert first.startswith("agent waits")
    assert "1 agent waits" in text_of(element(browser.get("/"), ".day"))


def test_the_preview_shows_the_context_the_last_message_and_what_waits(browser, work):
    run = plan_session(work)
    answer = browser.get(f"{work.get_absolute_url()}/preview", headers={"HX-Request": "true"})
    assert text_of(element(answer, "h2")) == work.heading
    assert len(elements(answer, "svg.map path")) > 0
    assert link(answer, texts(answer, ".mark")[0]) == run.get_absolute_url()
    assert Run.objects.get(pk=run.pk).reviewed_at is None
    assert browser.get(f"{work.get_absolute_url()}/preview")["Location"] == work.get_absolute_url()


def test_a_preview_shows_hostile_texts_as_text(browser, known_root):
    for number, hostile in enumerate(HOSTILE_TEXTS):
        session = index_file(place(known_root / f"{number}.jsonl", session_bytes(chain(user(hostile)))))
        answer = browser.get(f"{session.get_absolute_url()}/preview", headers={"HX-Request": "true"})
        assert_inert(answer)


def test_the_preview_of_a_session_that_cannot_be_read_says_why(browser, known_root):
    session = index_file(place(known_root / "e.jsonl", session_bytes(chain(user("one")))))
    session.path.unlink()
    answer = browser.get(f"{session.get_absolute_url()}/preview", headers={"HX-Request": "true"})
    assert (answer.status_code, len(elements(answer, ".fault"))) == (200, 1)
