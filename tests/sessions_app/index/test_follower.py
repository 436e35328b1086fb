"""The follower keeps the index up to date with the files, and survives being killed."""

import io
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from redline.configuration import Configuration, RootSetting
from sessions_app.agents.demo import demo_session
from sessions_app.disk.watcher import PathChanges, Watcher
from sessions_app.index import follower as index_follower, indexer
from sessions_app.index.demo_session import DEMO_FILE, DEMO_MARKER, offer_demo
from sessions_app.index.follower import Follower
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import managed_root
from sessions_app.models import Entry, Session
from sessions_app.server import broadcast
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import append_as_agent, backdate, place
from tests.opencode_stores import OpenCodeStore, documents
from tests.processes import become_nobody, give_to_nobody, in_child
from tests.sessions import place_session, use_root
from tests.wait import WAIT_SECONDS, wait_until


@pytest.fixture
def root(tmp_path, settings, redline):
    """An empty configured root; a second one does not exist yet. The demo was made and removed before."""
    directory = tmp_path / "first"
    directory.mkdir()
    (redline.data / DEMO_MARKER).touch()
    choose_roots(settings, directory, tmp_path / "second")
    return directory


class Followed(Follower):
    """A follower whose announcements are kept."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = io.StringIO()
        broadcast.relay_through(self._lines)

    def facts(self, name: str) -> list[Any]:
        """The values announced so far under one name."""
        lines = map(json.loads, self._lines.getvalue().splitlines())
        return [line[name] for line in lines if name in line]

    def until(self, happened: Callable[[], object]) -> None:
        """Work until `happened` is true."""

        def look() -> object:
            self.step()
            return happened()

        if not happened():
            wait_until(look)

    def settle(self) -> None:
        """Work until everything is indexed."""
        self.until(lambda: None in self.facts("indexing"))

    def drain(self) -> list[Path]:
        """Read all files that wait; they are returned."""
        waited = [path for batch in self._waiting for path in batch]
        while self._waiting:
            self.step()
        return waited


@pytest.fixture
def follower(root):
    found = Followed()
    yield found
    found.stop()
    broadcast.relay_through(None)


def choose_roots(settings: Any, *paths: Path, **other: Any) -> None:
    roots = [RootSetting(path=path, agent="atomic") for path in paths]
    settings.REDLINE = Configuration().model_copy(update={"roots": roots, **other})


def changed_database(directory: Path) -> PathChanges:
    return PathChanges(frozenset(), frozenset(), frozenset({directory}))


def titles(**wanted: Any) -> set[str]:
    return {session.title for session in Session.objects.filter(**wanted)}


def test_the_roots_are_indexed_newest_first(follower, root):
    for hours, name in enumerate(("new", "old", "older"), 1):
        backdate(place_session(root / f"{name}.jsonl", name), hours)
    follower.settle()
    ready = [key for keys in follower.facts("sessions") for key in keys]
    assert [Session.objects.get(pk=key).title for key in ready] == ["new", "old", "older"]


def test_a_growing_session_is_read_further_and_announced(follower, root):
    path = place_session(root / "s.jsonl", "one")
    follower.settle()
    key = Session.objects.get().pk
    append_as_agent(path, session_bytes(chain(user("one"), user("two"))[2:]))
    follower.until(lambda: Session.objects.get().entry_count == 2)
    assert follower.facts("sessions")[-1] == [key]


def test_a_file_in_a_new_directory_is_found_and_moving_one_in_or_out_moves_its_sessions(follower, root, tmp_path):
    place_session(tmp_path / "elsewhere" / "s.jsonl", "moved")
    follower.settle()
    place_session(root / "--project--" / "s.jsonl", "the first of a project")
    follower.until(lambda: "the first of a project" in titles())
    (tmp_path / "elsewhere").rename(root / "here")
    follower.until(lambda: titles(missing=False) == {"moved", "the first of a project"})
    (root / "here").rename(tmp_path / "away")
    follower.until(lambda: titles(missing=True) == {"moved"})


def test_a_removed_file_is_missing_and_a_renamed_one_is_new(follower, root):
    place_session(root / "a.jsonl", "stays in the record")
    path = place_session(root / "b.jsonl", "gets another name")
    follower.settle()
    (root / "a.jsonl").unlink()
    path.rename(root / "c.jsonl")
    follower.until(lambda: Session.objects.filter(missing=True).count() == 2)
    follower.until(lambda: Session.objects.filter(relative_path="c.jsonl", missing=False).exists())


def test_a_root_that_comes_later_is_noticed(follower, root, monkeypatch):
    monkeypatch.setattr(index_follower, "ROOTS_SECONDS", 0.05)
    follower.settle()
    place_session(root.with_name("second") / "s.jsonl", "late")
    follower.until(lambda: "late" in titles())
    place_session(root.with_name("second") / "t.jsonl", "followed as well")
    follower.until(lambda: "followed as well" in titles())


def test_an_unreadable_root_is_reported_and_stops_no_other(follower, root, settings, tmp_path):
    blocked = place(tmp_path / "blocked", b"a file")
    choose_roots(settings, blocked, root)
    place_session(root / "s.jsonl", "readable")
    follower.settle()
    assert "readable" in titles()
    assert follower.facts("roots") == [{str(blocked): f"The root {blocked} is not a directory."}]


def test_sessions_of_a_root_that_became_unreadable_are_not_missing(public, settings):
    root = public.home / "sessions"
    place_session(root / "s.jsonl", "behind a closed door")
    choose_roots(settings, root)
    index_file(root / "s.jsonl")
    root.chmod(0)
    give_to_nobody(*public.data.rglob("*"))

    def look() -> str:
        follower = Followed()
        follower.step()
        follower.stop()
        return f"{Session.objects.get().missing} {follower.facts('roots')}"

    reason = f"The root {root} cannot be read: Permission denied."
    assert in_child(look, become_nobody) == f"False {[{str(root): reason}]}"


def test_links_out_of_a_root_are_not_followed(follower, root, tmp_path):
    outside = place_session(tmp_path / "outside" / "secret.jsonl", "a secret")
    (root / "link").symlink_to(outside.parent)
    follower.settle()
    append_as_agent(outside, session_bytes(chain(user("another secret"))[1:]))
    place_session(root / "s.jsonl", "inside")
    follower.until(lambda: "inside" in titles())
    assert titles() == {"inside"}


def test_a_second_scan_opens_no_unchanged_file(follower, root, monkeypatch):
    place_session(root / "s.jsonl", "one")
    place(root / "no-session.jsonl", b"no session\n")
    follower.settle()
    assert Session.objects.exclude(fault="").count() == 1
    opened: list[Path] = []
    monkeypatch.setattr(index_follower, "index_batch", lambda paths, *_, **__: opened.extend(paths))
    follower._scan_roots()
    assert list(follower._waiting) == []
    place_session(root / "s.jsonl", "one", "two")
    follower._scan_roots()
    assert [path.name for batch in follower._waiting for path in batch] == ["s.jsonl"]
    assert opened == []


def test_a_change_without_a_notification_is_found_by_scanning(follower, root, monkeypatch):
    monkeypatch.setattr(index_follower, "SCAN_SECONDS", 0)
    monkeypatch.setattr(index_follower, "ROOTS_SECONDS", 0.01)
    monkeypatch.setattr(Watcher, "watch", lambda *_: None)
    follower.settle()
    place_session(root / "s.jsonl", "unheard of")
    follower.until(lambda: "unheard of" in titles())


def test_changed_files_are_read_before_waiting_ones(follower, root, monkeypatch):
    monkeypatch.setattr(indexer, "FILES_AT_ONCE", 1)
    for number in range(50):
        place_session(root / f"{number}.jsonl", f"session {number}")
    follower.step()

    def is_noticed() -> bool:
        # Written until the watcher, which runs in its own thread, has begun to watch.
        place_session(root / "live.jsonl", "just written")
        return not follower._watcher._changes.empty()

    wait_until(is_noticed)
    follower.until(lambda: "just written" in titles())
    assert len(titles()) < 51


def test_without_file_watches_directories_are_polled(follower, root, monkeypatch):
    usual = watchfiles.watch
    tried: list[bool | None] = []

    def exhausted(*paths: Path, **options: Any) -> Iterator[Any]:
        tried.append(options["force_polling"])
        if not options["force_polling"]:
            raise OSError(28, "OS file watch limit reached")
        return usual(*paths, **{**options, "poll_delay_ms": 50})

    monkeypatch.setattr(watchfiles, "watch", exhausted)
    follower.settle()
    # Polling compares with its first look: a file that is there before is found by the next scan.
    numbers = iter(range(10_000))

    def seen() -> bool:
        place_session(root / f"{next(numbers)}.jsonl", "seen by comparing")
        return "seen by comparing" in titles()

    monkeypatch.setattr(index_follower, "ROOTS_SECONDS", 0.1)
    follower.until(seen)
    assert tried[:2] == [None, True]


@pytest.fixture
def store(root, settings):
    """A database with two sessions, in the only root."""
    use_root(settings, root, "opencode")
    found = OpenCodeStore(root)
    for name in ("ses_1", "ses_2"):
        found.session(name, title=name)
        found.user("Go.", session_id=name)
    return found


def batches(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The sessions that the follower reads from now on."""
    return listed_by(monkeypatch, index_follower, "index_batch", lambda paths, *_: paths)


def listings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The roots that the follower lists from now on."""
    return listed_by(monkeypatch, Follower, "_scan_root", lambda _, root, *__: [root])


def listed_by(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, paths: Callable[..., list[Path]]) -> list[Path]:
    """The paths with which a function is called from now on."""
    found: list[Path] = []
    usual = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        found.extend(paths(*args))
        return usual(*args, **options)

    monkeypatch.setattr(owner, name, call)
    return found


def test_only_the_changed_sessions_of_a_database_are_read(follower, store, monkeypatch):
    monkeypatch.setattr(index_follower, "SCAN_SECONDS", 100_000)
    monkeypatch.setattr(index_follower, "LISTING_SECONDS", 0)
    follower.settle()
    assert titles() == {"ses_1", "ses_2"}
    read = batches(monkeypatch)

    def is_read() -> bool:
        # Written until the watcher, which runs in its own thread, has begun to watch.
        store.user("More.", session_id="ses_2")
        return bool(read)

    follower.until(is_read)
    last = store.parts()[-1]["id"]
    follower.until(lambda: Entry.objects.filter(entry_id=last).exists())
    assert {path.name for path in read} == {"ses_2"}


def test_a_session_deleted_from_a_database_is_missing(follower, store, monkeypatch):
    monkeypatch.setattr(index_follower, "SCAN_SECONDS", 100_000)
    follower.settle()
    store.run("DELETE FROM session WHERE id = 'ses_1'")

    def is_missing() -> bool:
        store.run("UPDATE session SET time_created = time_created + 1")
        return titles(missing=True) == {"ses_1"}

    follower.until(is_missing)
    assert titles(missing=False) == {"ses_2"}


def test_listings_of_a_database_that_is_written_to_all_the_time_are_apart(follower, store, monkeypatch):
    follower.settle()
    listed = listings(monkeypatch)
    now = [1_000.0]
    monkeypatch.setattr(index_follower.time, "monotonic", lambda: now[0])
    follower._next_scan, follower._next_listing = 1_000_000.0, 0.0
    monkeypatch.setattr(Watcher, "take", lambda *_: changed_database(store.directory))
    for _ in range(3):
        store.user("More.")
        follower.step()
    assert listed == [store.directory]
    now[0] += index_follower.LISTING_SECONDS
    follower.step()
    assert listed == [store.directory] * 2


def test_a_database_that_was_only_read_is_not_listed_again(follower, store, monkeypatch):
    monkeypatch.setattr(index_follower, "SCAN_SECONDS", 100_000)
    monkeypatch.setattr(index_follower, "LISTING_SECONDS", 0)
    follower.settle()
    listed = listings(monkeypatch)
    monkeypatch.setattr(Watcher, "take", lambda *_: changed_database(store.directory))
    with closing(store.connect()):  # as in a client: its log is there
        store.user("More.")
        for _ in range(3):
            follower.step()
    assert listed == [store.directory]


def test_sessions_of_a_changed_database_that_wait_are_not_read_twice(follower, store, monkeypatch):
    monkeypatch.setattr(indexer, "FILES_AT_ONCE", 1)
    follower._scan_roots()
    read = batches(monkeypatch)
    follower._unlisted = {store.directory}
    follower._list_databases()
    follower.drain()
    assert sorted(path.name for path in read) == ["ses_1", "ses_2"]


def require_only_changes_are_read(follower: Followed, path: Path, change: Callable[[], Path]) -> None:
    """The session is read again once `change`, which returns the changed file, was made, and no other one."""
    for expected in ([], [path]):
        if expected:
            os.utime(change(), ns=(2**60, 2**60))
        follower._scan_roots()
        assert follower.drain() == expected


def test_documents_are_read_again_only_if_they_have_changed(follower, store, root):
    older, _ = (documents(root, store, name) for name in ("ses_1", "ses_2"))
    follower._scan_roots()
    follower.drain()
    message = older.parents[2] / "message" / "ses_1" / "msg_9.json"
    require_only_changes_are_read(follower, older, lambda: place(message, b'{"role":"user"}'))


def test_a_thread_of_amp_is_read_again_only_if_it_has_changed(follower, root, settings):
    use_root(settings, root, "amp")
    message = {"role": "user", "content": [{"type": "text", "text": "Look."}]}
    thread = place(root / "T-1.json", json.dumps({"v": 1, "id": "T-1", "messages": [message]}).encode())
    follower._scan_roots()
    assert follower.drain() == [thread]
    changed = thread.read_bytes().replace(b"Look.", b"Look again.")
    require_only_changes_are_read(follower, thread, lambda: place(thread, changed))


def test_only_databases_directly_in_a_root_are_watched(tmp_path):
    """OpenCode keeps copies of whole projects beside its database."""
    names = ("snapshot/project/s.jsonl", "snapshot/project/other.db", "s.jsonl", "opencode.db")
    (tmp_path / names[0]).parent.mkdir(parents=True)
    watcher = Watcher()
    watcher.watch((), [tmp_path])
    seen: list[PathChanges] = []

    def is_reported() -> bool:
        for name in names:
            place(tmp_path / name, b"{}\n")
        seen.append(watcher.take(0.1))
        return bool(seen[-1].databases)

    try:
        wait_until(is_reported)
    finally:
        watcher.stop()
    assert {path for changes in seen for path in changes.databases} == {tmp_path}
    assert not any(changes.files or changes.directories for changes in seen)


def test_changed_context_windows_are_in_the_list_after_the_next_start(follower, root, settings):
    replied = assistant(text("a"), provider="p", model="m", usage={"totalTokens": 5_000})
    place_session(root / "s.jsonl", "go", replied)
    follower.settle()
    assert Session.objects.get().window is None
    choose_roots(settings, root, windows={"m": 20_000})
    later = Follower()
    later.step()
    later.stop()
    session = Session.objects.get()
    assert (session.window, session.window_source) == (20_000, "your configuration")
    assert session.pk in follower.facts("sessions")[-1]


def test_a_reader_chosen_during_indexing_is_kept(root, redline, monkeypatch):
    path = place_session(root / "s.jsonl", *(f"line {number}" for number in range(2_500)))
    index_file(path, report=lambda _: Session.objects.update(reader="pi", own_write_ns=7))
    session = Session.objects.get()
    assert (session.reader, session.own_write_ns, session.entry_count) == ("pi", 7, 2_500)


@pytest.mark.parametrize("by", ["signal", "closed input"])
def test_it_stops_at_once_even_if_it_cannot_go_on(redline, tmp_path, by):
    """Another process holds the database, for which it would wait much longer."""
    place_session(tmp_path / "root" / "a.jsonl", "known")
    roots = json.dumps([{"path": str(tmp_path / "root")}])
    child = redline.start("index", "--follow", stdin=subprocess.PIPE, REDLINE_ROOTS=roots)
    assert child.stdout is not None
    assert child.stdin is not None
    while json.loads(child.stdout.readline()).get("indexing", "") is not None:
        pass
    with closing(sqlite3.connect(redline.data / "redline.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        place_session(tmp_path / "root" / "b.jsonl", "new")
        if by == "signal":
            child.send_signal(signal.SIGTERM)
        else:
            child.stdin.close()
            child.stdin = None
        out, _ = child.communicate(timeout=WAIT_SECONDS)
    assert (child.returncode, "sessions" in out) == (0, False)


def test_without_any_session_a_demo_is_offered(follower, redline):
    (redline.data / DEMO_MARKER).unlink()
    follower.settle()
    session = Session.objects.get()
    assert session.title.startswith("Demo: ")
    assert session.root.configured
    assert session.window is not None
    assert session.context_tokens is not None
    assert session.context_tokens > session.window - session.reserve_tokens
    assert session.damage_count == 1
    assert not session.fault


def test_the_demo_is_made_once_and_not_if_a_session_is_known_even_a_missing_one(redline):
    session = index_file(place_session(redline.home / "s.jsonl", "known"))
    Session.objects.update(missing=True)
    assert offer_demo() is None
    session.delete()
    made = offer_demo()
    assert made == managed_root() / DEMO_FILE
    assert made.stat().st_mode & 0o077 == 0
    assert made.read_bytes() == demo_session()[0]
    assert offer_demo() is None
    made.unlink()
    assert offer_demo() is None


def test_the_demo_can_be_compacted_to_half(redline):
    path = offer_demo()
    assert path is not None
    assert redline.call("compact", path, "--yes", "--json").ok().json["stats"]["percentReduction"] >= 50
