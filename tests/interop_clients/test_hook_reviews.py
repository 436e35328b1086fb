"""Claude Code and Codex ask the real Redline, and are resumed with exactly the context that was approved.

Each plan is reviewed in another way: some proposals are rejected, everything else is approved. Redline writes a fork at
once, while the client still waits, and other forms as soon as the client has ended.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from compaction_app.commit.proof import approved_messages
from sessions_app.agents.codex.writer_lock import thread_id_of
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import load_session
from tests.browser.scenarios import approve_everything, decide, undecided_keys
from tests.server import Server, start_server
from tests.wait import WAIT_SECONDS

from . import test_claude_code as claude
from . import test_codex as codex
from .claude_runs import ClaudeClient, Sent
from .codex_runs import CodexRuns
from .installed import client_program
from .messages_server import MessagesServer
from .scripted_model import ModelReply, ScriptedModel
from .test_hooks import REDLINE, trust_hooks

PLANS: Final = 20
CONFIRMED: Final = ["live", "not_honoured", "below_target"]
COMMAND: Final = re.compile(r"\A<(?:local-command-|command-name)")
LATEST: Final = "SELECT {} FROM compaction_app_compaction ORDER BY id DESC LIMIT 1"
RESUMED: Final = re.compile(r"claude --resume ([0-9a-f-]{36})")


@pytest.fixture
def server(tmp_path: Path, agent: str) -> Iterator[Server]:
    """A server in the home of the client."""
    home = tmp_path / "client" / "home" if agent == "claude-code" else tmp_path / "client"
    root = home / {"claude-code": ".claude/projects", "codex": ".codex/sessions"}[agent]
    root.mkdir(parents=True)
    roots = json.dumps([{"path": str(root), "agent": agent}])
    with start_server(tmp_path, roots=root, REDLINE_ROOTS=roots, HOME=str(home)) as started:
        yield started


def connect(server: Server, agent: str) -> None:
    """What a person does once."""
    arguments = [str(REDLINE), "connect", agent, "--yes", "--no-test"]
    subprocess.run(arguments, env=server.environment, check=True, stdin=subprocess.DEVNULL)


def rows(server: Server, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as database:
        return database.execute(query).fetchall()


def waiting_run(server: Server, asked: Future[Any]) -> str:
    """The address of the run whose review the client waits for."""

    def look() -> str:
        assert not asked.done(), asked.result()
        found = rows(server, "SELECT run_id FROM compaction_app_handshake WHERE state = 'waiting'")
        return f"/runs/{found[0][0]}" if found else ""

    return str(server.wait_for(look))


def approve(server: Server, run: str, writer: str, chance: random.Random) -> None:
    """Decide on all proposals of a run, and commit it."""
    keys = undecided_keys(server, run)
    for key in chance.sample(keys, min(len(keys) // 2, chance.randint(0, 2))):
        decide(server, run, reject=key)
    approve_everything(server, run)
    shown = server.post(f"{run}/commit?writer={writer}", f"{run}/commit", yes=CONFIRMED)
    assert shown.startswith("/handshakes/"), server.text(f"{run}/commit?writer={writer}")


def applied_targets(server: Server) -> list[Target]:
    """What was approved last, as soon as it is written."""

    def look() -> list[Any]:
        ended = rows(server, "SELECT state, message FROM compaction_app_handshake ORDER BY id DESC LIMIT 1")
        assert ended[0][0] in ("approved", "applied"), ended
        return ended if ended[0][0] == "applied" else []

    server.wait_for(look)
    ((origins,),) = rows(server, LATEST.format("origins"))
    return [Target(origin["entryId"], origin.get("blockIndex")) for origin in json.loads(origins)]


# ---- Claude Code -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["claude-code"])
@pytest.mark.parametrize(
    ("version", "writer"),
    [
        ("2.1.330", "fork"),
        ("2.1.330", "boundary"),
        ("2.1.112", "fork"),
        ("newest", "fork"),
        ("newest", "boundary"),
    ],
)
def test_claude_code_is_resumed_with_what_was_approved(
    version: str, writer: str, server: Server, tmp_path: Path
) -> None:
    chance = random.Random(f"{version} {writer}")
    with MessagesServer() as model, ThreadPoolExecutor(1) as pool:
        client = ClaudeClient(client_program("claude-code", version), tmp_path / "client", model)
        originals = [claude.conversation(client), claude.rewound(client)]
        originals += [claude.made_by_hand(client, seed) for seed in (0, 2, 3, 6)]
        connect(server, "claude-code")
        for number in range(PLANS):
            content = client.session(originals[number % len(originals)]).read_bytes()
            session_id = claude.placed(client, content)
            source = claude.loaded(client, session_id)
            known = len(model.requests)
            asked = pool.submit(client.run, "/compact", resume=session_id)
            run = waiting_run(server, asked)
            approve(server, run, writer, chance)
            shown = asked.result(WAIT_SECONDS).output + client.session(session_id).read_text(encoding="utf-8")
            assert len(model.requests) == known, "nothing was compacted"
            resumed = RESUMED.findall(shown)[-1]
            targets = applied_targets(server)
            assert targets
            assert (resumed == session_id) is (writer != "fork")
            before = claude.context_of(client, source)
            left = approved_messages(before, targets, claude.writer_of(client, writer))
            wanted = claude.expected(client, source, replace(before, messages=tuple(left)))
            assert without_command(client.context(resumed)) == wanted, (number, targets)
            assert wanted != claude.expected(client, source, before)
    print(f"\nclaude-code {version}, {writer}: {PLANS} plans, all as approved")


def without_command(messages: Sequence[Sent]) -> list[Sent]:
    """Without what the client records of the command that the hook has stopped: it follows what was approved."""
    left = (
        (role, tuple(block for block in blocks if not COMMAND.search(block))) for role, blocks in messages
    )
    return [message for message in left if message[1]]


# ---- Codex -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["codex"])
@pytest.mark.parametrize("version", ["0.169.0", "newest"])
@pytest.mark.parametrize("writer", ["fork", "compacted"])
def test_codex_is_resumed_with_what_was_approved(
    version: str, writer: str, server: Server, tmp_path: Path, model: ScriptedModel
) -> None:
    chance = random.Random(f"{version} {writer}")
    program = client_program("codex", version)
    number_of = program.resolve().parts[program.resolve().parts.index("node_modules") - 1].partition("@")[2]
    runs = CodexRuns(program, tmp_path / "client", model, extra=codex.LIMIT)
    connect(server, "codex")
    trust_hooks(runs)
    generation = codex.generation_of(number_of)
    with ThreadPoolExecutor(1) as pool:
        for number in range(PLANS):
            thread = ""
            for turn, replies in enumerate(codex.TURNS):
                thread = runs.run(f"prompt {turn}", replies, thread=thread).thread_id
            full = [ModelReply("Full.", tokens=30_000)]
            runs.run("last prompt", full, thread=thread)
            path = runs.files(thread)[-1]
            source = load_session(path)
            asked = pool.submit(runs.run, "next prompt", thread=thread)
            run = waiting_run(server, asked)
            approve(server, run, writer, chance)
            ended = asked.result(WAIT_SECONDS)
            assert (ended.code, ended.requests) == (1, ()), "nothing was compacted, and the turn has ended"
            targets = applied_targets(server)
            assert targets
            ((created,),) = rows(server, LATEST.format("created"))
            resumed = thread_id_of(Path(created)) if writer == "fork" else thread
            wanted = codex.of_the_file(codex.sent_of(source, generation, targets), number_of)
            found = codex.conversation(runs.sent(resumed), number_of)
            assert found[: len(wanted)] == wanted, (number, targets)
            assert {codex.role_of(item) for item in found[len(wanted) :]} <= {codex.Role.INJECTED}, found
    print(f"\ncodex {version}, {writer}: {PLANS} plans, all as approved")
