"""The environment of the tests, set on import before Django reads its settings: no test touches the user's data.

pytest loads this module first, as a plugin (`addopts`): pytest-django reads the settings before any conftest.
"""

import os
import tempfile
from pathlib import Path

TEMPORARY_DIRECTORIES = [tempfile.mkdtemp(prefix="redline-tests-"), tempfile.mkdtemp(prefix="redline-home-")]
os.environ["REDLINE_DATA_DIR"], os.environ["HOME"] = TEMPORARY_DIRECTORIES
os.environ["DJANGO_SETTINGS_MODULE"] = "redline.settings"
os.environ["TZ"] = "UTC"
# The agents' own directories are those of the temporary home.
for _name in (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "PI_CODING_AGENT_DIR",
    "ATOMIC_CODING_AGENT_DIR",
    "OPENCODE_SERVER_PASSWORD",
    "OPENCODE_SERVER_USERNAME",
):
    os.environ.pop(_name, None)
# Without the user's keys no test can send a request to a provider, or depend on the machine's configuration.
for _provider in ("ANTHROPIC", "OPENAI", "OPENROUTER"):
    for _name in ("API_KEY", "BASE_URL"):
        os.environ.pop(f"{_provider}_{_name}", None)

# The agents that are installed on this computer, if any, must not change how the tests read sessions.
AGENT_PROGRAMS = Path(tempfile.mkdtemp(prefix="redline-agents-"))
AGENT_PROGRAMS.chmod(0o755)
TEMPORARY_DIRECTORIES.append(str(AGENT_PROGRAMS))
AGENT_VERSIONS = {
    "atomic": "0.9.8",
    "pi": "0.87.1",
    "claude": "2.1.330 (Claude Code)",
    "codex": "codex-cli 0.169.0",
    "opencode": "1.18.33",
}
for _program, _version in AGENT_VERSIONS.items():
    (AGENT_PROGRAMS / _program).write_text(f"#!/bin/sh\necho '{_version}'\n")
    (AGENT_PROGRAMS / _program).chmod(0o755)
os.environ["PATH"] = os.pathsep.join([str(AGENT_PROGRAMS), os.environ["PATH"]])
