"""The same steps as in `test_kill`, killed at any moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.compaction_app.commit.test_kill_commands import ROUNDS, SEED, killed
from tests.installation import Installation

from .test_kill import STEPS, Kills


@pytest.mark.parametrize("step", STEPS)
def test_a_step_killed_at_any_moment_is_completed_or_not_made(redline: Installation, step: str) -> None:
    kills = Kills(redline, step)
    began = time.perf_counter()
    kills.act()
    took = time.perf_counter() - began
    dice = random.Random(SEED)

    def act(begin: Callable[[str], object]) -> None:
        begin("step")
        kills.act()
        begin("done")
        time.sleep(60)

    for _ in range(ROUNDS):
        kills.world.put_back()
        killed(act, dice.randrange(round(2e6 * took) + 1))
        assert kills.outcome() in ("before", "after")
