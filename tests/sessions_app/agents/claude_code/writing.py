"""A session of Claude Code on disk, and what its writers make of it."""

import json
import random
from pathlib import Path
from typing import Any, Final

from devtools.bench.written_plans import WrittenPlan, write_plan
from sessions_app.agents.pure.formats import Generation
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Target
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import SESSION_ID, ClaudeSession, call, text, thinking
from tests.files import place

from .sent_messages import CURRENT

WRITERS: Final = {writer.name: writer for writer in CURRENT.writers}


def put(session: ClaudeSession, directory: Path) -> Path:
    """The session among the client's own files below a directory."""
    return place(directory / ".claude" / "projects" / "-home-dev-project" / f"{SESSION_ID}.jsonl", session.content)


def written(path: Path, writer: str, *targets: Target, generation: Generation = CURRENT) -> WrittenPlan:
    """What a writer makes of a session without these targets: a fork beside it, or the longer session."""
    chosen = next(one for one in generation.writers if one.name == writer)
    return write_plan(load_session(path), generation, chosen, targets, path.parent)


def context_of(path: Path) -> ActiveContext:
    loaded = load_session(path)
    return CURRENT.reader.rebuild(loaded.tree.branch(loaded.leaf_id))


def context_ids(path: Path) -> list[str]:
    return [message.entry.id for message in context_of(path).messages]


def lines_of_file(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def by_id(path: Path) -> dict[str, dict[str, Any]]:
    return {line["uuid"]: line for line in lines_of_file(path) if "uuid" in line}


class Talk:
    """A session on disk: two prompts, the first one with two calls at once. `ids` of its lines by what they say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.session = session = ClaudeSession()
        ids = self.ids = {"p1": session.user("p1"), "env": session.attachment("environment", "where it runs")}
        said = (thinking("t1"), text("s1"), call("c1"), call("c2"))
        ids["t1"], ids["s1"], ids["c1"], ids["c2"] = session.reply("m1", *said)
        ids["r1"] = session.result("c1", "one", parent=ids["c1"])
        ids["r2"] = session.result("c2", "two", parent=ids["c2"])
        (ids["a1"],) = session.reply("m2")
        ids["p2"] = session.user("p2")
        (ids["a2"],) = session.reply("m3")

    def __getitem__(self, name: str) -> str:
        return self.ids[name]

    def put(self) -> Path:
        return put(self.session, self.directory)

    def deleted(self, *ids: str) -> Path:
        """The file after a boundary without these lines."""
        path = self.put()
        written(path, "boundary", *map(Target, ids))
        return path

    def continued(self, path: Path) -> list[str]:
        """Add a turn at the end; the ids of its lines."""
        grown = ClaudeSession()
        grown.lines, grown.last = path.read_bytes().splitlines(), self["a2"]
        later = [grown.user("p3"), *grown.reply("m4")]
        path.write_bytes(grown.content)
        return later


def story(chance: random.Random, *, attaches: bool = True) -> ClaudeSession:
    """A session of random turns, with thinking, calls at once, rewinds, compactions and attachments."""
    session = ClaudeSession()
    prompts: list[str] = []
    for turn in range(chance.randint(4, 12)):
        if prompts and chance.random() < 0.1:
            session.last = chance.choice(prompts)
        prompts.append(session.user(f"p{turn}"))
        if attaches and chance.random() < 0.3:
            session.attachment("date", f"d{turn}")
        for step in range(chance.randint(0, 3)):
            calls = [f"c{turn}.{step}.{number}" for number in range(chance.randint(1, 3))]
            said = [thinking(f"t{turn}"), text(f"s{turn}")][chance.randint(0, 2) :]
            made = session.reply(f"m{turn}.{step}", *said, *map(call, calls))[-len(calls) :]
            for call_id, line_id in zip(calls, made, strict=True):
                session.result(call_id, f"result of {call_id}", parent=line_id)
        session.reply(f"m{turn}", text(f"a{turn}"))
        if chance.random() < 0.15:
            session.boundary()
            session.user("what was said", isCompactSummary=True)
    return session
