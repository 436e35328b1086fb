"""What the writers record: an appended line that lists what remains, or a fork with nothing else of the old session.

Whatever plan the airlock accepts, the written session has the approved context, again and again.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction_app.changes.change import lines_of, write_facts
from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.transcript import prepare
from devtools.bench.written_plans import WRITTEN_AT, notes_on, random_plan, require_approved_context, write_plan
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.claude_code.pure.writers import is_one_of_several, line_without, moved_line
from sessions_app.agents.reading import Reading
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry, EntryKind, Protection, Role, Target, request_of
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import ParserState
from sessions_app.storage.session_loader import load_session
from tests.budget import seeds
from tests.claude_sessions import SESSION_ID, ClaudeSession, answer, at, call, text, thinking
from tests.files import append_as_agent, place, snapshot, unchanged
from tests.installation import refusal
from tests.paths import corpus

from .sent_messages import CURRENT, OLDER, parsed
from .writing import WRITERS, Talk, by_id, context_ids, context_of, lines_of_file, put, story, written


@pytest.fixture
def talk(tmp_path):
    return Talk(tmp_path)


def boundary_of(path: Path) -> dict[str, object]:
    line = lines_of_file(path)[-1]
    assert (line["type"], line["subtype"]) == ("system", "compact_boundary")
    return line


def test_one_line_is_appended_that_lists_what_remains_in_the_order_of_the_context(talk):
    before = talk.put().read_bytes()
    path = talk.deleted(talk["c1"], talk["r1"])
    assert path.read_bytes().startswith(before)
    assert len(lines_of_file(path)) == len(talk.session.lines) + 1
    line, newest = boundary_of(path), context_of(path).newest_compaction
    metadata = line["compactMetadata"]
    kept = [talk[name] for name in ("p1", "env", "t1", "s1", "c2", "r2", "a1", "p2", "a2")]
    assert metadata["preservedMessages"] == {"anchorUuid": line["uuid"], "uuids": kept, "allUuids": kept}
    # Its other fields are those that the client's own compaction reads.
    assert (metadata["trigger"], metadata["cumulativeDroppedTokens"]) == ("manual", 0)
    assert {"preTokens", "postTokens", "durationMs", "preCompactOrganizationsCoverStart"} <= metadata.keys()
    assert (line["sessionId"], newest.kind) == (SESSION_ID, EntryKind.BOUNDARY)
    assert context_ids(path) == kept
    later = talk.continued(path)
    assert context_ids(path) == [*kept, *later]


def test_a_client_that_reads_no_list_finds_the_whole_old_conversation_up_to_an_earlier_compaction(talk):
    line = boundary_of(talk.deleted(talk["a1"]))
    segment = {"headUuid": talk["p1"], "anchorUuid": line["uuid"], "tailUuid": talk["a2"]}
    assert line["compactMetadata"]["preservedSegment"] == segment
    assert (line["parentUuid"], line["logicalParentUuid"]) == (None, talk["a2"])
    talk.session.boundary()
    summary = talk.session.user("what was said", isCompactSummary=True)
    (answer,) = talk.session.reply("m4")
    assert boundary_of(talk.deleted(answer))["compactMetadata"]["preservedSegment"]["headUuid"] == summary


def test_the_lines_that_a_compaction_kept_stay_between_its_summary_and_what_follows(talk):
    summary = f"{talk.session.new_id()[:-12]}{len(talk.session.lines) + 1:012}"
    talk.session.boundary(talk["p2"], talk["a2"], anchor=summary)
    assert talk.session.user("what was said", isCompactSummary=True) == summary
    (later,) = talk.session.reply("m4")
    assert context_ids(talk.put()) == [summary, talk["p2"], talk["a2"], later]
    assert context_ids(talk.deleted(talk["a2"])) == [summary, talk["p2"], later]


@pytest.mark.parametrize("back", [("a1",), ("c2", "r2"), ("a1", "c2", "r2")], ids="-".join)
def test_another_one_brings_lines_back_at_their_places(talk, back):
    whole = context_of(talk.put())
    path = talk.deleted(talk["a1"], talk["c2"], talk["r2"])
    later = talk.continued(path)
    loaded = load_session(path)
    sought = [message for message in whole.messages if message.entry.id in {talk[name] for name in back}]
    with lines_of(loaded) as line:
        facts = write_facts(loaded, line, path, WRITTEN_AT)
        (added,) = CURRENT.restore_lines(loaded.tree.branch(loaded.leaf_id), sought, {}, facts)
    append_as_agent(path, added + b"\n")
    left = [line for name, line in talk.ids.items() if name in back or name not in ("a1", "c2", "r2")]
    assert context_ids(path) == [*left, *later]


def test_a_line_with_several_blocks_is_left_to_the_fork(tmp_path):
    session = ClaudeSession("p1")
    session.assistant("m1", text("s1"), call("c1"))
    session.node("user", None, message={"role": "user", "content": [answer("c1", "one"), text("and more")]})
    loaded = load_session(put(session, tmp_path))
    protected = {
        entry.id: (WRITERS["boundary"].protection(entry), WRITERS["fork"].protection(entry))
        for entry in loaded.tree.branch(loaded.leaf_id)
    }
    free, refused = (None, None), (Protection.NOT_EDITABLE, None)
    assert list(protected.values()) == [free, refused, refused, refused]


def test_a_line_without_an_id_cannot_be_listed(talk):
    talk.session.lines[0] = talk.session.lines[0].replace(f'"uuid": "{talk["p1"]}", '.encode(), b"")
    assert context_ids(talk.put())[0] == "line-1"
    assert refusal(lambda: talk.deleted(talk["a1"])) == "2 no_line_id"


def state_after(content: bytes) -> ParserState:
    return parsed(content)[0].state


def refusal_after(*versions: object) -> str:
    """Why a boundary is refused to a session of lines with these versions; None for a line without one."""
    session = ClaudeSession()
    for version in versions:
        session.user("said", version=version)
        if version is None:
            session.lines[-1] = session.lines[-1].replace(b', "version": null', b"")
    reading = Reading(CLAUDE_CODE, CURRENT, "").of_session(state_after(session.content))
    assert [writer.name for writer in reading.writers][-1] == "fork"
    assert ("boundary" in reading.refused) == (reading.writer().name == "fork")
    return reading.refused.get("boundary", "")


def test_a_session_that_a_new_client_continued_last_can_have_a_boundary_and_one_of_an_old_client_none():
    newer = (["2.1.143"], ["2.1.330"], ["2.2.0"], ["2.1.112", "2.1.143"], ["2.1.330", None], ["nightly", "10.0.0"])
    for versions in newer:
        assert not refusal_after(*versions), versions
    for version, *more in (["2.1.142"], ["2.1.112"], ["2.1.112", None]):
        refusal = refusal_after("2.1.330", version, *more)
        assert f"version {version} of Claude Code, and no version before 2.1.143" in refusal


HUGE, OTHER_DIGITS = "9" * 5_000 + ".0.0", "٢.١.٣٣٠"


@pytest.mark.parametrize(
    "version",
    [None, "nightly", "", "2.1.330-beta.1", "2.1", HUGE, OTHER_DIGITS, 3, ["2.1.330"]],
    ids=lambda version: repr(version)[:12].encode("ascii", "replace").decode(),
)
def test_a_session_that_does_not_show_its_last_client_gets_none(version):
    before = () if version is None else ("2.1.330",)
    assert "does not show which version continued it last" in refusal_after(*before, version)


def test_neither_what_stands_beside_the_conversation_nor_an_unfinished_line_shows_a_client():
    session = ClaudeSession("said", version="2.1.112")
    session.beside(type="custom-title", customTitle="named later", version="2.1.330")
    assert "boundary" in CLAUDE_CODE.format.refused_writers(state_after(session.content))
    session.user("said", version="2.1.330")
    assert "boundary" not in CLAUDE_CODE.format.refused_writers(state_after(session.content))
    assert "boundary" in CLAUDE_CODE.format.refused_writers(state_after(session.content.rstrip()))


def test_a_client_that_never_honours_a_boundary_is_not_said_to_refuse_one():
    reading = Reading(CLAUDE_CODE, CLAUDE_CODE.format.generations[1], "").of_session(ParserState())
    assert not reading.refused
    with pytest.raises(BadInput, match="does not honour boundary"):
        reading.writer("boundary")


CHANGED = re.compile(
    rb'"(?:parentUuid|sessionId|entrypoint)": ?(?:null|"[^"]*")|"usage": ?\{[^{}]*\}|"forkedFrom":\{[^{}]*\},'
)


def fork_of(talk: Talk, *targets: str) -> tuple[Path, list[dict[str, Any]]]:
    """The fork without these lines, and its lines; the session itself is not touched."""
    path = talk.put()
    with unchanged(path):
        fork = written(path, "fork", *map(Target, targets)).path
    return fork, lines_of_file(fork)


def test_each_line_follows_the_one_before_it_in_a_session_that_is_named_after_its_file(talk):
    fork, lines = fork_of(talk, talk["c1"], talk["r1"], talk["a1"])
    *nodes, title = lines
    assert [line["uuid"] for line in nodes] == context_ids(fork)
    assert [line["parentUuid"] for line in nodes] == [None, *(line["uuid"] for line in nodes[:-1])]
    assert {line["sessionId"] for line in lines} == {fork.stem}
    assert title["type"] == "custom-title"
    # A headless session becomes one that the client lists.
    assert {line["entrypoint"] for line in nodes} == {"cli"}


def test_what_survives_keeps_every_other_byte(talk):
    session = talk.session
    odd = (
        f'{{ "type":"user","uuid":"odd", "parentUuid" : "{session.last}","n":1.50,"timestamp":'
        '"2026-11-20T10:30:00.000Z","message":{"role":"user" ,"content":"na\\u00efve 🙂 \\ud800"}}'
    )
    session.lines.append(odd.encode())
    fork, _ = fork_of(talk, talk["a1"])
    recorded = [line for line in session.lines if talk["a1"].encode() not in line.split(b'"uuid"')[1]]
    bare = [CHANGED.sub(b"", line) for line in fork.read_bytes().splitlines()[:-1]]
    assert bare[:-1] == [CHANGED.sub(b"", line) for line in recorded[:-1]]
    assert odd.encode().partition(b'"n"')[2] in fork.read_bytes()


def test_no_line_reports_used_tokens(talk):
    talk.session.reply("m1", text("a"), text("b"), input_tokens=180_000, cache_read_input_tokens=9)
    usages = [line["message"]["usage"] for line in fork_of(talk)[1] if line["type"] == "assistant"]
    assert len(usages) > 2
    assert not any(any(usage.values()) for usage in usages)


def test_a_fork_keeps_the_title_of_its_session_and_names_it_in_each_line(talk):
    assert fork_of(talk)[1][-1]["customTitle"] == "p1 (forked)"
    talk.session.beside(type="custom-title", customTitle="Fix the parser", sessionId="x")
    for name, targets in (("forked", ()), ("curated", (talk["a1"],))):
        talk.directory /= name
        fork, (*nodes, last) = fork_of(talk, *targets)
        assert last["customTitle"] == f"Fix the parser ({name})"
        assert [one["forkedFrom"] for one in nodes] == [
            {"sessionId": SESSION_ID, "messageUuid": one["uuid"]} for one in nodes
        ]
        assert parsed(fork.read_bytes())[0].state.header.parent_session == SESSION_ID


def test_what_describes_the_old_session_is_left_out(talk):
    session = talk.session
    session.beside(type="api-request", id="q1", sessionId="x")
    session.beside(type="last-prompt", lastPrompt="p2", leafUuid=talk["a2"])
    session.beside(type="cost-state", totalCostUSD=1)
    session.beside(type="queue-operation", operation="enqueue")
    session.node("progress", None, data={"type": "hook_progress"})
    session.node("system", None, subtype="turn_duration", durationMs=5)
    session.attachment("prompt_snapshot", "the instructions")
    (last,) = session.reply("m9")
    fork, lines = fork_of(talk)
    assert {line["type"] for line in lines} == {"user", "assistant", "attachment", "custom-title"}
    assert context_ids(fork)[-1] == last


def test_a_call_and_its_result_lose_their_blocks_and_keep_their_lines(tmp_path):
    session = ClaudeSession("p1")
    caller = session.assistant("m1", text("s1"), call("c1"), call("c2"))
    results = [answer("c1", "one"), answer("c2", "two"), text("and more")]
    answers = session.node("user", None, message={"role": "user", "content": results})
    session.reply("m2")
    path = put(session, tmp_path)
    first, second, rest = [entry_id for entry_id in context_ids(path) if entry_id.startswith(answers)]
    fork = written(path, "fork", Target(caller, 1), Target(first)).path
    lines = by_id(fork)
    assert lines[caller]["message"]["content"] == [text("s1"), call("c2")]
    assert lines[answers]["message"]["content"] == results[1:]
    assert len(context_ids(fork)) == len(context_ids(path)) - 1
    fork = written(path, "fork", Target(rest)).path
    assert by_id(fork)[answers]["message"]["content"] == results[:2]
    assert second != rest


def test_a_result_can_lose_an_image_and_keep_its_text(tmp_path):
    session = ClaudeSession("p1")
    session.reply("m1", call("c1"))
    block = answer("c1", [text("seen"), {"type": "image", "source": {"type": "base64", "data": "AAAA"}}])
    line = session.node("user", None, message={"role": "user", "content": [block]})
    session.reply("m2")
    fork = written(put(session, tmp_path), "fork", Target(line, 1)).path
    assert by_id(fork)[line]["message"]["content"] == [{**block, "content": [text("seen")]}]


def test_what_an_earlier_compaction_left_out_is_left_out(talk):
    talk.session.boundary(talk["p2"], talk["a2"])
    later = [talk.session.user("p3"), *talk.session.reply("m4", thinking("t"), text("a"))]
    fork, lines = fork_of(talk, later[0])
    assert context_ids(fork) == [talk["p2"], talk["a2"], later[1], later[2]]
    assert not any(line.get("subtype") == "compact_boundary" for line in lines)


def test_a_line_without_an_id_gets_one(tmp_path):
    session = ClaudeSession()
    session.beside(type="user", timestamp=at(0), message={"role": "user", "content": "p1"})
    (reply,) = session.reply("m1")
    path = put(session, tmp_path)
    kept = context_ids(path)
    fork = written(path, "fork").path
    assert len(context_ids(fork)) == len(kept)
    assert context_ids(fork)[-1] == reply
    assert all(node["uuid"] for node in lines_of_file(fork)[:-1])


@pytest.mark.parametrize("last", ["attachment", "command"])
def test_an_older_client_would_not_send_what_nothing_said_follows(tmp_path, last):
    session = ClaudeSession("p1")
    session.reply("m1")
    session.user("p2")
    if last == "attachment":
        session.attachment("queued_command", prompt="and this")
    else:
        session.node("system", None, subtype="local_command", content="<command-name>/cost</command-name>")
    first, second = session.reply("m2", text("a"), text("b"))
    path = put(session, tmp_path)
    before = snapshot(path.parent)
    with pytest.raises(BadInput, match=r"every message after line 4 of .* Keep one of these messages"):
        written(path, "fork", Target(first), Target(second), generation=OLDER)
    assert snapshot(path.parent) == before
    written(path, "fork", Target(first), generation=OLDER)
    written(path, "fork", Target(first), Target(second))


@pytest.mark.parametrize(
    ("named", "deleted"),
    [
        pytest.param({"said"}, {"said"}, id="a text alone"),
        pytest.param({"thought"}, {"thought"}, id="thinking alone"),
        pytest.param({"call"}, {"call", "result", "thought"}, id="a call with its thinking"),
        pytest.param({"said", "result"}, {"said", "call", "result", "thought"}, id="a whole reply"),
    ],
)
def test_no_reply_is_left_with_only_its_thinking(tmp_path, named, deleted):
    session = ClaudeSession("go")
    said = session.reply("m1", thinking("t"), text("s"), call("c"))
    ids = dict(zip(("thought", "said", "call"), said, strict=True))
    ids["result"] = session.result("c", "done")
    session.reply("m2")
    loaded = load_session(put(session, tmp_path))
    branch = loaded.tree.branch(loaded.leaf_id)
    rules = CURRENT.rules.for_writer(WRITERS["boundary"])
    transcript = prepare(branch, loaded.texts(branch), {"preserve_recent": 0}, rules)
    assert transcript is not None
    judged = validate(request_of(Target(ids[name]) for name in sorted(named)), transcript)
    assert isinstance(judged, ValidatedDeletion)
    assert {target.entry_id for target in judged.targets} == {ids[name] for name in deleted}


LINE = (
    rb'{ "parentUuid" : "old" ,"type":"assistant","uuid":"n2","message":{"content": [ '
    rb'{"type":"text","text":"\u0041]}" } , {"text":"b","type":"text"},{ "n" : 1.50 } ] ,"id":"m1",'
    rb'"usage":{"input_tokens":90000,"iterations":[{"input_tokens":7}]},"more":"parentUuid"},'
    rb'"sessionId":"here","entrypoint":"sdk-cli","toolUseResult":{"sessionId":"x","usage":{"n":1}},"n":-0.0}'
)
NO_USAGE = b'{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}'


def test_the_parent_the_session_and_the_reported_tokens_are_replaced_or_added():
    expected = LINE.replace(b'{"input_tokens":90000,"iterations":[{"input_tokens":7}]}', NO_USAGE)
    for old, new in ((b'"old"', b'"n1"'), (b'"here"', b'"there"'), (b'"sdk-cli"', b'"cli"')):
        expected = expected.replace(old, new)
    assert moved_line(LINE, parentUuid="n1", sessionId="there") == expected
    minimal = b'{"type":"user","uuid":"n1","message":{"role":"user","content":"go"}}'
    moved = moved_line(minimal, parentUuid="n0", sessionId="there")
    assert json.loads(moved) == {**json.loads(minimal), "parentUuid": "n0", "sessionId": "there"}
    assert moved.endswith(minimal[1:])
    assert b"entrypoint" not in moved_line(minimal, parentUuid=None)


def test_the_remaining_blocks_keep_every_recorded_byte():
    entry = Entry(2, 0, len(LINE), "n2", None, "assistant", role=Role.ASSISTANT)
    left = line_without(LINE, [entry], {"n2": frozenset({1})})
    assert rb'"content": [{"type":"text","text":"\u0041]}" },{ "n" : 1.50 }] ,"id":"m1"' in left
    assert line_without(LINE, [entry], {"n3": None}) == LINE


def test_an_entry_is_one_of_several_if_it_or_its_parent_is_a_part():
    def entry(entry_id: str, parent_id: str | None = None) -> Entry:
        return Entry(2, 0, 9, entry_id, parent_id, "user")

    assert is_one_of_several(entry("n2.0"))
    assert is_one_of_several(entry("n2", "n2.0"))
    for alone in (entry("n2"), entry("12"), entry("n2.x"), entry("n2", "n1.0")):
        assert not is_one_of_several(alone)


def sessions(directory: Path) -> Iterator[Path]:
    for seed in seeds(4):
        yield put(story(random.Random(seed)), directory / str(seed))
    real = corpus()
    for path in sorted(real.glob("claude-code/*.jsonl")) if real is not None else ():
        copy = directory / path.stem / ".claude" / "projects" / "-home" / f"{SESSION_ID}.jsonl"
        yield place(copy, path.read_bytes())


def only_thinking(context: ActiveContext) -> set[str]:
    """The replies that the client would leave out."""
    said: dict[str, set[bool]] = {}
    for message in context.messages:
        for block in message.blocks or () if message.entry.reply else ():
            said.setdefault(message.entry.reply, set()).add(block.is_thinking)
    return {reply for reply, kinds in said.items() if kinds == {True}}


@pytest.mark.parametrize("name", WRITERS)
def test_a_written_plan_has_the_approved_context(tmp_path, name):
    chance, writer = random.Random(name), WRITERS[name]
    deleted = 0
    for path in sessions(tmp_path):
        session = load_session(path)
        for _ in range(4):
            made = random_plan(session, CURRENT, writer, chance, chance.randint(1, 60))
            if made is None:
                continue
            notes = notes_on(made.targets) if writer.holds_notes else {}
            plan = write_plan(session, CURRENT, writer, made.targets, path.parent.parent, notes)
            require_approved_context(session, CLAUDE_CODE, CURRENT, writer, plan)
            assert only_thinking(plan.approved) <= only_thinking(context_of(path))
            deleted += len(made.targets)
    assert deleted


@pytest.mark.parametrize("seed", seeds(4))
def test_plans_on_top_of_plans_have_the_approved_context(tmp_path, seed):
    chance = random.Random(seed)
    path = put(story(chance), tmp_path)
    for _ in range(6):
        session, writer = load_session(path), WRITERS[chance.choice(list(WRITERS))]
        made = random_plan(session, CURRENT, writer, chance, chance.randint(1, 6))
        if made is None:
            return
        plan = write_plan(session, CURRENT, writer, made.targets, path.parent)
        require_approved_context(session, CLAUDE_CODE, CURRENT, writer, plan)
        path = plan.path
