"""What is typed into a search field finds words of the texts of entries, and is never an error of the index.

The texts are searched by who said them; what has no words is left out.
"""

import base64
from datetime import UTC, datetime
from string import ascii_letters, digits

import pytest
from hypothesis import given, strategies as st

from sessions_app.database import text_store as store_module
from sessions_app.database.text_store import Alike, IndexedPassage, SearchableSession, TextStore
from sessions_app.search.filters import SearchFilters
from sessions_app.search.pure.query import SearchQuery, day_of, snippet
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.passages import EntryPassage, PassageKind, PassageState, index_text, passages
from tests.factories import (
    assistant,
    bash,
    branch_and_texts,
    call,
    chain,
    custom,
    image,
    result,
    session_bytes,
    text,
    thinking,
    user,
)

TEXTS = (
    "A race condition in wingman.go:323 flags the session.",
    "The condition of the race was flaky; race_condition_test fails.",
    "競合状態を検出するテスト。日本語の全文検索。",
    "naïve café über",
    "nothing else",
)


@pytest.fixture
def store(tmp_path):
    with TextStore(tmp_path) as opened:
        alike = Alike(1, 1, "", 1)
        found = [IndexedPassage(number, alike, None, index_text(said)) for number, said in enumerate(TEXTS)]
        opened.add(SearchableSession(1), found)
        yield opened


def found_by(store: TextStore, typed: str) -> list[int]:
    """The numbers of the texts that a query finds."""
    query = SearchQuery.of(typed).for_index(store)
    if not query.expression:
        return []
    rows = store.connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (query.expression,))
    return [
        number
        for (number,) in rows
        if all(pattern.is_in(TEXTS[number]) for pattern in query.compared)
        and not any(pattern.is_in(TEXTS[number]) for pattern in query.refused)
    ]


def test_words_and_phrases_are_found(store):
    for expected, queries in (
        ([0, 1], ("race condition", "condition RACE", '"race condition"', "race_condition", "^race race*")),
        ([0], ("race -flaky", "flag", "wingman.go:323", "wingman:go")),
        ([1], ('"the race"', '"condition of the race', 'race -"race condition in"')),
        ([2], ("日本語", "索", "検出する")),
        ([3], ("café",)),
        ([], ('"flag"', "co", "go.wingman", "日語", "cafe", "-race", "NOT OR AND NEAR(", '"', "*", "words:race")),
    ):
        for typed in queries:
            assert found_by(store, typed) == expected, typed


def test_what_is_marked_begins_a_word():
    for typed, said, marked in (
        ("race", "embrace _race races", ["race", "races"]),
        ('"race"', "racerace races RACE", ["RACE"]),
        ('"race condition"', "a grace condition, a race  condition", ["race  condition"]),
        ("検出", "の検出する", ["検出"]),
        ("RACE", "a Race – …", ["Race"]),
        ("straße", "STRAẞE, Straße", ["STRAẞE", "Straße"]),
        ("race", "Straße İRACE RACE", ["RACE"]),
        ("ὀδός", "ὈΔΌΣ", ["ὈΔΌΣ"]),
    ):
        (pattern,) = SearchQuery.of(typed).patterns
        assert [said[start:end] for start, end in pattern.spans(said)] == marked, said


def test_few_words_with_a_beginning_are_named_and_many_are_not(store, monkeypatch):
    assert store.words_from("fla") == ["flags", "flaky"]
    assert store.words_from("flaw") == []
    named = found_by(store, "fla -flags"), found_by(store, "fla")
    monkeypatch.setattr(store_module, "WORDS_NAMED", 1)
    assert store.words_from("fla") == []
    assert (found_by(store, "fla -flags"), found_by(store, "fla")) == named == ([1], [0, 1])


@given(word=st.text(alphabet=ascii_letters + digits, min_size=1))
def test_a_plain_word_is_the_token_that_the_index_has(store, word):
    assert store.tokens_of(word) == store.tokens_of(f"{word} ")


@given(typed=st.text(max_size=60) | st.text(alphabet='"*-:(){}^+\\ aé語\0\ud800', max_size=30))
def test_nothing_that_is_typed_is_an_error(store, typed):
    found_by(store, typed)
    snippet(typed, SearchQuery.of(typed).patterns)


def test_filters_are_read_from_the_query():
    filters = SearchFilters.of('tool:bash agent:claude in:user is:deleted project:"a b" before:2026-02 role:x race')
    assert filters.tools == {"bash"}
    assert filters.agents == {"claude-code"}
    assert filters.kinds == {PassageKind.SAID}
    assert filters.states == {PassageState.STRUCK, PassageState.SUMMARISED}
    assert filters.in_project("/home/a b")
    assert not filters.in_project("/home/xa b")
    assert filters.until == datetime(2026, 2, 1, tzinfo=UTC)
    assert filters.ignored == ("in:x",)
    assert [term.text for term in filters.query.terms] == ["race"]


def test_what_only_looks_like_a_filter_is_a_word():
    query = SearchQuery.of("http://example.org -is:seen tool:")
    found = [(term.text, term.excluded) for term in query.terms]
    assert found == [("http://example.org", False), ("is:seen", True), ("tool:", False)]
    assert not query.filters


def test_a_day_a_month_and_a_year_have_a_start_and_an_end():
    for typed, first, after in (
        ("2026", "2026-01-01", "2027-01-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("2026-1-31", "2026-01-31", "2026-02-01"),
    ):
        assert day_of(typed) == datetime.fromisoformat(first).replace(tzinfo=UTC)
        assert day_of(typed, end=True) == datetime.fromisoformat(after).replace(tzinfo=UTC)
    for typed in ("", "yesterday", "2026-13", "2026-02-30", "9999-12-31", "26-01-01"):
        assert day_of(typed, end=True) is None


def passages_of(*messages: dict[str, object]) -> list[list[EntryPassage]]:
    branch, texts = branch_and_texts(session_bytes(chain(*messages)))
    return [list(passages(entry, texts[entry.id])) for entry in branch if entry.has_text]


def test_each_kind_of_text_is_a_passage():
    redacted = {"type": "redacted_thinking", "data": "b3BhcXVl"}
    found = passages_of(
        user("Fix it"),
        assistant(thinking("Hm"), text("I read"), call("c1", "bash", command="a\nb"), text("and write"), redacted),
        result("c1", "done"),
        bash("ls", "file"),
        custom("note"),
        user(""),
    )
    assert found == [
        [(PassageKind.SAID, "Fix it")],
        [
            (PassageKind.THINKING, "Hm"),
            (PassageKind.REPLY, "I read\nand write"),
            (PassageKind.CALL, 'bash {"command":"a\nb"}'),
        ],
        [(PassageKind.RESULT, "done")],
        [(PassageKind.RESULT, "Ran ls\nfile")],
        [(PassageKind.ADDED, "note")],
        [],
    ]


def test_images_and_entries_that_are_no_messages_have_no_words():
    assert passages_of({"role": "user", "content": [text("see"), image()]}) == [[(PassageKind.SAID, "see")]]
    label = Entry(number=1, offset=0, length=1, id="a", parent_id=None, type="label")
    branch, texts = branch_and_texts(session_bytes(chain(user("x"))))
    assert list(passages(label, texts[branch[0].id])) == []


DATA = base64.b64encode(bytes(range(256))).decode()
NAMES = f"{'/home/dev/work' * 8} {'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    ("said", "words"),
    [(f"a {DATA} b {NAMES}", f"a b {NAMES}"), ("語a日本語", "語 a 日本 本語 語"), ("a\0b\ud800c", "a b\ufffdc")],
    ids=["no encoded data, but paths", "neighbouring Chinese characters in pairs", "text without what is unstorable"],
)
def test_what_is_indexed(said, words):
    assert index_text(said).split() == words.split()


def test_a_snippet_shows_the_place_with_most_terms():
    said = f"race {'x ' * 300} then the race\n\n  condition {'y ' * 300}"
    parts = snippet(said, SearchQuery.of("race condition").patterns)
    assert [part.text for part in parts if part.marked] == ["race", "condition"]
    shown = "".join(part.text for part in parts)
    assert shown.startswith("…x x")
    assert "then the race condition y" in shown
    assert shown.endswith("…")
    assert len(shown) < 200


def test_a_snippet_without_a_mark_is_the_beginning_and_marks_do_not_overlap():
    parts = snippet("word " * 100, SearchQuery.of("absent").patterns)
    assert [part.marked for part in parts] == [False]
    assert parts[0].text.startswith("word word")
    assert snippet("", []) == []
    parts = snippet("race conditions", SearchQuery.of('"race condition" condition race').patterns)
    assert [part.text for part in parts if part.marked]
    assert "".join(part.text for part in parts) == "race conditions"
