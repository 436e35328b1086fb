"""A plan written through OpenCode's running server gives exactly the approved context, its undo the one before."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from django.db import connection

from compaction_app.commit.service import Approved, Confirmations, commit
from compaction_app.core.loop import Origin
from compaction_app.core.parameters import Parameters
from compaction_app.models import Compaction, Undo
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import UndoRequest, undo
from devtools.bench.written_plans import random_plan
from sessions_app.agents.opencode.server import PASSWORD_VARIABLE, USER_VARIABLE, is_same_row
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.targets import Target
from sessions_app.storage import served_rows
from sessions_app.storage.locks import RecoveryKind, session_lock
from sessions_app.storage.session_loader import load_session
from tests.installation import Installation, override_configuration
from tests.opencode_plans import GENERATION, WRITERS, approved_by, every_row, sent_of
from tests.sessions_app.storage.test_rows import killed
from tests.sessions_app.storage.test_served_rows import Boundary

from .installed import client_program
from .opencode_runs import OpencodeRuns, OpencodeServer
from .scripted_model import ModelReply, ScriptedModel
from .test_opencode import PLANS, VERSION, shell, worked

SERVED: Final = ("delete", "prune")
LOGIN: Final = {USER_VARIABLE: "someone", PASSWORD_VARIABLE: "not to be shown"}


@pytest.fixture
def runs(redline: Installation, tmp_path: Path, model: ScriptedModel) -> OpencodeRuns:
    return OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model)


@pytest.fixture
def path(runs: OpencodeRuns) -> Path:
    return worked(runs)


@pytest.fixture
def served(runs: OpencodeRuns, path: Path) -> Iterator[OpencodeServer]:
    with runs.served() as server, override_configuration(servers={"opencode": server.url}):
        yield server


def plan_of(path: Path, writer: str, chance: random.Random, wanted: int = 6) -> tuple[Target, ...]:
    plan = random_plan(load_session(path), GENERATION, WRITERS[writer], chance, wanted)
    assert plan is not None
    return plan.targets


def written(path: Path, writer: str, targets: tuple[Target, ...]) -> None:
    loaded = load_session(path)
    approved = Approved(
        loaded=loaded,
        leaf_id=loaded.leaf_id,
        parameters=Parameters(compression_ratio=1.0, preserve_recent=0, query="-"),
        targets=targets,
        planner="embedded",
        origins={target: Origin(0, "", "", by_repair=False) for target in targets},
        writer=writer,
    )
    commit(approved, Confirmations(live=True, below_target=True), datetime.now(UTC))


def undone(path: Path) -> None:
    undo(UndoRequest(load_session(path)), UndoConfirmations(live=True), datetime.now(UTC))


def is_as(runs: OpencodeRuns, before: dict[str, list[dict[str, object]]]) -> bool:
    now = every_row(runs.database)
    return all(
        len(now[table]) == len(before[table]) and all(map(is_same_row, now[table], before[table]))
        for table in before
    )


@pytest.mark.parametrize("writer", SERVED)
def test_each_plan_gives_the_approved_context_and_its_undo_the_one_before(
    runs: OpencodeRuns, path: Path, served: OpencodeServer, writer: str
) -> None:
    chance, before, equal = random.Random(21), every_row(runs.database), 0
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
        equal += 1
    assert equal == PLANS
    assert runs.sent_beside(path.name)[1:] == whole
    print(f"opencode {VERSION}: {equal}/{PLANS} plans by {writer} through the server")


@pytest.mark.parametrize("writer", SERVED)
def test_the_server_itself_sends_the_approved_context_at_the_next_prompt(
    path: Path, served: OpencodeServer, writer: str
) -> None:
    targets = plan_of(path, writer, random.Random(3))
    approved = approved_by(load_session(path), WRITERS[writer], targets)
    written(path, writer, targets)
    (request,) = served.prompt(path.name, "And now?", [ModelReply("ok")])
    assert request["messages"][1:-1] == approved


def test_with_the_password_of_the_server(
    runs: OpencodeRuns, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = plan_of(path, "delete", random.Random(5))
    now = every_row(runs.database)
    with runs.served(LOGIN) as server, override_configuration(servers={"opencode": server.url}):
        for given in (
            {},
            {PASSWORD_VARIABLE: LOGIN[PASSWORD_VARIABLE]},
            {**LOGIN, PASSWORD_VARIABLE: "other"},
        ):
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


def test_a_session_that_is_worked_on_is_left_alone(
    runs: OpencodeRuns, path: Path, served: OpencodeServer
) -> None:
    targets = plan_of(path, "delete", random.Random(5))
    prompt = threading.Thread(
        target=lambda: served.prompt(
            path.name, "go", [ModelReply(calls=[shell("c9", "sleep 5")]), ModelReply("ok")]
        )
    )
    prompt.start()
    while path.name not in served.call("GET", "/session/status"):
        assert prompt.is_alive()
    codes = set()
    while prompt.is_alive():
        with pytest.raises(RedlineError) as raised:
            written(path, "delete", targets)
        codes.add(raised.value.code)
        break
    prompt.join()
    assert codes <= {"session_busy", "session_changed"}


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "ended"])
@pytest.mark.parametrize("writer", SERVED)
def test_what_a_killed_process_left_is_put_back(
    redline: Installation,
    runs: OpencodeRuns,
    path: Path,
    served: OpencodeServer,
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
    is_served: bool,
) -> None:
    whole, before = sent_of(load_session(path)), every_row(runs.database)
    targets = plan_of(path, writer, random.Random(9), 12)
    connection.close()
    with monkeypatch.context() as patch:
        second = Boundary(served_rows, "_write", 2, after=True)
        patch.setattr(served_rows, second.name, second.dying())
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
def test_a_part_that_the_server_would_write_without_some_fields_is_refused(
    runs: OpencodeRuns, path: Path, served: OpencodeServer, writer: str, place: str
) -> None:
    targets = plan_of(path, writer, random.Random(5), 40)
    tools = runs.rows("SELECT id FROM part WHERE data ->> 'type' = 'tool'")
    result = next(row["id"] for row in tools if Target(row["id"]) in targets)
    runs.rows("UPDATE part SET data = json_set(data, ?, 1) WHERE id = ?", place, result)
    now = every_row(runs.database)
    with pytest.raises(RedlineError) as raised:
        written(path, writer, targets)
    assert raised.value.code == "not_kept"
    assert every_row(runs.database) == now
