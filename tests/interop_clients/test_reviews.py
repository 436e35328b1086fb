"""Claude Code, Codex and OpenCode ask the real Redline, and continue with exactly the context that was approved.

Each plan is reviewed in another way: some proposals are rejected, everything else is approved. Redline writes a fork at
once, while the client still waits, and other forms as soon as the client has ended.
"""

import json
import random
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from compaction_app.changes.proof import approved_messages
from sessions_app.agents.codex.edge.store import thread_id_of
from sessions_app.storage.session_loader import load_session
from tests.opencode_plans import WRITERS, approved_by
from tests.server import start_server
from tests.wait import WAIT_SECONDS

from . import test_claude_code as claude, test_codex as codex
from .claude_runs import ClaudeClient, Sent
from .codex_runs import CodexRuns
from .installed import CURRENT, client_program, directory_of
from .messages_server import MessagesServer
from .opencode_runs import OpencodeRuns
from .opencode_session import FULL, WINDOW, OpenCodeSession, called, shell
from .reviewing import LATEST, applied_targets, approve, connect, rows, waiting_run
from .scripted_model import ModelReply
from .test_hooks import trust_hooks
from .test_opencode import VERSION

PLANS: Final = 20
ROOTS: Final = {"claude-code": ".claude/projects", "codex": ".codex/sessions", "opencode": ".local/share/opencode"}
COMMAND: Final = re.compile(r"\A<(?:local-command-|command-name)")
RESUMED: Final = re.compile(r"claude --resume ([0-9a-f-]{36})")


@pytest.fixture
def server(tmp_path, agent):
    """A server in the home of the client."""
    home = tmp_path / "client" / "home" if agent == "claude-code" else tmp_path / "client"
    root = home / ROOTS[agent]
    root.mkdir(parents=True)
    roots = json.dumps([{"path": str(root), "agent": agent}])
    with start_server(tmp_path, roots=root, REDLINE_ROOTS=roots, HOME=str(home)) as started:
        yield started


@pytest.mark.parametrize("agent", ["claude-code"])
@pytest.mark.parametrize(
    ("version", "writer"),
    [
        (CURRENT["claude-code"], "fork"),
        (CURRENT["claude-code"], "boundary"),
        ("2.1.112", "fork"),
        ("newest", "fork"),
        ("newest", "boundary"),
    ],
)
def test_claude_code_is_resumed_with_what_was_approved(version, writer, server, tmp_path):
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
            # The client's run shows what it adds to every conversation, which is not compared.
            sent = without_command(client.context(resumed))
            before = claude.context_of(client, source)
            left = approved_messages(before, targets, claude.writer_of(client, writer))
            wanted = claude.expected(client, source, replace(before, messages=tuple(left)))
            assert sent == wanted, (number, targets)
            assert wanted != claude.expected(client, source, before)


def without_command(messages: Sequence[Sent]) -> list[Sent]:
    """Without what the client records of the command that the hook has stopped: it follows what was approved."""
    left = ((role, tuple(block for block in blocks if not COMMAND.search(block))) for role, blocks in messages)
    return [message for message in left if message[1]]


@pytest.mark.parametrize("agent", ["codex"])
@pytest.mark.parametrize("version", [CURRENT["codex"], "newest"])
@pytest.mark.parametrize("writer", ["fork", "compacted"])
def test_codex_is_resumed_with_what_was_approved(version, writer, server, tmp_path, model):
    chance = random.Random(f"{version} {writer}")
    program = client_program("codex", version)
    number_of = directory_of("codex", version).name.partition("@")[2]
    runs = CodexRuns(program, tmp_path / "client", model, extra=codex.LIMIT)
    connect(server, "codex")
    trust_hooks(runs)
    generation = codex.generation_of(number_of)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(PLANS):
            thread = codex.worked(runs)
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
            codex.require_begins(found, wanted, "next prompt")


OUTPUT: Final = "word " * 400
"""What tools print: long enough to be deleted."""


def worked(opencode: OpenCodeSession, chance: random.Random) -> None:
    """Turns with calls of tools, and long outputs."""
    for turn in range(chance.randint(2, 4)):
        names = [f"w{turn}{step}" for step in range(chance.randint(1, 4))]
        calls = [shell(name, f"echo {name} {OUTPUT}") for name in names]
        replies = [ModelReply(f"Step {one.call_id}.", calls=[one]) for one in calls]
        opencode.prompt(f"turn {turn}", *replies, ModelReply(f"Turn {turn} is done."))


@pytest.mark.parametrize("agent", ["opencode"])
def test_opencode_continues_with_what_was_approved(server, tmp_path, model):
    """Half of the questions come at a threshold, in the middle of a turn, which continues with what was approved."""
    program = client_program("opencode", VERSION)
    runs = OpencodeRuns(program, tmp_path / "client", model, window=WINDOW)
    connect(server, "opencode")
    chance = random.Random(16)
    with runs.served() as served, ThreadPoolExecutor(1) as pool:
        for number in range(PLANS):
            opencode = OpenCodeSession(served, model)
            worked(opencode, chance)
            known, is_manual = len(model.conversation), number % 2 == 0
            asked: Future[Any] = Future()
            if is_manual:
                asked = pool.submit(opencode.compact)
            else:
                opencode.begin("go on", called("full", FULL), ModelReply("done"))
            run = waiting_run(server, asked)
            assert "data-key" in server.get(run)
            source = load_session(runs.copied() / opencode.session)
            approve(server, run, chance=chance)
            targets = tuple(applied_targets(server))
            assert targets
            wanted = approved_by(source, WRITERS["delete"], targets)
            if is_manual:
                asked.result()
                assert len(model.conversation) == known, "nothing was compacted"
                opencode.prompt("and now?")
                sent = model.conversation[-1]["messages"][1:-1]
            else:
                opencode.wait_for_requests(known + 2)
                sent = model.conversation[-1]["messages"][1:]
            assert sent == wanted, (number, targets)
            assert wanted != approved_by(source, WRITERS["delete"], ())
            assert not opencode.is_compacted
