"""The real Claude Code and Codex ask through their hooks before they compact, and do what is answered.

Redline is a server that answers as a test says. What a review leads to is in `test_reviews`.
"""

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import pytest

from tests.files import place
from tests.standin_redline import Asked, Said, StandInRedline, decided, waiting
from tests.wait import WAIT_SECONDS

from . import claude_runs, codex_runs
from .claude_runs import ClaudeClient
from .codex_runs import CodexRuns, CodexServer
from .installed import CURRENT, NEWEST, VERSIONS, client_program
from .messages_server import MessagesServer, said
from .reviewing import REDLINE
from .scripted_model import ModelReply, ScriptedModel
from .test_codex import LIMIT

WORDS: Final = "Approved as a new session. To continue in it: agent resume 7"
SUMMARY: Final = "All that was said, in short."
HOOK_SECONDS: Final = 3_660
LONG_SECONDS: Final = float(os.environ.get("REDLINE_WAIT_SECONDS", "65"))
"""By default longer than the minute after which clients end hooks without a time of their own."""
MANUAL, AUTOMATIC = "manual", "threshold"
CLAUDE_VERSIONS: Final = [("claude-code", one) for one in (*VERSIONS["claude-code"], NEWEST)]
CODEX_VERSIONS: Final = [("codex", one) for one in (CURRENT["codex"], NEWEST)]
"""Older ones have no such hook."""
clients = pytest.mark.parametrize(("agent", "version"), [*CLAUDE_VERSIONS, *CODEX_VERSIONS])
current = pytest.mark.parametrize(
    ("agent", "version"), [("claude-code", CURRENT["claude-code"]), ("codex", CURRENT["codex"])]
)
reasons = pytest.mark.parametrize("reason", [MANUAL, AUTOMATIC])


def hook_entry(command: str) -> dict[str, Any]:
    """The entry of a hook, as both clients understand it."""
    hook = {"type": "command", "command": command, "timeout": HOOK_SECONDS}
    return {"hooks": {"PreCompact": [{"hooks": [hook]}]}}


def hook_command(data: Path, agent: str) -> str:
    return f"REDLINE_DATA_DIR={shlex.quote(str(data))} {shlex.quote(str(REDLINE))} ask {agent} --connection {agent}"


class HookedClaude:
    """Claude Code with the hook, and a session of two turns that is due for a compaction."""

    def __init__(self, version: str, base: Path, data: Path) -> None:
        self._model = MessagesServer()
        self._client = ClaudeClient(client_program("claude-code", version), base, self._model)
        settings = self._client.home / ".claude" / "settings.json"
        place(settings, json.dumps(hook_entry(hook_command(data, "claude-code"))).encode())

    def __enter__(self) -> Self:
        self._model.__enter__()
        session = self._client.say("first prompt", said("First reply."))
        self._client.say("second prompt", said("Second reply.", input_tokens=170_000), resume=session)
        self.session = self._client.session(session)
        return self

    def __exit__(self, *fault: object) -> None:
        self._model.__exit__(*fault)

    def compact(self, reason: str) -> str:
        """Let it compact: at once, or before the next turn. Returns what it shows."""
        self._known = len(self._model.requests)
        self._model.replies.clear()
        if reason == MANUAL:
            return self._client.run("/compact", resume=self.session.stem).output
        # Without a window, newer versions compact by size nowhere below their model's million of tokens.
        window = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"} if self._client.version > (2, 1, 112) else {}
        return self._client.run("third prompt", resume=self.session.stem, **window).output

    @property
    def requests(self) -> list[Mapping[str, Any]]:
        """All of its model's requests since `compact` was called."""
        return [one for one in self._model.requests[self._known :] if one.get("messages")]


def trust_hooks(runs: CodexRuns) -> None:
    """What a person does in /hooks."""
    with CodexServer(runs) as server:
        (found,) = server.call("hooks/list", cwds=[str(runs.scratch.project)])["data"]
    with (runs.home / "config.toml").open("a", encoding="utf-8") as file:
        for hook in found["hooks"]:
            file.write(f"\n[hooks.state.{json.dumps(hook['key'])}]\n")
            file.write(f'trusted_hash = "{hook["currentHash"]}"\n')


class HookedCodex:
    """The same of Codex."""

    def __init__(self, version: str, base: Path, data: Path) -> None:
        self._model = ScriptedModel()
        self._runs = CodexRuns(client_program("codex", version), base, self._model, extra=LIMIT)
        (self._runs.home / "hooks.json").write_text(json.dumps(hook_entry(hook_command(data, "codex"))))

    def __enter__(self) -> Self:
        self._model.__enter__()
        trust_hooks(self._runs)
        self._thread = self._runs.run("first prompt", [ModelReply("First reply.")]).session_id
        self._runs.run("second prompt", [ModelReply("Second reply.", tokens=30_000)], thread=self._thread)
        return self

    @property
    def session(self) -> Path:
        return self._runs.files(self._thread)[-1]

    def __exit__(self, *fault: object) -> None:
        self._model.__exit__(*fault)

    def compact(self, reason: str) -> str:
        self._known = len(self._model.conversation)
        if reason == MANUAL:
            self._model.replies.extend([ModelReply(SUMMARY)])
            with CodexServer(self._runs) as server:
                server.compact(self._thread)
                return server.text
        replies = [ModelReply(SUMMARY), ModelReply("Third reply.")]
        ended = self._runs.run("third prompt", replies, thread=self._thread)
        return ended.output + ended.errors

    @property
    def requests(self) -> list[Mapping[str, Any]]:
        return self._model.conversation[self._known :]


HookedAgent = HookedClaude | HookedCodex
HOOKED: Final[Mapping[str, Callable[..., Any]]] = {"claude-code": HookedClaude, "codex": HookedCodex}


@pytest.fixture
def server(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    with StandInRedline() as one:
        for agent in HOOKED:
            one.connect(tmp_path / "data", agent)
        yield one


@pytest.fixture
def client(agent, version, tmp_path, server):
    with HOOKED[agent](version, tmp_path / "client", tmp_path / "data") as one:
        yield one


def is_compacted(client: HookedAgent) -> bool:
    """Whether the session has a compaction of the client's own."""
    return re.search('"compact_boundary"|"type":"compacted"', client.session.read_text(encoding="utf-8")) is not None


def require_compacted(client: HookedAgent, reason: str) -> None:
    assert is_compacted(client)
    assert "Redline" not in json.dumps(client.requests), "nothing of the hook becomes a part of the summary"
    assert len(client.requests) >= (1 if reason == MANUAL else 2)


def require_blocked(client: HookedAgent, reason: str, agent: str) -> None:
    """Nothing was compacted; Claude Code sends a prompt uncompacted, and Codex ends the turn."""
    assert not is_compacted(client)
    if reason == MANUAL or agent == "codex":
        assert client.requests == []
    else:
        (request,) = (one for one in client.requests if "third prompt" in json.dumps(one))
        assert "Second reply." in json.dumps(request["messages"])


@clients
@reasons
def test_the_question_names_the_session_and_the_reason(client, server, agent, reason):
    server.answers.extend([waiting(), decided("compact")])
    client.compact(reason)
    (question,) = server.questions
    assert question["session"] == str(client.session)
    assert (question["agent"], question["reason"], question["honours"]) == (agent, reason, "nothing")


UNKNOWN: Final = Said({"error": {"code": "unknown_session", "message": "Redline knows it not."}}, 400)


@clients
@reasons
@pytest.mark.parametrize(
    "answers",
    [
        [waiting(), waiting(), decided("compact", WORDS, state="declined")],
        [waiting(), waiting(), decided("compact", WORDS, state="expired")],
        [UNKNOWN],
        [],
    ],
    ids=["declined", "expired", "an error at first", "without a server"],
)
def test_without_an_approved_plan_the_client_compacts(client, server, reason, answers):
    server.answers.extend(answers)
    if not answers:
        server.__exit__(None, None, None)
    client.compact(reason)
    require_compacted(client, reason)
    assert server.outcomes == []


@clients
@reasons
@pytest.mark.parametrize("do", ["continue", "stop"])
def test_an_approved_plan_keeps_the_client_from_compacting(client, server, agent, reason, do):
    server.answers.extend([waiting(), decided(do, WORDS)])
    shown = client.compact(reason)
    require_blocked(client, reason, agent)
    if reason == MANUAL:
        assert WORDS in shown + client.session.read_text(encoding="utf-8")


@clients
@reasons
def test_a_server_that_is_killed_while_the_client_waits(client, server, agent, reason):
    server.decide = lambda _: waiting(grace=1)
    with ThreadPoolExecutor(1) as pool:
        compaction = pool.submit(client.compact, reason)
        server.wait_for(lambda: len(server.asked) > 3)
        server.__exit__(None, None, None)
        shown = compaction.result()
    if reason == MANUAL:
        require_blocked(client, reason, agent)
        assert "Nothing was compacted." in shown + client.session.read_text(encoding="utf-8")
    else:
        require_compacted(client, reason)


@current
def test_two_clients_ask_at_once(agent, version, tmp_path, server):
    """Both wait before either is answered; one compacts, the other does not."""
    first, second = (HOOKED[agent](version, tmp_path / f"client{number}", tmp_path / "data") for number in (1, 2))
    with first, second:
        steps = {str(first.session): "compact", str(second.session): "continue"}
        numbers = {1: str(first.session), 2: str(second.session)}

        def decide(asked: Asked) -> Said:
            if asked.method == "POST":
                number = next(key for key, path in numbers.items() if path == asked.body["session"])
                return waiting(id=number)
            number = int(asked.path.rpartition("/")[2])
            both = len(server.questions) == 2
            return decided(steps[numbers[number]], WORDS) if both else waiting(id=number)

        server.decide = decide
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: one.compact(MANUAL), (first, second)))
        require_compacted(first, MANUAL)
        require_blocked(second, MANUAL, agent)


@current
@reasons
def test_a_client_waits_longer_than_a_minute(client, server, agent, reason, monkeypatch):
    """Or as long as REDLINE_WAIT_SECONDS says."""
    for module in (claude_runs, codex_runs):
        monkeypatch.setattr(module, "RUN_SECONDS", LONG_SECONDS + WAIT_SECONDS)
    monkeypatch.setattr(codex_runs, "WAIT_SECONDS", LONG_SECONDS + WAIT_SECONDS)
    asked_at: list[float] = []

    def decide(asked: Asked) -> Said:
        now = time.monotonic()
        asked_at.append(now)
        is_over = now - asked_at[0] > LONG_SECONDS
        return decided("continue", WORDS) if is_over else waiting(poll=0.5, seconds=LONG_SECONDS)

    server.decide = decide
    client.compact(reason)
    assert asked_at[-1] - asked_at[0] > LONG_SECONDS
    assert len(server.questions) == 1
    require_blocked(client, reason, agent)
