"""Fixtures of the tests of files."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Redline's data directory, which does not exist yet."""
    return tmp_path / "data"
