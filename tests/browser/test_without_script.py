"""Everything works without JavaScript: from the list to the commit and back with links and forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.browser.chromium import Watched
from tests.browser.page_objects import journey_server, whole_journey
from tests.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with journey_server(tmp_path_factory.mktemp("without-script")) as running:
        yield running


def test_a_session_is_compacted_and_restored_by_links_and_forms_alone(
    server: Server, browse: Callable[..., Watched]
) -> None:
    whole_journey(browse(server, java_script_enabled=False), scripted=False)
