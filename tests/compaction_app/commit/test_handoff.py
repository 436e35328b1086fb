"""What a plan keeps of a thread of Amp, to which nothing can be written, is offered as Markdown."""

import json
from typing import Any

import pytest

from compaction_app.runs.commands import start_run
from sessions_app.index.indexer import index_file
from tests.html import element, links, text_of
from tests.runs import approve_proposals, finish_run
from tests.sessions import use_root


@pytest.fixture
def run(idle_root, settings):
    use_root(settings, idle_root, "amp")
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Begin."}]}]
    for number in range(8):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": f"f{number}"}}
        found = {"type": "tool_result", "toolUseID": f"t{number}", "run": {"result": f"output {number} " * 90}}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [found]}]
    messages.append({"role": "assistant", "content": [{"type": "text", "text": "All is read."}]})
    thread = {"v": 9, "id": "T-1", "created": 1_750_000_000_000, "title": "A thread", "messages": messages}
    path = idle_root / "T-1.json"
    path.write_text(json.dumps(thread), encoding="utf-8")
    planned = start_run(index_file(path), planner="embedded", requested_parameters={"preserve_recent": 1})
    return approve_proposals(finish_run(planned))


def test_a_thread_is_planned_for_a_hand_off_and_its_commit_page_offers_what_is_kept(browser, run):
    page = browser.get(run.session.get_absolute_url())
    assert text_of(page).count("keeps its threads on its servers") == 1
    assert {"Plan a hand-off…"} == {words for words, address in links(page) if address.endswith("/compact")}
    assert "Hand off " in text_of(element(browser.get(f"/plans/{run.pk}"), "#bar"))
    answer = browser.get(f"/plans/{run.pk}/confirm")
    assert "on its servers" in text_of(answer)
    assert f"/plans/{run.pk}/handoff.md" in [address for _, address in links(answer)]


def test_what_is_kept_is_downloaded_without_what_was_approved(browser, run):
    answer = browser.get(f"/plans/{run.pk}/handoff.md")
    text = answer.content.decode()
    assert answer["Content-Type"] == "text/markdown; charset=utf-8"
    assert text.startswith("## User\n\nBegin.\n")
    assert text.endswith("All is read.\n")
    assert 0 < len([number for number in range(8) if f"output {number} " in text]) < 8
    assert browser.get(f"/plans/{run.pk + 1}/handoff.md").status_code == 404
