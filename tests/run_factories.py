"""The rows of an LLM planner's run, written to a database as a worker writes them, but without a model or a worker."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.wait import WAIT_SECONDS

HOST: Final = "api.anthropic.com"
MODEL: Final = "anthropic/claude-sonnet-4-5"
TOKENS: Final = 380_218
PARAMETERS: Final = {"compression_ratio": 0.5, "preserve_recent": 2, "query": "Now the tests."}
THEN: Final = "2026-03-02 10:00:00"

INSERT: Final = "INSERT INTO compaction_app_runevent (run_id, seq, kind, at, data) VALUES (?, ?, ?, ?, ?)"

Piece = list[Any]
NewEvent = tuple[str, dict[str, Any]]


class RunFactory:
    """Writes events and state of one run to a database. While a server runs, it also needs `Server.keep_alive`."""

    def __init__(self, database: Path, run: int, planner: str = MODEL) -> None:
        self.database, self.run = database, run
        self.seq = self.calls = self.deleted = self.objects = 0
        self.usage: dict[str, Any] | None = None
        self._set(
            planner=planner,
            thinking="high",
            state="running",
            worker="nobody",
            started_at=THEN,
            parameters=json.dumps(PARAMETERS),
        )

    def add(self, kind: str, **data: Any) -> int:
        """Add one row; returns its number."""
        self.seq += 1
        now: dict[str, Any] = {"last_seq": self.seq}
        if kind == "asked":
            self._add_usage(requests=1, sent=data["characters"])
        elif kind == "answered":
            tokens = ("input", "output", "cacheRead", "cacheWrite", "cost", "estimated")
            self._add_usage(received=data["characters"], **{name: data[name] for name in tokens})
        elif kind == "called":
            self.calls += 1
            self.deleted += data["gain"]
            self.objects += 18 if data["gain"] else 0
            now["calls"] = self.calls
        if self.usage is not None:
            now["usage"] = json.dumps(self.usage)
        now["stats"] = json.dumps(self.stats)
        self._write([(self.run, self.seq, kind, THEN, json.dumps(data))], **now)
        return self.seq

    def add_all(self, events: Iterable[NewEvent]) -> None:
        for kind, data in events:
            self.add(kind, **data)

    def insert_all(self, events: Iterable[NewEvent]) -> None:
        """Add rows in one transaction."""
        rows = []
        for kind, data in events:
            self.seq += 1
            rows.append((self.run, self.seq, kind, THEN, json.dumps(data)))
        self._write(rows, last_seq=self.seq)

    def end(self, state: str, failure: str = "", message: str = "") -> None:
        """Add the last row, and set the state."""
        said = {"message": message} if message else {}
        self.add("ended", state=state, **said)
        self.set_state(state, failure)

    def set_state(self, state: str, failure: str = "") -> None:
        """Set only the state, as of a run whose worker is gone."""
        self._set(state=state, failure=failure, ended_at="2026-03-02 10:01:12")

    @property
    def stats(self) -> dict[str, Any]:
        return {
            "objectsDeleted": self.objects,
            "tokensBefore": TOKENS,
            "tokensAfter": TOKENS - self.deleted,
            "percentReduction": round(100 * self.deleted / TOKENS, 1),
        }

    def add_call(self, turn: int, index: int, tool: str, arguments: Any, **data: Any) -> None:
        """Add a call's row, with its effect on the plan."""
        before = self.stats["percentReduction"]
        after = round(100 * (self.deleted + data.get("gain", 0)) / TOKENS, 1)
        given = {"sentence": "Done.", "details": {}, "added": [], "gain": 0, **data}
        self.add(
            "called",
            call=self.calls + 1,
            tool=tool,
            arguments=arguments,
            ms=12,
            turn=turn,
            **{"index": index, "before": before, "percent": after, **given},
        )

    def _add_usage(self, **more: Any) -> None:
        names = ("requests", "sent", "received", "input", "output", "cacheRead", "cacheWrite", "cost")
        usage = self.usage or {"host": HOST, **dict.fromkeys(names, 0), "estimated": False}
        for name, value in more.items():
            usage[name] = value or usage[name] if name == "estimated" else usage[name] + (value or 0)
        self.usage = usage

    def _set(self, **values: Any) -> None:
        self._write([], **values)

    def _write(self, events: Iterable[tuple[object, ...]], **values: Any) -> None:
        """Add event rows and set columns of the run, in one transaction as a worker does."""
        names = ", ".join(f"{name} = ?" for name in values)
        with closing(self._open()) as database, database:
            database.executemany(INSERT, events)
            sql = f"UPDATE compaction_app_run SET {names} WHERE id = ?"  # noqa: S608  # the names are our own
            database.execute(sql, (*values.values(), self.run))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.database, timeout=WAIT_SECONDS)


def streamed_event(turn: int, *pieces: Piece) -> NewEvent:
    return "streamed", {"turn": turn, "pieces": list(pieces)}


def asked_event(turn: int, characters: int = 34_567) -> NewEvent:
    return "asked", {"turn": turn, "characters": characters, "dropped": 0}


def answered_event(turn: int, **more: Any) -> NewEvent:
    usual = {"calls": 1, "stop": "calls", "input": 12_040, "output": 412, "cacheRead": 0, "cacheWrite": 0}
    return "answered", {
        "turn": turn,
        "cost": 0.012,
        "estimated": False,
        "characters": 1_640,
        "ms": 4_200,
        **usual,
        **more,
    }


PREPARED: Final[NewEvent] = ("prepared", {"entries": 990, "tokens": TOKENS, "protected": 61})


def pieces_of(kind: list[Any], words: str, size: int) -> list[Piece]:
    """Words as streamed pieces of this many characters."""
    return [[*kind, words[start : start + size]] for start in range(0, len(words), size)]


def add_plan(factory: RunFactory, turns: int = 4) -> None:
    """Add a run of a model that thinks, searches, deletes, is refused once, and is nudged once."""
    factory.add_all([PREPARED])
    for turn in range(1, turns + 1):
        add_turn(factory, turn)
        if turn == 2:
            factory.add("trimmed", turn=3, results=12, characters=80_000)
    factory.add("nudged", text="The target is not reached: 41.2% of the tokens are deleted. Delete more.")


THOUGHT: Final = (
    "The largest entries are listings of the same directory and the output of the test suite, read again and again. "
    "What the last run printed is still in use; the four before it are not. I leave the error in tui-renderer.ts "
    "alone, because nobody has mended it yet, and look for the reads of main.ts that a later read replaced.\n\n"
)


def add_turn(factory: RunFactory, turn: int, *, thought: str = THOUGHT, answer: bool = True) -> None:
    """Add one turn, word by word: reasoning, a sentence, a search and a deletion with their results."""
    deletions = [{"kind": "entry", "entryId": f"{number:08x}"} for number in range(turn, turn + 9)]
    search = json.dumps({"pattern": "tui-renderer.ts", "target": "content_block"})
    delete = json.dumps({"deletions": deletions})
    factory.add_all([asked_event(turn, 34_567 + 4_000 * turn)])
    if turn == 2:
        factory.add("retried", turn=turn, attempt=1, seconds=2.0, why=f"{HOST} is overloaded (529).")
        factory.add_all([asked_event(turn, 34_567 + 4_000 * turn)])
    for piece in pieces_of(["thought"], thought, 90):
        factory.add_all([streamed_event(turn, piece)])
    factory.add_all(
        [
            streamed_event(turn, ["text", "I search for what replaced them "]),
            streamed_event(turn, ["text", "first."], ["call", 0, "context_search_transcript"]),
            *[streamed_event(turn, piece) for piece in pieces_of(["arguments", 0], search, 20)],
            streamed_event(turn, ["call", 1, "context_delete"]),
            *[streamed_event(turn, piece) for piece in pieces_of(["arguments", 1], delete, 60)],
        ]
    )
    if not answer:
        return
    factory.add_all([answered_event(turn, calls=2, cacheRead=8_000 * (turn > 1))])
    matches = [{"entryId": f"{number:08x}", "snippet": "read …/tui/tui-renderer.ts"} for number in range(4)]
    factory.add_call(
        *(turn, 0, "context_search_transcript", json.loads(search)),
        sentence="16 matches; the first 4 here.",
        details={"matches": matches},
    )
    if turn == 3:
        factory.add_call(
            *(turn, 1, "context_delete", {"deletions": deletions}),
            code="protected",
            message="Entry 00000004 is a tool result that ended in an error. Leave it out and send the other 8 again.",
            target={"kind": "entry", "entryId": "00000004"},
        )
    else:
        factory.add_call(
            *(turn, 1, "context_delete", {"deletions": deletions}),
            sentence="9 entries deleted, 9 calls went with them.",
            gain=41_108,
        )
