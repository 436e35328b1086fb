"""Work in two processes: each does its part, none is lost if the second one fails, and none outlives the first."""

import os
import signal
import time
from pathlib import Path

import pytest

from sessions_app.server.children import in_two_processes
from tests.processes import forked
from tests.wait import wait_until


def named(part: str) -> tuple[str, int]:
    return part, os.getpid()


def test_each_process_does_its_part():
    (here, mine), (there, other) = in_two_processes(named, "a", "b")
    assert (here, there, mine) == ("a", "b", os.getpid())
    assert other != mine


@pytest.mark.parametrize("fail", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0], ids=["killed", "fault"])
def test_the_part_of_a_process_that_fails_is_done_by_the_first(fail, capfd):
    first = os.getpid()

    def work(part: str) -> tuple[str, int]:
        if os.getpid() != first:
            fail()
        return named(part)

    assert in_two_processes(work, "a", "b") == (("a", first), ("b", first))


def test_a_fault_of_the_first_process_ends_the_second():
    def work(part: str) -> None:
        if part == "b":
            time.sleep(600)
        raise ValueError(part)

    with pytest.raises(ValueError, match="a"):
        in_two_processes(work, "a", "b")


def test_the_second_process_ends_when_the_first_is_killed(tmp_path):
    noted = tmp_path / "pid"

    def work(part: str) -> None:
        if part == "b":
            noted.with_suffix(".new").write_text(str(os.getpid()))
            noted.with_suffix(".new").rename(noted)
        time.sleep(600)

    process = forked(lambda: in_two_processes(work, "a", "b"))
    wait_until(noted.exists)
    process.kill()
    process.join()
    wait_until(lambda: not Path("/proc", noted.read_text()).exists())
