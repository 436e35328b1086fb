"""The page of an LLM run while it is planned: what arrives piece by piece equals what a later page shows."""

import os
import re
import signal
from itertools import pairwise, product
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from compaction_app.runs.presenter import TEXT_SHOWN, THOUGHT_SHOWN
from compaction_app.scripted.server import ScriptedProvider
from tests.browser.chromium import poll
from tests.browser.conftest import idle_place
from tests.browser.scenarios import (
    event_count,
    newest_run,
    proposal_count,
    run_number,
    start_run,
    title,
    titled_session,
    worker_pid,
)
from tests.run_factories import (
    HOST,
    PREPARED,
    RunFactory,
    add_turn,
    answered_event,
    asked_event,
    pieces_of,
    streamed_event,
)
from tests.scripted_models import added_provider
from tests.server import Server, place_in

ABNORMAL = 1006
"""The close code of a broken connection."""
PACE = 0.15
"""Seconds between two pieces from the scripted provider: slow enough to be observed."""
OFF_BRANCH = (
    "['heading', 'note', 'meter', 'brief', 'nothing', 'steps', 'total', 'traffic', 'asked', 'foot']"
    ".map((id) => document.getElementById(id).textContent.replace(/\\s+/g, ' ').trim())"
)
"""The panel beside the log, without times and buttons."""
LOG = "document.querySelector('#log').innerText"
GROWTH = """
  window.grown = {};
  new MutationObserver(() => {
    for (const one of document.querySelectorAll(".thought__text, .turn__text, .event--pending .event__raw > div")) {
      const texts = (window.grown[one.id] ||= []);
      if (one.textContent && texts.at(-1) !== one.textContent) texts.push(one.textContent);
    }
  }).observe(document, { childList: true, characterData: true, subtree: true });
"""
"""Records the successive contents of each growing element."""
IDS = "Array.from(document.querySelectorAll('#log [id]'), (one) => one.id)"


@pytest.fixture(scope="module")
def idle(idle_server):
    """A server whose runs only the test works on."""
    with idle_place(idle_server, "live") as mine:
        for name in ("piecewise", "kept", "placed", "aloud", "beside", "cut", "stopped", "long", "left"):
            mine.put(f"{name}.jsonl", titled_session(name))
        yield mine


def new_run(server: Server, name: str) -> tuple[RunFactory, str]:
    """A new run: the factory that writes its rows, and the path of its page."""
    page = start_run(server, server.session(title(name))) + "/log"
    return run_factory_of(server, page), page


def run_factory_of(server: Server, page: str) -> RunFactory:
    """The factory for the run of that page, which also keeps the run alive."""
    run = run_number(page)
    server.keep_alive(run)
    return RunFactory(server.data / "redline.sqlite3", run)


def up_to(page: Page, seq: int) -> None:
    """Wait until the page shows all events up to this one."""
    page.locator(f"#seen[data-upto='{seq}']").wait_for(state="attached")


def test_what_arrives_piece_by_piece_equals_what_a_later_page_shows(idle, browse):
    factory, path = new_run(idle, "piecewise")
    watched = browse(idle)
    page, later = watched.open(path), watched.open(path)
    page.evaluate("window.stayed = true")
    call = [["call", 0, "context_search_transcript"], ["arguments", 0, '{"pattern": "<b> &amp; \u202e']]
    moments = [
        [PREPARED],
        [asked_event(1)],
        [("retried", {"turn": 1, "attempt": 1, "seconds": 2.0, "why": f"{HOST} is overloaded."}), asked_event(1)],
        [streamed_event(1, ["thought", "I look "]), streamed_event(1, ["thought", "at <it>.\n\n"], ["text", "Now "])],
        [streamed_event(1, ["text", "this:\n  indented"]), streamed_event(1, *call)],
        [streamed_event(1, ["arguments", 0, '", "x": 1}'], ["call", 1, "context_delete"], ["call", 2, "third"])],
        [streamed_event(1, piece) for piece in pieces_of(["thought"], "T" * (THOUGHT_SHOWN + 5), 700)],
        [streamed_event(1, piece) for piece in pieces_of(["text"], "S " * TEXT_SHOWN, 9_000)],
        [answered_event(1, calls=3)],
    ]
    for moment in moments:
        factory.add_all(moment)
        is_same(page, later, factory.seq)
    factory.add_call(1, 0, "context_search_transcript", {"pattern": "x"}, sentence="No match.")
    is_same(page, later, factory.seq)
    factory.add_call(1, 1, "context_delete", {"deletions": []}, sentence="One deleted.", gain=90_000)
    factory.add("nudged", text="Delete more.")
    is_same(page, later, factory.seq)
    expect(page.locator(".event--pending")).to_contain_text("not run")
    add_turn(factory, 2, answer=False)
    is_same(page, later, factory.seq)
    factory.end("cancelled")
    is_same(page, later, factory.seq)
    expect(page.locator(".event--pending")).to_have_count(3)
    assert page.evaluate("window.stayed")


def is_same(page: Page, later: Page, seq: int) -> None:
    """Expect that a page that was open all the time equals one that is loaded now."""
    up_to(page, seq)
    later.reload()
    up_to(later, seq)
    for what in (LOG, IDS, OFF_BRANCH):
        assert page.evaluate(what) == later.evaluate(what), f"after event {seq}"


def test_expanded_reasoning_stays_expanded_when_its_turn_ends(idle, browse):
    factory, path = new_run(idle, "kept")
    page = browse(idle).open(path)
    factory.add_all([PREPARED, asked_event(1), streamed_event(1, ["thought", "T" * THOUGHT_SHOWN])])
    up_to(page, factory.seq)
    page.locator(".thought summary").click()
    factory.add_all([streamed_event(1, ["thought", "U" * 500]), answered_event(1)])
    up_to(page, factory.seq)
    expect(page.locator(".thought__text")).to_have_text("T" * THOUGHT_SHOWN + "U" * 500)
    page.reload()
    expect(page.locator(".thought__text")).to_contain_text(f"All {THOUGHT_SHOWN + 500:,} characters")


def test_the_scroll_position_is_kept_while_more_arrives(idle, browse):
    factory, path = new_run(idle, "placed")
    factory.add_all([PREPARED])
    for turn in range(1, 6):
        add_turn(factory, turn)
    page = browse(idle).open(path)
    up_to(page, factory.seq)
    place = page.locator("#log .turn").nth(2)
    place.scroll_into_view_if_needed()
    before = place.bounding_box()
    factory.add_all([asked_event(6)])
    for piece in pieces_of(["thought"], "I go on and on. " * 200, 400):
        factory.add_all([streamed_event(6, piece)])
    factory.add_all(
        [
            answered_event(6),
            asked_event(7),
            streamed_event(7, ["text", "A word. " * 400], ["call", 0, "context_delete"]),
        ]
    )
    up_to(page, factory.seq)
    poll(page, lambda: place.bounding_box() == before)


def test_the_panel_beside_the_log_is_always_up_to_date(idle, browse):
    path = start_run(idle, idle.session(title("beside"))) + "/log"
    watched = browse(idle)
    page, later = watched.open(path), watched.open(path)
    page.evaluate("window.stayed = true")
    expect(page.locator("#asked")).not_to_contain_text("transcript.jsonl")
    factory = run_factory_of(idle, path)
    factory.add_all([PREPARED])
    is_same(page, later, factory.seq)
    for said in ("50% of the tokens", "your messages, the last 2 entries", "Now the tests.", "transcript.jsonl"):
        expect(page.locator("#asked")).to_contain_text(said)
    expect(page.locator("#heading")).to_contain_text("is planning")
    expect(page).to_have_title(re.compile(r"^(\([0-9]+\) )?Plan [0-9]+, planning [0-9.]+%: .* · Redline$"))
    add_turn(factory, 1)
    is_same(page, later, factory.seq)
    factory.end("target_met")
    expect(page).to_have_title(re.compile(r"^(\([0-9]+\) )?Plan [0-9]+, planned, the target is met: .* · Redline$"))
    expect(page.locator("#heading")).to_contain_text(re.compile(r"made\s+2 calls in"))
    expect(page.get_by_text("You can leave this page")).to_have_count(0)
    is_same(page, later, factory.seq)
    assert page.evaluate("window.stayed")


def test_a_lost_connection_is_reported_and_resumed_where_it_broke(idle, browse):
    factory, path = new_run(idle, "cut")
    factory.add_all([PREPARED])
    watched = browse(idle)
    sockets: list[WebSocketRoute] = []
    is_down = False

    def connect(socket: WebSocketRoute) -> None:
        if is_down:
            socket.close(code=ABNORMAL)
            return
        sockets.append(socket)
        socket.connect_to_server()

    watched.context.route_web_socket(re.compile("/ws/plans/"), connect)
    page = watched.open(path)
    page.evaluate("window.stayed = true")
    up_to(page, factory.seq)
    poll(page, lambda: sockets)
    is_down = True
    sockets[-1].close(code=ABNORMAL)
    expect(page.locator("#lost")).to_contain_text("connection to the server is lost")
    add_turn(factory, 1)
    expect(page.locator("#log .turn")).to_have_count(0)
    is_down = False
    expect(page.locator("#lost")).to_be_hidden()
    factory.end("target_met")
    expect(page.locator("#acts").get_by_role("link", name=re.compile("^Review"))).to_be_visible()
    is_same(page, watched.open(path), factory.seq)
    assert len(sockets) == 2
    assert page.evaluate("window.stayed")


def test_a_run_is_stopped_from_its_page(idle, browse):
    factory, path = new_run(idle, "stopped")
    factory.add_all([PREPARED])
    page = browse(idle).open(path)
    page.get_by_role("button", name="Stop and review what there is").click()
    expect(page.locator("#facts")).to_contain_text("stopping")
    factory.end("cancelled")
    expect(page.locator("#facts")).to_contain_text("stopped")
    expect(page.locator("#note")).to_contain_text("It was stopped.")


def test_a_run_stopped_before_its_first_event_says_so(idle, browse):
    page = browse(idle).open(start_run(idle, idle.session(title("left"))) + "/log")
    expect(page.get_by_text("The first call appears here")).to_be_visible()
    log = urlsplit(page.url).path
    idle.post(log, log.replace("/log", "/stop"))
    expect(page.get_by_text("No call was made.")).to_be_visible()


IN_VIEW = """(selector) => {
  const one = document.querySelector(selector), box = one.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return one === top || one.contains(top);
}"""
"""Whether the middle of an element is visible and can be clicked."""


def wait_until_in_view(page: Page, selector: str) -> None:
    poll(page, lambda: page.evaluate(IN_VIEW, selector))


@pytest.mark.long
def test_the_stop_button_stays_visible_however_long_the_log_is(idle, browse):
    factory, path = new_run(idle, "long")
    factory.add_all([PREPARED])
    for turn in range(1, 9):
        add_turn(factory, turn)
    stop = "#acts form button"
    sizes = ((1_440, 900), (1_000, 700), (390, 844), (360, 640))
    for (width, height), script in product(sizes, (True, False)):
        options = {"viewport": {"width": width, "height": height}, "java_script_enabled": script}
        page = browse(idle, **options).open(path)
        for place in ("0", "document.body.scrollHeight / 2", "document.body.scrollHeight"):
            page.evaluate(f"scrollTo(0, {place})")
            wait_until_in_view(page, stop)
            if width >= 1_181:
                wait_until_in_view(page, "#traffic dd")
        page.evaluate("scrollTo(0, 0)")
        page.get_by_role("link", name="Newest").click()
        wait_until_in_view(page, "#log > li:last-child .turn__end, #log > li:last-child .event:last-child")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("link", name="Newest").press("Tab")
        expect(page.locator(stop)).to_be_focused()


def test_screen_readers_announce_results_of_calls_but_not_streamed_text(idle, browse):
    factory, path = new_run(idle, "aloud")
    page = browse(idle).open(path)
    factory.add_all([PREPARED])
    add_turn(factory, 1)
    factory.add_all(
        [asked_event(2), streamed_event(2, ["thought", "Hm."], ["text", "So."], ["call", 0, "context_delete"])]
    )
    up_to(page, factory.seq)

    def live(selector: str) -> str | None:
        """The `aria-live` value of the region of an element."""
        found: str | None = page.locator(selector).first.evaluate(
            "(one) => one.closest('[aria-live]').getAttribute('aria-live')"
        )
        return found

    for quiet in (".thought__text", ".turn__text", ".turn__end", ".event--pending .event__raw"):
        assert live(quiet) == "off"
    assert live("#ev-1") == "polite"


# ---- the scripted provider ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def provider():
    with ScriptedProvider(pace=PACE) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def server(shared_server, provider):
    """A server with the scripted provider's models."""
    with place_in(shared_server, "model") as mine:
        for name in ("watched", "killed", "asked"):
            mine.put(f"{name}.jsonl", titled_session(name, steps=40, words=200))
        prices = {"price_in": "3", "price_out": "15"}
        thinking = {"thinking_levels": ["low", "high"], "thinking_style": "budget"}
        base_url, options = provider.base_url("anthropic"), {"dialect": "anthropic", **prices, **thinking}
        with added_provider(mine, "scripted", base_url, "thinking-signed", **options):
            yield mine


def test_the_form_discloses_the_host_of_a_model_before_a_run(server, browse):
    page = browse(server).open(server.session(title("asked")) + "/compact")
    expect(page.locator("#planning")).to_have_text("Nothing leaves this machine.")
    page.get_by_label("scripted/thinking-signed").check()
    expect(page.locator("#planning")).to_contain_text(re.compile(r"127\.0\.0\.1:\d+, on this machine"))
    size = page.locator("#size")
    expect(size).to_contain_text(re.compile(r"[\d,]+ characters, about [\d,]+ tokens"))
    shown = size.inner_text()
    page.get_by_label("What you will work on next").fill("A long question about the parser, and what came of it.")
    page.get_by_label("Keep", exact=True).focus()
    expect(size).not_to_have_text(shown)
    page.get_by_label("Built in, offline").check()
    expect(page.locator("#planning")).to_have_text("Nothing leaves this machine.")
    expect(page.locator("input[name=disclosed]")).to_have_count(0)


def plan_with_the_model(page: Page, *, keep: str) -> None:
    """Send the form of a plan, for which the model is to think, and go from its panel to the planner's log."""
    page.get_by_label("Keep", exact=True).fill(keep)
    page.get_by_label("scripted/thinking-signed").check()
    page.get_by_label("Thinking", exact=True).select_option("high")
    expect(page.locator("#size")).to_contain_text("characters, about")
    page.get_by_role("button", name="Plan ↵").click()
    expect(page.get_by_role("heading", name="Planning")).to_be_visible()
    page.get_by_role("link", name="Planner’s log").click()
    page.wait_for_url(re.compile(r"/plans/\d+/log$"))


def longest(page: Page, kind: str) -> list[str]:
    """The successive contents of the element of this kind that changed most often."""
    grown: dict[str, list[str]] = page.evaluate("grown")
    return max((texts for place, texts in grown.items() if place.endswith(kind)), key=len, default=[])


def test_a_run_is_watched_while_it_thinks_and_stopped(server, provider, browse):
    watched = browse(server)
    watched.context.add_init_script(GROWTH)
    page = watched.open(server.session(title("watched")) + "/compact")
    plan_with_the_model(page, keep="10")
    page.evaluate("window.stayed = true")
    expect(page.locator("#heading")).to_contain_text("scripted/thinking-signed (high)")
    expect(page.locator("#traffic")).to_contain_text(re.compile(r"\d+ characters"))
    expect(page.locator("#meter .sum__now")).to_contain_text("proposed so far")
    expect(page.locator("#log .event:not(.event--pending)", has_text="context_delete").first).to_contain_text("−")
    for kind in ("thought", "text", "arguments"):
        server.wait_for(lambda kind=kind: len(longest(page, kind)) > 2)
    grown = [longest(page, kind) for kind in ("thought", "text", "arguments")]
    page.get_by_role("button", name="Stop and review what there is").click()
    closed = provider.wait_until_closed()
    assert closed.status == 200
    expect(page.locator("#facts")).to_contain_text("stopped")
    expect(page.locator("#note")).to_contain_text("It was stopped.")
    expect(page.locator(".turn__end").last).to_have_text(re.compile("The answer broke off.|No answer came."))
    expect(page.locator("#traffic")).to_contain_text("$")
    for texts in grown:
        assert all(later.startswith(sooner) for sooner, later in pairwise(texts))
    page.locator("#acts").get_by_role("link", name=re.compile("^Review")).click()
    expect(page.locator("li.proposal[data-undecided]")).not_to_have_count(0)


@pytest.mark.long
def test_a_killed_worker_is_reported_and_its_run_can_be_resumed(server, browse):
    """It kills the worker in the middle of an answer of its model, which takes its time."""
    page = browse(server).open(server.session(title("killed")) + "/compact")
    plan_with_the_model(page, keep="60")
    run = newest_run(server)
    server.wait_for(lambda: proposal_count(server, run) > 0)
    worker = worker_pid(server, run)
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    # The server waits for the length of a lease before it gives the run up.
    expect(page.locator("#facts")).to_contain_text("interrupted: its worker ended")
    expect(page.locator("#note")).to_contain_text("Nothing was written.")
    page.get_by_role("link", name="Resume…").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#facts")).to_contain_text("planned, the target is met")
    expect(page.locator("#acts").get_by_role("link", name=re.compile("^Review"))).to_be_visible()
    expect(page.locator(f"#seen[data-upto='{event_count(server, run)}']")).to_be_attached()
