"""Promises of the pages of summaries: what is sent is shown first, nothing typed is lost, and nothing is appended that
was not shown."""

import json
import re
from pathlib import Path

import pytest

from compaction_app.models import PlannerModel, Provider, SummaryDraft
from compaction_app.summaries.drafts import WantedSummary, save_text, start_draft
from sessions_app.models import Session
from sessions_app.sessionlog.text import editable
from tests.clients import page
from tests.compaction_app.hostile import TOGETHER
from tests.factories import assistant, call, chain, image, result, text, turns_of_work, user
from tests.files import place, unchanged
from tests.html import assert_inert, element, elements, field, hidden_fields, link, links, missing, text_of, text_sent
from tests.sessions import add_session

State = SummaryDraft.State
MODEL = "own/m"


@pytest.fixture
def url(idle_root):
    """The address of a session of pi whose beginning can be summarised."""
    found = add_session(idle_root, "a.jsonl", turns_of_work(turns=8))
    Session.objects.update(reader="pi")
    Provider.objects.create(name="own", dialect="openai", base_url="http://127.0.0.1:9/v1")
    PlannerModel.objects.create(provider="own", name="m", window=100_000, output_limit=8_000, price_in=3, price_out=15)
    return found


@pytest.fixture
def draft(url):
    """A draft that the user writes."""
    del url
    found = start_draft(Session.objects.get(), WantedSummary())
    save_text(found, "We look at the cache.")
    return found


def test_the_session_leads_to_its_draft_and_the_request_says_what_is_replaced_and_sent(browser, url):
    words = text_of(page(browser, f"{url}/summarise", planner=MODEL))
    assert not missing(words, "Draft a summary of the beginning", "turns 1 to 5", "turns 5 to 8, word for word")
    assert not missing(words, "127.0.0.1:9", "no tools, no reasoning, at most 8,000 tokens of answer")
    assert "for what is sent" in words
    assert ("Summarise a stretch…", f"{url}/summarise") in links(page(browser, url))
    draft = start_draft(Session.objects.get(), WantedSummary())
    assert (f"Open draft {draft.pk}", draft.get_absolute_url()) in links(page(browser, url))


def test_nothing_is_requested_of_a_model_before_the_form_has_shown_it(browser, url):
    assert "the form had not shown that yet" in text_sent(browser.post(f"{url}/summarise", {"planner": MODEL}), 409)
    assert not SummaryDraft.objects.exists()
    shown = hidden_fields(element(page(browser, f"{url}/summarise", planner=MODEL), "form.form"))
    sent = browser.post(f"{url}/summarise", {**shown, "planner": MODEL, "focus": "the cache"})
    made = SummaryDraft.objects.get()
    assert sent["Location"] == made.get_absolute_url()
    assert (made.state, made.planner, made.focus) == (State.QUEUED, MODEL, "the cache")


def test_without_a_model_the_user_writes_it(browser, url):
    assert "Nothing. You write the summary yourself." in text_of(page(browser, f"{url}/summarise"))
    browser.post(f"{url}/summarise", {"planner": "hand"})
    assert SummaryDraft.objects.get().state == State.READY


def test_an_agent_that_honours_no_summary_says_so(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", turns_of_work(turns=8))
    assert "Summarise a stretch…" not in dict(links(page(browser, url)))
    assert "honours no summary that others append" in text_sent(browser.get(f"{url}/summarise"), 409)


def test_the_list_of_runs_names_the_drafts_that_are_not_appended(browser, draft):
    listed = page(browser, "/inbox")
    assert (draft.session.heading, draft.get_absolute_url()) in links(listed)
    assert "a draft, of the beginning" in text_of(listed)
    SummaryDraft.objects.update(state=State.APPENDED)
    assert draft.get_absolute_url() not in dict(links(page(browser, "/inbox"))).values()


def test_what_has_come_is_shown_until_it_is_over_and_of_a_failed_draft_can_be_used(browser, url):
    made = start_draft(Session.objects.get(), WantedSummary(), MODEL)
    assert "Waiting for a worker" in text_of(page(browser, made.get_absolute_url()))
    SummaryDraft.objects.update(state=State.ASKING, generated="## Goal")
    htmx = {"HX-Request": "true"}
    coming = browser.get(made.get_absolute_url(), {"part": "coming"}, headers=htmx)
    assert "7 characters received" in text_of(coming)
    SummaryDraft.objects.update(state=State.READY, text="## Goal")
    assert browser.get(made.get_absolute_url(), {"part": "coming"}, headers=htmx)["HX-Refresh"] == "true"
    SummaryDraft.objects.update(state=State.FAILED, failure="The connection broke.", generated="## Goal")
    assert "The connection broke." in text_of(page(browser, made.get_absolute_url()))
    browser.post(f"{made.get_absolute_url()}/use")
    assert text_of(element(page(browser, made.get_absolute_url()), "textarea")) == "## Goal"


def test_the_text_is_judged_whenever_it_is_saved_and_what_is_typed_goes_on_from_there(browser, draft):
    address = draft.get_absolute_url()
    answered = browser.post(address, {"text": "Question 1: look at the cache."}, headers={"HX-Request": "true"})
    swapped = {one.attributes["id"] for one in elements(answered, "[hx-swap-oob]")}
    assert swapped == {"still", "missing", "saved", "after", "changed", "digest"}
    held = text_of(element(answered, "#still"))
    assert re.search(r"Messages, verbatim 1 of 5", held), held
    draft.refresh_from_db()
    assert draft.text == "Question 1: look at the cache."
    digest = field(page(browser, address), "digest")
    for words in ("We", "We look", "We look on."):
        saved = browser.post(address, {"text": words, "digest": digest}, headers={"HX-Request": "true"})
        assert saved.status_code == 200
        digest = str(element(saved, "#digest").attributes["value"])
    assert browser.post(address, {"text": "We look on.", "digest": "older"}).status_code == 303


def test_a_text_that_was_edited_in_another_window_is_not_lost(browser, draft):
    address = draft.get_absolute_url()
    first = second = field(page(browser, address), "digest")
    assert browser.post(address, {"text": "One window.", "digest": first}).status_code == 303
    refused = browser.post(address, {"text": "The other\nwindow.", "digest": second})
    assert "edited in another window" in text_sent(refused, 409)
    assert element(refused, "textarea").text() == "The other\nwindow."
    draft.refresh_from_db()
    assert draft.text == "One window."
    # Saved again, it replaces what that page has named.
    again = {"text": "The other\nwindow.", "digest": field(refused, "digest")}
    assert browser.post(address, again).status_code == 303
    draft.refresh_from_db()
    assert draft.text == "The other\nwindow."


def test_without_scripts_each_button_saves_the_text_first_or_inserts_a_missing_name(browser, draft):
    address = draft.get_absolute_url()
    for then, leads in (
        ("", address),
        ("preview", f"{address}?show=preview"),
        ("changes", f"{address}?show=changes"),
        ("replaced", f"{address}/replaced"),
        ("append", f"{address}/append"),
    ):
        assert browser.post(address, {"text": f"Text before {then}", "then": then})["Location"] == leads
        draft.refresh_from_db()
        assert draft.text == f"Text before {then}"
    browser.post(address, {"text": "We look.\r\n", "insert": "src/cache_1.py"})
    draft.refresh_from_db()
    assert draft.text == "We look.\n\nsrc/cache_1.py\n"


def test_the_saved_text_is_shown_beside_what_it_replaces_as_changes_and_as_a_preview(browser, draft):
    shown = page(browser, f"{draft.get_absolute_url()}/replaced")
    assert not missing(text_of(shown), "would become a summary", "The same size, verbatim")
    assert text_of(element(shown, "textarea")) == "We look at the cache."
    SummaryDraft.objects.update(generated="We look at nothing.")
    changes = text_of(page(browser, draft.get_absolute_url(), show="changes"))
    assert not missing(changes, "-We look at nothing.", "+We look at the cache.")
    preview = element(page(browser, draft.get_absolute_url(), show="preview"), ".generated")
    assert not missing(text_of(preview), "We look at the cache.", "src/cache_0.py")


def test_the_last_page_shows_the_whole_text_and_appends_it(browser, draft, idle_root):
    before = (idle_root / "a.jsonl").read_bytes()
    address = f"{draft.get_absolute_url()}/append"
    shown = page(browser, address)
    assert not missing(text_of(shown), "We look at the cache.", "src/cache_0.py")
    sent = browser.post(address, {"plan": field(shown, "plan")}, follow=True)
    recorded = json.loads((idle_root / "a.jsonl").read_bytes().removeprefix(before))
    assert recorded["type"] == "compaction"
    assert sent.redirect_chain[-1][0].endswith(f"/lost?entry={recorded['id']}")
    assert "move back" in dict(links(sent))
    assert "This summary was appended" in text_of(page(browser, draft.get_absolute_url()))


def test_images_that_are_lost_are_named_and_no_request_where_none_is_made(browser, url, idle_root):
    messages = [user([text("One long question."), image()])]
    for number in range(8):
        messages += [assistant(call(f"c{number}", path=f"{number}.py")), result(f"c{number}", "word " * 4_000)]
    address = add_session(idle_root, "b.jsonl", chain(*messages), "pi")
    found = start_draft(Session.objects.get(relative_path="b.jsonl"), WantedSummary())
    save_text(found, "We look.")
    last = f"{found.get_absolute_url()}/append"
    for one in (f"{address}/summarise", found.get_absolute_url(), last):
        shown = text_of(page(browser, one))
        assert not missing(shown, "1 image a summary is text", "the summary covers its beginning too")
    assert "request" not in text_of(element(page(browser, last), "main")).lower()
    browser.post(last, {"plan": field(page(browser, last), "plan")})
    shown = text_of(page(browser, f"{address}/lost"))
    assert not missing(shown, "a summary appended by Redline", "1 image lost")
    assert "Compaction by Redline" in text_of(page(browser, f"{address}/tree"))


def test_what_was_not_shown_is_not_appended(browser, draft, idle_root):
    with unchanged(idle_root / "a.jsonl"):
        address = f"{draft.get_absolute_url()}/append"
        plan = field(page(browser, address), "plan")
        save_text(draft, "Another text.")
        assert browser.post(address, {"plan": plan}).status_code == 409


def test_a_move_offers_the_summary_of_what_is_left(browser, url, idle_root):
    found = link(page(browser, f"{url}/tree/move", entry="e4"), "Summarise what you leave…")
    assert found == f"{url}/summarise?entry=e4"
    assert not missing(text_of(page(browser, found)), "Draft a summary of the branch you leave", "28 entries")
    browser.post(f"{url}/summarise", {"planner": "hand", "entry": "e4"})
    made = SummaryDraft.objects.get()
    save_text(made, "It failed.")
    address = f"{made.get_absolute_url()}/append"
    browser.post(address, {"plan": field(page(browser, address), "plan")})
    recorded = json.loads((idle_root / "a.jsonl").read_bytes().splitlines()[-1])
    assert (recorded["type"], recorded["parentId"]) == ("branch_summary", "e4")


def test_settings_that_ask_for_no_summary_are_respected(browser, url, monkeypatch, tmp_path):
    home = tmp_path / "home"
    place(home / ".pi" / "agent" / "settings.json", b'{"branchSummary": {"skipPrompt": true}}')
    monkeypatch.setattr(Path, "home", lambda: home)
    shown = page(browser, f"{url}/tree/move", entry="e4")
    assert "Summarise what you leave…" not in dict(links(shown))
    assert "say that none is offered" in text_of(shown)


def test_a_draft_of_a_session_that_has_continued_keeps_its_text_until_it_is_discarded(browser, draft, idle_root):
    add_session(idle_root, "a.jsonl", [*turns_of_work(turns=8), *chain(*[user("x")] * 33)[-1:]])
    shown = page(browser, draft.get_absolute_url(), status=409)
    assert not missing(text_of(shown), "has continued since", "We look at the cache.")
    with unchanged(idle_root / "a.jsonl"):
        sent = browser.post(f"{draft.get_absolute_url()}/discard", follow=True)
        assert "Nothing was written to the session." in text_of(sent)
        assert not SummaryDraft.objects.exists()


@pytest.mark.parametrize("words", TOGETHER)
def test_a_hostile_text_does_nothing(browser, draft, words):
    save_text(draft, words)
    SummaryDraft.objects.update(focus=editable(words), hook_messages=[editable(words)])
    address = draft.get_absolute_url()
    for shown in (
        page(browser, address),
        page(browser, address, show="preview"),
        page(browser, address, show="changes"),
        page(browser, f"{address}/replaced"),
        page(browser, f"{address}/append"),
    ):
        assert_inert(shown)
    SummaryDraft.objects.update(state=State.FAILED, failure=editable(words), generated=editable(words))
    assert_inert(page(browser, address))
