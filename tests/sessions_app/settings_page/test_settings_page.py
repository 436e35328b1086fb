"""The pages of settings: they show the effective values, their sources, and errors; folders, windows and automatic
planning are changed there."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from redline import configuration
from redline.configuration import Configuration, RootSetting
from sessions_app.checks import check_configuration, check_distinct_roots, check_variables
from sessions_app.index.indexer import index_roots
from sessions_app.index.roots import configured_roots
from sessions_app.models import ChosenWindow, Root, Session
from sessions_app.pages.settings import advanced, general, windows
from sessions_app.sessionlog.sourced_value import SourcedValue
from tests.clients import page
from tests.factories import assistant, chain, compaction, session_bytes, text, user, whole
from tests.files import place, unchanged
from tests.html import HOSTILE_TEXTS, assert_inert, element, elements, links, missing, text_of, text_sent, texts

ADVANCED = "/settings/advanced"
WINDOWS = "/settings/windows"


def page_words(browser: Client, address: str = "/settings") -> str:
    return text_of(page(browser, address))


def post(browser: Client, do: str, **values: str) -> HttpResponse:
    return browser.post(WINDOWS if do == "window" else "/settings", {"do": do, **values})


def put(root: Path, name: str, recorded: list[Any]) -> Session:
    (root / name).write_bytes(session_bytes(recorded))
    index_roots()
    return Session.objects.get(relative_path=name)


def of_model(model: str) -> list[Any]:
    return chain(user("hello"), assistant(text("hi"), provider="p", model=model))


@pytest.fixture
def configure(settings):
    """Override values of the configuration; `roots` are added to those that are there."""

    def override(roots: list[RootSetting] | None = None, **values: Any) -> None:
        roots = [*settings.REDLINE.roots, *(roots or [])]
        settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots, **values})

    return override


def test_every_setting_is_shown_with_its_meaning_and_the_versions(browser, known_root):
    shown = texts(page(browser, ADVANCED), "td")
    found = advanced()
    assert [field.name for field in found["fields"]] == list(Configuration.model_fields)
    for field in found["fields"]:
        assert field.name in shown
        assert field.meaning, f"{field.name} needs a docstring that says what it means"
    assert (bool(found["redline_version"]), found["database_bytes"] > 0) == (True, True)
    assert found["database"].endswith("redline.sqlite3")


def test_each_value_names_where_it_comes_from_and_with_an_error_all_are_defaults(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("REDLINE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "redline.toml").write_text("live_minutes = 9\nlock_seconds = 3\n[windows]\na = 1\n")
    monkeypatch.setenv("REDLINE_LIVE_MINUTES", "7")
    monkeypatch.setenv("redline_windows", '{"b": 2}')
    found, faults = configuration.load(tmp_path)
    assert (found.live_minutes, found.lock_seconds, found.windows) == (7, 3, {"a": 1, "b": 2})
    sources = configuration.sources(tmp_path, faults)
    assert {name: source for name, source in sources.items() if source} == {
        "live_minutes": ["REDLINE_LIVE_MINUTES"],
        "lock_seconds": ["redline.toml"],
        "windows": ["REDLINE_WINDOWS", "redline.toml"],
    }
    (tmp_path / "redline.toml").write_text("lock_seconds = 'soon'\nlive_minutes = 3\n")
    _, faults = configuration.load(tmp_path)
    assert faults
    assert set(map(tuple, configuration.sources(tmp_path, faults).values())) == {()}


def test_configuration_errors_are_shown_first_and_the_sources_of_values(browser, known_root, settings):
    settings.REDLINE_SOURCES = {"live_minutes": ["REDLINE_LIVE_MINUTES"], "lock_seconds": ["redline.toml"]}
    settings.REDLINE_FAULTS = ["live_minutes: Input should be a valid number"]
    shown = page_words(browser, ADVANCED)
    assert shown.index("Input should be a valid number") < shown.index(" thinking_guard ")
    assert "Input should be a valid number" in page_words(browser)
    assert check_configuration(None)[0].id == "redline.E001"
    assert not missing(shown, "REDLINE_LIVE_MINUTES", str(settings.REDLINE_DATA_DIR.name))


def test_a_misspelt_variable_is_a_warning_with_a_suggestion(browser, known_root, monkeypatch, settings):
    monkeypatch.setenv("REDLINE_LIVE_MINUTE", "7")
    monkeypatch.setenv("REDLINE_CORPUS", "/somewhere")
    settings.REDLINE_MISSPELT = configuration.misspelt()
    (found,) = check_variables(None)
    assert (found.id, found.hint) == ("redline.W003", "Did you mean REDLINE_LIVE_MINUTES?")
    assert "REDLINE_LIVE_MINUTE is not a setting" in page_words(browser)


def test_a_root_that_is_configured_twice_is_a_warning(known_root, configure):
    assert check_distinct_roots(None) == []
    other_name = known_root.parent / "other"
    other_name.symlink_to(known_root)
    configure([RootSetting(path=other_name)])
    assert [found.id for found in check_distinct_roots(None)] == ["redline.W004"]


def test_a_root_that_cannot_be_read_is_shown_with_the_reason(browser, known_root, tmp_path, configure):
    (tmp_path / "file").write_text("")
    configure([RootSetting(path=tmp_path / "file"), RootSetting(path=tmp_path / "nowhere", agent="pi")])
    assert not missing(page_words(browser), "is not a directory", "This folder does not exist yet")


def test_a_root_shows_its_sessions(browser, known_root):
    put(known_root, "a.jsonl", of_model("m"))
    put(known_root, "b.jsonl", of_model("m"))
    (known_root / "b.jsonl").unlink()
    index_roots()
    found = next(one for one in general()["roots"] if one.root.path == str(known_root))
    assert (found.sessions, found.missing, found.size) == (1, 1, (known_root / "a.jsonl").stat().st_size)


def test_a_reader_chosen_for_a_root_applies_at_once_and_the_figures_follow(browser, known_root):
    answers = (user("one"), assistant(text("long answer " * 500)), user("two"))
    session = put(known_root, "a.jsonl", chain(*answers, compaction(whole("e2")), user("three")))
    counted = session.context_tokens
    assert session.read_as == "atomic-0.8"
    for reader, read_as in (("pi", "pi"), ("", "atomic-0.8")):
        answer = post(browser, "reader", root=str(session.root_id), reader=reader)
        assert (answer.status_code, answer["Location"]) == (303, "/settings#folders")
        session = Session.objects.select_related("root").get(pk=session.pk)
        assert session.reader_choice == reader
        assert ("you chose it" in text_of(browser.get(session.get_absolute_url()))) is bool(reader)
        index_roots()
        session.refresh_from_db()
        assert (session.read_as, session.context_tokens > counted) == (read_as, bool(reader))
    assert session.context_tokens == counted


def test_the_choice_for_a_session_takes_precedence_over_that_for_its_root_which_stays(browser, known_root):
    session = put(known_root, "a.jsonl", of_model("m"))
    Session.objects.filter(pk=session.pk).update(reader="atomic-0.8")
    post(browser, "reader", root=str(session.root_id), reader="pi")
    index_roots()
    assert Session.objects.get(pk=session.pk).reader_choice == "atomic-0.8"
    assert Root.objects.get(pk=session.root_id).chosen_reader == "pi"


def test_an_invalid_choice_is_refused_and_changes_nothing(browser, known_root):
    choice = {"do": "reader", "root": str(put(known_root, "a.jsonl", of_model("m")).root_id)}
    unknown = {**choice, "root": "99999", "reader": "pi"}
    for values in ({"root": "x"}, unknown, {**choice, "reader": "nobody"}, {}, {"session": "99999"}):
        assert browser.post("/settings", values).status_code == 422, values
    assert set(Root.objects.values_list("chosen_reader", flat=True)) == {""}


def test_a_root_of_the_command_line_has_no_settings(browser, known_root, tmp_path):
    other = Root.objects.create(path=str(tmp_path / "private"))
    assert post(browser, "reader", root=str(other.pk), reader="pi").status_code == 422
    assert "private" not in page_words(browser)


def test_the_agents_own_settings_are_shown_with_their_faults(browser, known_root, redline):
    for directory, content in ((".atomic", json.dumps({"compaction": {"reserveTokens": 999}})), (".pi", "{")):
        place(redline.home / directory / "agent" / "settings.json", content.encode())
    assert not missing(page_words(browser, ADVANCED), "reserveTokens: 999", "it is not valid JSON")


def test_windows_show_their_source_and_unknown_ones_how_to_set_them(browser, known_root, configure, redline):
    configure(windows={"m-own": 1_000, "m-unused": 5})
    models = {"providers": {"p": {"models": [{"id": "m-agent", "contextWindow": 7_777}]}}}
    place(redline.home / ".atomic" / "agent" / "models.json", json.dumps(models).encode())
    for number, model in enumerate(("m-own", "m-agent", "gpt-5-mini", "m-nobody-knows")):
        put(known_root, f"{number}.jsonl", of_model(model))
    assert {model.name: (model.window, model.sessions) for model in windows()["models"]} == {
        "m-own": (SourcedValue(1_000, "your configuration"), 1),
        "m-agent": (SourcedValue(7_777, "the agent's configuration"), 1),
        "gpt-5-mini": (SourcedValue(400_000, "Redline's table"), 1),
        "m-nobody-knows": (None, 1),
        "m-unused": (SourcedValue(5, "your configuration"), 0),
    }
    shown = page(browser, WINDOWS)
    assert all(("7,777" in text_of(shown), '[windows]\n"m-nobody-knows" = 200000' in element(shown, "pre").text()))


def test_the_suggested_lines_are_valid_configuration(browser, known_root):
    put(known_root, "a.jsonl", of_model('odd "name" \\ with/slash'))
    put(known_root, "b.jsonl", of_model("evil\u202e\n[roots]"))
    (known_root.parent / "redline.toml").write_text(windows()["snippet"])
    found, faults = configuration.load(known_root.parent)
    assert (faults, found.windows) == ([], {'odd "name" \\ with/slash': 200_000})


def test_an_unreadable_session_is_listed_with_the_reason_and_can_be_retried(browser, known_root):
    session = put(known_root, "a.jsonl", of_model("m"))
    content = (known_root / "a.jsonl").read_bytes()
    (known_root / "a.jsonl").write_text("no session any more\n" * 1_000)
    index_roots()
    assert "is not a session" in page_words(browser, ADVANCED)
    again = {"do": "reread", "session": str(session.pk)}
    assert browser.post(ADVANCED, again)["Location"] == f"{ADVANCED}#unreadable"
    assert "is not a session" in page_words(browser, ADVANCED)
    (known_root / "a.jsonl").write_bytes(content)
    assert browser.post(ADVANCED, again).status_code == 303
    assert "All sessions can be read" in page_words(browser, ADVANCED)


def test_damaged_sessions_are_counted_and_lead_to_their_list(browser, known_root):
    put(known_root, "a.jsonl", [*of_model("m"), b"{torn"])
    assert ("1 session", "/?show=damaged") in links(page(browser, ADVANCED))


def test_hostile_names_are_inert(browser, known_root):
    put(known_root, "a.jsonl", of_model("<script>alert(1)</script>\x1b[31m\u202e"))
    name = "b\u202e<b>.jsonl"
    put(known_root, name, of_model("m"))
    (known_root / name).write_text("nothing")
    index_roots()
    for address in ("/settings", WINDOWS, "/settings/browser", ADVANCED):
        assert_inert(page(browser, address))
    assert "b\\u202e<b>.jsonl" in page_words(browser, ADVANCED)


@pytest.fixture
def more(tmp_path):
    """A directory with a session, in no root."""
    return place(tmp_path / "more" / "b.jsonl", session_bytes(of_model("m-1"))).parent


def added(browser: Client, path: Path, agent: str = "atomic") -> Root:
    answer = post(browser, "add-root", path=str(path), agent=agent)
    assert (answer.status_code, answer["Location"]) == (303, "/settings#folders")
    return Root.objects.get(path=str(path))


def test_an_added_root_is_searched_like_a_configured_one(browser, known_root, more):
    root = added(browser, more)
    assert (root.configured, root.added, root.agent) == (True, True, "atomic")
    assert {found.path for found in configured_roots()} == {str(known_root), str(more)}
    index_roots()
    assert "hello" in text_of(browser.get("/"))
    assert "added here" in page_words(browser)


def test_a_removed_root_hides_its_sessions_and_touches_no_file(browser, known_root, more):
    root = added(browser, more)
    index_roots()
    with unchanged(more / "b.jsonl"):
        assert post(browser, "remove-root", root=str(root.pk)).status_code == 303
        assert [found.path for found in configured_roots()] == [str(known_root)]
        assert "hello" not in text_of(browser.get("/"))
    # Added again, it has what is known of its sessions.
    assert added(browser, more).pk == root.pk
    assert "hello" in text_of(browser.get("/"))


def test_a_root_has_a_name_until_it_is_taken_away(browser, known_root, more):
    root = added(browser, more)
    for name, is_named in (("  The   other\tmachine ", True), ("", False)):
        post(browser, "rename-root", root=str(root.pk), name=name)
        assert ("The other machine" in texts(browser.get("/settings"), "b.setting__name")) is is_named


def test_a_root_of_the_configuration_cannot_be_changed_here(browser, known_root):
    configured_roots()
    root = Root.objects.get(path=str(known_root))
    for is_added in (False, True):  # here, before it was configured
        Root.objects.update(added=is_added)
        for do in ("remove-root", "rename-root"):
            answer = post(browser, do, root=str(root.pk), name="x")
            assert not is_added or "is in your configuration" in text_sent(answer, 422)
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
        (str(known_root), "is searched already"),
    ):
        answer = post(browser, "add-root", path=path)
        assert why in text_sent(answer, 422), path
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
    assert (answer.status_code, answer["Location"]) == (303, f"{WINDOWS}#windows")
    session.refresh_from_db()
    assert (session.window, session.window_source) == (150_000, "this page")
    assert "this page" in page_words(browser, WINDOWS)
    # A later indexing keeps it.
    index_roots()
    session.refresh_from_db()
    assert session.window == 150_000
    post(browser, "window", model="m-1", tokens="")
    session.refresh_from_db()
    assert session.window is None
    assert ChosenWindow.objects.count() == 0


def test_a_window_of_the_configuration_comes_first_and_is_shown_as_such(browser, session, configure):
    configure(windows={"m-1": 20_000})
    post(browser, "window", model="m-1", tokens="150000")
    session.refresh_from_db()
    assert (session.window, session.window_source) == (20_000, "your configuration")
    assert elements(browser.get(WINDOWS), "input[name=tokens]") == []
    assert "in your configuration" in page_words(browser, WINDOWS)


def test_a_window_that_cannot_be_one_is_refused(browser, session):
    for tokens in ("0", "-5", "999", "a lot", "1e99", "100000001"):
        assert post(browser, "window", model="m-1", tokens=tokens).status_code == 422
    assert ChosenWindow.objects.count() == 0
