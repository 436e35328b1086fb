"""Directories of an agent, and an empty store of OpenCode."""

import pytest

from tests.opencode_stores import OpenCodeStore


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def cwd(tmp_path):
    return tmp_path / "project"


@pytest.fixture
def store(tmp_path):
    return OpenCodeStore(tmp_path / "opencode")
