"""Promises of the tables of states: the allowed transitions, and that there are no others."""

from collections import deque

from compaction_app.core.handshake_states import OPEN, TRANSITIONS as HANDSHAKES, HandshakeState, NextStep
from compaction_app.core.states import ACTIVE, REVIEWABLE, TRANSITIONS, WRITTEN, RunState


def test_every_state_has_a_row_and_a_label_and_can_be_reached_from_a_new_run():
    for transitions, states in ((TRANSITIONS, RunState), (HANDSHAKES, HandshakeState)):
        assert set(transitions) == set(states)
        assert len({state.sentence for state in states}) == len(states)
    assert all(step.sentence for step in NextStep)
    seen, pending = {RunState.QUEUED}, deque([RunState.QUEUED])
    while pending:
        for state in TRANSITIONS[pending.popleft()] - seen:
            seen.add(state)
            pending.append(state)
    assert seen == set(RunState)


def test_only_a_reviewable_or_restored_run_can_be_committed_and_a_committed_one_only_restored():
    before = {state for state in RunState if RunState.COMMITTED in TRANSITIONS[state]}
    assert before == REVIEWABLE | {RunState.RESTORED}
    assert not REVIEWABLE & (ACTIVE | WRITTEN)
    assert TRANSITIONS[RunState.COMMITTED] == {RunState.RESTORED}
    assert TRANSITIONS[RunState.RESTORED] == {RunState.COMMITTED}


def test_only_a_run_that_broke_off_waits_again_and_nothing_leads_out_of_an_end():
    before = {state for state in RunState if RunState.QUEUED in TRANSITIONS[state]}
    assert before == {RunState.INTERRUPTED, RunState.FAILED}
    assert not TRANSITIONS[RunState.SUPERSEDED]
    assert not any(HANDSHAKES[state] for state in ENDED)


ENDED = {HandshakeState.APPLIED, HandshakeState.DECLINED, HandshakeState.EXPIRED, HandshakeState.FAILED}


def test_only_what_is_approved_is_applied_and_whoever_waits_can_be_declined_expire_and_fail():
    assert {one for one, others in HANDSHAKES.items() if HandshakeState.APPLIED in others} == {HandshakeState.APPROVED}
    assert {one for one, others in HANDSHAKES.items() if HandshakeState.APPROVED in others} == {HandshakeState.WAITING}
    ways_out = {HandshakeState.DECLINED, HandshakeState.EXPIRED, HandshakeState.FAILED}
    assert all(ways_out <= HANDSHAKES[state] for state in OPEN)
    assert HandshakeState.EXPIRED not in HANDSHAKES[HandshakeState.APPROVED]
