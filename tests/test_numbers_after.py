"""A deletion never makes a context larger or a session due, and what is taken back has its old number: every agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.context import Basis
from tests.browser.agent_sessions import AgentHome
from tests.claude_sessions import ClaudeSession, call, text
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation
from tests.opencode_stores import worked_session
from tests.sessions_app.agents.codex.rollouts import token_count, work

YES = ("--yes", "--live", "--not-honoured", "--allow-below-target", "--json")


def pi_session(redline: Installation) -> Path:
    return reported(redline.home / ".pi" / "agent" / "sessions" / "--p--" / "s.jsonl")


def atomic_session(redline: Installation) -> Path:
    return reported(redline.sessions / "--p--" / "s.jsonl")


def reported(path: Path) -> Path:
    """A session whose provider reported half as much again as is estimated."""
    recorded = working_session()
    usage = {"input": 20_000, "output": 100, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 20_100}
    recorded[-2]["message"] |= {"usage": usage, "stopReason": "stop"}
    return place(path, session_bytes(recorded))


def claude_session(redline: Installation) -> Path:
    session = ClaudeSession("Mend the parser.")
    for step in range(12):
        session.reply(f"m{step}", text(f"Step {step}."), call(f"c{step}"), input_tokens=1_000 + 1_200 * step)
        session.result(f"c{step}", " ".join(f"line_{number}" for number in range(300)))
    session.reply("end", text("It is mended."), input_tokens=15_500)
    session.user("Now the tests.")
    return AgentHome(redline.home).claude(1, session.content)


def codex_session(redline: Installation) -> Path:
    return AgentHome(redline.home).codex(1, work(token_count(17_000, 90_000)).content)


def opencode_session(redline: Installation) -> Path:
    store = AgentHome(redline.home).opencode
    path = worked_session(store, turns=8)
    for row in store.run("SELECT id, data FROM message"):
        data = json.loads(row["data"]) | {"tokens": {"total": 3_600}}
        if data["role"] == "assistant":
            store.run("UPDATE message SET data = ? WHERE id = ?", json.dumps(data), row["id"])
    return path


class Number(NamedTuple):
    tokens: int
    is_due: bool

    @classmethod
    def of(cls, redline: Installation, path: Path) -> Number:
        """The number of a session; all who are asked agree."""
        session = index_file(path)
        size = session.context_size
        assert size is not None
        shown = redline.call("context", path, "--json").json
        assert (shown["tokens"], shown["basis"]) == (size.tokens, size.basis)
        listed = {one["path"]: one["contextTokens"] for one in redline.call("sessions", "--json").json}
        assert listed[str(path)] == size.tokens
        return cls(size.tokens, bool(session.due))


def compact(redline: Installation, path: Path, writer: str, *options: object) -> tuple[Path, dict[str, Any]]:
    """The session that has the compacted context, and what the command says."""
    document = redline.call("compact", path, "--save-as", writer, *YES, *options).ok().json
    return Path(document["created"] or path), document


@pytest.mark.parametrize(
    ("make", "writer", "again"),
    [
        pytest.param(pi_session, "context-edit", "context-edit", id="pi"),
        pytest.param(pi_session, "fork", "context-edit", id="pi fork"),
        pytest.param(atomic_session, "context-compaction", "context-compaction", id="atomic"),
        pytest.param(atomic_session, "fork", "fork", id="atomic fork"),
        pytest.param(claude_session, "boundary", "boundary", id="claude code"),
        pytest.param(claude_session, "fork", "boundary", id="claude code fork"),
        pytest.param(codex_session, "compacted", "compacted", id="codex"),
        pytest.param(codex_session, "fork", "compacted", id="codex fork"),
        pytest.param(opencode_session, "delete", "prune", id="opencode"),
        pytest.param(opencode_session, "prune", "delete", id="opencode prune"),
        pytest.param(opencode_session, "fork", "delete", id="opencode fork"),
    ],
)
def test_each_compaction_makes_the_number_smaller(redline, make, writer, again):
    path = make(redline)
    numbers = [Number.of(redline, path)]
    assert Session.objects.get().context_size is not None
    assert Session.objects.get().context_basis != Basis.COUNTED, "the provider reported something"
    for name in (writer, again):
        path, document = compact(redline, path, name, "--ratio", "0.7", "--preserve-recent", "1")
        numbers.append(Number.of(redline, path))
        assert document["tokens"]["before"] == numbers[-2].tokens
        tokens = document["tokens"]
        if name == "prune":  # it leaves the calls, with a placeholder as the result
            assert tokens["notApplied"] > 0
            assert numbers[-1].tokens >= tokens["after"] + tokens["notApplied"]
        else:
            assert tokens["notApplied"] == 0
            assert numbers[-1].tokens == tokens["after"]
        assert numbers[-1].tokens < numbers[-2].tokens
        assert numbers[-1].is_due <= numbers[-2].is_due


@pytest.mark.parametrize(
    ("make", "writer"),
    [
        pytest.param(pi_session, "context-edit", id="pi"),
        pytest.param(atomic_session, "context-compaction", id="atomic"),
        pytest.param(claude_session, "boundary", id="claude code"),
        pytest.param(codex_session, "compacted", id="codex"),
        pytest.param(opencode_session, "delete", id="opencode"),
    ],
)
def test_what_is_undone_has_the_old_number(redline, make, writer):
    path = make(redline)
    before = Number.of(redline, path)
    compact(redline, path, writer)
    assert Number.of(redline, path).tokens < before.tokens
    redline.call("undo", path, "--yes", "--live", "--json").ok()
    assert Number.of(redline, path) == before


@pytest.mark.parametrize("make", [pi_session, atomic_session, claude_session])
def test_what_is_restored_has_the_old_number(redline, make):
    path = make(redline)
    before = Number.of(redline, path)
    _, document = compact(redline, path, "")
    redline.call("restore", document["backupPath"], "--yes", "--live", "--drop-newer", "--json").ok()
    assert Number.of(redline, path) == before


def test_the_number_of_a_fork_without_an_index_is_that_of_the_file(redline):
    path, document = compact(redline, pi_session(redline), "fork")
    known = redline.call("context", path, "--json").json
    assert (known["tokens"], known["measuredBy"]) == (document["tokens"]["after"], "index")
    copy = path.with_name("copy.jsonl")
    copy.write_bytes(path.read_bytes())
    assert redline.call("context", copy, "--json").json["measuredBy"] == "file"
    assert "measured from the file, which is not indexed" in redline.call("context", copy).out
