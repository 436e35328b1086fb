"""The page of an undo, and `redline undo`, say how it is done before, and do exactly that."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.core.states import RunState
from compaction_app.models import Compaction, Run, Undo
from compaction_app.review.account import account_of
from sessions_app.index.indexer import index_file
from sessions_app.storage.session_loader import load_session
from tests.factories import assistant, call, message, session_bytes, user, working_session
from tests.files import backdate, place, snapshot, unchanged
from tests.html import elements, fields, link, missing, text_of, text_sent, texts, values
from tests.runs import approve_proposals, commit_approved, plan_session
from tests.sessions import use_root

from .scenes import deleted_by, scene

READERS = [
    ("atomic", "context-compaction"),
    pytest.param(("pi", "context-edit"), marks=pytest.mark.long),  # pages and command tell only a fork apart
    ("pi", "fork"),
]


@pytest.fixture(params=READERS, ids=lambda pair: pair[1])
def run(redline, tmp_path, settings, request):
    """A committed run."""
    agent, writer = request.param
    directory = tmp_path / "shown"
    path = place(directory / "work.jsonl", session_bytes(working_session(steps=6)))
    use_root(settings, directory, agent)
    run = approve_proposals(plan_session(index_file(path)))
    commit_approved(run, writer)
    backdate(path)
    run.refresh_from_db()
    return run


def undo(browser: Client, run: Run, *entries: str, yes: tuple[str, ...] = ()) -> Any:
    """Open the page, for these entries or for all of it, and confirm what it shows."""
    found = fields(browser.get(f"/plans/{run.pk}/undo", {"entry": entries} if entries else {"all": "1"}))
    assert found.get("entry", [])[: len(entries)] == list(entries)
    return browser.post(f"/plans/{run.pk}/undo", {"plan": found["plan"], "entry": entries, "yes": yes}, follow=True)


def test_the_result_leads_to_the_undo_which_says_what_will_happen_and_asks_for_a_choice(browser, run):
    address = link(browser.get(f"/plans/{run.pk}/result"), "Undo…")
    assert address == f"/plans/{run.pk}/undo"
    page = text_of(browser.get(address, {"all": "1"}))
    if Compaction.objects.get().created:
        assert not missing(page, "That file is deleted", "byte for byte as Redline wrote it")
    else:
        assert not missing(page, "One line is appended to the session", "New backup")
    asked = "Select what should come back first."
    assert asked not in text_of(browser.get(address))
    nothing = browser.get(address, {"choice": "shown"})
    assert asked in text_of(nothing)
    assert 'aria-describedby="choice-missing" autofocus' in nothing.content.decode()
    entry_id = Compaction.objects.get().origins[0]["entryId"]
    assert asked not in text_of(browser.get(address, {"choice": "shown", "entry": entry_id}))
    hostile = browser.get(address, {"entry": "<script>alert(1)</script>"})
    assert (hostile.status_code, b"<script>alert(1)" in hostile.content) == (409, False)
    assert not Undo.objects.exists()


def test_what_was_deleted_is_listed_in_the_groups_of_the_review_and_searched(browser, run):
    address, account = f"/plans/{run.pk}/undo", account_of(run)
    page = browser.get(address)
    shown = {title: int(words.split()[0]) for title, words in zip(*groups_on(page), strict=True)}
    reasons = Counter(unit.title for unit in account.approved)
    assert shown == reasons
    assert f"{len(account.approved)} deletions" in text_of(page)
    group = str(elements(page, "[name=group]")[0].attributes["value"])
    opened = browser.get(address, {"by": "reason", "open": group})
    keys = values(opened, "entry")
    assert len(keys) == next(iter(shown.values()))
    asked = browser.get(address, {"by": "reason", "group": group})
    assert fields(asked)["entry"] == keys
    # What is ticked stays ticked when other rows are shown.
    assert fields(browser.get(address, {"by": "tool", "entry": keys[0]}))["entry"] == [keys[0]]
    assert f"1 of {len(account.approved)} ticked" in text_of(browser.get(address, {"by": "tool", "entry": keys[0]}))
    words = account.approved[0].line.words
    found = browser.get(address, {"by": "reason", "q": words})
    assert 0 < sum(int(words.split()[0]) for words in groups_on(found)[1]) < len(account.approved)
    assert "No deletion matches" in text_of(browser.get(address, {"by": "reason", "q": "needle-of-this-name"}))
    assert browser.get(address, {"by": "reason", "q": "/(/"}).status_code == 409


def groups_on(page: Any) -> tuple[list[str], list[str]]:
    """The titles of the groups of deletions, and their counts."""
    return texts(page, ".deleted-group__name b"), texts(page, ".deleted-group__count")


def test_what_the_agent_read_again_since_is_ticked(browser, run):
    deleted = next(unit for unit in account_of(run).approved if unit.line.path)
    continued = Path(Compaction.objects.get().created or run.session.real_path())
    leaf_id = load_session(continued).leaf_id
    later = "2999-01-01T00:00:00.000Z"
    call_again = assistant(call("again", name="read", path=deleted.line.path))
    lines = [message("n1", leaf_id, call_again) | {"timestamp": later}]
    place(continued, continued.read_bytes() + session_bytes(lines))
    page = browser.get(f"/plans/{run.pk}/undo")
    ticked = [str(one.attributes["value"]) for one in elements(page, "[name=entry][checked]")]
    assert deleted.target.entry_id in ticked
    assert not missing(text_of(page), "Asked for since then", "Asked for again since then")


def test_an_undo_on_the_page_undoes_the_compaction(browser, run):
    result = undo(browser, run)
    assert result.redirect_chain == [(f"/plans/{run.pk}/result", 303)]
    page = text_of(result)
    assert not missing(page, "Undone: ", "All of it")
    assert "every recorded byte is still in the file" not in page
    run.refresh_from_db()
    assert run.state == RunState.RESTORED
    assert Undo.objects.get().is_whole
    backups = browser.get(f"{run.session.get_absolute_url()}/backups")
    assert ("Before an undo" in text_of(backups)) is bool(Undo.objects.get().entry_id)
    assert "Undo everything" not in text_sent(browser.get(f"/plans/{run.pk}/undo"), 409)
    for page in ("", "/log", "/result"):
        assert browser.get(f"/plans/{run.pk}{page}", follow=True).status_code == 200


def test_chosen_entries_are_shown_with_their_pairs_and_come_back(browser, run):
    target = next(raw for raw in Compaction.objects.get().origins if raw["kind"] == "entry")
    page = text_of(browser.get(f"/plans/{run.pk}/undo", {"entry": target["entryId"]}))
    assert not missing(page, "Bring back 2 entries?", "comes back with it")
    undo(browser, run, target["entryId"])
    run.refresh_from_db()
    assert run.state == RunState.COMMITTED
    row = Undo.objects.get()
    assert not row.is_whole
    assert target["entryId"] in {raw["entryId"] for raw in row.targets}
    assert "2 entries" in text_of(browser.get(f"/plans/{run.pk}/result"))


def test_what_has_changed_since_it_was_shown_is_not_undone(browser, run):
    shown, path = fields(browser.get(f"/plans/{run.pk}/undo?all=1"))["plan"], run.session.real_path()
    created = Compaction.objects.get().created
    changed = Path(created) if created else path
    leaf_id = load_session(changed).leaf_id
    place(changed, changed.read_bytes() + session_bytes([message("new", leaf_id, user("More."))]))
    with unchanged(changed):
        assert browser.post(f"/plans/{run.pk}/undo", {"plan": shown}).status_code == 409
    assert not Undo.objects.exists()


def test_a_live_session_needs_a_confirmation(browser, run):
    created = Compaction.objects.get().created
    path = Path(created) if created else run.session.real_path()
    backdate(path, hours=0)
    assert "a confirmation is missing" in text_sent(undo(browser, run), 422)
    assert not Undo.objects.exists()
    assert "Undone: " in text_of(undo(browser, run, yes=("live",)))


@pytest.fixture(params=READERS, ids=lambda pair: pair[1])
def compacted(redline, request):
    agent, writer = request.param
    return scene(redline, "atomic-0.8" if agent == "atomic" else agent, writer)


def test_the_command_says_what_would_happen_or_that_there_is_nothing_and_needs_a_confirmation(redline, compacted):
    before = snapshot(compacted.path.parent)
    assert redline.call("undo", compacted.path, "--yes", "--json").error == "no_compaction"
    assert redline.call("undo", compacted.path, "--compaction", "e3", "--yes", "--json").error == "not_ours"
    assert snapshot(compacted.path.parent) == before
    compacted.compact()
    before, refused = snapshot(compacted.path.parent), redline.call("undo", compacted.path)
    assert (refused.code, "would be undone" in refused.out) == (5, True)
    assert not missing(refused.err, "redline undo", "--yes")
    dry = redline.call("undo", compacted.path, "--dry-run", "--json").ok()
    assert (dry.json["undone"], dry.json["needs"], dry.json["whole"]) == (False, ["--yes"], True)
    assert snapshot(compacted.path.parent) == before


def test_the_command_undoes_the_latest_compaction(redline, compacted):
    before, committed = compacted.context(), compacted.compact()
    done = redline.call("undo", compacted.path, "--yes", "--json")
    assert (done.code, done.json["compaction"]) == (0, committed.made.entry_id)
    assert done.json["undone"] is True
    assert compacted.context() == before
    if committed.made.created is not None:
        assert done.json["deleted"] == str(committed.made.created)
        assert not committed.made.created.exists()
    else:
        assert (done.json["way"], done.json["entryId"]) == ("leaf", load_session(compacted.path).leaf_id)
    assert redline.call("undo", compacted.path, "--yes", "--json").error == "no_compaction"


def test_the_command_brings_entries_back_with_their_pairs(redline, compacted):
    committed = compacted.compact()
    entry_id = deleted_by(committed)[0].entry_id
    done = redline.call(
        "undo", compacted.path, "--compaction", committed.made.entry_id, "--entry", entry_id, "--yes", "--json"
    )
    assert done.code == 0
    back = {target["entryId"] for target in done.json["broughtBack"]}
    assert entry_id in back
    assert len(back) == 2
    assert not done.json["whole"]
    assert not Undo.objects.get().is_whole


def test_in_the_command_a_live_session_needs_its_own_confirmation(redline, compacted):
    touched = compacted.compact().made.created or compacted.path
    backdate(touched, hours=0)
    refused = redline.call("undo", compacted.path, "--yes", "--json")
    assert refused.error == "session_live"
    assert "--live" in json.loads(refused.out)["error"]["message"]
    assert redline.call("undo", compacted.path, "--yes", "--live").code == 0
