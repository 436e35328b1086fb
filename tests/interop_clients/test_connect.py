"""`redline connect` with the real clients: the bridge of each asks the running server; then all is as before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files import snapshot
from tests.installation import Installation
from tests.server import Server, start_server

from .installed import client_program

SETTINGS = b'{\r\n\t"model": "opus",\r\n\t"hooks": {"PreCompact": [{"hooks": []}]}\r\n}\r\n'
FILES = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json"}
VERSIONS = {
    "claude-code": ("2.1.330", "2.1.112"),
    "codex": ("0.169.0",),
    "opencode": ("1.18.33",),
}
"""Versions that call a bridge: Codex 0.104 has no hooks."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key, versions in VERSIONS.items() for version in versions]
)
def test_a_client_is_connected_asks_and_is_disconnected(server: Server, key: str, version: str) -> None:
    home = Path(server.environment["HOME"])
    if key in FILES:
        (home / FILES[key]).parent.mkdir()
        (home / FILES[key]).write_bytes(SETTINGS)
    before = snapshot(home)
    installation = Installation(server.data, home)
    path = os.pathsep.join([str(client_program(key, version).parent), os.environ["PATH"]])
    ended = installation.run("connect", key, "--yes", "--json", PATH=path)
    assert ended.code == 0, ended
    test = ended.json["test"]
    assert (test["has_asked"], test["is_answered"]) == (True, True), test
    assert version in test["sentence"]
    assert installation.run("connect", key, "--remove", "--yes", PATH=path).code == 0
    assert snapshot(home) == before


def test_a_client_without_hooks_does_not_ask(server: Server) -> None:
    installation = Installation(server.data, Path(server.environment["HOME"]))
    path = os.pathsep.join([str(client_program("codex", "0.104.0").parent), os.environ["PATH"]])
    ended = installation.run("connect", "codex", "--yes", "--json", PATH=path)
    assert (ended.code, ended.json["test"]["has_asked"]) == (1, False)
