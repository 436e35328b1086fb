"""OpenCode sends exactly the approved context of a session that Redline has curated."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

import pytest

from devtools.bench.written_plans import notes_on, random_plan
from sessions_app.agents.notes import note_text
from sessions_app.storage.session_loader import load_session
from tests.opencode_plans import (
    GENERATION,
    WRITERS,
    approved_by,
    every_row,
    exported,
    fork_export,
    put_rows_back,
    sent_of,
    with_notes,
    write_rows,
)

from .installed import client_program
from .opencode_runs import PROBE, OpencodeRuns
from .scripted_model import Call, ModelReply, ScriptedModel

PLANS: Final = 20
VERSION: Final = "1.18.33"


def shell(call_id: str, command: str) -> Call:
    return Call(call_id, "bash", {"command": command, "description": "a test"})


def turn(number: int) -> list[ModelReply]:
    first, second, third = (f"c{number}{letter}" for letter in "abc")
    return [
        ModelReply(f"I look {number}.", f"thought {number}", [shell(first, f"seq {number} 30")]),
        ModelReply(calls=[shell(second, f"echo two {number}"), shell(third, "exit 3")], reasoning="So."),
        ModelReply(f"Turn {number} is done.", "All is well."),
    ]


def worked(runs: OpencodeRuns) -> Path:
    """A session of four turns; returns its path."""
    session = runs.run("first", turn(1)).session_id
    for number in (2, 3, 4):
        runs.run(f"turn {number}", turn(number), session=session)
    return runs.database / session


@pytest.mark.parametrize("writer", list(WRITERS))
def test_each_plan_gives_the_approved_context_and_its_undo_the_old_rows(
    tmp_path: Path, model: ScriptedModel, writer: str
) -> None:
    runs = OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model)
    path, chance = worked(runs), random.Random(12)
    before, equal = every_row(runs.database), 0
    assert runs.sent(path.name)[1:] == sent_of(load_session(path))
    for _ in range(PLANS):
        plan = random_plan(load_session(path), GENERATION, WRITERS[writer], chance, chance.randrange(1, 12))
        assert plan is not None
        written = write_rows(path, writer, plan.targets, tmp_path / "data")
        assert sent_of(load_session(written.path)) == written.approved
        assert runs.sent(written.path.name)[1:] == written.approved
        put_rows_back(path, written.backup, tmp_path / "data")
        assert every_row(runs.database) == before
        equal += 1
    assert equal == PLANS
    print(f"opencode {VERSION}: {equal}/{PLANS} plans by {writer}")


def test_the_notes_of_a_fork_are_sent_in_their_places(tmp_path: Path, model: ScriptedModel) -> None:
    runs = OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model)
    path, chance = worked(runs), random.Random(14)
    for number in range(PLANS):
        session = load_session(path)
        plan = random_plan(session, GENERATION, WRITERS["fork"], chance, chance.randrange(3, 12))
        assert plan is not None
        notes = notes_on(plan.targets)
        if number % 2:
            forked = write_rows(path, "fork", plan.targets, tmp_path / "data", notes).path
            expected = with_notes(session, plan.targets, forked, notes)
        else:
            own = load_session(exported(path, tmp_path / "own.json"))
            forked = fork_export(own, plan.targets, notes)
            expected = with_notes(own, plan.targets, forked, notes)
            runs.call("import", str(forked))
        sent = runs.sent(forked.stem)[1:]
        assert sent == expected
        assert [json.dumps(sent).count(note_text(words)) for words in notes.values()] == [1] * len(notes)


@pytest.mark.parametrize("writer", list(WRITERS))
def test_a_running_server_sends_the_approved_context_at_the_next_prompt(
    tmp_path: Path, model: ScriptedModel, writer: str
) -> None:
    runs = OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model)
    path, chance = worked(runs), random.Random(7)
    with runs.served() as server:
        plan = random_plan(load_session(path), GENERATION, WRITERS[writer], chance, 6)
        assert plan is not None
        written = write_rows(path, writer, plan.targets, tmp_path / "data")
        (request,) = server.prompt(written.path.name, PROBE, [ModelReply("ok")])
    assert request["messages"][1:-1] == written.approved


def test_a_curated_export_is_imported_and_sends_the_approved_context(
    tmp_path: Path, model: ScriptedModel
) -> None:
    runs = OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model)
    session, chance, fork = worked(runs), random.Random(5), WRITERS["fork"]
    own, theirs = exported(session, tmp_path / "own.json"), tmp_path / "theirs.json"
    theirs.write_text(runs.call("export", session.name))
    assert json.loads(own.read_bytes())["messages"] == json.loads(theirs.read_bytes())["messages"]
    for made in (own, theirs):
        loaded = load_session(made)
        plan = random_plan(loaded, GENERATION, fork, chance, 6)
        assert plan is not None
        forked = fork_export(loaded, plan.targets)
        runs.call("import", str(forked))
        assert runs.sent(forked.stem)[1:] == approved_by(loaded, fork, plan.targets)


def test_a_full_session_is_not_compacted_after_a_plan(tmp_path: Path, model: ScriptedModel) -> None:
    runs = OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model, window=40_000)
    session = runs.run("first", [ModelReply("Short.", "Long thought. " * 50, tokens=31_000)]).session_id
    path = runs.database / session
    plan = random_plan(load_session(path), GENERATION, WRITERS["delete"], random.Random(1), 3)
    assert plan is not None
    written = write_rows(path, "delete", plan.targets, tmp_path / "data")
    assert runs.sent(session)[1:] == written.approved
