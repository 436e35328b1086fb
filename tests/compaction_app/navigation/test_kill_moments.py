"""The same steps as in `test_kill`, killed at any moment."""

import pytest

from tests.kill_steps import IS_SOAK, assert_any_kill_leaves_one_of_two_states

from .test_kill import FIRST, STEPS, Kills


@pytest.mark.parametrize("step", STEPS if IS_SOAK else FIRST[:1])
def test_a_step_killed_at_any_moment_is_completed_or_not_made(redline, step):
    kills = Kills(redline, step)
    assert_any_kill_leaves_one_of_two_states(kills.world.put_back, kills.act, kills.outcome)
