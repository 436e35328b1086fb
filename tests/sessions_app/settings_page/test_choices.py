"""Roots and windows are changed on the settings page; what the configuration sets is not."""

from pathlib import Path

import pytest
from django.http import HttpResponse
from django.test import Client

from sessions_app.index.indexer import index_roots
from sessions_app.index.roots import configured_roots
from sessions_app.models import ChosenWindow, Root, Session
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.html import HOSTILE_TEXTS, assert_inert, elements, text_of, texts


@pytest.fixture
def more(tmp_path):
    """A directory with a session, in no root."""
    place(
        tmp_path / "more" / "b.jsonl",
        session_bytes(chain(user("Hello."), assistant(text("hi"), provider="p", model="m-1"))),
    )
    return tmp_path / "more"


def post(browser: Client, do: str, **values: str) -> HttpResponse:
    return browser.post("/settings", {"do": do, **values})


def added(browser: Client, path: Path, agent: str = "atomic") -> Root:
    answer = post(browser, "add-root", path=str(path), agent=agent)
    assert (answer.status_code, answer["Location"]) == (303, "/settings#roots")
    return Root.objects.get(path=str(path))


def test_an_added_root_is_searched_like_a_configured_one(browser, known_root, more):
    root = added(browser, more)
    assert (root.configured, root.added, root.agent) == (True, True, "atomic")
    assert {found.path for found in configured_roots()} == {str(known_root), str(more)}
    index_roots()
    assert "Hello." in text_of(browser.get("/"))
    shown = text_of(browser.get("/settings"))
    assert "added here" in shown


def test_a_removed_root_hides_its_sessions_and_touches_no_file(browser, known_root, more):
    root = added(browser, more)
    index_roots()
    before = (more / "b.jsonl").read_bytes()
    assert post(browser, "remove-root", root=str(root.pk)).status_code == 303
    assert [found.path for found in configured_roots()] == [str(known_root)]
    assert "Hello." not in text_of(browser.get("/"))
    assert (more / "b.jsonl").read_bytes() == before
    # Added again, it has what is known of its sessions.
    assert added(browser, more).pk == root.pk
    assert "Hello." in text_of(browser.get("/"))


def test_a_root_has_a_name_until_it_is_taken_away(browser, known_root, more):
    root = added(browser, more)
    post(browser, "rename-root", root=str(root.pk), name="  The   other\tmachine ")
    assert "The other machine" in texts(browser.get("/settings"), "td b")
    post(browser, "rename-root", root=str(root.pk), name="")
    assert "The other machine" not in texts(browser.get("/settings"), "td b")


def test_a_root_of_the_configuration_cannot_be_changed_here(browser, known_root):
    configured_roots()
    root = Root.objects.get(path=str(known_root))
    for do in ("remove-root", "rename-root"):
        assert post(browser, do, root=str(root.pk), name="x").status_code == 422
    Root.objects.update(added=True)  # it was added here before it was configured
    for do in ("remove-root", "rename-root"):
        answer = post(browser, do, root=str(root.pk), name="x")
        assert answer.status_code == 422
        assert "is in your configuration" in text_of(answer)
    assert elements(browser.get("/settings"), "button[value=remove-root]") == []
    root.refresh_from_db()
    assert (root.configured, root.name) == (True, "")


def test_what_is_no_directory_with_sessions_is_refused_with_the_reason(browser, known_root, tmp_path):
    configured_roots()
    place(tmp_path / "file", b"")
    for path, why in (
        ("", "Give the whole path of a directory"),
        ("relative/path", "beginning with / or ~"),
        ("~nobody-of-this-name/x", "home"),
        (str(tmp_path / "missing"), "is not a directory"),
        (str(tmp_path / "file"), "is not a directory"),
        ("/", "all files of this computer"),
        (str(known_root), "is a root already"),
    ):
        answer = post(browser, "add-root", path=path)
        assert answer.status_code == 422
        assert why in text_of(answer), path
        # What was typed is still there.
        assert [one.attributes.get("value") or "" for one in elements(answer, "#path")] == [path]
    assert Root.objects.filter(added=True).count() == 0
    assert post(browser, "add-root", path=str(tmp_path), agent="nobody").status_code == 422


def test_what_is_typed_is_inert(browser, known_root, more):
    root = added(browser, more)
    for hostile in HOSTILE_TEXTS:
        typed = hostile.encode("utf-8", "replace").decode()
        assert_inert(post(browser, "add-root", path=typed))
        post(browser, "rename-root", root=str(root.pk), name=typed)
        assert_inert(browser.get("/settings"))


@pytest.fixture
def session(known_root, more):
    place(known_root / "b.jsonl", (more / "b.jsonl").read_bytes())
    index_roots()
    return Session.objects.get()


def test_a_window_is_set_for_all_sessions_of_its_model_and_taken_back(browser, session):
    assert session.window is None
    answer = post(browser, "window", model="m-1", tokens="150,000")
    assert (answer.status_code, answer["Location"]) == (303, "/settings#windows")
    session.refresh_from_db()
    assert (session.window, session.window_source) == (150_000, "this page")
    assert "this page" in text_of(browser.get("/settings"))
    # A later indexing keeps it.
    index_roots()
    session.refresh_from_db()
    assert session.window == 150_000
    post(browser, "window", model="m-1", tokens="")
    session.refresh_from_db()
    assert session.window is None
    assert ChosenWindow.objects.count() == 0


def test_a_window_of_the_configuration_comes_first_and_is_shown_as_such(browser, session, settings):
    settings.REDLINE = settings.REDLINE.model_copy(update={"windows": {"m-1": 20_000}})
    post(browser, "window", model="m-1", tokens="150000")
    session.refresh_from_db()
    assert (session.window, session.window_source) == (20_000, "your configuration")
    shown = browser.get("/settings")
    assert elements(shown, "input[name=tokens]") == []
    assert "in your configuration" in text_of(shown)


def test_a_window_that_cannot_be_one_is_refused(browser, session):
    for tokens in ("0", "-5", "999", "a lot", "1e99", "100000001"):
        assert post(browser, "window", model="m-1", tokens=tokens).status_code == 422
    assert ChosenWindow.objects.count() == 0
