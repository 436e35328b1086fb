"""A server started in a hostile directory never executes anything from there."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import devtools.bench.scale
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.server import children
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.scripted_models import add_provider, start_model
from tests.server import start_server

REDLINE = Path(sysconfig.get_path("scripts")) / "redline"
PLANTED = (
    "redline",
    "sessions_app",
    "compaction_app",
    "lab_app",
    "devtools",
    "django",
    "channels",
    "uvicorn",
    "httpx",
    "json",
    "asyncio",
)
LOUD = "import os, pathlib\npathlib.Path({log!r}).open('a').write(__name__ + '\\n')\nos._exit(9)\n"


@pytest.fixture
def hostile(tmp_path):
    """A directory full of modules that leave a trace when imported."""
    folder = tmp_path / "hostile"
    for name in PLANTED:
        place(folder / name / "__init__.py", LOUD.format(log=str(tmp_path / "executed")).encode())
    return folder


def test_the_planted_modules_would_leave_a_trace(hostile):
    """Otherwise no test below could fail."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([sys.executable, "-m", "redline", "sessions"], cwd=hostile, env=environment)
    assert ended.returncode == 9
    assert executed(hostile) == ["redline"]


def test_no_child_process_imports_from_the_directory_the_server_was_started_in(hostile, tmp_path):
    """Its data directory is relative to that directory, also for its child processes."""
    given = {"PYTHONPATH": "", "REDLINE_DATA_DIR": "../data"}
    with (
        ScriptedProvider() as provider,
        start_server(tmp_path, command=[str(REDLINE)], started_in=hostile, **given) as server,
    ):
        place(server.root / "session.jsonl", session_bytes(working_session(steps=20)))
        add_provider(server, "scripted", provider.base_url("openai"), "good-plan")
        for planner in ("embedded", "scripted/good-plan"):
            run = start_model(server, server.session("session.jsonl"), planner)
            server.wait_for(lambda run=run: "Review the proposals" in server.text(run))
    assert executed(hostile) == []


@pytest.mark.parametrize("arguments", [("index", "--follow"), ("worker", "--plan", "1"), ("worker", "--until-idle")])
def test_child_processes_start_outside_any_users_directory(arguments, hostile, monkeypatch):
    monkeypatch.chdir(hostile)
    command, directory = children.redline_command(*arguments), children.DIRECTORY
    assert command == [sys.executable, "-P", "-m", "redline", *arguments]
    assert directory == "/"


def test_commands_run_by_bench_import_nothing_from_the_current_directory(hostile, tmp_path, monkeypatch):
    monkeypatch.chdir(hostile)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    devtools.bench.scale.run_command(tmp_path / "data", "sessions")
    assert executed(hostile) == []


def test_relative_paths_in_the_environment_mean_the_same_to_child_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDLINE_DATA_DIR", "data")
    monkeypatch.setenv("SSL_CERT_FILE", "ca.pem")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", "hooks", "/x")))
    given = children.environment()
    assert given["REDLINE_DATA_DIR"] == str(tmp_path / "data")
    assert given["SSL_CERT_FILE"] == str(tmp_path / "ca.pem")
    # An empty entry means the current directory, which is never intended.
    assert given["PYTHONPATH"] == f"{tmp_path / 'hooks'}{os.pathsep}/x"


def executed(hostile: Path) -> list[str]:
    log = hostile.parent / "executed"
    return log.read_text(encoding="utf-8").split() if log.exists() else []
