"""The document of each agent's format is beside its code, and names what the code writes."""

import re

import pytest

from sessions_app.agents.registry import AGENTS
from tests.paths import PROJECT

FOLDERS = PROJECT / "sessions_app" / "agents"
HEADINGS = ("What Redline writes", "Unknown")


def document_of(key: str) -> str:
    return (FOLDERS / key.replace("-", "_") / "FORMAT.md").read_text(encoding="utf-8")


def test_every_agent_has_a_document_and_no_other_folder_does():
    found = {path.parent.name.replace("_", "-") for path in FOLDERS.rglob("FORMAT.md")}
    assert found == set(AGENTS)


@pytest.mark.parametrize("key", AGENTS)
def test_it_names_each_way_to_write_and_says_what_is_not_known(key):
    document = document_of(key)
    written = document.split(f"\n## {HEADINGS[0]}\n", 1)[1].split("\n## ", 1)[0]
    for generation in AGENTS[key].format.generations:
        for writer in generation.writers:
            assert f"`{writer.name}`" in written, writer.name
    assert f"\n## {HEADINGS[1]}\n" in document


@pytest.mark.parametrize("key", AGENTS)
def test_it_names_only_modules_that_exist_and_no_path_outside_the_project(key):
    document = document_of(key)
    for name in re.findall(r"`((?:pure|edge)/\w+\.py)`", document):
        assert (FOLDERS / key.replace("-", "_") / name).is_file(), name
    assert not re.search(r"(?<![\w.~$])/(?:work|root|tmp)/", document)
