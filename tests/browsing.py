"""What tests of pages share: a configured root, and a browser that is known.

    pytest_plugins = ["tests.running", "tests.browsing"]

PYTEST_DONT_REWRITE: it is imported before pytest could.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core import signing
from django.test import Client

from redline.configuration import Configuration, RootSetting
from sessions_app.credentials import COOKIE, SALT
from tests.running import Installation


@pytest.fixture
def known_root(tmp_path: Path, settings: Any, redline: Installation) -> Path:
    """A configured root in which a test puts its sessions."""
    directory = tmp_path / "shown"
    directory.mkdir()
    usual = Configuration()
    settings.REDLINE = usual.model_copy(update={"roots": [RootSetting(path=directory, agent="atomic")]})
    from sessions_app.services.indexing import configured_roots

    configured_roots()
    return directory


@pytest.fixture
def browser(client: Client, redline: Installation) -> Client:
    """A browser that has the launch cookie."""
    client.cookies[COOKIE] = signing.dumps(1, salt=SALT)
    return client
