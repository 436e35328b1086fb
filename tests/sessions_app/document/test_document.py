"""An opened session: shared until its file changes, and kept as long as there is room."""

import pytest

from sessions_app.document import document as module
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.factories import chain, session_bytes, user, working_session
from tests.files import place


@pytest.fixture
def session(known_root):
    return index_file(place(known_root / "work.jsonl", session_bytes(working_session())))


def test_what_is_read_of_an_indexed_session_is_what_its_file_holds(session):
    indexed, whole = Document.of_index(session), Document.of_session(session)
    assert [entry.id for entry in indexed.branch()] == [entry.id for entry in whole.branch()]
    assert indexed.log.damage == whole.log.damage
    assert (indexed.fingerprint, indexed.reading) == (whole.fingerprint, whole.reading)
    assert indexed.context().estimate == whole.context().estimate


def test_an_indexed_session_is_shared_until_its_file_or_its_reader_changes(session):
    first = Document.of_index(session)
    assert Document.of_index(session) is first
    session.reader = "pi"
    other = Document.of_index(session)
    assert (other is first, other.reading.reader.name) == (False, "pi")
    path = session.real_path()
    path.write_bytes(path.read_bytes() + session_bytes([{**chain(user("More."))[1], "id": "n1", "parentId": "e2"}]))
    assert Document.of_index(session) is not other


def test_what_follows_is_computed_once_and_dropped_if_there_is_no_room(session, monkeypatch):
    document, computed = Document.of_index(session), []

    def derive(key: str) -> str:
        return document.derived(key, lambda: computed.append(key) or key, lambda _: 100)

    assert [derive("a"), derive("b"), derive("a"), computed] == ["a", "b", "a", ["a", "b"]]
    monkeypatch.setattr(module, "MOST_ENTRIES", document.weight + 50)
    derive("c")
    assert (derive("a"), computed) == ("a", ["a", "b", "c"])
    derive("b")
    assert computed == ["a", "b", "c", "b"]


def test_now_has_what_was_added_and_the_reader_that_was_chosen_since(session):
    before = Document.of_session(session)
    path = session.real_path()
    path.write_bytes(path.read_bytes() + session_bytes([{**chain(user("More."))[1], "id": "n1", "parentId": "e2"}]))
    Session.objects.update(reader="pi")
    now = before.now()
    assert (now.leaf_id, now.reading.reader.name) == ("n1", "pi")
    assert before.leaf_id != "n1"
