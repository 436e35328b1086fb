"""`redline ask`, as agents call it: with their JSON on standard input; stopped and killed as only a process can be."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from sessions_app.server.connection_files import connection_path
from tests.installation import Installation, Result
from tests.paths import PROJECT
from tests.processes import forked
from tests.standin_redline import Said, StandInRedline, decided, waiting
from tests.wait import WAIT_SECONDS

MANUAL = {"transcript_path": "/home/dev/s.jsonl", "trigger": "manual", "custom_instructions": "keep names"}
AUTOMATIC = {**MANUAL, "trigger": "auto"}
AGENTS = ("claude-code", "codex")
RELAY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "redline", *sys.argv[1:]])
print(child.pid, flush=True)
child.wait()
"""
"""An agent that calls a command through another process, and prints its number."""


@pytest.fixture
def server(fresh):
    fresh.data.mkdir(mode=0o700)
    with StandInRedline() as one:
        for agent in AGENTS:
            one.connect(fresh.data, agent)
        yield one


def asks(
    fresh: Installation, agent: str, sent: Mapping[str, Any] | str = MANUAL, *more: str, **environment: str
) -> Result:
    """The command, called in this process."""
    text = sent if isinstance(sent, str) else json.dumps(sent)
    return fresh.call("ask", agent, "--connection", agent, *more, stdin=text, **environment)


def asking(fresh: Installation, agent: str, program: tuple[str, ...] = ("-m", "redline")) -> Any:
    """A process that has got its input and runs, in a group of its own as Codex starts it."""
    command = [sys.executable, *program, "ask", agent, "--connection", agent]
    options: Any = {**dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE), "start_new_session": True}
    process: Any = subprocess.Popen(command, cwd=PROJECT, env=fresh.environment(), encoding="utf-8", **options)
    process.stdin.write(json.dumps(MANUAL))
    process.stdin.close()
    process.stdin = None
    return process


def waits(fresh: Installation, server: StandInRedline, agent: str, program: tuple[str, ...] = ("-m", "redline")) -> Any:
    """The same, as soon as it has asked more than once."""
    process = asking(fresh, agent, program)
    server.wait_for(lambda: len(server.asked) > 2)
    return process


def test_the_question_has_what_the_agent_said(fresh, server):
    server.answers.append(decided("compact"))
    asks(fresh, "claude-code")
    of_agent = {"agent": "claude-code", "bridge": 1, "honours": "nothing", "leaf": "", "branch": None}
    said = {"session": "/home/dev/s.jsonl", "reason": "manual", "preparation": {"instructions": "keep names"}}
    assert server.questions == [{**of_agent, **said}]


@pytest.mark.parametrize("do", ["compact", "continue", "stop"])
@pytest.mark.parametrize(
    ("agent", "blocked"),
    [("claude-code", (2, "", "Decided.\n")), ("codex", (0, '{"continue": false, "stopReason": "Decided."}\n', ""))],
)
def test_the_decision_is_given_as_the_agent_understands_it(fresh, server, agent, do, blocked):
    server.answers.extend([waiting(), waiting(), decided(do)])
    assert asks(fresh, agent) == ((0, "", "Decided.\n") if do == "compact" else blocked)
    assert [one.method for one in server.asked] == ["POST", "GET", "GET"]


@pytest.mark.parametrize("agent", AGENTS)
def test_without_an_answer_the_agent_compacts(fresh, agent):
    assert asks(fresh, agent)[:2] == (0, "")
    with StandInRedline() as gone:
        gone.connect(fresh.data, agent)
        gone.answers.append(Said({"error": {"code": "unlisted_session", "message": "It is not listed."}}, 400))
        assert asks(fresh, agent) == (0, "", "It is not listed.\n")
    ended = asks(fresh, agent)
    assert ended[:2] == (0, "")
    assert "refused" in ended.err


@pytest.mark.parametrize(
    "line",
    [
        *("claude-code", "claude-code --connection", "claude-code --connection claude-code --nonsense"),
        *("claude-code --connection ../claude-code", "pi --connection pi", "nobody --connection x", ""),
    ],
)
def test_a_wrong_call_does_not_stop_the_agent(fresh, server, line):
    """The exit code of invalid input would keep Claude Code from compacting."""
    ended = fresh.call("ask", *line.split(), stdin=json.dumps(MANUAL))
    assert (ended.code, ended.out, bool(ended.err), server.asked) == (0, "", True, [])


@pytest.mark.parametrize("sent", ["", "{", "[]", "{}", "null", '{"transcript_path": 1}', "x" * 1_100_000])
def test_input_of_another_shape_does_not_stop_the_agent(fresh, server, sent):
    for agent in AGENTS:
        ended = asks(fresh, agent, sent)
        assert (ended.code, ended.out, "runs as usual" in ended.err) == (0, "", True)
    assert server.asked == []


def test_a_broken_configuration_does_not_stop_the_agent(fresh):
    fresh.data.mkdir(mode=0o700)
    (fresh.data / "redline.toml").write_text("[[[")
    assert asks(fresh, "claude-code")[:2] == (0, "")
    fresh.data.chmod(0o777)
    assert asks(fresh, "claude-code")[:2] == (0, "")
    assert asks(fresh, "claude-code", REDLINE_DATA_DIR="/dev/null/x")[:2] == (0, "")


@pytest.mark.parametrize(("agent", "code"), [("claude-code", 2), ("codex", 0)])
def test_a_test_of_the_connection_asks_for_nothing(fresh, server, agent, code):
    server.answers.append(Said({"state": "tested", "do": "continue", "message": "Redline answers."}))
    ended = asks(fresh, agent, REDLINE_BRIDGE_TEST="1")
    assert server.questions[0]["test"] is True
    assert ended.code == code
    assert "Redline answers." in ended.out + ended.err


def test_with_json_the_decision_is_printed_as_it_is(fresh, server):
    server.answers.append(decided("continue"))
    assert asks(fresh, "codex", MANUAL, "--json").json == {"do": "continue", "message": "Decided."}


@pytest.mark.parametrize(
    ("number", "agent", "code"),
    [(signal.SIGINT, "claude-code", 2), (signal.SIGTERM, "codex", 0), (signal.SIGHUP, "claude-code", 2)],
)
def test_a_command_that_is_stopped_reports_it(fresh, server, number, agent, code):
    server.answers.extend([waiting(), replace(waiting(), before=lambda: os.kill(os.getpid(), number))])
    ended = asks(fresh, agent)
    assert ended.code == code
    assert "The compaction was stopped." in ended.out + ended.err
    assert server.outcomes == ["withdrawn"]


def test_an_agent_that_is_killed_is_reported(fresh, server):
    process = waits(fresh, server, "claude-code", ("-c", RELAY))
    process.kill()
    server.wait_for(lambda: server.outcomes == ["withdrawn"])
    process.communicate(timeout=WAIT_SECONDS)


def test_a_command_that_is_killed_is_reported(fresh, server):
    """Its whole group is killed, as Codex does."""
    process = waits(fresh, server, "codex")
    os.killpg(process.pid, signal.SIGKILL)
    assert process.communicate(timeout=WAIT_SECONDS) == ("", "")
    server.wait_for(lambda: server.outcomes == ["withdrawn"])


def test_an_agent_that_reads_no_more_is_reported(fresh, server):
    process = waits(fresh, server, "codex")
    process.stdout.close()
    server.wait_for(lambda: server.outcomes == ["withdrawn"])
    assert process.wait(WAIT_SECONDS) == 0
    process.stderr.close()


def test_a_server_that_is_killed_and_started_again_is_found_at_another_port(fresh, server):
    with ExitStack() as of_first:
        first = of_first.enter_context(StandInRedline())
        first.connect(fresh.data, "codex")

        def start_again() -> None:
            of_first.close()
            server.connect(fresh.data, "codex")

        first.answers.extend([waiting(), replace(waiting(), before=start_again)])
        server.answers.append(decided("compact", "Declined."))
        assert asks(fresh, "codex") == (0, "", "Declined.\n")
    assert [len(one.asked) > 0 for one in (first, server)] == [True, True]


@pytest.mark.parametrize(
    ("agent", "sent", "expected"),
    [
        ("claude-code", MANUAL, (2, "", True)),
        ("claude-code", AUTOMATIC, (0, "", False)),
        ("codex", MANUAL, (0, '{"continue": false', True)),
        ("codex", AUTOMATIC, (0, "", False)),
    ],
)
def test_a_server_that_is_lost_while_the_agent_waits(fresh, server, agent, sent, expected):
    """Its connection is removed: it cannot be reached any more."""
    server.answers.append(waiting(grace=0))
    server.answers[0].before = connection_path(fresh.data, agent).unlink
    ended = asks(fresh, agent, sent)
    code, out, is_blocked = expected
    assert (ended.code, ended.out[: len(out or ended.out)]) == (code, out)
    assert f"there is no connection {agent}" in ended.out + ended.err
    assert ("Nothing was compacted." in ended.out + ended.err) is is_blocked


def test_two_agents_ask_at_once(fresh, server):
    other = forked(lambda: asks(fresh, AGENTS[0]))
    server.wait_for(lambda: len(server.asked) > 2)
    server.answers.extend([waiting(), waiting()])
    server.decide = lambda _: decided("compact") if len(server.questions) == 2 else waiting()
    assert asks(fresh, AGENTS[1])[:2] == (0, "")
    other.join(WAIT_SECONDS)
    assert other.exitcode == 0
    assert {one["agent"] for one in server.questions} == set(AGENTS)
