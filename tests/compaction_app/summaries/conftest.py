"""A provider with some scripts, as the source of summaries."""

import pytest

from tests.scripted_models import add_scripted


@pytest.fixture
def provider(redline, provider, request):
    """Speaks the dialect of an indirect parameter, or that of Anthropic."""
    dialect = getattr(request, "param", "anthropic")
    add_scripted(provider, "good-plan", "refuses", "overflow", "stalls-before", dialect=dialect)
    return provider
