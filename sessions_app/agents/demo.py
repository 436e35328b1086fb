"""A generated demo session in Atomic's format, always the same, for users without sessions.

It contains what real sessions contain: a task, calls with results that are read once and never again, an error, a
thought, a fork, a label, a damaged line; and it is large enough to be due for compaction. Once removed, it is not
created again. `SessionStory` builds such a session step by step.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

PROVIDER: Final = "deepseek"
MODEL: Final = "deepseek-chat"
INSTRUCTIONS: Final = 13_600
"""The tokens of the simulated agent's instructions and tools, which no entry contains."""


class StoryStep(NamedTuple):
    """A call and its result, as targets of a compaction. `characters` is their size."""

    entry_id: str | None
    block_index: int
    result_id: str | None
    characters: int


class SessionStory:
    """Builds the lines of a session, in order; each new entry follows the leaf."""

    def __init__(self, title: str, project: str, started: datetime) -> None:
        self.now = started
        self.leaf: str | None = None
        self._number = 0
        self._characters: dict[str | None, int] = {None: 0}
        """Characters of a branch up to an entry, from which its usage is computed."""
        header = {"type": "session", "version": 3, "id": "0d3e0000-0000-7000-8000-000000000001"}
        self._lines = [json.dumps({**header, "timestamp": self._time(), "cwd": project})]
        self._add("session_info", 0, name=title)

    def data(self) -> bytes:
        return "".join(f"{line}\n" for line in self._lines).encode()

    def user(self, words: str) -> None:
        self._say({"role": "user", "content": [{"type": "text", "text": words}]}, len(words), seconds=95)

    def say(self, words: str) -> None:
        """Add the assistant's last message of a turn."""
        self._assistant([{"type": "text", "text": words}], len(words), "stop")

    def step(
        self, words: str, tool: str, result: str, *, thought: str = "", error: bool = False, **arguments: str
    ) -> StoryStep:
        """Add a call, preceded by the assistant's text and thinking, and its result."""
        call_id = f"call_{self._number:04d}"
        blocks: list[dict[str, Any]] = [{"type": "text", "text": words}]
        if thought:
            blocks.insert(0, {"type": "thinking", "thinking": thought, "thinkingSignature": "reasoning_content"})
        blocks.append({"type": "toolCall", "id": call_id, "name": tool, "arguments": arguments})
        called = len(tool) + len(json.dumps(arguments))
        self._assistant(blocks, len(words) + len(thought) + called, "toolUse")
        calling = self.leaf
        message = {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": tool,
            "content": [{"type": "text", "text": result}],
            "isError": error,
        }
        self._say(message, len(result), seconds=4)
        return StoryStep(calling, len(blocks) - 1, self.leaf, called + len(result))

    def edit(self, words: str, path: str, old: str, new: str, result: str = "Replaced 1 text in {}.") -> None:
        """A call that replaces a text in a file; the result names it."""
        error = not result.startswith("Replaced")
        self.step(words, "edit", result.format(path), error=error, path=path, oldText=old, newText=new)

    def write(self, words: str, path: str, content: str, size: int) -> None:
        """A call that writes a file; the result says how long it is."""
        self.step(words, "write", f"Wrote {size} characters to {path}.", path=path, content=content)

    def compact(self, step: StoryStep) -> None:
        """Add the agent's own compaction, which deletes a call and its result."""
        before = self._characters[self.leaf]
        after = before - step.characters
        self._add(
            "context_compaction",
            -step.characters,
            promptVersion=1,
            deletedTargets=[
                {"kind": "entry", "entryId": step.result_id},
                {"kind": "content_block", "entryId": step.entry_id, "blockIndex": step.block_index},
            ],
            protectedEntryIds=[],
            stats={
                "tokensBefore": before // 4,
                "tokensAfter": after // 4,
                "percentReduction": round(100 * step.characters / before, 1),
            },
        )

    def label(self, name: str) -> None:
        self._add("label", 0, targetId=self.leaf, label=name)

    def damage(self) -> None:
        """Add a line that was cut off by a crash."""
        line = json.dumps({"type": "message", "id": self._id(), "parentId": self.leaf, "timestamp": self._time()})
        self._lines.append(line[:-20])

    def _assistant(self, blocks: list[dict[str, Any]], characters: int, stop: str) -> None:
        before = INSTRUCTIONS + self._characters[self.leaf] // 4
        usage = {
            "input": before % 1_024,
            "output": characters // 4,
            "cacheRead": before - before % 1_024,
            "cacheWrite": 0,
            "totalTokens": before + characters // 4,
        }
        message = {
            "role": "assistant",
            "content": blocks,
            "provider": PROVIDER,
            "model": MODEL,
            "usage": usage,
            "stopReason": stop,
        }
        self._say(message, characters, seconds=11)

    def _say(self, message: dict[str, Any], characters: int, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self._add("message", characters, message={**message, "timestamp": int(self.now.timestamp() * 1000)})

    def _add(self, kind: str, characters: int, **fields: Any) -> None:
        entry_id = self._id()
        entry = {"type": kind, "id": entry_id, "parentId": self.leaf, "timestamp": self._time(), **fields}
        self._characters[entry_id] = self._characters[self.leaf] + characters
        self._lines.append(json.dumps(entry, ensure_ascii=False))
        self.leaf = entry_id

    def _id(self) -> str:
        self._number += 1
        return f"{self._number * 2_654_435_761 % 2**32:08x}"

    def _time(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%S.000Z")


TITLE: Final = "Demo: sailings that cross midnight"
PROJECT: Final = "/home/demo/harbour"
STARTED: Final = datetime(2026, 1, 12, 9, 14, tzinfo=UTC)
_HARBOURS: Final = "Kalvik Storeby Nesodden Halmvik Tornby Askholm Brekke Sandoy Fjellvik Ronne Grimsted Ulvoy".split()
_THINGS: Final = "sailing quay deck route season holiday fare vessel berth tide platform connection".split()
_VERBS: Final = "read check merge sort print find load store count compare split join".split()


def demo_session() -> tuple[bytes, datetime]:
    """The bytes of the demo, and the time of its last entry."""
    story = SessionStory(TITLE, PROJECT, STARTED)
    first_tests = _find_out(story)
    _mend(story, first_tests)
    _arrivals(story)
    return story.data(), story.now


# ---- the story -----------------------------------------------------------------------------------------------


def _find_out(story: SessionStory) -> StoryStep:
    story.user(
        "Ferries that leave before midnight and arrive after it are missing from the timetable page. Find out "
        "why, mend it, and add a test. Leave the feed format as it is: the harbours depend on it."
    )
    story.step("I look at how the feed is read.", "read", source("importer", 92), path="harbour/importer.py")
    story.step("Times come from here.", "read", source("clock", 74), path="harbour/clock.py")
    story.step("Who uses departures?", "bash", matches("departure", 310), command="rg -n departure harbour tests")
    story.step("The feed itself.", "read", feed(880), path="data/feed-2026-01.csv")
    story.step("What the format promises.", "read", prose("feed", 86), path="docs/feed-format.md")
    story.label("the feed, before anything was changed")
    return story.step(
        "The tests before any change.",
        "bash",
        test_log(214, failing=3),
        command="pytest -v",
        thought=(
            "Three tests fail, all with an arrival after midnight. clock.duration() subtracts minutes of the day, so "
            "it is negative there, and importer.accept() drops what is negative."
        ),
    )


def _mend(story: SessionStory, first_tests: StoryStep) -> None:
    before = story.leaf
    story.edit(
        "A first try: let negative durations pass.", "harbour/importer.py", "if minutes < 0:", "if minutes < -1440:"
    )
    story.step("Do the tests pass now?", "bash", test_log(214, failing=9), command="pytest -v")
    # That was the wrong approach: the agent returns to the earlier entry and continues from there.
    story.leaf = before
    story.step(
        "The mistake is in the clock, not in the importer. I go back.",
        "read",
        source("clock", 74),
        path="harbour/clock.py",
    )
    story.edit(
        "A duration is never negative.",
        "harbour/clock.py",
        "return end - start",
        "return (end - start) % 1440",
        "Could not find the exact text in {}. The old text must match exactly, including white space.",
    )
    story.step(
        "The function as it is written.",
        "bash",
        "41:def duration(start: int, end: int) -> int:\n42:    "
        '"""Minutes between two times of the day."""\n43:    return end-start\n',
        command="rg -n -A2 'def duration' harbour/clock.py",
    )
    story.edit("With the text as it is.", "harbour/clock.py", "    return end-start", "    return (end - start) % 1440")
    story.damage()
    story.step("Again.", "bash", test_log(214, failing=0), command="pytest -v")
    story.write("A test for it.", "tests/test_midnight.py", source("midnight", 2), 812)
    story.step("All of them.", "bash", test_log(216, failing=0), command="pytest -v")
    story.say(
        "Sailings across midnight are kept now: clock.duration() counts modulo a day. tests/test_midnight.py "
        "tests it. The feed format has not changed."
    )
    # The tests have passed since. The agent itself compacted here: only Atomic 0.8 writes such a line.
    story.compact(first_tests)


def _arrivals(story: SessionStory) -> None:
    story.user("Good. Now the arrivals board: it lists those sailings under the wrong day. Mend that too.")
    story.step("The board.", "read", source("board", 88), path="harbour/board.py")
    story.step("Its page.", "read", prose("board", 80), path="docs/boards.md")
    story.step(
        "What a day is, across the code.",
        "bash",
        matches("service_day", 280),
        command="rg -n service_day harbour tests",
    )
    story.step(
        "The importer once more: does it keep the day?", "read", source("importer", 92), path="harbour/importer.py"
    )
    story.step(
        "One day of the feed.",
        "bash",
        feed(640),
        command="grep 2026-01-11 data/feed-2026-01.csv",
        thought=(
            "The board groups by the day of departure. An arrival belongs to the day on which it arrives: the service "
            "day, plus one where the arrival is earlier in the day than the departure."
        ),
    )
    story.edit("The day of an arrival.", "harbour/board.py", "day = sailing.service_day", "day = arrival_day(sailing)")
    story.edit(
        "And the function.",
        "harbour/clock.py",
        "def duration(",
        "def arrival_day(sailing: Sailing) -> date:\n    …\n\n\ndef duration(",
    )
    story.step("The tests.", "bash", test_log(216, failing=0), command="pytest -v")
    story.write("A test for the board.", "tests/test_board_days.py", source("board_days", 2), 644)
    story.step("All of them.", "bash", test_log(219, failing=0), command="pytest -v")
    story.step("How it looks on the page.", "bash", matches("arrival", 250), command="python -m harbour board --plain")
    story.say(
        "The board lists an arrival under the day on which it arrives. Two files were changed, harbour/board.py "
        "and harbour/clock.py, and tests/test_board_days.py is new."
    )
    story.user("Write the changelog entry for both.")
    story.say(
        "Under Fixed: sailings that cross midnight are no longer dropped; the arrivals board lists them under "
        "the day on which they arrive."
    )


# ---- the texts of its tools ----------------------------------------------------------------------------------


def _each(words: list[str], number: int) -> str:
    return words[number * 7 % len(words)]


def source(module: str, functions: int) -> str:
    """The source of a Python module with this number of functions."""
    parts = [f'"""The {module} of the timetable."""\n\nfrom __future__ import annotations\n']
    for number in range(functions):
        verb, thing, other = _each(_VERBS, number), _each(_THINGS, number), _each(_THINGS, number + 5)
        name = f"{verb}_{thing}_{module}_{number}"
        parts.append(
            f"\ndef {name}({thing}s: list[{thing.title()}], limit: int = {number * 13 % 90 + 10}) -> int:\n"
            f'    """{verb.title()} what each {thing} says of its {other}, for the {module}."""\n'
            f"    found = 0\n    for {thing} in {thing}s[:limit]:\n"
            f"        if {thing}.{other} is None or {thing}.closed:\n            continue\n"
            f"        found += {thing}.{other}.minutes % {number * 37 % 1440 + 1}\n"
            f"    return found if found < 1440 else 1440\n"
        )
    return "\n".join(parts)


def matches(word: str, lines: int) -> str:
    """Search results with this number of lines."""
    return "\n".join(
        f"harbour/{_each(_THINGS, number)}.py:{number * 11 % 700 + 1}:    {_each(_VERBS, number)}_{word}"
        f"({_each(_THINGS, number + 3)}.{word}, harbour={_each(_HARBOURS, number)!r})"
        for number in range(lines)
    )


def feed(rows: int) -> str:
    """A ferry timetable as CSV, with this number of rows."""
    return "\n".join(["service_day,route,from,to,departure,arrival,vessel", *map(_sailing, range(rows))])


def _sailing(number: int) -> str:
    leaves = number * 53 % 1440
    arrives = (leaves + 35 + number % 50) % 1440
    return (
        f"2026-01-{number % 28 + 1:02d},{number % 17 + 1},{_each(_HARBOURS, number)},{_each(_HARBOURS, number + 2)},"
        f"{leaves // 60:02d}:{leaves % 60:02d},{arrives // 60:02d}:{arrives % 60:02d},MF {_each(_HARBOURS, number + 5)}"
    )


def prose(subject: str, paragraphs: int) -> str:
    """A document with this number of paragraphs."""
    return "\n\n".join(_paragraph(subject, number) for number in range(paragraphs))


def _paragraph(subject: str, number: int) -> str:
    thing, other = _each(_THINGS, number), _each(_THINGS, number + 4)
    return (
        f"## {number + 1}. {thing.title()} and {other}\n\nA {subject} names the {thing} of every sailing from "
        f"{_each(_HARBOURS, number)}. Where the {other} is not known the field is empty, and whoever reads it "
        f"decides by the season. Times are local to {_each(_HARBOURS, number + 3)}, with two digits for the hour, "
        "and never carry a zone."
    )


def test_log(tests: int, *, failing: int) -> str:
    """The output of pytest."""
    lines = [f"collected {tests} items", ""]
    failed = [number * tests // (failing + 1) for number in range(1, failing + 1)]
    for number in range(tests):
        state = "FAILED" if number in failed else "PASSED"
        lines.append(
            f"tests/test_{_each(_THINGS, number)}.py::test_{_each(_VERBS, number)}_{_each(_THINGS, number + 1)}"
            f"[{_each(_HARBOURS, number)}] {state} [{100 * (number + 1) // tests:3d}%]"
        )
    for number in failed:
        lines += ["", f"____ test_{_each(_VERBS, number)}_{_each(_THINGS, number + 1)} ____"]
        lines.append(f"E   AssertionError: {_each(_HARBOURS, number)} 23:{number % 60:02d} is not in the timetable")
    lines += ["", f"==== {failing} failed, {tests - failing} passed in 3.1s ===="]
    return "\n".join(lines)
