"""Promises of the page of a session's compaction settings: what is in force, its default, its file, a line to paste."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from compaction_app.pages.settings_in_force import SettingsView, view_settings
from sessions_app.agents.base import SettingInForce
from sessions_app.agents.registry import AGENTS
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.clients import page
from tests.factories import HEADER, assistant, chain, compaction, session_bytes, text, user, whole, working_session
from tests.files import backdate, place
from tests.html import elements, missing, text_of
from tests.installation import override_configuration


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def session(known_root, home):
    """A session of a project in the home directory, written by a model with a known window."""
    project = home / "project"
    project.mkdir()
    said = assistant(text("Done."), provider="acme", model="claude-x")
    recorded = chain(user("Mend it."), said, user("And that?"))
    recorded[0] = {**HEADER, "cwd": str(project)}
    return index_file(backdate(place(known_root / "a.jsonl", session_bytes(recorded))))


def of_agent(session: Session, key: str) -> Session:
    session.root.agent = key
    session.read_as = ""
    return session


def row(view: SettingsView, name: str) -> SettingInForce:
    return next(one for one in (*view.of_agent, *view.of_plans) if one.name == name)


def write(path: Path, values: Any) -> Path:
    return place(path, (values if isinstance(values, str) else json.dumps(values)).encode())


@pytest.fixture
def own(home):
    """The user's own file of pi."""
    return home / ".pi" / "agent" / "settings.json"


@pytest.fixture
def of_project(home):
    return home / "project" / ".pi" / "settings.json"


def test_without_files_everything_is_a_default_and_with_one_a_switch_is_turned_over(session, home, own):
    view = view_settings(of_agent(session, "pi"), home)
    assert all(one.is_default and one.text == one.setting.default for one in (*view.of_agent, *view.of_plans))
    branches = {"branchSummary.reserveTokens": "16384", "branchSummary.skipPrompt": "false"}
    kept = {"compaction.reserveTokens": "16384", "compaction.keepRecentTokens": "20000"}
    assert {one.name: one.text for one in view.of_agent} == {"compaction.enabled": "true", **kept, **branches}
    assert [one.text for one in view.of_plans] == ["0.5", "2", view.of_plans[2].setting.default]
    assert view.user_file == str(own)
    write(own, {"compaction": {"enabled": False, "reserveTokens": 9}})
    view = view_settings(of_agent(session, "pi"), home)
    assert row(view, "compaction.enabled").line == '"compaction": {"enabled": true}'
    assert row(view, "compaction.reserveTokens").line == '"compaction": {"reserveTokens": 9}'


def test_the_page_names_the_file_of_each_value(browser, session, home, own, of_project):
    write(of_project, {"compaction": {"reserveTokens": 5, "query": "tests"}})
    override = {"modelOverrides": {"acme/claude-x": {"keepRecentTokens": 7}}}
    write(own, {"compaction": {"enabled": False, "reserveTokens": 6, **override}})
    view = view_settings(of_agent(session, "pi"), home)
    rows = [one for one in (*view.of_agent, *view.of_plans) if not one.is_default]
    assert {one.name: (one.text, one.source) for one in rows} == {
        "compaction.reserveTokens": ("5", str(of_project)),
        "query": ("tests", str(of_project)),
        "compaction.enabled": ("false", str(own)),
        "compaction.keepRecentTokens": ("7", str(own)),
    }
    assert json.loads(f"{{{row(view, 'compaction.keepRecentTokens').line}}}") == {"compaction": override}
    assert (view.compacts_automatically, view.switched_off_in) == (False, str(own))
    shown = text_of(page(browser, f"{session.get_absolute_url()}/settings"))
    assert "Automatic compaction is off, by ~/.pi/agent/settings.json" in shown
    assert "~/project/.pi/settings.json" in shown


@pytest.mark.parametrize("key", sorted(set(AGENTS) - {"amp"}))
def test_a_pasted_line_is_in_force(session, home, key):
    session = of_agent(session, key)
    before = view_settings(session, home)
    assert before.of_agent
    rows = [one for one in (*before.of_agent, *before.of_plans) if one.line]
    for one in rows:
        path = Path(before.user_file)
        is_toml = path.suffix == ".toml"
        write(path, one.line if is_toml else f"{{{one.line}}}")
        after = row(view_settings(session, home), one.name)
        assert (after.source, after.refused) == (str(path), ()), one
        pasted = tomllib.loads(one.line) if is_toml else json.loads(f"{{{one.line}}}")
        while isinstance(pasted, dict):
            (pasted,) = pasted.values()
        assert after.text == (pasted if isinstance(pasted, str) else json.dumps(pasted))
        path.unlink()


def test_a_value_that_cannot_be_used_is_named_and_passed_over(session, home, own, of_project):
    write(own, {"compaction": {"reserveTokens": 9, "compression_ratio": 0.3}})
    for value in ("many", -1, True, None, [1], 10**12):
        write(of_project, {"compaction": {"reserveTokens": value, "compression_ratio": 7}})
        view = view_settings(of_agent(session, "pi"), home)
        found = row(view, "compaction.reserveTokens")
        assert (found.text, found.source, found.refused) == ("9", str(own), (str(of_project),)), value
        # A plan's parameter is then the default, and the user's value is not called unusable.
        one = row(view, "compression_ratio")
        assert (one.text, one.source, one.refused, one.unread) == ("0.5", "default", found.refused, (str(own),))


def test_hooks_of_the_agent_and_of_redline_are_listed(session, home):
    command = {"matcher": "auto", "hooks": [{"type": "command", "command": "check <b>"}]}
    hooks = {"hooks": {"PreCompact": [command, 3], "Stop": []}}
    claude = write(home / ".claude" / "settings.json", hooks)
    write(home / ".codex" / "hooks.json", hooks)
    write(home / ".config" / "opencode" / "opencode.json", {"plugin": ["guard", 3]})
    with override_configuration(hooks=["compaction_app.examples.pin_labelled"]):
        view = view_settings(of_agent(session, "claude-code"), home)
    assert view.hooks == [(str(claude), ("PreCompact (auto): check <b>",))]
    assert view.own_hooks == ["compaction_app.examples.pin_labelled"]
    for key, words in (("codex", "PreCompact (auto): check <b>"), ("opencode", "plugin: guard")):
        assert view_settings(of_agent(session, key), home).hooks[0][1] == (words,)


def test_values_of_files_are_escaped_and_a_file_that_cannot_be_read_is_named(browser, session, own):
    write(own, {"compaction": {"query": "<script>alert(1)</script>\u202e\x1b[2J" + "x" * 5_000}})
    body = page(browser, f"{session.get_absolute_url()}/settings").content.decode()
    for words in ("<script>alert", "\u202e", "\x1b", "x" * 400):
        assert words not in body
    write(own, "{")
    shown = text_of(page(browser, f"{session.get_absolute_url()}/settings"))
    assert not missing(shown, "Nothing of this file is in force.", own.name)


def test_the_page_is_linked_where_a_plan_is_started_and_counts_compactions(browser, session, known_root, home):
    at = session.get_absolute_url()
    for address in (at, f"{at}/compact"):
        assert elements(page(browser, address), f'a[href="{at}/settings"]')
    said = (user("a"), assistant(text("b")), assistant(text("c")), compaction(whole("e2")), user("d"))
    found = index_file(backdate(place(known_root / "b.jsonl", session_bytes(chain(*said)))))
    shown = text_of(page(browser, f"{found.get_absolute_url()}/settings"))
    assert "1 compaction so far; answers may get less accurate from the second on" in shown


@pytest.fixture
def path(redline):
    settings = {"compaction": {"keepRecentTokens": 9_000, "reserveTokens": "much", "enabled": False}}
    place(redline.home / ".pi" / "agent" / "settings.json", json.dumps(settings).encode())
    return place(redline.home / ".pi" / "agent" / "sessions" / "s.jsonl", session_bytes(working_session()))


def test_the_command_names_each_value_with_its_file_and_what_is_ignored(redline, path):
    found = redline.call("compaction-settings", path, "--json").json
    rows = {row["name"]: row for row in found["settings"]}
    kept = rows["compaction.keepRecentTokens"]
    assert (kept["value"], kept["default"]) == ("9000", "20000")
    assert kept["source"].endswith(".pi/agent/settings.json")
    assert rows["compaction.reserveTokens"]["source"] is None
    assert rows["compaction.reserveTokens"]["ignored"] == [kept["source"]]
    assert (found["automatic"], found["threshold"]) == (False, None)
    assert found["switchedOffIn"] == kept["source"]
    assert {row["name"] for row in found["parameters"]} == {"compression_ratio", "preserve_recent", "query"}
    shown = redline.call("compaction-settings", path).out
    assert not missing(shown, "Automatic compaction is off, by", "The value of compaction.reserveTokens in")
    assert not missing(shown, '"compaction": {"reserveTokens": 16384}', "0 compactions so far.")
