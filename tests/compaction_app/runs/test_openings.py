"""Promises of openings: an object of a review that was opened stays opened, since the first time."""

from datetime import timedelta

import pytest
from django.utils import timezone

from compaction_app.runs.openings import opened_targets, record_opened
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.targets import Target
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.runs import plan_session

ENTRY, BLOCK = Target("e3"), Target("e4", 0)


@pytest.fixture
def run(known_root):
    path = place(known_root / "work.jsonl", session_bytes(working_session()))
    return plan_session(index_file(path))


def test_entries_and_blocks_are_remembered(run):
    assert opened_targets(run) == frozenset()
    record_opened(run, [ENTRY, BLOCK], timezone.now())
    assert opened_targets(run) == {ENTRY, BLOCK}
    assert opened_targets(plan_session(run.session)) == frozenset(), "another run of the session"


def test_the_first_time_counts(run):
    first = timezone.now()
    record_opened(run, [ENTRY, ENTRY], first)
    record_opened(run, [ENTRY], first + timedelta(minutes=1))
    assert [opening.at for opening in run.openings.all()] == [first]
