"""What the real Claude Code sends of a session that Redline has written is the approved context."""

import itertools
import json
import random
import re
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from compaction_app.changes.change import lines_of, write_facts
from devtools.bench import written_plans
from sessions_app.agents.base import OpenElsewhere
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.claude_code.edge.store import open_elsewhere
from sessions_app.agents.claude_code.pure.sent import INTERRUPTED
from sessions_app.agents.claude_code.pure.writers import SINCE
from sessions_app.agents.pure.formats import Generation, SessionWriter
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.claude_sessions import ClaudeSession, at, call as claude_call
from tests.paths import corpus
from tests.sessions_app.agents.claude_code.writing import story

from .claude_runs import ClaudeClient, Sent
from .claude_trees import RandomTree
from .installed import CURRENT, client_program, versions
from .messages_server import MessagesServer, ScriptedReply, call_block, said, text_block, thinking_block

PLANS = 24
TREES = 12
written_by = pytest.mark.parametrize("writer", ["boundary", "fork"])


@pytest.fixture
def client(version, tmp_path):
    program = client_program("claude-code", version)
    with MessagesServer() as server:
        yield ClaudeClient(program, tmp_path, server)


def conversation(client: ClaudeClient) -> str:
    """A session of the client's own: thinking, calls at once, a failed call, and an output that is kept in a file."""
    (client.project / "notes.txt").write_text("first\nsecond\n")
    look = (
        thinking_block("two things to see"),
        text_block("I look at both."),
        call_block("toolu_1", "Read", file_path=str(client.project / "notes.txt")),
        call_block("toolu_2", "Bash", command="echo two"),
        call_block("toolu_3", "Bash", command="exit 3"),
    )
    session_id = client.say("first", ScriptedReply(look), said("Both seen."))
    count = ScriptedReply([text_block("I count."), call_block("toolu_4", "Bash", command="seq 1 20000")])
    client.say("second", count, said("Counted."), resume=session_id)
    client.say("third", ScriptedReply([thinking_block("nothing to do"), text_block("Done.")]), resume=session_id)
    return session_id


def compacted(client: ClaudeClient) -> str:
    """A session that the client has compacted, and that went on."""
    session_id = conversation(client)
    client.run("/compact", resume=session_id)
    for turn in range(3):
        command = call_block(f"toolu_5{turn}", "Bash", command=f"echo {turn}")
        client.say(f"later {turn}", ScriptedReply([command]), said(f"Later {turn}."), resume=session_id)
    return session_id


def rewound(client: ClaudeClient) -> str:
    """A session that went on from an earlier reply."""
    session_id = conversation(client)
    lines = [json.loads(line) for line in client.session(session_id).read_bytes().splitlines()]
    seen = next(line for line in lines if "Both seen." in json.dumps(line.get("message")))
    client.say("instead", said("Instead."), resume=session_id, arguments=("--resume-session-at", seen["uuid"]))
    client.say("and on", said("On."), resume=session_id)
    return session_id


def placed(client: ClaudeClient, content: bytes) -> str:
    """A session with this content among the client's own, under an id of its own."""
    session_id = str(uuid.uuid4())
    client.session(session_id).write_bytes(content)
    return session_id


def made_by_hand(client: ClaudeClient, seed: int) -> str:
    return placed(client, story(random.Random(seed), attaches=False).content)


def recorded(client: ClaudeClient, path: Path) -> str:
    return placed(client, path.read_bytes())


def sources() -> list[Callable[[ClaudeClient], str]]:
    real = corpus()
    found = sorted(real.glob("claude-code/*.jsonl")) if real is not None else []
    return [
        conversation,
        compacted,
        rewound,
        *(partial(made_by_hand, seed=seed) for seed in (0, 2, 3, 6)),
        *(partial(recorded, path=path) for path in found),
    ]


def expected(client: ClaudeClient, session: LoadedSession, context: ActiveContext) -> list[Sent]:
    with lines_of(session) as line:
        return client.comparable(CLAUDE_CODE.format.sent_messages(context, line))


def loaded(client: ClaudeClient, session_id: str) -> LoadedSession:
    return load_session(client.session(session_id))


def generation_of(client: ClaudeClient) -> Generation:
    return next(one for one in CLAUDE_CODE.format.generations if one.since <= client.version)


def writer_of(client: ClaudeClient, name: str) -> SessionWriter:
    """The writer of this name. A test is left out if the client does not honour what it writes."""
    for writer in generation_of(client).writers:
        if writer.name == name:
            return writer
    pytest.skip(f"{generation_of(client).label} does not honour the writer {name}")


def context_of(client: ClaudeClient, session: LoadedSession) -> ActiveContext:
    return generation_of(client).reader.rebuild(session.tree.branch(session.leaf_id))


def curated(
    client: ClaudeClient, session_id: str, writer: str, chance: random.Random, *, has_notes: bool = False
) -> written_plans.WrittenPlan:
    """A copy of a session with a random plan written by a writer, among the client's own, and with notes of the user
    if it has any."""
    copy = placed(client, client.session(session_id).read_bytes())
    session = loaded(client, copy)
    generation, chosen = generation_of(client), writer_of(client, writer)
    made = written_plans.random_plan(session, generation, chosen, chance, chance.randint(1, 40))
    assert made is not None
    notes = written_plans.notes_on(made.targets) if has_notes else {}
    plan = written_plans.write_plan(session, generation, chosen, made.targets, client.sessions, notes)
    written_plans.require_approved_context(session, CLAUDE_CODE, generation, chosen, plan)
    return plan


def require_sent_as_read(client: ClaudeClient, session_id: str) -> list[Sent]:
    """The client sends of a session what Redline reads; returns it."""
    session = loaded(client, session_id)
    sent = client.context(session_id)
    assert sent == expected(client, session, context_of(client, session))
    return sent


@versions("claude-code")
@pytest.mark.parametrize("source", sources(), ids=lambda source: getattr(source, "__name__", None))
def test_a_session_is_sent_as_it_is_read(client, source):
    require_sent_as_read(client, source(client))


@pytest.mark.parametrize("version", [CURRENT["claude-code"]])
def test_random_trees_are_sent_as_they_are_read(client):
    for seed in range(TREES):
        chance = random.Random(seed)
        session_id = placed(client, RandomTree(chance, chance.randint(4, 24)).content)
        wanted = expected(client, loaded(client, session_id), context_of(client, loaded(client, session_id)))
        sent = [(role, tuple(_shortened(block) for block in blocks)) for role, blocks in client.context(session_id)]
        assert sent == wanted, seed


def _shortened(block: str) -> str:
    """A block without the client's explanation of an open call, which Redline does not repeat."""
    return re.sub(r"\[Tool call interrupted[^]]*\]", INTERRUPTED, block)


@versions("claude-code")
def test_what_the_client_added_is_sent_or_not_if_nothing_said_follows(client):
    made = ClaudeSession()
    made.user("p1")
    made.reply("m1")
    made.user("p2")
    made.attachment("queued_command", "typed while busy", prompt="typed while busy", commandMode="prompt")
    sent = require_sent_as_read(client, placed(client, made.content))
    assert ("typed while busy" in str(sent)) is (client.version >= SINCE)


@pytest.mark.parametrize("version", [CURRENT["claude-code"]])
@pytest.mark.parametrize("is_after_result", [False, True])
def test_attachments_are_sent_as_they_are_read(client, is_after_result):
    kinds = ("file", "directory", "nested_memory", "queued_command", "remote_session_change")
    for first, second in itertools.product(kinds, repeat=2):
        made = ClaudeSession()
        made.user("p1")
        if is_after_result:
            made.reply("m0", claude_call("c1"))
            made.result("c1", "found")
        made.attachment(first, "A", path="/x", content={"content": "-"})
        made.attachment(second, "B1", "B2", path="/x", content={"content": "-"})
        made.attachment("file", "without its file")
        made.attachment("queued_command", "C", prompt="-")
        made.reply("m1")
        require_sent_as_read(client, placed(client, made.content))


@versions("claude-code")
def test_results_of_parallel_calls_are_sent_in_the_order_in_which_they_are_read(client):
    for order in itertools.permutations(range(3)):
        for is_dated in (False, True):
            made = ClaudeSession()
            made.user("p1")
            calls = made.reply("m1", *(claude_call(f"c{number}") for number in range(3)))
            results = [
                made.result(
                    f"c{number}",
                    f"found {number}",
                    parent=calls[number],
                    timestamp=at(60 + number if is_dated else len(made.lines)),
                )
                for number in order
            ]
            made.user("p2", parent=results[0], timestamp=at(100))
            require_sent_as_read(client, placed(client, made.content))


@versions("claude-code")
@written_by
def test_the_approved_context_is_sent(client, writer):
    originals = [source(client) for source in sources()]
    chance = random.Random(writer)
    for number in range(PLANS):
        original = originals[number % len(originals)]
        source = loaded(client, original)
        plan = curated(client, original, writer, chance)
        sent = client.context(plan.path.stem)
        assert sent == expected(client, source, plan.approved), (number, plan.targets)


@versions("claude-code")
def test_the_notes_of_a_fork_are_sent_in_their_places(client):
    chance = random.Random(14)
    for original in [source(client) for source in sources()]:
        plan = curated(client, original, "fork", chance, has_notes=True)
        sent = require_sent_as_read(client, plan.path.stem)
        assert [json.dumps(sent).count(note) for note in plan.notes] == [1] * len(plan.notes)


@versions("claude-code")
@written_by
def test_the_client_compacts_a_curated_session_twice(client, writer):
    plan = curated(client, conversation(client), writer, random.Random(1))
    for turn in range(2):
        assert not client.run("/compact", resume=plan.path.stem).is_error
        client.say(f"after {turn}", said(f"After {turn}."), resume=plan.path.stem)
        session = loaded(client, plan.path.stem)
        sent = json.dumps(expected(client, session, context_of(client, session)))
        assert ("two things to see" in sent, f"After {turn}." in sent) == (False, True)


@versions("claude-code")
@written_by
def test_a_session_is_curated_again_after_more_was_said(client, writer):
    chance = random.Random(2)
    session_id = conversation(client)
    for turn in range(3):
        session_id = curated(client, session_id, writer, chance).path.stem
        command = call_block(f"toolu_6{turn}", "Bash", command=f"echo {turn}")
        client.say(f"more {turn}", ScriptedReply([command]), said(f"More {turn}."), resume=session_id)
        session = loaded(client, session_id)
        plan = curated(client, session_id, writer, chance)
        assert client.context(plan.path.stem) == expected(client, session, plan.approved)


@versions("claude-code")
def test_an_undo_brings_back_what_was_deleted(client):
    original = conversation(client)
    source = loaded(client, original)
    before = context_of(client, source)
    plan = curated(client, original, "boundary", random.Random(3))
    assert plan.targets
    deleted = {target.entry_id for target in plan.targets}
    session = load_session(plan.path)
    restore_lines = generation_of(client).restore_lines
    assert restore_lines is not None
    with lines_of(session) as line, plan.path.open("ab") as file:
        facts = write_facts(session, line, plan.path, written_plans.WRITTEN_AT)
        back = [message for message in before.messages if message.entry.id in deleted]
        for added in restore_lines(session.tree.branch(session.leaf_id), back, {}, facts):
            file.write(added + b"\n")
    assert client.context(plan.path.stem) == expected(client, source, before)


@pytest.mark.parametrize("version", ["2.1.112"])
def test_an_older_client_shows_the_old_conversation(client):
    original = made_by_hand(client, 5)
    session, generation = loaded(client, original), CLAUDE_CODE.format.generations[0]
    made = written_plans.random_plan(session, generation, generation.writers[0], random.Random(5), 9)
    assert made is not None
    assert made.targets
    plan = written_plans.write_plan(session, generation, generation.writers[0], made.targets, client.sessions / "..")
    wanted = said_in(client.context(original))
    copy = placed(client, plan.path.read_bytes())
    assert said_in(client.context(copy)) == wanted


def said_in(messages: list[Sent]) -> list[str]:
    """What was said: the client finds only those calls and results that are on the last branch."""
    return [block for _, blocks in messages for block in blocks if not block.startswith("{")]


@versions("claude-code")
def test_a_fork_does_not_compact_at_once(client):
    session_id = client.say("first", said("Much.", input_tokens=190_000))
    session = loaded(client, session_id)
    fork = written_plans.write_plan(session, generation_of(client), writer_of(client, "fork"), (), client.sessions)
    run = client.run("second", resume=fork.path.stem)
    assert len(run.requests) == 1
    assert "Much." in json.dumps(run.requests[0]["messages"])


@versions("claude-code")
def test_the_companions_of_the_original_stay_where_they_are(client):
    session_id = conversation(client)
    companions = client.session(session_id).with_suffix("")
    files = sorted(path for path in companions.rglob("*") if path.is_file())
    assert files
    plan = curated(client, session_id, "fork", random.Random(7))
    client.context(plan.path.stem)
    assert sorted(path for path in companions.rglob("*") if path.is_file()) == files


@versions("claude-code")
def test_a_running_client_has_its_session_open(client):
    path = client.session(client.say("first", said("One.")))
    configuration = client.home / ".claude"
    seen: list[OpenElsewhere | None] = []
    client.server.before_reply = lambda: seen.append(open_elsewhere(path, configuration))
    client.say("second", said("Two."), resume=path.stem)
    assert seen
    assert all(found is not None and found.is_certain for found in seen)
    assert open_elsewhere(path, configuration) is None
