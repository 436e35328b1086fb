"""The list says which sessions an agent has open, although nothing was written to them lately."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redline.configuration import RootSetting
from sessions_app.index.indexer import index_roots
from sessions_app.index.roots import configured_roots
from sessions_app.list.consumers import draw, subscription_in
from tests.claude_sessions import SESSION_ID, timed
from tests.claude_sessions import user as claude_user
from tests.files import place
from tests.html import element, elements, text_of
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout, meta, user

ANOTHER = "01a20000-0000-7000-8000-000000000002"


@pytest.fixture
def roots(tmp_path, settings, known_root):
    """Two threads of Codex and two sessions of Claude Code, last written to an hour ago."""
    codex, claude = tmp_path / ".codex" / "sessions", tmp_path / ".claude" / "projects"
    for thread, said in ((THREAD, "count the apples"), (ANOTHER, "count the pears")):
        name = f"rollout-2026-01-05T10-00-00-{thread}.jsonl"
        place(codex / "2026" / "01" / "05" / name, Rollout(meta(thread), user(said)).content)
    for session, said in ((SESSION_ID, "count the plums"), (ANOTHER, "count the quinces")):
        line = claude_user("u1", None, said) | {"sessionId": session}
        place(claude / "-home-dev-project" / f"{session}.jsonl", timed([line]))
    chosen = [RootSetting(path=codex, agent="codex"), RootSetting(path=claude, agent="")]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": chosen})
    configured_roots()
    index_roots()
    return tmp_path


@contextmanager
def thread_lock(roots: Path, thread: str = THREAD) -> Iterator[None]:
    """A client of Codex has a thread open."""
    lock = roots / ".codex" / "thread-writer-locks" / f"{thread}.lock"
    lock.parent.mkdir(exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


@contextmanager
def running_client(roots: Path, **recorded: Any) -> Iterator[None]:
    """This process has registered itself as a client of Claude Code."""
    register = roots / ".claude" / "sessions" / f"{os.getpid()}.json"
    register.parent.mkdir(exist_ok=True)
    register.write_text(json.dumps({"sessionId": SESSION_ID, **recorded}))
    yield
    register.unlink()


def live_rows(page: object) -> dict[str, str]:
    """What the list says of each live session, by its title."""
    return {
        text_of(element(row, "a.name")): text_of(element(row, ".mark--live"))
        for row in elements(page, "#listing tbody tr")
        if elements(row, ".mark--live")
    }


def live_tab(page: object) -> str:
    return next(text_of(tab) for tab in elements(page, ".tabs a") if "Live" in text_of(tab))


def test_a_thread_that_codex_has_locked_is_live(browser, roots):
    assert live_rows(browser.get("/")) == {}
    with thread_lock(roots):
        assert live_rows(browser.get("/")) == {"count the apples": "live, open in Codex"}
    assert live_rows(browser.get("/")) == {}  # its lock file was left behind


def test_a_session_that_a_running_client_of_claude_code_has_open_is_live(browser, roots):
    with running_client(roots):
        assert live_rows(browser.get("/")) == {"count the plums": "live, open in Claude Code"}
    assert live_rows(browser.get("/")) == {}


def test_the_tab_counts_and_shows_the_open_sessions(browser, roots):
    assert live_tab(browser.get("/")) == "Live 0"
    with thread_lock(roots), running_client(roots):
        page = browser.get("/?show=live")
        assert live_tab(page) == "Live 2"
        assert set(live_rows(page)) == {"count the apples", "count the plums"}


def test_the_socket_draws_open_sessions_as_the_page_does(roots):
    subscription = subscription_in('{"query": "?show=live", "asked": 1}')
    assert subscription is not None
    with thread_lock(roots, ANOTHER):
        assert live_rows(draw(subscription)) == {"count the pears": "live, open in Codex"}


def test_a_session_that_may_be_open_is_not_called_live(browser, roots):
    with running_client(roots, sessionId=7):
        assert live_rows(browser.get("/")) == {}


def test_a_copy_of_an_open_session_in_another_root_is_not_live(browser, roots, settings):
    copies = roots / "copies"
    name = f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl"
    place(copies / name, Rollout(meta(), user("count the copies")).content)
    chosen = [*settings.REDLINE.roots, RootSetting(path=copies, agent="codex")]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": chosen})
    configured_roots()
    index_roots()
    with thread_lock(roots):
        assert list(live_rows(browser.get("/"))) == ["count the apples"]
