"""What the writers record: the survivors word for word, in Codex's own form."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.agents.changes import NewFile
from sessions_app.agents.codex.agent import CODEX, OLDER_READER, READER
from sessions_app.agents.codex.chained_file import RolloutReader
from sessions_app.agents.codex.compacted import CompactedWriter, FullerList
from sessions_app.agents.codex.fork import ThreadForkWriter
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import ParserState, read_session
from sessions_app.sessionlog.targets import Target

from .rollouts import (
    THREAD,
    Item,
    Parsed,
    Rollout,
    answer,
    call,
    compacted,
    deletion,
    developer,
    environment,
    kept,
    line,
    meta,
    output,
    parsed,
    reasoning,
    summarised,
    thread,
    turn_context,
    user,
    world_state,
)

COMPACTED, FORK, FULLER = CompactedWriter(READER), ThreadForkWriter(READER), FullerList(READER)


def appended(rollout: Rollout, *deleted: str | Target) -> tuple[Parsed, list[Any]]:
    """The session after a deletion, and the lines that were appended."""
    before = Parsed(rollout.content)
    change = COMPACTED.write(before.branch, deletion(*deleted), before.facts())
    return Parsed(rollout.with_lines(change.lines).content), [json.loads(one) for one in change.lines]


def simple(**fields: Any) -> Rollout:
    return Rollout(meta(), developer(), user("a"), call("c1"), output("c1"), answer("b"), **fields)


# ---- compacted ------------------------------------------------------------------------------------------------


def test_the_survivors_are_the_context():
    after, _ = appended(simple(), "3", "4")
    assert after.ids() == ["1", "2", "5"]
    assert kept(after.sent()) == ["rules", "a", "b"]


def test_the_line_continues_the_ordinals_and_says_where_the_backup_is():
    _, (recorded,) = appended(simple(), "3", "4")
    assert list(recorded) == ["timestamp", "ordinal", "type", "payload"]
    assert (recorded["ordinal"], recorded["type"]) == (6, "compacted")
    assert recorded["timestamp"] == "2026-01-05T11:00:00.000Z"
    payload = recorded["payload"]
    assert (payload["message"], payload["redline"]["backup"]) == ("", "/backup")
    # A thread without windows gets none.
    assert not [name for name in payload if "window" in name]


def test_the_line_begins_a_new_window():
    """Otherwise Codex would go by the tokens that it counted before, and compact at once."""
    rollout = Rollout(meta(context_window={"window_id": "w0"}), user("a"), call("c1"), output("c1"))
    names = ("window_number", "first_window_id", "previous_window_id", "window_id")
    _, (first,) = appended(rollout, "2", "3")
    number, begun, previous, window = (first["payload"][name] for name in names)
    assert (number, begun, previous) == (1, "w0", "w0")
    own = compacted(user("a"), window_number=4, window_id="w4")
    _, (second,) = appended(Rollout(meta(context_window={"window_id": "w0"}), own, user("b")), "2")
    assert [second["payload"][name] for name in names[:3]] == [5, "w0", "w4"]
    assert len({window, second["payload"]["window_id"], "w0", "w4"}) == 4


def test_a_legacy_file_gets_no_ordinal():
    after, (recorded,) = appended(simple(paginated=False), "4", "5")
    assert list(recorded) == ["timestamp", "type", "payload"]
    assert after.ids() == ["2", "3", "6"]


def test_the_items_have_their_recorded_bytes():
    odd = rb'{"type":"message", "role":"user","content":[ {"type":"input_text","text":"\u00e9 1.0"} ],"n":1.50,"n":2}'
    raw = b'{"ordinal":1,"type":"response_item","payload": ' + odd + b" }"
    rollout = Rollout(meta(), raw, first=0)
    before = Parsed(rollout.content)
    (written,) = COMPACTED.write(before.branch, deletion(), before.facts()).lines
    assert odd in written


def test_a_block_is_left_out_of_its_item():
    rollout = Rollout(meta(), user("a"), answer("x", "y", "z"))
    after, (recorded,) = appended(rollout, Target("2", 1))
    assert recorded["payload"]["replacement_history"][1] == answer("x", "z")
    assert kept(after.sent()) == ["a", "x z"]


def test_items_of_an_earlier_compaction_and_its_summary_survive():
    rollout = Rollout(meta(), user("a"), answer("b"), summarised("s"), answer("c"), answer("d"))
    after, _ = appended(rollout, "5")
    assert kept(after.sent()) == ["a", "s", "c"]
    again, _ = appended(Rollout(meta(), user("a"), compacted(answer("new"), user("a")), answer("c")), "3")
    assert kept(again.sent()) == ["new", "a"]


# ---- the baseline of the added context ------------------------------------------------------------------------


def baseline_of(*recorded: Item) -> list[str]:
    _, lines = appended(Rollout(meta(), user("a"), answer("b"), *recorded), "2")
    assert [one["ordinal"] for one in lines] == list(range(lines[0]["ordinal"], lines[0]["ordinal"] + len(lines)))
    return [one["type"] for one in lines[1:]]


def test_the_baseline_is_repeated():
    assert baseline_of(world_state(), turn_context()) == ["world_state", "turn_context"]


def test_changes_of_the_state_are_repeated_from_the_last_full_one_on():
    found = baseline_of(world_state(), world_state(full=False), world_state(), world_state(full=False), turn_context())
    assert found == ["world_state", "world_state", "turn_context"]


def test_there_is_no_baseline_without_both_lines_or_before_a_compaction():
    assert baseline_of(world_state()) == []
    assert baseline_of(turn_context()) == []
    assert baseline_of(world_state(full=False), turn_context()) == []
    assert baseline_of(world_state(), turn_context(), compacted(user("a"), answer("b"))) == []


# ---- bringing back --------------------------------------------------------------------------------------------


def brought_back(
    rollout: Rollout, deleted: tuple[str | Target, ...], back: tuple[str, ...], said: tuple[Item, ...] = ()
) -> Parsed:
    before = Parsed(rollout.content)
    change = COMPACTED.write(before.branch, deletion(*deleted), before.facts())
    with_said = rollout.with_lines([*change.lines, *Rollout(*said, first=90).lines])
    present = Parsed(with_said.content)
    messages = [one for one in before.context().messages if one.entry.id in back]
    lines = FULLER(present.branch, messages, {}, present.facts())
    return Parsed(with_said.with_lines(lines).content)


def test_what_comes_back_has_its_place_again():
    after = brought_back(simple(), ("3", "4", "5"), ("3", "4"), (user("more"),))
    assert kept(after.sent()) == ["rules", "a", "function_call c1", "function_call_output c1", "more"]
    assert after.ids() == ["1", "2", "3", "4", "90"]


def test_an_entry_that_lost_a_block_comes_back_whole():
    rollout = Rollout(meta(), user("a"), answer("x", "y"), user("b"))
    after = brought_back(rollout, (Target("2", 0),), ("2",))
    assert kept(after.sent()) == ["a", "x y", "b"]


# ---- fork -----------------------------------------------------------------------------------------------------


def forked(directory: Path, rollout: Rollout, *deleted: str) -> tuple[Path, NewFile]:
    path = rollout.save(directory)
    before = Parsed(rollout.content)
    change = FORK.write(before.branch, deletion(*deleted), before.facts(path))
    new = directory / change.name
    new.write_bytes(b"".join(change.pieces))
    return new, change


def read(path: Path) -> Parsed:
    with RolloutReader(path) as reader:
        return Parsed(b"".join(reader.chunks(0)))


def test_a_fork_continues_the_original(tmp_path):
    new, _ = forked(tmp_path, simple(), "3", "4")
    found = read(new)
    assert kept(found.sent()) == ["rules", "a", "b"]
    assert found.log.header is not None
    expected = ("01a20000-0000-7000-8000-00000000000f", THREAD)
    assert (found.log.header.id, found.log.header.parent_session) == expected


def test_the_header_of_a_fork_names_the_end_of_the_original(tmp_path):
    rollout = simple()
    new, change = forked(tmp_path, rollout, "5")
    header, boundary = map(json.loads, new.read_bytes().splitlines())
    assert change.name == "rollout-2026-01-05T11-00-00-01a20000-0000-7000-8000-00000000000f.jsonl"
    expected = {"thread_id": THREAD, "end_ordinal_exclusive": 6, "end_byte_offset": len(rollout.content)}
    assert header["payload"]["history_base"] == expected
    assert (header["ordinal"], boundary["ordinal"]) == (6, 7)
    assert header["payload"]["cwd"] == "/work"
    first = header["payload"]["context_window"]["window_id"]
    expected = (first, first)
    assert (boundary["payload"]["first_window_id"], boundary["payload"]["previous_window_id"]) == expected
    assert boundary["payload"]["window_id"] != first


def test_a_fork_stays_as_it_is_while_the_original_grows(tmp_path):
    rollout = simple()
    new, _ = forked(tmp_path, rollout, "5")
    rollout.with_lines(Rollout(user("later"), first=6).lines).save(tmp_path)
    assert kept(read(new).sent()) == ["rules", "a", "function_call c1", "function_call_output c1"]


def test_a_fork_of_a_fork_continues_its_own_file(tmp_path):
    new, _ = forked(tmp_path, simple(), "5")
    found = read(new)
    change = FORK.write(found.branch, deletion("3", "4"), found.facts(new))
    header = json.loads(next(iter(change.pieces)))
    base = header["payload"]["history_base"]
    assert (base["thread_id"], base["end_byte_offset"]) == (new.stem[-36:], new.stat().st_size)


def test_a_fork_can_begin_before_a_compaction_also_in_the_part_that_comes_from_its_base(tmp_path):
    new, _ = forked(tmp_path, simple(), "5")
    found = read(new)
    branch = found.tree.branch("4")
    third = tmp_path / "rollout-2026-01-05T12-00-00-01a20000-0000-7000-8000-0000000000bb.jsonl"
    third.write_bytes(b"".join(FORK.write(branch, deletion(), found.facts(new)).pieces))
    assert kept(read(third).sent()) == ["rules", "a", "function_call c1", "function_call_output c1"]


def test_an_opaque_compaction_is_undone_by_what_was_recorded_before_it(tmp_path):
    opaque = {"type": "compaction", "encrypted_content": "x"}
    rollout = Rollout(meta(), user("a"), answer("b"), compacted(user("a"), opaque))
    path = rollout.save(tmp_path)
    found = Parsed(rollout.content)
    assert kept(found.sent()) == ["a", "compaction"]
    change = FORK.write(found.tree.branch("2"), deletion(), found.facts(path))
    new = tmp_path / change.name
    new.write_bytes(b"".join(change.pieces))
    assert kept(read(new).sent()) == ["a", "b"]


def test_the_fork_of_a_segment_names_the_segment(tmp_path):
    segment = "01a20000-0000-7000-8000-0000000000aa"
    before = Parsed(simple().content)
    path = tmp_path / f"rollout-2026-01-05T10-00-00-{THREAD}_{segment}.jsonl"
    header = json.loads(next(iter(FORK.write(before.branch, deletion(), before.facts(path)).pieces)))
    assert header["payload"]["history_base"]["thread_id"] == segment
    assert header["payload"]["forked_from_id"] == THREAD


def simple_legacy() -> Rollout:
    return Rollout(meta(), developer(), user("a"), call(), output(), answer("b"), user("c"), paginated=False)


OLDER_FORK = ThreadForkWriter(OLDER_READER, knows_bases=False)


@pytest.mark.parametrize("writer", [FORK, OLDER_FORK])
def test_a_fork_of_a_legacy_thread_has_a_copy_of_its_lines(tmp_path, writer):
    rollout = simple_legacy()
    rollout.lines[3:3] = [b"damaged", b""]
    before = Parsed(rollout.content)
    change = writer.write(before.branch, deletion("6", "7"), before.facts())
    new = tmp_path / change.name
    new.write_bytes(b"".join(change.pieces))
    first, *copied, last = new.read_bytes().splitlines()
    header, boundary = json.loads(first), json.loads(last)
    expected = (before.facts().session_id, THREAD)
    assert (header["payload"]["id"], header["payload"]["forked_from_id"]) == expected
    assert copied == rollout.lines[1:]
    assert (boundary["type"], "ordinal" in boundary) == ("compacted", False)
    found = read(new)
    assert kept(found.sent()) == ["rules", "a", "b", "c"]
    assert found.ids() == [one for one in before.ids() if one not in ("6", "7")]
    assert [entry.id for entry in found.entries][: len(before.entries)] == [one.id for one in before.entries]


def test_a_legacy_thread_is_forked_from_before_its_compaction(tmp_path):
    content = simple_legacy().with_lines(Rollout(summarised("so far"), paginated=False).lines).content
    before = Parsed(content)
    assert kept(before.sent()) == ["a", "c", "so far"]
    change = FORK.write(before.tree.branch("7"), deletion(), before.facts())
    assert kept(Parsed(b"".join(change.pieces)).sent()) == kept(Parsed(simple_legacy().content).sent())


def test_old_versions_do_not_fork_a_paginated_thread():
    before = Parsed(simple().content)
    with pytest.raises(BadInput) as caught:
        OLDER_FORK.write(before.branch, deletion(), before.facts())
    assert caught.value.code == "newer_thread"


def test_a_legacy_thread_that_is_open_is_not_forked():
    before = parsed(meta(), user("a"), paginated=False)
    with pytest.raises(Conflict) as caught:
        FORK.write(before.branch, deletion(), replace(before.facts(), is_open=True))
    assert caught.value.code == "open_in_agent"
    paginated = thread(user("a"))
    FORK.write(paginated.branch, deletion(), replace(paginated.facts(), is_open=True))


def test_a_fork_of_the_clients_own_fork_has_the_header_of_the_thread():
    """It begins with its own header, and the copied lines with that of the thread that it continues."""
    other = "01a20000-0000-7000-8000-000000000002"
    before = parsed(meta(other, cwd="/own"), meta(THREAD, cwd="/first"), user("a"), paginated=False)
    first, second, *_ = map(json.loads, FORK.write(before.branch, deletion(), before.facts()).pieces)
    assert (first["payload"]["cwd"], first["payload"]["forked_from_id"]) == ("/own", other)
    assert second["payload"]["id"] == THREAD


def test_an_archived_thread_is_not_forked():
    before = thread(user("a"))
    with pytest.raises(BadInput) as caught:
        FORK.write(before.branch, deletion(), before.facts(Path("/codex/archived_sessions/rollout-x.jsonl")))
    assert caught.value.code == "archived_thread"


# ---- properties -----------------------------------------------------------------------------------------------

texts = st.sampled_from(["a", "b"])
recorded_items = st.one_of(
    texts.map(user),
    texts.map(answer),
    st.builds(answer, texts, texts),
    texts.map(reasoning),
    st.builds(call, texts),
    st.builds(output, texts),
    st.just(developer()),
    st.just(environment()),
    st.just(world_state()),
    st.just(turn_context()),
    texts.map(summarised),
    st.lists(st.one_of(texts.map(user), texts.map(answer)), max_size=3).map(lambda found: compacted(*found)),
    st.just(line("event_msg", {"type": "task_started"})),
)


@given(st.lists(recorded_items, max_size=14), st.data(), st.booleans())
def test_every_deletion_gives_exactly_the_approved_context(recorded, data, paginated):
    rollout = Rollout(meta(), *recorded, paginated=paginated)
    before = Parsed(rollout.content)
    messages = before.context().messages
    deleted = {one.entry.id for one in messages if data.draw(st.booleans())}
    after, _ = appended(rollout, *deleted)
    left = [one for one in messages if one.entry.id not in deleted]
    expected = [CODEX.message_json(one, before.line(one.entry), None) for one in left]
    assert [CODEX.message_json(one, after.line(one.entry), None) for one in after.context().messages] == expected
    assert not after.parser.damage


@given(st.lists(recorded_items, max_size=14), st.data())
def test_bringing_everything_back_gives_the_context_before(recorded, data):
    rollout = Rollout(meta(), *recorded)
    before = Parsed(rollout.content)
    messages = before.context().messages
    deleted = tuple(one.entry.id for one in messages if data.draw(st.booleans()))
    after = brought_back(rollout, deleted, deleted)
    assert sorted(map(json.dumps, after.sent())) == sorted(map(json.dumps, before.sent()))


def test_the_state_at_the_end_decides_the_ordinal_whatever_the_branch_is():
    before = thread(user("a"), answer("b"), line("event_msg", {"type": "task_complete"}))
    (recorded,) = map(json.loads, COMPACTED.write(before.branch, deletion("2"), before.facts()).lines)
    assert recorded["ordinal"] == 4


def test_a_fork_can_be_read_as_a_session(tmp_path):
    new, _ = forked(tmp_path, simple(), "5")
    with CODEX.open(new) as reader:
        log = read_session(CODEX.parser(ParserState(), []), split_lines(reader.chunks(0)), str(new))
    assert not log.damage
