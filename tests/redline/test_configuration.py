"""The configuration: the environment overrides the file, mistakes are explained, and nothing is open to others.

The time zone of pages is the one of this computer, however that is set; UTC if it cannot be named.
"""

import json
import os
import re
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from redline import configuration
from redline.configuration import FILE_NAME, RootSetting, default_roots, load
from redline.settings import local_zone
from sessions_app.index.demo_session import DEMO_MARKER
from sessions_app.sessionlog.errors import SystemFailure
from tests.browser.scenarios import finished_run
from tests.factories import chain, session_bytes, user, working_session
from tests.files import place, snapshot
from tests.html import addresses, missing
from tests.installation import Installation
from tests.processes import become_nobody, in_child, refusal_in_child
from tests.server import place_in


@pytest.fixture
def clean(monkeypatch):
    for name in [name for name in os.environ if name.startswith("REDLINE_")]:
        monkeypatch.delenv(name)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refused(fresh: Installation, error: str) -> str:
    """The message with which a command is refused; to people it says the same, and nothing of Python."""
    ended, for_people = fresh.call("sessions", "--json"), fresh.call("sessions")
    assert (ended.refusal, ended.err) == (error, "")
    assert (for_people.code, for_people.out) == (ended.code, "")
    assert not re.search(r"\\x0a|\x1b|Traceback", for_people.err)
    return str(ended.json["error"]["message"])


def test_the_server_of_an_agent_has_an_address_on_this_machine_and_any_other_is_refused(clean, tmp_path, monkeypatch):
    (tmp_path / FILE_NAME).write_text('[servers]\nopencode = "http://127.0.0.1:4096/"\n')
    assert load(tmp_path)[0].servers == {"opencode": "http://127.0.0.1:4096"}
    monkeypatch.setenv("REDLINE_SERVERS", '{"opencode": "http://[::1]:5000"}')
    assert load(tmp_path)[0].servers == {"opencode": "http://[::1]:5000"}
    (tmp_path / FILE_NAME).unlink()
    others = ("http://192.168.0.2", "http://localhost", "https://127.0.0.1", "http://user:password@127.0.0.1")
    for agent, address in (*(("opencode", f"{one}:4096") for one in others), ("codex", "http://127.0.0.1:4096")):
        monkeypatch.setenv("REDLINE_SERVERS", json.dumps({agent: address}))
        found, (fault,) = load(tmp_path)
        assert ("servers" in fault, "password" in fault, found.servers) == (True, False, {}), address


def test_the_agents_own_directories_are_the_default_roots(clean, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    found, faults = load(tmp_path)
    assert faults == []
    assert [(str(root.path), root.agent) for root in found.roots] == [
        ("/home/someone/.atomic/agent/sessions", "atomic"),
        ("/home/someone/.pi/agent/sessions", "pi"),
        ("/home/someone/.claude/projects", "claude-code"),
        ("/home/someone/.codex/sessions", "codex"),
        ("/home/someone/.codex/archived_sessions", "codex"),
        ("/home/someone/.local/share/opencode", "opencode"),
        ("/home/someone/.local/share/amp/threads", "amp"),
    ]
    values = (found.windows, found.thinking_guard, found.live_minutes, found.lock_seconds)
    assert values == ({}, "latest", 5, 10)


def test_the_file_is_read(clean, tmp_path):
    (tmp_path / FILE_NAME).write_text(
        'thinking_guard = "all"\nlive_minutes = 0.5\nlock_seconds = 1\n'
        'roots = [{ path = "/somewhere", agent = "pi", reader = "atomic-0.8" }]\n'
        '[windows]\n"a/model" = 1000\n'
    )
    found, faults = load(tmp_path)
    assert faults == []
    assert (found.thinking_guard, found.live_minutes, found.lock_seconds) == ("all", 0.5, 1)
    root = RootSetting(path=Path("/somewhere"), agent="pi", reader="atomic-0.8")
    assert (found.roots, found.windows) == ([root], {"a/model": 1000})


def test_the_environment_wins_over_the_file(clean, tmp_path, monkeypatch):
    (tmp_path / FILE_NAME).write_text('thinking_guard = "all"\nlive_minutes = 1\n[windows]\nm = 1\n')
    monkeypatch.setenv("REDLINE_LIVE_MINUTES", "7")
    monkeypatch.setenv("REDLINE_WINDOWS", '{"m": 2}')
    monkeypatch.setenv("REDLINE_ROOTS", '[{"path": "~/x"}]')
    monkeypatch.setenv("HOME", "/home/someone")
    found, faults = load(tmp_path)
    assert faults == []
    assert (found.live_minutes, found.thinking_guard, found.windows["m"]) == (7, "all", 2)
    assert [root.path for root in found.roots] == [Path("/home/someone/x")]


MISTAKES = {
    "is not valid TOML": (b"live_minutes = ", b"\xff\xfe"),
    "live_minutes": tuple(b"live_minutes = " + value for value in (b'"soon"', b"-1", b"inf", b"nan", b"1e300")),
    "lock_seconds": (b"lock_seconds = inf", b"lock_seconds = -1"),
    "thinking_guard": (b'thinking_guard = "some"',),
    "windows": (b"windows = 7",),
    "windows.m": (b'windows = { m = "large" }', b"windows = { m = 0 }"),
    "roots": (b'roots = "/x"',),
    "roots.0.path": (b'roots = [{ agent = "pi" }]',),
    "roots.0.agent": (b'roots = [{ path = "/x", agent = "claude" }]',),
    "roots.0.colour": (b'roots = [{ path = "/x", colour = "red" }]',),
    "live_minuets": (b"live_minuets = 5",),
}


def test_a_mistake_in_the_file_or_that_it_cannot_be_read_is_named_and_the_defaults_apply(clean, tmp_path):
    for expected, content in ((named, one) for named, contents in MISTAKES.items() for one in contents):
        (tmp_path / FILE_NAME).write_bytes(content)
        found, (fault,) = load(tmp_path)
        assert expected in fault, content
        assert (found.live_minutes, found.thinking_guard, found.roots) == (5, "latest", default_roots())
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).mkdir()
    _, (fault,) = load(tmp_path)
    assert FILE_NAME in fault


ROOTS = [("ROOTS", value) for value in ("/a/path", "[{}]", '[{"path": "relative"}]')]
OTHERS = [("LIVE_MINUTES", "soon"), ("WINDOWS", "[1]"), ("THINKING_GUARD", "none")]


@pytest.mark.parametrize(("name", "value"), [*ROOTS, *OTHERS])
def test_a_mistake_in_the_environment_is_named(clean, tmp_path, monkeypatch, name, value):
    monkeypatch.setenv(f"REDLINE_{name}", value)
    _, (fault,) = load(tmp_path)
    assert name.lower() in fault.lower()


def test_a_mistake_is_check_e001_and_bad_input_of_every_command(fresh):
    fresh.data.mkdir(mode=0o700)
    (fresh.data / FILE_NAME).write_text("live_minutes = 'soon'\nthinking_guard = 'some'\n")
    before = snapshot(fresh.data)
    message = refused(fresh, "2 bad_configuration")
    assert not missing(message, "redline.E001", "live_minutes", "thinking_guard", FILE_NAME)
    assert "redline.E001" in fresh.call("tree", "x.jsonl").err
    after = snapshot(fresh.data)
    del after["secret_key"]
    assert after == before


def test_a_root_that_is_a_file_is_a_warning(fresh):
    place(fresh.home / ".atomic" / "agent" / "sessions", b"a file")
    place(fresh.home / ".pi" / "agent" / "sessions" / "s.jsonl", session_bytes(chain(user("x"))))
    ended = fresh.call("index", "--json")
    assert (ended.code, ended.json["files"]) == (0, 1)
    assert "redline.W001" in ended.err


def test_files_of_redline_are_private(fresh):
    assert fresh.call("sessions").code == 0
    assert (mode(fresh.data), mode(fresh.data / "secret_key")) == (0o700, 0o600)
    assert not (fresh.home / ".local").exists()
    key = (fresh.data / "secret_key").read_text()
    assert len(key) >= 50
    assert fresh.call("sessions").code == 0
    assert configuration.secret_key(fresh.data) == (fresh.data / "secret_key").read_text() == key


@pytest.mark.parametrize(
    ("already_there", "usual"),
    [("", 0o755), ("secret_key", 0o755), (FILE_NAME, 0o755), ("redline.sqlite3", 0o755), ("", 0o1777)],
)
def test_a_data_directory_of_redline_or_an_empty_one_is_made_private(fresh, already_there, usual):
    fresh.data.mkdir()
    if already_there:
        (fresh.data / already_there).write_text("# mine\n", encoding="utf-8")
    fresh.data.chmod(usual)
    ended = fresh.call("token", "--json")
    assert (ended.code, ended.err, mode(fresh.data)) == (0, "", 0o700)


def test_a_data_directory_others_may_have_written_to_is_refused(fresh):
    """A configuration names modules to run, and a key signs cookies: making the directory private would be too late."""
    place(fresh.data / FILE_NAME, b'hooks = ["planted"]\nroots = 7\n')
    fresh.data.chmod(0o775)
    assert f"chmod 700 {fresh.data}" in refused(fresh, "6 open_data_directory")
    assert mode(fresh.data) == 0o775
    assert snapshot(fresh.data).keys() == {FILE_NAME}
    fresh.data.chmod(0o700)
    assert fresh.call("sessions", "--json").error == "bad_configuration"


def test_the_mode_of_an_unrelated_directory_is_not_changed(fresh):
    """`REDLINE_DATA_DIR=/` as root must not lock other users out of the machine."""
    (fresh.data / "letters").mkdir(parents=True)
    fresh.data.chmod(0o755)
    assert "for Redline only" in refused(fresh, "6 open_data_directory")
    assert mode(fresh.data) == 0o755


def test_a_data_directory_of_another_user_is_refused(public, monkeypatch):
    monkeypatch.setenv("REDLINE_DATA_DIR", str(public.home.parent))
    public.home.parent.chmod(0o777)
    code = "foreign_data_directory" if os.geteuid() == 0 else "open_data_directory"
    assert refusal_in_child(configuration.data_directory, become_nobody) == f"6 {code}"


def test_every_file_of_a_server_and_of_a_command_is_private(shared_server):
    """A session's copies have its mode."""
    usual = os.umask(0)
    try:
        with place_in(shared_server, "private") as server:
            path = server.put("work.jsonl", working_session())
            path.chmod(0o664)
            run = finished_run(server, server.session("work.jsonl"))
            assert f"{run}/confirm" in addresses(server.get(f"{run}/log"))
            compact = [sys.executable, "-P", "-m", "redline", "compact", path, "--yes", "--live"]
            assert subprocess.run(compact, env=server.environment, capture_output=True).returncode == 0
            beside = [mode(one) for one in path.parent.iterdir()]
            made = [server.data, *server.data.rglob("*")]
            open_to_others = [one.name for one in made if mode(one) & 0o077]
    finally:
        os.umask(usual)
    assert {"redline.sqlite3", "redline.log", "locks", "server.lock"} <= {one.name for one in made}
    assert (open_to_others, beside) == ([DEMO_MARKER], [0o664] * 3), "the tests have made the marker"


def test_the_default_data_directory_is_that_of_the_platform(clean, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    directory = configuration.data_directory()
    assert (directory.is_relative_to(tmp_path), directory.name, mode(directory)) == (True, "redline", 0o700)


def test_a_data_directory_that_cannot_be_created_is_a_system_failure(fresh):
    place(fresh.data, b"a file in its place")
    assert "REDLINE_DATA_DIR" in refused(fresh, "6 no_data_directory")


def test_an_unwritable_data_directory_is_a_system_failure(public, monkeypatch):
    monkeypatch.setenv("REDLINE_DATA_DIR", str(public.data / "below"))
    public.data.chmod(0o500)
    assert refusal_in_child(configuration.data_directory, become_nobody) == "6 no_data_directory"
    assert refusal_in_child(partial(configuration.secret_key, public.data), become_nobody) == "6 no_secret_key"
    public.data.chmod(0o700)
    with pytest.raises(SystemFailure):
        configuration.secret_key(public.data / "nowhere")


def test_an_unwritable_database_is_a_system_failure(public):
    database = public.data / "redline.sqlite3"
    path = place(public.home / "s.jsonl", session_bytes(chain(user("x"))))
    path.chmod(0o644)
    public.data.chmod(0o500)
    database.chmod(0o400)
    index = partial(public.call, "index", path, "--json")
    assert in_child(lambda: index().refusal, become_nobody) == "6 database_failed"
    public.data.chmod(0o700)


def test_the_environment_names_the_time_zone_or_else_the_computer_is_set_to_one(tmp_path):
    zones = {"Asia/Tokyo": "Asia/Tokyo", ":Asia/Tokyo": "Asia/Tokyo", "<+03>-3": "UTC", "../../etc/passwd": "UTC"}
    assert {named: local_zone({"TZ": named}, tmp_path / "missing") for named in zones} == zones
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert local_zone({}, link) == "Asia/Tokyo"
    copied = tmp_path / "copied"
    copied.write_bytes(b"TZif")
    assert local_zone({"TZ": ""}, copied) == "UTC"
