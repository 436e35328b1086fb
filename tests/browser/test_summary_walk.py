"""Summaries in a browser, from a real session: left, come back to, labelled, forked, summarised, taken back."""

from urllib.request import Request

import pytest

from compaction_app.scripted.server import ScriptedProvider
from tests.browser.chromium import hold, poll
from tests.browser.summary_walk import SummaryWalk, walk_server
from tests.factories import turns_of_work
from tests.server import place_in

COUNT_TRIGGERS = "window.triggered = 0; addEventListener('htmx:trigger', () => window.triggered++)"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ScriptedProvider() as provider, walk_server(tmp_path_factory.mktemp("walk"), provider) as running:
        yield running


@pytest.mark.long
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


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_what_is_typed_while_a_save_waits_for_its_answer_is_saved_too(shared_server, browse, leaves):
    with place_in(shared_server, "drafted", agent="pi") as server:
        server.put("drafted.jsonl", turns_of_work(turns=8))
        summarise = server.session("drafted.jsonl") + "/summarise"
        draft = server.post(summarise, summarise, planner="hand")
        page = browse(server).open(draft)
        page.evaluate(COUNT_TRIGGERS)
        held = hold(page, f"**{draft}", times=1)
        text = page.get_by_label("The text the model will see")
        text.fill("The first half")
        poll(page, lambda: bool(held))
        sent = held[0].request
        saved = server.send(Request(sent.url, sent.post_data_buffer, {**sent.headers, "origin": server.base}))
        text.press_sequentially(", and the second.")
        if leaves:
            page.goto(f"{server.base}/settings")
        else:
            poll(page, lambda: page.evaluate("triggered") == 2)
            held[0].fulfill(body=saved)
        poll(page, lambda: "and the second." in server.get(draft))
