"""Codex sends exactly the approved context of a thread that Redline has curated."""

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from compaction_app.changes.proof import approved_messages
from devtools.bench.codex import certify_plan, facts_of, random_plan, write_plan
from devtools.bench.written_plans import notes_on
from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.edge.store import thread_id_of, writer_lock
from sessions_app.agents.codex.pure.parser import METADATA, describe_item
from sessions_app.agents.pure.formats import Generation, NewFile, SessionWriter, note_text
from sessions_app.sessionlog.entries import Deletion, Role, Stats, Target
from sessions_app.sessionlog.timeline import timeline_of
from sessions_app.storage.session_loader import LoadedSession, load_session

from .codex_runs import CodexRuns
from .installed import VERSIONS, client_program
from .scripted_model import Call, ClientRun, ModelReply, ScriptedModel

PLANS: Final = 20
NEW, OLD = VERSIONS["codex"]
PAIRS: Final = [(NEW, NEW), (OLD, OLD), (OLD, NEW)]
"""The version that recorded a thread, and the version that resumes it."""
_PLACE: Final = {"number": 0, "offset": 0, "length": 0, "id": "", "parent_id": None}


def shell(call_id: str, command: str) -> Call:
    return Call(call_id, "exec_command", {"cmd": command})


TURNS: Final = (
    [
        ModelReply("I look.", "a thought", [shell("c1", "echo one")]),
        ModelReply(calls=[shell("c2", "echo two"), shell("c3", "exit 3")]),
        ModelReply("All done."),
    ],
    [ModelReply(calls=[shell("c4", "seq 1 40")]), ModelReply("Forty.", "another thought"), ModelReply("More.")],
    [
        ModelReply("First.", calls=[shell("c5", "echo five")]),
        ModelReply(calls=[Call("c6", "no_tool")]),
        ModelReply("End."),
    ],
)


def generation_of(version: str) -> Generation:
    numbers = tuple(map(int, version.split(".")))
    return next(one for one in CODEX.format.generations if one.since <= numbers)


def worked(runs: CodexRuns) -> str:
    """A thread of several turns; returns its id."""
    thread = ""
    for number, replies in enumerate(TURNS):
        thread = runs.run(f"prompt {number}", replies, thread=thread).session_id
    return thread


def recorded_thread(version: str, base: Path, model: ScriptedModel) -> tuple[CodexRuns, str]:
    runs = CodexRuns(client_program("codex", version), base, model)
    return runs, worked(runs)


def sent_of(loaded: LoadedSession, generation: Generation, deleted: Sequence[Target] = ()) -> list[Mapping[str, Any]]:
    """What would be sent of a thread after an approved deletion."""
    context = generation.reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    left = replace(context, messages=tuple(approved_messages(context, deleted)))
    with CODEX.store.open(loaded.path) as file:
        return list(CODEX.format.sent_messages(left, lambda entry: file.read_at(entry.offset, entry.length)))


def of_the_file(items: Sequence[Mapping[str, Any]], version: str) -> list[dict[str, Any]]:
    """Items as they are compared: without metadata, and without the id of an answer that the client made."""
    left = [{name: value for name, value in item.items() if name not in METADATA} for item in items]
    for item in left:
        if item.get("output") == "aborted" or version == OLD:
            item.pop("id", None)
    return left


def role_of(item: Mapping[str, Any]) -> str:
    return describe_item(item, _PLACE)[0].role


def writer_of(generation: Generation, name: str) -> SessionWriter:
    return next(one for one in generation.writers if one.name == name)


def require_begins(
    found: list[dict[str, Any]], expected: list[dict[str, Any]], stopped: str = ""
) -> list[dict[str, Any]]:
    """What is sent begins with what is expected; returns the rest, which the client has added.

    `stopped` is the prompt of a turn that was ended: the client has recorded it, or not yet.
    """
    assert found[: len(expected)] == expected
    added = [item for item in found[len(expected) :] if not stopped or stopped not in json.dumps(item)]
    assert {role_of(item) for item in added} <= {Role.INJECTED}, added
    return added


def conversation(items: Sequence[Mapping[str, Any]], version: str) -> list[dict[str, Any]]:
    """Without the instructions, which newer versions send as an item."""
    return of_the_file(items[1:] if version != OLD else items, version)


class Curated(NamedTuple):
    """A thread to which a random plan was written."""

    notes: Mapping[str, str]
    approved: list[dict[str, Any]]
    path: Path


def curated_threads(
    runs: CodexRuns, thread: str, version: str, writer_name: str, chance: random.Random, *, has_notes: bool = False
) -> Iterator[Curated]:
    """PLANS plans for a thread, one after the other: each begins with the thread as it was."""
    generation, sessions = generation_of(version), runs.home / "sessions"
    writer = writer_of(generation, writer_name)
    original = runs.scratch.home.with_name("original")
    shutil.copytree(sessions, original)
    for _ in range(PLANS):
        shutil.rmtree(sessions)
        shutil.copytree(original, sessions)
        loaded = load_session(runs.files(thread)[-1])
        plan = random_plan(loaded, generation, writer, chance, 6)
        notes = notes_on(plan.targets) if has_notes else {}
        if has_notes:
            certify_plan(loaded, generation, writer, plan, notes)
        approved = of_the_file(sent_of(loaded, generation, plan.targets), version)
        path = write_plan(loaded, writer, plan, loaded.path.parent, notes)
        yield Curated(notes, approved, path)


@pytest.mark.parametrize("writer_name", ["compacted", "fork"])
@pytest.mark.parametrize(("recorded_by", "resumed_by"), PAIRS)
def test_what_is_resumed_is_what_was_approved(writer_name, recorded_by, resumed_by, tmp_path, model):
    runs, thread = recorded_thread(recorded_by, tmp_path / "client", model)
    runs.use(client_program("codex", resumed_by))
    generation = generation_of(resumed_by)
    before = conversation(runs.sent(thread), resumed_by)
    extra = len(before) - len(sent_of(load_session(runs.files(thread)[-1]), generation))
    chance = random.Random(f"{writer_name} {recorded_by} {resumed_by}")
    for made in curated_threads(runs, thread, resumed_by, writer_name, chance):
        found = conversation(runs.sent(thread_id_of(made.path)), resumed_by)
        assert of_the_file(sent_of(load_session(made.path), generation), resumed_by) == made.approved
        added = require_begins(found, made.approved)
        assert len(added) <= extra, "the client adds no more than it would have added anyway"


@pytest.mark.parametrize("resumed_by", [NEW, OLD])
def test_the_notes_of_a_fork_are_sent_in_their_places(resumed_by, tmp_path, model):
    runs, thread = recorded_thread(resumed_by, tmp_path / "client", model)
    for made in curated_threads(runs, thread, resumed_by, "fork", random.Random(14), has_notes=True):
        expected = of_the_file(sent_of(load_session(made.path), generation_of(resumed_by)), resumed_by)
        found = conversation(runs.sent(thread_id_of(made.path)), resumed_by)
        require_begins(found, expected)
        said = [json.dumps(found).count(note_text(words)) for words in made.notes.values()]
        assert said == [1] * len(made.notes)


LIMIT: Final = "model_auto_compact_token_limit = 20000\nmodel_context_window = 100000"
SUMMARY: Final = ModelReply("All that was said.\n\nIn short. ", "how to put it")


def compacted_between_turns(runs: CodexRuns) -> tuple[str, ClientRun]:
    thread = runs.run("first", [*TURNS[0][:2], ModelReply("Done.", tokens=30_000)]).session_id
    return thread, runs.run("second", [SUMMARY, ModelReply("On I go.")], thread=thread)


def compacted_within_a_turn(runs: CodexRuns) -> tuple[str, ClientRun]:
    thread = runs.run("first", TURNS[0]).session_id
    full = ModelReply("I count.", "a thought", [shell("c4", "seq 1 40")], tokens=30_000)
    return thread, runs.run("second", [full, SUMMARY, ModelReply("Forty.")], thread=thread)


@pytest.mark.parametrize("version", [NEW, OLD])
@pytest.mark.parametrize("compacted", [compacted_between_turns, compacted_within_a_turn])
def test_a_fork_from_before_a_compaction_is_sent_as_the_client_sent_it_before(version, compacted, tmp_path, model):
    runs = CodexRuns(client_program("codex", version), tmp_path / "client", model, extra=LIMIT)
    thread, run = compacted(runs)
    *before, _order = conversation(run.requests[-2]["input"], version)
    generation = generation_of(version)
    loaded = load_session(runs.files(thread)[-1])
    branch = loaded.tree.branch(loaded.leaf_id)
    (point,) = timeline_of(branch, generation.reader).points

    with CODEX.store.open(loaded.path) as file:
        facts = facts_of(loaded, lambda entry: file.read_at(entry.offset, entry.length))
        writer = next(one for one in generation.writers if not one.appends)
        change = writer.write(loaded.tree.branch(point.before_id), Deletion((), (), Stats()), facts)
        assert isinstance(change, NewFile)
        (loaded.path.parent / change.name).write_bytes(b"".join(change.pieces))

    require_begins(conversation(runs.sent(facts.session_id), version), before)


@pytest.mark.parametrize("writer_name", ["compacted", "fork"])
def test_a_curated_thread_is_not_compacted_at_once(writer_name, tmp_path, model):
    """Before, its tokens were above the limit."""
    limit = "model_auto_compact_token_limit = 60000\nmodel_context_window = 200000"
    runs = CodexRuns(client_program("codex", NEW), tmp_path / "client", model, extra=limit)
    thread = runs.run("first", TURNS[0]).session_id
    runs.run("second", [ModelReply("Full.", tokens=90_000)], thread=thread)
    loaded, generation = load_session(runs.files(thread)[-1]), generation_of(NEW)
    writer = writer_of(generation, writer_name)
    plan = random_plan(loaded, generation, writer, random.Random(16), 6)
    curated = write_plan(loaded, writer, plan, loaded.path.parent)
    (request,) = runs.run("third", thread=thread_id_of(curated)).requests
    expected = of_the_file(sent_of(loaded, generation, plan.targets), NEW)
    assert conversation(request["input"], NEW)[: len(expected)] == expected


def test_a_client_does_not_open_a_thread_that_redline_writes_to(tmp_path, model):
    runs, thread = recorded_thread(NEW, tmp_path, model)
    with writer_lock(runs.files(thread)[-1]):
        refused = runs.run("go on", thread=thread)
    assert (refused.code, refused.requests) == (1, ())
    assert runs.run("go on", thread=thread).requests


@pytest.mark.parametrize("version", [NEW, OLD])
def test_what_is_brought_back_is_sent_as_before(version, tmp_path, model):
    runs, thread = recorded_thread(version, tmp_path, model)
    generation = generation_of(version)
    assert generation.restore_lines is not None
    writer = generation.writers[0]
    original = load_session(runs.files(thread)[-1])
    before = of_the_file(sent_of(original, generation), version)
    plan = random_plan(original, generation, writer, random.Random(version), 12)
    write_plan(original, writer, plan, original.path.parent)
    assert len(conversation(runs.sent(thread), version)) < len(before)

    present = load_session(original.path)
    gone = {target.entry_id for target in plan.targets}
    context = generation.reader.rebuild(original.tree.branch(original.leaf_id))
    messages = [message for message in context.messages if message.entry.id in gone]
    with CODEX.store.open(present.path) as file:
        facts = facts_of(present, lambda entry: file.read_at(entry.offset, entry.length))
        lines = generation.restore_lines(present.tree.branch(present.leaf_id), messages, {}, facts)
    with present.path.open("ab") as output:
        output.writelines(line + b"\n" for line in lines)

    assert conversation(runs.sent(thread), version)[: len(before)] == before
