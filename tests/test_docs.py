"""What the documents list matches the code."""

import re
from pathlib import Path

from compaction_app.core.gates import GATES
from compaction_app.core.states import TRANSITIONS
from compaction_app.core.tools import TOOLS
from redline.configuration import Configuration
from redline.main import commands
from tests.paths import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")


def rows_under(heading: str, document: str) -> list[list[str]]:
    section = document.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_architecture_page_lists_every_gate_and_every_tool():
    assert rows_under("The airlock", ARCHITECTURE) == [[gate.name, gate.kind, gate.rule] for gate in GATES]
    assert rows_under("The tools", ARCHITECTURE) == [[f"`{name}`", tool.description] for name, tool in TOOLS.items()]


def test_the_readme_lists_every_command_and_no_other_and_shows_every_setting():
    listed = re.findall(r"^\| `([a-z_-]+)[ `\[]", README, flags=re.MULTILINE)
    assert {name for name in listed if not name.startswith("--")} == set(commands())
    shown = README.split("```toml", 1)[1].split("```", 1)[0]
    for name in Configuration.model_fields:
        assert re.search(rf"^\[*{name}\b", shown, flags=re.MULTILINE), name


def test_every_dependency_has_a_documented_reason():
    project = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    reasons = ARCHITECTURE.split("\n## Dependencies\n", 1)[1].split("\n## ", 1)[0].lower()
    for name in re.findall(r'^    "([A-Za-z0-9-]+)[><=]', project, flags=re.MULTILINE):
        assert name.lower() in reasons, name


def test_every_module_appears_on_the_architecture_page():
    layout = set(re.findall(r"\w+", ARCHITECTURE.split("\n## Source layout\n", 1)[1].split("\n## ", 1)[0]))
    passed_over = {"__init__", "__main__", "apps", "checks", "settings", "urls", "main", "configuration"}
    for package in ("sessions_app", "compaction_app", "lab_app", "redline", "devtools"):
        for module in (PROJECT / package).rglob("*.py"):
            if {"migrations", "commands", "bench"} & set(module.relative_to(PROJECT).parts):
                continue
            assert module.stem in layout | passed_over, module


def test_no_document_names_a_path_outside_the_project():
    for document in [*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")]:
        assert not re.search(r"(?<![\w.~$])/(?:work|root|tmp)/", Path(document).read_text(encoding="utf-8"))


def test_the_table_of_states_matches_the_code():
    section = ARCHITECTURE.split("\n## The life of a run\n", 1)[1].split("\n## ", 1)[0]
    listed: dict[str, set[str]] = {}
    for states, others in re.findall(r"^\| (`.+?) \| (.+?) \|$", section, re.MULTILINE):
        for state in re.findall(r"`(\w+)`", states):
            listed[state] = set(re.findall(r"`(\w+)`", others))
    assert listed == {state.value: {other.value for other in others} for state, others in TRANSITIONS.items()}
