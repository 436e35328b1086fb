"""The writers for pi: what survives keeps its recorded bytes, in a fork and beside edits in the session itself."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest

from sessions_app.agents.atomic.pure.format import AtomicReader
from sessions_app.agents.pi.pure.format import OlderPiReader, PiReader
from sessions_app.agents.pi.pure.writers import ContextEditWriter, ForkWriter
from sessions_app.agents.pure.formats import NewFile
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import AGENTS, GENERATIONS, readers_of
from sessions_app.sessionlog.entries import Deletion, Protection, Stats
from tests.factories import (
    HEADER,
    assistant,
    bash,
    block,
    branch_of,
    branch_summary,
    call,
    chain,
    compaction,
    context_edit,
    custom,
    message,
    result,
    summary_compaction,
    targets,
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
    recorded: Sequence[Recorded | bytes], *without: str, writer: ForkWriter = PI, labels: dict[str, str] | None = None
) -> list[bytes]:
    """The lines of a fork without these targets, header first."""
    deletion = Deletion(tuple(targets(" ".join(without))), (), Stats())
    facts = write_facts(recorded, labels=labels)
    data = b"".join(writer.write(branch_of(recorded), deletion, facts).pieces)
    assert data.endswith(b"\n")
    return data.split(b"\n")[:-1]


def parsed(lines: list[bytes]) -> list[Recorded]:
    return [json.loads(line) for line in lines]


def kept(recorded: Sequence[Recorded | bytes], writer: ForkWriter = PI) -> list[Recorded]:
    """The entries of a fork, without what the writer adds at its end."""
    return [entry for entry in parsed(forked(recorded, writer=writer))[1:] if entry.get("targetId") != "00000000"]


def ids(entries: list[Recorded]) -> list[str]:
    return [entry["id"] for entry in entries]


def without_parent(line: bytes) -> bytes:
    assert len(_PARENT.findall(line)) == 1, line
    return _PARENT.sub(b"<parent>", line)


def test_a_fork_is_named_by_its_time_and_id_and_its_header_names_where_it_came_from():
    assert parsed(forked(chain(user("go"), user("on"))))[0] == {
        "type": "session",
        "version": 3,
        "id": "5e55-fork",
        "timestamp": "2026-01-05T10:00:00.000Z",
        "cwd": "/work",
        "parentSession": "/sessions/a.jsonl",
    }
    recorded = chain(user("go"), user("on"))
    written = PI.write(branch_of(recorded), Deletion((), (), Stats()), write_facts(recorded))
    assert written.name == "2026-01-05T10-00-00-000Z_5e55-fork.jsonl"


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


def test_survivors_keep_every_recorded_byte_but_their_parent_which_they_get_if_they_had_none():
    *lines, last = forked([HEADER, *ODD], "e2")
    assert [without_parent(line) for line in lines[1:]] == [without_parent(line) for line in ODD if line != ODD[1]]
    assert [entry["parentId"] for entry in parsed(lines)[1:]] == [None, "e1", "e3", "e4"]
    assert json.loads(last)["type"] == "context_edit"
    rootless = b'{ "type":"message","id":"e1","message":{"role":"user","content":"go"}}'
    (_, first, _) = forked([HEADER, rootless])
    assert first == b'{"parentId":null, "type":"message","id":"e1","message":{"role":"user","content":"go"}}'


def test_surviving_blocks_keep_every_recorded_byte():
    blocks = (rb'{ "type":"text","text":"\u0041]}" }', rb'{"text":"b" ,"type":"text"}', rb'{"type":"text","text":"c"}')
    recorded = b"[ " + b" , ".join(blocks) + b" ]"
    opening = b'{"id":"e2","type":"message","parentId":"e1","message":{"content": '
    ending = b' ,"role":"assistant","stopReason":"stop"},"n":1e3}'
    _, _, changed, _ = forked([*chain(user("go")), opening + recorded + ending], "e2[1]")
    assert changed == opening + b"[" + blocks[0] + b"," + blocks[2] + b"]" + ending


def test_earlier_deletions_are_applied_and_left_out_and_so_are_other_branches():
    recorded = chain(
        *(user("go"), assistant(text("a"), text("b")), assistant(text("long")), user("on")),
        *(compaction(whole("e3"), block("e2", 0)), assistant(text("more")), user("end")),
    )
    writer = next(one for one in GENERATIONS["atomic-0.8"][1].writers if isinstance(one, ForkWriter))
    entries = kept(recorded, writer)
    assert ids(entries) == ["e1", "e2", "e4", "e6", "e7"]
    assert entries[1]["message"]["content"] == [text("b")]
    recorded = [*chain(user("go"), user("on")), message("n1", "e1", user("on"))]
    assert ids(kept(recorded)) == ["e1", "n1"]


def test_earlier_edits_are_applied_and_left_out():
    recorded = chain(
        *(user("go"), assistant(text("a"), call("c1")), result("c1", "long"), assistant(text("omitted"))),
        *(context_edit("e3", {"content": "short"}), context_edit("e4", None), user("on")),
    )
    entries = kept(recorded)
    assert ids(entries) == ["e1", "e2", "e3", "e7"]
    assert entries[2]["message"] == {**result("c1"), "content": [text("short")]}
    recorded = chain(user("long"), assistant(text("a")), context_edit("e1", {"content": "short"}), user("on"))
    assert kept(recorded)[0]["message"]["content"] == "short", "it stays a text where pi sends it as one"


def test_what_an_agent_does_not_honour_is_not_applied_and_a_summary_that_an_edit_omits_stays_omitted():
    recorded = chain(user("go"), assistant(text("a")), context_edit("e2", None), user("on"))
    assert ids(kept(recorded, OLDER_PI)) == ["e1", "e2", "e4"]
    recorded = chain(user("go"), summary_compaction("earlier", "e1"), compaction(whole("e2")))
    assert ids(kept(recorded, ForkWriter(AtomicReader(), ends_with_edit=False))) == ["e1", "e2"]
    summary = summary_compaction("short", "e2")
    *entries, omitted = kept(chain(user("go"), assistant(text("a")), summary, context_edit("e3", None), user("on")))
    assert ids(entries) == ["e1", "e2", "e3", "e5"]
    assert (omitted["targetId"], omitted["replacement"]) == ("e3", None)


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
    said = (assistant(text(words)) for words in "abc")
    recorded = chain(user("go"), *said, context_edit("e2", None), summary_compaction("short", first_kept), user("on"))
    (summary,) = [entry for entry in parsed(forked(recorded, *gone)) if entry["id"] == "e6"]
    assert summary["firstKeptEntryId"] == named


def test_only_the_name_changes_in_a_summary():
    line = (
        b'{"firstKeptEntryId" : "e2" , "summary":"a\\u0041 \\"firstKeptEntryId\\":\\"e2\\"",'
        b'"type":"compaction","id":"e4","parentId":"e3"}'
    )
    recorded = [*chain(user("go"), assistant(text("a")), assistant(text("b"))), line]
    assert without_parent(forked(recorded, "e2")[3]) == without_parent(line.replace(b'"e2" ,', b'"e3" ,'))


def test_labels_of_survivors_are_appended_again():
    label = {"type": "label", "targetId": "e1", "label": "old"}
    recorded = chain(user("go"), label, assistant(text("a")), assistant(text("b")), user("on"))
    labels = {"e1": 'the "task"', "e3": "gone", "e4": "kept", "elsewhere": "x"}
    fork = parsed(forked(recorded, "e3", labels=labels))[1:]
    assert ids(fork) == ["e1", "e4", "e5", "n1", "n2", "n3"]
    expected = [("e1", 'the "task"'), ("e4", "kept")]
    assert [(entry["targetId"], entry["label"]) for entry in fork[3:5]] == expected
    assert [entry["type"] for entry in fork[3:]] == ["label", "label", "context_edit"]
    assert [entry["parentId"] for entry in fork] == [None, "e1", "e4", "e5", "n1", "n2"]


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


def test_pi_gets_reported_tokens_as_they_are_and_an_edit_of_no_entry_of_the_session():
    _, _, line, last = forked([*chain(user("go")), assistant_line(USAGE)])
    assert line == assistant_line(USAGE)
    edit = context_edit("00000000", None) | {"id": "n1", "parentId": "e2", "timestamp": "2026-01-05T10:00:00.000Z"}
    assert json.loads(last) == edit
    taken = message("00000000", None, user("go"))
    last = parsed(forked([HEADER, taken, {**taken, "id": "e2", "parentId": "00000000"}]))[-1]
    assert last["targetId"] not in ("00000000", "e2", last["id"])


ZERO = b'"usage" : {"input":0, "output" :0,"cacheRead":0,"totalTokens":0,"cost":{"input":0.25,"total":1},"by":"p"}'


@pytest.mark.parametrize(
    ("recorded", "written"),
    [
        pytest.param(USAGE, ZERO, id="tokens of zero, and the cost as it is"),
        *((odd, odd) for odd in (b'"usage":null', b'"usage":[1]', b'"usage":{}', b'"usages":{"input":1}')),
    ],
)
def test_what_is_reported_to_other_agents(recorded, written):
    _, _, line = forked([*chain(user("go")), assistant_line(recorded)], writer=OLDER_PI)
    assert line == assistant_line(written)


@pytest.mark.parametrize("reader", readers_of(AGENTS["pi"]))
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


WRITER = ContextEditWriter(PiReader())
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


def edits(recorded: Sequence[Recorded | bytes], deleted: str) -> list[bytes]:
    """The lines that delete these targets at the end of a session."""
    deletion = Deletion(tuple(targets(deleted)), (), Stats())
    return list(WRITER.write(branch_of(recorded), deletion, write_facts(recorded)).lines)


def test_each_deleted_entry_is_omitted_by_one_line_in_a_chain_from_the_leaf():
    (line,) = edits(chain(user("go"), assistant(text("long")), user("on")), "e2")
    assert line == (
        b'{"type":"context_edit","id":"n1","parentId":"e3","timestamp":"2026-01-05T10:00:00.000Z",'
        b'"targetId":"e2","replacement":null}'
    )
    said = (assistant(text(words)) for words in "abc")
    lines = parsed(edits(chain(user("go"), *said, user("on")), "e2 e3 e4"))
    assert [(line["id"], line["parentId"]) for line in lines] == [("n1", "e5"), ("n2", "n1"), ("n3", "n2")]


@pytest.mark.parametrize("gone", [(0,), (1,), (0, 1), (0, 2)])
def test_blocks_that_survive_an_edit_keep_every_recorded_byte(gone):
    recorded = [*chain(user("go")), ODD_LINE, message("e3", "e2", user("go"))]
    (line,) = edits(recorded, " ".join(f"e2[{index}]" for index in gone))
    kept = b",".join(block for index, block in enumerate(ODD_BLOCKS) if index not in gone)
    assert line.endswith(b'"targetId":"e2","replacement":{"content":[' + kept + b"]}}")


def test_results_are_omitted_before_the_call_they_answer():
    """The file may be cut between two lines: pi sends a result without its call, but answers a call itself."""
    calls = (assistant(call("c1"), call("c2")), result("c1"), result("c2"), assistant(text("and"), call("c3")))
    lines = parsed(edits(chain(user("go"), *calls, result("c3"), user("on")), "e2 e3 e4 e5[1] e6"))
    assert [line["targetId"] for line in lines] == ["e3", "e4", "e2", "e6", "e5"]


def test_only_what_the_model_still_sees_is_edited_and_an_edited_entry_loses_blocks_of_its_edit():
    recorded = chain(
        *(user("go"), assistant(text("before")), assistant(text("kept")), summary_compaction("short", "e3")),
        *(assistant(text("omitted")), context_edit("e5", None), user("on")),
    )
    assert [line["targetId"] for line in parsed(edits(recorded, "e2 e3 e5"))] == ["e3"]
    new = [text("first"), text("second") | {"n": 1}]
    said = (user("go"), assistant(text("a"), text("b"), text("c")), user("on"))
    (line,) = edits(chain(*said, context_edit("e2", {"content": new}), user("more")), "e2[0]")
    assert json.loads(line)["replacement"] == {"content": new[1:]}


def test_it_leaves_out_only_what_the_interface_of_pi_edits():
    note = {"type": "custom_message", "customType": "note", "content": "a note", "display": True}
    (line,) = edits(chain(user("go"), note, user("on")), "e2")
    assert json.loads(line)["targetId"] == "e2"
    editable = (user("go"), assistant(call("c1")), result("c1"), note)
    others = (bash("make", "done"), custom("words"), branch_summary("there"), summary_compaction("short", "e1"))
    branch = branch_of(chain(*editable, *others, {"role": "system", "content": "be brief"}))
    assert [WRITER.protection(entry) for entry in branch] == [None] * 4 + [Protection.NOT_EDITABLE] * 5
