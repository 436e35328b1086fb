"""A bridge, as far as Redline sees it: it asks a running server over HTTP, and applies edits as pi does."""

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sessions_app.server.connection_files import ConnectedAgent, new_secret, write_connection
from sessions_app.storage.session_loader import load_session
from tests.wait import wait_until

TIME: Final = "2026-03-01T10:00:00.000Z"


class AskingBridge:
    """The bridge of one connected agent."""

    def __init__(
        self, data: Path, base: str, path: Path, agent: str = "pi", honours: str = "edits", project: Path | None = None
    ) -> None:
        self.base, self.path, self.agent, self.honours = base, path, agent, honours
        self.token = new_secret()
        self.number = 0
        self.name, within = (agent, "") if project is None else (f"{agent}-{project.name}", str(project))
        made_at = datetime(2026, 1, 1, tzinfo=UTC)
        write_connection(data, ConnectedAgent(self.name, agent, base, self.token, 1, made_at, within))

    def ask(self, **fields: object) -> dict[str, Any]:
        """A question about the session as it is."""
        leaf = load_session(self.path).leaf_id
        usual = {"agent": self.agent, "session": str(self.path), "honours": self.honours, "leaf": leaf}
        answer = self.call("POST", "/api/handshakes", {**usual, **fields})
        self.number = answer.get("id", self.number)
        return answer

    def poll(self, number: int = 0) -> dict[str, Any]:
        """What is answered now to a question, by default the last one."""
        return self.call("GET", f"/api/handshakes/{number or self.number}")

    def answered(self) -> dict[str, Any]:
        """The answer, once there is one."""

        def look() -> dict[str, Any] | None:
            found = self.poll()
            return found if found["do"] != "wait" else None

        found: dict[str, Any] = wait_until(look)
        return found

    def report(self, outcome: str, number: int = 0, **fields: object) -> dict[str, Any]:
        path = f"/api/handshakes/{number or self.number}"
        return self.call("POST", path, {"outcome": outcome, **fields})

    def apply(self, answer: dict[str, Any]) -> str:
        """Append the edits; returns the new leaf."""
        leaf = load_session(self.path).leaf_id
        with self.path.open("a", encoding="utf-8") as file:
            for number, edit in enumerate(answer["edits"]):
                entry_id = f"e{number:07}"
                line = {"type": "context_edit", "id": entry_id, "parentId": leaf, "timestamp": TIME, **edit}
                file.write(json.dumps(line) + "\n")
                leaf = entry_id
        return leaf

    def call(self, method: str, path: str, fields: object = None) -> dict[str, Any]:
        """The document of an answer, with its status."""
        body = json.dumps(fields).encode() if fields is not None else None
        status, content = self.send(method, path, body, {"Authorization": f"Bearer {self.token}"})
        found: dict[str, Any] = json.loads(content)
        return {**found, "status": status}

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send a request; returns the status and the body of the answer."""
        request = urllib.request.Request(f"{self.base}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()
