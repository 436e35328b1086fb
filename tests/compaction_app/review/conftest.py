"""Fixtures of the review: a run that has planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_app.models import Run
from tests.compaction_app.review.review_page import planned
from tests.factories import working_session


@pytest.fixture
def run(known_root: Path) -> Run:
    return planned(known_root, working_session())
