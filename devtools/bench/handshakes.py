"""How long users wait for Redline if an agent requests a review first: a server on a real socket, and a bridge that
polls it.

The bridge speaks the protocol of docs/handshake.md over HTTP, and polls at the interval that each answer states, from
the request to the plan. The times are therefore those of a user: they include the wait for the next poll. The first
request starts a worker process, like every request after a minute without planning; the others find it running.
"""

import hashlib
import itertools
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

from sessions_app.server.connection_files import PATH, ConnectedAgent, new_secret, write_connection

from .figures import Figure
from .pages import WAIT_SECONDS, BenchBrowser, BenchServer, address_of
from .scale import APPENDED, MEGABYTE, append_entries, run_command
from .sessions import WORDS, generate, write_session

QUESTIONS: Final = 10
ENTRIES, ENTRY_BYTES = 1_000, 3_300
"""The generated entries. The results of edits are shorter, so that the sessions have about 2.4 MB."""
COLD_ENTRIES, COLD_BYTES = 42_000, 100_000_000
SEED: Final = 6
FILES: Final = 40
"""The number of files that are read and edited in a session."""
LINE_WORDS: Final = 9
WORK: Final = ("read", "test", "edit", "search", "read", "edit", "test")
"""The kinds of calls, in turn: about as frequent as in real sessions."""
_HIDDEN: Final = re.compile(r'<input type="hidden" name="(seen|mark|plan|writer)" value="([^"]*)"')
_CONFIRMATION: Final = re.compile(r'name="yes"\s+value="([^"]+)"')


class BenchBridge:
    """The bridge of a connected pi, which waits in one session at a time."""

    def __init__(self, data: Path, server: BenchBrowser) -> None:
        self._address = server.loopback
        self._token = new_secret()
        self._place = ""
        url = f"http://{self._address[0]}:{self._address[1]}"
        write_connection(data, ConnectedAgent("pi", "pi", url, self._token, bridge=1, made_at=datetime.now(tz=UTC)))

    def ask(self, path: Path, ids: Iterable[str]) -> dict[str, Any]:
        """The answer to a review request for a session whose branch has these entries."""
        known = list(ids)
        together = "".join(f"{one}\n" for one in known).encode()
        question = {
            "agent": "pi",
            "version": "0.87.0",
            "bridge": 1,
            "session": str(path),
            "reason": "manual",
            "honours": "edits",
            "leaf": known[-1],
            "branch": {"entries": len(known), "sha256": hashlib.sha256(together).hexdigest()},
        }
        answer = self._send("POST", "", question)
        self._place = f"/{answer['id']}"
        return answer

    def poll_until(self, is_met: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], float]:
        """The first answer to a poll that meets a condition, and the moment at which it arrived.

        Raises RuntimeError if an answer requests another action, or if the wait is too long.
        """
        seconds, deadline = 0.5, time.monotonic() + WAIT_SECONDS
        while True:
            time.sleep(seconds)
            answer = self._send("GET", self._place)
            moment = time.perf_counter()
            if is_met(answer):
                return answer, moment
            if answer["do"] != "wait" or time.monotonic() > deadline:
                raise RuntimeError(f"the agent waits in vain: {answer['message']}")
            seconds = answer["poll"]

    def apply(self, path: Path, leaf: str, edits: Iterable[dict[str, Any]]) -> None:
        """Append the edits of a plan, as pi does."""
        with path.open("a", encoding="utf-8") as file:
            for number, edit in enumerate(edits):
                parent, leaf = leaf, f"e{number:07}"
                entry = {
                    "type": "context_edit",
                    "id": leaf,
                    "parentId": parent,
                    "timestamp": "2026-03-01",
                    **edit,
                }
                file.write(json.dumps(entry) + "\n")

    def report(self, outcome: str) -> dict[str, Any]:
        return self._send("POST", self._place, {"outcome": outcome})

    def _send(self, method: str, path: str, fields: object = None) -> dict[str, Any]:
        body = None if fields is None else json.dumps(fields)
        with closing(HTTPConnection(*self._address, timeout=WAIT_SECONDS)) as server:
            server.request(method, f"{PATH}{path}", body, {"Authorization": f"Bearer {self._token}"})
            response = server.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        if response.status >= 400:
            raise RuntimeError(f"{method} {PATH}{path} was answered with {response.status}: {answer}")
        return answer


class Waits(NamedTuple):
    """The waiting times of one compaction in seconds, and the number of edits that the agent made."""

    proposals: float
    apply: float
    report: float
    edits: int


def handshake() -> Iterator[Figure]:
    """QUESTIONS compactions from the review request to the applied plan, and requests for a session of 100 MB."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        root, data = Path(name) / "sessions", Path(name) / "data"
        root.mkdir()
        paths = [root / f"asked-{number}.jsonl" for number in range(QUESTIONS)]
        sizes = [write_session(path, worked_session(ENTRIES, seed)) for seed, path in enumerate(paths)]
        cold = Path(name) / "cold.jsonl"
        mean = COLD_BYTES // COLD_ENTRIES
        cold_size = write_session(cold, generate(entries=COLD_ENTRIES, entry_bytes=mean, seed=SEED))
        run_command(data, "index", str(root))
        # Their texts are indexed, too: the server does not do that meanwhile.
        run_command(data, "search", "parser", "--limit", "1")
        with BenchServer(data, [root], agent="pi", reader="pi") as server:
            for path in paths:
                address_of(server, path.stem)
            bridge = BenchBridge(data, server.browser)
            yield Figure("handshake_session", round(statistics.median(sizes) / MEGABYTE, 1), "MB", None)
            waits = [_compaction(server.browser, bridge, path) for path in paths]
            yield Figure("handshake_proposals_first", round(waits[0].proposals, 2), "s", None)
            yield from _figures("handshake_proposals", [one.proposals for one in waits], 2)
            yield Figure("handshake_edits", statistics.median(one.edits for one in waits), "edits", None)
            yield from _figures("handshake_apply", [one.apply for one in waits], 3)
            yield from _figures("handshake_report", [one.report for one in waits], None)
            yield Figure("handshake_cold_session", round(cold_size / MEGABYTE, 1), "MB", None)
            yield from _large(bridge, cold, root / cold.name)


def _compaction(browser: BenchBrowser, bridge: BenchBridge, path: Path) -> Waits:
    """An agent asks, everything is approved in the review, and the agent applies it."""
    ids = _ids(ENTRIES)
    asked_at = time.perf_counter()
    bridge.ask(path, ids)
    waiting, _ = bridge.poll_until(_is_waiting)
    run = "/plans/" + re.findall(r"/plans/(\d+)", waiting["review"])[0]
    if "data-key" not in browser.get(run):
        raise RuntimeError(f"{run} shows no proposals")
    shown_at = time.perf_counter()
    with ThreadPoolExecutor(1) as agent:
        applied = agent.submit(bridge.poll_until, lambda answer: bool(answer["do"] == "apply"))
        undecided = browser.get(f"{run}/confirm?undecided=1")
        browser.post(undecided, f"{run}/approve-rest", dict(_HIDDEN.findall(undecided)))
        look = browser.get(f"{run}/confirm")
        confirmations = {"yes": _CONFIRMATION.findall(look)}
        approved_at = time.perf_counter()
        _, result = browser.post(look, f"{run}/confirm", {**dict(_HIDDEN.findall(look)), **confirmations})
        if not result:
            raise RuntimeError(f"{run} was not approved")
        plan, given_at = applied.result()
    bridge.apply(path, ids[-1], plan["edits"])
    reported_at = time.perf_counter()
    answer = bridge.report("applied")
    answered_at = time.perf_counter()
    if answer["state"] != "applied":
        raise RuntimeError(f"{run} was not applied: {answer['message']}")
    return Waits(shown_at - asked_at, given_at - approved_at, answered_at - reported_at, len(plan["edits"]))


def _large(bridge: BenchBridge, made: Path, path: Path) -> Iterator[Figure]:
    """A review request for a session that has just appeared, and one after it has grown."""
    ids = _ids(COLD_ENTRIES)
    made.rename(path)
    for name in ("cold", "warm"):
        asked_at = time.perf_counter()
        bridge.ask(path, ids)
        yield Figure(f"handshake_{name}_100mb", round(time.perf_counter() - asked_at, 2), "s", None)
        _, planned_at = bridge.poll_until(_is_waiting)
        yield Figure(f"handshake_{name}_100mb_planned", round(planned_at - asked_at, 2), "s", None)
        bridge.report("withdrawn")
        append_entries(path, len(ids))
        ids = _ids(len(ids) + APPENDED)


def _is_waiting(answer: dict[str, Any]) -> bool:
    return bool(answer["state"] == "waiting")


def _ids(entries: int) -> list[str]:
    """The ids of a generated session with that many entries."""
    return [f"{number:08x}" for number in range(1, entries + 1)]


def worked_session(entries: int, seed: int) -> Iterator[dict[str, Any]]:
    """A pi session: files are read, edited and read again, and a command prints the same until a file is edited."""
    chance = random.Random(seed)  # noqa: S311  # a generator of test data
    files: dict[str, list[str]] = {}
    printed, done = "", ""
    work = itertools.cycle(WORK)
    for entry in generate(entries=entries, entry_bytes=ENTRY_BYTES, seed=seed):
        message = entry.get("message", {})
        if message.get("role") == "assistant":
            call, name = message["content"][1], next(work)
            path = f"src/{chance.choice(WORDS)}_{chance.randrange(FILES // 8)}.py"
            if name == "edit" and files:
                path = chance.choice(list(files))
                number = chance.randrange(len(files[path]))
                old = files[path][number]
                files[path][number] = f"{old}  # {chance.choice(WORDS)}_{entry['id']}"
                call |= {
                    "name": name,
                    "arguments": {"path": path, "oldText": old, "newText": files[path][number]},
                }
                done = f"Successfully replaced text in {path}."
            elif name == "test":
                call |= {"name": "bash", "arguments": {"command": "make test"}}
            elif name == "search":
                call |= {"name": "bash", "arguments": {"command": f"rg -n {chance.choice(WORDS)} src"}}
            else:
                name = "read"
                call |= {"arguments": {"path": path}}
        elif message.get("role") == "toolResult":
            lines = _lines(message["content"][0]["text"])
            text = "\n".join(lines)
            if name == "edit":
                text = done
            elif name == "test":
                text = printed = text if chance.random() < 0.3 else printed or text
            elif name == "read":
                text = "\n".join(files.setdefault(path, lines))
            message |= {"toolName": call["name"], "content": [{"type": "text", "text": text}]}
        yield entry


def _lines(text: str) -> list[str]:
    words = text.split()
    return [
        f"{number}: {' '.join(words[start : start + LINE_WORDS])}"
        for number, start in enumerate(range(0, len(words), LINE_WORDS))
    ]


def _figures(name: str, seconds: list[float], slowest: float | None) -> Iterator[Figure]:
    yield Figure(f"{name}_median", round(statistics.median(seconds), 2), "s", None)
    yield Figure(f"{name}_slowest", round(max(seconds), 2), "s", slowest)
