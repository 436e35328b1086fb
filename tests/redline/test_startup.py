"""Commands: each loads only what it needs, an interrupt ends it quietly, and shells complete its name and flags."""

import json
import re
import subprocess
import sys

from django.core import checks

from redline.main import WITH_PAGES, WITHOUT_MODELS, commands
from tests.installation import Installation
from tests.paths import PROJECT

PAGES = (
    *("redline.urls", "sessions_app.urls", "sessions_app.pages.list"),
    *("compaction_app.urls", "compaction_app.pages.review.views", "compaction_app.pages.runs"),
)
SERVER = ("channels", "uvicorn", "django_htmx", "csp", "whitenoise", "template_partials")
SLOW = ("http.server", "smtplib", "pdb", "genai_prices", "rich.console", "pydantic_settings")
"""What takes long to import and is hardly ever used."""
PROVIDERS = ("httpx", "stamina", "compaction_app.providers.client")
MODELS = ("django.db.models", "django.urls", "django.http", "django.template", "sessions_app.models")
LISTING = """
import json, sys
from redline.main import main
for commands in json.loads(sys.argv[1]):
    for sys.argv[1:] in commands:
        try:
            main()
        except SystemExit:
            pass
    sys.stderr.write("\\n".join(["loaded:", *sys.modules, ""]))
"""


def run_python(installation: Installation, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of Python that has ended in this installation without a traceback."""
    command = [sys.executable, "-c", program, *arguments]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    found = subprocess.run(command, cwd=PROJECT, env=installation.environment(), text=True, **streams)
    assert "Traceback" not in found.stderr, arguments
    return found


def test_commands_load_only_what_they_need(redline, path):
    """Those without tables load neither models nor pages, those without pages neither pages nor providers."""
    asked = ["ask", "codex", "--connection", "codex"]
    without_tables = [["tree", str(path)], ["address"], ["token"]]
    of_path = [["index", str(path)], ["backups", str(path)], ["compact", str(path), "--dry-run"]]
    # Nobody has the other end of the worker's standard input, so it ends the process.
    without_pages = [["sessions"], *of_path, ["worker", "--until-idle"]]
    ended = run_python(redline, LISTING, json.dumps([without_tables, [asked], without_pages]))
    quickest, first, second = (set(part.splitlines()) for part in ended.stderr.split("loaded:\n")[1:])
    assert {"sessions_app.management.commands.tree", "sessions_app.server.review_request"} <= first
    assert not quickest & {"http.client"}
    assert not first & {*PAGES, *SERVER, *PROVIDERS, *MODELS, *SLOW}
    assert {"sessions_app.models", "compaction_app.management.commands.worker"} <= second
    assert not second & {*PAGES, *SERVER, *PROVIDERS, *SLOW}


def test_the_lists_of_commands_contain_only_commands():
    assert set(commands()) > WITH_PAGES | WITHOUT_MODELS


def test_every_check_of_django_passes():
    # A command runs only those of the configuration.
    assert [found for found in checks.run_checks() if not found.is_silenced()] == []


INTERRUPTING = """
import builtins, json, os, signal, sys
seen, plain = 0, builtins.__import__
def counting(*arguments, **named):
    global seen
    seen += 1
    if seen == limit:
        os.kill(os.getpid(), signal.SIGINT)
    return plain(*arguments, **named)
sys.argv[0] = "redline"
for limit in json.loads(sys.argv.pop(1)):
    child = os.fork()
    if not child:
        from redline.main import main
        builtins.__import__ = counting
        main()
        sys.exit()
    _, status = os.waitpid(child, 0)
    os.write(2, b"code %d\\n" % os.waitstatus_to_exitcode(status))
"""
"""A process for each limit, forked before anything of Redline is loaded. Prints their exit codes."""


def test_an_interrupt_at_any_time_ends_a_command_quietly(redline, path):
    """An interrupt is sent when a certain number of modules has been loaded, from the first to the last."""
    limits = (3, 200, 1000, 10**9)
    ended = run_python(redline, INTERRUPTING, json.dumps(limits), "context", str(path))
    said, codes = zip(*re.findall(r"(.*?)code (\d+)\n", ended.stderr, re.DOTALL), strict=True)
    assert set(said) <= {"", "redline: interrupted\n"}
    assert (len(codes), codes[:2], codes[-1]) == (len(limits), ("130", "130"), "0")


def offered(script: str, *lines: str) -> list[list[str]]:
    """The completions that bash offers for the last word of each line."""
    complete = 'COMPREPLY=(); _redline; echo "${COMPREPLY[@]}"'
    asked = [f"COMP_WORDS=({line}); COMP_CWORD={line.count(' ')}; {complete}" for line in lines]
    shown = subprocess.run(["bash", "-c", "\n".join([script, *asked])], capture_output=True, text=True, check=True)
    return [line.split() for line in shown.stdout.splitlines()]


def test_bash_completes_commands_and_flags_and_leaves_paths_to_itself(redline):
    script = redline.call("completion", "bash").out
    lines = ("''", "comp", "compact x --", "compact x --dry", "tree x --dry", "models add --", "tree /et")
    first, beginning, flags, one, none, of_models, path = offered(script, *(f"redline {line}" for line in lines))
    assert set(first) == {*commands(), "--help", "--version"}
    assert beginning == ["compact", "compaction-settings", "completion"]
    assert "--switch-branch" in flags
    assert (one, none, path) == (["--dry-run"], [], [])
    assert "--window" in of_models
    assert "-o default" in script


def test_every_command_and_flag_is_in_each_script(redline):
    for shell in ("bash", "zsh", "fish"):
        script = redline.call("completion", shell, "--json").json["script"]
        for name in (*commands(), "dry-run", "switch-branch", "rebuild", "drop-newer"):
            assert name in script, shell
