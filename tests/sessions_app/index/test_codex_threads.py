"""Codex threads in the index: growth is read alone and gives the same as reading everything anew.

A session that Codex has compressed is listed, and says how it is opened.
"""

import pytest

from redline.configuration import Configuration, RootSetting
from sessions_app.index.index_store import read_entries
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry
from tests.files import place
from tests.html import missing, text_of
from tests.sessions_app.agents.codex import rollouts

LATER: list[list[rollouts.Item]] = [
    [rollouts.user("b"), rollouts.answer("c"), rollouts.usage_record(500, 500)],
    [rollouts.output("c1"), rollouts.token_count(700, 1200)],
    [rollouts.compacted(rollouts.user("a"), rollouts.answer("new"), rollouts.call("c1"))],
    [rollouts.summarised("so far")],
    [rollouts.rolled_back(1), rollouts.user("d")],
    [rollouts.turn_context("gpt-6"), rollouts.answer("e"), rollouts.token_count(90, 90), rollouts.token_count(90, 90)],
]


def facts(session: Session) -> tuple[object, ...]:
    with session.agent.store.open(session.real_path()) as reader:
        entries: list[Entry] = list(read_entries(session, reader, session.version))
    totals = (session.entry_count, session.compaction_count, session.model, session.first_user_message)
    return (*totals, session.context_tokens, session.damage_count, session.broken, entries)


def anew(session: Session) -> Session:
    path = session.real_path()
    Session.objects.all().delete()
    return index_file(path)


NAME = f"rollout-2026-01-05T10-00-00-{rollouts.THREAD}.jsonl"


@pytest.mark.parametrize("added", LATER)
@pytest.mark.parametrize("based", [False, True])
def test_growth_gives_the_same_as_reading_anew(redline, added, based):
    directory = redline.home / ".codex" / "sessions"
    own = rollouts.Rollout(
        rollouts.meta(), rollouts.developer(), rollouts.turn_context(), rollouts.user("a"), rollouts.call("c1")
    )
    name = NAME
    if based:
        place(directory / name, own.content)
        base = {"thread_id": rollouts.THREAD, "end_ordinal_exclusive": 5, "end_byte_offset": len(own.content)}
        other = rollouts.THREAD.replace("1", "2")
        own = rollouts.Rollout(rollouts.meta(other, history_base=base), first=5)
        name = NAME.replace(rollouts.THREAD, other)
    path = place(directory / name, own.content)
    before = index_file(path)
    assert before.first_user_message == "a"
    place(path, own.content + rollouts.Rollout(*added, first=20).content)
    grown = index_file(path)
    assert grown.entry_count > before.entry_count
    assert facts(grown) == facts(anew(grown))


def test_a_compressed_session_is_listed_and_says_how_it_is_opened(redline, settings, browser):
    root = redline.home / ".codex" / "sessions"
    settings.REDLINE = Configuration(roots=[RootSetting(path=root, agent="codex")])
    path = place(root / f"{NAME}.zst", b"\x28\xb5\x2f\xfd" + b"\x00" * 40)
    index_roots()
    session = Session.objects.get()
    assert f"codex resume {rollouts.THREAD}" in session.fault
    assert "unreadable" in text_of(browser.get("/"))
    shown = text_of(browser.get(session.get_absolute_url()))
    assert not missing(shown, "is compressed", f"codex resume {rollouts.THREAD}")
    path.unlink()
    place(root / NAME, rollouts.Rollout(rollouts.meta(), rollouts.user("go")).content)
    index_roots()
    assert min(Session.objects.values_list("missing", "fault", "first_user_message")) == (False, "", "go")
