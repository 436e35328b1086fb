"""PURE: the names that agents give their tools and the arguments of calls.

A transcript may hold calls of any agent's tools, of MCP servers and of earlier versions, so all are known together:

| | pi, Atomic | Claude Code | Codex | OpenCode | Amp |
|---|---|---|---|---|---|
| read | `read` | `Read` | a command | `read` | `Read` |
| edit | `edit` | `Edit`, `MultiEdit` | `apply_patch` | `edit` | `edit_file` |
| write | `write` | `Write` | `apply_patch` | `write` | `create_file` |
| command | `bash` | `Bash` | `shell`, `exec_command` | `bash` | `Bash` |

Names of tools are compared in lower case.
"""

from collections.abc import Mapping
from typing import Final

PATH_ARGUMENTS: Final = frozenset({"path", "file_path", "filePath", "notebook_path"})
"""The arguments with the path of a tool's file."""
COMMAND_ARGUMENTS: Final = ("command", "cmd")
OLD_TEXT_ARGUMENTS: Final = ("old_string", "oldString", "oldText", "old_text")
NEW_TEXT_ARGUMENTS: Final = ("new_string", "newString", "newText", "new_text", "new_source")
EDITS_ARGUMENT: Final = "edits"
"""The argument with several edits, each with an old and a new text."""
CONTENT_ARGUMENT: Final = "content"
"""The argument with the whole text of a written file."""
READING_TOOLS: Final = frozenset({"read", "read_file", "view"})
"""Tools whose result is the text of a file."""
WRITING_TOOLS: Final = frozenset({"write"})
"""Tools that replace a whole file."""
TOOL_KINDS: Final[Mapping[str, str]] = {
    "read": "read",
    "bash": "bash",
    "shell": "bash",
    "exec_command": "bash",
    "edit": "edit",
    "multiedit": "edit",
    "apply_patch": "edit",
    "write": "write",
}
"""The kind of each tool's results on a token map, in one word."""
