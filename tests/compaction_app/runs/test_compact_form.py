"""The panel that plans a session: the planner it selects, and what it shows before anything is sent."""

import re
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from compaction_app.models import PlannerModel, Provider, Run
from compaction_app.planning.llm_planner import measure_first_request
from compaction_app.planning.model_registry import model_named
from compaction_app.runs.commands import start_run
from devtools.bench.sessions import generate
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import element, elements, field, fields, form, hidden_fields, link, text_of, text_sent, texts, values
from tests.runs import finish_run

HOST = "gateway.example:8443"


def recorded() -> list[dict[str, Any]]:
    """A session written with a model at a thinking level."""
    entries = working_session(steps=20)
    for entry in entries:
        if entry.get("message", {}).get("role") == "assistant":
            entry["message"] |= {"provider": "acme", "model": "claude-x", "api": "anthropic-messages"}
    change = {"type": "thinking_level_change", "id": "level", "parentId": entries[-1]["id"]}
    return [*entries, {**change, "thinkingLevel": "high"}]


SIZE = re.compile(r"[\d,]+ characters, about [\d,]+ tokens")


@pytest.fixture
def session(known_root):
    return index_file(place(known_root / "work.jsonl", session_bytes(recorded())))


def configured(name: str = "claude-x", provider: str = "acme", **more: Any) -> PlannerModel:
    """A usable model that needs no key."""
    Provider.objects.get_or_create(
        name=provider, defaults={"dialect": "anthropic", "base_url": more.pop("base_url", f"https://{HOST}/api")}
    )
    limits = {"window": 200_000, "output_limit": 8_000, "thinking_levels": ["low", "medium"]}
    return PlannerModel.objects.create(provider=provider, name=name, **{**limits, **more})


def address(session: Session) -> str:
    return f"/sessions/{session.root_id}/{session.relative_path}/compact"


@pytest.fixture
def look(browser, session):
    """Opens the form; with `part`, as htmx requests a part of it."""

    def page(**query: str) -> HttpResponse:
        answer = browser.get(address(session), query, headers={"hx-request": "true"} if "part" in query else {})
        assert answer.status_code == 200
        return answer

    return page


def disclosed(page: HttpResponse) -> str:
    """The mark with which a form confirms what it has shown: the host, and the size of a request."""
    return field(page, "disclosed")


def text_of_size(page: HttpResponse) -> str:
    return text_of(element(page, "#size"))


def test_without_a_usable_model_the_embedded_planner_is_selected_and_nothing_is_sent(look):
    page = look()
    assert field(page, "planner") == "embedded"
    assert text_of(element(page, "#planning")) == "Nothing leaves this machine."
    assert "disclosed" not in fields(page)
    PlannerModel.objects.create(provider="anthropic", name="claude-x", window=200_000, output_limit=8_000)
    page = look()
    assert field(page, "planner") == "embedded"
    assert [one.attributes["value"] for one in elements(page, "input[name=planner][disabled]")] == [
        "anthropic/claude-x"
    ]


def test_the_sessions_own_model_and_thinking_level_are_selected(look):
    configured()
    configured("other")
    page = look()
    assert field(page, "planner") == "acme/claude-x"
    assert "This is the session’s own model." in text_of(page)
    assert field(page, "thinking") == "medium"
    assert "The session’s thinking level is high. The nearest that the model supports is medium." in text_of(page)
    PlannerModel.objects.update(thinking_levels=["low", "high"])
    page = look()
    assert field(page, "thinking") == "high"
    assert "The session’s thinking level is high." in text_of(page)
    assert "nearest" not in text_of(page)


def test_a_query_can_be_cleared_and_the_form_says_who_uses_the_last_message(look, browser, session, redline):
    place(redline.home / ".pi" / "agent" / "settings.json", b'{"compaction": {"query": "the parser"}}')
    page = look()
    assert field(page, "query") == "the parser"
    said = "The built-in planner keeps what these words find, and does not use your last message."
    assert said in text_of(page)
    assert element(page, "#query").attributes["placeholder"] == "Now the tests."
    for typed, given in (("the parser", {}), ("", {"query": ""}), ("x", {"query": "x"})):
        assert field(posted(browser, session, planner="embedded", show="1", query=typed), "query") == typed
        assert posted(browser, session, planner="embedded", query=typed).status_code == 303
        run = Run.objects.latest("pk")
        assert run.requested_parameters == given
        assert finish_run(run).parameters["query"] == (typed or "Now the tests.")
        Run.objects.all().delete()


def test_the_form_shows_what_is_sent_and_a_size_that_was_not_shown_starts_nothing(look, browser, session):
    configured(price_in=3.0, price_out=15.0)
    page = look()
    assert f"To {HOST} https://{HOST}/api" in text_of(page)
    assert "The model can search and read every entry of this branch, piece by piece." in text_of(page)
    assert "$3.00 for a million tokens in, $15.00 for a million out." in text_of(page)
    assert element(page, "#size").attributes["hx-get"] == "?part=size"
    assert SIZE.match(text_of_size(page))
    without = look(part="planning", planner="acme/claude-x")
    assert "Not measured yet" in text_of(without)
    assert "disclosed" not in fields(without)
    assert posted(browser, session, planner="acme/claude-x").status_code == 409
    mark = disclosed(look(part="size", planner="acme/claude-x"))
    assert posted(browser, session, planner="acme/claude-x", disclosed=mark).status_code == 303


def test_only_the_sessions_own_model_is_marked_and_another_planner_shows_its_host_and_levels(look):
    configured()
    configured("other")
    own = "This is the session’s own model."
    for planner, is_own in (("acme/claude-x", True), ("acme/other", False), ("embedded", False)):
        part = look(part="planning", planner=planner)
        assert text_of(element(part, "#planning")).count(own) == is_own
    configured("local", "llama", base_url="http://127.0.0.1:8080/v1", thinking_levels=[])
    part = look(part="planning", planner="llama/local")
    assert "To 127.0.0.1:8080 , on this machine" in text_of(element(part, "#planning"))
    assert "Thinking" not in text_of(part)
    assert "Nothing leaves this machine." in text_of(look(part="planning", planner="embedded"))


def posted(browser: Client, session: Session, **values: str) -> Any:
    return browser.post(address(session), {"keep": "50", **values})


def test_a_changed_host_is_shown_again_and_the_embedded_planner_needs_no_disclosure(browser, session):
    configured()
    mark = disclosed(browser.get(address(session)))
    Provider.objects.update(base_url="https://elsewhere.example")
    assert "elsewhere.example" in text_sent(posted(browser, session, planner="acme/claude-x", disclosed=mark), 409)
    assert not Run.objects.exists()
    assert posted(browser, session, planner="embedded", thinking="low").status_code == 303
    assert (Run.objects.get().planner, Run.objects.get().thinking) == ("embedded", "")


def test_a_button_shows_what_is_sent_without_javascript_and_no_model_starts_before_that(browser, session):
    configured()
    answer = posted(browser, session, planner="acme/claude-x", show="1", query="the parser")
    assert HOST in text_sent(answer, 200)
    assert SIZE.match(text_of_size(answer))
    assert field(answer, "query") == "the parser"
    assert not Run.objects.exists()
    configured("elsewhere", "beta", base_url="https://beta.example")
    mark = disclosed(browser.get(address(session)))
    for planner, given in (("acme/claude-x", ""), ("claude-x", ""), ("beta/elsewhere", mark), ("elsewhere", mark)):
        refused = posted(browser, session, planner=planner, disclosed=given)
        assert "the form had not shown that yet. Nothing was sent and nothing planned." in text_sent(refused, 409)
        assert SIZE.match(text_of_size(refused))
        assert not Run.objects.exists()
    answer = posted(browser, session, planner="elsewhere", disclosed=disclosed(refused), thinking="low")
    assert answer.status_code == 303
    assert (Run.objects.get().planner, Run.objects.get().thinking) == ("beta/elsewhere", "low")


def test_for_an_unplannable_branch_or_a_missing_file_the_form_says_why_nothing_would_be_sent(look, session, known_root):
    configured()
    part = text_of(look(part="size", leaf="nowhere"))
    assert part.startswith("none: ")
    assert "nowhere" in part
    (known_root / session.relative_path).unlink()
    shown = text_of_size(look())
    assert shown.startswith("none: ")
    assert str(known_root / session.relative_path) in shown


@pytest.mark.parametrize("window", [200_000, 12_000], ids=["a large window", "a small one"])
def test_the_size_shown_is_the_size_sent(look, session, browser, provider, window):
    base_url = provider.base_url("anthropic")
    configured("good-plan", base_url=base_url, thinking_levels=["low", "high"], window=window)
    typed = {"keep": "40", "preserve_recent": "4", "query": "the parser", "planner": "acme/good-plan"}
    shown = text_of(look(part="size", thinking="high", **typed)).partition(" characters")[0]
    mark = disclosed(look(planner="acme/good-plan"))
    assert posted(browser, session, thinking="high", disclosed=mark, **typed).status_code == 303
    asked = finish_run(Run.objects.get()).events.filter(kind="asked").order_by("seq").first()
    assert asked.data["characters"] == int(shown.replace(",", ""))


def test_the_first_request_contains_eighty_of_many_entries(known_root, redline):
    lines = session_bytes(list(generate(entries=2_000, entry_bytes=300, seed=1)))
    session = index_file(place(known_root / "large.jsonl", lines))
    configured()
    found = measure_first_request(session, "", {}, model_named("acme/claude-x"), "low")
    assert found.entries == 80
    assert 10_000 < found.characters < 100_000


def test_the_panel_stands_beside_the_conversation_and_shares_to_keep_are_links(look, session):
    page = look()
    assert elements(page, "#transcript article")
    assert texts(page, ".session-panel h3") == ["How much to keep", "Who plans"]
    assert link(page, "30%") == "?keep=30&planner=embedded"
    assert field(look(keep="30"), "keep") == "30"
    assert "30" in text_of(element(look(keep="30"), "[data-keep][aria-current]"))


def test_planning_is_watched_beside_the_conversation_and_the_review_opens_when_it_has_ended(browser, session):
    answer = posted(browser, session, planner="embedded")
    run = Run.objects.get()
    assert answer["Location"] == f"{address(session)}?plan={run.pk}"
    for page in (browser.get(answer["Location"]), browser.get(address(session))):
        assert text_of(element(page, ".session-panel h2")) == "Planning"
        assert element(page, "[ws-connect]").attributes["ws-connect"] == f"/ws/plans/{run.pk}/log?panel"
        assert elements(page, "#transcript article")
    finish_run(run)
    assert browser.get(answer["Location"])["Location"] == f"/plans/{run.pk}"
    assert browser.get(f"{address(session)}?plan=99").status_code == 404


def test_a_plan_that_ends_at_once_leads_to_its_review(browser, session, monkeypatch):
    monkeypatch.setattr(
        "compaction_app.pages.session.compact.start_run", lambda *a, **k: finish_run(start_run(*a, **k))
    )
    assert posted(browser, session, planner="embedded")["Location"] == f"/plans/{Run.objects.get().pk}"


def test_a_failed_plan_says_why_and_can_be_tried_again_or_made_offline(browser, session):
    configured()
    mark = disclosed(browser.get(address(session)))
    answer = posted(browser, session, planner="acme/claude-x", disclosed=mark, query="<b>the</b> parser", keep="40")
    Run.objects.update(state="failed", failure="gateway.example:8443 refused the connection.")
    page = browser.get(answer["Location"])
    assert text_of(element(page, ".session-panel h2")) == "The plan failed"
    assert "gateway.example:8443 refused the connection. Nothing was written." in text_of(page)
    sent = hidden_fields(form(page, address(session)))
    assert (sent["keep"], sent["query"], sent["disclosed"]) == ("40", "<b>the</b> parser", mark)
    assert values(form(page, address(session)), "planner") == ["embedded", "acme/claude-x"]
    for planner in ("acme/claude-x", "embedded"):
        assert browser.post(address(session), {**sent, "planner": planner}).status_code == 303
        run = Run.objects.latest("pk")
        assert (run.planner, run.requested_parameters["compression_ratio"]) == (planner, 0.4)
        Run.objects.filter(pk=run.pk).update(state="failed")


def test_a_run_is_planned_for_the_chosen_writer_if_the_agent_honours_it(browser, session):
    Session.objects.filter(pk=session.pk).update(reader="pi", read_as="pi")
    answer = posted(browser, session, planner="embedded", writer="context-compaction")
    assert "There is no writer context-compaction" in text_sent(answer, 422)
    assert not Run.objects.exists()
    assert posted(browser, session, planner="embedded", writer="fork").status_code == 303
    assert Run.objects.get().writer == "fork"
