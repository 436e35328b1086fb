"""A connected pi in a known root, and an agent that asks over the API as its bridge does."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client
from django.utils import timezone

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval
from compaction_app.handshakes import sweep
from compaction_app.handshakes.approval import ReviewedPlan, approve
from compaction_app.models import Handshake
from compaction_app.runs.reviews import approve_proposals
from redline.configuration import Configuration, RootSetting
from sessions_app.index.roots import configured_roots
from tests.asking_bridge import AskingBridge
from tests.budget import FACTOR
from tests.factories import message, session_bytes, user, working_session
from tests.files import append_as_agent, place
from tests.runs import finish_run

GIVEN = Confirmations(below_target=True)


def approved(handshake: Handshake, writer: str = "") -> Handshake:
    """The question, after a human has approved everything that was proposed."""
    approve_proposals(handshake.run, timezone.now())
    approve(handshake, reviewed_plan(handshake, writer))
    return handshake


def reviewed_plan(handshake: Handshake, writer: str = "") -> ReviewedPlan:
    """Everything that is approved now, with all confirmations."""
    return ReviewedPlan(approval(handshake.run, writer), GIVEN, timezone.now())


def state_of(handshake: Handshake) -> str:
    handshake.refresh_from_db()
    return handshake.state


class AskingAgent(AskingBridge):
    """An agent that asks the Redline of this process."""

    def __init__(self, path: Path, agent: str = "pi", honours: str = "edits", project: Path | None = None) -> None:
        super().__init__(django_settings.REDLINE_DATA_DIR, "", path, agent, honours, project)
        self._client = Client(HTTP_HOST="127.0.0.1:8000")

    def planned(self, **fields: object) -> Handshake:
        """Ask, and let the planner finish."""
        handshake = Handshake.objects.get(pk=self.ask(**fields)["id"])
        finish_run(handshake.run)
        assert self.poll(handshake.pk)["state"] == "waiting"
        handshake.refresh_from_db()
        return handshake

    def applied(self, handshake: Handshake) -> str:
        """Apply an approved plan and report it; returns the state of the question."""
        return str(self.report("applied", handshake.pk, leaf=self.apply(self.poll(handshake.pk)))["state"])

    def go_on(self, parent: str, entry_id: str = "later") -> None:
        append_as_agent(self.path, session_bytes([message(entry_id, parent, user("Go on."))]))

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        response = self._client.generic(method, path, body or b"", "application/json", headers=headers)
        return response.status_code, response.content


@pytest.fixture
def pi_root(tmp_path, settings, redline):
    directory = tmp_path / "pi"
    directory.mkdir()
    roots = [RootSetting(path=directory, agent="pi", reader="pi")]
    settings.REDLINE = Configuration().model_copy(update={"roots": roots})
    configured_roots()
    return directory


def asking(root: Path, recorded: Sequence[Any] = (), *, name: str = "session", honours: str = "edits") -> AskingAgent:
    """An agent with a session of these entries, or with a worked one."""
    path = place(root / f"{name}.jsonl", session_bytes(recorded or working_session()))
    return AskingAgent(path, honours=honours)


@pytest.fixture
def agent(pi_root):
    return asking(pi_root)


def remember(agent: AskingAgent) -> Callable[[], None]:
    """Returns what brings back the database, the files of Redline and the session of an agent, as they are now."""
    connection.close()
    data, path, kept = django_settings.REDLINE_DATA_DIR, agent.path, agent.path.parent.parent / "kept"
    shutil.copytree(data, kept)
    content, then = path.read_bytes(), path.stat().st_mtime_ns

    def rewind() -> None:
        connection.close()
        sweep._polls.clear()  # when this process last heard of the agent
        shutil.rmtree(data)
        shutil.copytree(kept, data)
        for other in set(path.parent.iterdir()) - {path}:
            other.unlink()
        path.write_bytes(content)
        os.utime(path, ns=(then, then))

    return rewind


def steps_to_kill() -> Iterator[int]:
    """Every third step, so that each kind of step is met; all of them in `make test-all`."""
    return count(1, 1 if FACTOR > 1 else 3)
