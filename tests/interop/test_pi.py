"""Real pi and Atomic rebuild the contexts that Redline rebuilds, and send exactly what was approved.

pi also does so after moves, labels and forks of its sessions. It refuses the damaged sessions that the doctor says it
refuses, and opens every repaired copy: each session of the corpus, or the generated one, is damaged in several ways.

pi is installed by `make interop`: PINNED whole, and the newest version as far as it installs.
"""

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.changes.entries import append_entries, destination_of, fork_session, move_to, set_label
from compaction_app.changes.proof import approved_messages
from compaction_app.changes.undo import UndoRequest, undo
from compaction_app.hooks import Adjust, session_before_tree
from devtools.bench.damage import NEW_HEADER, damaged
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.edge.client import PiPackage
from sessions_app.agents.pure.formats import note_text
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import PackageOutcome
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.diagnosis import Diagnosis
from sessions_app.sessionlog.tree import labels
from sessions_app.storage.repair import write_repaired
from sessions_app.storage.session_certificate import certify, rebuilt_messages
from sessions_app.storage.session_loader import LoadedSession, diagnose, load_session
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.interop.install_atomic import NEW, OLD
from tests.interop.pi_runs import NEWEST, OLDER, PINNED, Conversations, difference, expected, installed_pis, package
from tests.interop.pi_sessions import (
    DIRECTORY,
    SMALLEST,
    context_of,
    copy_of,
    core,
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
APPEND_CONFIRMED = Confirmations(live=True)
PLACES = 2
NOT_OPENED: Final = {
    "refuses to open the session",
    "fails when it opens the session",
    "fails when it converts the file to version 3",
}
IN_PI: Final = "pi 0.87 and newer"
CASES: Final = 40


@pytest.fixture
def resumed(redline, provider):
    """Pi in the home of the installation."""
    return Conversations(redline.home, provider)


@pytest.fixture
def path(name, sessions, resumed, redline):
    """A copy of a session among pi's."""
    return copy_of(sessions[name], resumed.sessions, redline.home)


@pytest.fixture
def indexed(path):
    """The same, in the index."""
    index_file(path)
    Session.objects.update(reader="pi")
    return path


def require_outcome(loaded: LoadedSession, pi: PiPackage, wanted: PackageOutcome = PackageOutcome.EQUAL) -> None:
    """What becomes of a comparison of the context that pi rebuilds with Redline's."""
    found = certify(loaded, PI, pi.reader, NOW, package=pi).package
    assert found is not None
    assert found.outcome is wanted, found.detail


@pytest.mark.parametrize("directory", [PINNED, NEWEST], ids=["pinned", "newest"])
@each_session
def test_pi_rebuilds_the_same_context(name, sessions, directory):
    if directory == NEWEST and not NEWEST.is_dir():
        pytest.skip("not checked: the newest pi cannot be installed from this registry")
    session = sessions[name]
    wanted = PackageOutcome.EQUAL if header_of(session) else PackageOutcome.REFUSED
    require_outcome(load_session(session), package(directory), wanted)


BLANKS: Final = (b" \t", b"\x0b", b"\xc2\xa0", b"\xe2\x80\xa8")
BEYOND: Final = (b"\0\0", b" tail", b'{"type":"custom","id":"q"}', *BLANKS, b"\xff")
BEFORE: Final = (b"\0", b" \t", b"\xef\xbb\xbf")


def test_pi_reads_lines_with_more_than_an_entry_as_redline_does(tmp_path):
    said = (user("one"), assistant(text("two")), user("three"), assistant(text("four")))
    lines = session_bytes(chain(*said)).splitlines()
    changed = [(at, b"", after) for at in (2, 4) for after in BEYOND] + [(2, before, b"") for before in BEFORE]
    left = []
    for number, (at, before, after) in enumerate(changed):
        odd = [before + line + after if place == at else line for place, line in enumerate(lines)]
        loaded = load_session(place(tmp_path / f"{number}.jsonl", b"\n".join(odd) + b"\n"))
        for directory in installed_pis():
            require_outcome(loaded, package(directory))
        left.append(len(context_of(loaded).messages))
    # Only white space of JSON may stand beside an entry: else the line is lost, and with it what it follows.
    assert left == [2, 2, 2, 4, 2, 2, 2, 2, 3, 3, 3, 4, 3, 3, 3, 3, 2, 4, 2]


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
    result = written.made.created or path
    assert (written.made.created is not None) == (writer == "fork")
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
    request = UndoRequest(Document.to_change(path), entry_ids=brought_back)
    first = undo(request, Confirmations(live=True), NOW)
    now = require_same(path)
    assert set(brought_back) <= {message.entry.id for message in context_of(now).messages}

    if not first.plan.is_whole:  # all others may have come back with their pairs
        undo(UndoRequest(Document.to_change(path)), Confirmations(live=True), NOW)
    assert rebuilt_by_pi(path) == wanted
    assert difference(resumed.sent(path), expected(messages)) == ""


@each_writable
def test_pi_sends_the_notes_of_a_fork_in_their_places(name, path, resumed):
    approved = approved_plan(path, writer="fork", reader="pi", compression_ratio=0.5)
    whole = [target.entry_id for target in approved.targets if target.block_index is None]
    notes = {entry_id: f"Note {number}." for number, entry_id in enumerate(whole[::7])}
    written = commit(replace(approved, notes=notes), CONFIRMED, NOW)
    assert written.made.created is not None
    made = require_same(written.made.created)
    messages = fields_of(made, context_of(made).messages)
    said = [one["content"] for one in messages if one.get("customType") == "redline-note"]
    # Recorded in the order of the branch, whatever the order of the plan.
    assert sorted(said) == sorted(map(note_text, notes.values()))
    assert difference(resumed.sent(written.made.created), expected(messages)) == ""


def places_of(path: Path) -> list[str]:
    """Entries to move to and fork from: some by chance, the last one, and one before each compaction."""
    loaded = load_session(path)
    tree = loaded.tree
    dice = random.Random(7)
    chosen = dice.sample([entry.id for entry in tree.entries[1:-1]], PLACES)
    chosen += [entry.parent_id for entry in tree.entries if entry.is_compaction and entry.parent_id]
    return [one for one in chosen if destination_of(tree, one).leaf_id not in (None, loaded.leaf_id)]


@each_writable
def test_pi_rebuilds_the_same_after_moves_labels_and_forks(name, indexed):
    path = indexed
    places = places_of(path)
    assert places
    for number, entry_id in enumerate(places):
        append_entries(path, set_label(entry_id, f"place {number}"), APPEND_CONFIRMED, NOW)
        append_entries(path, move_to(entry_id), APPEND_CONFIRMED, NOW)
        loaded = require_same(path)
        rebuilt = rebuilt_by_pi(path)
        leaf_id = destination_of(loaded.tree, entry_id).leaf_id
        assert leaf_id is not None
        made = fork_session(path, entry_id, NOW).real_path()
        assert rebuilt_by_pi(made) == rebuilt
        forked = load_session(made)
        on_branch = {entry.id for entry in loaded.tree.branch(leaf_id)}
        known = labels(loaded.tree).items()
        assert dict(labels(forked.tree)) == {one: words for one, words in known if one in on_branch}
        append_entries(path, set_label(entry_id, ""), APPEND_CONFIRMED, NOW)
        assert rebuilt_by_pi(path) == rebuilt
        made.unlink()


@pytest.mark.parametrize("name", [SMALLEST])
def test_pi_rebuilds_the_same_after_a_move_that_a_hook_labels(name, indexed):
    entry_id = places_of(indexed)[0]
    session_before_tree.connect(lambda **_: Adjust(label="tried"), weak=False, dispatch_uid="label")
    try:
        append_entries(indexed, move_to(entry_id), APPEND_CONFIRMED, NOW)
    finally:
        session_before_tree.disconnect(dispatch_uid="label")
    assert labels(require_same(indexed).tree)[entry_id] == "tried"


@pytest.fixture(scope="module")
def pi():
    return package(installed_pis()[0])


def texts_in_pi(diagnosis: Diagnosis) -> set[str]:
    """What pi makes of the findings."""
    return {one.text for found in diagnosis.findings for one in found.consequences if one.agent == IN_PI}


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=core if seed < 2 else ()) for seed in range(CASES)])
def test_pi_opens_what_was_repaired(seed, sessions, pi, tmp_path):
    chance = random.Random(seed)
    lines = chance.choice([*sessions.values()]).read_bytes().splitlines()[: chance.randint(3, 60)]
    path, copy = tmp_path / "damaged.jsonl", tmp_path / "copy.jsonl"
    path.write_bytes(damaged(lines, chance))
    write_repaired(path, copy, tmp_path / "copy.lost", NEW_HEADER)

    expected = texts_in_pi(diagnose(path))
    if not any("never finishes" in text for text in expected):
        refused = bool(pi.rebuild([path.read_bytes()]).refusal)
        assert refused == bool(expected & NOT_OPENED)

    assert pi.rebuild([copy.read_bytes()])[1:] == ("", "")
    loaded = load_session(copy)
    if loaded.log.entries:
        require_outcome(loaded, pi)


@pytest.mark.skipif(DIRECTORY is None, reason="there are no real sessions")
@pytest.mark.parametrize("name", ["pi-mono-glued-line.v1.jsonl", "agent-complex-task-youtube-headerless.jsonl"])
def test_pi_opens_the_repaired_copies_of_real_damaged_sessions(name, sessions, pi, tmp_path):
    copy = tmp_path / "copy.jsonl"
    write_repaired(sessions[name], copy, tmp_path / "copy.lost", NEW_HEADER)
    require_outcome(load_session(copy), pi)
