"""The pages about agents that ask: who waits, what became of it, and what is chosen for the next time."""

from django.test import Client
from django.utils import timezone

from compaction_app.models import Handshake, PassRule, WaitRule
from tests.compaction_app.handshakes.conftest import asking
from tests.factories import working_session
from tests.html import active_markup, text_of, text_sent


def test_every_page_names_the_agent_that_waits_and_its_session_also_in_the_part_for_open_pages(agent, browser):
    handshake = agent.planned()
    for page in ("/", "/settings", "/inbox", f"/plans/{handshake.run.pk}", "/nowhere"):
        answer = browser.get(page)
        assert "pi waits for your review of Mend the parser." in " ".join(text_of(answer).split())
        title = answer.content.decode().split("<title>")[1].split("</title>")[0]
        assert " ".join(title.split()).startswith("(1) pi waits until")
    agent.report("withdrawn", handshake.pk)
    assert "pi waits" not in text_of(browser.get("/"))
    assert browser.get("/handshakes/waiting").content.decode().strip() in browser.get("/").content.decode()


def test_what_a_session_or_an_agent_says_is_shown_as_text(pi_root, browser):
    recorded = working_session()
    recorded[1]["message"]["content"] = 'Mend <img src=x onerror=alert(1)> \u202e "the" parser.'
    agent = asking(pi_root, recorded)
    handshake = agent.planned(version="<b>1</b>", preparation={"x": "<script>"})
    usual = set(active_markup(browser.get("/settings").content.decode()))
    agent.report("failed", handshake.pk, message="<script>alert(1)</script>\x1b[31m")
    for page in (f"/inbox/agents/{handshake.pk}", "/inbox/agents", "/handshakes/waiting"):
        shown = browser.get(page).content.decode()
        assert set(active_markup(shown)) <= usual
        assert "<img src=x" not in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown


HEADINGS = {
    "planning": "pi waits",
    "waiting": "pi waits",
    "approved": "Approved, written once the session is closed",
    "applied": "pi has what you approved",
    "declined": "Declined",
    "expired": "You did not decide in time",
    "failed": "Nothing was applied",
}


def test_the_page_of_a_question_says_what_became_of_it_and_an_unknown_one_is_not_found(agent, browser):
    handshake = agent.planned()
    for state, heading in HEADINGS.items():
        Handshake.objects.update(state=state)
        page = text_of(browser.get(f"/inbox/agents/{handshake.pk}"))
        assert heading in page
        assert ("Choose what happens instead" in page) is (state in ("planning", "waiting")), state
        assert ("Take the approval back" in page) is (state == "approved"), state
    assert browser.get("/inbox/agents/99").status_code == 404


def test_a_page_that_shows_the_state_is_not_drawn_again(agent, browser):
    address = f"/inbox/agents/{agent.planned().pk}"
    assert browser.get(address, {"shown": "waiting"}).status_code == 204
    Handshake.objects.update(state="declined")
    page = browser.get(address, {"shown": "waiting"}).content.decode()
    assert page.split('id="handshake-news" role="status">')[1].split("</p>")[0].strip() == "Declined"


def fields(browser: Client, **changed: str) -> dict[str, str]:
    """What the form of the page sends."""
    forms = browser.get("/inbox/agents").context["waits"]
    usual = {form.add_prefix(name): str(form.initial[name]) for form in forms for name in form.fields}
    return {"waits": "save", **usual, **changed}


def test_how_long_an_agent_waits_is_chosen_on_the_page(agent, browser):
    sent = fields(browser, **{"pi-overflow-minutes": "1", "pi-overflow-then": "stop"})
    assert browser.post("/inbox/agents", sent).status_code == 303
    rule = WaitRule.objects.get(agent="pi", reason="overflow")
    assert (rule.seconds, rule.then, rule.planner) == (60, "stop", "embedded")
    handshake = agent.planned(reason="overflow")
    assert handshake.then == "stop"
    assert (handshake.ends_at - timezone.now()).total_seconds() <= 60


def test_what_cannot_be_chosen_is_refused_counted_and_explained_and_nothing_is_saved(agent, browser):
    wrong = {"pi-manual-minutes": "0", "pi-overflow-minutes": ""}
    page = text_of(browser.post("/inbox/agents", fields(browser, **wrong)))
    assert "Correct the 2 errors below." in page
    assert page.count("From 1 to 60 minutes.") == 2
    for name, wrong in {"minutes": ["0", "61", "x"], "then": ["wait"], "planner": ["nobody/none"]}.items():
        for value in wrong:
            sent = fields(browser, **{f"pi-manual-{name}": value})
            assert browser.post("/inbox/agents", sent).status_code == 422, (name, value)
    assert not WaitRule.objects.exists()


def test_a_rule_that_lets_nothing_pass_is_refused(agent, browser):
    forms = browser.get("/inbox/agents").context["passes"]
    sent = {form.add_prefix("most_tokens"): "0" for form in forms}
    page = browser.post("/inbox/agents", {"passes": "save", **sent, forms[0].add_prefix("empty"): "on"})
    assert "With a limit of 0, nothing passes." in text_sent(page, 422)
    page = browser.post("/inbox/agents", {"passes": "save", **sent, forms[0].add_prefix("most_tokens"): "9" * 30})
    assert "From 0 to 1,000,000 tokens." in text_of(page)
    assert not PassRule.objects.exists()


def test_without_a_connected_agent_there_is_nothing_to_choose(pi_root, browser):
    assert "No agent is connected." in text_of(browser.get("/inbox/agents"))
