"""Summaries in a browser, from a real session: left, come back to, labelled, forked, summarised, taken back."""

import pytest

from devtools.scripted.server import ScriptedProvider
from tests.browser.summary_walk import SummaryWalk, walk_server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ScriptedProvider() as provider, walk_server(tmp_path_factory.mktemp("walk"), provider) as running:
        yield running


def test_a_branch_is_left_with_a_summary_and_a_beginning_is_replaced_by_an_edited_one(server, browse):
    watched = browse(server)
    walk = SummaryWalk(watched, watched.open("/"))
    last = walk.leave_branch()
    walk.move_back(last)
    walk.label()
    assert walk.fork_from_before().stat().st_size > 0
    leaf = walk.lines()[-1]["id"]
    walk.summarise()
    walk.move_back(leaf)
