"""Sessions of Claude Code, Codex, OpenCode and Amp in a home directory, where their clients keep them."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.claude_sessions import DIRECTORY, SESSION_ID, ClaudeSession, answer, call, text, thinking
from tests.factories import session_bytes
from tests.files import backdate, place
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import Rollout

TURNS: Final = 8
OUTPUT: Final = "\n".join(f"line {number} of the output" for number in range(60))
IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
SUMMARY: Final = """## Where it stands

The tables are exported by `exportTable1` and `exportTable2` in `src/tables/part_1.py`.

| part | state |
|---|---|
| 1 | done |
| 2 | to do |

```python
def export(rows: list[str]) -> None: ...
```
"""
AMP_THREAD: Final[dict[str, Any]] = {
    "v": 9,
    "id": "T-1",
    "created": 1_750_000_000_000,
    "title": "Mend the thread parser.",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Mend the thread parser."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look at it. " * 40}]},
        {"role": "user", "content": [{"type": "text", "text": "And then?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ],
}


@dataclass(frozen=True)
class AgentHome:
    """A home directory with the sessions of all agents."""

    home: Path

    @property
    def roots(self) -> list[dict[str, str]]:
        """The roots for a server that looks for them here."""
        places = [
            ("pi", self.home / ".pi" / "agent" / "sessions"),
            ("claude-code", self.home / ".claude" / "projects"),
            ("codex", self.home / ".codex" / "sessions"),
            ("codex", self.home / ".codex" / "archived_sessions"),
            ("opencode", self.home / ".local" / "share" / "opencode"),
            ("amp", self.home / ".local" / "share" / "amp" / "threads"),
        ]
        return [{"path": str(path), "agent": agent} for agent, path in places]

    def pi(self, name: str, recorded: list[dict[str, Any]]) -> Path:
        return place(self.home / ".pi" / "agent" / "sessions" / f"{name}.jsonl", session_bytes(recorded))

    def claude(self, number: int, content: bytes) -> Path:
        """A session of Claude Code with this number in its id."""
        path = self.home / ".claude" / "projects" / "-home-dev-project" / f"{claude_id(number)}.jsonl"
        return place(path, content.replace(SESSION_ID.encode(), claude_id(number).encode()))

    def codex(self, number: int, rollout: bytes, directory: str = "sessions/2026/01/05") -> Path:
        """A thread of Codex with this number in its id, in one of its directories."""
        own = f"{rollouts.THREAD[:-2]}{number:02}"
        content = rollout.replace(rollouts.THREAD.encode(), own.encode())
        return place(self.home / ".codex" / directory / f"rollout-2026-01-05T10-00-{number:02}-{own}.jsonl", content)

    @cached_property
    def opencode(self) -> OpenCodeStore:
        return OpenCodeStore(self.home / ".local" / "share" / "opencode")

    def amp(self) -> Path:
        path = self.home / ".local" / "share" / "amp" / "threads" / "T-1.json"
        return place(path, json.dumps(AMP_THREAD).encode())


def claude_id(number: int) -> str:
    return f"{SESSION_ID[:-2]}{number:02}"


def claude_session(task: str) -> ClaudeSession:
    """A session worth compacting."""
    session = ClaudeSession()
    session.user(task)
    for turn in range(TURNS):
        session.reply(f"m{turn}", thinking("I think about it. " * 9), text(f"Step {turn}."), call(f"t{turn}"))
        session.result(f"t{turn}", OUTPUT)
    session.user("Go on.")
    session.reply("last", text("Done."))
    return session


def compacted_claude_session(task: str) -> ClaudeSession:
    """A session that the client has compacted, with an image, an attachment and a call of a subagent."""
    session = ClaudeSession()
    session.user([{"type": "text", "text": task}, IMAGE])
    session.reply("m1", text("I ask a subagent."), call("t1", "Task"), call("t2"))
    session.result("t1", "The loop is in export.py.")
    session.result("t2", OUTPUT)
    session.attachment("file", "The file export.py was changed.")
    session.boundary()
    session.user("The export is slow because of a loop in export.py. " * 9, isCompactSummary=True)
    session.user("Run the tests.")
    session.reply("m2", text("I run them."), call("t3"))
    session.result("t3", OUTPUT)
    session.reply("m3", text("All tests pass."))
    return session


def summarised_claude_session(task: str) -> ClaudeSession:
    """A session that the client has compacted, in which much was said and read that its summary no longer mentions."""
    session = ClaudeSession()
    session.user(task)
    for turn in range(TURNS):
        said = " ".join(f"`exportTable{number}`" for number in range(40))
        session.reply(f"m{turn}", text(f"I look at {said}."), call(f"t{turn}"))
        session.result(f"t{turn}", OUTPUT)
        read = {"type": "tool_use", "id": f"r{turn}", "name": "Read"}
        session.reply(f"n{turn}", {**read, "input": {"file_path": f"{DIRECTORY}/src/tables/part_{turn}.py"}})
        session.result(f"r{turn}", OUTPUT)
        session.user(f"Go on with part {turn}.")
    session.reply("failing", text("I run the tests."), call("tests"))
    failed = "part_1.py:3: error: exportTable1 has no attribute 'rows' " + "of a type " * 12
    session.user([answer("tests", f"Exit code 1\n{failed}", is_error=True)])
    kept = [session.user("And the last one?"), *session.reply("last", text("`exportTable3` is done."))]
    session.boundary(*kept)
    session.user(SUMMARY, isCompactSummary=True)
    session.user("Run the tests.")
    again = {"type": "tool_use", "id": "again", "name": "Read"}
    session.reply("missed", {**again, "input": {"file_path": f"{DIRECTORY}/src/tables/part_1.py"}})
    session.result("again", OUTPUT)
    session.reply("end", text("`exportTable7` was wrong. All tests pass."))
    return session


def place_subagent(session: Path, task: str) -> Path:
    """A session of a subagent of Claude Code's."""
    subagent = ClaudeSession()
    subagent.user(task, isSidechain=True)
    subagent.reply("s1", text("The loop is in export.py."))
    content = subagent.content.replace(SESSION_ID.encode(), session.stem.encode())
    return place(session.with_suffix("") / "subagents" / "agent-a1.jsonl", content)


def register_as_open(session: Path, pid: int) -> None:
    """Record, as Claude Code does, that a client has a session open."""
    register = session.parent.parent.with_name("sessions")
    place(register / f"{pid}.json", json.dumps({"pid": pid, "sessionId": session.stem}).encode())


def codex_thread(task: str) -> Rollout:
    """A thread worth compacting."""
    return Rollout(*_codex_turns(task))


def compacted_codex_thread(task: str) -> Rollout:
    """A thread that the client has compacted: it keeps what the user said, and a summary."""
    before, summary = _codex_turns(task), "The export is slow because of a loop."
    return Rollout(
        *before,
        rollouts.compacted(rollouts.user(task), rollouts.user(summary), message=summary),
        rollouts.world_state(),
        rollouts.user("Run the tests."),
        rollouts.answer("All tests pass."),
    )


def _codex_turns(task: str) -> list[rollouts.Item]:
    items = [rollouts.meta(), rollouts.developer(), rollouts.environment(), rollouts.user(task)]
    for turn in range(TURNS):
        items += [
            rollouts.reasoning(f"I think about step {turn}.", f"rs_{turn}"),
            rollouts.call(f"c{turn}", cmd=f"cat part_{turn}.py"),
            rollouts.output(f"c{turn}", OUTPUT),
            rollouts.answer(f"Step {turn} is done."),
            rollouts.user("Go on."),
        ]
    return [*items, rollouts.answer("Done.")]


def opencode_session(store: OpenCodeStore, session_id: str, task: str) -> None:
    """A session worth compacting."""
    worked_session(store, turns=TURNS, session_id=session_id)
    store.run("UPDATE session SET title = ? WHERE id = ?", task, session_id)
    backdate(store.database)


def damaged(content: bytes) -> bytes:
    """The content with two records on one line, a torn line, and a torn end."""
    lines = content.splitlines(keepends=True)
    lines[4] = lines[4].rstrip(b"\n")
    lines[8] = lines[8][:40] + b"\n"
    return b"".join([*lines, lines[1][:60]])
