"""The table of each kind of work in the background is whole, and the only way from one state to another."""

from itertools import product

import pytest
from django.utils import timezone

from compaction_app.models import Run, SummaryDraft
from lab_app.models import Experiment
from sessions_app.jobs.job import QUEUED, Job


@pytest.mark.parametrize("kind", Job.kinds())
def test_the_table_of_a_kind_is_whole_and_leads_to_every_end_of_a_worker(kind):
    assert set(kind.TRANSITIONS) == {state for state, _ in kind._meta.get_field("state").choices}
    assert {kind.WORKING, kind.FAILED} <= kind.TRANSITIONS[QUEUED]
    assert {kind.ABANDONED, kind.FAILED} <= kind.TRANSITIONS[kind.WORKING]
    assert callable(kind.work_on())


@pytest.mark.parametrize("kind", Job.kinds())
def test_a_job_changes_only_as_its_table_allows(session, kind):
    own = {Run: {"session": session}, SummaryDraft: {"session": session}, Experiment: {}}
    job = kind.objects.create(created_at=timezone.now(), **own[kind])
    for state, other in product(kind.TRANSITIONS, kind.TRANSITIONS):
        kind.objects.update(state=state)
        is_allowed = other in kind.TRANSITIONS[state]
        assert kind.change(job.pk, other) is is_allowed
        assert kind.objects.get().state == (other if is_allowed else state)
        assert not kind.change(job.pk, other, leaving=set())
