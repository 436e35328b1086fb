"""pi's own package: how it is found and run. A stand-in takes the place of Node.js; `make interop` uses the real pi."""

import json
import sys
from pathlib import Path

import pytest

from sessions_app.agents.base import RebuiltMessage
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.edge import client as module
from sessions_app.agents.pi.edge.client import PACKAGE, PiPackage
from sessions_app.agents.pi.pure.format import fields_of
from sessions_app.agents.registry import package_at
from tests.files import place
from tests.installation import refusal

ECHO = """
import json, os, sys
module, session, leaf, result = sys.argv[2:]
facts = {"role": "user", "content": open(session).read(), "summary": leaf, "command": module,
         "output": os.getcwd(), "customType": sorted(os.environ), "toolName": sys.stdin.read(),
         "stopReason": os.environ["HOME"], "usage": 5}
open(result, "w").write("{}\\n" + json.dumps(facts) + "\\n")
"""


def install(directory: Path, script: str = ECHO, version: str = "0.87.1", node: str = "v22.19.0") -> Path:
    """A package with its Node.js, as npm installs them; returns the directory in which that was done."""
    described = json.dumps({"name": PACKAGE, "version": version}).encode()
    place(directory / "node_modules" / PACKAGE / "package.json", described)
    version_of_node = f"import sys\nif sys.argv[1] == '--version':\n    print('{node}')\n    sys.exit()\n"
    program = f"#!{sys.executable} -IS\n{version_of_node}"
    place(directory / "node_modules" / ".bin" / "node", (program + script).encode()).chmod(0o755)
    return directory


def installed(directory: Path, script: str = ECHO, **versions: str) -> PiPackage:
    found = PI.client.find_package(install(directory, script, **versions))
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def empty_path(tmp_path, monkeypatch):
    """No agent and no Node.js of this machine."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def test_it_is_found_in_its_own_directory_and_in_the_one_where_it_was_installed(tmp_path):
    base = install(tmp_path / "here")
    own = base / "node_modules" / PACKAGE
    assert PI.client.find_package(base) == PI.client.find_package(own) == package_at(base) == PiPackage(own, "0.87.1")


def test_without_a_directory_it_is_that_of_the_command_on_the_path(tmp_path, empty_path):
    assert PI.client.find_package(None) is None
    own = install(tmp_path / "here") / "node_modules" / PACKAGE
    place(own / "dist" / "cli.js", b"").chmod(0o755)
    (empty_path / "pi").symlink_to(own / "dist" / "cli.js")
    assert PI.client.find_package(None) == PiPackage(own.resolve(), "0.87.1")


@pytest.mark.parametrize("relative", ["", ".", "bin"])
def test_neither_it_nor_its_node_is_looked_for_in_the_working_directory(tmp_path, monkeypatch, relative):
    package = installed(tmp_path)
    beside = tmp_path / "node_modules" / ".bin" / "node"
    working = tmp_path / "bin" if relative != "bin" else tmp_path
    beside.rename(tmp_path / "bin" / "node")
    place(package.directory / "dist" / "cli.js", b"").chmod(0o755)
    (tmp_path / "bin" / "pi").symlink_to(package.directory / "dist" / "cli.js")
    monkeypatch.chdir(working)
    monkeypatch.setenv("PATH", relative)
    assert PI.client.find_package(None) is None
    assert "was not found" in package.rebuild([b""]).failure


@pytest.mark.parametrize("described", [None, b"nonsense", b"[]", b'{"name": "another"}'])
def test_another_directory_is_refused(tmp_path, described):
    if described is not None:
        place(tmp_path / "package.json", described)
    assert refusal(lambda: PI.client.find_package(tmp_path), str(tmp_path)) == "2 no_agent_package"


@pytest.mark.parametrize(
    ("version", "reader"),
    [("0.86.1", "pi-0.86"), ("0.87.0", "pi"), ("0.99.0", "pi"), ("1.5.2", "pi"), ("1.0.0-rc.1", "pi")],
)
def test_its_version_decides_the_reader(version, reader):
    assert PiPackage(Path("/x"), version).reader.name == reader


def test_it_rebuilds_a_copy_without_the_users_environment(tmp_path, monkeypatch):
    recorded: list[dict[str, object]] = []

    def keep(message: dict[str, object]) -> dict[str, object]:
        recorded.append(fields_of(message))
        return recorded[-1]

    monkeypatch.setattr(module, "fields_of", keep)
    monkeypatch.setenv("SECRET_KEY", "x")
    package = installed(tmp_path / "here")
    found = package.rebuild(iter([b"one\n", b"two\n"]), "the-leaf")
    assert (found.failure, found.refusal) == ("", "")
    assert found.messages == (RebuiltMessage.of(recorded[0]),)
    (facts,) = recorded
    scratch, environment = str(facts["stopReason"]), facts.pop("customType")
    module_file = str(package.directory / "dist" / "core" / "session-manager.js")
    told = {"role": "user", "content": "one\ntwo\n", "summary": "the-leaf", "command": module_file}
    assert facts == {**told, "output": scratch, "toolName": "", "stopReason": scratch}
    assert {"HOME", "PATH", "TMPDIR"} <= set(environment) <= {"HOME", "PATH", "TMPDIR", "LC_CTYPE"}
    assert not Path(scratch).exists()


REFUSES = (
    "import json, sys\nsession, _, result = sys.argv[3:]\n"
    "open(result, 'w').write(json.dumps({'error': f'not valid: {session}'}) + '\\n')\n"
)
NO_OBJECT = "open(sys.argv[5], 'w').write('{}\\n5\\n')\n"
COULD_NOT = "pi 0.87.1 could not be run:"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        pytest.param(NO_OBJECT, ((RebuiltMessage.of({}),), "", ""), id="a message that is no object has no fields"),
        pytest.param(REFUSES, ((), "not valid: the session", ""), id="an error of pi is its refusal"),
        pytest.param("sys.exit('No module')", ((), "", f"{COULD_NOT} No module"), id="it says why it does not run"),
        pytest.param("sys.exit(3)", ((), "", f"{COULD_NOT} exit code 3."), id="it does not run"),
    ],
)
def test_what_it_rebuilt_or_why_it_did_not(tmp_path, script, found):
    assert installed(tmp_path, script).rebuild([b""]) == found


def test_a_package_that_does_not_end_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.5)
    monkeypatch.setattr(module, "_node_version", lambda _: module.LEAST_NODE)
    found = installed(tmp_path, "import time\ntime.sleep(600)").rebuild([b""])
    assert "did not end within 0.5 seconds" in found.failure


@pytest.mark.parametrize(
    ("node", "is_enough"),
    [("v20.20.2", False), ("v22.18.9", False), ("v22.19.0", True), ("v24.0.0", True), ("", False)],
)
def test_it_needs_a_new_enough_node(tmp_path, node, is_enough):
    found = installed(tmp_path, node=node).rebuild([b""])
    assert ("needs Node.js 22.19 or newer" in found.failure) is not is_enough


def test_the_node_on_the_path_is_used_if_none_is_beside_the_package(tmp_path, empty_path):
    package = installed(tmp_path)
    beside = tmp_path / "node_modules" / ".bin" / "node"
    beside.rename(empty_path / "node")
    assert package.rebuild([b""]).failure == ""
    (empty_path / "node").chmod(0o644)
    assert "was not found" in package.rebuild([b""]).failure
