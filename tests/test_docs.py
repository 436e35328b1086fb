"""What the documents list matches the code."""

import ast
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
INTERNALS = (PROJECT / "docs" / "internals.md").read_text(encoding="utf-8")
APPS = ("sessions_app", "compaction_app", "lab_app", "redline", "devtools")


def rows_under(heading: str, document: str) -> list[list[str]]:
    section = document.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def modules() -> list[Path]:
    """The modules of the source, without migrations, relative to the project."""
    found = [path.relative_to(PROJECT) for app in APPS for path in (PROJECT / app).rglob("*.py")]
    return [path for path in found if "migrations" not in path.parts]


def test_the_internals_list_every_gate_and_every_tool():
    assert rows_under("The airlock", INTERNALS) == [[gate.name, gate.kind, gate.rule] for gate in GATES]
    assert rows_under("The tools", INTERNALS) == [[f"`{name}`", tool.description] for name, tool in TOOLS.items()]


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


def test_the_architecture_page_is_read_in_ten_minutes():
    assert len(re.findall(r"\w[\w'./-]*", ARCHITECTURE)) <= 1_800


def test_the_internals_list_every_folder_and_no_other():
    listed = [name.strip("`") for name, _ in rows_under("The folders", INTERNALS)]
    folders = {path.parent for path in modules()}
    # Each agent has the same two parts, and commands are listed in the README.
    parts = {agent / part for agent in folders if agent.parent.name == "agents" for part in ("pure", "edge")}
    commands = {folder for folder in folders if folder.name == "commands"}
    assert sorted(listed) == sorted(str(folder) for folder in folders - parts - commands)


def test_every_module_says_what_it_contains():
    without = {"__init__", "__main__", "apps", "urls"}
    for path in modules():
        if path.stem not in without and path.parent.name != "commands":
            assert ast.get_docstring(ast.parse((PROJECT / path).read_text(encoding="utf-8"))), path


def test_every_module_that_a_document_names_exists():
    known = [f"/{path.relative_to(PROJECT)}" for app in (*APPS, "tests") for path in (PROJECT / app).rglob("*.py")]
    contributing = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([\w/-]+\.py)`", ARCHITECTURE + INTERNALS + contributing):
        assert any(path.endswith(f"/{name}") for path in known), name


def test_no_document_names_a_path_outside_the_project():
    for document in [*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")]:
        assert not re.search(r"(?<![\w.~$])/(?:work|root|tmp)/", Path(document).read_text(encoding="utf-8"))


def test_the_table_of_states_matches_the_code():
    section = INTERNALS.split("\n## The life of a run\n", 1)[1].split("\n## ", 1)[0]
    listed: dict[str, set[str]] = {}
    for states, others in re.findall(r"^\| (`.+?) \| (.+?) \|$", section, re.MULTILINE):
        for state in re.findall(r"`(\w+)`", states):
            listed[state] = set(re.findall(r"`(\w+)`", others))
    assert listed == {state.value: {other.value for other in others} for state, others in TRANSITIONS.items()}
