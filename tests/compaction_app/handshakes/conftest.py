"""A connected pi in a known root, and an agent that asks over the API as its bridge does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from compaction_app.models import Handshake
from redline.configuration import Configuration, RootSetting
from sessions_app.connections.connection_files import ConnectedAgent, keep_connection, new_secret
from sessions_app.index.roots import configured_roots
from sessions_app.storage.session_loader import load_session
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation
from tests.runs import finish_run


class AskingAgent:
    """An agent, as far as it talks to Redline."""

    def __init__(self, path: Path, agent: str = "pi", honours: str = "edits") -> None:
        self.path, self.agent, self.honours = path, agent, honours
        self.token = new_secret()
        made_at = datetime(2026, 1, 1, tzinfo=UTC)
        keep_connection(
            django_settings.REDLINE_DATA_DIR,
            ConnectedAgent(agent, agent, "", self.token, bridge=1, made_at=made_at),
        )
        self._client = Client(HTTP_HOST="127.0.0.1:8000")

    def question(self, **fields: object) -> dict[str, Any]:
        leaf = load_session(self.path).leaf_id
        usual = {"agent": self.agent, "session": str(self.path), "honours": self.honours, "leaf": leaf}
        return {**usual, **fields}

    def ask(self, **fields: object) -> dict[str, Any]:
        return self.post("/api/handshakes", **self.question(**fields))

    def planned(self, **fields: object) -> Handshake:
        """Ask, and let the planner finish."""
        handshake = Handshake.objects.get(pk=self.ask(**fields)["id"])
        assert handshake.run is not None
        finish_run(handshake.run)
        assert self.poll(handshake)["state"] == "waiting"
        handshake.refresh_from_db()
        return handshake

    def poll(self, handshake: Handshake) -> dict[str, Any]:
        return self._answer(self._client.get(self._address(handshake), headers=self._headers))

    def report(self, handshake: Handshake, outcome: str, **fields: object) -> dict[str, Any]:
        return self.post(self._address(handshake), outcome=outcome, **fields)

    def post(self, path: str, **fields: object) -> dict[str, Any]:
        body = json.dumps(fields)
        return self._answer(
            self._client.post(path, body, content_type="application/json", headers=self._headers)
        )

    def apply(self, answer: dict[str, Any]) -> str:
        """Append the edits as pi does; returns the new leaf."""
        leaf = load_session(self.path).leaf_id
        with self.path.open("a", encoding="utf-8") as file:
            for number, edit in enumerate(answer["edits"]):
                entry_id = f"e{number:07}"
                line = {"type": "context_edit", "id": entry_id, "parentId": leaf, "timestamp": TIME, **edit}
                file.write(json.dumps(line) + "\n")
                leaf = entry_id
        return leaf

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @staticmethod
    def _address(handshake: Handshake) -> str:
        return f"/api/handshakes/{handshake.pk}"

    @staticmethod
    def _answer(response: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(response.content)
        return {**found, "status": response.status_code}


TIME = "2026-03-01T10:00:00.000Z"


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
