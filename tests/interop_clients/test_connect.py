"""`redline connect` with the real agents: the bridge of each asks the running server; then all is as before."""

import os
from pathlib import Path

import pytest

from tests.files import place, snapshot
from tests.installation import Installation
from tests.interop.pi_runs import PINNED
from tests.server import start_server

from .installed import CURRENT, client_program

SETTINGS = b'{\r\n\t"model": "opus",\r\n\t"hooks": {"PreCompact": [{"hooks": []}]}\r\n}\r\n'
FILES = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json"}


@pytest.mark.parametrize(
    ("key", "version", "asks"),
    [
        ("claude-code", CURRENT["claude-code"], True),
        ("claude-code", "2.1.112", True),
        ("codex", CURRENT["codex"], True),
        ("codex", "0.104.0", False),  # it has no hooks
        ("opencode", CURRENT["opencode"], True),
        ("pi", "0.87.1", True),
    ],
)
def test_an_agent_is_connected_asks_and_is_disconnected(tmp_path, key, version, asks):
    programs = PINNED / "node_modules" / ".bin" if key == "pi" else client_program(key, version).parent
    with start_server(tmp_path) as server:
        home = Path(server.environment["HOME"])
        if key in FILES:
            place(home / FILES[key], SETTINGS)
        before = snapshot(home)
        installation = Installation(server.data, home)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        ended = installation.run("connect", key, "--yes", "--json", PATH=path)
        test = ended.json["test"]
        assert (ended.code, test["has_asked"]) == ((0, True) if asks else (1, False)), ended
        assert not asks or (test["is_answered"] and version in test["sentence"]), test
        assert installation.run("connect", key, "--disconnect", "--yes", PATH=path).code == 0
        assert snapshot(home) == before
