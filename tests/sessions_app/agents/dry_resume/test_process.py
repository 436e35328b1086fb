"""A client's program: what it gets, and how it ends."""

import os
import sys
from pathlib import Path

import pytest

from sessions_app.agents.dry_resume.process import OUTPUT_LIMIT, ClientExit, ClientUnusable, run_client
from sessions_app.agents.dry_resume.scratch import new_scratch
from tests.wait import wait_until


def run(tmp_path: Path, code: str, seconds: float = 60) -> ClientExit:
    scratch = new_scratch(tmp_path, "http://127.0.0.1:1")
    return run_client(
        [sys.executable, "-c", code], cwd=scratch.project, environment=scratch.environment, seconds=seconds
    )


def test_it_gets_no_input_and_nothing_of_the_users_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    code = "import os, sys; print(sys.stdin.read() == '', os.getcwd()); print(dict(os.environ))"
    ended = run(tmp_path, code)
    first, environment = ended.output.splitlines()
    assert first == f"True {(tmp_path / 'project').resolve()}"
    assert "secret" not in environment
    assert str(Path.home()) not in environment.replace(os.environ["PATH"], "")


def test_the_end_of_its_output_is_kept(tmp_path):
    ended = run(tmp_path, f"print('x' * {2 * OUTPUT_LIMIT} + 'end')")
    assert len(ended.output) == OUTPUT_LIMIT
    assert ended.output.endswith("end\n")


def test_what_it_started_ends_with_it(tmp_path):
    sleeper = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid)"
    pid = int(run(tmp_path, sleeper).output)
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())


def test_it_is_ended_after_some_time(tmp_path):
    ended = run(tmp_path, "import time; time.sleep(600)", seconds=0.1)
    assert ended.code is None
    assert "did not end" in ended.last_words


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (ClientExit(1, "out\n", "a\nb\n"), "b"),
        (ClientExit(1, "a\nout\n", " \n"), "out"),
        (ClientExit(3, "", ""), "exit code 3."),
    ],
)
def test_its_last_words(ended, words):
    assert ended.last_words == words


def test_a_program_that_does_not_exist(tmp_path):
    scratch = new_scratch(tmp_path, "")
    with pytest.raises(ClientUnusable, match="nothing: No such file"):
        run_client([str(tmp_path / "nothing")], cwd=tmp_path, environment=scratch.environment)
