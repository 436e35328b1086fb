"""`redline connect pi`: the real pi loads the extension from where it is put, and asks the running server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.files import snapshot
from tests.installation import Installation
from tests.interop.pi_runs import INSTALLED
from tests.server import start_server


@pytest.mark.parametrize("which", ["pinned", "newest"])
def test_pi_is_connected_asks_and_is_disconnected(tmp_path: Path, which: str) -> None:
    path = os.pathsep.join([str(INSTALLED / which / "node_modules" / ".bin"), os.environ["PATH"]])
    with start_server(tmp_path) as server:
        home = Path(server.environment["HOME"])
        before = snapshot(home)
        installation = Installation(server.data, home)
        ended = installation.run("connect", "pi", "--yes", "--json", PATH=path)
        assert ended.code == 0, ended
        test = ended.json["test"]
        assert (test["has_asked"], test["is_answered"]) == (True, True), test
        assert installation.run("connect", "pi", "--remove", "--yes", PATH=path).code == 0
        assert snapshot(home) == before
