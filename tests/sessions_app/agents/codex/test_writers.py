"""What a plan may delete of a thread, and what the writers record: the survivors word for word, in Codex's own form."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from devtools.bench.codex import can_write, certify_plan, random_plan, write_thread
from devtools.bench.sessions import generate, read_branch, real_sessions
from devtools.bench.written_plans import notes_on
from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.pure.format import OLDER_READER, READER, CodexRules
from sessions_app.agents.codex.pure.writers import CompactedWriter, FullerList, ThreadForkWriter
from sessions_app.agents.pure.formats import NewFile, SessionWriter
from sessions_app.sessionlog.entries import Protection, Target
from sessions_app.storage.session_loader import load_session
from tests.installation import refusal

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
    rolled_back,
    summarised,
    thread,
    turn_context,
    user,
    world_state,
)

COMPACTED, FORK, FULLER = CompactedWriter(READER), ThreadForkWriter(READER), FullerList(READER)


def written(writer: SessionWriter, before: Parsed, *deleted: str | Target, leaf: str = "", **facts: Any) -> Any:
    """What a writer makes of a branch; the facts are those of the file unless others are given."""
    branch = before.tree.branch(leaf) if leaf else before.branch
    if "session" in facts:
        facts["session"] = str(facts["session"])
    return writer.write(branch, deletion(*deleted), replace(before.facts(), **facts))


def appended(rollout: Rollout, *deleted: str | Target) -> tuple[Parsed, list[Any]]:
    """The session after a deletion, and the lines that were appended."""
    lines = written(COMPACTED, Parsed(rollout.content), *deleted).lines
    return Parsed(rollout.with_lines(lines).content), [json.loads(one) for one in lines]


def simple(*more: Item, **fields: Any) -> Rollout:
    return Rollout(meta(), developer(), user("a"), call("c1"), output("c1"), answer("b"), *more, **fields)


def test_the_survivors_are_the_context_and_the_line_continues_the_ordinals_and_says_where_the_backup_is():
    after, (recorded,) = appended(simple(), "3", "4")
    assert after.ids() == ["1", "2", "5"]
    assert kept(after.sent()) == ["rules", "a", "b"]
    assert list(recorded) == ["timestamp", "ordinal", "type", "payload"]
    assert (recorded["ordinal"], recorded["type"]) == (6, "compacted")
    assert recorded["timestamp"] == "2026-01-05T11:00:00.000Z"
    payload = recorded["payload"]
    assert (payload["message"], payload["redline"]["backup"]) == ("", "/backup")
    assert not [name for name in payload if "window" in name], "a thread without windows gets none"


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


def test_the_items_have_their_recorded_bytes_and_a_block_is_left_out_of_its_item():
    odd = rb'{"type":"message", "role":"user","content":[ {"type":"input_text","text":"\u00e9 1.0"} ],"n":1.50,"n":2}'
    raw = b'{"ordinal":1,"type":"response_item","payload": ' + odd + b" }"
    (recorded,) = written(COMPACTED, parsed(meta(), raw)).lines
    assert odd in recorded
    after, (recorded,) = appended(Rollout(meta(), user("a"), answer("x", "y", "z")), Target("2", 1))
    assert recorded["payload"]["replacement_history"][1] == answer("x", "z")
    assert kept(after.sent()) == ["a", "x z"]


def baseline_of(*recorded: Item) -> list[str]:
    _, lines = appended(Rollout(meta(), user("a"), answer("b"), *recorded), "2")
    assert [one["ordinal"] for one in lines] == list(range(lines[0]["ordinal"], lines[0]["ordinal"] + len(lines)))
    return [one["type"] for one in lines[1:]]


FULL, CHANGED, TURN = world_state(), world_state(full=False), turn_context()


@pytest.mark.parametrize(
    ("recorded", "repeated"),
    [
        pytest.param([FULL, TURN], "world_state turn_context", id="both lines"),
        pytest.param(
            [FULL, CHANGED, FULL, CHANGED, TURN], "world_state world_state turn_context", id="from the last full one on"
        ),
        pytest.param([FULL], "", id="no turn"),
        pytest.param([TURN], "", id="no state"),
        pytest.param([CHANGED, TURN], "", id="no full state"),
        pytest.param([FULL, TURN, compacted(user("a"), answer("b"))], "", id="before a compaction"),
        pytest.param([FULL, TURN, user("c"), rolled_back(1)], "world_state turn_context", id="before a rollback"),
    ],
)
def test_the_baseline_of_the_added_context_is_repeated(recorded, repeated):
    assert baseline_of(*recorded) == repeated.split()


def brought_back(
    rollout: Rollout, deleted: tuple[str | Target, ...], back: tuple[str, ...], said: tuple[Item, ...] = ()
) -> Parsed:
    before = Parsed(rollout.content)
    change = written(COMPACTED, before, *deleted)
    with_said = rollout.with_lines([*change.lines, *Rollout(*said, first=90).lines])
    present = Parsed(with_said.content)
    messages = [one for one in before.context().messages if one.entry.id in back]
    return Parsed(with_said.with_lines(FULLER(present.branch, messages, {}, present.facts())).content)


def test_what_comes_back_has_its_place_again_and_an_entry_that_lost_a_block_is_whole():
    after = brought_back(simple(), ("3", "4", "5"), ("3", "4"), (user("more"),))
    assert kept(after.sent()) == ["rules", "a", "function_call c1", "function_call_output c1", "more"]
    assert after.ids() == ["1", "2", "3", "4", "90"]
    after = brought_back(Rollout(meta(), user("a"), answer("x", "y"), user("b")), (Target("2", 0),), ("2",))
    assert kept(after.sent()) == ["a", "x y", "b"]


def save(directory: Path, change: NewFile) -> Path:
    path = directory / change.name
    path.write_bytes(b"".join(change.pieces))
    return path


def header_of(change: NewFile) -> dict[str, Any]:
    """What the first line of a fork says."""
    payload: dict[str, Any] = json.loads(next(iter(change.pieces)))["payload"]
    return payload


def forked(directory: Path, rollout: Rollout, *deleted: str, leaf: str = "") -> Path:
    return save(
        directory, written(FORK, Parsed(rollout.content), *deleted, leaf=leaf, session=str(rollout.save(directory)))
    )


def read(path: Path) -> Parsed:
    with CODEX.store.open(path) as reader:
        return Parsed(b"".join(reader.chunks(0)))


def test_a_fork_continues_the_original_and_stays_as_it_is_while_that_grows(tmp_path):
    found = read(forked(tmp_path, simple(), "3", "4"))
    assert kept(found.sent()) == ["rules", "a", "b"]
    assert not found.parser.damage
    header = found.log.header
    assert (header.id, header.parent_session) == ("01a20000-0000-7000-8000-00000000000f", THREAD)
    rollout = simple()
    new = forked(tmp_path, rollout, "5")
    rollout.with_lines(Rollout(user("later"), first=6).lines).save(tmp_path)
    assert kept(read(new).sent()) == ["rules", "a", "function_call c1", "function_call_output c1"]


def test_the_header_of_a_fork_names_the_end_of_the_original(tmp_path):
    rollout = simple()
    new = forked(tmp_path, rollout, "5")
    header, boundary = map(json.loads, new.read_bytes().splitlines())
    assert new.name == "rollout-2026-01-05T11-00-00-01a20000-0000-7000-8000-00000000000f.jsonl"
    expected = {"thread_id": THREAD, "end_ordinal_exclusive": 6, "end_byte_offset": len(rollout.content)}
    assert header["payload"]["history_base"] == expected
    assert (header["ordinal"], boundary["ordinal"]) == (6, 7)
    assert header["payload"]["cwd"] == "/work"
    first, payload = header["payload"]["context_window"]["window_id"], boundary["payload"]
    assert payload["first_window_id"] == payload["previous_window_id"] == first != payload["window_id"]


def test_a_fork_of_a_fork_continues_its_own_file_and_can_begin_before_a_compaction_or_in_its_base(tmp_path):
    new = forked(tmp_path, simple(), "5")
    base = header_of(written(FORK, read(new), "3", "4", session=str(new)))["history_base"]
    assert (base["thread_id"], base["end_byte_offset"]) == (new.stem[-36:], new.stat().st_size)
    third = tmp_path / "rollout-2026-01-05T12-00-00-01a20000-0000-7000-8000-0000000000bb.jsonl"
    third.write_bytes(b"".join(written(FORK, read(new), leaf="4", session=str(new)).pieces))
    assert kept(read(third).sent()) == ["rules", "a", "function_call c1", "function_call_output c1"]


def test_an_opaque_compaction_is_undone_by_what_was_recorded_before_it(tmp_path):
    opaque = {"type": "compaction", "encrypted_content": "x"}
    rollout = Rollout(meta(), user("a"), answer("b"), compacted(user("a"), opaque))
    assert kept(Parsed(rollout.content).sent()) == ["a", "compaction"]
    assert kept(read(forked(tmp_path, rollout, leaf="2")).sent()) == ["a", "b"]


def test_the_fork_of_a_segment_names_the_segment(tmp_path):
    segment = "01a20000-0000-7000-8000-0000000000aa"
    path = tmp_path / f"rollout-2026-01-05T10-00-00-{THREAD}_{segment}.jsonl"
    header = header_of(written(FORK, Parsed(simple().content), session=str(path)))
    assert (header["history_base"]["thread_id"], header["forked_from_id"]) == (segment, THREAD)


LEGACY = simple(user("c"), paginated=False)
OLDER_FORK = ThreadForkWriter(OLDER_READER, knows_bases=False)


@pytest.mark.parametrize("writer", [FORK, OLDER_FORK])
def test_a_fork_of_a_legacy_thread_has_a_copy_of_its_lines(tmp_path, writer):
    rollout = simple(user("c"), paginated=False)
    rollout.lines[3:3] = [b"damaged", b""]
    before = Parsed(rollout.content)
    new = save(tmp_path, written(writer, before, "6", "7"))
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
    before = Parsed(LEGACY.with_lines(Rollout(summarised("so far"), paginated=False).lines).content)
    assert kept(before.sent()) == ["a", "c", "so far"]
    change = written(FORK, before, leaf="7")
    assert kept(Parsed(b"".join(change.pieces)).sent()) == kept(Parsed(LEGACY.content).sent())


def test_old_versions_do_not_fork_a_paginated_thread_and_no_version_an_open_legacy_or_an_archived_one():
    paginated, legacy = thread(user("a")), parsed(meta(), user("a"), paginated=False)
    archived = Path("/codex/archived_sessions/rollout-x.jsonl")
    assert refusal(lambda: written(OLDER_FORK, paginated)) == "2 newer_thread"
    assert refusal(lambda: written(FORK, legacy, is_open=True)) == "4 open_in_agent"
    assert refusal(lambda: written(FORK, paginated, is_open=True)) == "done"
    assert refusal(lambda: written(FORK, paginated, session=str(archived))) == "2 archived_thread"


def test_a_fork_of_the_clients_own_fork_has_the_header_of_the_thread():
    """It begins with its own header, and the copied lines with that of the thread that it continues."""
    other = "01a20000-0000-7000-8000-000000000002"
    before = parsed(meta(other, cwd="/own"), meta(THREAD, cwd="/first"), user("a"), paginated=False)
    first, second, *_ = map(json.loads, written(FORK, before).pieces)
    assert (first["payload"]["cwd"], first["payload"]["forked_from_id"]) == ("/own", other)
    assert second["payload"]["id"] == THREAD


texts = st.sampled_from(["a", "b"])
recorded_items = st.one_of(
    *(texts.map(builder) for builder in (user, answer, reasoning, call, output, summarised)),
    st.builds(answer, texts, texts),
    *map(st.just, (developer(), environment(), FULL, TURN, line("event_msg", {"type": "task_started"}))),
    st.lists(st.one_of(texts.map(user), texts.map(answer)), max_size=3).map(lambda found: compacted(*found)),
)


@given(st.lists(recorded_items, max_size=14), st.data(), st.booleans())
def test_every_deletion_gives_exactly_the_approved_context(recorded, data, paginated):
    rollout = Rollout(meta(), *recorded, paginated=paginated)
    before = Parsed(rollout.content)
    messages = before.context().messages
    deleted = {one.entry.id for one in messages if data.draw(st.booleans())}
    after, _ = appended(rollout, *deleted)
    left = [one for one in messages if one.entry.id not in deleted]
    expected = [CODEX.format.message_json(one, before.line(one.entry), None) for one in left]
    assert [CODEX.format.message_json(one, after.line(one.entry), None) for one in after.context().messages] == expected
    assert not after.parser.damage


@given(st.lists(recorded_items, max_size=14), st.data())
def test_bringing_everything_back_gives_the_context_before(recorded, data):
    rollout = Rollout(meta(), *recorded)
    before = Parsed(rollout.content)
    deleted = tuple(one.entry.id for one in before.context().messages if data.draw(st.booleans()))
    after = brought_back(rollout, deleted, deleted)
    assert sorted(map(json.dumps, after.sent())) == sorted(map(json.dumps, before.sent()))


def test_a_legacy_file_gets_no_ordinal_and_the_state_at_the_end_decides_it_in_others():
    after, (recorded,) = appended(simple(paginated=False), "4", "5")
    assert list(recorded) == ["timestamp", "type", "payload"]
    assert after.ids() == ["2", "3", "6"]
    before = thread(user("a"), answer("b"), line("event_msg", {"type": "task_complete"}))
    (recorded,) = map(json.loads, written(COMPACTED, before, "2").lines)
    assert recorded["ordinal"] == 4


RULES = CodexRules(READER)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (user("a"), Protection.USER),
        *((item, Protection.INJECTED) for item in (developer(), environment())),
        ({"type": "compaction", "encrypted_content": "x"}, Protection.SUMMARY),
        ({"type": "agent_message", "content": []}, Protection.CUSTOM),
        *((item, None) for item in (answer("a"), call(), output(), reasoning())),
    ],
)
def test_what_the_user_said_and_what_codex_adds_or_summarised_stays(item, reason):
    (message,) = RULES.compactable(thread(item).branch)
    assert RULES.protection(message.entry) == reason
    assert not RULES.replays(message.entry), "no thinking is replayed"


def companions(*items: Item) -> dict[str, tuple[str, ...]]:
    return dict(RULES.companions(RULES.compactable(thread(*items).branch)))


def test_reasoning_goes_with_everything_up_to_the_next_prompt_but_context_that_codex_adds():
    work = (reasoning("1"), answer("x"), call(), output(), reasoning("2"), answer("y"))
    found = companions(user("a"), *work, user("b"), answer("z"))
    assert found == {"2": ("3", "4", "5", "6"), "3": ("2",), "6": ("7",), "7": ("6",)}
    expected = {"1": ("2",), "2": ("3", "1"), "3": ("2",)}
    assert companions(reasoning("1"), reasoning("2"), answer("x")) == expected
    assert companions(reasoning("1"), environment(), answer("x")) == {"1": ("3",), "3": ("1",)}
    assert companions(user("a"), answer("x"), call(), output(), user("b"), reasoning("1")) == {}


CASES = {
    f"{generation.reader.name}-{writer.name}-{'paginated' if paginated else 'legacy'}": (generation, writer, paginated)
    for generation in CODEX.format.generations
    for writer in generation.writers
    for paginated in (True, False)
    if can_write(generation, writer, paginated=paginated)
}


@pytest.mark.parametrize("name", CASES)
def test_every_accepted_plan_gives_the_approved_context(name, tmp_path):
    """In threads made of real sessions, as in a commit."""
    (generation, writer, paginated), chance = CASES[name], random.Random(3)
    smallest = sorted(real_sessions(), key=lambda path: path.stat().st_size)[:2]
    made = [read_branch(path).recorded for path in smallest]
    for recorded in [*made, list(generate(entries=200, entry_bytes=600, seed=3))]:
        loaded = load_session(write_thread(tmp_path, recorded, paginated=paginated))
        for _ in range(3):
            plan = random_plan(loaded, generation, writer, chance, 30)
            notes = notes_on(plan.targets) if writer.holds_notes else {}
            certify_plan(loaded, generation, writer, plan, notes)
