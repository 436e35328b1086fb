"""The writer for pi 0.87 and newer: one edit for each entry, whose surviving blocks have their recorded bytes."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sessions_app.agents.pi.context_edit import ContextEditWriter
from sessions_app.agents.pi.reader import PiReader
from sessions_app.sessionlog.deletion import Deletion, Stats
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.targets import Target
from tests.factories import (
    assistant,
    bash,
    branch_of,
    branch_summary,
    call,
    chain,
    context_edit,
    custom,
    result,
    summary_compaction,
    text,
    user,
    write_facts,
)

READER = PiReader()
WRITER = ContextEditWriter(READER)
ODD_BLOCKS = (
    rb'{ "type" : "text", "text":"a\u0041 ]} \" ," , "new":[1e3,{"}":"]"}] }',
    rb'{"type":"thinking","thinking":"so\/so","thinkingSignature":"s","extra":-0.0}',
    rb'{"type":"toolCall","id":"c1","name":"read","arguments":{"n":1.50,"n":2}}',
)
ODD_LINE = (
    b'{"message":{"content" :\t[ '
    + b" ,\t".join(ODD_BLOCKS)
    + b' ] , "role":"assistant","stopReason":"toolUse"}, "type":"message","id":"e2","parentId":"e1"}'
)
"""An assistant message as no serializer writes it."""


def edits(recorded: Sequence[dict[str, Any] | bytes], *targets: Target) -> list[bytes]:
    """The lines that delete these targets at the end of a session."""
    deletion = Deletion(targets, (), Stats())
    return list(WRITER.write(branch_of(recorded), deletion, write_facts(recorded)).lines)


def test_a_deleted_entry_is_omitted_by_one_line():
    (line,) = edits(chain(user("go"), assistant(text("long")), user("on")), Target("e2"))
    assert line == (
        b'{"type":"context_edit","id":"n1","parentId":"e3","timestamp":"2026-01-05T10:00:00.000Z",'
        b'"targetId":"e2","replacement":null}'
    )


@pytest.mark.parametrize("gone", [(0,), (1,), (0, 1), (0, 2)])
def test_surviving_blocks_keep_every_recorded_byte(gone):
    header, first, *_ = chain(user("go"))
    recorded = [header, first, ODD_LINE, {**first, "id": "e3", "parentId": "e2"}]
    (line,) = edits(recorded, *(Target("e2", index) for index in gone))
    kept = b",".join(block for index, block in enumerate(ODD_BLOCKS) if index not in gone)
    assert line.endswith(b'"targetId":"e2","replacement":{"content":[' + kept + b"]}}")


def test_results_are_omitted_before_the_call_they_answer():
    """The file may be cut between two lines: pi sends a result without its call, but answers a call itself."""
    recorded = chain(
        user("go"),
        assistant(call("c1"), call("c2")),
        result("c1"),
        result("c2"),
        assistant(text("and"), call("c3")),
        result("c3"),
        user("on"),
    )
    targets = (Target("e2"), Target("e3"), Target("e4"), Target("e5", 1), Target("e6"))
    lines = [json.loads(line) for line in edits(recorded, *targets)]
    assert [line["targetId"] for line in lines] == ["e3", "e4", "e2", "e6", "e5"]


def test_the_edits_are_a_chain_from_the_leaf():
    recorded = chain(user("go"), assistant(text("a")), assistant(text("b")), assistant(text("c")), user("on"))
    lines = [json.loads(line) for line in edits(recorded, Target("e2"), Target("e3"), Target("e4"))]
    assert [line["parentId"] for line in lines] == ["e5", "n1", "n2"]
    assert [line["id"] for line in lines] == ["n1", "n2", "n3"]


def test_an_edited_entry_loses_blocks_of_its_edit():
    new = [{"type": "text", "text": "first"}, {"type": "text", "text": "second", "n": 1}]
    recorded = chain(
        user("go"),
        assistant(text("a"), text("b"), text("c")),
        user("on"),
        context_edit("e2", {"content": new}),
        user("more"),
    )
    (line,) = edits(recorded, Target("e2", 0))
    assert json.loads(line)["replacement"] == {"content": new[1:]}


def test_only_entries_that_the_model_still_sees_are_edited():
    recorded = chain(
        user("go"),
        assistant(text("before")),
        assistant(text("kept")),
        summary_compaction("short", "e3"),
        assistant(text("omitted")),
        context_edit("e5", None),
        user("on"),
    )
    lines = edits(recorded, Target("e2"), Target("e3"), Target("e5"))
    assert [json.loads(line)["targetId"] for line in lines] == ["e3"]


def test_a_custom_message_can_be_omitted():
    note = {"type": "custom_message", "customType": "note", "content": "a note", "display": True}
    (line,) = edits(chain(user("go"), note, user("on")), Target("e2"))
    assert json.loads(line)["targetId"] == "e2"


def test_it_leaves_out_only_what_the_interface_of_pi_edits():
    note = {"type": "custom_message", "customType": "note", "content": "a note", "display": True}
    recorded = chain(
        user("go"),
        assistant(call("c1")),
        result("c1"),
        note,
        bash("make", "done"),
        custom("words"),
        branch_summary("there"),
        summary_compaction("short", "e1"),
        {"role": "system", "content": "be brief"},
    )
    found = [WRITER.protection(entry) for entry in branch_of(recorded)]
    assert found == [None] * 4 + [Protection.NOT_EDITABLE] * 5
