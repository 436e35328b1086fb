"""Promises while another process has the session open: it is named first, and none of its text is lost unannounced."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compaction_app.changes.backups import list_backups, restore
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import Approved, commit
from compaction_app.models import Compaction
from sessions_app.disk.files import file_state
from sessions_app.disk.open_files import writers_of
from sessions_app.index.indexer import index_file
from tests.budget import FACTOR
from tests.factories import session_bytes, working_session
from tests.files import backdate, place, unchanged
from tests.html import elements, text_of
from tests.installation import refusal
from tests.plans import approved_plan
from tests.runs import approve_proposals, plan_session

ROUNDS = 8 * FACTOR
"""Commits and restores beside a writer."""
LINES = 40 * ROUNDS
WRITER = """
exec 3>>"$1"
echo open
while IFS= read -r line; do printf '%s\\n' "$line" >&3; echo written; done
"""


@pytest.fixture
def path(known_root):
    return place(known_root / "s.jsonl", session_bytes(working_session(steps=4)))


class Agent:
    """A process that opens a session once and appends to it on request."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.written = process, 0

    def append(self) -> None:
        self.process.stdin.write(line_of(self.written))
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"written\n"
        self.written += 1

    def append_up_to(self, number: int) -> None:
        while self.written < number:
            self.append()


def small_plan(path: Path) -> Approved:
    """The least that a planner deletes, so that there is something left for the next plan."""
    return approved_plan(path, compression_ratio=0.999)


def line_of(number: int) -> bytes:
    """A line of an agent that never reads its session again: it continues from its own last line."""
    parent = b"line%05d" % (number - 1) if number else b"e9"
    return b'{"type":"label","id":"line%05d","parentId":"%s","label":"x"}\n' % (number, parent)


@contextmanager
def agent_on(path: Path) -> Iterator[Agent]:
    command = ["sh", "-c", WRITER, "sh", path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        yield Agent(process)
        process.stdin.close()


def now() -> datetime:
    return datetime.now(UTC)


def kept_lines(path: Path) -> set[bytes]:
    """The lines of a session and of all its backups."""
    files = [path, *(listed.file.path for listed in list_backups(path))]
    return {line + b"\n" for file in files for line in file.read_bytes().split(b"\n")}


def test_who_has_a_file_open_for_writing_is_known_and_who_reads_it_is_not_named(path):
    state = file_state(path)
    assert writers_of(state) == ()
    with agent_on(path) as agent, path.open("rb"), path.open("ab"):
        (writer,) = writers_of(state)
        assert writer.pid == agent.process.pid
        assert writer.name.startswith(("sh", "dash", "bash"))
    assert writers_of(state) == ()


def test_a_commit_and_a_restore_name_a_process_with_the_session_open_and_need_live(path):
    before = path.read_bytes()
    with agent_on(path) as agent:
        named = f"process {agent.process.pid}"
        assert refusal(lambda: commit(approved_plan(path), Confirmations(), now()), named) == "5 session_live"
        assert path.read_bytes() == before
        backup = commit(approved_plan(path), Confirmations(live=True), now()).backup.path
        with unchanged(path):
            assert refusal(lambda: restore(backup, Confirmations(), now()), named) == "5 session_live"
        restored = restore(backup, Confirmations(live=True), now())
        assert [writer.pid for writer in restored.writers] == [agent.process.pid]
    assert path.read_bytes() == before


def test_the_command_names_who_still_writes_to_the_replaced_file(redline, path):
    backup = commit(approved_plan(path), Confirmations(), now()).backup.path
    with agent_on(path) as agent:
        refused = redline.call("restore", backup, "--yes")
        assert (refused.code, "--live" in refused.err) == (5, True)
        assert f"process {agent.process.pid}" in refused.err
        done = redline.call("restore", backup, "--yes", "--live", "--json")
        assert [writer["pid"] for writer in done.json["stillOpenIn"]] == [agent.process.pid]
        assert f"process {agent.process.pid}" in done.err


def test_the_pages_of_a_commit_and_a_restore_name_who_has_the_session_open(browser, path):
    backup = commit(small_plan(path), Confirmations(), now()).backup.path
    session = index_file(backdate(path))
    run = approve_proposals(plan_session(session))
    for page in (f"/plans/{run.pk}/confirm", f"{session.get_absolute_url()}/backups/{backup.name}/restore"):
        assert not elements(browser.get(page), '[value="live"]')
        with agent_on(path) as agent:
            shown = browser.get(page)
            assert elements(shown, '[value="live"]')
            assert f"process {agent.process.pid}" in text_of(shown)
        assert not elements(browser.get(page), '[value="live"]')


def test_no_line_of_a_writer_with_the_file_open_is_lost_unannounced(path):
    place(path, session_bytes(working_session(steps=2 * ROUNDS)))
    backup = commit(small_plan(path), Confirmations(), now()).backup.path
    announced = 0
    with agent_on(path) as agent:
        for number in range(1, ROUNDS + 1):
            writing = threading.Thread(target=agent.append_up_to, args=(number * LINES // ROUNDS,))
            writing.start()
            while (answer := refusal(lambda: commit(small_plan(path), Confirmations(live=True), now()))) != "done":
                assert answer in ("4 session_changed", "4 other_branch", "6 line_stays"), answer
            answer = refusal(lambda: restore(backup, Confirmations(drop_newer=True), now()))
            announced += answer == "5 session_live"
            writing.join()
        assert agent.written == LINES
    lines = set(path.read_bytes().split(b"\n"))
    lost = sum(line_of(number)[:-1] not in lines for number in range(LINES))
    assert announced == ROUNDS
    assert lost == 0
    assert Compaction.objects.count() == len([line for line in lines if b'"context_compaction"' in line])


def test_no_line_of_an_agent_that_opens_the_file_for_each_line_is_lost_to_confirmed_restores(path):
    backup = commit(approved_plan(path, compression_ratio=0.9), Confirmations(), now()).backup.path
    written = restores = 0
    stopped = threading.Event()

    def write_on() -> None:
        nonlocal written
        while written < LINES and not stopped.is_set():
            child = os.fork()
            if child == 0:
                with path.open("ab", buffering=0) as session:
                    for number in range(written, written + 20):
                        session.write(line_of(number))
                os._exit(0)
            os.waitpid(child, 0)
            written += 20

    def restored() -> bool:
        answer = refusal(lambda: restore(backup, Confirmations(live=True, drop_newer=True), now()))
        assert answer in ("done", "4 session_changed")
        return answer == "done"

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        while writing.is_alive() and restores < ROUNDS:
            restores += restored()
    finally:
        stopped.set()
        writing.join()
    assert restored(), "nobody writes any more"
    kept = kept_lines(path)
    assert [number for number in range(written) if line_of(number) not in kept] == []
