"""Real pi: it rebuilds the contexts that Redline rebuilds, and sends exactly what was approved.

The sessions are those of the corpus; without one, a generated session. pi is installed by `make interop`: PINNED whole,
and the newest version as far as it installs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compaction_app.commit.proof import approved_messages
from compaction_app.commit.service import Confirmations, commit
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import UndoRequest, undo
from devtools.scripted.server import ScriptedProvider
from sessions_app.agents.notes import note_text
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.package import PiPackage
from sessions_app.agents.programs import RebuiltMessage
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.certificate import PackageOutcome
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.storage.files import SessionReader
from sessions_app.storage.session_certificate import certify, rebuilt_messages
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.files import backdate, place
from tests.installation import Installation
from tests.interop.pi_runs import NEWEST, PINNED, Conversations, difference, expected, package
from tests.paths import corpus, corpus_sessions
from tests.plans import approved_plan

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DIRECTORY = corpus()
NAMES = [path.name for path in corpus_sessions(DIRECTORY)] if DIRECTORY is not None else ["generated.jsonl"]
WRITERS = ("context-edit", "fork")
CONFIRMED = Confirmations(live=True, not_honoured=True, below_target=True)


def header_of(session: Path) -> dict[str, Any]:
    with session.open("rb") as file:
        first = json.loads(file.readline())
    return first if first.get("type") == "session" else {}


def is_writable(name: str) -> bool:
    """Whether a session of the corpus has a header of version 3."""
    if DIRECTORY is None:
        return True
    (path,) = DIRECTORY.glob(f"pi*/{name}")
    return header_of(path).get("version") == 3


WRITABLE = [name for name in NAMES if is_writable(name)]


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {path.name: path for path in corpus_sessions(tmp_path_factory.mktemp("corpus"))}


@pytest.fixture(params=["pinned", "newest"])
def agent_package(request: pytest.FixtureRequest) -> PiPackage:
    if request.param == "pinned":
        assert PINNED.is_dir(), "pi is not installed; `make interop` does that, and runs these tests"
        return package(PINNED)
    if not NEWEST.is_dir():
        pytest.skip("the newest pi cannot be installed from this registry")
    return package(NEWEST)


@pytest.fixture(scope="session")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(script="stops-early") as scripted:
        yield scripted


@pytest.fixture
def conversations(redline: Installation, provider: ScriptedProvider) -> Conversations:
    return Conversations(redline.home, provider)


def copy_of(session: Path, redline: Installation) -> Path:
    """A copy among pi's sessions, which names a working directory that exists: pi requires that."""
    header, rest = session.read_bytes().split(b"\n", 1)
    described = {**json.loads(header), "cwd": str(redline.home)}
    place(
        redline.home / ".pi" / "agent" / "sessions" / "--home--" / session.name,
        json.dumps(described).encode() + b"\n" + rest,
    )
    return backdate(redline.home / ".pi" / "agent" / "sessions" / "--home--" / session.name)


def context_of(loaded: LoadedSession, reader: str = "pi") -> ActiveContext:
    return READERS[reader].rebuild(loaded.tree.branch(loaded.leaf_id))


def rebuilt_by_pi(session: Path) -> tuple[RebuiltMessage, ...]:
    """The context that each installed pi rebuilds, which is the same."""
    installed = [package(one) for one in (PINNED, NEWEST) if one.is_dir()]
    (found,) = {one.rebuild([session.read_bytes()]) for one in installed}
    assert (found.refusal, found.failure) == ("", "")
    return found.messages


def fields_of(loaded: LoadedSession, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as pi rebuilds them."""
    with SessionReader(loaded.path) as reader:
        return [
            dict(
                PI.message_json(
                    message,
                    reader.read_at(message.entry.offset, message.entry.length),
                    reader.read_at(message.edit.offset, message.edit.length) if message.edit else None,
                )
            )
            for message in messages
            if message.sent
        ]


@pytest.mark.parametrize("name", NAMES)
def test_pi_rebuilds_the_same_context(name: str, sessions: dict[str, Path], agent_package: PiPackage) -> None:
    session = sessions[name]
    found = certify(load_session(session), PI, agent_package.reader, NOW, package=agent_package).package
    assert found is not None
    wanted = PackageOutcome.EQUAL if header_of(session) else PackageOutcome.REFUSED
    assert found.outcome is wanted, found.detail


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", WRITABLE)
def test_after_a_write_pi_rebuilds_and_sends_what_was_approved(
    name: str,
    writer: str,
    sessions: dict[str, Path],
    redline: Installation,
    conversations: Conversations,
) -> None:
    path = copy_of(sessions[name], redline)
    loaded = load_session(path)
    approved = approved_plan(path, writer=writer, reader="pi", compression_ratio=0.5)
    assert approved.targets
    before = context_of(loaded)
    everything = fields_of(loaded, before.messages)
    left = ActiveContext("pi", tuple(approved_messages(before, approved.targets)), None)
    messages, wanted = fields_of(loaded, left.messages), rebuilt_messages(loaded, PI, left)

    written = commit(approved, CONFIRMED, NOW)
    result = written.created or path
    assert (written.created is not None) == (writer == "fork")
    assert rebuilt_by_pi(result) == wanted
    sent = conversations.sent(result)
    assert difference(sent, expected(messages)) == ""
    assert difference(sent, expected(everything)) != ""


@pytest.mark.parametrize("name", WRITABLE)
def test_pi_sends_what_it_rebuilds(
    name: str, sessions: dict[str, Path], redline: Installation, conversations: Conversations
) -> None:
    path = copy_of(sessions[name], redline)
    loaded = load_session(path)
    messages = fields_of(loaded, context_of(loaded).messages)
    assert difference(conversations.sent(path), expected(messages)) == ""


@pytest.mark.parametrize("name", WRITABLE)
def test_after_an_undo_pi_rebuilds_and_sends_what_was_there(
    name: str, sessions: dict[str, Path], redline: Installation, conversations: Conversations
) -> None:
    path = copy_of(sessions[name], redline)
    loaded = load_session(path)
    before = context_of(loaded)
    messages, wanted = fields_of(loaded, before.messages), rebuilt_messages(loaded, PI, before)
    approved = approved_plan(path, writer="context-edit", reader="pi", compression_ratio=0.5)
    commit(approved, CONFIRMED, NOW)

    brought_back = [target.entry_id for target in approved.targets[: len(approved.targets) // 2]]
    request = UndoRequest(load_session(path), entry_ids=brought_back)
    first = undo(request, UndoConfirmations(live=True), NOW)
    now = load_session(path)
    assert set(brought_back) <= {message.entry.id for message in context_of(now).messages}
    assert rebuilt_by_pi(path) == rebuilt_messages(now, PI, context_of(now))

    if not first.plan.is_whole:  # all others may have come back with their pairs
        undo(UndoRequest(now), UndoConfirmations(live=True), NOW)
    assert rebuilt_by_pi(path) == wanted
    assert difference(conversations.sent(path), expected(messages)) == ""


@pytest.mark.parametrize("name", WRITABLE)
def test_pi_sends_the_notes_of_a_fork_in_their_places(
    name: str, sessions: dict[str, Path], redline: Installation, conversations: Conversations
) -> None:
    path = copy_of(sessions[name], redline)
    approved = approved_plan(path, writer="fork", reader="pi", compression_ratio=0.5)
    whole = [target.entry_id for target in approved.targets if target.block_index is None]
    notes = {entry_id: f"Note {number}." for number, entry_id in enumerate(whole[::7])}
    written = commit(replace(approved, notes=notes), CONFIRMED, NOW)
    assert written.created is not None
    made = load_session(written.created)
    messages = fields_of(made, context_of(made).messages)
    said = [one["content"] for one in messages if one.get("customType") == "redline-note"]
    # Recorded in the order of the branch, whatever the order of the plan.
    assert sorted(said) == sorted(map(note_text, notes.values()))
    assert rebuilt_by_pi(written.created) == rebuilt_messages(made, PI, context_of(made))
    assert difference(conversations.sent(written.created), expected(messages)) == ""
