"""The writer: one line that the agent honours, with exactly what was approved."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.base import WriteFacts
from sessions_app.sessionlog.deletion import Deletion, Stats
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, branch_of, call, chain, result, session_bytes, text, thinking, user

(WRITER,) = ATOMIC.writers
MESSAGES = (user("go"), assistant(text("a"), call("c1")), result("c1"), user("on"))
FACTS = WriteFacts("e9", datetime(2026, 1, 5, 10, 0, tzinfo=UTC), Path("/s/a.jsonl.bak"))
TARGETS = (Target("e3"), Target("e2", 1))
STATS = Stats(6, 4, 2, 100, 50, 50.0)


def written() -> bytes:
    (line,) = WRITER.write(branch_of(chain(*MESSAGES)), Deletion(TARGETS, ("e1", "e4"), STATS), FACTS).lines
    return line


def test_the_line_follows_the_leaf_and_names_what_was_approved() -> None:
    assert json.loads(written()) == {
        "type": "context_compaction",
        "id": "e9",
        "parentId": "e4",
        "timestamp": "2026-01-05T10:00:00.000Z",
        "promptVersion": 1,
        "deletedTargets": [
            {"kind": "entry", "entryId": "e3"},
            {"kind": "content_block", "entryId": "e2", "blockIndex": 1},
        ],
        "protectedEntryIds": ["e1", "e4"],
        "stats": {
            "objectsBefore": 6,
            "objectsAfter": 4,
            "objectsDeleted": 2,
            "tokensBefore": 100,
            "tokensAfter": 50,
            "percentReduction": 50,
        },
        "backupPath": "/s/a.jsonl.bak",
    }


def test_the_agent_reads_the_approved_context_from_the_line() -> None:
    context = ATOMIC.readers[0].rebuild(branch_of([*chain(*MESSAGES), written()]))
    assert [one.entry.id for one in context.messages] == ["e1", "e2", "e4"]
    assert [block.index for block in context.messages[1].blocks or ()] == [0]


def test_targets_that_the_agent_will_not_apply_are_known_before_the_write() -> None:
    branch = branch_of(
        chain(user("go"), assistant(thinking("hm"), text("I read it"), call("c1")), result("c1"))
    )
    targets = (Target("e2", 1), Target("e2", 2), Target("e3"))
    assert WRITER.unapplied(branch, targets) == targets


def test_targets_that_the_agent_applies_are_not_among_them() -> None:
    recorded = chain(
        user("go"), assistant(thinking("hm"), text("a")), assistant(text("b"), text("c")), user("on")
    )
    assert WRITER.unapplied(branch_of(recorded), [Target("e2", 0), Target("e3", 1)]) == ()


def test_written_entries_are_found_among_damaged_lines() -> None:
    lines = [*session_bytes(chain(*MESSAGES)).splitlines(), b"context_compaction {", written(), b""]
    assert list(WRITER.written_ids(lines)) == ["e9"]
