"""Promises of approvals: the last decision on an object says when it was approved, and with how many others."""

from datetime import UTC, datetime, timedelta

import pytest

from compaction_app.core.approvals import approvals
from compaction_app.core.decisions import Kind, Step
from sessions_app.sessionlog.targets import Target

ONE, OTHER = Target("e1"), Target("e2")
START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)


def after(*steps: tuple[Kind, tuple[Target, ...]]) -> dict[Target, tuple[int, int]]:
    """For each approved object: the minute of its approval, and how many were approved at once."""
    timed = [(Step(*step), START + timedelta(minutes=minute)) for minute, step in enumerate(steps)]
    found = approvals(timed)
    return {target: ((one.at - START).seconds // 60, one.together) for target, one in found.items()}


@pytest.mark.parametrize("kind", [Kind.APPROVE, Kind.ADD])
def test_a_decision_on_several_objects_is_in_bulk(kind):
    assert after((kind, (ONE, OTHER))) == {ONE: (0, 2), OTHER: (0, 2)}
    assert approvals([(Step(kind, (ONE, OTHER)), START)])[ONE].is_bulk
    assert not approvals([(Step(kind, (ONE,)), START)])[ONE].is_bulk


def test_the_last_approval_counts():
    assert after((Kind.APPROVE, (ONE, OTHER)), (Kind.APPROVE, (ONE,))) == {ONE: (1, 1), OTHER: (0, 2)}


@pytest.mark.parametrize("kind", [Kind.REJECT, Kind.REOPEN, Kind.WITHDRAW])
def test_what_is_taken_back_was_not_approved(kind):
    assert after((Kind.APPROVE, (ONE, OTHER)), (kind, (OTHER,))) == {ONE: (0, 2)}


def test_narrowing_to_several_blocks_approves_one_entry():
    assert after((Kind.NARROW, (Target("e1", 0), Target("e1", 2)))) == {ONE: (0, 1)}
