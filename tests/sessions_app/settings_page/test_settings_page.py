"""The settings page: it shows the effective values, their sources, and errors."""

import json
import os
from pathlib import Path
from typing import Any

from django.http import HttpResponse
from django.test import Client

from redline import configuration
from redline.configuration import Configuration, RootSetting
from sessions_app.checks import check_configuration, check_distinct_roots, check_variables
from sessions_app.index.indexer import index_roots
from sessions_app.models import Root, Session
from sessions_app.settings_page.effective_settings import effective_settings
from tests.factories import assistant, chain, compaction, session_bytes, text, user, whole
from tests.files import place
from tests.html import assert_inert, element, links, text_of, texts


def page(browser: Client) -> HttpResponse:
    answer = browser.get("/settings")
    assert answer.status_code == 200
    return answer


def page_words(browser: Client) -> str:
    return text_of(page(browser))


def put(root: Path, name: str, recorded: list[Any]) -> Session:
    (root / name).write_bytes(session_bytes(recorded))
    index_roots()
    return Session.objects.get(relative_path=name)


def of_model(model: str) -> list[Any]:
    return chain(user("hello"), assistant(text("hi"), provider="p", model=model))


def test_every_setting_is_shown_with_its_meaning(browser, known_root):
    shown = texts(page(browser), "td")
    for name, field in Configuration.model_fields.items():
        assert name in shown
        assert field.description, f"{name} needs a docstring that says what it means"


def test_each_value_names_where_it_comes_from(tmp_path, monkeypatch):
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


def test_with_an_error_all_values_are_defaults(tmp_path, monkeypatch):
    (tmp_path / "redline.toml").write_text("lock_seconds = 3\nlive_minutes = 'soon'\n")
    _, faults = configuration.load(tmp_path)
    assert faults
    assert set(map(tuple, configuration.sources(tmp_path, faults).values())) == {()}


def test_configuration_errors_are_shown_first(browser, known_root, settings):
    settings.REDLINE_FAULTS = ["live_minutes: Input should be a valid number"]
    shown = page_words(browser)
    assert shown.index("Input should be a valid number") < shown.index(" thinking_guard ")
    assert check_configuration(None)[0].id == "redline.E001"


def test_the_sources_of_values_are_shown(browser, known_root, settings):
    settings.REDLINE_SOURCES = {"live_minutes": ["REDLINE_LIVE_MINUTES"], "lock_seconds": ["redline.toml"]}
    shown = page_words(browser)
    assert "REDLINE_LIVE_MINUTES" in shown
    assert str(settings.REDLINE_DATA_DIR.name) in shown


def test_a_misspelt_variable_is_a_warning_with_a_suggestion(browser, known_root, monkeypatch, settings):
    monkeypatch.setenv("REDLINE_LIVE_MINUTE", "7")
    monkeypatch.setenv("REDLINE_CORPUS", "/somewhere")
    settings.REDLINE_MISSPELT = configuration.misspelt()
    assert [(found.id, found.hint) for found in check_variables(None)] == [
        ("redline.W003", "Did you mean REDLINE_LIVE_MINUTES?")
    ]
    assert "REDLINE_LIVE_MINUTE is not a setting" in page_words(browser)


def test_a_root_that_is_configured_twice_is_a_warning(known_root, settings):
    assert check_distinct_roots(None) == []
    other_name = known_root.parent / "other"
    other_name.symlink_to(known_root)
    roots = [*settings.REDLINE.roots, RootSetting(path=other_name)]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots})
    assert [found.id for found in check_distinct_roots(None)] == ["redline.W004"]


def test_a_root_that_cannot_be_read_is_shown_with_the_reason(browser, known_root, tmp_path, settings):
    (tmp_path / "file").write_text("")
    added = [RootSetting(path=tmp_path / "file"), RootSetting(path=tmp_path / "nowhere", agent="pi")]
    roots = [*settings.REDLINE.roots, *added]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots})
    shown = page_words(browser)
    assert "is not a directory" in shown
    assert "This directory does not exist yet" in shown


def test_a_root_shows_its_sessions(browser, known_root):
    put(known_root, "a.jsonl", of_model("m"))
    put(known_root, "b.jsonl", of_model("m"))
    (known_root / "b.jsonl").unlink()
    index_roots()
    found = next(one for one in effective_settings(Path.home()).roots if one.root.path == str(known_root))
    assert (found.sessions, found.missing, found.size) == (1, 1, (known_root / "a.jsonl").stat().st_size)


def test_a_reader_chosen_for_a_root_applies_at_once_and_the_figures_follow(browser, known_root):
    answers = (user("one"), assistant(text("long answer " * 500)), user("two"))
    session = put(known_root, "a.jsonl", chain(*answers, compaction(whole("e2")), user("three")))
    address = f"/sessions/{session.root_id}/a.jsonl"
    assert session.read_as == "atomic-0.8"
    counted = session.context_tokens
    choice = {"do": "reader", "root": str(session.root_id), "reader": "pi"}
    answer = browser.post("/settings", choice)
    assert (answer.status_code, answer["Location"]) == (303, "/settings#roots")
    session = Session.objects.select_related("root").get(pk=session.pk)
    assert session.reader_choice == "pi"
    assert "you chose it" in text_of(browser.get(address))
    index_roots()
    session.refresh_from_db()
    assert (session.read_as, session.context_tokens > counted) == ("pi", True)

    browser.post("/settings", {**choice, "reader": ""})
    assert "you chose it" not in text_of(browser.get(address))
    index_roots()
    session.refresh_from_db()
    assert (session.read_as, session.context_tokens) == ("atomic-0.8", counted)


def test_the_choice_for_a_session_takes_precedence_over_that_for_its_root_which_stays(browser, known_root):
    session = put(known_root, "a.jsonl", of_model("m"))
    Session.objects.filter(pk=session.pk).update(reader="atomic-0.8")
    browser.post("/settings", {"do": "reader", "root": str(session.root_id), "reader": "pi"})
    index_roots()
    assert Session.objects.get(pk=session.pk).reader_choice == "atomic-0.8"
    assert Root.objects.get(pk=session.root_id).chosen_reader == "pi"


def test_an_invalid_choice_is_refused_and_changes_nothing(browser, known_root):
    session = put(known_root, "a.jsonl", of_model("m"))
    choice = {"do": "reader", "root": str(session.root_id)}
    unknown = {**choice, "root": "99999", "reader": "pi"}
    for values in ({"root": "x"}, unknown, {**choice, "reader": "nobody"}, {}, {"session": "99999"}):
        assert browser.post("/settings", values).status_code == 422, values
    assert set(Root.objects.values_list("chosen_reader", flat=True)) == {""}


def test_a_root_of_the_command_line_has_no_settings(browser, known_root, tmp_path):
    other = Root.objects.create(path=str(tmp_path / "private"))
    assert browser.post("/settings", {"do": "reader", "root": str(other.pk), "reader": "pi"}).status_code == 422
    assert "private" not in page_words(browser)


def test_the_agents_own_settings_are_shown_with_their_faults(browser, known_root, redline):
    for directory, content in ((".atomic", json.dumps({"compaction": {"reserveTokens": 999}})), (".pi", "{")):
        place(redline.home / directory / "agent" / "settings.json", content.encode())
    shown = page_words(browser)
    assert "reserveTokens: 999" in shown
    assert "it is not valid JSON" in shown


def test_windows_show_their_source_and_unknown_ones_how_to_set_them(browser, known_root, settings, redline):
    settings.REDLINE = settings.REDLINE.model_copy(update={"windows": {"m-own": 1_000, "m-unused": 5}})
    models = {"providers": {"p": {"models": [{"id": "m-agent", "contextWindow": 7_777}]}}}
    place(redline.home / ".atomic" / "agent" / "models.json", json.dumps(models).encode())
    for number, model in enumerate(("m-own", "m-agent", "gpt-5-mini", "m-nobody-knows")):
        put(known_root, f"{number}.jsonl", of_model(model))
    found = {model.name: model for model in effective_settings(Path.home()).models}
    assert found["m-own"].window == (1_000, "your configuration")
    assert found["m-agent"].window == (7_777, "the agent's configuration")
    assert found["gpt-5-mini"].window == (400_000, "Redline's table")
    assert found["m-nobody-knows"].window is None
    assert found["m-unused"].sessions == 0
    shown = page(browser)
    assert "7,777" in text_of(shown)
    assert '[windows]\n"m-nobody-knows" = 200000' in element(shown, "pre").text()


def test_the_suggested_lines_are_valid_configuration(browser, known_root):
    put(known_root, "a.jsonl", of_model('odd "name" \\ with/slash'))
    put(known_root, "b.jsonl", of_model("evil\u202e\n[roots]"))
    snippet = effective_settings(Path.home()).snippet
    (known_root.parent / "redline.toml").write_text(snippet)
    found, faults = configuration.load(known_root.parent)
    assert (faults, found.windows) == ([], {'odd "name" \\ with/slash': 200_000})


def test_an_unreadable_session_is_listed_with_the_reason_and_can_be_retried(browser, known_root):
    session = put(known_root, "a.jsonl", of_model("m"))
    content = (known_root / "a.jsonl").read_bytes()
    (known_root / "a.jsonl").write_text("no session any more\n" * 1_000)
    index_roots()
    assert "is not a session" in page_words(browser)
    again = {"session": str(session.pk)}
    assert browser.post("/settings", again)["Location"] == "/settings#unreadable"
    assert "is not a session" in page_words(browser)
    (known_root / "a.jsonl").write_bytes(content)
    assert browser.post("/settings", again).status_code == 303
    assert "All sessions can be read" in page_words(browser)


def test_damaged_sessions_are_counted_and_lead_to_their_list(browser, known_root):
    put(known_root, "a.jsonl", [*of_model("m"), b"{torn"])
    assert ("1 session", "/?show=damaged") in links(page(browser))


def test_hostile_names_are_inert(browser, known_root):
    put(known_root, "a.jsonl", of_model("<script>alert(1)</script>\x1b[31m\u202e"))
    name = "b\u202e<b>.jsonl"
    put(known_root, name, of_model("m"))
    (known_root / name).write_text("nothing")
    index_roots()
    shown = page(browser)
    assert_inert(shown)
    assert "b\\u202e<b>.jsonl" in text_of(shown)


def test_the_versions_are_shown(browser, known_root):
    versions = effective_settings(Path.home()).versions
    assert versions.redline
    assert versions.database.endswith("redline.sqlite3")
    assert versions.size > 0
