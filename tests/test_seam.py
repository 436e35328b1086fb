"""The agent boundary: only `sessions_app/agents` knows the field names of an agent's files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.paths import PROJECT

AGENTS: Final = PROJECT / "sessions_app" / "agents"
FIELDS: Final = """
    parentId firstKeptEntryId firstKeptEntryIndex targetId parentSession branchedFrom modelId
    toolCallId toolName isError stopReason errorMessage totalTokens cacheRead cacheWrite thinkingSignature
    thinkingLevel exitCode excludeFromContext toolsAdded
    deletedTargets protectedEntryIds promptVersion backupPath
    reserveTokens contextWindow
    context_compaction context_edit custom_message branch_summary model_change session_info thinking_level_change
    hookMessage bashExecution toolResult toolCall branchSummary compactionSummary redacted_thinking
    parentUuid logicalParentUuid leafUuid isSidechain isMeta isVirtual isCompactSummary isApiErrorMessage
    compactMetadata preservedMessages preservedSegment anchorUuid headUuid tailUuid
    customTitle aiTitle lastPrompt renderedRole compact_boundary local_command
""".split()
"""Names in the files of pi, Atomic and Claude Code that have no other meaning."""
OWN_NAMES: Final[dict[str, set[str]]] = {
    # The names of roles and blocks, in the index, in JSON and in transcripts.
    "sessions_app/sessionlog/entries.py": {
        *("toolResult", "bashExecution", "branchSummary", "compactionSummary"),
        *("toolCall", "redacted_thinking", "branch_summary"),
    },
    # The JSON of the command line and the budget tool.
    "sessions_app/models/__init__.py": {"contextWindow"},
    "compaction_app/core/stats.py": {"contextWindow"},
    "compaction_app/management/commands/compact.py": {"deletedTargets", "protectedEntryIds", "backupPath"},
    "compaction_app/management/change_command.py": {"cacheRead", "cacheWrite"},
    "compaction_app/management/commands/models.py": {"cacheRead", "cacheWrite"},
    # The usage of a run, and the prices of a model.
    "compaction_app/providers/types.py": {"cacheRead", "cacheWrite"},
    "compaction_app/planning/model_request.py": {"cacheRead", "cacheWrite"},
    "compaction_app/runs/presenter.py": {"cacheRead", "cacheWrite"},
    # What hooks may answer, in the shape of agents' own extensions.
    "compaction_app/core/hook_answers.py": {"firstKeptEntryId"},
    # A provider's own name; the scripted one speaks as it does.
    "compaction_app/providers/anthropic.py": {"redacted_thinking"},
    "compaction_app/scripted/anthropic.py": {"redacted_thinking"},
}
"""Places where Redline itself uses such a name for something else."""
_FIELD: Final = re.compile(rf"(?<!\w)(?:{'|'.join(FIELDS)})(?!\w)")


def strings_of(path: Path) -> Iterator[str]:
    """The text of a template, or the keywords of a module and its literals that are not docstrings."""
    if path.suffix == ".html":
        yield path.read_text(encoding="utf-8")
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield node.arg or ""
        if isinstance(node, ast.Constant) and id(node) not in documents:
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("latin-1")


def sources() -> Iterator[Path]:
    for package in ("redline", "sessions_app", "compaction_app", "lab_app"):
        yield from (path for path in (PROJECT / package).rglob("*.py") if not path.is_relative_to(AGENTS))
    yield from (PROJECT / "templates").rglob("*.html")


def names_in(path: Path) -> set[str]:
    return {name for words in strings_of(path) for name in _FIELD.findall(words)}


def test_only_agents_use_the_field_names_of_an_agents_files_and_they_use_each():
    found = {str(path.relative_to(PROJECT)): names_in(path) for path in sources()}
    assert {path: names for path, names in found.items() if names} == OWN_NAMES
    paths = [*AGENTS.rglob("*.py"), PROJECT / "sessions_app" / "sessionlog" / "entries.py"]
    named = {name for path in paths for name in names_in(path)}
    assert set(FIELDS) - named == set()
