"""Real pi and Atomic rebuild the contexts that Redline rebuilds, and send exactly what was approved.

pi is installed by `make interop`: PINNED whole, and the newest version as far as it installs.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compaction_app.commit.proof import approved_messages
from compaction_app.commit.service import Confirmations, commit
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import UndoRequest, undo
from sessions_app.agents.notes import note_text
from sessions_app.agents.pi.agent import PI
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import PackageOutcome
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.storage.session_certificate import certify, rebuilt_messages
from sessions_app.storage.session_loader import load_session
from tests.interop.install_atomic import NEW, OLD
from tests.interop.pi_runs import NEWEST, OLDER, PINNED, Conversations, difference, expected, package
from tests.interop.pi_sessions import (
    context_of,
    copy_of,
    each_session,
    each_writable,
    fields_of,
    header_of,
    rebuilt_by_pi,
    require_same,
)
from tests.plans import approved_plan

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
WRITERS = [
    (PINNED, "pi", "context-edit"),
    (PINNED, "pi", "fork"),
    (OLDER, "pi-0.86", "fork"),
    (OLD, "atomic-0.8", "context-compaction"),
    (OLD, "atomic-0.8", "fork"),
    (NEW, "atomic-0.9", "fork"),
]
"""Where a pi is installed, or a version of Atomic; its reader, and each of its writers."""
CONFIRMED = Confirmations(live=True, not_honoured=True, below_target=True)


@pytest.fixture
def resumed(redline, provider):
    """Pi in the home of the installation."""
    return Conversations(redline.home, provider)


@pytest.fixture
def path(name, sessions, resumed, redline):
    """A copy of a session among pi's."""
    return copy_of(sessions[name], resumed.sessions, redline.home)


@pytest.mark.parametrize("directory", [PINNED, NEWEST], ids=["pinned", "newest"])
@each_session
def test_pi_rebuilds_the_same_context(name, sessions, directory):
    if directory == NEWEST and not NEWEST.is_dir():
        pytest.skip("not checked: the newest pi cannot be installed from this registry")
    session, installed = sessions[name], package(directory)
    found = certify(load_session(session), PI, installed.reader, NOW, package=installed).package
    assert found is not None
    wanted = PackageOutcome.EQUAL if header_of(session) else PackageOutcome.REFUSED
    assert found.outcome is wanted, found.detail


@pytest.mark.parametrize(("installed", "reader", "writer"), WRITERS, ids=lambda one: getattr(one, "name", one))
@each_writable
def test_after_a_write_the_agent_sends_what_was_approved(name, installed, reader, writer, sessions, redline, provider):
    resumed = Conversations(redline.home, provider, installed)
    path = copy_of(sessions[name], resumed.sessions, redline.home)
    index_file(path)
    Session.objects.update(reader=reader)
    loaded = load_session(path)
    approved = approved_plan(path, writer=writer, reader=reader, compression_ratio=0.5)
    assert approved.targets
    before = context_of(loaded, reader)
    everything = expected(fields_of(loaded, before.messages))
    left = ActiveContext(reader, tuple(approved_messages(before, approved.targets)), None)
    messages, rebuilt = expected(fields_of(loaded, left.messages)), rebuilt_messages(loaded, PI, left)

    written = commit(approved, CONFIRMED, NOW)
    result = written.created or path
    assert (written.created is not None) == (writer == "fork")
    if isinstance(installed, Path):
        assert rebuilt_by_pi(result, [OLDER] if installed == OLDER else ()) == rebuilt
    sent = resumed.sent(result)
    assert difference(sent, messages) == ""
    assert difference(sent, everything) != ""


@each_writable
def test_pi_sends_what_it_rebuilds(name, path, resumed):
    loaded = load_session(path)
    messages = fields_of(loaded, context_of(loaded).messages)
    assert difference(resumed.sent(path), expected(messages)) == ""


@each_writable
def test_after_an_undo_pi_rebuilds_and_sends_what_was_there(name, path, resumed):
    loaded = load_session(path)
    before = context_of(loaded)
    messages, wanted = fields_of(loaded, before.messages), rebuilt_messages(loaded, PI, before)
    approved = approved_plan(path, writer="context-edit", reader="pi", compression_ratio=0.5)
    commit(approved, CONFIRMED, NOW)

    brought_back = [target.entry_id for target in approved.targets[: len(approved.targets) // 2]]
    request = UndoRequest(load_session(path), entry_ids=brought_back)
    first = undo(request, UndoConfirmations(live=True), NOW)
    now = require_same(path)
    assert set(brought_back) <= {message.entry.id for message in context_of(now).messages}

    if not first.plan.is_whole:  # all others may have come back with their pairs
        undo(UndoRequest(now), UndoConfirmations(live=True), NOW)
    assert rebuilt_by_pi(path) == wanted
    assert difference(resumed.sent(path), expected(messages)) == ""


@each_writable
def test_pi_sends_the_notes_of_a_fork_in_their_places(name, path, resumed):
    approved = approved_plan(path, writer="fork", reader="pi", compression_ratio=0.5)
    whole = [target.entry_id for target in approved.targets if target.block_index is None]
    notes = {entry_id: f"Note {number}." for number, entry_id in enumerate(whole[::7])}
    written = commit(replace(approved, notes=notes), CONFIRMED, NOW)
    assert written.created is not None
    made = require_same(written.created)
    messages = fields_of(made, context_of(made).messages)
    said = [one["content"] for one in messages if one.get("customType") == "redline-note"]
    # Recorded in the order of the branch, whatever the order of the plan.
    assert sorted(said) == sorted(map(note_text, notes.values()))
    assert difference(resumed.sent(written.created), expected(messages)) == ""
