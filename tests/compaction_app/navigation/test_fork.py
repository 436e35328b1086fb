"""Promises of a fork: every line of the branch, its labels, the same context, and the session as it was; for
agents that have no copy of a branch, by their writers."""

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from compaction_app.changes.entries import destination_of, fork_session, plan_fork
from compaction_app.models import AuditEntry
from sessions_app.agents.registry import agent_at
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.entries import EntryKind, Role
from sessions_app.sessionlog.tree import labels
from sessions_app.storage.session_loader import load_session
from tests.budget import some
from tests.claude_sessions import text as claude_text
from tests.compaction_app.undo.scenes import Scene, codex_scene, refused
from tests.factories import (
    assistant,
    chain,
    compaction,
    context_edit,
    session_bytes,
    summary_compaction,
    text,
    user,
    whole,
)
from tests.files import backdate, place, unchanged
from tests.installation import Installation
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.paths import corpus, sessions_to_try
from tests.sessions_app.agents.claude_code.writing import ClaudeSession
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import Rollout, answer, meta


def put(redline: Installation, content: bytes, reader: str) -> Scene:
    directory = ".pi" if reader.startswith("pi") else ".atomic"
    path = place(redline.home / directory / "agent" / "sessions" / "s.jsonl", content)
    index_file(path)
    Session.objects.update(reader=reader)
    return Scene(path, reader, "fork")


def fork(scene: Scene, entry_id: str, *, is_leaf: bool = False) -> Path:
    with unchanged(scene.path):
        made = fork_session(scene.path, entry_id, datetime.now(UTC), is_leaf=is_leaf)
    return made.real_path()


def recorded(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def test_a_fork_has_the_recorded_bytes_of_its_branch(redline):
    talk = [
        *chain(user("a"), assistant(text("b"))),
        # A line that no serializer writes.
        b'{ "id":"e3" , "parentId":"e2","type":"message","message":{"role":"user","content":"c"},"x":1.50}',
    ]
    made = put(redline, session_bytes(talk), "pi")
    new = fork(made, "e3", is_leaf=True)
    assert recorded(new)[1:] == recorded(made.path)[1:]
    header = json.loads(recorded(new)[0])
    assert header["parentSession"] == str(made.path)
    assert header["id"] != json.loads(recorded(made.path)[0])["id"]
    assert AuditEntry.objects.get().new_file == str(new)


def test_a_fork_from_what_a_user_says_ends_before_it_and_nothing_is_before_the_first_message(redline):
    made = put(redline, session_bytes(chain(user("a"), assistant(text("b")), user("c"), assistant(text("d")))), "pi")
    assert refused(partial(fork, made, "e1")) == "nothing_before"
    assert list(made.path.parent.iterdir()) == [made.path]
    assert recorded(fork(made, "e3"))[1:] == recorded(made.path)[1:3]


@pytest.mark.parametrize(
    ("reader", "change"),
    [
        ("pi", summary_compaction("so far", "e3")),
        ("pi", context_edit("e2", None)),
        ("atomic-0.8", compaction(whole("e2"))),
    ],
)
def test_what_a_compaction_removed_is_still_in_the_fork(redline, reader, change):
    said = (user("a"), assistant(text("b")), user("c"), change, assistant(text("d")))
    made = put(redline, session_bytes(chain(*said)), reader)
    new = fork(made, "e5")
    assert recorded(new)[1:] == recorded(made.path)[1:]
    assert made.context(new) == made.context()
    # So the conversation before the compaction can be had from it, too.
    assert len(made.context(new, "e3")) == 3


def test_labels_are_appended_again_and_what_followed_one_follows_the_entry_before(redline):
    mark = {"type": "label", "targetId": "e2", "label": "here"}
    other = {"type": "label", "targetId": "e7", "label": "elsewhere"}
    said = (user("a"), assistant(text("b")), mark, summary_compaction("so far", "e3"), user("c"), other, user("d"))
    made = put(redline, session_bytes(chain(*said)), "pi")
    new = load_session(fork(made, "e5", is_leaf=True))
    assert [entry.id for entry in new.tree.entries[:-1]] == ["e1", "e2", "e4", "e5"]
    assert dict(labels(new.tree)) == {"e2": "here"}
    # The compaction kept what followed the label; now that is itself.
    assert json.loads(recorded(new.path)[3])["firstKeptEntryId"] == "e4"
    assert made.context(new.path) == made.context(leaf_id="e5")


@pytest.mark.parametrize("reader", ["pi", "pi-0.86", "atomic-0.8", "atomic-0.9"])
def test_forks_of_real_sessions_have_the_context_and_the_lines(redline, tmp_path, reader):
    tried = 0
    for path in some(sessions_to_try(tmp_path), every=3):
        loaded = load_session(path)
        if loaded.log.header is None or loaded.log.version < 3:
            continue
        made, entries = put(redline, path.read_bytes(), reader), loaded.tree.entries
        compactions = [entry.parent_id for entry in entries if entry.is_compaction]
        places = [*compactions, entries[len(entries) // 3].id, entries[len(entries) // 2].id, loaded.leaf_id]
        for entry_id in filter(None, places):
            leaf_id = destination_of(loaded.tree, entry_id).leaf_id
            if leaf_id is None:
                continue
            new = fork(made, entry_id)
            branch = [one for one in loaded.tree.branch(leaf_id) if one.kind is not EntryKind.LABEL]
            assert len(recorded(new)) >= len(branch) + 1
            assert made.context(new) == made.context(leaf_id=leaf_id)
            new.unlink()
            tried += 1
        made.path.unlink()
    assert tried


def codex_thread(redline: Installation) -> Path:
    talk = Rollout(meta(), rollouts.user("One."), answer("Done."), rollouts.user("Two."), answer("Done."))
    return codex_scene(redline, talk, "fork").path


def opencode_session(redline: Installation) -> Path:
    return worked_session(OpenCodeStore(redline.home / ".local" / "share" / "opencode"))


def claude_session(redline: Installation) -> Path:
    """A real session if there is one."""
    found = corpus()
    directory = redline.home / ".claude" / "projects" / "p"
    if found is not None and (real := sorted(found.glob("claude-code/*.jsonl"))):
        return backdate(place(directory / real[0].name, real[0].read_bytes()))
    session = ClaudeSession()
    for turn in range(2):
        session.user(f"Step {turn}.")
        session.reply(f"r{turn}", claude_text("Done."))
    return backdate(place(directory / "s.jsonl", session.content))


def context(path: Path, leaf_id: str = "") -> list[tuple[str, int]]:
    """The messages that the agent rebuilds, as roles and sizes."""
    return [(message.role, message.tokens) for message in Document.to_change(path).context(leaf_id).messages]


@pytest.mark.parametrize("make", [codex_thread, opencode_session, claude_session])
def test_a_fork_ends_before_what_a_user_says(redline, make):
    path = make(redline)
    index_file(path)
    tree = load_session(path).tree
    said = [entry for entry in tree.branch(tree.leaf.id) if entry.role == Role.USER][-1]
    plan = plan_fork(path, said.id, datetime.now(UTC))
    assert not plan.is_copy
    assert plan.destination.leaf_id is not None
    wanted = context(path, plan.destination.leaf_id)
    made = fork_session(path, said.id, datetime.now(UTC)).real_path()
    assert made != path
    assert agent_at(made) is agent_at(path)
    assert context(made) == wanted
