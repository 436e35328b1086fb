"""A person compacts in the terminal of a real agent: it waits for a review, shows that it does, and continues.

Each agent is connected with `redline connect`, runs in tmux as a person sees it, and has a scripted model. Redline is
the real server. What else may happen is in `test_hooks`, `test_reviews` and `tests/interop`.
"""

import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from compaction_app.changes.proof import approved_messages
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.agents.codex.edge.store import thread_id_of
from sessions_app.agents.pure.hooks import STATUS
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.storage.session_loader import load_session
from tests.interop.install_atomic import NEW, OLD
from tests.interop.pi_rpc import AtomicHome, PiHome, work
from tests.interop.pi_runs import PROBE, difference, environment_in, expected, said_in
from tests.interop.pi_sessions import context_of, fields_of
from tests.opencode_plans import WRITERS, approved_by
from tests.server import Server, start_server

from . import test_claude_code as claude, test_codex as codex
from .claude_runs import QUIET, ClaudeClient
from .codex_runs import CodexRuns
from .installed import CURRENT, client_program
from .messages_server import MessagesServer
from .opencode_runs import OpencodeRuns
from .opencode_session import called
from .reviewing import LAST_STATE, LATEST, applied_targets, approve, connect, rows, waiting_run
from .scripted_model import ModelReply, ScriptedModel
from .terminal import Terminal, tmux_program
from .test_hooks import trust_hooks

EXPLICIT: Final = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
APPLYING: Final = ("pi", f"atomic {OLD}")
"""The agents that apply a plan themselves."""
HOOKED: Final = ("claude-code", "codex")
"""Those that call a command before they compact."""
STOPPING: Final = (f"atomic {NEW}", *HOOKED)
"""Those that stop the compaction, and show how to resume."""
AGENTS: Final = (*APPLYING, "opencode", *STOPPING)
LONG: Final = 60
"""Steps of a session: the newer Atomic compacts nothing shorter."""


class TerminalAgent(ABC):
    """A connected agent in a home of its own, whose session can be compacted."""

    key: str
    label: str
    reader: str = ""
    """The reader of its sessions, if their directory does not show it."""
    home: Path
    root: Path
    """The directory of its sessions."""
    session: Path
    command: Sequence[str]
    """What opens the session."""
    project: Path
    environment: Mapping[str, str]
    first_words: str
    """Words of the first prompt of the session."""
    ready: Sequence[str]
    """What the terminal shows as soon as something can be typed."""
    waits = "Redline waits for your review: {review} ("
    """What it shows while the agent waits for this review."""
    continues = ""
    """What it shows after the approval, if the agent applies the plan itself."""
    resume = ""
    """The command with which a session is resumed, without its id, if the agent stops the compaction."""
    appends = ""
    """The writer that adds to the session itself, of an agent that calls a command before it compacts."""
    leave = "/exit"
    """The command that ends it."""
    stopped: str
    """What it shows after the compaction was stopped."""
    marks: Sequence[str]
    """What the lines of the agent's own compactions have in them."""

    @contextmanager
    def opened(self) -> Iterator[Terminal]:
        """The session in a terminal, as soon as something can be typed."""
        environment = {**self.environment, **EXPLICIT}
        with Terminal(self.command, cwd=self.project, environment=environment) as terminal:
            for text in self.ready:
                terminal.wait_for(text)
            yield terminal

    @property
    @abstractmethod
    def requests(self) -> Sequence[str]:
        """The requests of the conversation so far."""

    def stop(self, terminal: Terminal) -> None:
        """Stop the compaction."""
        terminal.press("Escape")

    def close(self, terminal: Terminal, server: Server) -> None:
        """Leave, so that the session is open nowhere."""
        terminal.enter(self.leave)
        server.wait_for(lambda: terminal.has_ended)

    def id_of(self, session: Path) -> str:
        """The id by which a session is resumed."""
        return session.stem

    @property
    def is_compacted(self) -> bool:
        return any(mark in self.session.read_text(encoding="utf-8") for mark in self.marks)


class TerminalPi(TerminalAgent):
    key, label, reader = "pi", "pi", "pi"
    continues = "pi continues with the approved context"
    first_words = "Mend the parser."
    ready = ("Now the tests.", "/200k")
    stopped = "Compaction cancelled"
    marks = ('"type":"compaction"', '"type":"context_compaction"')
    version = ""
    """The version of Atomic, if it is not pi."""

    def __init__(self, base: Path, ends: ExitStack) -> None:
        self._provider = ends.enter_context(ScriptedProvider(script="stops-early"))
        model: Any = {"base_url": self._provider.base_url("openai"), "api": "openai-completions", "window": 200_000}
        home = AtomicHome(base, self.version, **model) if self.version else PiHome(base, **model)
        home.bridge.unlink()  # `redline connect` makes it
        self.home, self.root, self.project = base, home.sessions, home.project
        self.session = home.session(work(LONG))
        self.command = [*home.command(), "--session", str(self.session), "--model", "scripted/talk"]
        self.environment = environment_in(base)

    @property
    def requests(self) -> Sequence[str]:
        return [one.raw.decode() for one in self._provider.requests]


class TerminalOldAtomic(TerminalPi):
    """Atomic while it deletes. After a compaction its terminal shows no notices of extensions."""

    key, label, reader, version = "atomic", "Atomic", "atomic-0.8", OLD
    continues = "[compaction] Compacted"


class TerminalNewAtomic(TerminalPi):
    """Atomic since it compacts to text."""

    key, label, reader, version = "atomic", "Atomic", "atomic-0.9", NEW
    resume = "atomic --session"

    def id_of(self, session: Path) -> str:
        return str(session)


class TerminalClaudeCode(TerminalAgent):
    key, label = "claude-code", "Claude Code"
    resume, appends = "claude --resume", "boundary"
    first_words = "I look at both."
    ready = ("Done.", "shift+tab to cycle")
    waits = STATUS
    stopped = "/compact <optional custom summarization instructions>"
    marks = ('"compact_boundary"',)

    def __init__(self, base: Path, ends: ExitStack) -> None:
        program = client_program(self.key, CURRENT[self.key])
        self._model = ends.enter_context(MessagesServer())
        client = ClaudeClient(program, base, self._model)
        self.home, self.root, self.project = client.home, client.home / ".claude" / "projects", client.project
        session_id = claude.conversation(client)
        self.session = client.session(session_id)
        self.command = [str(program), "--resume", session_id]
        self.environment = client.environment
        # What a person answers when the client starts for the first time.
        answers = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [QUIET["ANTHROPIC_API_KEY"]], "rejected": []},
            "projects": {str(self.project): {"hasTrustDialogAccepted": True}},
        }
        path = self.home / ".claude.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **answers}))

    @property
    def requests(self) -> Sequence[str]:
        return [json.dumps(one["messages"]) for one in self._model.requests if one.get("tools")]


class TerminalCodex(TerminalAgent):
    key, label = "codex", "Codex"
    resume, appends, leave = "codex resume", "compacted", "/quit"
    first_words = "prompt 0"
    ready = ("Ask Codex to do anything",)
    waits = STATUS
    stopped = "Conversation interrupted"
    marks = ('"type":"compacted"',)

    def __init__(self, base: Path, ends: ExitStack) -> None:
        self._model = ends.enter_context(ScriptedModel())
        self._program = client_program(self.key, CURRENT[self.key])
        self._runs = CodexRuns(self._program, base, self._model, extra=codex.LIMIT)
        self.home, self.root, self.project = base, self._runs.home / "sessions", self._runs.scratch.project
        thread = codex.worked(self._runs)
        self.session = self._runs.files(thread)[-1]
        self.command = [str(self._program), "resume", thread]
        self.environment = self._runs.program.environment(self._runs.scratch)
        ends.callback(self._end_daemons)

    @contextmanager
    def opened(self) -> Iterator[Terminal]:
        trust_hooks(self._runs)
        with super().opened() as terminal:
            yield terminal

    def close(self, terminal: Terminal, server: Server) -> None:
        """Its server in the background has the thread open for about a minute more, unless it is stopped."""
        super().close(terminal, server)
        self._stop_daemon()

    def id_of(self, session: Path) -> str:
        return thread_id_of(session)

    @property
    def requests(self) -> Sequence[str]:
        return [json.dumps(one["input"]) for one in self._model.conversation]

    def _stop_daemon(self) -> None:
        stop = [str(self._program), "app-server", "daemon", "stop"]
        subprocess.run(stop, env=dict(self.environment), cwd=self.project, capture_output=True, check=True)

    def _end_daemons(self) -> None:
        """End what the terminal has started in the background: a server, and a process that looks for updates."""
        self._stop_daemon()
        for file in (self._runs.home / "app-server-daemon").glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(json.loads(file.read_text(encoding="utf-8"))["pid"], signal.SIGTERM)


class TerminalOpenCode(TerminalAgent):
    key, label = "opencode", "OpenCode"
    continues = "OpenCode continues with the approved context"
    first_words = "prompt 1"
    ready = ("Turn 3 is done.", "ctrl+p commands")
    stopped = "The compaction was stopped. Nothing was compacted."

    def __init__(self, base: Path, ends: ExitStack) -> None:
        self._model = ends.enter_context(ScriptedModel())
        program = client_program(self.key, CURRENT[self.key])
        self.runs = OpencodeRuns(program, base, self._model)
        self.home, self.root, self.project = self.runs.scratch.home, self.runs.data, self.runs.scratch.project
        session_id = ""
        for number in (1, 2, 3):
            replies = [called(f"c{number}"), ModelReply(f"Turn {number} is done.")]
            session_id = self.runs.run(f"prompt {number}", replies, session=session_id).session_id
        self._known = len(self._model.conversation)
        self.session = self.runs.database / session_id
        self.command = [str(program), "--session", session_id]
        self.environment = self.runs.environment

    @property
    def requests(self) -> Sequence[str]:
        return [json.dumps(one["messages"]) for one in self._model.conversation[self._known :]]

    def stop(self, terminal: Terminal) -> None:
        """The second of two keys counts only for a few seconds."""
        terminal.press_until("Escape", self.stopped)

    @property
    def is_compacted(self) -> bool:
        return bool(self.runs.rows("SELECT id FROM part WHERE data ->> 'type' = 'compaction'"))


KINDS: Final[Mapping[str, Callable[[Path, ExitStack], TerminalAgent]]] = {
    "pi": TerminalPi,
    f"atomic {OLD}": TerminalOldAtomic,
    f"atomic {NEW}": TerminalNewAtomic,
    "claude-code": TerminalClaudeCode,
    "codex": TerminalCodex,
    "opencode": TerminalOpenCode,
}


@pytest.fixture
def agent(request, tmp_path):
    tmux_program()
    with ExitStack() as ends:
        yield KINDS[request.param](tmp_path / "client", ends)


@pytest.fixture
def server(agent, tmp_path):
    """A server with which the agent is connected."""
    reader = {"reader": agent.reader} if agent.reader else {}
    roots = json.dumps([{"path": str(agent.root), "agent": agent.key, **reader}])
    with start_server(tmp_path, roots=agent.root, REDLINE_ROOTS=roots, HOME=str(agent.home)) as started:
        connect(started, agent.key)
        yield started


def start_compaction(agent: TerminalAgent, terminal: Terminal, server: Server) -> str:
    """Compact in the terminal, and see on both sides that the agent waits; returns the address of the run."""
    terminal.enter("/compact")
    run = waiting_run(server)
    terminal.wait_for(agent.waits.format(review=f"{server.base}{run}"))
    server.wait_for(lambda: f"{agent.label} waits for your review" in server.text("/"))
    return run


@pytest.mark.parametrize("agent", APPLYING, indirect=True)
def test_the_next_prompt_in_the_terminal_has_the_approved_context(agent, server):
    with agent.opened() as terminal:
        run = start_compaction(agent, terminal, server)
        loaded = load_session(agent.session)
        before = context_of(loaded, agent.reader)
        approve(server, run)
        targets = applied_targets(server)
        terminal.wait_for(agent.continues)
        terminal.wait_until_gone("waits for your review")
        assert agent.requests == []
        terminal.enter(PROBE)
        server.wait_for(lambda: agent.requests)
    left = ActiveContext(before.reader, tuple(approved_messages(before, targets)), None)
    sent = said_in(json.loads(agent.requests[0])["messages"])
    assert difference(sent, expected(fields_of(loaded, left.messages))) == ""
    assert difference(sent, expected(fields_of(loaded, before.messages))) != ""


@pytest.mark.parametrize("agent", ["opencode"], indirect=True)
def test_the_next_prompt_in_opencode_has_the_approved_context(agent, server):
    with agent.opened() as terminal:
        run = start_compaction(agent, terminal, server)
        source = load_session(agent.runs.copied() / agent.session.name)
        approve(server, run)
        targets = applied_targets(server)
        terminal.wait_for(agent.continues)
        assert agent.requests == []
        terminal.enter(PROBE)
        server.wait_for(lambda: agent.requests)
    wanted = approved_by(source, WRITERS["delete"], targets)
    assert json.loads(agent.requests[0])[1:-1] == wanted
    assert wanted != approved_by(source, WRITERS["delete"], ())


@pytest.mark.parametrize("agent", STOPPING, indirect=True)
def test_the_terminal_shows_how_to_resume_the_approved_session(agent, server):
    with agent.opened() as terminal:
        run = start_compaction(agent, terminal, server)
        known = len(agent.requests)
        approve(server, run, "fork")
        assert applied_targets(server)
        ((created,),) = rows(server, LATEST.format("created"))
        terminal.wait_for(f"To continue in it: {agent.resume} {agent.id_of(Path(created))}")
        assert len(agent.requests) == known
    assert not agent.is_compacted


@pytest.mark.parametrize("agent", HOOKED, indirect=True)
def test_what_is_appended_is_written_when_the_terminal_is_closed(agent, server):
    with agent.opened() as terminal:
        run = start_compaction(agent, terminal, server)
        approve(server, run, agent.appends)
        terminal.wait_for(f"continue with: {agent.resume} {agent.id_of(agent.session)}")
        assert rows(server, LAST_STATE) == [("approved",)]
        agent.close(terminal, server)
        assert applied_targets(server)


@pytest.mark.parametrize("agent", AGENTS, indirect=True)
def test_escape_in_the_terminal_ends_the_question(agent, server):
    with agent.opened() as terminal:
        start_compaction(agent, terminal, server)
        known = len(agent.requests)
        agent.stop(terminal)
        server.wait_for(lambda: "waits for your review" not in server.text("/"))
        assert rows(server, LAST_STATE) == [("declined",)]
        terminal.wait_for(agent.stopped)
        assert len(agent.requests) == known
        terminal.enter(PROBE)
        server.wait_for(lambda: len(agent.requests) > known)
        assert PROBE in agent.requests[-1]
        assert agent.first_words in agent.requests[-1]
    assert not agent.is_compacted
