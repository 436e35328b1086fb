"""What a person does in the real Redline while a real agent waits, and what became of it."""

import json
import random
import sqlite3
import subprocess
import sys
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sessions_app.sessionlog.entries import Target
from tests.browser.scenarios import approve_everything, decide, undecided_keys
from tests.server import Server
from tests.wait import WAIT_SECONDS

REDLINE: Final = Path(sys.executable).with_name("redline")
CONFIRMED: Final = ["live", "not_honoured", "below_target", "unopened", "names"]
WAITING_RUN: Final = "SELECT run_id FROM compaction_app_handshake WHERE state = 'waiting'"
LATEST: Final = "SELECT {} FROM compaction_app_compaction ORDER BY id DESC LIMIT 1"
LAST_STATE: Final = "SELECT state FROM compaction_app_handshake ORDER BY id DESC LIMIT 1"


def connect(server: Server, agent: str) -> None:
    """What a person does once."""
    arguments = [str(REDLINE), "connect", agent, "--yes", "--no-test"]
    subprocess.run(arguments, env=server.environment, check=True, stdin=subprocess.DEVNULL)


def rows(server: Server, query: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as database:
        return database.execute(query, values).fetchall()


def waiting_run(server: Server, asked: Future[Any] | None = None) -> str:
    """The address of the run whose review the client waits for; `asked` is its compaction, which must not end."""

    def look() -> str:
        assert asked is None or not asked.done(), asked.result()
        found = rows(server, WAITING_RUN)
        return f"/plans/{found[0][0]}/log" if found else ""

    return str(server.wait_for(look))


def approve(server: Server, run: str, writer: str = "", chance: random.Random | None = None) -> None:
    """Decide on all proposals of a run, and commit it with the writer that is proposed or another one.

    With a `chance`, some proposals are rejected; everything else is approved.
    """
    if chance is not None:
        keys = undecided_keys(server, run)
        for key in chance.sample(keys, min(len(keys) // 2, chance.randint(0, 2))):
            decide(server, run, reject=key)
    approve_everything(server, run)
    page = f"{run}/confirm?writer={writer}"
    shown = server.post(page, f"{run}/confirm", yes=CONFIRMED)
    assert shown.startswith("/inbox/agents"), server.text(page)


def applied_targets(server: Server) -> list[Target]:
    """What was approved last, as soon as it is written."""

    def look() -> bool:
        ended = rows(server, "SELECT state, message FROM compaction_app_handshake ORDER BY id DESC LIMIT 1")
        assert ended[0][0] in ("approved", "applied"), ended
        return bool(ended[0][0] == "applied")

    server.wait_for(look)
    ((origins,),) = rows(server, LATEST.format("origins"))
    return [Target(origin["entryId"], origin.get("blockIndex")) for origin in json.loads(origins)]
