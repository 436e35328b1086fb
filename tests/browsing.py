"""What tests of pages share: a configured root, and a browser that is known.

    pytest_plugins = ["tests.running", "tests.browsing"]

PYTEST_DONT_REWRITE: it is imported before pytest could.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from redline.configuration import Configuration, RootSetting
from sessions_app.credentials import COOKIE, new_launch_cookie
from sessions_app.launching import browser_host
from tests.running import Installation


@pytest.fixture
def known_root(tmp_path: Path, settings: Any, redline: Installation) -> Path:
    """A configured root in which a test puts its sessions."""
    directory = tmp_path / "shown"
    directory.mkdir()
    usual = Configuration()
    settings.REDLINE = usual.model_copy(update={"roots": [RootSetting(path=directory, agent="atomic")]})
    from sessions_app.services.roots import configured_roots

    configured_roots()
    return directory


def at_our_host(**options: Any) -> Client:
    """A browser that uses the address of the pages, and is not let in."""
    return Client(headers={"host": browser_host(django_settings.REDLINE_DATA_DIR)}, **options)


def let_in(**options: Any) -> Client:
    """A browser that has the launch cookie."""
    client = at_our_host(**options)
    client.cookies[COOKIE] = new_launch_cookie()
    return client


@pytest.fixture
def client(redline: Installation) -> Client:
    return at_our_host()


@pytest.fixture
def browser(redline: Installation) -> Client:
    """A browser that has the launch cookie."""
    return let_in()
