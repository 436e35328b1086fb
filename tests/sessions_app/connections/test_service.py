"""Connecting an agent and removing the connection: the agent's configuration is as before, byte for byte.

What was removed stays removed, also if two commands, or a command and the server, change connections at once.
"""

import json
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from django.conf import settings
from hypothesis import given

from sessions_app.agents.bridges import FileBridge
from sessions_app.agents.opencode.edge.client import PluginBridge
from sessions_app.agents.pi.edge.client import ExtensionBridge
from sessions_app.connections import (
    ConnectionState,
    all_connections,
    connect,
    connection_of,
    disconnect,
    planned_connection,
    planned_removal,
    revocation_note,
    revoke,
    status_of_connection,
)
from sessions_app.disk import configuration_file
from sessions_app.server import connection_files
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure
from tests.files import place, snapshot, unchanged
from tests.html import missing
from tests.installation import Installation, refusal
from tests.sessions_app.agents.test_hook_entry import documents

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS: Final = {
    "pi": (".pi/agent/extensions/redline.ts", ".pi/extensions/redline.ts", "PI_CODING_AGENT_DIR"),
    "atomic": (".atomic/agent/extensions/redline.ts", ".atomic/extensions/redline.ts", "ATOMIC_CODING_AGENT_DIR"),
    "opencode": (".config/opencode/plugin/redline.js", ".opencode/plugin/redline.js", "XDG_CONFIG_HOME"),
    "claude-code": (".claude/settings.json", ".claude/settings.local.json", "CLAUDE_CONFIG_DIR"),
    "codex": (".codex/hooks.json", ".codex/hooks.json", "CODEX_HOME"),
}
FILES, IN_PROJECT, VARIABLES = (dict(zip(AGENTS, column, strict=True)) for column in zip(*AGENTS.values(), strict=True))
"""By agent: the file in the home, the one in a project, and the variable that names another directory."""
SOURCE: Final = b'// A bridge.\nconst BRIDGE = 3;\nconst CONNECTION = "@CONNECTION@";\n'
WITH_HOOKS: Final = ("claude-code", "codex")
WITH_FILES: Final = ("pi", "atomic", "opencode")
BEFORE: Final = '{\n  "model": "opus"\n}\n'
each_agent = pytest.mark.parametrize("key", FILES)
each_with_hooks = pytest.mark.parametrize("key", WITH_HOOKS)
each_with_a_file = pytest.mark.parametrize("key", WITH_FILES)


@pytest.fixture(autouse=True)
def source(tmp_path, monkeypatch):
    """The file that bridges are made from."""
    source = tmp_path / "bridge-source"
    source.write_bytes(SOURCE)
    for kind in (ExtensionBridge, PluginBridge):
        kind_with_source: type[FileBridge] = kind
        monkeypatch.setattr(kind_with_source, "source", source)
    return source


def made(key: str, project: Path | None = None) -> connection_files.ConnectedAgent:
    return connect(planned_connection(key, project), NOW)


def removed(key: str, project: Path | None = None) -> None:
    disconnect(planned_removal(key, project))


def written(redline: Installation, key: str, text: str) -> Path:
    """The user's configuration of an agent."""
    return place(redline.home / FILES[key], text.encode())


@pytest.fixture
def project(tmp_path):
    """A directory in which agents can be connected alone."""
    project = tmp_path / "My Project"
    project.mkdir()
    return project


def is_admitted(one: connection_files.ConnectedAgent) -> bool:
    """Whether the token of a connection admits."""
    return connection_files.connection_with(settings.REDLINE_DATA_DIR, one.token) is not None


@each_agent
def test_the_file_of_each_agent_is_made_and_deleted_again_also_after_a_revocation(redline, key):
    before = snapshot(redline.home)
    revoked = made(key)
    revoke(revoked)
    one = made(key)
    assert one.token != revoked.token
    path = redline.home / FILES[key]
    assert (one.name, one.agent, one.changed, one.project) == (key, key, str(path), "")
    assert b"connections/" in path.read_bytes() or b" ask " in path.read_bytes()
    assert status_of_connection(one).state is ConnectionState.CURRENT
    with_file, change = snapshot(redline.home), planned_connection(key, None)
    assert not change.changes_file
    assert connect(change, NOW) == one
    assert snapshot(redline.home) == with_file, "connected again, nothing is changed"
    removed(key)
    assert (snapshot(redline.home), all_connections()) == (before, [])


@pytest.mark.parametrize("key", IN_PROJECT)
def test_an_agent_is_connected_in_one_project(redline, project, key):
    one = made(key, project)
    assert (project / IN_PROJECT[key]).exists()
    assert one.name.startswith(f"{key}-my-project-")
    assert one.project == str(project)
    with pytest.raises(BadInput, match="My Project"):
        planned_connection(key, None)
    removed(key, project)
    assert list(project.iterdir()) == []


def test_a_bridge_or_a_hook_names_its_connection_and_installation(redline):
    made("pi")
    written = (redline.home / FILES["pi"]).read_text()
    assert f"const CONNECTION = {json.dumps(str(connection_files.connection_path(redline.data, 'pi')))};" in written
    made("claude-code")
    settings = json.loads((redline.home / FILES["claude-code"]).read_bytes())
    (entry,) = settings["hooks"]["PreCompact"][0]["hooks"]
    assert entry["command"].endswith("redline ask claude-code --connection claude-code")
    assert entry["command"].startswith(f"REDLINE_DATA_DIR={redline.data} /")
    assert entry["timeout"] == 3_660


@each_with_hooks
@given(document=documents())
def test_a_configuration_comes_back_byte_for_byte(redline, key, document):
    path = place(redline.home / FILES[key], document[0])
    path.chmod(0o640)
    made(key)
    assert path.read_bytes() != document[0]
    made(key)
    removed(key)
    assert path.read_bytes() == document[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert all_connections() == []


@each_with_hooks
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("has_backup", [True, False])
def test_what_others_changed_in_between_stays_with_and_without_the_backup(redline, key, again, has_backup):
    path = written(redline, key, '{\n  // mine\n  "model": "a"\n}\n')
    one = made(key)
    if not has_backup:
        Path(one.backup).unlink()
    path.write_text(path.read_text().replace('"model": "a"', '"theirs": [1], "model": "b"'))
    if again:
        made(key)  # what was there is kept, because it was neither the user's first nor Redline's
    removed(key)
    assert path.read_text() == '{\n  // mine\n  "theirs": [1], "model": "b"\n}\n'


@each_with_hooks
def test_a_file_that_redline_made_and_others_reformatted_is_deleted(redline, key):
    made(key)
    path = redline.home / FILES[key]
    path.write_text(json.dumps(json.loads(path.read_text())))
    removed(key)
    assert not path.exists()


@each_with_hooks
def test_a_file_that_cannot_be_read_is_left_alone(redline, key):
    written(redline, key, '{"a": ')
    before = snapshot(redline.home)
    with pytest.raises(BadInput, match="cannot be read"):
        made(key)
    assert (snapshot(redline.home), all_connections()) == (before, [])


@each_with_a_file
def test_an_edited_bridge_is_not_deleted_but_replaced_if_the_user_connects_again(redline, key):
    made(key)
    path = redline.home / FILES[key]
    path.write_text(path.read_text() + "// mine\n")
    (one,) = all_connections()
    assert status_of_connection(one).state is ConnectionState.CHANGED
    with pytest.raises(BadInput, match="is not as Redline wrote it"):
        planned_removal(key, None)
    made(key)
    kept = redline.data / "connections" / f"{key}.replaced"
    assert kept.read_text().endswith("// mine\n")
    removed(key)
    assert not path.exists()


@each_with_a_file
def test_another_file_of_that_name_is_left_alone(redline, key):
    written(redline, key, "export default () => {};\n")
    with pytest.raises(BadInput, match="another file"):
        planned_connection(key, None)
    with pytest.raises(BadInput, match="is not connected"):
        planned_removal(key, None)


def test_an_older_bridge_is_reported_and_updated(redline, source):
    made("pi")
    source.write_bytes(SOURCE.replace(b"3", b"4"))
    (one,) = all_connections()
    status = status_of_connection(one)
    assert (status.state, one.bridge) == (ConnectionState.OUTDATED, 3)
    assert "version 3; 4 is current" in status.sentence
    updated = made("pi")
    assert (updated.bridge, updated.token, updated.made_at) == (4, one.token, one.made_at)
    assert status_of_connection(updated).state is ConnectionState.CURRENT
    removed("pi")
    assert not (redline.home / ".pi").exists()


@each_agent
def test_a_bridge_that_somebody_deleted_is_reported_and_its_connection_can_be_removed(redline, key):
    one = made(key)
    (redline.home / FILES[key]).unlink()
    assert status_of_connection(one).state is ConnectionState.MISSING
    removed(key)
    assert all_connections() == []
    with pytest.raises(BadInput, match="is not connected"):
        planned_removal(key, None)


@pytest.mark.parametrize("key", ["pi", "claude-code"])
def test_a_bridge_without_a_connection_can_be_removed(redline, key):
    connection_files.connection_path(redline.data, made(key).name).unlink()
    removed(key)
    assert not (redline.home / FILES[key]).exists()


def test_a_project_that_is_gone_can_be_removed(redline, project):
    made("codex", project)
    (project / IN_PROJECT["codex"]).unlink()
    (project / ".codex").rmdir()
    project.rmdir()
    removed("codex", project)
    assert all_connections() == []


def spoiled(path: Path, how: str) -> None:
    """Make an agent's file one that no removal can be planned for."""
    if how == "edited_bridge":
        path.write_text(path.read_text() + "// mine\n")
        return
    path.unlink()
    if how == "not_json":
        path.write_text('{"a": ')
    elif how == "not_a_file":
        path.mkdir()
    else:
        path.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize("in_project", [False, True])
@pytest.mark.parametrize(
    ("key", "how"),
    [
        *((key, "edited_bridge") for key in WITH_FILES),
        *((key, "not_json") for key in WITH_HOOKS),
        *((key, "not_a_file") for key in FILES),
        ("codex", "dangling_link"),
    ],
)
def test_a_token_is_revoked_although_the_file_cannot_be_changed(redline, project, key, how, in_project):
    directory = project if in_project else None
    one = made(key, directory)
    spoiled(Path(one.changed), how)
    with unchanged(directory or redline.home):
        assert refusal(lambda: planned_removal(key, directory)) in (f"2 {how}", "2 outside")
        revoke(connection_of(key, directory))
        assert not is_admitted(one)
    assert refusal(lambda: connection_of(key, directory)) == "2 not_connected"


def test_of_two_connections_only_one_is_revoked(redline, tmp_path, project):
    kept = made("pi", project)
    made("pi", tmp_path)
    everywhere = made("codex")
    revoke(connection_of("pi", tmp_path))
    assert all_connections() == [everywhere, kept]
    revoke(connection_of("codex", None))
    assert all_connections() == [kept]


@pytest.mark.parametrize("ended", [removed, lambda *of: revoke(connection_of(*of))], ids=["removed", "revoked"])
@pytest.mark.parametrize("is_moved", [True, False])
def test_the_connection_of_a_project_that_became_a_link_is_ended(redline, tmp_path, project, ended, is_moved):
    target = tmp_path / "target"
    one = made("pi", project)
    project.rename(target if is_moved else tmp_path / "aside")
    target.mkdir(exist_ok=True)
    project.symlink_to(target)
    assert planned_removal("pi", project).project == project  # not what it leads to
    ended("pi", project)
    assert not is_admitted(one)


def test_a_connection_and_the_copy_of_the_file_are_private_and_the_copy_stays_if_it_is_revoked(redline):
    written(redline, "claude-code", '{"env": {"KEY": "secret"}}').chmod(0o644)
    one = made("claude-code")
    for kept in (Path(one.backup), connection_files.connection_path(redline.data, one.name)):
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    revoke(one)
    assert Path(one.backup).read_text() == '{"env": {"KEY": "secret"}}'
    assert one.backup in revocation_note(one)
    assert "is kept in" not in revocation_note(made("pi"))


def test_what_is_connected_instead_is_said(redline, tmp_path):
    for project, sentence in ((None, "pi is not connected."), (tmp_path, f"pi is not connected for {tmp_path}.")):
        with pytest.raises(BadInput, match=sentence):
            planned_removal("pi", project)
    made("pi", tmp_path)
    with pytest.raises(BadInput, match=f"pi is connected for {tmp_path}, not for all projects"):
        planned_removal("pi", None)
    made("codex")
    with pytest.raises(BadInput, match=f"connected for all projects, not for {tmp_path} alone"):
        planned_removal("codex", tmp_path)
    with pytest.raises(BadInput, match="for all projects already"):
        planned_connection("codex", tmp_path)


def test_nothing_is_kept_of_a_connection_that_could_not_be_made(redline):
    path = written(redline, "claude-code", "{}")
    change = planned_connection("claude-code", None)
    path.write_text('{"theirs": 1}')
    with pytest.raises(Conflict, match="changed by another program"):
        connect(change, NOW)
    assert path.read_text() == '{"theirs": 1}'
    assert all_connections() == list((redline.data / "connections").iterdir()) == []


@each_agent
def test_a_kill_before_the_file_is_written_leaves_a_connection_that_can_be_made_or_removed(redline, key):
    before = snapshot(redline.home)
    for then in (made, removed):
        with patch.object(configuration_file, "replace_configuration_file", lambda *_: None):
            one = made(key)
        assert snapshot(redline.home) == before
        assert status_of_connection(one).state is ConnectionState.MISSING
        then(key)
        if then is made:
            assert status_of_connection(one).state is ConnectionState.CURRENT
            removed(key)
        assert (snapshot(redline.home), all_connections()) == (before, [])


@each_agent
def test_a_kill_before_the_connection_is_forgotten_leaves_one_that_can_be_removed(redline, key):
    one = made(key)
    with patch.object(connection_files, "delete_connection", lambda *_: None):
        removed(key)
    assert all_connections() == [one]
    removed(key)
    assert all_connections() == []


def test_links_and_comments_are_remarked_on(redline):
    dotfiles = redline.home / "dotfiles"
    place(dotfiles / "settings.json", b'{"disableAllHooks": true,}')
    (redline.home / ".claude").symlink_to(dotfiles)
    remarks = " ".join(planned_connection("claude-code", None).remarks)
    assert not missing(remarks, "is a link", "comments or commas", "calls no hook")
    made("claude-code")
    assert (redline.home / ".claude").is_symlink()
    assert "redline ask" in (dotfiles / "settings.json").read_text()


@pytest.mark.parametrize(("key", "variable"), VARIABLES.items())
def test_the_variables_of_agents_are_respected(redline, tmp_path, monkeypatch, key, variable):
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    one = made(key)
    assert one.changed.startswith(str(tmp_path / "elsewhere"))
    assert Path(one.changed).exists()


def test_a_connection_does_not_move_to_another_directory(redline, tmp_path, monkeypatch):
    """Otherwise the first file would keep a bridge that nobody takes away."""
    made("claude-code")
    monkeypatch.setenv(VARIABLES["claude-code"], str(tmp_path / "elsewhere"))
    with pytest.raises(BadInput, match="Disconnect it first"):
        planned_connection("claude-code", None)
    removed("claude-code")
    assert not (redline.home / FILES["claude-code"]).exists()


@pytest.mark.parametrize("key", ["amp", "nobody"])
def test_other_agents_cannot_be_connected(redline, key):
    with pytest.raises(BadInput, match="Nothing was changed"):
        planned_connection(key, None)


def test_a_damaged_connection_is_reported(redline):
    connection_files.connection_path(redline.data, made("pi").name).write_text("{")
    with pytest.raises(SystemFailure, match="is damaged"):
        planned_connection("pi", None)


def test_a_change_is_identified_by_what_it_does(redline):
    first = planned_connection("codex", None).digest
    assert first == planned_connection("codex", None).digest
    written(redline, "codex", "{}")
    assert first != planned_connection("codex", None).digest


@pytest.fixture
def file(redline):
    """The user's settings of Claude Code, which another command or the server changes at the same time."""
    return written(redline, "claude-code", BEFORE)


def test_a_start_of_the_server_does_not_bring_back_what_is_removed_meanwhile(file, monkeypatch):
    one = made("claude-code")
    removal = threading.Thread(target=lambda: removed("claude-code"))
    usual = connection_files.write_connection

    def keep_after_a_while(directory: Path, kept: connection_files.ConnectedAgent) -> None:
        removal.start()
        removal.join(0.3)  # it has to wait
        usual(directory, kept)

    monkeypatch.setattr(connection_files, "write_connection", keep_after_a_while)
    connection_files.announce_server(settings.REDLINE_DATA_DIR, 8_123)
    removal.join()
    assert (is_admitted(one), file.read_text()) == (False, BEFORE)


@pytest.mark.parametrize("edit", ["3660", "no such text"])
def test_what_was_removed_since_it_was_shown_is_not_connected_with_its_old_token(file, edit):
    one = made("claude-code")
    file.write_text(file.read_text().replace(edit, "60"))
    shown = planned_connection("claude-code", None)
    removed("claude-code")
    assert refusal(lambda: connect(shown, NOW)) == "4 connection_changed"
    assert (is_admitted(one), all_connections()) == (False, [])


def test_of_two_who_connect_the_second_does_not_end_the_first(file):
    first, second = (planned_connection("claude-code", None) for _ in range(2))
    one = connect(first, NOW)
    assert refusal(lambda: connect(second, NOW)) == "4 connection_changed"
    assert is_admitted(one)
    removed("claude-code")
    assert file.read_text() == BEFORE


def test_a_connection_that_was_made_anew_is_not_removed_unseen(file):
    made("claude-code")
    shown = planned_removal("claude-code", None)
    removed("claude-code")
    one = made("claude-code")
    assert refusal(lambda: disconnect(shown)) == "4 connection_changed"
    assert (is_admitted(one), "redline" in file.read_text()) == (True, True)


def test_a_server_that_started_meanwhile_changes_nothing_that_was_shown(file):
    made("claude-code")
    shown = planned_removal("claude-code", None)
    connection_files.announce_server(settings.REDLINE_DATA_DIR, 8_123)
    disconnect(shown)
    assert file.read_text() == BEFORE


def test_a_command_that_takes_too_long_is_not_waited_for(redline, monkeypatch):
    monkeypatch.setattr(connection_files, "LOCK_SECONDS", 0.1)
    with connection_files.only_one_change(redline.data):
        assert refusal(lambda: connection_files.announce_server(redline.data, 8_123)) == "4 busy"


def test_a_connection_whose_file_another_program_changes_meanwhile_stays_as_it_was(file):
    one = made("claude-code")
    removal = planned_removal("claude-code", None)
    file.write_text(file.read_text().replace("3660", "60").replace("opus", "haiku"))
    shown = planned_connection("claude-code", None)
    file.write_text(file.read_text().replace("haiku", "sonnet"))
    assert refusal(lambda: connect(shown, NOW)) == refusal(lambda: disconnect(removal)) == "4 file_changed"
    assert all_connections() == [one]
