"""What acts cost, in work that does not depend on the machine: statements, rows, bytes of sessions, processes.

Times belong to `make bench`, which prints them. A test here fails if an act begins to do more than it needs.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection

from compaction_app.core.airlock import Airlock
from compaction_app.models import Decision
from compaction_app.pages.review.presenter import ReviewDesk
from compaction_app.runs.commands import start_run
from sessions_app.agents.claude_code.pure.format import ClaudeCodeFormat
from sessions_app.disk.files import EDGE, HEAD_BYTES
from sessions_app.index.follower import Follower
from sessions_app.index.indexer import index_roots
from sessions_app.jobs.pool import WorkerProcesses
from sessions_app.models import Session
from sessions_app.search.text_index import update_texts
from tests.claude_sessions import timed, user as claude_user
from tests.compaction_app.handshakes.conftest import agent as agent, pi_root as pi_root
from tests.compaction_app.review.review_page import extent, page, planned, post
from tests.factories import assistant, chain, session_bytes, text, turns_of_work, user, working_session
from tests.files import append_as_agent, place
from tests.sessions import add_session, use_root

ENTRIES = 3_000
"""Entries of a session that no page shows as a whole."""
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


@dataclass
class Work:
    """What was done."""

    statements: list[str] = field(default_factory=list)
    rows: int = 0
    """Rows that were written by INSERT, or statements that changed or deleted some."""
    bytes_read: int = 0
    """Bytes read from sessions."""

    @property
    def written(self) -> list[str]:
        return [sql for sql in self.statements if sql.lstrip().upper().startswith(WRITES)]


@contextmanager
def counted() -> Iterator[Work]:
    """Count the work of this process."""
    work, pread = Work(), os.pread

    def read(fd: int, length: int, offset: int) -> bytes:
        data = pread(fd, length, offset)
        work.bytes_read += len(data)
        return data

    def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        work.statements.append(sql)
        if work.written and work.written[-1] is sql:
            work.rows += len(params) if many else max(1, sql.count("(%s"))
        return run(sql, params, many, context)

    with patch.object(os, "pread", read), connection.execute_wrapper(execute):
        yield work


@pytest.fixture
def long_session(idle_root):
    """The address of a session with many entries."""
    said = (one for number in range(ENTRIES // 2) for one in (user(f"Part {number}."), assistant(text("x" * 400))))
    return add_session(idle_root, "long.jsonl", chain(*said))


def test_new_sessions_and_their_texts_are_indexed_by_one_reading_and_in_few_statements(idle_root):
    for number in range(30):
        place(idle_root / f"{number}.jsonl", session_bytes(working_session(steps=20)))
    with counted() as work:
        total = index_roots()
    assert total.files == 30
    assert work.bytes_read <= total.bytes + 30 * (HEAD_BYTES + 6 * EDGE)
    assert len(work.statements) <= 40
    with counted() as work:
        index_roots()
    assert (work.bytes_read, work.written) == (0, []), "nothing is new"
    assert list(update_texts())
    with counted() as work:
        list(update_texts())
    assert work.bytes_read == 0


def test_the_tree_of_a_new_session_is_built_once_also_if_its_tokens_must_be_counted(redline, tmp_path, settings):
    use_root(settings, tmp_path, "claude-code")
    branched = (claude_user("first", None), claude_user("left", "first"), claude_user("right", "first"))
    place(tmp_path / "project" / "a.jsonl", timed(branched))
    with patch.object(ClaudeCodeFormat, "tree", autospec=True, side_effect=ClaudeCodeFormat.tree) as built:
        index_roots()
    assert built.call_count == 1
    assert Session.objects.get().context_estimate


def test_a_page_asks_for_runs_and_questions_only_after_a_write(browser, known_root):
    browser.get("/search")
    with counted() as work:
        browser.get("/search")
    assert not [one for one in work.statements if "compaction_app" in one]


def test_an_appended_entry_is_indexed_without_reading_what_was_known(idle_root):
    path = place(idle_root / "s.jsonl", session_bytes(turns_of_work(40)))
    index_roots()
    size, line = (path.stat().st_size, session_bytes([{**chain(user("More."))[1], "id": "n1", "parentId": "e160"}]))
    append_as_agent(path, line)
    with counted() as work:
        index_roots()
    assert Session.objects.get().leaf_id == "n1"
    assert work.bytes_read < 100_000 < size
    assert work.rows < 30


@pytest.mark.parametrize("query", ["", "?view=all", "?view=all&at=e1500"])
def test_a_page_of_a_session_reads_only_what_it_shows(browser, long_session, query):
    size = Session.objects.get().size
    browser.get(long_session + query)
    with counted() as work:
        assert browser.get(long_session + query).status_code == 200
    assert work.bytes_read < size / 8
    assert work.written == []
    assert len(work.statements) <= 12


def test_a_review_reads_no_session_whatever_its_number_of_proposals(browser, known_root):
    run = planned(known_root, working_session(steps=60))
    page(browser, run)
    with counted() as work:
        page(browser, run)
    assert run.proposals.count() > 40
    assert work.written == []
    assert len(work.statements) <= 10


def test_a_decision_touches_a_bounded_number_of_rows(browser, known_root):
    run = planned(known_root, working_session(steps=60))
    first, second = run.proposals.order_by("order")[:2]
    post(browser, run, approve=f"{first.entry_id}")
    before = Decision.objects.count()
    with counted() as work:
        post(browser, run, approve=f"{second.entry_id}")
    assert Decision.objects.count() == before + 1
    assert work.rows <= 6
    assert len(work.statements) <= 25


def test_a_decision_judges_again_what_it_is_about_whatever_the_number_of_proposals(browser, known_root):
    """The numbers of all rows and groups are what their buttons do: few of them change."""
    judged = []
    for steps in (30, 90):
        run = planned(known_root, working_session(steps=steps))
        shown = extent(page(browser, run))
        first, second = run.proposals.order_by("order")[:2]
        post(browser, run, True, approve=first.entry_id, **shown)
        post(browser, run, True, approve=second.entry_id, **shown)
        judged.append(ReviewDesk(run).consequences.judged)
    assert judged[0] == judged[1]
    assert 0 < judged[0] < 10


def test_a_dry_run_lists_its_plan_a_few_times_whatever_the_number_of_deletions(redline, tmp_path):
    """For each printed deletion its reason is looked up."""
    path = place(tmp_path / "work.jsonl", session_bytes(turns_of_work(60)))
    with patch.object(Airlock, "targets", autospec=True, side_effect=Airlock.targets) as listed:
        answer = redline.call("compact", path, "--dry-run", "--json")
    assert len(answer.json["deletedTargets"]) > 20 > listed.call_count


def test_a_search_needs_the_same_statements_for_many_sessions(browser, idle_root):
    def searched() -> Work:
        index_roots()
        list(update_texts())
        browser.get("/search?q=needle")
        with counted() as work:
            assert browser.get("/search?q=needle").status_code == 200
        return work

    place(idle_root / "first.jsonl", session_bytes(chain(user("a needle"))))
    few = searched()
    for number in range(30):
        place(idle_root / f"{number}.jsonl", session_bytes(chain(user(f"needle {number}"), user("needle"))))
    many = searched()
    assert len(many.statements) == len(few.statements)
    # The lines of the places that it shows.
    assert many.bytes_read < 5_000


def test_a_follower_that_finds_nothing_new_reads_and_writes_nothing(idle_root):
    place(idle_root / "s.jsonl", session_bytes(working_session()))
    follower = Follower()
    try:
        while not Session.objects.exists():
            follower.step()
        follower._next_scan = 0.0
        follower._scan_roots()
        with counted() as work:
            follower._scan_roots()
    finally:
        follower.stop()
    assert work.bytes_read == 0
    assert work.written == []
    assert len(work.statements) <= 8


def test_an_agent_that_polls_while_a_person_reviews_costs_few_statements_and_reads_no_session(agent):
    agent.planned()
    agent.poll()
    with counted() as work:
        assert agent.poll()["do"] == "wait"
    assert work.bytes_read == 0
    assert len(work.statements) <= 8


class Busy:
    """Children of a server that do not end."""

    stopping = False

    def __init__(self) -> None:
        self.started = 0

    async def run(self, *_arguments: str) -> int:
        self.started += 1
        await asyncio.Event().wait()
        return 0


def test_a_run_starts_no_process_that_is_there_already(idle_root):
    add_session(idle_root, "s.jsonl", working_session())
    start_run(Session.objects.get(), planner="embedded", requested_parameters={})
    children = Busy()

    async def look() -> None:
        processes = WorkerProcesses(children)
        for _ in range(5):
            await processes.start_needed()
            await asyncio.sleep(0)
        await processes.stop()

    asyncio.run(look())
    assert children.started == 1
