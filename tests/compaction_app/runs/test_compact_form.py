"""Promises of the form that starts a run: which planner it proposes, and what it says before anything leaves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.display.branches import forget_branches
from compaction_app.models import PlannerModel, Provider, Run, RunEvent
from compaction_app.planning.egress_preview import measure_first_request
from compaction_app.planning.model_registry import model_named
from compaction_app.runs.lease import worker_name
from compaction_app.runs.worker import work
from devtools.bench.sessions import generate
from devtools.scripted.server import ScriptedProvider
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation

HOST = "gateway.example:8443"
MARK = re.compile(r'name="disclosed" value="([^"]*)"')


def recorded(model: str = "claude-x", level: str = "high") -> list[dict[str, Any]]:
    """A session that was written with a model, which was asked to think."""
    entries = working_session(steps=20)
    for entry in entries:
        if entry.get("message", {}).get("role") == "assistant":
            entry["message"] |= {"provider": "acme", "model": model, "api": "anthropic-messages"}
    change = {
        "type": "thinking_level_change",
        "id": "level",
        "parentId": entries[-1]["id"],
        "thinkingLevel": level,
    }
    return [*entries, change]


HTMX = {"hx-request": "true"}


@pytest.fixture
def session(known_root: Path) -> Session:
    forget_branches()
    return index_file(place(known_root / "work.jsonl", session_bytes(recorded())))


def configured(name: str = "claude-x", provider: str = "acme", **more: Any) -> PlannerModel:
    """A model that can be asked, without a key."""
    Provider.objects.get_or_create(
        name=provider,
        defaults={"dialect": "anthropic", "base_url": more.pop("base_url", f"https://{HOST}/api")},
    )
    limits = {"window": 200_000, "output_limit": 8_000, "thinking_levels": ["low", "medium"]}
    return PlannerModel.objects.create(provider=provider, name=name, **{**limits, **more})


def address(session: Session) -> str:
    return f"/sessions/{session.root_id}/{session.relative_path}/compact"


Look = Callable[..., str]


@pytest.fixture
def look(browser: Client, session: Session) -> Look:
    def page(**query: str) -> str:
        answer = browser.get(address(session), query, headers=HTMX if "part" in query else {})
        assert answer.status_code == 200
        return unescape(answer.content.decode())

    return page


def chosen(page: str, name: str) -> str:
    select = page[page.index(f'id="{name}" name="{name}"') :].partition("</select>")[0]
    return re.findall(r'<option value="([^"]*)" selected', select)[0]


def test_without_a_model_the_embedded_planner_is_chosen_and_nothing_leaves(look: Look) -> None:
    page = look()
    assert chosen(page, "planner") == "embedded"
    assert "Nothing. The embedded planner works offline." in page
    assert MARK.search(page) is None


def test_the_sessions_own_model_is_chosen_with_the_sessions_thinking_level(look: Look) -> None:
    configured()
    configured("other")
    page = look()
    assert chosen(page, "planner") == "acme/claude-x"
    assert "This is the session’s own model." in page
    assert chosen(page, "thinking") == "medium"
    assert "The session’s thinking level is high. The nearest that the model takes is medium." in page


def test_a_model_that_takes_the_level_gets_it(look: Look) -> None:
    configured(thinking_levels=["low", "high"])
    page = look()
    assert chosen(page, "thinking") == "high"
    assert "The session’s thinking level is high." in page
    assert "nearest" not in page


def test_a_model_that_cannot_be_asked_is_named_and_cannot_be_chosen(look: Look) -> None:
    PlannerModel.objects.create(provider="anthropic", name="claude-x", window=200_000, output_limit=8_000)
    page = look()
    assert chosen(page, "planner") == "embedded"
    assert '<option value="anthropic/claude-x" disabled>' in page


def test_what_leaves_is_said_before_it_does(look: Look) -> None:
    configured(price_in=3.0, price_out=15.0)
    page = look()
    assert f"<dt>To</dt><dd><b>{HOST}</b>" in page
    assert "It can search and read every entry of this branch, piece by piece." in page
    assert "$3.00 for a million tokens in, $15.00 for a million out." in page
    assert 'part=size" hx-params' in page


def test_the_first_page_says_how_much_would_be_sent(look: Look) -> None:
    configured()
    page = look()
    assert re.search(r'id="size" [^>]*>[\d,]+ characters, about [\d,]+ tokens', page)
    assert "not measured yet" not in page


def test_a_planner_whose_size_was_not_shown_cannot_be_started(
    browser: Client, session: Session, look: Look
) -> None:
    configured()
    without = look(part="planning", planner="acme/claude-x")
    assert "not measured yet" in without
    assert MARK.search(without) is None
    assert posted(browser, session, planner="acme/claude-x").status_code == 409
    shown = MARK.search(look(part="size", planner="acme/claude-x"))
    assert shown is not None
    assert posted(browser, session, planner="acme/claude-x", disclosed=shown[1]).status_code == 302


def test_the_form_of_a_session_whose_file_is_gone_says_why_nothing_would_be_sent(
    look: Look, session: Session, known_root: Path
) -> None:
    configured()
    (known_root / session.relative_path).unlink()
    page = look()
    assert re.search(r'id="size" [^>]*>none: ', page)
    assert str(known_root / session.relative_path) in page


def test_whose_model_it_is_is_said_of_no_other_planner(look: Look) -> None:
    configured()
    configured("other")
    own = "This is the session’s own model."
    for planner, is_own in (("acme/claude-x", True), ("acme/other", False), ("embedded", False)):
        part = look(part="planning", planner=planner)
        label = part[part.index('id="planner-of" hx-swap-oob="true"') :]
        assert (own in label) is is_own
        assert part.count(own) == is_own


def test_another_planner_brings_its_own_host_and_levels(look: Look) -> None:
    configured()
    configured("local", "llama", base_url="http://127.0.0.1:8080/v1", thinking_levels=[])
    part = look(part="planning", planner="llama/local")
    assert part.lstrip().startswith('<div id="planning">')
    assert "127.0.0.1:8080</b>, on this machine" in part
    assert "Thinking" not in part
    assert "Nothing. The embedded planner" in look(part="planning", planner="embedded")


def posted(browser: Client, session: Session, **values: str) -> Any:
    return browser.post(address(session), {"keep": "50", **values})


def test_no_model_is_started_by_a_form_that_has_not_said_where_it_is_asked(
    browser: Client, session: Session
) -> None:
    configured()
    configured("elsewhere", "beta", base_url="https://beta.example")
    shown = MARK.search(browser.get(address(session)).content.decode())
    assert shown is not None
    for planner, disclosed in (
        ("acme/claude-x", ""),
        ("claude-x", ""),
        ("beta/elsewhere", unescape(shown[1])),
        ("elsewhere", unescape(shown[1])),
    ):
        answer = posted(browser, session, planner=planner, disclosed=disclosed)
        assert answer.status_code == 409
        page = unescape(answer.content.decode())
        assert "the form had not said so yet. Nothing was sent and nothing planned." in page
        assert "characters, about" in page
        assert not Run.objects.exists()
        again = MARK.search(page)
        assert again is not None
    answer = posted(browser, session, planner="elsewhere", disclosed=again[1], thinking="low")
    assert answer.status_code == 302
    assert (Run.objects.get().planner, Run.objects.get().thinking) == ("beta/elsewhere", "low")


def test_a_host_that_was_changed_meanwhile_is_shown_again(browser: Client, session: Session) -> None:
    configured()
    shown = MARK.search(browser.get(address(session)).content.decode())
    assert shown is not None
    Provider.objects.update(base_url="https://elsewhere.example")
    answer = posted(browser, session, planner="acme/claude-x", disclosed=unescape(shown[1]))
    assert answer.status_code == 409
    assert "elsewhere.example" in answer.content.decode()
    assert not Run.objects.exists()


def test_the_embedded_planner_needs_no_disclosure_and_takes_no_level(
    browser: Client, session: Session
) -> None:
    configured()
    assert posted(browser, session, planner="embedded", thinking="low").status_code == 302
    assert (Run.objects.get().planner, Run.objects.get().thinking) == ("embedded", "")


def test_without_script_a_button_shows_what_another_planner_sends(browser: Client, session: Session) -> None:
    configured()
    answer = posted(browser, session, planner="acme/claude-x", show="1", query="the parser")
    page = answer.content.decode()
    assert answer.status_code == 200
    assert HOST in page
    assert re.search(r"[\d,]+ characters, about [\d,]+ tokens", page)
    assert "the parser" in page
    assert not Run.objects.exists()


def test_a_branch_that_cannot_be_planned_says_why_nothing_would_be_sent(look: Look) -> None:
    configured()
    part = look(part="size", leaf="nowhere")
    assert part.strip().startswith("none: ")
    assert "nowhere" in part


# ---- how much ----------------------------------------------------------------------------------------------


@pytest.fixture
def scripted() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


@pytest.mark.parametrize("window", [200_000, 12_000], ids=["a large window", "a small one"])
def test_what_is_said_is_what_is_sent(
    look: Look, session: Session, browser: Client, scripted: ScriptedProvider, window: int
) -> None:
    base_url = scripted.base_url("anthropic")
    configured("good-plan", base_url=base_url, thinking_levels=["low", "high"], window=window)
    typed = {"keep": "40", "preserve_recent": "4", "query": "the parser", "planner": "acme/good-plan"}
    said = re.match(r"([\d,]+) characters", look(part="size", thinking="high", **typed).strip())
    assert said is not None
    mark = MARK.search(look(planner="acme/good-plan"))
    assert mark is not None
    assert posted(browser, session, thinking="high", disclosed=mark[1], **typed).status_code == 302
    run = Run.objects.get()
    work(run.pk, worker_name())
    asked = RunEvent.objects.filter(run=run, kind="asked").order_by("seq").first()
    assert asked is not None
    assert asked.data["characters"] == int(said[1].replace(",", ""))


def test_of_fifty_thousand_entries_the_first_request_shows_eighty(
    known_root: Path, redline: Installation
) -> None:
    lines = session_bytes(list(generate(entries=50_000, entry_bytes=300, seed=1)))
    session = index_file(place(known_root / "large.jsonl", lines))
    configured()
    model = model_named("acme/claude-x")
    found = measure_first_request(session, "", {}, model, "low")
    assert found.entries == 80
    assert 10_000 < found.characters < 100_000
