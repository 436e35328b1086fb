"""Fixtures of the tests of files."""

import pytest


@pytest.fixture
def data(tmp_path):
    """Redline's data directory, which does not exist yet."""
    return tmp_path / "data"
