"""Promises of the times on a session's page: in the computer's zone, exact on demand, and pauses are mentioned."""

from datetime import datetime, timedelta
from os import getpid
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from redline.configuration import RootSetting
from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from tests.browser.agent_sessions import AgentHome, register_as_open
from tests.claude_sessions import ClaudeSession
from tests.factories import assistant, call, chain, result, text, user
from tests.html import element, elements, text_of, texts
from tests.sessions import add_session

TALK = [
    user("one"),
    assistant(text("I look."), call("c1"), call("c2")),
    result("c1"),
    result("c2", error=True),
    assistant(text("Done.")),
    user("two"),
    assistant(text("Ready.")),
]
MINUTES = (0, 1, 1.5, 1.505, 4, 40, 200)


@pytest.fixture(autouse=True)
def in_berlin():
    with timezone.override("Europe/Berlin"):
        yield


def timed(minutes: tuple[float, ...]) -> list[Any]:
    header, *recorded = chain(*TALK[: len(minutes)])
    moments = (datetime.fromisoformat("2026-02-06T22:30:00+00:00") + timedelta(minutes=one) for one in minutes)
    return [header, *(one | {"timestamp": at.isoformat()} for one, at in zip(recorded, moments, strict=True))]


def page(browser: Client, root: Path, minutes: tuple[float, ...] = MINUTES, **query: str) -> Any:
    return browser.get(add_session(root, "a.jsonl", timed(minutes)), query)


def test_the_page_shows_the_times_of_entries_days_pauses_and_turns(browser, idle_root):
    found = page(browser, idle_root)
    first = element(found, "#e1 time")
    assert text_of(first) == "23:30"
    assert first.attributes["title"] == "2026-02-06 22:30:00.000 UTC"
    assert first.attributes["datetime"] == "2026-02-06T22:30:00.000Z"
    assert texts(found, ".time-line") == [
        "Friday, 6 February 2026",
        "turn 1 took 4 min, 2 calls, 1 failed",
        "Saturday, 7 February 2026 , 36 min later",
        "turn 2 took 2 h 40 min",
        "2 h 40 min later",
    ]
    assert texts(found, ".sidebar .tree time") == ["6 Feb", "7 Feb"]
    assert "6 Feb 2026, 23:30 to 7 Feb 2026, 02:50 , 3 h 20 min" in text_of(element(found, ".facts"))
    assert texts(page(browser, idle_root, at="e6"), ".time-line")[0] == "Saturday, 7 February 2026 , 36 min later"


def test_a_session_of_one_day_is_not_told_which(browser, idle_root):
    found = page(browser, idle_root, MINUTES[:5])
    assert texts(found, ".time-line") == ["turn 1 took 4 min, 2 calls, 1 failed"]
    assert "6 Feb 2026, 23:30 to 23:34 , 4 min" in text_of(element(found, ".facts"))


def test_a_slow_result_says_how_long_it_took_and_without_recorded_times_nothing_is_claimed(browser, idle_root):
    found = page(browser, idle_root, (0, 1, 1.5, 1.505))
    assert "30 s" in text_of(element(found, "#e3"))
    assert "30 s" in text_of(element(found, "#e4"))
    assert not elements(page(browser, idle_root, (0, 1, 1.01, 1.016)), "[title='From the call to its result']")
    assert not elements(browser.get(add_session(idle_root, "a.jsonl", chain(*TALK))), ".time-line, article time")


def test_live_says_why(browser, known_root):
    found = page(browser, known_root)
    assert "live: was written to in the last 5 minutes" in text_of(found)
    assert ", live · Redline" in element(found, "title").text()


def test_live_is_what_the_agent_itself_has_open(browser, settings, tmp_path):
    home = AgentHome(tmp_path)
    path = home.claude(1, ClaudeSession("Mend it.").content)
    roots = [RootSetting.model_validate(root) for root in home.roots]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots, "live_minutes": 0})
    index_roots()
    address = Session.objects.get().get_absolute_url()
    assert "live:" not in text_of(browser.get(address))
    register_as_open(path, getpid())
    assert f"live: is open in Claude Code (process {getpid()})" in text_of(browser.get(address))
