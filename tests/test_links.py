"""Links that appear while Redline reads never make it read outside a root.

Another user who can write below a root replaces a file or a directory by a link out of it. Whatever page is rendered
or file indexed at that moment, nothing outside is shown or kept.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from redline.configuration import Configuration, RootSetting
from sessions_app.document.document import forget_documents
from sessions_app.index.indexer import index_file, index_paths, index_roots
from sessions_app.models import Entry, Session
from sessions_app.sessionlog.errors import RedlineError
from tests.budget import FACTOR, some
from tests.clients import body_of
from tests.factories import chain, session_bytes, user, working_session
from tests.files import place
from tests.processes import forked
from tests.wait import WAIT_SECONDS

OUTSIDE = "words-from-outside"
NAME = "work.jsonl"
BACKUP = f"{NAME}.2025-01-01T00-00-00-000Z.compact.bak"
WATCHED = ("open", "scandir", "stat", "lstat")
"""The system calls before which a link can appear."""
NEVER = -1


class Swap:
    """A path that can be replaced by a link to its counterpart outside, and put back."""

    def __init__(self, inside: Path, outside: Path) -> None:
        self.inside = inside
        self.away = inside.with_name("away")
        self.outside = outside

    def make(self) -> None:
        self.inside.rename(self.away)
        self.inside.symlink_to(self.outside)

    def undo(self) -> None:
        if os.path.lexists(self.away):
            self.inside.unlink()
            self.away.rename(self.inside)


@pytest.fixture
def path(known_root):
    """A session with a backup in a configured root; files of the same names are outside."""
    content = session_bytes(working_session(steps=2, words=5))
    session = place(known_root / "below" / NAME, content)
    place(session.with_name(BACKUP), content[: content.rindex(b"\n", 0, -1) + 1])
    secret = session_bytes(chain(*[user(f"{OUTSIDE} {number}") for number in range(12)]))
    for name in (NAME, BACKUP):
        place(known_root.parent / "outside" / name, secret)
    index_roots()
    return session


@pytest.fixture(params=["directory", "file"])
def swap(request, path, known_root):
    outside = known_root.parent / "outside"
    found = Swap(path.parent, outside) if request.param == "directory" else Swap(path, outside / NAME)
    yield found
    found.undo()


def nothing_is_kept(monkeypatch: pytest.MonkeyPatch, swap: Swap, act: Callable[[], object]) -> None:
    """Repeat `act`, with the link appearing before its first system call, then before its second, and so on.

    `make test` takes every third call: which of them depends on their number, and so on the page.
    """
    with appearing(monkeypatch, swap, NEVER) as calls:
        act()
    assert len(calls) > 2
    for at, name in some(list(enumerate(calls)), every=5, first=len(calls)):
        with appearing(monkeypatch, swap, at):
            act()
        assert OUTSIDE not in kept(), f"the link appeared before call {at}, {name}"


@contextmanager
def appearing(monkeypatch: pytest.MonkeyPatch, swap: Swap, at: int) -> Iterator[list[str]]:
    """Make the link appear just before the system call with this number; yields the names of all calls on the root."""
    calls: list[str] = []
    busy = False

    def before(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal busy
            if not busy and _is_below(args, kwargs, swap):
                busy = True
                if len(calls) == at:
                    swap.make()
                calls.append(name)
                busy = False
            return original(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in WATCHED:
            patch.setattr(os, name, before(name, getattr(os, name)))
        yield calls
    swap.undo()


def _is_below(args: tuple[Any, ...], kwargs: dict[str, Any], swap: Swap) -> bool:
    """Whether a call concerns the root: by a full path, or by a name in an opened directory."""
    if kwargs.get("dir_fd") is not None or (args and isinstance(args[0], int)):
        return True
    return bool(args) and str(swap.inside.parent) in os.fsdecode(args[0])


def kept() -> str:
    """Everything the index keeps of sessions, as text."""
    return str([*Session.objects.values_list(), *Entry.objects.values_list("entry_id")])


# ---- at every point ----------------------------------------------------------------------------------------

PAGES = [
    "",
    "/text",
    "/entries/e1/text",
    "/compact",
    "/download",
    "/backups",
    f"/backups/{BACKUP}/restore",
    f"/backups/{BACKUP}/download",
]
ACTIONS = ["/read-anew", "/migrate", f"/backups/{BACKUP}/verify", f"/backups/{BACKUP}/restore"]


@pytest.mark.parametrize("below", PAGES)
def test_no_page_shows_the_target_of_a_link(browser, path, swap, below, monkeypatch):
    page = f"/sessions/{Session.objects.get().root_id}/below/{NAME}{below}"

    def read() -> None:
        forget_documents()
        assert OUTSIDE.encode() not in body_of(browser.get(page))

    nothing_is_kept(monkeypatch, swap, read)


@pytest.mark.parametrize("below", ACTIONS)
def test_no_action_reads_the_target_of_a_link(browser, path, swap, below, monkeypatch):
    page = f"/sessions/{Session.objects.get(relative_path__contains=NAME).root_id}/below/{NAME}"

    def act() -> None:
        assert OUTSIDE.encode() not in body_of(browser.post(page + below, {"yes": ["drop_newer", "unverified"]}))

    nothing_is_kept(monkeypatch, swap, act)


@pytest.mark.parametrize("known", [False, True])
def test_indexing_never_reads_the_target_of_a_link(path, swap, known, monkeypatch):
    def index() -> None:
        if not known:
            Session.objects.all().delete()
        index_roots(rebuild=True)

    nothing_is_kept(monkeypatch, swap, index)


def test_a_link_swapped_during_indexing_does_not_leave_the_root(path, known_root, monkeypatch):
    """The session is itself a link, which leads out of its root only when it is read."""
    link = known_root / "link.jsonl"
    link.symlink_to(place(known_root / "hidden.txt", session_bytes(chain(user("inside")))))
    swap = Swap(link, known_root.parent / "outside" / NAME)
    nothing_is_kept(monkeypatch, swap, lambda: index_roots(rebuild=True))
    assert Session.objects.count() == 2


# ---- without a pause ---------------------------------------------------------------------------------------


def keep_swapping(swap: Swap, begun: Event) -> None:
    """Until this process is killed."""
    away, link = Path(f"{swap.inside}.away"), Path(f"{swap.inside}.link")
    link.symlink_to(swap.outside)
    begun.set()
    while True:
        swap.inside.rename(away)
        link.rename(swap.inside)
        swap.inside.rename(link)
        away.rename(swap.inside)


def test_nothing_outside_a_root_is_shown_or_kept_while_links_change(browser, path, swap):
    page = f"/sessions/{Session.objects.get().root_id}/below/{NAME}"
    begun = multiprocessing.Event()
    swapping = forked(partial(keep_swapping, swap, begun))
    try:
        assert begun.wait(WAIT_SECONDS)
        for _ in range(3 * FACTOR):
            for below in PAGES:
                assert OUTSIDE.encode() not in body_of(browser.get(page + below)), below
            index_roots(rebuild=True)
            assert OUTSIDE not in kept()
    finally:
        swapping.kill()
        swapping.join()


# ---- what is meant to be a link ----------------------------------------------------------------------------


def test_a_root_that_is_a_link_is_followed(redline, tmp_path, settings):
    place(tmp_path / "real" / NAME, session_bytes(chain(user("here"))))
    root = tmp_path / "root"
    root.symlink_to(tmp_path / "real")
    settings.REDLINE = Configuration().model_copy(update={"roots": [RootSetting(path=root)]})
    assert index_roots().files == 1
    assert [session.title for session in Session.objects.all()] == ["here"]


def test_a_path_named_by_the_user_may_contain_links(redline, tmp_path):
    path = place(tmp_path / "real" / NAME, session_bytes(working_session()))
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    for named in (link, tmp_path / "linked" / NAME):
        assert index_paths([named]).files == 1
        assert redline.call("tree", named).code == 0
        assert redline.call("context", named).code == 0
    assert index_paths([tmp_path / "linked"]).files == 1
    assert Session.objects.count() == 1
    assert redline.call("compact", link, "--yes", "--not-honoured").code == 0
    (listed,) = redline.call("backups", link, "--json").json
    backup = tmp_path / "linked" / Path(listed["path"]).name
    assert redline.call("restore", backup, "--yes").code == 0
    assert path.read_bytes() == session_bytes(working_session())
    assert link.is_symlink()


def test_an_unresolved_path_is_refused(redline, path):
    path.parent.with_name("linked").symlink_to(path.parent)
    with pytest.raises(RedlineError) as refused:
        index_file(path.parent.with_name("linked") / NAME)
    assert refused.value.code in ("no_such_file", "not_a_file")
