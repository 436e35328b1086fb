"""The texts of an entry are searched by who said them; what has no words is left out."""

import base64

from sessions_app.search.passages import EntryPassage, PassageKind, index_text, passages
from sessions_app.search.query import SearchQuery
from sessions_app.search.snippet import snippet
from sessions_app.sessionlog.entries import Entry
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


def test_images_have_no_words():
    assert passages_of({"role": "user", "content": [text("see"), image()]}) == [[(PassageKind.SAID, "see")]]


def test_an_entry_that_is_no_message_has_no_passages():
    label = Entry(number=1, offset=0, length=1, id="a", parent_id=None, type="label")
    branch, texts = branch_and_texts(session_bytes(chain(user("x"))))
    assert list(passages(label, texts[branch[0].id])) == []


def test_encoded_data_is_not_indexed_and_paths_are():
    data = base64.b64encode(bytes(range(256))).decode()
    path = "/home/dev/work" * 8
    sha256 = "0123456789abcdef" * 4
    assert index_text(f"a {data} b {path} {sha256}") == f"a   b {path} {sha256}"


def test_neighbouring_chinese_characters_are_indexed_in_pairs():
    assert index_text("語a日本語").split() == ["語", "a", "日本", "本語", "語"]


def test_unstorable_text_is_indexed_without_its_faults():
    assert index_text("a\0b\ud800c") == "a b\ufffdc"


def test_a_snippet_shows_the_place_with_most_terms():
    text = f"race {'x ' * 300} then the race\n\n  condition {'y ' * 300}"
    parts = snippet(text, SearchQuery.of("race condition").patterns)
    assert [part.text for part in parts if part.marked] == ["race", "condition"]
    shown = "".join(part.text for part in parts)
    assert shown.startswith("…x x")
    assert "then the race condition y" in shown
    assert shown.endswith("…")
    assert len(shown) < 200


def test_a_snippet_without_a_mark_is_the_beginning():
    parts = snippet("word " * 100, SearchQuery.of("absent").patterns)
    assert [part.marked for part in parts] == [False]
    assert parts[0].text.startswith("word word")
    assert snippet("", []) == []


def test_marks_do_not_overlap():
    parts = snippet("race conditions", SearchQuery.of('"race condition" condition race').patterns)
    assert [part.text for part in parts if part.marked]
    assert "".join(part.text for part in parts) == "race conditions"
