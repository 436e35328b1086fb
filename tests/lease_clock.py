"""The clock of a watch of leases, set by a test."""

from sessions_app.jobs.job import LeaseWatch


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def watch(self, watch: LeaseWatch, seconds: float) -> list[int]:
        """Check once a second for so long; returns the rows that were given up."""
        given_up = []
        for _ in range(int(seconds)):
            self.now += 1
            given_up += watch.give_up_dead()
        return given_up
