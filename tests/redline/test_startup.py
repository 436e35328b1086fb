"""Start-up: a command loads only what it needs, and an interrupt ends it quietly."""

import json
import subprocess
import sys

import pytest
from django.core import checks

from redline.main import WITH_PAGES, WITHOUT_MODELS, commands
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation
from tests.paths import PROJECT

PAGES = (
    "redline.urls",
    "sessions_app.list.views",
    "sessions_app.urls",
    "compaction_app.review.views",
    "compaction_app.runs.views",
    "compaction_app.urls",
)
SERVER = ("channels", "uvicorn", "django_htmx", "csp", "whitenoise", "template_partials")
PROVIDERS = ("httpx", "stamina", "compaction_app.providers.client")
MODELS = ("django.db.models", "django.urls", "django.http", "django.template", "sessions_app.models")
LISTING = """
import json, sys
from redline.main import main
try:
    for sys.argv[1:] in json.loads(sys.argv[1]):
        try:
            main()
        except SystemExit:
            pass
finally:
    sys.stderr.write("\\n".join(["loaded:", *sys.modules]))
"""


@pytest.fixture
def path(redline):
    return place(redline.sessions / "s.jsonl", session_bytes(working_session()))


def loaded_by(installation: Installation, *commands: list[str]) -> set[str]:
    """The modules that commands have loaded when the last one ends."""
    ended = subprocess.run(
        [sys.executable, "-c", LISTING, json.dumps(commands)],
        cwd=PROJECT,
        env=installation.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in ended.stderr
    return set(ended.stderr.split("loaded:\n", 1)[1].splitlines())


def test_commands_without_tables_load_neither_models_nor_pages(redline, path):
    asked = ["ask", "codex", "--connection", "codex"]
    loaded = loaded_by(redline, ["tree", str(path)], ["address"], ["token"], asked)
    assert {"sessions_app.management.commands.tree", "sessions_app.connections.asking"} <= loaded
    assert not loaded & {*PAGES, *SERVER, *PROVIDERS, *MODELS, "rich.console", "pydantic_settings"}


def test_commands_without_pages_load_neither_pages_nor_providers(redline, path):
    of_path = [["index", str(path)], ["backups", str(path)], ["compact", str(path), "--dry-run"]]
    # Nobody has the other end of the worker's standard input, so it ends the process.
    loaded = loaded_by(redline, ["sessions"], *of_path, ["worker", "--until-idle"])
    assert {"sessions_app.models", "compaction_app.management.commands.worker"} <= loaded
    assert not loaded & {*PAGES, *SERVER, *PROVIDERS, "rich.console", "pydantic_settings"}


def test_the_lists_of_commands_contain_only_commands():
    assert set(commands()) > WITH_PAGES | WITHOUT_MODELS


def test_every_check_of_django_passes():
    # A command runs only those of the configuration.
    assert [found for found in checks.run_checks() if not found.is_silenced()] == []


def test_an_interrupt_at_any_time_ends_a_command_quietly(redline, path):
    """An interrupt is sent when a certain number of modules has been loaded, from the first to the last."""
    program = (
        "import sys, os, signal, builtins\n"
        "limit, seen, plain = int(sys.argv.pop(1)), 0, builtins.__import__\n"
        "def counting(*arguments, **named):\n"
        "    global seen\n"
        "    seen += 1\n"
        "    if seen == limit:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return plain(*arguments, **named)\n"
        "from redline.main import main\n"
        "builtins.__import__ = counting\n"
        "sys.argv[0] = 'redline'\n"
        "main()\n"
    )
    codes = []
    for limit in (3, 200, 1000, 10**9):
        ended = subprocess.run(
            [sys.executable, "-c", program, str(limit), "context", str(path)],
            cwd=PROJECT,
            env=redline.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in ended.stderr, limit
        assert ended.stderr in ("", "redline: interrupted\n"), limit
        codes.append(ended.returncode)
    assert codes[:2] == [130] * 2
    assert codes[-1] == 0
