"""OpenCode sends exactly the approved context of a session that Redline has curated, itself or through its server."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from django.db import connection

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import Approved, commit
from compaction_app.changes.undo import UndoRequest, undo
from compaction_app.core.loop import Origin
from compaction_app.core.parameters import Parameters
from compaction_app.models import Compaction, Undo
from devtools.bench.written_plans import notes_on, random_plan
from sessions_app.agents.opencode.edge.server import PASSWORD_VARIABLE, USER_VARIABLE, is_same_row
from sessions_app.agents.pure.formats import note_text
from sessions_app.document.document import Document
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import row_steps
from sessions_app.storage.locks import RecoveryKind, session_lock
from sessions_app.storage.session_loader import load_session
from tests.installation import override_configuration, refusal
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
from tests.sessions_app.storage.test_rows import dying, killed
from tests.wait import wait_until

from .installed import CURRENT, client_program
from .opencode_runs import PROBE, OpencodeRuns
from .opencode_session import shell
from .scripted_model import ModelReply

PLANS: Final = 20
VERSION: Final = CURRENT["opencode"]


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


@pytest.fixture
def runs(tmp_path, model):
    return OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model)


def plan_of(path: Path, writer: str, chance: random.Random, wanted: int) -> Sequence[Target]:
    """Targets of a random plan for a writer."""
    plan = random_plan(load_session(path), GENERATION, WRITERS[writer], chance, wanted)
    assert plan is not None
    return plan.targets


@pytest.mark.parametrize("writer", list(WRITERS))
def test_each_plan_gives_the_approved_context_and_its_undo_the_old_rows(runs, tmp_path, writer):
    path, chance = worked(runs), random.Random(12)
    before = every_row(runs.database)
    assert runs.sent(path.name)[1:] == sent_of(load_session(path))
    for _ in range(PLANS):
        targets = plan_of(path, writer, chance, chance.randrange(1, 12))
        written = write_rows(path, writer, targets, tmp_path / "data")
        assert sent_of(load_session(written.path)) == written.approved
        assert runs.sent(written.path.name)[1:] == written.approved
        put_rows_back(path, written.backup, tmp_path / "data")
        assert every_row(runs.database) == before


def test_the_notes_of_a_fork_are_sent_in_their_places(runs, tmp_path):
    path, chance = worked(runs), random.Random(14)
    for number in range(PLANS):
        session = load_session(path)
        targets = plan_of(path, "fork", chance, chance.randrange(3, 12))
        notes = notes_on(targets)
        if number % 2:
            forked = write_rows(path, "fork", targets, tmp_path / "data", notes).path
            expected = with_notes(session, targets, forked, notes)
        else:
            own = load_session(exported(path, tmp_path / "own.json"))
            forked = fork_export(own, targets, notes)
            expected = with_notes(own, targets, forked, notes)
            runs.call("import", str(forked))
        sent = runs.sent(forked.stem)[1:]
        assert sent == expected
        assert [json.dumps(sent).count(note_text(words)) for words in notes.values()] == [1] * len(notes)


@pytest.mark.parametrize("writer", list(WRITERS))
def test_a_running_server_sends_the_approved_context_at_the_next_prompt(runs, tmp_path, writer):
    path = worked(runs)
    with runs.served() as server:
        targets = plan_of(path, writer, random.Random(7), 6)
        written = write_rows(path, writer, targets, tmp_path / "data")
        (request,) = server.prompt(written.path.name, PROBE, [ModelReply("ok")])
    assert request["messages"][1:-1] == written.approved


def test_a_curated_export_is_imported_and_sends_the_approved_context(runs, tmp_path):
    session, chance = worked(runs), random.Random(5)
    own, theirs = exported(session, tmp_path / "own.json"), tmp_path / "theirs.json"
    theirs.write_text(runs.call("export", session.name))
    assert json.loads(own.read_bytes())["messages"] == json.loads(theirs.read_bytes())["messages"]
    for made in (own, theirs):
        loaded, targets = load_session(made), plan_of(made, "fork", chance, 6)
        forked = fork_export(loaded, targets)
        runs.call("import", str(forked))
        assert runs.sent(forked.stem)[1:] == approved_by(loaded, WRITERS["fork"], targets)


def test_a_full_session_is_not_compacted_after_a_plan(tmp_path, model):
    runs = OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model, window=40_000)
    session = runs.run("first", [ModelReply("Short.", "Long thought. " * 50, tokens=31_000)]).session_id
    path = runs.database / session
    targets = plan_of(path, "delete", random.Random(1), 3)
    written = write_rows(path, "delete", targets, tmp_path / "data")
    assert runs.sent(session)[1:] == written.approved


SERVED: Final = ("delete", "prune")
RUNNING: Final = "SELECT id FROM part WHERE data ->> 'callID' = ? AND data -> 'state' ->> 'status' = 'running'"
LOGIN: Final = {USER_VARIABLE: "someone", PASSWORD_VARIABLE: "not to be shown"}


@pytest.fixture
def path(runs):
    return worked(runs)


@pytest.fixture
def served(redline, runs, path):
    with runs.served() as server, override_configuration(servers={"opencode": server.url}):
        yield server


def written(path: Path, writer: str, targets: Sequence[Target]) -> None:
    document = Document.to_change(path)
    approved = Approved(
        document=document,
        leaf_id=document.leaf_id,
        parameters=Parameters(compression_ratio=1.0, preserve_recent=0, query="-"),
        targets=tuple(targets),
        planner="embedded",
        origins={target: Origin(0, "", "", by_repair=False) for target in targets},
        writer=writer,
    )
    commit(approved, Confirmations(live=True, below_target=True), datetime.now(UTC))


def undone(path: Path) -> None:
    undo(UndoRequest(Document.to_change(path)), Confirmations(live=True), datetime.now(UTC))


def is_as(runs: OpencodeRuns, before: dict[str, list[dict[str, object]]]) -> bool:
    now = every_row(runs.database)
    tables = [(now[table], rows) for table, rows in before.items()]
    return all(len(found) == len(rows) and all(map(is_same_row, found, rows)) for found, rows in tables)


@pytest.mark.parametrize("writer", SERVED)
def test_each_plan_through_the_server_gives_the_approved_context_and_its_undo_the_one_before(
    runs, path, served, writer
):
    chance, before = random.Random(21), every_row(runs.database)
    whole = sent_of(load_session(path))
    assert runs.sent_beside(path.name)[1:] == whole
    for number in range(1, PLANS + 1):
        targets = plan_of(path, writer, chance, chance.randrange(1, 12))
        approved = approved_by(load_session(path), WRITERS[writer], targets)
        written(path, writer, targets)
        assert runs.sent_beside(path.name)[1:] == approved
        assert Compaction.objects.filter(server=served.url).count() == number
        undone(path)
        assert Undo.objects.filter(server=served.url).count() == number
        assert is_as(runs, before)
    assert runs.sent_beside(path.name)[1:] == whole


@pytest.mark.parametrize("writer", SERVED)
def test_the_server_itself_sends_the_approved_context_at_the_next_prompt(path, served, writer):
    targets = plan_of(path, writer, random.Random(3), 6)
    approved = approved_by(load_session(path), WRITERS[writer], targets)
    written(path, writer, targets)
    (request,) = served.prompt(path.name, "And now?", [ModelReply("ok")])
    assert request["messages"][1:-1] == approved


def test_with_the_password_of_the_server(redline, runs, path, monkeypatch):
    targets = plan_of(path, "delete", random.Random(5), 6)
    now = every_row(runs.database)
    with runs.served(LOGIN) as server, override_configuration(servers={"opencode": server.url}):
        for given in ({}, {PASSWORD_VARIABLE: LOGIN[PASSWORD_VARIABLE]}, {**LOGIN, PASSWORD_VARIABLE: "other"}):
            with monkeypatch.context() as patch:
                for name, value in given.items():
                    patch.setenv(name, value)
                with pytest.raises(RedlineError) as raised:
                    written(path, "delete", targets)
            assert raised.value.code == "server_password"
            assert LOGIN[PASSWORD_VARIABLE] not in raised.value.message
            assert every_row(runs.database) == now
        for name, value in LOGIN.items():
            monkeypatch.setenv(name, value)
        written(path, "delete", targets)
    assert every_row(runs.database) != now


def test_a_session_that_is_worked_on_is_left_alone(path, served, tmp_path):
    targets = plan_of(path, "delete", random.Random(5), 6)
    # The call lasts until the test is done with it.
    over = tmp_path / "over"
    replies = [ModelReply(calls=[shell("c9", f"until [ -e '{over}' ]; do sleep 0.1; done")]), ModelReply("ok")]
    with ThreadPoolExecutor(1) as pool:
        prompt = pool.submit(served.prompt, path.name, "go", replies)
        try:
            wait_until(lambda: served.runs.rows(RUNNING, "c9"), "the call does not run")
            refused = refusal(lambda: written(path, "delete", targets))
        finally:
            over.touch()
        prompt.result()
    # It is busy, unless a row was changed while it was read, which is seen first.
    assert refused.split()[-1] in ("session_busy", "session_changed", "session_rewritten")
    assert not Compaction.objects.exists()


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "ended"])
@pytest.mark.parametrize("writer", SERVED)
def test_what_a_killed_process_left_is_put_back(redline, runs, path, served, monkeypatch, writer, is_served):
    whole, before = sent_of(load_session(path)), every_row(runs.database)
    targets = plan_of(path, writer, random.Random(9), 12)
    connection.close()
    with monkeypatch.context() as patch:
        patch.setattr(row_steps, "_write", dying(row_steps._write, 2, is_over=True))
        killed(lambda: written(path, writer, targets))
    assert sent_of(load_session(path)) != whole
    if not is_served:
        served.end()
    with session_lock(redline.data, path, 1) as locked:
        assert locked.recovery.kind is RecoveryKind.NOT_MADE
    assert is_as(runs, before)
    assert is_served or every_row(runs.database) == before
    assert runs.sent_beside(path.name)[1:] == whole


@pytest.mark.parametrize("place", ["$.more", "$.state.more", "$.state.time.more"])
@pytest.mark.parametrize("writer", SERVED)
def test_a_part_that_the_server_would_write_without_some_fields_is_refused(runs, path, served, writer, place):
    targets = plan_of(path, writer, random.Random(5), 40)
    tools = runs.rows("SELECT id FROM part WHERE data ->> 'type' = 'tool'")
    result = next(row["id"] for row in tools if Target(row["id"]) in targets)
    runs.rows("UPDATE part SET data = json_set(data, ?, 1) WHERE id = ?", place, result)
    now = every_row(runs.database)
    assert refusal(lambda: written(path, writer, targets)).split()[1] == "not_kept"
    assert every_row(runs.database) == now
