"""Promises of the pages of costs: sums add up, links lead to entries, and no session is read for the page of all."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab_app.hindsight import service, views
from lab_app.hindsight.service import due_sessions, update
from lab_app.hindsight.views import view_overview
from lab_app.models import CompactionCost, HindsightCheck
from redline.configuration import Configuration, PriceSetting, RootSetting
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from tests.claude_sessions import ClaudeSession, text as claude_text
from tests.clients import page
from tests.compaction_app.hostile import TOGETHER
from tests.factories import (
    assistant,
    call,
    chain,
    message,
    result,
    session_bytes,
    summary_compaction,
    text,
    user,
    working_session,
)
from tests.files import place
from tests.html import assert_inert, elements, links, missing, text_of, text_sent, texts
from tests.sessions import add_session
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import Rollout

FILE = "\n".join(f"    value_{number:03} = compute(number, {number})" for number in range(200))


def talk(path: str = "src/cache_store.py", again: bool = True, output: str = FILE) -> list[dict[str, Any]]:
    """e1 to e10: a file is read, goes with a summary (e7), and is read again."""
    return chain(
        user("Mend the parser."),
        assistant(call("c1", path=path)),
        result("c1", output),
        assistant(text("so it goes on and on with plain words only " * 800)),
        user("Go on."),
        assistant(text("Yes.")),
        {**summary_compaction("It was mended.", "e5"), "timestamp": "2026-02-03T10:00:00Z"},
        assistant(call("c2", path=path if again else "src/other_name.py")),
        result("c2", output if again else "nothing there"),
        assistant(text("I change value_007 and other_value.")),
    )


@pytest.fixture
def url(idle_root):
    return add(idle_root, "a.jsonl")


def add(root: Path, name: str, recorded: list[dict[str, Any]] | None = None) -> str:
    return add_session(root, name, recorded or talk(), "pi")


def later() -> datetime:
    return timezone.now() + timedelta(minutes=6)


def test_the_page_of_a_session_links_what_came_back_and_pages_of_a_compaction_load_it(browser, url):
    answer = page(browser, f"{url}/hindsight")
    assert not missing(text_of(answer), "Read again after the summary e7", "After a tool had shown them again: 1")
    places = (("e3", "e3"), ("e9", "e9"), ("value_007", "e9"))
    assert not missing(links(answer), *((words, f"{url}/entries/{place}") for words, place in places))
    for entry, words in (("e7", "Read again after the summary e7"), ("nothing", "It is not on this branch")):
        assert words in text_of(page(browser, f"{url}/hindsight", entry=entry))
    for address in (f"{url}/lost", f"{url}/timeline"):
        (section,) = elements(page(browser, address), "[aria-labelledby=since]")
        asked = str(section.attributes["hx-get"])
        assert asked == f"{url}/hindsight?entry=e7"
        part = browser.get(asked, headers={"HX-Request": "true"})
        assert "Saved" in text_of(part)
        assert not elements(part, "header")


def test_a_session_that_is_gone_is_reported_noted_and_not_tried_again(browser, url, idle_root):
    (idle_root / "a.jsonl").unlink()
    assert "does not exist" in text_of(browser.get(f"{url}/hindsight"))
    assert "does not exist" in text_sent(browser.get(f"{url}/hindsight?entry=e7", headers={"HX-Request": "true"}), 200)
    assert update(later()) == 1
    assert "does not exist" in HindsightCheck.objects.get().fault
    assert update(later()) == 0


def test_sums_add_up(browser, idle_root):
    for number in range(3):
        add(idle_root, f"{number}.jsonl", talk(again=number > 0))
    assert update(later()) == 3
    view = view_overview(later())
    assert (view.total.compactions, view.sessions, view.waiting) == (3, 3, 0)
    for rows in (view.agents, view.makers, view.months):
        assert sum((row.sums for row in rows[1:]), rows[0].sums) == view.total
    assert view.total.sent == sum(row.sent for row in CompactionCost.objects.all()) > 0
    assert [row.month for row in view.months] == ["2026-02"]
    assert len(view.costs) == 2


def test_the_page_shows_what_the_session_shows_and_an_agent_and_a_month_can_be_chosen(browser, url):
    update(later())
    row = CompactionCost.objects.get()
    overview = browser.get("/insights/costs")
    assert str(row.sent) in [one.attributes["value"] for one in elements(overview, "td.numeric data")]
    assert f"{row.sent:,}" in texts(browser.get(f"{url}/hindsight"), "td.numeric")
    assert (row.files, row.by_redline, row.agent) == (1, False, "atomic")
    assert any(address == f"{url}/hindsight?entry=e7" for _, address in links(overview))
    chosen = {("atomic", "2026-02"): 1, ("codex", ""): 0, ("", "2026-03"): 0, ("", "none"): 0}
    assert {one: view_overview(later(), *one).total.compactions for one in chosen} == chosen
    assert "No compaction matches" in text_of(page(browser, "/insights/costs?agent=codex"))


def test_a_wrong_choice_is_refused_before_anything_is_counted(browser, redline):
    for query in ("agent=nobody", "month=soon", "month=0000-99", "month=99999-01"):
        page(browser, f"/insights/costs?{query}", 409)
    with pytest.raises(BadInput):
        view_overview(datetime(2026, 1, 1, tzinfo=UTC), "nobody")


def test_nothing_is_read_for_the_page_of_all_sessions(browser, idle_root, monkeypatch):
    monkeypatch.setattr(views, "MOST", 3)
    for number in range(5):
        add(idle_root, f"{number}.jsonl")
    update(later())
    monkeypatch.setattr(service, "branch_state", None)
    with CaptureQueriesContext(connection) as queries:
        answer = browser.get("/insights/costs")
    assert "The first 3 are shown; 2 more are not." in text_of(answer)
    assert len(queries) < 15


def test_before_anything_was_looked_at_and_without_compactions_the_page_says_so(browser, url, idle_root):
    Session.objects.update(mtime_ns=0)
    assert "1 session not looked at yet" in text_of(browser.get("/insights/costs"))
    address = add(idle_root, "b.jsonl", chain(user("Go."), assistant(text("Yes."))))
    assert "No request has followed a compaction on this branch." in text_of(page(browser, f"{address}/hindsight"))


def test_a_session_is_looked_at_once_for_each_change_and_version(idle_root, url, monkeypatch):
    assert (update(later()), update(later())) == (1, 0)
    place(idle_root / "a.jsonl", session_bytes([*talk(), {**talk()[-1], "id": "e11", "parentId": "e10"}]))
    index_file(idle_root / "a.jsonl")
    Session.objects.update(mtime_ns=time.time_ns())
    assert not due_sessions(timezone.now()).exists(), "it was written to just now"
    assert (update(later()), CompactionCost.objects.get().requests) == (1, 3)
    monkeypatch.setattr(service, "VERSION", 99)
    assert (update(later()), HindsightCheck.objects.get().version) == (1, 99)


@pytest.mark.parametrize("hostile", TOGETHER)
def test_hostile_names_are_inert(browser, idle_root, hostile):
    recorded = talk(path=f"src/{hostile}.py", output=f"{FILE}\n{hostile}")
    address = add(idle_root, "a.jsonl", [*recorded, {**recorded[-1], "id": hostile, "parentId": "e10"}])
    update(later())
    for shown in (f"{address}/hindsight", "/insights/costs", f"{address}/hindsight?entry=%00"):
        assert_inert(browser.get(shown))


def test_the_command_sums_up_the_index(redline, idle_root, url):
    found = redline.call("costs", "--json").json
    assert found["total"]["compactions"] == 1
    assert found["total"]["readAgain"] == CompactionCost.objects.get().sent
    assert [row["agent"] for row in found["agents"]] == ["atomic"]
    assert [row["month"] for row in found["months"]] == ["2026-02"]
    assert redline.call("costs", "--update", "--json").json == {"sessions": 0}
    assert "2026-02" in redline.call("costs").out


def test_prices_give_money(browser, idle_root, settings):
    recorded = talk()
    recorded[-1]["message"] |= {"provider": "someone", "model": "m-small"}
    address = add(idle_root, "a.jsonl", recorded)
    update(later())
    assert view_overview(later()).total.cost == ""
    price = PriceSetting(input=3.0, cache_read=0.3, cache_write=3.75)
    settings.REDLINE = settings.REDLINE.model_copy(update={"prices": {"m-small": price}})
    HindsightCheck.objects.all().delete()
    update(later())
    row = CompactionCost.objects.get()
    assert row.dollars_cost == pytest.approx(row.again * 3.75 / 1e6), "one request sent it"
    assert view_overview(later()).total.priced == 1
    assert "from your configuration" in text_of(browser.get(f"{address}/hindsight"))


def test_a_compaction_of_redlines_is_looked_back_on(browser, redline, idle_root):
    add_session(idle_root, "a.jsonl", working_session())
    path = idle_root / "a.jsonl"
    written = redline.call("compact", path, "--yes", "--planner", "embedded", "--json").json
    gone = next(one["entryId"] for one in written["deletedTargets"] if one["kind"] == "entry")
    step = int(gone[1:]) // 2
    again = call("again", path=f"src/part_{step}.py")
    output = " ".join(f"line_{step}_{number}" for number in range(300))
    leaf = written["entryId"]
    with path.open("ab") as file:
        for number, said in enumerate([assistant(again), result("again", output), assistant(text("So."))]):
            file.write(session_bytes([message(f"n{number}", leaf, said)]))
            leaf = f"n{number}"
    index_file(path)
    update(later())
    row = CompactionCost.objects.get()
    assert (row.entry_id, row.by_redline, row.requests, row.files) == (written["entryId"], True, 2, 1)
    assert row.again > 0
    (section,) = elements(browser.get(f"/plans/{written['run']}/result"), "[aria-labelledby=since]")
    part = browser.get(str(section.attributes["hx-get"]), headers={"HX-Request": "true"})
    assert f"{row.sent:,} tokens" in text_of(part)
    assert "by Redline" in text_of(browser.get(str(section.attributes["hx-get"])))


def codex_thread() -> Rollout:
    """A command is run again after a summary; only its time differs."""
    timed = f"Wall time: {{}} seconds\nOutput:\n{FILE}"
    run = {"cmd": "sed -n 1,200p src/cache_store.py"}
    return Rollout(
        rollouts.meta(),
        rollouts.turn_context(),
        rollouts.user("Mend it."),
        rollouts.call("c1", **run),
        rollouts.output("c1", timed.format("0.1")),
        rollouts.answer("Yes."),
        rollouts.summarised("It was mended."),
        rollouts.user("Go on."),
        rollouts.call("c2", **run),
        rollouts.output("c2", timed.format("0.2")),
        rollouts.answer("I change value_007."),
    )


def claude_session() -> ClaudeSession:
    """A file is read again after a boundary."""
    session = ClaudeSession("Mend it.")
    for number in (1, 2):
        read = {"type": "tool_use", "id": f"r{number}", "name": "Read"}
        session.reply(f"m{number}", {**read, "input": {"file_path": "/home/dev/project/src/cache_store.py"}})
        session.result(f"r{number}", FILE)
        session.reply(f"s{number}", claude_text("I change value_007."))
        if number == 1:
            session.boundary(session.user("And now?"))
            session.user("It was mended.", isCompactSummary=True)
    return session


@pytest.mark.parametrize(
    ("agent", "recorded", "kind"), [("codex", codex_thread, "command"), ("claude-code", claude_session, "file")]
)
def test_sessions_of_other_agents(redline, tmp_path, settings, agent, recorded, kind):
    root = tmp_path / agent
    settings.REDLINE = Configuration(roots=[RootSetting(path=root, agent=agent)])
    path = place(root / f"rollout-2026-01-05T10-00-00-{rollouts.THREAD}.jsonl", recorded().content)
    index_roots()
    ((found,),) = [one["compactions"] for one in redline.call("costs", path, "--json").json["sessions"]]
    assert [one["kind"] for one in found["fetched"]] == [kind]
    assert found["requests"] == 2
    assert [(one["reference"], one["way"]) for one in found["returned"]][-1] == ("value_007", "fetched")
    update(later())
    row = CompactionCost.objects.get()
    assert (row.agent, row.requests, row.again > 0) == (agent, 2, True)


def test_names_that_cannot_be_printed_are_shown(browser, redline, idle_root):
    address = add(idle_root, "a.jsonl", talk(path=f"src/\ud800 a\x00b \u202eyp.a\n{'é' * 500}.py"))
    assert browser.get(f"{address}/hindsight").status_code == 200
    assert redline.call("costs", idle_root / "a.jsonl", "--open-as", "pi", "--entry", "e7").code == 0
    assert redline.call("costs", idle_root / "a.jsonl", "--open-as", "pi", "--json").json["sessions"]
