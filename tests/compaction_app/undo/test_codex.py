"""A Codex thread is compacted, undone and forked, and is left alone while Codex has it open."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compaction_app.changes.backups import restore
from compaction_app.changes.change import Confirmations
from compaction_app.changes.entries import fork_session
from compaction_app.changes.undo import UndoPlan
from compaction_app.core.undo_ways import UndoWay
from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.edge.store import thread_id_of
from sessions_app.agents.codex.pure.format import READER
from sessions_app.disk import open_files
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.timeline import timeline_of
from sessions_app.storage.session_loader import load_session
from tests.files import backdate, place, unchanged
from tests.installation import Installation
from tests.sessions_app.agents.codex.rollouts import (
    THREAD,
    WORK_STEPS,
    Rollout,
    answer,
    call,
    compacted,
    meta,
    output,
    reasoning,
    summarised,
    user,
    work,
)

from .scenes import Scene, codex_scene, deleted_by, refused


def sent(path: Path) -> list[Any]:
    """What Codex sends of a thread."""
    loaded = load_session(path)
    with CODEX.store.open(loaded.path) as file:
        context = READER.rebuild(loaded.tree.branch(loaded.leaf_id))
        return list(CODEX.format.sent_messages(context, lambda entry: file.read_at(entry.offset, entry.length)))


def forked(redline: Installation, **own: object) -> tuple[Scene, Path]:
    """A thread, and a fork of it that nobody has written to recently."""
    scene = codex_scene(redline, work(), "fork")
    return scene, backdate(scene.compact(**own).made.created)


@pytest.mark.parametrize("paginated", [True, False])
def test_a_compaction_is_undone_by_the_fuller_list(redline, paginated):
    scene = codex_scene(redline, work(paginated=paginated), "compacted")
    before = sent(scene.path)
    scene.compact()
    assert len(sent(scene.path)) < len(before)

    undone = scene.undo()

    assert undone.plan.way is UndoWay.EDITS
    assert sent(scene.path) == before


def test_a_single_call_is_brought_back_after_more_was_said(redline):
    scene = codex_scene(redline, work(), "compacted")
    before = sent(scene.path)
    wanted = next(target.entry_id for target in deleted_by(scene.compact()))
    scene.append(Rollout(user("And now?"), answer("Done."), first=90).content)

    scene.undo(wanted, live=True)

    found = sent(scene.path)
    assert [item for item in found if item in before] == [item for item in before if item in found]
    assert found[-2:] == [user("And now?"), answer("Done.")]
    assert wanted in {message.entry.id for message in READER.rebuild(branch(scene.path)).messages}


def test_reasoning_comes_back_with_what_follows_it(redline):
    turn = [reasoning(name=f"rs_{step}") for step in range(2)]
    start = [user("Go."), turn[0], answer("a"), call("x"), output("x", "word " * 400)]
    rest = [turn[1], answer("b " * 900), user("On."), answer("c")]
    scene = codex_scene(redline, Rollout(meta(), *start, *rest), "compacted")
    before = sent(scene.path)
    deleted = deleted_by(scene.compact(preserve_recent=1, compression_ratio=0.1))
    assert {"6", "7"} <= {target.entry_id for target in deleted}
    scene.undo("7")
    found = sent(scene.path)
    assert turn[1] in found
    assert found.index(before[6]) == found.index(turn[1]) + 1


def branch(path: Path) -> list[Any]:
    loaded = load_session(path)
    return loaded.tree.branch(loaded.leaf_id)


def test_a_compaction_of_a_compaction_is_undone_alone(redline):
    scene = codex_scene(redline, work(), "compacted")
    scene.compact(compression_ratio=0.9)
    between = sent(scene.path)
    scene.compact(compression_ratio=0.4)
    assert sent(scene.path) != between
    scene.undo()
    assert sent(scene.path) == between


def test_a_fork_leaves_the_thread_alone_and_is_undone_by_its_removal(redline):
    scene, made = forked(redline)
    assert scene.path.read_bytes() == work().content
    assert 0 < len(sent(made)) < len(sent(scene.path))
    assert scene.undo().plan.way is UndoWay.REMOVAL
    assert not made.exists()


def test_a_fork_that_another_thread_continues_is_not_deleted(redline):
    scene, made = forked(redline, compression_ratio=0.9)
    later = Scene(made, "codex", "fork").compact(compression_ratio=0.5).made.created
    backdate(later)
    before = sent(later)

    assert refused(scene.undo) == "is_base"

    assert sent(later) == before
    later.unlink()
    assert scene.undo().plan.way is UndoWay.REMOVAL
    assert not made.exists()


def test_a_fork_that_codex_has_open_or_opens_meanwhile_is_not_deleted(redline, monkeypatch):
    scene, made = forked(redline)
    with open_in_codex(made), pytest.raises(RedlineError) as caught:
        scene.undo()
    assert (caught.value.code, caught.value.message.partition(" ")[0]) == ("open_in_agent", str(made))
    with ExitStack() as client:
        monkeypatch.setattr(UndoPlan, "require_confirmed", lambda *_: client.enter_context(open_in_codex(made)))
        assert refused(scene.undo) == "open_in_agent"
    assert made.exists()


def test_a_thread_does_not_lose_bytes_to_a_backup(redline):
    scene = codex_scene(redline, work(), "compacted")
    backup, content = scene.compact().backup.path, scene.path.read_bytes()
    yes = Confirmations(live=True, drop_newer=True, unverified=True)

    assert refused(lambda: restore(backup, yes, datetime.now(UTC))) == "append_only"

    assert scene.path.read_bytes() == content
    scene.path.unlink()
    restore(backup, yes, datetime.now(UTC))
    assert content.startswith(scene.path.read_bytes())


def test_the_way_back_from_an_opaque_compaction_is_a_fork(redline):
    opaque = {"type": "compaction", "encrypted_content": "x" * 400}
    scene = codex_scene(redline, work(compacted(user("Mend the parser."), opaque)), "fork")
    assert len(sent(scene.path)) == 2
    last = branch(scene.path)[-1]
    session, before_it = index_file(scene.path), load_session(scene.path).tree.branch(last.id)
    leaf = next(one.id for one in reversed(before_it) if one.is_message and "." not in one.id)

    made = fork_session(session.real_path(), leaf, datetime.now(UTC), is_leaf=True)

    assert len(sent(made.real_path())) == 3 * WORK_STEPS + 4
    assert scene.path.read_bytes().count(b"\n") == 26


def test_a_legacy_thread_is_forked_from_before_its_own_compaction(redline):
    scene = codex_scene(redline, work(summarised("so far"), user("On."), paginated=False), "compacted")
    content, session = scene.path.read_bytes(), index_file(scene.path)
    loaded = load_session(scene.path)
    (point,) = timeline_of(loaded.tree.branch(loaded.leaf_id), READER).points

    act = partial(fork_session, session.real_path(), point.before_id, datetime.now(UTC), is_leaf=True)
    with open_in_codex(scene.path):
        assert refused(act) == "open_in_agent"
    assert sent(act().real_path()) == sent(work(paginated=False).save(redline.home))
    assert scene.path.read_bytes() == content


@contextmanager
def open_in_codex(path: Path) -> Iterator[None]:
    lock = path.parents[4] / "thread-writer-locks" / f"{thread_id_of(path)}.lock"
    lock.parent.mkdir(exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_an_open_thread_is_not_appended_to_but_can_be_forked(redline):
    scene = codex_scene(redline, work(), "compacted")
    content = scene.path.read_bytes()
    with open_in_codex(scene.path):
        assert refused(scene.compact) == "open_in_agent"
        assert scene.path.read_bytes() == content
        made = Scene(scene.path, "codex", "fork").compact()
    assert made.made.created is not None
    assert scene.path.read_bytes() == content
    scene.compact()


def test_an_undo_does_not_append_to_an_open_thread_either_and_each_line_has_the_next_ordinal(redline):
    scene = codex_scene(redline, work(), "compacted")
    scene.compact()
    with unchanged(scene.path), open_in_codex(scene.path):
        assert refused(lambda: scene.undo(live=True)) == "open_in_agent"
    scene.undo()
    ordinals = [json.loads(line)["ordinal"] for line in scene.path.read_bytes().splitlines()]
    assert ordinals == list(range(len(ordinals)))


def test_a_thread_that_may_be_open_is_appended_to_after_a_confirmation(redline, tmp_path, monkeypatch):
    scene = codex_scene(redline, work(), "compacted")
    scene.compact()
    monkeypatch.setattr(open_files, "_SYSTEM", tmp_path / "nothing")
    place(scene.path.parents[4] / "thread-writer-locks" / f"{THREAD}.lock", b"")
    assert refused(scene.undo) == "session_live"
    assert scene.undo(live=True).plan.way is UndoWay.EDITS
