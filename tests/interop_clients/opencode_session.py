"""A session in OpenCode's running server, as its interface drives it."""

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.wait import wait_until

from .opencode_runs import OpencodeServer
from .scripted_model import Call, ModelReply, ScriptedModel

WINDOW: Final = 40_000
FULL: Final = 33_000
"""Tokens at which it compacts: the window, less 8,000 for the reply."""


def shell(call_id: str, command: str) -> Call:
    return Call(call_id, "bash", {"command": command, "description": "a test"})


def called(call: str, tokens: int = 100) -> ModelReply:
    """A reply that calls a tool, so that another request of the same run follows."""
    return ModelReply(f"text {call}", calls=[shell(call, f"echo output of {call}")], tokens=tokens)


class Notices(threading.Thread):
    """What OpenCode's interface is told to show, from the server's stream of events."""

    def __init__(self, server: OpencodeServer) -> None:
        super().__init__(daemon=True)
        self.shown: list[str] = []
        self._stream = urllib.request.urlopen(f"{server.url}/event")
        self.start()

    def run(self) -> None:
        for line in self._stream:
            event = json.loads(line[5:]) if line.startswith(b"data:") else {}
            if event.get("type") == "tui.toast.show":
                self.shown.append(event["properties"]["message"])


class OpenCodeSession:
    """A session of two turns, each with a call of a tool."""

    def __init__(self, server: OpencodeServer, model: ScriptedModel) -> None:
        self.server, self.model = server, model
        self.notices = Notices(server)
        self.session: str = server.call("POST", "/session", {"title": "asking"})["id"]
        for number in (1, 2):
            self.prompt(f"prompt {number}", called(f"c{number}"), ModelReply(f"reply {number}"))
        self.model.conversation.clear()

    def begin(self, text: str, *replies: ModelReply) -> None:
        """Begin a turn."""
        self.model.replies.extend(replies)
        parts = [{"type": "text", "text": text}]
        self.server.call("POST", f"/session/{self.session}/prompt_async", {"parts": parts})

    def prompt(self, text: str, *replies: ModelReply) -> None:
        """A turn that is one run."""
        known = len(self.model.conversation)
        self.begin(text, *replies)
        self.wait_for_requests(known + max(1, len(replies)))

    def compact(self) -> None:
        """A compaction that the person asks for; returns once its run has ended."""
        model = {"providerID": "scripted", "modelID": "model"}
        self.server.call("POST", f"/session/{self.session}/summarize", model)

    def abort(self) -> None:
        """What Esc does."""
        self.server.call("POST", f"/session/{self.session}/abort")

    def wait_for_requests(self, number: int) -> None:
        """Wait until so many requests were sent and the run has ended: they are all."""
        wait_until(lambda: len(self.model.conversation) >= number, "no such request was sent")
        wait_until(lambda: self.session not in self.server.call("GET", "/session/status"), "it is busy")
        assert len(self.model.conversation) == number

    @property
    def path(self) -> Path:
        return self.server.runs.database / self.session

    def parts(self) -> list[tuple[str, dict[str, Any]]]:
        """The ids of the parts, and their data, in order."""
        query = "SELECT id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
        return [(row["id"], json.loads(row["data"])) for row in self.server.runs.rows(query, self.session)]

    def messages(self) -> list[str]:
        query = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
        return [row["id"] for row in self.server.runs.rows(query, self.session)]

    def rows(self) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
        return self.messages(), self.parts()

    def part(self, call: str, data: object = None) -> dict[str, Any]:
        """A change of the part of a call, as a plan has it."""
        query = "SELECT id, message_id FROM part WHERE session_id = ? AND data ->> 'callID' = ?"
        (row,) = self.server.runs.rows(query, self.session, call)
        return {"message": row["message_id"], "part": row["id"], "data": data}

    @property
    def is_compacted(self) -> bool:
        return any(data["type"] == "compaction" for _, data in self.parts())
