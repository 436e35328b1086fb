"""What leads where in a handshake."""

from compaction_app.core.handshake_states import OPEN, TRANSITIONS, HandshakeState, NextStep

ENDED = {HandshakeState.APPLIED, HandshakeState.DECLINED, HandshakeState.EXPIRED, HandshakeState.FAILED}


def test_the_table_has_every_state_and_each_has_words():
    assert set(TRANSITIONS) == set(HandshakeState)
    assert all(state.sentence for state in HandshakeState)
    assert all(step.sentence for step in NextStep)


def test_only_what_is_approved_is_ever_applied():
    assert {one for one, others in TRANSITIONS.items() if HandshakeState.APPLIED in others} == {HandshakeState.APPROVED}
    assert {one for one, others in TRANSITIONS.items() if HandshakeState.APPROVED in others} == {HandshakeState.WAITING}


def test_nothing_leads_out_of_an_end():
    assert all(not TRANSITIONS[state] for state in ENDED)


def test_whoever_waits_can_be_declined_expire_and_fail():
    ways_out = {HandshakeState.DECLINED, HandshakeState.EXPIRED, HandshakeState.FAILED}
    assert all(ways_out <= TRANSITIONS[state] for state in OPEN)
    assert HandshakeState.EXPIRED not in TRANSITIONS[HandshakeState.APPROVED]
