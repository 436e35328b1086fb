"""Whether the agent that called a command still waits for it."""

import os
import signal

import pytest

from sessions_app.connections.caller import SIGNALS, Caller, report_if_killed
from tests.wait import wait_until


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


class Clock:
    """Time that only sleeping moves; `during` is called in the third sleep."""

    def __init__(self, during: object = None) -> None:
        self.now, self.sleeps, self._during = 0.0, 0, during

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        if self.sleeps == 3 and callable(self._during):
            self._during()

    def __call__(self) -> float:
        return self.now


def test_it_waits_as_long_as_it_is_to(pipe):
    clock = Clock()
    with Caller(pipe[1]) as caller:
        assert caller.still_waits(60, clock, clock.sleep)
    assert clock.now == pytest.approx(60)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_wait_at_once_and_nothing_else(number, pipe):
    earlier = signal.getsignal(number)
    clock = Clock(lambda: signal.raise_signal(number))
    with Caller(pipe[1]) as caller:
        assert not caller.still_waits(60, clock, clock.sleep)
        assert clock.sleeps == 3
        assert not caller.still_waits(60, clock, clock.sleep)
    assert signal.getsignal(number) == earlier


def test_nobody_reads_any_more(pipe):
    clock = Clock(lambda: os.close(pipe[0]))
    with Caller(pipe[1]) as caller:
        assert not caller.still_waits(60, clock, clock.sleep)
    assert clock.sleeps == 3


def test_a_file_is_always_read(tmp_path):
    clock = Clock()
    with (tmp_path / "out").open("w") as file, Caller(file.fileno()) as caller:
        assert caller.still_waits(1, clock, clock.sleep)


def test_another_parent_means_that_the_agent_has_gone(pipe, monkeypatch):
    clock = Clock(lambda: monkeypatch.setattr(os, "getppid", lambda: 1))
    with Caller(pipe[1]) as caller:
        assert not caller.still_waits(60, clock, clock.sleep)
    assert clock.sleeps == 3


@pytest.mark.parametrize("is_killed", [True, False])
def test_only_a_process_that_is_killed_is_reported(is_killed, tmp_path):
    report = tmp_path / "report"
    child = os.fork()
    if child == 0:
        try:
            with report_if_killed(lambda: report.write_text("killed")):
                if is_killed:
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) is is_killed
    # What was not reported when its block has ended is not reported later.
    assert not is_killed or wait_until(report.exists)
    assert report.exists() is is_killed


def test_an_error_passes_and_is_not_reported(tmp_path):
    report = tmp_path / "report"
    with pytest.raises(ZeroDivisionError), report_if_killed(report.touch):
        raise ZeroDivisionError
    assert not report.exists()
