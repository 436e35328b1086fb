"""Lines of a rollout become entries; what cannot be used is counted, and nothing raises."""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.pure.parser import ItemHistory
from sessions_app.sessionlog.entries import BlockType, BoundaryControl, Entry, EntryKind, ModelControl, Role
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import Line, split_lines
from sessions_app.sessionlog.session import DamageKind, Header, ParserState, read_session
from tests.sessions_app.agents.pi.test_parser import json_values

from .rollouts import (
    THREAD,
    Item,
    Parsed,
    Rollout,
    answer,
    call,
    compacted,
    developer,
    line,
    message,
    meta,
    output,
    parsed,
    reasoning,
    rolled_back,
    summarised,
    thread,
    token_count,
    turn_context,
    usage_record,
    user,
    world_state,
)


def described(item: Item) -> Any:
    found = thread(item)
    return found.entries[1], found.texts[found.entries[1].id]


def reparse_entry(found: Parsed, entry: Entry) -> Entry:
    return CODEX.format.reparse_entry(found.line(entry), entry, 1)[0]


INJECTED = (
    *("<environment_context>here", "# AGENTS.md instructions for /x", "<user_instructions>x", "<turn_aborted>x"),
    *(" \n<Turn_Aborted>x", "<user_shell_command>ls", "<subagent_notification>x", "<skill>x"),
)
"""Messages of the user's role that Codex adds."""
KIND = {"internal_chat_message_metadata_passthrough": {"content_item_kinds": ["environments.anything"]}}
"""What shows the same of any text."""


@pytest.mark.parametrize(
    ("item", "role", "text"),
    [
        (user("go"), Role.USER, "go"),
        (answer("yes"), Role.ASSISTANT, "yes"),
        (developer("rules"), Role.INJECTED, "rules"),
        (message("critic", "x"), "critic", "x"),
        *((user(text), Role.INJECTED, text) for text in INJECTED),
        (user("x", **KIND), Role.INJECTED, "x"),
        (user("<turn_abort>x"), Role.USER, "<turn_abort>x"),
        (user("about <turn_aborted>"), Role.USER, "about <turn_aborted>"),
        (reasoning("because"), Role.ASSISTANT, "because"),
        (call("c1", cmd="ls"), Role.ASSISTANT, 'toolCall c1 exec_command {"cmd": "ls"}'),
        *(
            ({"type": kind, "call_id": "c1", **fields}, Role.ASSISTANT, text)
            for kind, fields, text in (
                ("custom_tool_call", {"name": "apply_patch", "input": "***"}, "toolCall c1 apply_patch ***"),
                ("local_shell_call", {"action": {"command": ["ls"]}}, 'toolCall c1 local_shell {"command":["ls"]}'),
                ("tool_search_call", {"execution": "client", "arguments": {"q": 1}}, 'toolCall c1 tool_search {"q":1}'),
            )
        ),
        (output("c1", "done"), Role.TOOL_RESULT, "done"),
        (output("c1", [{"type": "input_text", "text": "a"}, {"type": "input_image"}]), Role.TOOL_RESULT, "a\n[image]"),
        ({"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}, Role.TOOL_RESULT, "ok"),
        ({"type": "tool_search_output", "call_id": "c1", "tools": []}, Role.TOOL_RESULT, ""),
        ({"type": "compaction", "encrypted_content": "abc"}, Role.COMPACTION_SUMMARY, "[encrypted]"),
        ({"type": "context_compaction", "encrypted_content": "abc"}, Role.COMPACTION_SUMMARY, "[encrypted]"),
        ({"type": "agent_message", "content": [{"type": "input_text", "text": "hi"}]}, Role.CUSTOM, "hi"),
        ({"type": "web_search_call", "action": {}}, Role.ASSISTANT, '{"type":"web_search_call","action":{}}'),
    ],
)
def test_items_have_a_role_and_a_text(item, role, text):
    entry, texts = described(item)
    assert (entry.kind, entry.role, entry.type) == (EntryKind.MESSAGE, role, item["type"])
    assert texts.joined(entry.blocks) == text


UNSENT: list[Item] = [
    *({"type": "ghost_snapshot", "ghost_commit": {}}, {"type": "from_the_future", "content": []}, {"type": 5}, {}),
    {"type": "function_call", "name": "x", "arguments": {}, "call_id": "c1"},
    *({"type": "function_call_output", "call_id": "c1"}, {"type": "message", "role": "user", "content": "text"}),
]


def test_items_that_codex_does_not_send_are_kept_outside_the_context():
    for item in UNSENT:
        found = thread(user("go"), item)
        assert (found.entries[2].kind, found.ids()) == (EntryKind.OTHER, ["1"]), item


def test_tokens_are_characters_by_four_but_of_images_and_of_reasoning_whose_base64_counts():
    assert described(user("x" * 41))[0].tokens == 11
    assert described(output(text="x" * 40))[0].tokens == 10
    assert described(call("c1", "tool"))[0].tokens == 2
    assert described({"type": "web_search_call", "id": "ws", "action": {"query": "x"}})[0].tokens < 30
    drawn = {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "aGk=" * 9_000}
    assert described(drawn)[0].tokens == 1_200
    summary = [{"type": "summary_text", "text": one} for one in ("a" * 40, "", "b" * 38)]
    for read, tokens, kind, text in (
        (summary, 20, BlockType.THINKING, f"{'a' * 40}\n\n{'b' * 38}"),
        ([], 300, BlockType.REDACTED_THINKING, ""),
    ):
        entry, texts = described({**reasoning(), "summary": read, "encrypted_content": "e" * 1600})
        assert (entry.tokens, {block.type for block in entry.blocks}) == (tokens, {kind})
        assert texts.joined(entry.blocks) == text


def header_of(*recorded: Item) -> Header:
    header = parsed(*recorded).log.header
    assert header is not None
    return header


def test_the_header_is_that_of_the_session_and_names_the_parent_but_is_not_a_copied_one_of_another_thread():
    header = header_of(meta(forked_from_id="parent", timestamp="t"), meta("another"), user("go"))
    assert (header.id, header.cwd, header.timestamp) == (THREAD, "/work", "t")
    assert header.parent_session == "parent"
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "parent", "depth": 1}}}
    header = header_of(meta(parent_thread_id="parent", source=source))
    assert (header.parent_session, header.is_subagent) == ("parent", True)
    assert not header_of(meta(forked_from_id="parent", source="exec")).is_subagent


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("0.104.0", (0, 104, 0)), ("0.0.0", None), ("0.170.0-alpha.2", None), (None, None), (["0.169.0"], None)],
)
def test_the_first_line_records_the_version_that_began_the_thread(version, numbers):
    found = parsed(meta(cli_version=version), meta("another", cli_version="0.2.0"), user("go"))
    recorded = CODEX.format.recorded_version(found.log.state)
    assert (recorded and recorded.numbers) == numbers


def test_lines_beside_the_conversation_are_in_no_branch():
    beside = line("event_msg", {"type": "task_started"}), line("token_usage_record", {}), line("new", {})
    found = thread(user("go"), *beside)
    assert [entry.is_off_branch for entry in found.entries] == [False, False, True, True, True]
    assert [entry.id for entry in found.branch] == ["0", "1"]
    assert found.entries[2].type == "task_started"


def test_a_turn_names_the_model():
    entry = thread(turn_context("gpt-5")).entries[1]
    assert (entry.kind, entry.model) == (EntryKind.MODEL, ("openai", "gpt-5"))
    assert entry.control == ModelControl("", "gpt-5")


def test_an_entry_is_named_after_its_ordinal_or_in_a_legacy_file_after_its_line():
    assert [one.id for one in thread(user("a"), user("b")).entries] == ["0", "1", "2"]
    legacy = parsed(meta(), user("a"), b"", user("b"), paginated=False)
    assert [one.id for one in legacy.entries] == ["1", "2", "4"]
    repeated = [json.dumps(line("response_item", user(text), ordinal=5)).encode() for text in "abc"]
    assert [one.id for one in parsed(*repeated, b"", user("d")).entries] == ["5", "5-2", "5-3", "4-5"]


def reported(found: Parsed) -> dict[str, int]:
    return {entry.id: entry.usage for entry in found.branch if entry.usage}


def test_a_report_of_tokens_belongs_to_the_answer_or_call_before_it_and_counts_once():
    first = (user("go"), answer("a"), call("c1"), usage_record(100, 100), output("c1"))
    found = thread(*first, token_count(100, 100), answer("b"), token_count(150, 250))
    assert reported(found) == {"3": 100, "7": 150}
    assert [entry.usage for entry in found.entries if entry.is_off_branch] == [100, None, 150]
    assert found.context().usage.tokens == 150
    found = thread(user("go"), call("c1"), output("c1", "x" * 40), token_count(100, 100))
    assert reported(found) == {"2": 100}
    assert found.context().usage.tokens == 110


def test_the_window_is_the_latest_that_an_event_names():
    def event(kind: str, **fields: Any) -> Item:
        return line("event_msg", {"type": kind, **fields})

    started = event("task_started", model_context_window=400_000)
    counted = event("token_count", info={"model_context_window": 258_400})
    unusable = [event("token_count", info={"model_context_window": one}) for one in (None, 0, -1, "9", 1 << 40)]
    windows = [
        Parsed(Rollout(meta(), user("Go."), *events).content).parser.state.window
        for events in ((), (started,), (started, counted), (counted, *unusable))
    ]
    assert windows == [None, 400_000, 258_400, 258_400]


def test_an_output_has_the_name_of_its_tool_and_as_a_call_the_id_of_the_pair():
    found = thread(call("c1", "a"), call("c2", "b"), output("c2"), output("c1"), output("c1"), output("c3"))
    assert [entry.tool_name for entry in found.entries[3:]] == ["b", "a", "", ""]
    assert reparse_entry(found, found.entries[3]).tool_name == "b"
    assert [list(entry.call_ids()) for entry in found.entries[1:3]] == [["c1"], ["c2"]]
    assert [entry.result_for for entry in found.entries[3:]] == ["c2", "c1", "c1", "c3"]


def test_the_thread_of_a_subagent_is_named_by_the_output_of_its_call():
    named = json.dumps({"agent_id": "01a2-child", "nickname": "Locke"})
    texts = [named, "no JSON", "[]", '{"agent_id": 7}', ["a list"]]
    calls = [call(f"c{place}", "spawn_agent") for place in range(len(texts))]
    outputs = [output(f"c{place}", text) for place, text in enumerate(texts)]
    found = thread(*calls, *outputs, call("c9"), output("c9", named))
    results = [entry.subagent for entry in found.entries if entry.result_for is not None]
    assert results == ["01a2-child", "", "", "", "", ""]


STARTED: Item = {"type": "SubAgentActivity", "id": "c1", "kind": "started", "agent_thread_id": "01a2-child"}


@pytest.mark.parametrize(
    ("item", "subagent"),
    [
        *((STARTED, "01a2-child"), ("text", "")),
        *(({**STARTED, **other}, "") for other in ({"kind": "finished"}, {"id": 5}, {"id": "other"})),
        ({**STARTED, "agent_thread_id": None}, ""),
    ],
)
def test_newer_versions_name_the_thread_of_a_subagent_in_an_event(item, subagent):
    event = line("event_msg", {"type": "item_completed", "item": item})
    found = thread(call("c1", "spawn_agent"), event, output("c1", '{"task_name": "/root/one"}'))
    entry = found.entries[-1]
    assert entry.subagent == reparse_entry(found, entry).subagent == subagent


def control(found: Parsed, entry_id: str) -> BoundaryControl:
    value = found.tree.entry(entry_id).control
    assert isinstance(value, BoundaryControl)
    return value


def test_items_of_a_compaction_that_were_recorded_before_are_those_entries():
    found = thread(user("a"), answer("b"), user("c"), compacted(user("c"), user("a"), answer("new")))
    assert control(found, "4").kept == ("3", "1", "4.3")
    part = found.tree.entry("4.3")
    assert json.loads(found.line(part)) == answer("new")
    assert (part.number, part.role, part.kind) == (5, Role.ASSISTANT, EntryKind.MESSAGE)


NOTE = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}, "metadata": {"x": 1}}
TURNS = (user("a"), answer("b"), user("c"), answer("d"))
KEPT: dict[str, tuple[list[Item], dict[str, str]]] = {
    "metadata does not make an item another one, but an id does": (
        [user("a"), user("b", id="m1"), compacted(user("a", **NOTE), user("b", id="m2"))],
        {"3": "1 3.2"},
    ),
    "equal items are taken in order and once": (
        [user("x"), answer("y"), user("x"), compacted(answer("y"), user("x"), user("x"), user("x"))],
        {"4": "2 3 1 4.4"},
    ),
    "a part of an earlier compaction is known as well": (
        [user("a"), compacted(answer("new")), user("b"), compacted(answer("new"), user("b"))],
        {"4": "2.1 3"},
    ),
    "a summary of other words is a prompt for the next one": (
        [user("a"), summarised("so far"), user("b"), summarised("more")],
        {"4": "1 2.1 3 4.1"},
    ),
    "turns that were rolled back are gone from the history that follows": (
        [*TURNS, user("e"), rolled_back(2), user("f"), summarised("s")],
        {"6": "1 2", "8": "1 7 8.1"},
    ),
    **{
        f"a rollback of {turns} turns cuts before a prompt": ([*TURNS, rolled_back(turns)], {"5": left})
        for turns, left in {0: "1 2 3 4", 1: "1 2", 2: "", 9: ""}.items()
    },
}
"""Items, and what their boundaries keep."""


@pytest.mark.parametrize("name", KEPT)
def test_a_boundary_keeps(name):
    items, expected = KEPT[name]
    found = thread(*items)
    assert {entry_id: " ".join(control(found, entry_id).kept) for entry_id in expected} == expected


def test_many_equal_items_are_not_compared_with_each_other():
    count = 100_000
    history = ItemHistory({"ids": list(map(str, range(count))), "by_digest": {"x": list(range(count))}})
    assert history.places_of(["x"] * (count + 1)) == [*range(count), None]


SUMMARY = "Another model began. It left this:\nall of it"


def summed_up() -> Item:
    """A compaction of newer versions: its last item is the summary."""
    return compacted(user("a"), user(SUMMARY), message=SUMMARY)


@pytest.mark.parametrize("boundary", [summed_up(), summarised(SUMMARY)])
def test_a_compaction_begins_with_the_answer_that_is_its_summary(boundary):
    found = thread(user("a"), reasoning("b"), answer("c"), answer("all of it"), boundary)
    assert control(found, "5").began_id == "4"
    found = thread(user("a"), answer("c"), reasoning("b"), answer("all of it"), usage_record(1, 1), boundary)
    assert control(found, "6").began_id == "3"


@pytest.mark.parametrize(
    "before",
    [
        *([answer("something else")], [answer("")], [user("all of it")], [reasoning("all of it")], []),
        *([answer("all of it"), user("on")], [answer("all of it"), call()]),
    ],
)
def test_an_answer_before_a_compaction_that_is_not_its_summary_is_of_the_conversation(before):
    assert control(thread(*before, summarised(SUMMARY)), str(len(before) + 1)).began_id is None


def test_a_summary_without_items_keeps_the_prompts_and_unknown_items_are_shown_and_not_sent():
    found = thread(user("a"), compacted(user("a"), {"type": "future"}, 5))
    assert control(found, "2").kept == ("1",)
    assert [entry.id for entry in found.entries] == ["0", "1", "2", "2.2", "2.3"]
    nothing = thread(user("a"), line("compacted", {}))
    assert (nothing.tree.entry("2").kind, nothing.ids()) == (EntryKind.OTHER, ["1"])
    found = thread(developer(), user("a"), answer("b"), user("c"), summarised("so far"))
    assert control(found, "5").kept == ("2", "4", "5.1")
    assert found.line(found.tree.entry("5.1")) == b'"so far"'
    assert found.texts["5.1"].whole == "so far"


def test_the_summary_of_codex_is_recognised_and_an_answer_belongs_to_the_compaction_after_it():
    found = thread(user("a"), compacted(user("a"), user("so far"), message="so far"), summarised("s"))
    part = found.tree.entry("2.2")
    assert part.role == reparse_entry(found, part).role == Role.COMPACTION_SUMMARY
    assert control(found, "3").kept == ("1", "3.1")
    found = thread(answer("all of it"), summed_up(), summed_up())
    assert [control(found, entry_id).began_id for entry_id in "23"] == ["1", None]


def test_a_part_of_a_message_without_a_type_is_unknown():
    odd = {"type": "message", "role": "user", "content": [{"text": "a"}, {"type": "input_new", "n": 1}, 5]}
    (entry,) = thread(odd).entries[1:]
    assert [block.type for block in entry.blocks or ()] == [BlockType.UNKNOWN, "input_new", BlockType.UNKNOWN]


def test_bytes_that_are_no_object_any_more_are_no_entry():
    place = thread(user("a")).entries[-1]
    for raw in (b"[1]", b'"text"', b"null", b"{"):
        assert CODEX.format.reparse_entry(raw, place, 1) is None


def damage_of(found: Parsed) -> list[DamageKind]:
    return [one.kind for one in found.parser.damage]


def test_damage_is_counted_and_the_rest_is_read():
    found = thread(b'{"type":"response_item","payl', b"5", b"\xff\xfe", user("a"))
    assert damage_of(found) == [DamageKind.NOT_JSON, DamageKind.NOT_AN_OBJECT, DamageKind.NOT_JSON]
    assert found.ids() == ["4"]
    said = ("a \ud83d", "b \\ud83d", "c \ud83d\ude00", "d BYTE", "e")
    halved = Parsed(Rollout(meta(), *map(user, said)).content.replace(b"BYTE", b"\xff"))
    assert halved.ids() == ["2", "3", "5"], "Codex skips a line with half of a surrogate pair, or with invalid UTF-8"
    assert "half of a surrogate pair" in halved.parser.damage[0].detail
    without_base = parsed(meta(history_base={"thread_id": "x", "end_byte_offset": 5}), user("a"))
    assert damage_of(without_base) == [DamageKind.MISSING_PARENT]


def test_a_file_without_known_lines_is_not_a_session():
    with pytest.raises(BadInput, match="not a session"):
        read_session(CODEX.format.parser(ParserState(), []), split_lines([b'{"type":"other"}\n']), "x")


def test_a_last_line_without_its_newline_is_read_but_not_remembered():
    content = Rollout(meta(), user("a")).content
    torn = json.dumps(line("response_item", user("b"), ordinal=2)).encode()
    found = Parsed(content + torn)
    before = found.parser.state.next_offset
    assert found.ids() == ["1", "2"]
    assert before == len(content)
    state = msgspec.convert(msgspec.to_builtins(found.parser.state), ParserState)
    (recorded,) = CODEX.format.parser(state, []).read(Line(3, before, torn))
    assert recorded.entry.id == "2"


texts = st.sampled_from(["a", "b", "c"])
items = st.one_of(*(texts.map(builder) for builder in (user, answer, developer, call, output)))
lines = st.one_of(
    items,
    st.lists(items, max_size=4).map(lambda found: compacted(*found)),
    texts.map(summarised),
    st.integers(0, 3).map(rolled_back),
    *map(st.just, (turn_context(), world_state())),
    st.builds(usage_record, st.integers(1, 9), st.integers(1, 9)),
)


@given(st.lists(lines, max_size=12), st.integers(0, 12))
def test_reading_on_gives_the_same_as_reading_at_once(recorded, cut):
    whole = Rollout(meta(), *recorded)
    first = Parsed(b"".join(one + b"\n" for one in whole.lines[: cut + 1]))
    state = first.parser.state
    stored = copy.deepcopy(msgspec.to_builtins(state))
    parser = CODEX.format.parser(msgspec.convert(msgspec.json.decode(msgspec.json.encode(stored)), ParserState), [])
    chunk = split_lines([whole.content[state.next_offset :]], offset=state.next_offset, number=state.next_number)
    later = [found.entry for one in chunk for found in parser.read(one)]
    assert [*first.entries, *later] == Parsed(whole.content).entries
    assert msgspec.to_builtins(state) == stored


@given(st.lists(lines, max_size=12))
def test_every_entry_is_read_again_from_its_bytes(recorded):
    found = thread(*recorded)
    for entry in found.entries:
        again = CODEX.format.reparse_entry(found.line(entry), entry, 1)
        assert (again[0].role, again[0].tokens, again[0].blocks) == (entry.role, entry.tokens, entry.blocks)
        assert again[1] == found.texts[entry.id]


kinds = st.sampled_from(
    ["session_meta", "response_item", "compacted", "event_msg", "turn_context", "token_usage_record", "world_state", ""]
)
payloads = json_values | st.fixed_dictionaries(
    {
        "type": st.sampled_from(["message", "reasoning", "function_call", "thread_rolled_back", "token_count", "x"]),
        "name": st.text(max_size=3),
        **dict.fromkeys(("role", "content", "summary", "arguments", "call_id"), json_values),
        **dict.fromkeys(("replacement_history", "message", "num_turns", "info", "history_base"), json_values),
    }
)


@given(st.lists(st.tuples(kinds, payloads, json_values), max_size=6), st.binary(max_size=20))
def test_nothing_raises(recorded, tail):
    raws = [json.dumps({"type": kind, "payload": payload, "ordinal": place}) for kind, payload, place in recorded]
    found = Parsed("".join(one + "\n" for one in raws).encode() + tail)
    if found.entries and not all(entry.is_off_branch for entry in found.entries):
        assert len(found.sent()) >= 0
    assert len({entry.id for entry in found.entries}) == len(found.entries)
