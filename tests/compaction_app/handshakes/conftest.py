"""A connected pi in a known root, and an agent that asks over the API as its bridge does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from compaction_app.models import Handshake
from redline.configuration import Configuration, RootSetting
from sessions_app.index.roots import configured_roots
from tests.asking_bridge import AskingBridge
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation
from tests.runs import finish_run


class AskingAgent(AskingBridge):
    """An agent that asks the Redline of this process."""

    def __init__(self, path: Path, agent: str = "pi", honours: str = "edits") -> None:
        super().__init__(django_settings.REDLINE_DATA_DIR, "", path, agent, honours)
        self._client = Client(HTTP_HOST="127.0.0.1:8000")

    def planned(self, **fields: object) -> Handshake:
        """Ask, and let the planner finish."""
        handshake = Handshake.objects.get(pk=self.ask(**fields)["id"])
        assert handshake.run is not None
        finish_run(handshake.run)
        assert self.poll(handshake.pk)["state"] == "waiting"
        handshake.refresh_from_db()
        return handshake

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        response = self._client.generic(method, path, body or b"", "application/json", headers=headers)
        return response.status_code, response.content


@pytest.fixture
def pi_root(tmp_path: Path, settings: Any, redline: Installation) -> Path:
    directory = tmp_path / "pi"
    directory.mkdir()
    roots = [RootSetting(path=directory, agent="pi", reader="pi")]
    settings.REDLINE = Configuration().model_copy(update={"roots": roots})
    configured_roots()
    return directory


@pytest.fixture
def agent(pi_root: Path) -> AskingAgent:
    return AskingAgent(place(pi_root / "session.jsonl", session_bytes(working_session())))
