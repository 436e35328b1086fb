"""The full-text index follows the sessions: growth costs what is new, and what is gone leaves no words."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sessions_app.database.text_store import FILE, KIND_BITS, KIND_MASK, SCHEMA, TextStore
from sessions_app.disk.files import EDGE
from sessions_app.index import indexer
from sessions_app.index.follower import Follower
from sessions_app.index.index_store import lock_place
from sessions_app.index.indexer import index_paths
from sessions_app.models import Entry, Session
from sessions_app.search import text_index
from sessions_app.search.filters import SearchFilters
from sessions_app.search.results import SearchHit, search
from sessions_app.search.text_index import TextIndexer, index_texts, index_with_texts, only_text_indexer, update_texts
from sessions_app.sessionlog.errors import Conflict, SystemFailure
from sessions_app.sessionlog.passages import PassageState
from tests.factories import (
    assistant,
    call,
    chain,
    compaction,
    message,
    result,
    session_bytes,
    summary_compaction,
    text,
    user,
    whole,
)
from tests.files import append_as_agent
from tests.installation import Installation
from tests.paths import corpus_sessions


def write(path: Path, *messages: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(session_bytes(chain(*messages)))


def bring_up_to_date(root: Path, *, rebuild: bool = False) -> None:
    index_paths([root], rebuild=rebuild)
    for _ in update_texts():
        pass


def searchable(path: Path, *messages: dict[str, Any]) -> Path:
    """A session with these messages, whose texts are in the index."""
    write(path, *messages)
    bring_up_to_date(path)
    return path


def words_in(installation: Installation) -> set[str]:
    """Every word that is anywhere in the index."""
    with TextStore(installation.data) as store:
        every_word = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.every_word USING fts5vocab (main, words, row)"
        store.connection.execute(every_word)
        return {term for (term,) in store.connection.execute("SELECT term FROM temp.every_word")}


def hits(typed: str) -> list[SearchHit]:
    found = search(SearchFilters.of(typed), shown_only=False, places=100).found
    return [hit for session in found for hit in session.hits]


def states(typed: str) -> list[PassageState]:
    return [hit.state for hit in hits(typed)]


def by_state(typed: str) -> dict[str, set[str]]:
    """The first words of what is found, by its state."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for hit in hits(typed):
        found[hit.state.name].add(hit.text.split()[0])
    return found


def test_growth_adds_only_new_entries(redline, tmp_path, monkeypatch):
    path = searchable(tmp_path / "a.jsonl", user("alpha"), assistant(text("bravo")))
    read: list[str] = []
    usual = text_index.reparse_entry

    def noted(agent: Any, reader: Any, entry: Any, version: int) -> Any:
        read.append(entry.id)
        return usual(agent, reader, entry, version)

    monkeypatch.setattr(text_index, "reparse_entry", noted)
    append_as_agent(path, session_bytes([message("e3", "e2", user("charlie"))]))
    bring_up_to_date(path)
    assert read == [hit.entry_id for hit in hits("charlie")] == ["e3"]
    assert words_in(redline) == {"alpha", "bravo", "charlie"}


WORDS = "alpha ünïcode naïve 日本 हिन्दी Straße ΣΊΣΥΦΟΣ İstanbul xylophone"


@pytest.mark.parametrize("other", [True, False], ids=["with-another", "alone"])
@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "rewritten"])
def test_a_session_that_is_removed_or_rewritten_leaves_no_words(redline, tmp_path, other, is_removed):
    """Neither in the index nor in its file."""
    path = tmp_path / "a.jsonl"
    write(path, user(WORDS), assistant(text("bravo")))
    if other:
        write(tmp_path / "b.jsonl", user("charlie"))
    bring_up_to_date(tmp_path)
    if is_removed:
        path.unlink()
    else:
        write(path, user("delta"), assistant(text("echo")))
    bring_up_to_date(tmp_path)
    assert words_in(redline) == ({"charlie"} if other else set()) | (set() if is_removed else {"delta", "echo"})
    assert not hits("alpha")
    with TextStore(redline.data) as store:
        assert store.gone() == 0
        assert store.connection.execute("PRAGMA freelist_count").fetchone() == (0,)
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows = store.connection.execute("SELECT block FROM words_data").fetchall()
    kept = b"".join(block for (block,) in rows)
    assert (b"harlie" in kept, b"ylophone" in kept) == (other, False)


def indexed(installation: Installation) -> tuple[set[tuple[Any, ...]], set[str]]:
    """What each passage is, and every word."""
    names = dict(Entry.objects.values_list("pk", "entry_id"))
    with TextStore(installation.data) as store:
        passages = {
            (session.relative_path, names[number >> KIND_BITS], number & KIND_MASK, alike.tool, alike.state)
            for session in Session.objects.all()
            for number, alike in store.passages_of(session.pk).items()
        }
    return passages, words_in(installation)


@pytest.mark.parametrize("processes", [1, 2])
def test_one_reading_of_each_session_gives_both_indexes(redline, tmp_path, monkeypatch, processes):
    root = tmp_path / "root"
    for path in corpus_sessions(tmp_path)[:6]:
        write(root / path.name, user("To be replaced."))
        (root / path.name).write_bytes(path.read_bytes())
    write(root / "broken.jsonl", user("first"), assistant(text("second")))
    append_as_agent(root / "broken.jsonl", b'no line\n{"torn')
    bring_up_to_date(root)
    separately, rows = indexed(redline), Entry.objects.count()
    bring_up_to_date(root, rebuild=True)
    assert indexed(redline) == separately, "rebuilt, it has the same words"
    monkeypatch.setattr(text_index, "reparse_entry", lambda *_: pytest.fail("a line was read again"))
    monkeypatch.setattr(indexer, "BYTES_FOR_TWO", 0)
    monkeypatch.setattr(indexer, "may_fork", lambda: processes == 2)
    total = index_with_texts(lambda texts: index_paths([root], rebuild=True, texts=texts), str)
    assert indexed(redline) == separately
    assert (total.files, total.entries, Entry.objects.count()) == (len(list(root.iterdir())), rows, rows)
    assert total.bytes_read <= total.bytes + total.files * 3 * EDGE


def test_two_processes_never_need_a_lock_that_the_other_holds(redline, tmp_path, monkeypatch):
    for number in range(300):
        write(tmp_path / "root" / f"{number}.jsonl", user("one"))
    parts: list[set[int]] = []

    def in_turn(work, here, there):
        parts.extend({lock_place(path) for path in sizes} for sizes, _ in (here, there))
        return work(here), work(there)

    monkeypatch.setattr(indexer, "BYTES_FOR_TWO", 0)
    monkeypatch.setattr(indexer, "may_fork", lambda: True)  # nothing is forked, whatever threads other tests left
    monkeypatch.setattr(indexer, "in_two_processes", in_turn)
    assert index_paths([tmp_path / "root"]).files == 300
    assert parts[0].isdisjoint(parts[1])
    assert 0.8 < len(parts[0]) / len(parts[1]) < 1.25


def test_states_follow_compactions_and_branches(redline, tmp_path):
    said = (user("first needle"), assistant(text("second needle")))
    path = searchable(tmp_path / "a.jsonl", *said, user("third needle"), assistant(text("fourth needle")))
    assert states("needle") == [PassageState.SEEN] * 4
    cut = {"id": "cut", "parentId": "e4", **summary_compaction("summary of a needle", "e3")}
    append_as_agent(path, session_bytes([cut]))
    bring_up_to_date(path)
    assert by_state("needle") == {"SUMMARISED": {"first", "second"}, "SEEN": {"summary", "third", "fourth"}}
    append_as_agent(path, session_bytes([message("other", "e1", user("fifth needle"))]))
    bring_up_to_date(path)
    elsewhere = {"second", "summary", "third", "fourth"}
    assert by_state("needle") == {"SEEN": {"first", "fifth"}, "ELSEWHERE": elsewhere}


def test_what_a_deletion_removed_is_struck(redline):
    work = (user("go needle"), assistant(call("c1")), result("c1", "a needle"), assistant(text("needle")))
    searchable(redline.sessions / "a.jsonl", *work, user("on"), compaction(whole("e2"), whole("e3")))
    assert states("a needle in:result") == [PassageState.STRUCK]
    assert states("needle is:seen") == [PassageState.SEEN] * 2


def test_a_killed_pass_is_continued(redline, tmp_path, monkeypatch):
    monkeypatch.setattr(text_index, "ROWS_AT_ONCE", 2)
    path = tmp_path / "a.jsonl"
    write(path, *(user(f"word{number}") for number in range(7)))
    index_paths([path])
    with only_text_indexer(0) as store:
        work = index_texts(store)
        next(work)
        work.close()
        assert (store.passages(), store.searchable()) == (2, 0)
    assert str(list(update_texts())[-1]) == "searchable: 1 of 1 session"
    assert words_in(redline) == {f"word{number}" for number in range(7)}


def test_only_one_process_writes(redline):
    with only_text_indexer(0), pytest.raises(Conflict, match="Another Redline process"), only_text_indexer(0):
        pass


def test_a_damaged_index_is_reported_and_one_of_another_version_is_built_again(redline, tmp_path):
    (redline.data / FILE).write_bytes(b"not a database" * 100)
    with pytest.raises(SystemFailure, match="Delete it"):
        hits("alpha")
    (redline.data / FILE).unlink()
    path = searchable(tmp_path / "a.jsonl", user("alpha"))
    with TextStore(redline.data) as store:
        store.connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    assert not hits("alpha")
    bring_up_to_date(path)
    assert len(hits("alpha")) == 1


def test_a_file_that_changes_meanwhile_stops_no_other(redline, tmp_path):
    write(tmp_path / "a.jsonl", user("alpha"), user("bravo"))
    write(tmp_path / "b.jsonl", user("charlie"))
    index_paths([tmp_path])
    (tmp_path / "a.jsonl").write_bytes(b"x\n")
    for _ in update_texts():
        pass
    assert "charlie" in words_in(redline)
    assert Session.objects.count() == 2
    write(tmp_path / "a.jsonl", user("delta"))
    bring_up_to_date(tmp_path)
    assert words_in(redline) == {"charlie", "delta"}


def test_the_follower_makes_sessions_searchable(known_root):
    write(known_root / "a.jsonl", user("alpha"))
    texts = TextIndexer()
    follower = Follower(background=texts.step)
    try:
        for _ in range(1_000):
            follower.step()
            if hits("alpha"):
                break
    finally:
        follower.stop()
    assert [hit.text for hit in hits("alpha")] == ["alpha"]


@pytest.mark.parametrize(("seconds", "are_announced"), [(0, True), (3_600, False)])
def test_only_a_pass_that_takes_long_is_announced_to_open_pages(seconds, are_announced, known_root, monkeypatch):
    announced: list[object] = []
    monkeypatch.setattr(text_index, "ANNOUNCED_SECONDS", seconds)
    monkeypatch.setattr(text_index, "publish", lambda _, texts: announced.append(texts))
    for name in "ab":
        write(known_root / f"{name}.jsonl", user("alpha"))
    index_paths([known_root])
    texts = TextIndexer()
    while texts.step():
        pass
    assert len(hits("alpha")) == 2
    last = [{"searchable": 2, "sessions": 2}, None]
    assert announced[-2:] == (last if are_announced else [])


def test_hostile_text_is_found_as_it_is(redline, tmp_path):
    searchable(tmp_path / "a.jsonl", user("needle <script>alert(1)</script> \x1b[31mred\x00 \ud800 \u202e"))
    assert hits("needle script")[0].text.startswith("needle <script>")
