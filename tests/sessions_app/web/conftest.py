"""The server of the tests of the web interface."""

import pytest

from tests.server import place_in


@pytest.fixture(scope="module")
def server(request, shared_server):
    """A place in the server that tests share, for each module."""
    with place_in(shared_server, request.module.__name__.rpartition(".test_")[2]) as mine:
        yield mine
