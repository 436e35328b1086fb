"""Promises of the page of a session's compaction settings: what is in force, its default, its file, a line to paste.

Each line is pasted into the file that the page names, and is in force then.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.settings_in_force.presenter import SettingRow, SettingsView, view_settings
from sessions_app.agents.registry import AGENTS
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.factories import HEADER, assistant, chain, compaction, session_bytes, text, user, whole
from tests.files import backdate, place
from tests.html import elements, text_of
from tests.installation import override_configuration

MODEL = "acme/claude-x"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def session(known_root: Path, home: Path) -> Session:
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


def row(view: SettingsView, name: str) -> SettingRow:
    return next(one for one in (*view.of_agent, *view.of_plans) if one.name == name)


def write(path: Path, values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def test_without_files_everything_is_a_default(browser: Client, session: Session, home: Path) -> None:
    view = view_settings(of_agent(session, "pi"), home)
    assert all(one.is_default and one.value == one.default for one in (*view.of_agent, *view.of_plans))
    assert [(one.name, one.value) for one in view.of_agent] == [
        ("compaction.enabled", "true"),
        ("compaction.reserveTokens", "16384"),
        ("compaction.keepRecentTokens", "20000"),
        ("branchSummary.reserveTokens", "16384"),
        ("branchSummary.skipPrompt", "false"),
    ]
    assert [one.value for one in view.of_plans] == ["0.5", "2", "your last message"]
    assert {one.paste_into for one in view.of_agent} == {str(home / ".pi" / "agent" / "settings.json")}


def test_the_page_names_the_file_of_each_value(browser: Client, session: Session, home: Path) -> None:
    project = write(
        home / "project" / ".pi" / "settings.json", {"compaction": {"reserveTokens": 5, "query": "tests"}}
    )
    own = write(
        home / ".pi" / "agent" / "settings.json",
        {
            "compaction": {
                "enabled": False,
                "reserveTokens": 6,
                "modelOverrides": {MODEL: {"keepRecentTokens": 7}},
            }
        },
    )
    view = view_settings(of_agent(session, "pi"), home)
    found = {
        one.name: (one.value, one.source) for one in (*view.of_agent, *view.of_plans) if not one.is_default
    }
    assert found == {
        "compaction.reserveTokens": ("5", str(project)),
        "query": ("tests", str(project)),
        "compaction.enabled": ("false", str(own)),
        "compaction.keepRecentTokens": ("7", str(own)),
    }
    line = json.loads(f"{{{row(view, 'compaction.keepRecentTokens').line}}}")
    assert line == {"compaction": {"modelOverrides": {MODEL: {"keepRecentTokens": 7}}}}
    assert (view.compacts_automatically, view.switched_off_in) == (False, str(own))
    shown = text_of(browser.get(f"{session.get_absolute_url()}/settings"))
    assert "Automatic compaction is off, by ~/.pi/agent/settings.json" in shown
    assert "~/project/.pi/settings.json" in shown


@pytest.mark.parametrize("key", sorted(set(AGENTS) - {"amp"}))
def test_a_pasted_line_is_in_force(session: Session, home: Path, key: str) -> None:
    session = of_agent(session, key)
    before = view_settings(session, home)
    assert before.of_agent
    rows = [one for one in (*before.of_agent, *before.of_plans) if one.line]
    for one in rows:
        path = Path(one.paste_into)
        is_toml = path.suffix == ".toml"
        write(path, one.line if is_toml else f"{{{one.line}}}")
        after = row(view_settings(session, home), one.name)
        assert (after.source, after.ignored) == (str(path), ()), one
        pasted = tomllib.loads(one.line) if is_toml else json.loads(f"{{{one.line}}}")
        while isinstance(pasted, dict):
            (pasted,) = pasted.values()
        assert after.value == (pasted if isinstance(pasted, str) else json.dumps(pasted))
        path.unlink()


def test_a_switch_is_turned_over_and_another_value_is_repeated(session: Session, home: Path) -> None:
    write(home / ".pi" / "agent" / "settings.json", {"compaction": {"enabled": False, "reserveTokens": 9}})
    view = view_settings(of_agent(session, "pi"), home)
    assert row(view, "compaction.enabled").line == '"compaction": {"enabled": true}'
    assert row(view, "compaction.reserveTokens").line == '"compaction": {"reserveTokens": 9}'


@pytest.mark.parametrize("value", ["many", -1, True, None, [1], 10**12])
def test_a_value_that_cannot_be_used_is_named(session: Session, home: Path, value: object) -> None:
    wrong = write(home / "project" / ".pi" / "settings.json", {"compaction": {"reserveTokens": value}})
    right = write(home / ".pi" / "agent" / "settings.json", {"compaction": {"reserveTokens": 9}})
    found = row(view_settings(of_agent(session, "pi"), home), "compaction.reserveTokens")
    assert (found.value, found.source, found.ignored) == ("9", str(right), (str(wrong),))


def test_a_parameter_that_cannot_be_used_is_the_default(session: Session, home: Path) -> None:
    wrong = write(home / "project" / ".pi" / "settings.json", {"compaction": {"compression_ratio": 7}})
    write(home / ".pi" / "agent" / "settings.json", {"compaction": {"compression_ratio": 0.3}})
    found = row(view_settings(of_agent(session, "pi"), home), "compression_ratio")
    assert (found.value, found.source) == ("0.5", "")
    assert str(wrong) in found.ignored


def test_hooks_of_the_agent_and_of_redline_are_listed(browser: Client, session: Session, home: Path) -> None:
    hooks = {
        "PreCompact": [{"matcher": "auto", "hooks": [{"type": "command", "command": "check <b>"}]}, 3],
        "Stop": [],
    }
    path = write(home / ".claude" / "settings.json", {"hooks": hooks})
    with override_configuration(hooks=["compaction_app.examples.pin_labelled"]):
        view = view_settings(of_agent(session, "claude-code"), home)
    assert view.hooks == [(str(path), ("PreCompact (auto): check <b>",))]
    assert view.own_hooks == ["compaction_app.examples.pin_labelled"]
    write(home / ".codex" / "hooks.json", {"hooks": hooks})
    assert view_settings(of_agent(session, "codex"), home).hooks[0][1] == ("PreCompact (auto): check <b>",)
    write(home / ".config" / "opencode" / "opencode.json", {"plugin": ["guard", 3]})
    assert view_settings(of_agent(session, "opencode"), home).hooks[0][1] == ("plugin: guard",)


def test_values_of_files_are_escaped(browser: Client, session: Session, home: Path) -> None:
    hostile = "<script>alert(1)</script>\u202e\x1b[2J" + "x" * 5_000
    write(home / ".pi" / "agent" / "settings.json", {"compaction": {"query": hostile}})
    page = browser.get(f"{session.get_absolute_url()}/settings")
    body = page.content.decode()
    assert page.status_code == 200
    assert "<script>alert" not in body
    assert "\u202e" not in body
    assert "\x1b" not in body
    assert "x" * 400 not in body


def test_a_file_that_cannot_be_read_is_named(browser: Client, session: Session, home: Path) -> None:
    path = write(home / ".pi" / "agent" / "settings.json", "{")
    shown = text_of(browser.get(f"{session.get_absolute_url()}/settings"))
    assert "Nothing of this file is in force." in shown
    assert path.name in shown


def test_the_number_of_compactions_is_shown(browser: Client, known_root: Path, home: Path) -> None:
    recorded = chain(
        user("a"), assistant(text("b")), assistant(text("c")), compaction(whole("e2")), user("d")
    )
    found = index_file(backdate(place(known_root / "b.jsonl", session_bytes(recorded))))
    shown = text_of(browser.get(f"{found.get_absolute_url()}/settings"))
    assert "1 compaction so far; answers may get less accurate from the second on" in shown


def test_the_page_is_linked_where_a_plan_is_started(browser: Client, session: Session) -> None:
    at = session.get_absolute_url()
    for page in (at, f"{at}/compact"):
        assert elements(browser.get(page), f'a[href="{at}/settings"]')
