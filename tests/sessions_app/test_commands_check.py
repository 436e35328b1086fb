"""`redline check`: what it says, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.registry import AGENTS
from tests import claude_sessions as claude
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import place
from tests.html import missing
from tests.installation import Installation
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout, line, meta, user as said
from tests.sessions_app.agents.pi.test_package import install

REFUSES = "import json, sys\nopen(sys.argv[5], 'w').write(json.dumps({'error': 'not a valid session'}) + '\\n')\n"
FINE = (user("go"), assistant(text("ok"), call("c1")), result("c1"), user("on"))


def session(redline: Installation, *messages: dict[str, Any]) -> Path:
    return place(redline.sessions / "s.jsonl", session_bytes(chain(*messages)))


def test_a_fine_session_exits_with_0_and_bad_input_with_2(redline):
    found = redline.call("check", session(redline, *FINE)).ok()
    assert not missing(found.out, "the branch of e4, 4 messages, opened as atomic-0.8", "The session can be continued.")
    assert not missing(found.out, "Providers: no rule is violated.", "Package: not compared")
    path = session(redline, *FINE)
    for arguments in ([path, "--branch", "nothing"], [path, "--agent-package", "/nowhere"], ["none.jsonl"]):
        assert redline.call("check", *arguments).code == 2


def test_a_violation_exits_with_1(redline):
    path = session(redline, user("go"), result("c9"), user("on"))
    found = redline.call("check", path)
    assert (found.code, "result of call c9" in found.out, "cannot be continued" in found.out) == (1, True, True)
    document = redline.call("check", path, "--json").json
    assert (document["holds"], document["violations"][0]["entryId"]) == (False, "e2")
    assert redline.call("check", path, "--branch", "e1").code == 0


def test_a_thread_of_codex_whose_last_line_has_no_ordinal_cannot_be_resumed(redline):
    unnumbered = json.dumps(line("event_msg", {"type": "x"})).encode()
    for number, (recorded, refusing) in enumerate(
        (
            (Rollout(meta(), said("go")).with_lines([unnumbered]), True),
            (Rollout(meta(), said("go"), paginated=False).with_lines([unnumbered]), False),
            (Rollout(said("go")), True),
        )
    ):
        name = f"rollout-2026-01-05T10-00-00-{THREAD[:-1]}{number}.jsonl"
        path = recorded.save(redline.home / ".codex" / "sessions", name)
        for command in ("check", "health"):
            assert ("refuses to resume the thread" in redline.call(command, path).out) is refusing, (command, number)
        assert redline.call("check", path).code is int(refusing)


def test_the_given_package_decides_the_reader_and_is_compared(redline, tmp_path):
    path = session(redline, *FINE)
    refused = redline.call("check", path, "--agent-package", install(tmp_path / "pi", REFUSES), "--json")
    assert (refused.code, refused.json["openedAs"]) == (1, "pi")
    of_package = {"name": "@earendil-works/pi-coding-agent", "version": "0.87.1"}
    assert refused.json["package"] == {**of_package, "outcome": "refused", "detail": "not a valid session"}
    words = redline.call("check", path, "--agent-package", tmp_path / "pi").out
    assert "0.87.1 does not open the session: not a valid session" in words


def test_a_package_that_does_not_run_is_said_and_is_not_a_difference(redline, tmp_path):
    broken = install(tmp_path / "pi", "sys.exit('Cannot find module\\x1b[31m')")
    found = redline.call("check", session(redline, *FINE), "--agent-package", broken)
    assert (found.code, "\x1b" in found.out) == (0, False)
    assert "not compared. pi 0.87.1 could not be run: Cannot find module" in found.out


@pytest.mark.parametrize(
    ("name", "refusal", "offer"),
    [
        (
            ".pi/s.jsonl",
            "pi is checked through its package. Nothing was checked. Omit --client",
            "Use --agent-package.",
        ),
        (".atomic/s.jsonl", "Atomic cannot be run. Nothing was checked. Omit --client", "no package of Atomic."),
    ],
)
def test_only_clients_that_can_be_run_are_offered(redline, name, refusal, offer):
    path = place(redline.home / name, session_bytes(chain(*FINE)))
    for program in ([], ["pi"], ["/nowhere"]):
        refused = redline.call("check", path, "--json", "--client", *program)
        assert refused.refusal == "2 no_client"
        assert refused.json["error"]["message"].startswith(refusal)
    found = redline.call("check", path).out
    assert (offer in found, "--client" in found) == (True, False)


def test_a_client_is_offered_instead_of_a_package_that_an_agent_does_not_have(redline):
    path = place(redline.home / ".claude" / "projects" / "p" / "s.jsonl", claude.timed(claude.talk(2)))
    found = redline.call("check", path).out
    assert ("its client can be, with --client" in found, "--agent-package" in found) == (True, False)
    refused = redline.call("check", path, "--json", "--client", PATH="/nowhere").json["error"]["message"]
    assert "claude is not on the PATH" in refused
    assert {agent.key for agent in AGENTS.values() if agent.client.can_be_run} == {"claude-code", "codex", "opencode"}
