"""The writer of forks: what survives keeps its bytes, except parents, lost blocks, and for some agents token counts."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest

from sessions_app.agents.atomic.reader import AtomicReader
from sessions_app.agents.changes import NewFile
from sessions_app.agents.pi.agent import PiAgent
from sessions_app.agents.pi.fork import ForkWriter
from sessions_app.agents.pi.reader import OlderPiReader, PiReader
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import GENERATIONS, readers_of
from sessions_app.sessionlog.deletion import Deletion, Stats
from sessions_app.sessionlog.targets import Target
from tests.factories import (
    assistant,
    block,
    branch_of,
    call,
    chain,
    compaction,
    context_edit,
    result,
    summary_compaction,
    text,
    user,
    whole,
    write_facts,
)

Recorded = dict[str, Any]

PI: Final = ForkWriter(PiReader(), ends_with_edit=True)
OLDER_PI: Final = ForkWriter(OlderPiReader(), ends_with_edit=False)
_PARENT: Final = re.compile(rb'"parentId"\s*:\s*(?:null|"[^"]*")')


def forked(
    recorded: Sequence[Recorded | bytes],
    *targets: Target,
    writer: ForkWriter = PI,
    labels: dict[str, str] | None = None,
) -> list[bytes]:
    """The lines of a fork without these targets, header first."""
    deletion = Deletion(targets, (), Stats())
    facts = write_facts(recorded, labels=labels)
    data = b"".join(writer.write(branch_of(recorded), deletion, facts).pieces)
    assert data.endswith(b"\n")
    return data.split(b"\n")[:-1]


def parsed(lines: list[bytes]) -> list[Recorded]:
    return [json.loads(line) for line in lines]


def without_parent(line: bytes) -> bytes:
    found = _PARENT.findall(line)
    assert len(found) == 1, line
    return _PARENT.sub(b"<parent>", line)


# ---- the file ----------------------------------------------------------------------------------------------


def test_the_file_is_named_by_its_time_and_id():
    recorded = chain(user("go"), user("on"))
    deletion = Deletion((), (), Stats())
    assert PI.write(branch_of(recorded), deletion, write_facts(recorded)).name == (
        "2026-01-05T10-00-00-000Z_5e55-fork.jsonl"
    )


def test_the_header_names_the_session_it_came_from():
    assert parsed(forked(chain(user("go"), user("on"))))[0] == {
        "type": "session",
        "version": 3,
        "id": "5e55-fork",
        "timestamp": "2026-01-05T10:00:00.000Z",
        "cwd": "/work",
        "parentSession": "/sessions/a.jsonl",
    }


# ---- what survives -----------------------------------------------------------------------------------------

ODD = [
    b'{ "parentId" : null ,"type":"message","id":"e1","message":{"role":"user","content":'
    b'"na\\u00efve \xf0\x9f\x99\x82"}}',
    b'{"type":"message","id":"e2","parentId":"e1","message":{"role":"assistant","content":[{"type":"text","text":"x"}]}}',
    b'{"new":{"parentId ":1e3},"id":"e3","type":"message", "parentId":\t"e2",'
    b'"message":{"role":"user","content":"b" }, "n":-0.0 }',
    b'{"type":"model_change","id":"e4","parentId":"e3","provider":"p","modelId":"m","extra":[1,  2]}',
    b'{"type":"unheard_of","id":"e5","parentId":"e4","n":1.50}',
]
"""Lines as no serializer writes them."""


def test_survivors_keep_every_recorded_byte_but_their_parent():
    *lines, last = forked([chain()[0], *ODD], Target("e2"))
    assert [without_parent(line) for line in lines[1:]] == [without_parent(line) for line in ODD if line != ODD[1]]
    assert [entry["parentId"] for entry in parsed(lines)[1:]] == [None, "e1", "e3", "e4"]
    assert json.loads(last)["type"] == "context_edit"


def test_an_entry_without_a_parent_gets_one():
    rootless = b'{ "type":"message","id":"e1","message":{"role":"user","content":"go"}}'
    (_, first, _) = forked([chain()[0], rootless])
    assert first == b'{"parentId":null, "type":"message","id":"e1","message":{"role":"user","content":"go"}}'


def test_surviving_blocks_keep_every_recorded_byte():
    blocks = (rb'{ "type":"text","text":"\u0041]}" }', rb'{"text":"b" ,"type":"text"}', rb'{"type":"text","text":"c"}')
    line = (
        b'{"id":"e2","type":"message","parentId":"e1","message":{"content": [ '
        + b" , ".join(blocks)
        + b' ] ,"role":"assistant","stopReason":"stop"},"n":1e3}'
    )
    header, first, *_ = chain(user("go"))
    _, _, changed, _ = forked([header, first, line], Target("e2", 1))
    assert changed == line.replace(b"[ " + b" , ".join(blocks) + b" ]", b"[" + blocks[0] + b"," + blocks[2] + b"]")


def test_entries_of_other_branches_are_left_out():
    recorded = [*chain(user("go"), user("on"))]
    recorded += [{**recorded[-1], "id": "n1", "parentId": "e1"}]
    assert [entry["id"] for entry in parsed(forked(recorded))[1:-1]] == ["e1", "n1"]


# ---- deletions and edits before ----------------------------------------------------------------------------


def test_earlier_deletions_are_applied_and_left_out():
    recorded = chain(
        user("go"),
        assistant(text("a"), text("b")),
        assistant(text("long")),
        user("on"),
        compaction(whole("e3"), block("e2", 0)),
        assistant(text("more")),
        user("end"),
    )
    writer = next(one for one in GENERATIONS["atomic-0.8"][1].writers if isinstance(one, ForkWriter))
    entries = parsed(forked(recorded, writer=writer))[1:]
    assert [entry["id"] for entry in entries] == ["e1", "e2", "e4", "e6", "e7"]
    assert entries[1]["message"]["content"] == [text("b")]


def test_earlier_edits_are_applied_and_left_out():
    recorded = chain(
        user("go"),
        assistant(text("a"), call("c1")),
        result("c1", "long"),
        assistant(text("omitted")),
        context_edit("e3", {"content": "short"}),
        context_edit("e4", None),
        user("on"),
    )
    entries = parsed(forked(recorded))[1:-1]
    assert [entry["id"] for entry in entries] == ["e1", "e2", "e3", "e7"]
    assert entries[2]["message"] == {**result("c1"), "content": [text("short")]}


def test_an_edit_by_a_text_stays_a_text_where_pi_sends_it_as_one():
    recorded = chain(user("long"), assistant(text("a")), context_edit("e1", {"content": "short"}), user("on"))
    assert parsed(forked(recorded))[1]["message"]["content"] == "short"


def test_older_pi_keeps_what_it_does_not_see_edited():
    recorded = chain(user("go"), assistant(text("a")), context_edit("e2", None), user("on"))
    assert [entry["id"] for entry in parsed(forked(recorded, writer=OLDER_PI))[1:]] == ["e1", "e2", "e4"]


def test_an_agent_that_ignores_edits_gets_none():
    recorded = [*chain(user("go")), {**summary_compaction("earlier", "e1"), "id": "e2", "parentId": "e1"}]
    recorded.append({**compaction(whole("e2")), "id": "e3", "parentId": "e2"})
    writer = ForkWriter(AtomicReader(), ends_with_edit=False)
    assert [entry["id"] for entry in parsed(forked(recorded, writer=writer))[1:]] == ["e1", "e2"]


def test_a_summary_that_an_edit_omits_stays_omitted():
    recorded = chain(
        user("go"), assistant(text("a")), summary_compaction("short", "e2"), context_edit("e3", None), user("on")
    )
    *entries, omitted, _ = parsed(forked(recorded))[1:]
    assert [entry["id"] for entry in entries] == ["e1", "e2", "e3", "e5"]
    assert (omitted["targetId"], omitted["replacement"]) == ("e3", None)


# ---- compactions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_kept", "gone", "named"),
    [
        ("e3", (), "e3"),
        ("e3", ("e3",), "e4"),
        ("e3", ("e3", "e4"), "e6"),
        ("e3", ("e2",), "e3"),
        ("nowhere", ("e3",), "nowhere"),
        (None, ("e3",), None),
    ],
)
def test_a_summary_names_the_next_survivor_as_its_first_kept_entry(first_kept, gone, named):
    recorded = chain(
        user("go"),
        assistant(text("a")),
        assistant(text("b")),
        assistant(text("c")),
        context_edit("e2", None),
        summary_compaction("short", first_kept),
        user("on"),
    )
    entries = {entry["id"]: entry for entry in parsed(forked(recorded, *map(Target, gone)))[1:]}
    assert entries["e6"]["firstKeptEntryId"] == named


def test_only_the_name_changes_in_a_summary():
    line = (
        b'{"firstKeptEntryId" : "e2" , "summary":"a\\u0041 \\"firstKeptEntryId\\":\\"e2\\"",'
        b'"type":"compaction","id":"e4","parentId":"e3"}'
    )
    recorded = [*chain(user("go"), assistant(text("a")), assistant(text("b"))), line]
    fork = forked(recorded, Target("e2"))
    assert without_parent(fork[3]) == without_parent(line.replace(b'"e2" ,', b'"e3" ,'))


# ---- labels ------------------------------------------------------------------------------------------------


def test_labels_of_survivors_are_appended_again():
    label = {"type": "label", "targetId": "e1", "label": "old"}
    recorded = chain(user("go"), label, assistant(text("a")), assistant(text("b")), user("on"))
    labels = {"e1": 'the "task"', "e3": "gone", "e4": "kept", "elsewhere": "x"}
    fork = parsed(forked(recorded, Target("e3"), labels=labels))[1:]
    assert [entry["id"] for entry in fork] == ["e1", "e4", "e5", "n1", "n2", "n3"]
    expected = [("e1", 'the "task"'), ("e4", "kept")]
    assert [(entry["targetId"], entry["label"]) for entry in fork[3:5]] == expected
    assert [entry["type"] for entry in fork[3:]] == ["label", "label", "context_edit"]
    assert [entry["parentId"] for entry in fork] == [None, "e1", "e4", "e5", "n1", "n2"]


# ---- reported usage ----------------------------------------------------------------------------------------

USAGE = (
    b'"usage" : {"input":180820, "output" :1e3,"cacheRead":-0.0,"totalTokens":5,'
    b'"cost":{"input":0.25,"total":1},"by":"p"}'
)


def assistant_line(usage: bytes) -> bytes:
    return (
        b'{"type":"message","id":"e2","parentId":"e1","message":{"role":"assistant",'
        + usage
        + b',"content":[{"type":"text","text":"a"}],"stopReason":"stop"}}'
    )


def test_pi_gets_reported_tokens_as_they_are_and_an_edit_of_no_entry():
    header, first, *_ = chain(user("go"))
    _, _, line, last = forked([header, first, assistant_line(USAGE)])
    assert line == assistant_line(USAGE)
    assert json.loads(last) == {
        "type": "context_edit",
        "id": "n1",
        "parentId": "e2",
        "timestamp": "2026-01-05T10:00:00.000Z",
        "targetId": "00000000",
        "replacement": None,
    }


def test_other_agents_get_reported_tokens_of_zero_and_the_cost_as_it_is():
    header, first, *_ = chain(user("go"))
    _, _, line = forked([header, first, assistant_line(USAGE)], writer=OLDER_PI)
    assert line == assistant_line(
        b'"usage" : {"input":0, "output" :0,"cacheRead":0,"totalTokens":0,"cost":{"input":0.25,"total":1},"by":"p"}'
    )


@pytest.mark.parametrize("usage", [b'"usage":null', b'"usage":[1]', b'"usage":{}', b'"usages":{"input":1}'])
def test_an_unusable_report_is_left_as_it_is(usage):
    header, first, *_ = chain(user("go"))
    _, _, line = forked([header, first, assistant_line(usage)], writer=OLDER_PI)
    assert line == assistant_line(usage)


def test_the_edit_of_no_entry_names_none_of_the_session():
    header, *_ = chain()
    taken = {"type": "message", "id": "00000000", "parentId": None, "timestamp": "t", "message": user("go")}
    last = parsed(forked([header, taken, {**taken, "id": "e2", "parentId": "00000000"}]))[-1]
    assert last["targetId"] not in ("00000000", "e2", last["id"])


@pytest.mark.parametrize("reader", readers_of(PiAgent()))
def test_only_new_pi_gets_an_edit_at_the_end(reader):
    writers = [one for one in GENERATIONS[reader][1].writers if isinstance(one, ForkWriter)]
    recorded = chain(user("go"), assistant(text("a")), user("on"))
    ends = [parsed(forked(recorded, writer=writer))[-1]["type"] for writer in writers]
    assert ends == ["context_edit" if reader == "pi" else "message"]


def test_the_fork_of_a_guessed_agent_reports_no_tokens():
    """The agent may be one that does not honour the edit at the end."""
    agent, generation = GENERATIONS["pi"]
    known, guessed = (Reading(agent, generation, "", is_guess=is_guess) for is_guess in (False, True))
    recorded = chain(user("go"), assistant(text("a"), usage={"input": 5, "totalTokens": 7}), user("on"))
    forks = []
    for reading in (known, guessed):
        change = reading.writer("fork").write(branch_of(recorded), Deletion((), (), Stats()), write_facts(recorded))
        assert isinstance(change, NewFile)
        forks.append([json.loads(line) for line in change.pieces])
    assert [fork[2]["message"]["usage"]["totalTokens"] for fork in forks] == [7, 0]
    assert [fork[-1]["type"] for fork in forks] == ["context_edit", "message"]
