"""Promises of the table of states: the allowed transitions, and that there are no others."""

from collections import deque

from compaction_app.core.states import ACTIVE, REVIEWABLE, TRANSITIONS, WRITTEN, RunState


def test_every_state_has_a_row_and_a_label():
    assert set(TRANSITIONS) == set(RunState)
    assert len({state.sentence for state in RunState}) == len(RunState)


def test_every_state_can_be_reached_from_a_new_run():
    seen, pending = {RunState.QUEUED}, deque([RunState.QUEUED])
    while pending:
        for state in TRANSITIONS[pending.popleft()] - seen:
            seen.add(state)
            pending.append(state)
    assert seen == set(RunState)


def test_a_superseded_run_never_changes_again():
    assert not TRANSITIONS[RunState.SUPERSEDED]


def test_a_committed_run_can_only_be_restored_and_committed_again():
    assert TRANSITIONS[RunState.COMMITTED] == {RunState.RESTORED}
    assert TRANSITIONS[RunState.RESTORED] == {RunState.COMMITTED}


def test_only_a_reviewable_or_restored_run_can_be_committed():
    before = {state for state in RunState if RunState.COMMITTED in TRANSITIONS[state]}
    assert before == REVIEWABLE | {RunState.RESTORED}
    assert not REVIEWABLE & (ACTIVE | WRITTEN)


def test_only_a_run_that_broke_off_waits_again():
    assert {state for state in RunState if RunState.QUEUED in TRANSITIONS[state]} == {
        RunState.INTERRUPTED,
        RunState.FAILED,
    }
