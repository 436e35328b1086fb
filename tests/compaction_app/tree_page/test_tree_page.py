"""Promises of the page of a tree: every branch and what can be done with it, for every agent, and nothing acts."""

import json
from typing import Any

import pytest

from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from tests.clients import page
from tests.compaction_app.hostile import TOGETHER
from tests.factories import assistant, branch_summary, call, chain, message, result, summary_compaction, text, user
from tests.files import unchanged
from tests.html import addresses, assert_inert, element, elements, link, links, missing, text_of, texts
from tests.opencode_stores import OpenCodeStore
from tests.sessions import add_session, use_root
from tests.sessions_app.agents.codex.rollouts import Rollout, answer, meta, rolled_back, user as prompt


def label(entry_id: str, parent: str, target: str, words: str) -> dict[str, Any]:
    line = {"type": "label", "id": entry_id, "parentId": parent, "timestamp": "t"}
    return {**line, "targetId": target, "label": words}


def forked() -> list[dict[str, Any]]:
    """A turn, two ways to go on of which the second is labelled, and a compaction on it.

    e1 user, e2 answer ─┬─ e3 user, e4 answer
                        └─ e5 user, e6 answer, e7 label, e8 compaction, e9 user, e10 answer
    """
    trunk = chain(
        user("Mend the parser."),
        assistant(text("I looked."), call("c1")),
        user("The first way."),
        assistant(text("Done so.")),
        user("The second way."),
        assistant(text("Done otherwise."), usage={"input": 900, "output": 100, "totalTokens": 1_000}),
    )
    trunk[5]["parentId"] = "e2"
    trunk += [
        label("e7", "e6", "e5", "better"),
        {"id": "e8", "parentId": "e7", "timestamp": "t", **summary_compaction("All of it, in short.", "e5")},
        message("e9", "e8", user("And now?")),
        message("e10", "e9", assistant(text("Now rest."))),
    ]
    return [{**one, "timestamp": f"2026-01-12T10:{place:02}:00.000Z"} for place, one in enumerate(trunk)]


def long_talk(turns: int) -> list[dict[str, Any]]:
    return chain(*(said for at in range(turns) for said in (user(f"Part {at}."), assistant(text("Done.")))))


@pytest.fixture
def address(idle_root):
    return f"{add_session(idle_root, 'a.jsonl', forked(), 'pi')}/tree"


def rows(source: Any) -> list[str]:
    return texts(source, ".knot__text")


def test_every_branch_is_there_with_its_fork_labels_and_leaf_and_leads_to_what_a_summary_lost(browser, address):
    shown = page(browser, address)
    assert rows(shown) == [
        *("Mend the parser.", "The first way.", "The second way."),
        *("Compaction by Atomic: a summary of 20 characters", "And now?"),
    ]
    knots = texts(shown, ".knot")
    parts = {0: "1 fork", 1: "turn 2, other branch, ends", 2: "better", 4: "turn 3 the agent continues here"}
    assert [at for at, words in parts.items() if words not in knots[at]] == []
    assert not missing(text_of(shown), "2 branches, 1 compaction", "10 entries, 4 turns")
    knot = next(one for one in elements(shown, ".knot") if "Compaction by Atomic" in text_of(one))
    there = link(knot, "what it lost")
    assert element(browser.get(there), "h1")
    assert [words for words, _ in links(shown)].count("what it lost") == 1
    assert link(page(browser, address, at=there.rpartition("entry=")[2]), "What the summary lost") == there


def test_the_tokens_of_the_rows_add_up_to_the_headline_and_a_session_without_entries_says_so(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", long_talk(30))
    shown = page(browser, f"{url}/tree")
    total = sum(int(found or 0) for found in texts(shown, ".knot__tokens"))
    assert f"{total:,} tokens in all" in text_of(shown)
    url = add_session(idle_root, "b.jsonl", chain())
    assert "No branches yet" in text_of(page(browser, f"{url}/tree"))
    assert "no entries yet" in text_of(page(browser, f"{url}/tree/compare"))


def test_a_selected_entry_says_what_can_be_done_there_and_what_the_provider_reported(browser, address):
    shown = page(browser, address, at="e3")
    selected = elements(shown, "[aria-current=true].knot__text")
    assert [text_of(one) for one in selected] == ["The first way."]
    session = address.removesuffix("/tree")
    found = links(elements(shown, "aside")[0])
    assert ("Open in the session", f"{session}/entries/e3") in found
    assert ("Compare with the active branch", f"{address}/compare?a=e4&b=e10") in found
    assert "Below it nothing" in text_of(shown)
    words = text_of(page(browser, address, at="e5"))
    assert not missing(words, "Model saw then 1,000 tokens, reported", "Below it 1 branch, 3 entries")


def test_a_fork_is_made_of_what_the_row_ends_with(browser, address, idle_root):
    with unchanged(idle_root / "a.jsonl"):
        assert "Fork from here" in text_of(page(browser, address, at="e3"))
        answered = browser.post(f"{address.removesuffix('/tree')}/fork", {"entry": "e4"}, follow=True)
        fork = Session.objects.exclude(relative_path="a.jsonl").get()
        assert answered.redirect_chain[-1][0] == fork.get_absolute_url()
    again = page(browser, address)
    assert (fork.heading, fork.get_absolute_url()) in links(again)


def test_what_cannot_be_forked_is_not_offered_to_be_and_a_file_that_is_gone_is_reported(browser, address, idle_root):
    Session.objects.update(version=2)
    assert "Fork from here" not in text_of(page(browser, address, at="e3"))
    (idle_root / "a.jsonl").unlink()
    assert "does not exist" in text_of(page(browser, address, 409))


def test_the_session_page_links_to_its_tree_and_an_entry_that_does_not_exist_is_not_found(browser, address):
    for query in ("?at=gone", "?from=gone", "?open=gone", "/compare?a=gone", "/compare?b=gone"):
        page(browser, address + query, 404)
    session = address.removesuffix("/tree")
    assert address in addresses(browser.get(session))
    assert f"{address}?at=e4" in addresses(browser.get(session, {"leaf": "e4"}))


def test_turns_without_a_fork_are_folded_and_open_in_place_or_around_the_selected_row(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", long_talk(8))
    shown = page(browser, f"{url}/tree")
    assert rows(shown) == ["Part 0.", "6 turns without a fork, 12 entries", "Part 7."]
    part = browser.get(dict(links(shown))["6 turns without a fork, 12 entries"], headers={"HX-Request": "true"})
    assert rows(part) == [f"Part {number}." for number in range(8)]
    assert elements(part, "header") == []
    # Selecting another row leaves it open.
    assert rows(browser.get(dict(links(part))["Part 4."])) == rows(part)
    folds = ("3 turns without a fork, 6 entries", "2 turns without a fork, 4 entries")
    around = ["Part 0.", folds[0], "Part 4.", folds[1], "Part 7."]
    assert rows(page(browser, f"{url}/tree", at="e9")) == around


def test_a_long_tree_is_shown_in_pages_around_the_leaf(browser, idle_root):
    """Each turn is followed by a branch that was left."""
    talk = chain(user("Turn 0."))
    trunk = "e1"
    for number in range(1, 251):
        talk.append(message(f"s{number}", trunk, user(f"Aside {number}.")))
        talk.append(message(f"t{number}", trunk, user(f"Turn {number}.")))
        trunk = f"t{number}"
    url = add_session(idle_root, "a.jsonl", talk)
    shown = page(browser, f"{url}/tree")
    assert (len(rows(shown)), rows(shown)[-1]) == (200, "Turn 250.")
    assert "501 rows" in text_of(shown)
    seen = rows(shown)
    while "Earlier rows" in dict(links(shown)):
        shown = page(browser, dict(links(shown))["Earlier rows"])
        seen = [*(row for row in rows(shown) if row not in seen), *seen]
    assert seen == ["Turn 0.", *[f"{kind} {number}." for number in range(1, 251) for kind in ("Aside", "Turn")]]
    assert "Later rows" in dict(links(shown))


def test_labels_and_texts_are_found_and_figures_are_in_the_measure_of_the_context(browser, address):
    assert rows(page(browser, address, q="WAY.")) == ["The first way.", "The second way."]
    assert rows(page(browser, address, q="bett")) == ["The second way."]
    nothing = page(browser, address, q="nowhere")
    assert rows(nothing) == []
    assert "0 rows with “nowhere”" in text_of(nothing)
    Session.objects.update(context_tokens=5_000, context_basis="about", context_ratio=1.0)
    as_estimated = texts(page(browser, address), ".knot__tokens")
    Session.objects.update(context_ratio=2.0)
    doubled = texts(page(browser, address), ".knot__tokens")
    assert [int(one or 0) for one in doubled] == [2 * int(one or 0) for one in as_estimated]
    compared = page(browser, f"{address}/compare", a="e4")
    assert texts(compared, "tbody .numeric")[0] == doubled[1]
    # A larger context by what the other branch has more, in the same measure.
    assert "Context at its end: about 5,000 tokens" in text_of(compared)


def test_two_branches_are_compared_turn_by_turn_the_active_one_by_default(browser, address):
    shown = page(browser, f"{address}/compare", a="e4", b="e10")
    for words in ("In common: 1 turn, 2 entries", "Only A: 1 turn, 2 entries", "Only B: 2 turns, 6 entries"):
        assert words in text_of(shown)
    assert [texts(row, "a") for row in elements(shown, "tbody tr")] == [
        ["The first way.", "The second way."],
        ["Compaction by Atomic: a summary of 20 characters"],
        ["And now?"],
    ]
    numbers = [texts(row, ".numeric") for row in elements(shown, "tbody tr")]
    totals = texts(shown, ".versus__total .numeric")
    assert int(totals[0]) == int(numbers[0][0])
    assert int(totals[1]) == int(numbers[0][1]) + sum(int(row[-1]) for row in numbers[1:])
    shown = page(browser, f"{address}/compare", a="e4")
    assert "B, the active branch" in text_of(shown)
    assert text_of(page(browser, dict(links(shown))["Exchange the sides"])).count("A, the active branch") == 1
    assert "Both are the same branch" in text_of(page(browser, f"{address}/compare"))


def test_a_long_comparison_is_shown_in_pages(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", [*long_talk(130), message("x", "e2", user("Aside."))])
    shown = page(browser, f"{url}/tree/compare", a="e260", b="x")
    assert len(elements(shown, "tbody tr")) == 100
    later = page(browser, dict(links(shown))["Later turns"])
    assert len(elements(later, "tbody tr")) == 29
    assert "turn 102," in text_of(later)


def test_what_codex_took_back_is_a_branch_that_ends(browser, known_root, settings):
    use_root(settings, known_root, "codex")
    turns = (prompt("One."), answer("1"), prompt("Two."), answer("2"), rolled_back(1), prompt("Three."))
    Rollout(meta(), *turns).save(known_root)
    index_roots()
    shown = page(browser, f"{Session.objects.get().get_absolute_url()}/tree")
    assert rows(shown) == ["One.", "Two.", "1 turn taken back", "Three."]
    assert "other branch, ends" in texts(shown, ".knot")[1]
    assert "2 branches" in texts(shown, "main h2")[0]
    assert "compaction" not in texts(shown, "main h2")[0]


def test_what_opencode_reverted_is_a_branch_that_ends(browser, known_root, settings):
    use_root(settings, known_root, "opencode")
    store = OpenCodeStore(known_root)
    store.session()
    store.user("One.")
    store.assistant("Done.")
    store.run("UPDATE session SET revert = ?", json.dumps({"messageID": store.user("Two.")}))
    index_roots()
    shown = page(browser, f"{Session.objects.get().get_absolute_url()}/tree")
    assert "2 branches" in texts(shown, "main h2")[0]
    (two,) = [knot for knot in texts(shown, ".knot") if "Two." in knot]
    assert "other branch, ends" in two


def test_a_branch_summary_says_what_was_left_and_a_command_is_shown_without_its_tags(browser, idle_root):
    left = {"id": "s", "parentId": "e2", "timestamp": "t", **branch_summary("A lock was tried.")}
    url = add_session(idle_root, "a.jsonl", [*long_talk(1), left])
    assert rows(page(browser, f"{url}/tree")) == ["Part 0.", "branch summary A lock was tried."]
    command = "<command-name>/exit</command-name>\n<command-args>now</command-args>"
    said = "<local-command-stdout>Bye</local-command-stdout>"
    url = add_session(idle_root, "a.jsonl", chain(user(command), user(said)))
    assert rows(page(browser, f"{url}/tree")) == ["command /exit now", "command Bye"]


@pytest.mark.parametrize("hostile", TOGETHER)
def test_what_a_session_contains_is_inert(browser, idle_root, hostile):
    talk = chain(user(hostile), assistant(text(hostile)), result("c1", hostile, name=hostile))
    talk += [
        message(hostile, "e3", user(hostile)),
        message("side", "e1", user(hostile)),
        label("l", hostile, "e1", hostile),
        {"id": "z", "parentId": "l", "timestamp": hostile, **summary_compaction(hostile, "e1")},
    ]
    url = add_session(idle_root, "a.jsonl", talk)
    shown = hostile.encode("utf-8", "replace").decode()
    for address, query in (("tree", {}), ("tree", {"q": shown}), ("tree/compare", {"a": "side"})):
        assert_inert(page(browser, f"{url}/{address}", **query))
