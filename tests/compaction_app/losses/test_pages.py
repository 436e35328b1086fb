"""Promises of the page of what a summary lost, and of its report."""

from pathlib import Path
from typing import Any

import pytest

from compaction_app.core import summary_loss
from compaction_app.entries.lost_subjects import SHOWN
from compaction_app.pages import losses
from sessions_app.document.document import forget_documents
from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from tests.claude_sessions import ClaudeSession, text as claude_text
from tests.clients import page
from tests.compaction_app.hostile import TOGETHER
from tests.factories import assistant, call, chain, result, session_bytes, summary_compaction, text, user
from tests.files import snapshot
from tests.html import actions, assert_inert, elements, field, link, links, missing, text_of, texts
from tests.sessions import add_session, use_root
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import Rollout

TALK = (
    user("Mend the parser."),
    assistant(text("readFile is broken."), call("c1", path="/home/dev/project/src/a.py")),
    result("c1", "error: readFile is gone", error=True),
    *(assistant(text(f"readFile and parseLine, try {number}")) for number in range(5)),
    user("Go on."),
    assistant(text("parseLine is mended.")),
)
"""e1 to e10."""
COMPACTED = chain(*TALK, summary_compaction("Now parseLine works.", "e9"), user("And then?"))
"""The summary is e11."""
TOUCHED = ("edit a.py", "edit a.py", "edit b.py", "read b.py", "read c.py", "read d.py")


@pytest.fixture(autouse=True)
def nothing_kept():
    forget_documents()


def add(root: Path, recorded: list[Any], name: str = "a.jsonl") -> str:
    return add_session(root, name, recorded, "pi")


@pytest.fixture
def url(idle_root):
    return add(idle_root, COMPACTED)


def test_the_page_counts_what_is_mentioned_and_links_what_was_lost_to_its_place(browser, url):
    shown = page(browser, f"{url}/lost")
    assert "8 entries became a summary" in text_of(shown)
    summary, plan = elements(shown, ".held")
    assert texts(summary, ".held__count") == ["0 of 1", "1 of 2", "0 of 1", "0 of 1"]
    assert len(texts(plan, ".held__count")) == 4
    assert "Now parseLine works." in text_of(shown)
    found = links(shown)
    places = {"readFile 7": "e2", "src/a.py 1": "e2", "error: readFile is gone": "e3", "Mend the parser.": "e1"}
    assert not missing(found, *((words, f"{url}/entries/{place}") for words, place in places.items()))
    assert "parseLine 5" not in [words for words, _ in found]


def test_the_summary_stands_beside_what_it_replaced_with_both_sizes_of_the_context(browser, url):
    shown = page(browser, f"{url}/lost?entry=e11")
    (turn,) = elements(shown, ".brief")
    assert "Mend the parser. 8 messages" in text_of(turn)
    assert texts(turn, ".brief__files") == ["read src/a.py"]
    assert "2 messages beside the summary are kept word for word" in text_of(shown)
    session = Session.objects.get()
    found = losses.loss_at(session)
    assert found.before.ratio == session.context_size.ratio
    after = found.before.without(found.loss.replacement.tokens_before - found.loss.replacement.tokens_after)
    assert after.tokens < found.before.tokens
    assert f"{found.before} → {after}" in text_of(page(browser, f"{url}/lost"))


def test_files_are_named_after_what_was_done_to_them(browser, idle_root):
    calls = [call(f"c{at}", one.split()[0], path=one.split()[1]) for at, one in enumerate(TOUCHED)]
    talk = chain(user("go"), assistant(*calls), summary_compaction("so far", None))
    shown = page(browser, f"{add(idle_root, talk)}/lost")
    assert texts(shown, ".brief__files") == ["edit a.py ×2, b.py, read b.py, c.py, 1 more"]


def test_a_plan_that_cannot_leave_as_little_says_so(browser, idle_root):
    for name, summary in (("a.jsonl", "so far"), ("b.jsonl", "so far " * 100)):
        url = add(idle_root, chain(*TALK, summary_compaction(summary, "e9")), name)
        shown = text_of(page(browser, f"{url}/lost"))
        assert ("cannot delete as much" in shown) == (name == "a.jsonl")
        assert ("ends with no more than this did" in shown) == (name == "b.jsonl")


def test_summaries_of_a_branch_are_linked_with_each_other(browser, idle_root):
    url = add(idle_root, [*COMPACTED, *chain(*[user("x")] * 12, summary_compaction("again", None))[-1:]])
    assert link(page(browser, f"{url}/lost"), "Earlier summary") == f"{url}/lost?entry=e11"
    earlier = page(browser, f"{url}/lost?entry=e11")
    assert link(earlier, "Later summary") == f"{url}/lost?entry=e13"
    assert "Earlier summary" not in text_of(earlier)


def test_the_conversation_before_it_can_be_forked_or_compacted_to_the_same_size(browser, url):
    shown = page(browser, f"{url}/lost")
    assert f"{url}/fork" in actions(shown)
    assert (link(shown, "Compact that instead…"), field(shown, "entry")) == (f"{url}/compact?leaf=e10", "e10")
    assert browser.post(f"{url}/fork", {"entry": "e10"}, follow=True).status_code == 200
    assert Session.objects.count() == 2
    form = page(browser, link(page(browser, f"{url}/lost"), "Make that plan…"))
    assert field(form, "leaf") == "e10"
    assert 0 < float(field(form, "keep")) < 50


def test_the_page_is_linked_from_the_session_and_its_timeline_and_writes_nothing(browser, idle_root, url):
    before = snapshot(idle_root)
    page(browser, f"{url}/lost")
    page(browser, f"{url}/lost/report")
    assert (snapshot(idle_root), Session.objects.get().runs.count()) == (before, 0)
    address = f"{url}/lost?entry=e11"
    session = links(page(browser, f"{url}?view=all"))
    assert not missing(session, ("What it lost", address), ("What the last summary lost", address))
    assert ("What it lost", address) in links(page(browser, f"{url}/timeline"))


def test_many_names_are_folded_away(browser, idle_root):
    names = " ".join(f"nameOf{number}" for number in range(SHOWN + 3))
    talk = chain(*[assistant(text(names))] * 5, user("go"), summary_compaction("so far", "e6"))
    shown = page(browser, f"{add(idle_root, talk)}/lost")
    assert "and 3 more" in text_of(shown)
    assert len(elements(shown, ".lost__item")) == SHOWN + 3


@pytest.mark.parametrize(
    ("entry", "status", "words"),
    [("nowhere", 404, ""), ("e2", 409, "Entry e2 is not a summary that replaced something")],
)
def test_an_entry_that_is_no_summary_is_refused(browser, url, entry, status, words):
    for part in ("lost", "lost/report"):
        assert words in text_of(page(browser, f"{url}/{part}?entry={entry}", status))


def test_a_session_without_summaries_that_its_reader_honours_says_so_and_links_to_none(browser, idle_root):
    url = add(idle_root, chain(*TALK))
    assert "No summary has replaced anything on this branch" in text_of(page(browser, f"{url}/lost", 409))
    for shown in (page(browser, f"{url}?view=all"), page(browser, f"{url}/timeline")):
        assert not [address for _, address in links(shown) if "/lost" in address]
    url = add_session(idle_root, "b.jsonl", COMPACTED, "atomic-0.8")
    assert not [address for _, address in links(page(browser, f"{url}?view=all")) if "/lost" in address]


@pytest.mark.parametrize("hostile", TOGETHER)
def test_what_a_session_contains_is_inert(browser, idle_root, hostile):
    talk = chain(
        user(f"{hostile} asked"),
        assistant(text(f"{hostile} readFile"), call("c1", hostile, path=f"/p/{hostile}.py")),
        result("c1", f"error: {hostile}", error=True),
        *[assistant(text(f"readFile {hostile}"))] * 5,
        summary_compaction(f"{hostile} summary", None),
    )
    url = add(idle_root, talk)
    assert_inert(page(browser, f"{url}/lost"))
    assert_inert(page(browser, f"{url}/lost/report"))


def test_the_report_needs_nothing_else(browser, url):
    answer = page(browser, f"{url}/lost/report?entry=e11")
    assert answer["Content-Disposition"] == 'attachment; filename="a.jsonl-lost.html"'
    (policy,) = elements(answer, "meta[http-equiv]")
    assert policy.attributes["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert not elements(answer, "script, link, img, iframe, object, [src], [href], [style], form")
    for words in (*("8 entries became a summary", "readFile"), "error: readFile is gone", "Now parseLine works."):
        assert words in text_of(answer)


def test_what_a_summary_lost_is_worked_out_once(browser, idle_root, url, monkeypatch):
    worked_out: list[Any] = []
    loss_of = summary_loss.loss_of
    monkeypatch.setattr(summary_loss, "loss_of", lambda *given: worked_out.append(given) or loss_of(*given))
    for part in ("lost", "lost", "lost/report"):
        page(browser, f"{url}/{part}?entry=e11")
    assert len(worked_out) == 1
    (idle_root / "a.jsonl").write_bytes(session_bytes([*COMPACTED, *chain(*[user("x")] * 13)[-1:]]))
    index_roots()
    page(browser, f"{url}/lost?entry=e11")
    assert len(worked_out) == 2


def root_of(agent: str, directory: Path, settings: Any) -> Path:
    """A configured root with the sessions of an agent."""
    root = directory / agent
    root.mkdir()
    use_root(settings, root, agent)
    return root


def test_the_summary_of_claude_code_is_linked_and_shown(browser, tmp_path, settings):
    session = ClaudeSession("Mend the parser.")
    session.reply("m1", *(claude_text(f"readFile {number}") for number in range(5)))
    session.boundary()
    summary = session.user("The summary of Claude Code.", isCompactSummary=True)
    session.user("Go on.")
    (root_of("claude-code", tmp_path, settings) / "a.jsonl").write_bytes(session.content)
    index_roots()
    found = Session.objects.get()
    address = link(page(browser, f"{found.get_absolute_url()}?view=all"), "What it lost")
    assert address == f"{found.get_absolute_url()}/lost?entry={summary}"
    shown = page(browser, address)
    words = ("The summary of Claude Code.", "written by claude-opus-5-5", "the session continued for 1.0 s")
    assert not missing(text_of(shown), *words)
    assert texts(shown, ".lost__item") == ["readFile 5"]


def test_an_encrypted_summary_says_so(browser, tmp_path, settings):
    opaque = {"type": "compaction", "encrypted_content": "readFile"}
    turns = [rollouts.user("Mend it."), *(rollouts.answer(f"readFile {number}") for number in range(5))]
    compacted = rollouts.compacted(rollouts.user("Mend it."), opaque)
    thread = Rollout(rollouts.meta(), *turns, compacted, rollouts.user("Go on."))
    thread.save(root_of("codex", tmp_path, settings))
    index_roots()
    url = Session.objects.get().get_absolute_url()
    for part in ("lost", "lost/report"):
        shown = text_of(page(browser, f"{url}/{part}"))
        assert "stored encrypted: only its provider can read it" in shown
        assert "[encrypted]" not in shown
