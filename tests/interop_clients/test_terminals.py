"""A person compacts in the terminal of a real agent: it waits for a review, shows that it does, and continues.

Each agent is connected with `redline connect`, runs in tmux as a person sees it, and has a scripted model. Redline is
the real server. What else may happen is in `test_hooks`, `test_hook_reviews` and `tests/interop`.
"""

from __future__ import annotations

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

from compaction_app.commit.proof import approved_messages
from devtools.scripted.server import ScriptedProvider
from sessions_app.agents.codex.writer_lock import thread_id_of
from sessions_app.agents.hook_entry import STATUS
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.storage.session_loader import load_session
from tests.browser.scenarios import approve_everything
from tests.factories import working_session
from tests.interop.install_atomic import NEW, OLD
from tests.interop.pi_rpc import AtomicHome, PiHome
from tests.interop.pi_runs import PINNED, PROBE, difference, expected, said_in
from tests.interop.test_pi import context_of, fields_of
from tests.interop.test_pi_handshake import answered, message
from tests.opencode_plans import WRITERS, approved_by
from tests.server import Server, start_server

from . import test_claude_code as claude
from . import test_codex as codex
from .claude_runs import QUIET, ClaudeClient
from .codex_runs import CodexRuns
from .installed import client_program
from .messages_server import MessagesServer
from .opencode_runs import OpencodeRuns
from .scripted_model import ModelReply, ScriptedModel
from .terminal import Terminal, tmux_program
from .test_hook_reviews import CONFIRMED, LATEST, applied_targets, connect, rows
from .test_hooks import trust_hooks
from .test_opencode_handshake import called

EXPLICIT: Final = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
WAITING_RUN: Final = "SELECT run_id FROM compaction_app_handshake WHERE state = 'waiting'"
LAST_STATE: Final = "SELECT state FROM compaction_app_handshake ORDER BY id DESC LIMIT 1"
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
    home: Path
    root: Path
    """The directory of its sessions."""
    reader: str = ""
    """The reader of its sessions, if their directory does not show it."""
    session: Path
    first_words: str
    """Words of the first prompt of the session."""
    stopped: str
    """What the terminal shows after the compaction was stopped."""
    marks: Sequence[str]
    """What the lines of the agent's own compactions have in them."""

    @contextmanager
    def opened(self) -> Iterator[Terminal]:
        """The session in a terminal, as soon as something can be typed."""
        with Terminal(
            self.command, cwd=self.project, environment={**self.environment, **EXPLICIT}
        ) as terminal:
            self.begin(terminal)
            yield terminal

    @property
    @abstractmethod
    def command(self) -> Sequence[str]: ...

    @property
    @abstractmethod
    def project(self) -> Path: ...

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]: ...

    @abstractmethod
    def begin(self, terminal: Terminal) -> None:
        """Wait until something can be typed."""

    @abstractmethod
    def waits(self, server: Server, run: str) -> str:
        """What the terminal shows while the agent waits for this run."""

    def stop(self, terminal: Terminal) -> None:
        """Stop the compaction."""
        terminal.press("Escape")

    @property
    @abstractmethod
    def requests(self) -> Sequence[str]:
        """The requests for the conversation that its model received, as JSON."""

    @property
    def is_compacted(self) -> bool:
        return any(mark in self.session.read_text(encoding="utf-8") for mark in self.marks)


class StoppingAgent(TerminalAgent):
    """An agent that stops its compaction, and shows how to resume."""

    resume: str
    """The command with which a session is resumed, without its id."""

    @abstractmethod
    def id_of(self, session: Path) -> str:
        """The id by which a session is resumed."""


class HookAgent(StoppingAgent):
    """One that calls a command before it compacts."""

    appends: str
    """The writer that adds to the session itself."""

    @abstractmethod
    def close(self, terminal: Terminal, server: Server) -> None:
        """Leave, so that the session is open nowhere."""


class TerminalPi(TerminalAgent):
    key, label, reader = "pi", "pi", "pi"
    continues = "pi continues with the approved context"
    """What the terminal shows after the approval."""
    first_words = "Mend the parser."
    stopped = "Compaction cancelled"
    marks = ('"type":"compaction"', '"type":"context_compaction"')

    def __init__(self, base: Path, ends: ExitStack) -> None:
        if self.key == "pi" and not PINNED.is_dir():
            pytest.skip("not checked: pi is not installed; `make interop-clients` does that")
        self._provider = ends.enter_context(ScriptedProvider(script="stops-early"))
        self._home = self._new_home(base)
        self._home.bridge.unlink()  # `redline connect` makes it
        self.home, self.root = base, self._home.sessions
        recorded = (one["message"] for one in working_session(steps=LONG)[1:])
        known = answered("", 1_000)["message"]
        self.session = self._home.session(
            [message({**known, **one} if one["role"] == "assistant" else one) for one in recorded]
        )

    def _new_home(self, base: Path) -> PiHome:
        return PiHome(base, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        """A model with a window that is large enough."""
        url = self._provider.base_url("openai")
        return {"base_url": url, "api": "openai-completions", "window": 200_000}

    @property
    def command(self) -> Sequence[str]:
        return [*self._home.command(), "--session", str(self.session), "--model", "scripted/talk"]

    @property
    def project(self) -> Path:
        return self._home.project

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "PI_TELEMETRY": "0"}

    def begin(self, terminal: Terminal) -> None:
        terminal.wait_for("Now the tests.")
        terminal.wait_for("/200k")

    def waits(self, server: Server, run: str) -> str:
        return f"Redline waits for your review: {server.base}{run}/review ("

    @property
    def requests(self) -> Sequence[str]:
        return [one.raw.decode() for one in self._provider.requests]


class TerminalOldAtomic(TerminalPi):
    """Atomic while it deletes. After a compaction its terminal shows no notices of extensions."""

    key, label, reader = "atomic", "Atomic", "atomic-0.8"
    continues = "[compaction] Compacted"

    def _new_home(self, base: Path) -> PiHome:
        return AtomicHome(base, OLD, **self._options)


class TerminalNewAtomic(TerminalPi, StoppingAgent):
    """Atomic since it compacts to text."""

    key, label, reader = "atomic", "Atomic", "atomic-0.9"
    resume = "atomic --session"

    def _new_home(self, base: Path) -> PiHome:
        return AtomicHome(base, NEW, **self._options)

    def id_of(self, session: Path) -> str:
        return str(session)


class TerminalClaudeCode(HookAgent):
    key, label = "claude-code", "Claude Code"
    resume, appends = "claude --resume", "boundary"
    first_words = "I look at both."
    stopped = "/compact <optional custom summarization instructions>"
    marks = ('"compact_boundary"',)

    def __init__(self, base: Path, ends: ExitStack) -> None:
        self._program = client_program(self.key, "2.1.330")
        self._model = ends.enter_context(MessagesServer())
        self._client = ClaudeClient(self._program, base, self._model)
        self.home, self.root = self._client.home, self._client.home / ".claude" / "projects"
        self.session_id = claude.conversation(self._client)
        self.session = self._client.session(self.session_id)
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
    def command(self) -> Sequence[str]:
        return [str(self._program), "--resume", self.session_id]

    @property
    def project(self) -> Path:
        return self._client.project

    @property
    def environment(self) -> Mapping[str, str]:
        own = {"HOME": str(self.home), "PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": self._model.base_url}
        return {**QUIET, **own}

    def begin(self, terminal: Terminal) -> None:
        terminal.wait_for("Done.")
        terminal.wait_for("shift+tab to cycle")

    def close(self, terminal: Terminal, server: Server) -> None:
        terminal.enter("/exit")
        server.wait_for(lambda: terminal.has_ended)

    def id_of(self, session: Path) -> str:
        return session.stem

    def waits(self, server: Server, run: str) -> str:
        del server, run
        return STATUS

    @property
    def requests(self) -> Sequence[str]:
        return [json.dumps(one["messages"]) for one in self._model.requests if one.get("tools")]


class TerminalCodex(HookAgent):
    key, label = "codex", "Codex"
    resume, appends = "codex resume", "compacted"
    first_words = "prompt 0"
    stopped = "Conversation interrupted"
    marks = ('"type":"compacted"',)

    def __init__(self, base: Path, ends: ExitStack) -> None:
        self._model = ends.enter_context(ScriptedModel())
        self._program = client_program(self.key, "0.169.0")
        self._runs = CodexRuns(self._program, base, self._model, extra=codex.LIMIT)
        self.home, self.root = base, self._runs.home / "sessions"
        self._thread = ""
        for turn, replies in enumerate(codex.TURNS):
            self._thread = self._runs.run(f"prompt {turn}", replies, thread=self._thread).thread_id
        self.session = self._runs.files(self._thread)[-1]
        ends.callback(self._end_daemons)

    @property
    def command(self) -> Sequence[str]:
        return [str(self._program), "resume", self._thread]

    @property
    def project(self) -> Path:
        return self._runs.scratch.project

    @property
    def environment(self) -> Mapping[str, str]:
        return self._runs.program.environment(self._runs.scratch)

    @contextmanager
    def opened(self) -> Iterator[Terminal]:
        trust_hooks(self._runs)
        with super().opened() as terminal:
            yield terminal

    def begin(self, terminal: Terminal) -> None:
        terminal.wait_for("Ask Codex to do anything")

    def close(self, terminal: Terminal, server: Server) -> None:
        """Its server in the background has the thread open for about a minute more, unless it is stopped."""
        terminal.enter("/quit")
        server.wait_for(lambda: terminal.has_ended)
        self._stop_daemon()

    def id_of(self, session: Path) -> str:
        return thread_id_of(session)

    def waits(self, server: Server, run: str) -> str:
        del server, run
        return STATUS

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
    first_words = "prompt 1"
    stopped = "The compaction was stopped. Nothing was compacted."
    turns = 3

    def __init__(self, base: Path, ends: ExitStack) -> None:
        self._model = ends.enter_context(ScriptedModel())
        self._program = client_program(self.key, "1.18.33")
        self.runs = OpencodeRuns(self._program, base, self._model)
        self.home, self.root = self.runs.scratch.home, self.runs.data
        self._id = ""
        for number in range(1, self.turns + 1):
            replies = [called(f"c{number}"), ModelReply(f"Turn {number} is done.")]
            ended = self.runs.run(f"prompt {number}", replies, session=self._id)
            self._id = self._id or ended.session_id
        self.session = self.runs.database / self._id

    @property
    def command(self) -> Sequence[str]:
        return [str(self._program), "--session", self._id]

    @property
    def project(self) -> Path:
        return self.runs.scratch.project

    @property
    def environment(self) -> Mapping[str, str]:
        return self.runs.environment

    def begin(self, terminal: Terminal) -> None:
        terminal.wait_for(f"Turn {self.turns} is done.")
        terminal.wait_for("ctrl+p commands")

    def waits(self, server: Server, run: str) -> str:
        return f"Redline waits for your review: {server.base}{run}/review ("

    @property
    def requests(self) -> Sequence[str]:
        return [json.dumps(one["messages"]) for one in self._model.conversation[2 * self.turns :]]

    def stop(self, terminal: Terminal) -> None:
        super().stop(terminal)
        terminal.wait_for("esc again to interrupt")
        super().stop(terminal)

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
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TerminalAgent]:
    tmux_program()
    with ExitStack() as ends:
        yield KINDS[request.param](tmp_path / "client", ends)


@pytest.fixture
def server(agent: TerminalAgent, tmp_path: Path) -> Iterator[Server]:
    """A server with which the agent is connected."""
    root = {"path": str(agent.root), "agent": agent.key, **({"reader": agent.reader} if agent.reader else {})}
    roots = json.dumps([root])
    with start_server(tmp_path, roots=agent.root, REDLINE_ROOTS=roots, HOME=str(agent.home)) as started:
        connect(started, agent.key)
        yield started


def start_compaction(agent: TerminalAgent, terminal: Terminal, server: Server) -> str:
    """Compact in the terminal, and see on both sides that the agent waits; returns the address of the run."""
    terminal.enter("/compact")
    ((run_id,),) = server.wait_for(lambda: rows(server, WAITING_RUN))
    run = f"/runs/{run_id}"
    terminal.wait_for(agent.waits(server, run))
    assert f"{agent.label} waits for your review" in server.text("/")
    return run


def approve(server: Server, run: str, writer: str = "") -> str:
    """Approve all proposals, with the writer that is proposed or another one; returns the address of the question."""
    approve_everything(server, run)
    shown = server.post(f"{run}/commit?writer={writer}", f"{run}/commit", yes=CONFIRMED)
    assert shown.startswith("/handshakes/"), server.text(f"{run}/commit?writer={writer}")
    return shown


@pytest.mark.parametrize("agent", APPLYING, indirect=True)
def test_the_next_prompt_in_the_terminal_has_the_approved_context(agent: TerminalPi, server: Server) -> None:
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
def test_the_next_prompt_in_opencode_has_the_approved_context(
    agent: TerminalOpenCode, server: Server
) -> None:
    with agent.opened() as terminal:
        run = start_compaction(agent, terminal, server)
        source = load_session(agent.runs.copied() / agent.session.name)
        approve(server, run)
        targets = applied_targets(server)
        terminal.wait_for("OpenCode continues with the approved context")
        assert agent.requests == []
        terminal.enter(PROBE)
        server.wait_for(lambda: agent.requests)
    wanted = approved_by(source, WRITERS["delete"], targets)
    assert json.loads(agent.requests[0])[1:-1] == wanted
    assert wanted != approved_by(source, WRITERS["delete"], ())


@pytest.mark.parametrize("agent", STOPPING, indirect=True)
def test_the_terminal_shows_how_to_resume_the_approved_session(agent: StoppingAgent, server: Server) -> None:
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
def test_what_is_appended_is_written_when_the_terminal_is_closed(agent: HookAgent, server: Server) -> None:
    with agent.opened() as terminal:
        run = start_compaction(agent, terminal, server)
        approve(server, run, agent.appends)
        terminal.wait_for(f"continue with: {agent.resume} {agent.id_of(agent.session)}")
        assert rows(server, LAST_STATE) == [("approved",)]
        agent.close(terminal, server)
        assert applied_targets(server)


@pytest.mark.parametrize("agent", AGENTS, indirect=True)
def test_escape_in_the_terminal_ends_the_question(agent: TerminalAgent, server: Server) -> None:
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
