"""The writer: one line that the agent honours, with exactly what was approved."""

import json

from sessions_app.agents.atomic.reader import AtomicReader
from sessions_app.agents.atomic.writer import ContextCompactionWriter
from sessions_app.sessionlog.deletion import Deletion, Stats
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, branch_of, call, chain, result, text, thinking, user, write_facts

WRITER = ContextCompactionWriter()
MESSAGES = (user("go"), assistant(text("a"), call("c1")), result("c1"), user("on"))
TARGETS = (Target("e3"), Target("e2", 1))
STATS = Stats(6, 4, 2, 100, 50, 50.0)


def written() -> bytes:
    facts = write_facts(chain(*MESSAGES), ids=["e9"])
    (line,) = WRITER.write(branch_of(chain(*MESSAGES)), Deletion(TARGETS, ("e1", "e4"), STATS), facts).lines
    return line


def test_the_line_follows_the_leaf_and_names_what_was_approved():
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
        "backupPath": "/sessions/a.jsonl.bak",
    }


def test_the_agent_reads_the_approved_context_from_the_line():
    context = AtomicReader().rebuild(branch_of([*chain(*MESSAGES), written()]))
    assert [one.entry.id for one in context.messages] == ["e1", "e2", "e4"]
    assert [block.index for block in context.messages[1].blocks or ()] == [0]


def test_targets_that_the_agent_will_not_apply_are_known_before_the_write():
    branch = branch_of(chain(user("go"), assistant(thinking("hm"), text("I read it"), call("c1")), result("c1")))
    targets = (Target("e2", 1), Target("e2", 2), Target("e3"))
    assert WRITER.unapplied(branch, targets) == targets


def test_targets_that_the_agent_applies_are_not_among_them():
    recorded = chain(user("go"), assistant(thinking("hm"), text("a")), assistant(text("b"), text("c")), user("on"))
    assert WRITER.unapplied(branch_of(recorded), [Target("e2", 0), Target("e3", 1)]) == ()
