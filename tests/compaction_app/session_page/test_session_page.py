"""Promises of the page of one session: everything in the file has its place on it, and nothing of it can act."""

import gc
import json
import posixpath
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from compaction_app.core.undo_ways import UndoWay
from compaction_app.entries.branches import branch_state
from compaction_app.entries.links import entry_address, text_address
from compaction_app.models import Backup, Compaction, Undo
from compaction_app.runs.commands import start_run
from sessions_app.document.document import forget_documents
from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from tests.compaction_app.hostile import TOGETHER
from tests.factories import (
    HEADER,
    assistant,
    block,
    branch_summary,
    call,
    chain,
    compaction,
    context_edit,
    conversation,
    message,
    result,
    session_bytes,
    summary_compaction,
    text,
    thinking,
    user,
    verbatim_compaction,
    whole,
)
from tests.html import (
    Element,
    assert_inert,
    classes,
    element,
    elements,
    ids,
    link,
    links,
    missing,
    text_of,
    text_sent,
    texts,
)
from tests.installation import refusal
from tests.sessions import add_session


class Pages:
    """The pages of sessions in a root."""

    def __init__(self, browser: Client, root: Path) -> None:
        self.browser, self.root = browser, root

    def add(self, recorded: list[Any], name: str = "a.jsonl") -> str:
        """Write a session and index it; returns the URL of its page."""
        return add_session(self.root, name, recorded)

    def get(self, address: str, **query: str) -> Any:
        answer = self.browser.get(address, query)
        assert answer.status_code == 200, answer.content
        return answer

    def words(self, address: str, **query: str) -> str:
        return text_of(self.get(address, **query))

    def shown(self, *recorded: Any, **query: str) -> Any:
        """The page of a session of these messages and entries."""
        return self.get(self.add(chain(*recorded)), **query)


@pytest.fixture
def pages(browser, idle_root):
    return Pages(browser, idle_root)


def entry_of(page: Any, entry_id: str, block: int = 0) -> Element:
    """An entry as it is drawn, or one of its later blocks."""
    found: Element | None = element(page, f'[id="{entry_id}"]')
    while found is not None and block:
        found = found.next
        block -= found is not None and found.is_element_node
    assert found is not None
    return found


def test_a_damaged_line_is_shown_in_its_place_and_many_leave_the_page_short(pages):
    recorded = chain(user("before it"), assistant(text("after it")))
    address = pages.add([*recorded[:2], b'{"type":"message","id":"torn<b>', *recorded[2:], b"\0" * 900])
    page = pages.get(address, view="all")
    torn, zeros = ("line 3", "torn<b>", "is not valid JSON"), ("line 5", "900 bytes in all")
    for shown, words in zip(texts(page, "article"), (["before it"], torn, ["after it"], zeros), strict=True):
        assert not missing(shown, *words)
    assert "line 3" not in pages.words(address)
    assert link(page, "2 damaged lines").endswith("at=e2")
    recorded = chain(user("one"), user("two"))
    answer = pages.browser.get(pages.add([*recorded[:2], *[b'"' * 4_000] * 1_200, recorded[2]]), {"view": "all"})
    assert "more damaged lines lie here" in text_of(answer)
    assert len(answer.content) < 250_000


def test_a_torn_last_line_is_shown_at_the_end(pages):
    (pages.root / "a.jsonl").write_bytes(session_bytes(chain(user("one"))) + b'{"type":"mess')
    index_roots()
    one, torn = texts(pages.get(f"/sessions/{Session.objects.get().root_id}/a.jsonl", view="all"), "article")
    assert "one" in one
    assert '{"type":"mess' in torn


def test_a_missing_parent_is_reported_at_its_entry(pages):
    page = pages.get(pages.add([HEADER, message("x1", "nowhere", user("an orphan"))]))
    assert "has a parent that does not exist" in text_of(entry_of(page, "x1"))
    assert "1 error in its tree" in text_of(page)


def test_notes_say_their_value(pages):
    details = {"readFiles": ["a.py", "b.py"], "modifiedFiles": ["c.py"]}
    page = pages.shown(
        user("go"),
        {"type": "model_change", "provider": "anthropic", "modelId": "claude-x"},
        {"type": "thinking_level_change", "thinkingLevel": "high"},
        {"type": "session_info", "name": "Trailing commas"},
        branch_summary("what was tried before") | {"fromId": "e2", "details": details, "fromHook": True},
        {"type": "usage", "what": "ever"},
        view="all",
    )
    files = ("2 files read", "1 file modified")
    said = {
        "e2": ["anthropic claude-x"],
        "e3": ["high"],
        "e4": ["Trailing commas"],
        "e5": ["what was tried before", "summarises what was left at e2", *files, "written by an extension"],
        "e6": ["not part of the model"],
    }
    for entry_id, words in said.items():
        assert not missing(text_of(entry_of(page, entry_id)), *words)
    assert "branch summary" in text_of(entry_of(page, "e5"))


def test_a_label_marks_its_entry_and_the_turn(pages):
    page = pages.shown(
        user("go"),
        assistant(text("the good one")),
        {"type": "label", "targetId": "e2", "label": "start here"},
        {"type": "label", "targetId": "e1", "label": "not here"},
        {"type": "label", "targetId": "e1"},
        view="all",
    )
    assert "start here" in text_of(entry_of(page, "e2"))
    rail = text_of(element(page, "nav.sidebar"))
    assert "start here" in rail
    assert "not here" not in rail
    assert "labelled" not in text_of(entry_of(page, "e1"))
    assert "taken from" in text_of(entry_of(page, "e5"))


def test_what_a_compaction_removed_is_struck_and_names_it(pages):
    done = compaction(whole("e2"), block("e3", 0))
    recorded = chain(
        user("go"),
        assistant(text("an old answer\n  in two lines")),
        assistant(text("half of it"), text("the other half")),
        assistant(text("a new answer")),
        {**done, "stats": {"percentReduction": 41.5}},
        user("more"),
    )
    address = pages.add(recorded)
    page = pages.get(address, view="all")
    gone = entry_of(page, "e2")
    assert text_of(element(gone, "del")) == "an old answer in two lines"
    assert "deleted by e5" in text_of(gone)
    assert link(gone, "e5") == f"{address}/entries/e5"
    assert texts(entry_of(page, "e3"), "del") == ["half of it"]
    assert not elements(entry_of(page, "e3", 1), "del")
    assert not elements(entry_of(page, "e4"), "del")
    assert "1 entry and 1 block of what is above deleted, 41.5% of the tokens" in text_of(entry_of(page, "e5"))
    removed = " ".join(texts(pages.get(address, view="removed"), "article"))
    assert not missing(removed, "an old answer", "deleted by e5", "half of it")
    assert missing(removed, "the other half", "a new answer") == ["the other half", "a new answer"]
    assert "an old answer" not in pages.words(address)


def test_what_another_reading_leaves_out_is_faint_and_not_struck(pages):
    recorded = chain(
        user("go"),
        assistant(text("an old answer")),
        assistant(text("kept")),
        summary_compaction("in <short>", "e3"),
        compaction(whole("e3")),
        user("more"),
    )
    address = pages.add(recorded)
    Session.objects.update(reader="pi")
    page = pages.get(address, view="all")
    gone = entry_of(page, "e2")
    assert "is-faint" in classes(gone)
    assert "not seen since e4" in text_of(gone)
    assert link(gone, "e4") == f"{address}/entries/e4"
    assert "is-faint" not in classes(entry_of(page, "e3"))
    assert "in <short>" in text_of(entry_of(page, "e4"))
    assert "ignored as this session is opened" in text_of(entry_of(page, "e5"))
    assert not elements(page, "del")
    for shown in (address, f"{address}/entries/e4/text"):
        assert "in <short>" in pages.words(shown)


@pytest.mark.parametrize(
    "content", ["the new words", [text("the new words"), text("and more")], [text("the new words"), call("n1")]]
)
def test_an_edit_shows_its_own_words_if_the_model_sees_them(pages, content):
    recorded = chain(
        user("the old words"), assistant(text("hm")), context_edit("e1", {"content": content}), context_edit("e2", None)
    )
    address = pages.add(recorded)
    Session.objects.update(reader="pi")
    seen = pages.get(address)
    assert "the new words" in text_of(seen)
    assert "the old words" not in text_of(entry_of(seen, "e1"))
    history = pages.get(address, view="all")
    assert not missing(text_of(entry_of(history, "e1")), "the old words", "replaced by e3")
    assert link(entry_of(history, "e1"), "e3") == f"{address}/entries/e3"
    assert "not seen since" in text_of(entry_of(history, "e2"))


def test_a_compaction_that_repeats_the_system_message_is_one_entry(pages):
    system = {"role": "system", "content": "be kind " * 40}
    recorded = chain(
        user("the old words"), summary_compaction("in short", None) | {"systemMessage": system}, user("go")
    )
    address = pages.add(recorded)
    Session.objects.update(reader="pi")
    page = pages.get(address)
    assert [one for one in ids(page) if one in ("e1", "e2", "e3")] == ["e2", "e3"]
    assert "in short" in text_of(entry_of(page, "e2"))


def test_a_tail_that_is_sent_as_text_is_marked(pages):
    recorded = chain(
        user("the old words"),
        assistant(call("c1")),
        result("c1", "lost"),
        user("kept"),
        verbatim_compaction("in <short>", "e3"),
        user("go"),
    )
    address = pages.add(recorded)
    Session.objects.update(reader="atomic-0.9")
    page = pages.get(address, view="all")
    assert "sent as text" in text_of(entry_of(page, "e4"))
    assert "sent as text" not in text_of(entry_of(page, "e6"))
    assert "not seen since" in text_of(entry_of(page, "e3"))
    assert link(entry_of(page, "e3"), "e5") == f"{address}/entries/e5"
    assert "in <short>" in text_of(entry_of(page, "e5"))


def test_switching_the_view_keeps_the_place(pages):
    recorded = chain(*(user(f"word-{number}-") for number in range(100)), compaction(whole("e70")), user("end"))
    page = pages.get(pages.add(recorded), at="e70", view="all")
    (sees,) = [where for words, where in links(page) if words.startswith("What the model sees")]
    assert "at=e70" in sees
    again = ids(pages.get(sees))
    assert "e71" in again
    assert "e69" not in again


def test_only_a_requested_entry_is_selected(pages):
    address = pages.add(conversation("one", "two"))
    assert "is-selected" in classes(entry_of(pages.get(f"{address}/entries/e4"), "e4"))
    assert not elements(pages.get(address, at="e4"), ".is-selected")


def test_a_call_and_its_result_on_one_page_are_bracketed(pages):
    page = pages.shown(
        user("go"), assistant(call("a"), call("b")), result("a", "first"), result("b", "second"), user("thanks")
    )
    for drawn, part in (("e2", 0), "first"), (("e2", 1), "mid"), (("e3", 0), "mid"), (("e4", 0), "last"):
        assert elements(entry_of(page, *drawn), f".tie--{part}")
    assert missing(text_of(page), "result in", "call in") == ["result in", "call in"]


def test_a_pair_on_two_pages_is_linked(pages):
    recorded = chain(assistant(call("a")), *(user(str(number)) for number in range(60)), result("a", "late"), user("x"))
    address = pages.add(recorded)
    first = pages.get(address)
    assert "result in e62" in text_of(entry_of(first, "e1"))
    assert link(entry_of(first, "e1"), "e62") == f"{address}/entries/e62"
    answered = entry_of(pages.get(address, at="e62"), "e62")
    assert "call in e1" in text_of(answered)
    assert link(answered, "e1") == f"{address}/entries/e1"


def test_broken_pairs_are_told_from_calls_at_the_end_of_failed_messages_and_used_twice(pages):
    done = assistant(call("a"), text("x"))
    page = pages.shown(user("go"), done, result("a"), compaction(block("e2", 0)), user("more"))
    assert "no call: the provider may refuse this" in text_of(entry_of(page, "e3"))
    page = pages.shown(user("go"), assistant(call("c1")), result("c2"))
    assert "no result: the agent answers the call itself" in text_of(entry_of(page, "e2"))
    page = text_of(pages.shown(user("go"), assistant(call("a"))))
    assert "no result yet" in page
    assert "may refuse" not in page
    failed = assistant(text("so"), call("c1"), stopReason="aborted")
    page = text_of(pages.shown(user("go"), failed, user("again")))
    assert "not sent: the agent skips a message that failed" in page
    assert "no result" not in page
    page = pages.shown(user("go"), assistant(call("a")), assistant(call("a")), result("a"), user("x"))
    assert "its call id is used again in" in text_of(entry_of(page, "e2"))
    assert elements(entry_of(page, "e3"), ".tie--first")


def test_a_branch_that_cannot_be_continued_says_so_and_links_to_the_entry(pages):
    recorded = chain(user("x"), assistant(text("y")), result("<c>"), user("z"))
    recorded[4]["parentId"] = "e2"
    recorded.append(message("e5", "e3", user("w")))
    address = pages.add(recorded)
    banner = element(pages.get(address), ".banner--note")
    assert "This branch cannot be continued. Entry e3 is a result of call <c>" in text_of(banner)
    assert link(banner, "Show the entry") == entry_address(address, "e3")
    assert elements(pages.get(address, leaf="e4"), ".banner--note") == []


BY_ONE_LINE = [compaction(whole("e2"))]
BY_EDITS = [context_edit("e2", None), context_edit("e3", None)]


def write_compaction(pages: Pages, after: list[dict[str, Any]], lines: Sequence[dict[str, Any]] = BY_ONE_LINE) -> str:
    """A session with a compaction that Redline wrote after e3, and what an agent wrote later."""
    recorded = chain(user("go"), assistant(text("long")), user("and"), *lines)
    address = pages.add([*recorded, *after])
    session = Session.objects.get(relative_path="a.jsonl")
    now = "2026-01-05T10:00:00Z"
    backup = Backup.objects.create(
        session=session, path=str(pages.root / "b"), sha256="0", size=1, taken_at=now, reason="compact"
    )
    Compaction.objects.create(
        session=session, backup=backup, entry_id=recorded[-1]["id"], leaf_id="e3", planner="embedded", written_at=now,
        parameters={}, stats={}, origins={},
    )  # fmt: skip
    return address


@pytest.mark.parametrize(("lines", "last"), [(BY_ONE_LINE, "e4"), (BY_EDITS, "e5")], ids=["one line", "edits"])
def test_a_compaction_that_is_bypassed_before_its_first_line_is_reported_at_the_top(pages, lines, last):
    later = [message("a1", "e3", assistant(text("on I go"))), message("a2", "a1", user("ok"))]
    address = write_compaction(pages, later, lines)
    banner = element(pages.get(address), ".banner--note")
    assert "is bypassed: the agent continued from its own copy" in text_of(banner)
    for entry_id in (last, "a1"):
        assert link(banner, entry_id) == f"{address}/entries/{entry_id}"
    assert link(banner, "Compact again…") == f"{address}/compact"


@pytest.mark.parametrize("lines", [BY_ONE_LINE, BY_EDITS], ids=["one line", "edits"])
def test_an_undone_compaction_is_not_bypassed(pages, lines):
    undo = {"type": "custom", "id": "u1", "parentId": "e3", "timestamp": "t", "customType": "redline.undo"}
    address = write_compaction(pages, [undo, message("a1", "u1", user("on"))], lines)
    assert "is bypassed" in pages.words(address)
    written = Compaction.objects.get()
    Undo.objects.create(
        session=written.session, compaction=written, undone=written.entry_id, way=UndoWay.LEAF, is_whole=True,
        targets=[], entry_id="u1", leaf_id="e3", written_at=written.written_at,
    )  # fmt: skip
    assert "is bypassed" not in pages.words(address)


@pytest.mark.parametrize(
    "after",
    [
        [],
        [message("a1", "e4", user("goes on after it"))],
        [message("a1", "e1", user("goes on from before"))],
        [message("a1", "e4", user("knew it")), message("a2", "e3", user("and went elsewhere"))],
    ],
)
def test_a_compaction_that_counts_or_was_left_knowingly_is_not_bypassed(pages, after):
    assert "bypassed" not in pages.words(write_compaction(pages, after))


def test_the_reader_can_be_chosen_and_given_back(pages):
    recorded = chain(user("go"), assistant(text("long " * 99)), summary_compaction("short", "e4"), user("on"))
    address, before = pages.add(recorded), Session.objects.get().context_tokens
    answer = pages.browser.post(f"{address}/reader", {"reader": "pi"})
    assert (answer.status_code, answer["Location"]) == (303, address)
    chosen = Session.objects.get()
    assert (chosen.reader, chosen.read_as) == ("pi", "pi")
    assert chosen.context_tokens != before
    assert not missing(
        text_of(pages.get(address)),
        "Opened as pi 0.87 and newer · change…",
        "Because you chose it",
        "Saved by context-edit.",
    )
    pages.browser.post(f"{address}/reader", {"reader": ""})
    back = Session.objects.get()
    assert (back.reader, back.read_as, back.context_tokens) == ("", "atomic-0.8", before)


@pytest.mark.parametrize(("reported", "suggested"), [(12, True), (600, False), (1, False)])
def test_a_reader_that_what_was_reported_fits_is_suggested(pages, reported, suggested):
    """As if pi, which honours the summary, had continued a session that is read as Atomic's."""
    recorded = chain(
        user("go"),
        assistant(text("long " * 400)),
        summary_compaction("A summary of it all.", "e4"),
        user("on"),
        assistant(text("done"), usage={"totalTokens": reported}),
        user("more"),
    )
    page = pages.words(pages.add(recorded))
    assert "Opened as Atomic 0.8" in page
    assert ("Opened as pi, it would fit" in page) is suggested


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        ("atomic-0.8", "Saved by context-compaction. Appends one line to the session"),
        ("pi", "Saved by context-edit. Appends one line for each deleted entry"),
        ("pi-0.86", "Saved by fork. Writes a new session beside this one"),
    ],
)
def test_the_page_says_how_a_compaction_would_be_written(pages, reader, words):
    address = pages.add(chain(user("x"), user("y")))
    Session.objects.update(reader=reader)
    assert words in pages.words(address)


def test_acts_that_are_not_offered_change_nothing(pages):
    address = pages.add(conversation("one"))
    assert pages.browser.post(f"{address}/reader", {"reader": "<b>"}).status_code == 422
    assert Session.objects.get().reader == ""
    assert pages.browser.get(f"{address}/reader").status_code == 303
    assert pages.browser.post(f"{address}/migrate").status_code == 409
    assert [path.name for path in pages.root.iterdir()] == ["a.jsonl"]


OLD = [
    {"type": "session", "id": "s", "timestamp": "t", "cwd": "/p"},
    {"type": "message", "timestamp": "t", "message": user("about one")},
]


@pytest.mark.parametrize(
    ("recorded", "offers"),
    [
        (OLD, ["Create a version 3 copy"]),
        (conversation("one")[1:], ["Create a copy with a header", "This file has no session header"]),
    ],
    ids=["old", "headless"],
)
def test_a_session_that_cannot_be_planned_on_offers_a_copy_and_goes_there(pages, recorded, offers):
    address, path = pages.add(recorded, "old.jsonl"), pages.root / "old.jsonl"
    before, page = path.read_bytes(), pages.get(address)
    assert not missing(text_of(page), *offers)
    assert "Compact…" not in texts(page, "main a")
    answer = pages.browser.post(f"{address}/migrate")
    assert answer.status_code == 303
    copied = pages.words(answer["Location"])
    assert not missing(copied, "about one", "Compact…")
    assert "no session header" not in copied
    assert path.read_bytes() == before
    assert "exists already" in text_sent(pages.browser.post(f"{address}/migrate"), 409)


def test_a_session_without_header_is_not_planned_on_and_an_empty_one_says_so(pages):
    pages.add(conversation("one")[1:])
    act = partial(start_run, Session.objects.get(), planner="embedded", requested_parameters={})
    assert refusal(act) == "2 no_header"
    assert "This session is empty" in pages.words(pages.add([HEADER]))


def forget(_: Path) -> None:
    Session.objects.update(fingerprint=None, state=None)


def rewrite(path: Path) -> None:
    path.write_bytes(session_bytes(conversation("two")))


@pytest.mark.parametrize(
    ("change", "said", "then"),
    [(forget, "was not read yet", "about one"), (rewrite, "changed while it was read", "about two")],
)
def test_what_was_not_read_yet_or_is_another_text_is_not_shown_and_can_be_read(pages, change, said, then):
    address = pages.add(conversation("one"))
    change(pages.root / "a.jsonl")
    assert not missing(text_sent(pages.browser.get(address), 409), said, "Read it")
    assert pages.browser.post(f"{address}/read-anew").status_code == 303
    assert then in pages.words(address)


def test_what_the_session_does_not_have_is_not_found_and_the_page_of_a_whole_text_says_what_it_is(pages):
    address = pages.add(conversation("one"))
    of_entries = ("/entries/nope", "/entries/nope/text", "/entries/e1/text?block=9")
    for query in ("?leaf=nope", "?at=nope", "?entry=nope", "/text", "/text?entry=nope", *of_entries):
        assert pages.browser.get(address + query).status_code == 404, query
    page = pages.get(f"{address}/entries/e2/text?block=0")
    assert texts(page, "h1") == ["Full text of block 0"]
    assert text_of(element(page, "title")).startswith("Text of e2 ")


PATHS = ("..", ".", "a/../b", "a//b", "/", "a/text", "e9.jsonl", "%2e%2e", "a b?c&d#e", "text?entry=e1")


@pytest.mark.parametrize("entry_id", [*PATHS, "é", "x" * 300])
def test_links_of_any_id_lead_to_its_entry_and_its_text(pages, entry_id):
    recorded = chain(user("one"), assistant(text("a line\n" * 40)), user("three"))
    address = pages.add([json.loads(json.dumps(one).replace('"e2"', json.dumps(entry_id))) for one in recorded])
    _, article, _ = elements(pages.get(address), "article")
    addresses = [where for _, where in links(article)]
    for where in addresses:
        path = unquote(urlsplit(where).path)
        assert posixpath.normpath(path) == path, "a browser would resolve it"
    entry, whole_text, _ = addresses
    assert "a line" in text_of(element(pages.get(entry), ".is-selected"))
    assert "a line " * 40 in text_of(element(pages.get(whole_text), "article")) + " "


def test_a_plain_id_is_in_its_address():
    assert entry_address("/s.jsonl", "0a1B-c.d_~") == "/s.jsonl/entries/0a1B-c.d_~"
    assert text_address("/s.jsonl", "e1", 2) == "/s.jsonl/entries/e1/text?block=2"
    assert text_address("/s.jsonl", "a/b", 2) == "/s.jsonl/text?entry=a%2Fb&block=2"


def test_a_narrow_page_has_a_way_to_the_turns_and_the_map(pages):
    page = pages.get(pages.add(conversation("one", "two", "three")), at="e4")
    folded = element(page, ".drawers")
    assert "Turn 2 of 3" in text_of(folded)
    assert len(links(element(folded, 'nav[aria-label="Turns"]'))) == 3
    assert elements(folded, 'use[href="#map"]')
    assert ids(page).count("map") == 1


def test_the_sidebar_links_beyond_the_turns_it_shows(pages):
    page = pages.get(pages.add(chain(*(user(f"turn-{number}-") for number in range(200)))), at="e101")
    rail = element(page, "nav.sidebar")
    assert link(rail, "earlier turns")
    assert "turn-150-" in pages.words(link(rail, "later turns"))


def test_branches_of_one_file_share_its_entries(pages):
    pages.add([*chain(user("go"), assistant(text("first way"))), message("x1", "e1", assistant(text("second way")))])
    session = Session.objects.select_related("root").get()
    one, other = branch_state(session), branch_state(session, "e2")
    assert one.tree is other.tree
    assert branch_state(session, "x1") is one
    assert [entry.id for entry in other.branch] == ["e1", "e2"]


def test_a_file_that_grew_is_computed_again(pages):
    address = pages.add(conversation("one"))
    assert "Later words" not in pages.words(address)
    with (pages.root / "a.jsonl").open("ab") as file:
        file.write(session_bytes([message("x1", "e3", user("Later words"))]))
    index_roots()
    assert "Later words" in pages.words(address)


def test_the_garbage_collector_is_always_switched_on_again(pages):
    pages.add(conversation("one"))
    session = Session.objects.select_related("root").get()
    branch_state(session)
    assert gc.isenabled()
    with pytest.raises(BadInput):
        branch_state(session, "nope")
    assert gc.isenabled()


@pytest.mark.parametrize("words", TOGETHER)
def test_what_is_new_on_the_page_is_inert_too(pages, words):
    fields = ("x/y?#", words) if "\x00" not in words and "\ud800" not in words else ("x/y?#", "id")
    entry_id = "".join(fields)
    recorded = chain(
        user(words),
        assistant(call("c", words, argument=words)),
        {"type": "label", "targetId": "e1", "label": words},
        {"type": "model_change", "provider": words, "modelId": words},
        {"type": "thinking_level_change", "thinkingLevel": words},
        branch_summary(words),
        compaction(whole("e2"), whole(words)),
        context_edit(words, {"content": words}),
        summary_compaction(words, words),
        {"type": words},
        {"type": "label", "targetId": words, "label": words},
    )
    extra = {"type": "message", "id": entry_id, "parentId": "e11", "timestamp": "t", "message": user(words)}
    broken = words.encode("utf-8", "surrogatepass") + b"{\xff"
    address = pages.add([*recorded, broken, extra, broken])
    entry = reverse("compaction:entry", args=(Session.objects.get().root_id, "a.jsonl", entry_id))
    for reader in ("atomic-0.8", "pi"):
        Session.objects.update(reader=reader)
        forget_documents()
        for page in (f"{address}?view=all", f"{address}?view=removed", address, f"{address}/entries/e2/text", entry):
            answer = pages.browser.get(page)
            assert answer.status_code == 200, page
            assert_inert(answer)


def test_a_name_with_a_line_break_has_an_address(pages):
    (pages.root / "a\nb.jsonl").write_bytes(session_bytes(conversation("one")))
    index_roots()
    assert pages.browser.get("/").status_code == 200
    found = Session.objects.get()
    assert "about one" in pages.words(reverse("compaction:session", args=(found.root_id, found.relative_path)))


LONG = 1_200_000


@pytest.mark.parametrize(
    "made",
    [
        lambda: [*chain(user("go"), user("on")), b"{" + b"'" * LONG],
        lambda: chain(user("go"), {"type": "label", "targetId": "e1", "label": "x" * LONG}),
        lambda: chain(user("go"), {"type": "session_info", "name": "x" * LONG}),
        lambda: chain(user("go"), assistant(text("a")), compaction(*[whole("e2")] * 10_000)),
        lambda: chain(user("go"), summary_compaction("x" * LONG, "e1")),
        lambda: chain(user("go"), assistant(*[text("'")] * 10_000)),
        lambda: chain(user("go"), *[assistant(*[thinking("<" * 200)] * 40)] * 40),
        lambda: chain(user("go"), assistant(call("c", "n" * LONG, path="'" * 5_000))),
    ],
    ids=["damage", "label", "name", "targets", "summary", "blocks", "many blocks", "call"],
)
def test_long_content_leaves_the_page_short(pages, made):
    address = pages.add(made())
    for view in ("all", "sees", "removed"):
        answer = pages.browser.get(address, {"view": view})
        assert answer.status_code == 200
        assert len(answer.content) < 250_000


def test_a_page_with_all_of_it_takes_few_queries(pages):
    address = write_compaction(pages, [message("a1", "e3", user("on"))])
    pages.browser.get(address)
    with CaptureQueriesContext(connection) as queries:
        pages.get(address, view="all")
    assert len(queries) <= 12


def test_a_text_is_given_to_scripts_as_the_page_shows_it(pages):
    address = pages.add(chain(user("one"), result("c1", "<b>\x1b[2J\u202e" + "long\n" * 200)))
    answered = pages.browser.get(text_address(address, "e2"), headers={"Accept": "text/plain"})
    assert answered["Content-Type"] == "text/plain; charset=utf-8"
    assert answered["X-Content-Type-Options"] == "nosniff"
    assert answered.content.decode() == "<b>\\x1b[2J\\u202e" + "long\n" * 200
