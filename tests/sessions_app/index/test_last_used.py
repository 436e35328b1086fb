"""A session was last used when its last entry was written, whatever its file's time says: for every agent."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from tests.browser.agent_sessions import AMP_THREAD, AgentHome, claude_session, codex_thread
from tests.claude_sessions import at
from tests.factories import chain, session_bytes, user
from tests.files import append_as_agent, backdate, place
from tests.html import elements, text_of
from tests.opencode_stores import START, tool
from tests.sessions import place_session

LAST = datetime(2026, 1, 5, 11, 22, 33, tzinfo=UTC)
STAMP = LAST.isoformat()


def timed(*messages: dict[str, Any], end: datetime = LAST) -> bytes:
    """A session whose entries were written one minute after the other, the last one at `end`."""
    header, *recorded = chain(*messages)
    begin = end - timedelta(minutes=len(recorded) - 1)
    moments = [begin + timedelta(minutes=minute) for minute in range(len(recorded))]
    return session_bytes(
        [header, *(one | {"timestamp": moment.isoformat()} for one, moment in zip(recorded, moments, strict=True))]
    )


def pi(home: AgentHome) -> tuple[Path, datetime]:
    return place(home.home / "s.jsonl", timed(user("one"), user("two"))), LAST


def claude(home: AgentHome) -> tuple[Path, datetime]:
    session = claude_session("Mend it.")
    session.lines[-1] = json.dumps(json.loads(session.lines[-1]) | {"timestamp": STAMP}).encode()
    aside = json.dumps({"type": "summary", "summary": "Mending", "timestamp": at(1)}).encode()
    return home.claude(1, session.content + aside + b"\n"), LAST


def codex(home: AgentHome) -> tuple[Path, datetime]:
    *lines, last = codex_thread("Mend it.").content.splitlines()
    aside = {"timestamp": "2031-01-01T00:00:00Z", "type": "event_msg", "payload": {"type": "token_count"}}
    ended = json.loads(last) | {"timestamp": STAMP}
    rollout = b"\n".join([*lines, json.dumps(ended).encode(), json.dumps(aside).encode(), b""])
    return home.codex(1, rollout), LAST


def opencode(home: AgentHome) -> tuple[Path, datetime]:
    store = home.opencode
    path = store.session()
    store.user("Mend it.")
    store.assistant(tool("c1", time={"start": START, "end": START + 90_000}))
    backdate(store.database)
    return path, datetime.fromtimestamp(START / 1_000 + 90, UTC)


def amp(home: AgentHome) -> tuple[Path, datetime]:
    path = home.amp()
    messages = [*AMP_THREAD["messages"]]
    messages[-1] = messages[-1] | {"usage": {"model": "m", "timestamp": STAMP}}
    return place(path, json.dumps(AMP_THREAD | {"messages": messages}).encode()), LAST


@pytest.mark.parametrize("make", [pi, claude, codex, opencode, amp])
def test_it_is_the_time_of_its_last_entry(make, redline, tmp_path):
    path, last = make(AgentHome(tmp_path))
    assert index_file(path).last_used == last


def test_without_recorded_times_or_with_that_of_the_beginning_alone_it_is_that_of_the_file(redline, tmp_path):
    for path in (place_session(tmp_path / "s.jsonl", "one"), AgentHome(tmp_path).amp()):
        assert index_file(path).last_used == datetime.fromtimestamp(path.stat().st_mtime, UTC)


def test_it_follows_the_file(redline, tmp_path):
    path = place(tmp_path / "s.jsonl", timed(user("one"), user("two"), end=LAST - timedelta(hours=1)))
    index_file(path)
    last_line = timed(user("one"), user("two"), user("three")).splitlines()[-1]
    for added in (last_line, b'\n{"type":"custom","id":"x","parentId":"e3"}\n'):
        append_as_agent(path, added)
        assert index_file(path).last_used == LAST
    now = LAST.timestamp() + 9_999
    os.utime(path, (now, now))
    assert index_file(path).last_used == LAST


def test_the_list_is_sorted_and_filtered_by_it(browser, known_root):
    now = datetime.now(UTC)
    for name, days in (("old", 40), ("new", 1), ("older", 400)):
        place(known_root / f"{name}.jsonl", timed(user(name), end=now - timedelta(days=days)))
    backdate(known_root / "new.jsonl", hours=90_000)
    index_roots()
    names = [text_of(found) for found in elements(browser.get("/"), ".name")]
    assert names == ["new", "old", "older"]
    assert [text_of(found) for found in elements(browser.get("/?age=month"), ".name")] == ["new"]
    assert [session.title for session in Session.objects.latest_first()] == names
