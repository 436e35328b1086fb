"""Fixtures of the tests of files."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.files import place


@pytest.fixture
def data(tmp_path):
    """Redline's data directory, which does not exist yet."""
    return tmp_path / "data"


@pytest.fixture
def session(tmp_path):
    """A short session, alone in its directory."""
    return place(tmp_path / "sessions" / "a.jsonl", b'{"type":"session","id":"x"}\n{"id":"1"}\n')


@pytest.fixture
def public_dir():
    """A directory that an unprivileged child can write to; `tmp_path` is private to root."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    for directory in (path, *(below for below in path.iterdir() if below.is_dir())):
        directory.chmod(0o777)
    shutil.rmtree(path)
