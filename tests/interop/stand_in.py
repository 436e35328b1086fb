"""A stand-in for Redline in docs/handshake.md: it decides what a test decides, and keeps all that it was sent."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.standin_redline import Asked, Said, StandInRedline
from tests.wait import wait_until

TOKEN: Final = "a-token-of-the-stand-in"  # noqa: S105  it opens nothing
PATH: Final = "/api/handshakes"
WAITING: Final = "Redline waits for your review: http://127.0.0.1/handshakes/7"
WAIT: Final = {"do": "wait", "state": "waiting", "message": WAITING, "seconds": 600}
CONTINUE: Final = {"do": "continue", "state": "declined", "message": "Nothing was compacted."}
STOP: Final = {"do": "stop", "state": "expired", "message": "Nobody reviewed the plan in time."}
COMPACT: Final = {"do": "compact", "state": "declined", "message": "Declined. It compacts as usual."}
VERIFIED: Final = "Redline verified the plan."
UNREACHED: Final = "Redline was not reached. Compacting as usual."
LOST: Final = "Redline does not answer any more."

Answer = Mapping[str, Any]


class StandIn:
    """The server in a thread, and its connection file. It can be stopped and started again at the same port."""

    def __init__(self, connection_file: Path, agent: str = "pi") -> None:
        self.connection_file = connection_file
        self.answer: Answer = WAIT
        """The decision at present, for every question."""
        self.answer_to: Callable[[int], Answer] = lambda _polls: self.answer
        """The decision after so many polls."""
        self.verified: Answer = {"do": "continue", "state": "applied", "message": VERIFIED}
        """The answer to a report that the plan was applied."""
        self.refusal: tuple[int, str] | None = None
        """A status and a message with which every request is refused."""
        self.location = ""
        """Where every request is redirected to."""
        self.grace = 30.0
        self.poll = 0.02
        self.questions: list[dict[str, Any]] = []
        self.polls = 0
        self.reports: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self._agent = agent
        self._server: StandInRedline | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self.stop()

    def start(self, port: int | None = None) -> None:
        self._server = StandInRedline(self._port if port is None else port)
        self._server.decide = self._said
        self._server.__enter__()
        self._port = self._server.port
        self.write_connection(self._server.url)

    def stop(self) -> None:
        if self._server is not None:
            self._server.__exit__(None, None, None)
            self._server = None

    def disconnect(self) -> None:
        self.connection_file.unlink()

    def write_connection(self, url: str) -> None:
        fields = {"name": self._agent, "agent": self._agent, "project": "", "url": url, "token": TOKEN}
        self.connection_file.write_text(json.dumps({**fields, "bridge": 1}), encoding="utf-8")

    def decide(self, decision: Answer) -> None:
        """Decide at the first poll, so that the agent has waited."""
        self.answer_to = lambda polls: decision if polls else WAIT

    def next_question(self, number: int = 1) -> dict[str, Any]:
        """The question with this number; waits for it, and for a poll after it."""
        wait_until(lambda: len(self.questions) >= number and self.polls, "the bridge did not ask")
        return self.questions[number - 1]

    def report(self) -> dict[str, Any]:
        """The first report; waits for it."""
        wait_until(lambda: self.reports, "the bridge did not report")
        return self.reports[0]

    def _said(self, asked: Asked) -> Said:
        assert asked.token == TOKEN
        status, answer = self._respond(asked.path, asked.body)
        headers = {"content-type": "application/json"}
        if self.location:
            status, headers = 302, {**headers, "location": self.location}
        return Said(answer, status, headers)

    def _respond(self, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        self.paths.append(path)
        if self.refusal is not None:
            status, message = self.refusal
            return status, {"error": {"code": "refused", "message": message}}
        common = {"id": 7, "seconds": 0.0, "poll": self.poll, "grace": self.grace, "message": ""}
        if body is None:
            self.polls += 1
        elif path == PATH:
            self.questions.append(body)
            if body.get("test"):
                return 200, {**common, "do": "continue", "state": "tested"}
        else:
            self.reports.append(body)
            verified = self.verified if body["outcome"] == "applied" else {}
            return 200, {**common, "do": "continue", "state": body["outcome"], **verified}
        return 200, {**common, **self.answer_to(self.polls)}


Change = Callable[[StandIn], object]


def setting(**fields: object) -> Change:
    """Gives Redline these attributes."""
    return lambda redline: vars(redline).update(fields)


def connecting_to(url: str) -> Change:
    return lambda redline: redline.write_connection(url)


NOT_ON_THIS_COMPUTER: Final = (
    *("http://192.0.2.7:8000", "http://127.0.0.1.example:1", "http://localhost.example"),
    *("https://127.0.0.1:1", ""),
)


def edits_of(*edits: tuple[str, Any]) -> Answer:
    """An approved plan: the targets, each with the content that replaces it, or None."""
    listed = [
        {"targetId": target, "replacement": None if content is None else {"content": content}}
        for target, content in edits
    ]
    return {"do": "apply", "state": "approved", "edits": listed}
