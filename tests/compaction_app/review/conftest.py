"""Fixtures of the review: a run that has planned."""

import pytest

from tests.compaction_app.review.review_page import planned
from tests.factories import working_session


@pytest.fixture
def run(known_root):
    return planned(known_root, working_session())
