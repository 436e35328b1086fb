"""A provider with some scripts, as the source of summaries."""

import pytest

from tests.scripted_models import add_scripted


@pytest.fixture
def provider(redline, provider):
    add_scripted(provider, "good-plan", "refuses", "overflow", "stalls-before", dialect="anthropic")
    return provider
