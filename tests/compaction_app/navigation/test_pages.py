"""Promises of the pages of a move, a label and a fork: what they would do is said first, and nothing of it can act."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.entries.branches import branch_state
from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from tests.clients import page
from tests.compaction_app.hostile import TOGETHER
from tests.factories import chain, user
from tests.files import unchanged
from tests.html import assert_inert, element, elements, hidden_fields, links, missing, text_of, text_sent
from tests.sessions import add_session, use_root
from tests.sessions_app.agents.codex.rollouts import Rollout, answer, meta, user as prompt

from .test_moves import forked_talk


@pytest.fixture
def tree(idle_root):
    """The address of the tree of `forked_talk`, read as pi reads it."""
    url = add_session(idle_root, "a.jsonl", forked_talk())
    Session.objects.update(reader="pi")
    return f"{url}/tree"


def send(browser: Client, address: str, **data: Any) -> Any:
    """Send the form of a page, with what is hidden in it."""
    shown = page(browser, address, entry=data["entry"])
    return browser.post(address, {**hidden_fields(element(shown, "form.form")), **data}, follow=True)


def lines(root: Path) -> list[Any]:
    return [json.loads(line) for line in (root / "a.jsonl").read_bytes().splitlines()]


def test_the_tree_and_each_entry_of_a_session_lead_to_the_steps_that_its_agent_has(browser, tree):
    shown = dict(links(page(browser, tree, at="e3")))
    assert shown["Move here…"] == f"{tree}/move?entry=e3"
    assert (shown["Fork from here…"], shown["Label…"]) == (f"{tree}/fork?entry=e3", f"{tree}/label?entry=e3")
    assert shown["Move to the end of this row"] == f"{tree}/move?entry=e4&leaf=1"
    assert "gives you its text to send again" in text_of(page(browser, tree, at="e3"))
    tools = element(page(browser, tree.removesuffix("/tree")), "#entry-tools")
    leads = {text_of(one): one.attributes["data-from"] for one in elements(tools, "a[data-from]")}
    steps = {"Label…": "label", "Move here…": "move", "Fork from here…": "fork"}
    assert leads == {words: f"{tree}/{step}?entry=" for words, step in steps.items()}


def test_a_move_says_what_it_does_and_how_it_is_taken_back(browser, tree, idle_root):
    before = (idle_root / "a.jsonl").read_bytes()
    words = text_of(page(browser, f"{tree}/move", entry="e4"))
    assert not missing(words, "Continue from here?", "One line is appended, which adds nothing to the conversation.")
    assert not missing(words, "The model sees 4 messages there", "2 entries, which are kept in the session as a branch")
    assert "by a move back to" in words
    assert (idle_root / "a.jsonl").read_bytes() == before


def test_a_move_to_what_a_user_says_offers_it_again(browser, tree, idle_root):
    assert "you get its text" in text_of(page(browser, f"{tree}/move", entry="e3"))
    moved = send(browser, f"{tree}/move", entry="e3")
    assert "Moved: the next prompt takes the place of that message." in text_of(moved)
    assert text_of(element(moved, ".chosen__again")) == "The first way."
    assert lines(idle_root)[-1]["parentId"] == "e2"
    assert dict(links(moved))["move back"] == f"{tree}/move?entry=e6&leaf=1"
    assert "follows that entry" in text_of(send(browser, f"{tree}/move", entry="e6"))
    assert branch_state(Session.objects.get()).branch[-2].id == "e6"


def test_a_move_from_an_unanswered_message_is_taken_back_to_it(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", forked_talk()[:-1])
    Session.objects.update(reader="pi")
    back = page(browser, dict(links(send(browser, f"{url}/tree/move", entry="e4")))["move back"])
    browser.post(f"{url}/tree/move", hidden_fields(element(back, "form.form")))
    assert lines(idle_root)[-1]["parentId"] == "e5"


def test_a_move_that_was_confirmed_for_another_state_is_not_made(browser, tree, idle_root):
    with unchanged(idle_root / "a.jsonl"):
        answered = browser.post(f"{tree}/move", {"entry": "e4", "plan": "another"})
        assert "has changed since this was shown" in text_sent(answered, 409)


@pytest.mark.parametrize(("step", "more"), [("move", {}), ("label", {"label": "here"})])
def test_a_live_session_needs_a_confirmation(browser, tree, settings, step, more):
    settings.REDLINE = settings.REDLINE.model_copy(update={"live_minutes": 5})
    assert "a confirmation is missing" in text_sent(send(browser, f"{tree}/{step}", entry="e4", **more), 422)
    assert send(browser, f"{tree}/{step}", entry="e4", yes="live", **more).redirect_chain


def test_a_label_is_set_changed_and_removed(browser, tree):
    said = []
    for more in ({"label": "the better way"}, {"label": "best"}, {"label": "best", "remove": "label"}):
        said.append(text_of(element(send(browser, f"{tree}/label", entry="e5", **more), ".banner--done")))
        shown = page(browser, f"{tree}/label", entry="e5")
        assert element(shown, "#label").attributes.get("value", "") == ("" if "remove" in more else more["label"])
        assert ("Delete the label" in text_of(shown)) is ("remove" not in more)
    assert said == ["Labelled “the better way”.", "Labelled “best”.", "The label was deleted."]


def test_labels_are_found_in_the_tree_and_those_of_all_branches_lead_to_their_entries(browser, tree):
    for entry_id, words in (("e6", "the other way"), ("e2", "the start")):
        send(browser, f"{tree}/label", entry=entry_id, label=words)
    shown = page(browser, tree)
    found = [(one, to) for one, to in links(shown) if one.startswith("the ")]
    assert found == [("the start", f"{tree}?at=e2"), ("the other way", f"{tree}?at=e6")]
    searched = page(browser, tree, q="the start")
    assert "1 row with “the start”" in text_of(searched)
    assert f"{tree}?at=e2" in [address for _, address in links(searched)]
    send(browser, f"{tree}/label", entry="e2", remove="1")
    assert "the start" not in dict(links(page(browser, tree)))


def test_a_fork_ends_before_what_a_user_says(browser, tree, idle_root):
    before = (idle_root / "a.jsonl").read_bytes()
    words = text_of(page(browser, f"{tree}/fork", entry="e3"))
    assert "has the 2 entries of the branch before this message, byte for byte" in words
    assert "by deleting the new session" in words
    made = send(browser, f"{tree}/fork", entry="e3")
    fork = Session.objects.exclude(relative_path="a.jsonl").get()
    assert text_of(element(made, ".chosen__again")) == "The first way."
    assert fork.get_absolute_url() in [address for _, address in links(made)]
    assert f"--session {fork.path}" in text_of(made)
    assert [one.id for one in branch_state(fork).branch] == ["e1", "e2"]
    assert (idle_root / "a.jsonl").read_bytes() == before


@pytest.mark.parametrize("step", ["move", "label", "fork"])
def test_an_entry_that_does_not_exist_is_not_found(browser, tree, step):
    page(browser, f"{tree}/{step}", 404, entry="gone")
    assert browser.post(f"{tree}/{step}", {"entry": "gone", "label": "x"}).status_code == 404
    page(browser, tree, 404, again="gone")


def test_nothing_can_be_forked_before_the_first_message_and_a_fork_after_an_entry_is_shown(browser, tree):
    words = text_of(page(browser, f"{tree}/fork", 409, entry="e1"))
    assert not missing(words, "No fork can be made here", "Nothing comes before e1")
    made = send(browser, f"{tree}/fork", entry="e4")
    assert made.redirect_chain[-1][0] == Session.objects.exclude(relative_path="a.jsonl").get().get_absolute_url()


def test_an_agent_without_a_form_says_so_on_its_tree(browser, redline, tmp_path, settings):
    directory = tmp_path / "codex"
    Rollout(meta(), prompt("Mend it."), answer("Done.")).save(directory)
    use_root(settings, directory, "codex")
    index_roots()
    words = text_of(page(browser, f"{Session.objects.get().get_absolute_url()}/tree"))
    assert "Not offered Sessions of Codex have no entry that makes it continue after an earlier one." in words
    assert not missing(words, "Sessions of Codex have no labels.", "Fork from here…")
    assert "Move here" not in words


def test_nothing_that_a_session_says_can_act(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", chain(user("go"), *map(user, TOGETHER), user("x")))
    Session.objects.update(reader="pi")
    for number in (2, 3):
        for step in ("move", "label", "fork"):
            assert_inert(page(browser, f"{url}/tree/{step}", entry=f"e{number}"))
        assert_inert(page(browser, f"{url}/tree", again=f"e{number}"))
