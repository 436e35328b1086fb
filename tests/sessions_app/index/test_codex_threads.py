"""Codex threads in the index: growth is read alone and gives the same as reading everything anew."""

from pathlib import Path

import pytest

from sessions_app.index.indexed_entries import read_entries
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry
from tests.files import backdate, place
from tests.sessions_app.agents.codex.rollouts import (
    THREAD,
    Item,
    Rollout,
    answer,
    call,
    compacted,
    developer,
    meta,
    output,
    rolled_back,
    summarised,
    token_count,
    turn_context,
    usage_record,
    user,
)

LATER: list[list[Item]] = [
    [user("b"), answer("c"), usage_record(500, 500)],
    [output("c1"), token_count(700, 1200)],
    [compacted(user("a"), answer("new"), call("c1"))],
    [summarised("so far")],
    [rolled_back(1), user("d")],
    [turn_context("gpt-6"), answer("e"), token_count(90, 90), token_count(90, 90)],
]
START = [meta(), developer(), turn_context(), user("a"), call("c1")]


def facts(session: Session) -> tuple[object, ...]:
    with session.agent.open(session.real_path()) as reader:
        entries: list[Entry] = list(read_entries(session, reader, session.version))
    totals = (session.entry_count, session.compaction_count, session.model, session.first_user_message)
    return (*totals, session.context_tokens, session.damage_count, session.broken, entries)


def anew(session: Session) -> Session:
    path = session.real_path()
    Session.objects.all().delete()
    return index_file(path)


@pytest.mark.parametrize("added", LATER)
@pytest.mark.parametrize("based", [False, True])
def test_growth_gives_the_same_as_reading_anew(redline, added, based):
    directory = redline.home / ".codex" / "sessions"
    own: Rollout = Rollout(*START)
    name = f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl"
    if based:
        place(directory / name, own.content)
        base = {"thread_id": THREAD, "end_ordinal_exclusive": 5, "end_byte_offset": len(own.content)}
        other = THREAD.replace("1", "2")
        own = Rollout(meta(other, history_base=base), first=5)
        name = f"rollout-2026-01-05T11-00-00-{other}.jsonl"
    path: Path = place(directory / name, own.content)
    before = index_file(path)
    assert before.first_user_message == "a"
    path.write_bytes(own.with_lines(Rollout(*added, first=20).lines).content)
    backdate(path)

    grown = index_file(path)

    assert grown.entry_count > before.entry_count
    assert facts(grown) == facts(anew(grown))
