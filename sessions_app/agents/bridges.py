"""EDGE: bridges that are files (extensions of pi and Atomic, plugins of OpenCode), or hooks in a file of the user.

The sources of files are beside the agents' modules. An installed one is a single file: in place of its import of
bridge_core.js it has the text of that file, one line of which names the connection file:

    const CONNECTION = "/home/me/.local/share/redline/connections/pi.json";
"""

import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sessions_app.agents.base import Bridge
from sessions_app.agents.pure.hooks import BRIDGE, CompactionHook, entry_command, with_entry, without_entry
from sessions_app.agents.pure.json_document import JsonDocument
from sessions_app.sessionlog.errors import BadInput

from .edge.dry_resume import Scratch, new_scratch

CORE: Final = Path(__file__).with_name("edge") / "bridge_core.js"
PLACEHOLDER: Final = b'"@CONNECTION@"'
_CORE_IMPORT: Final = re.compile(rb'^import \{[^}]*\} from "(?:\.\./)+edge/bridge_core\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(rb"^export ", re.MULTILINE)
_VERSION: Final = re.compile(rb"^const BRIDGE = (\d{1,6});?[ \t]*\r?$", re.MULTILINE)
_CONNECTION: Final = re.compile(rb'^const CONNECTION = ("[^\r\n]*");?[ \t]*\r?$', re.MULTILINE)


class FileBridge(Bridge):
    """A bridge that is a file of its own. It is built from `source` and the core."""

    source: Path

    @property
    def _source(self) -> bytes:
        # OpenCode takes each export of a plugin for a plugin: the core has none in an installed bridge.
        core = _EXPORT.sub(b"", CORE.read_bytes())
        return _CORE_IMPORT.sub(lambda _: core, self.source.read_bytes())

    @property
    def version(self) -> int:
        found = _VERSION.search(self._source)
        return int(found[1]) if found is not None else 0

    @abstractmethod
    def start(self, program: str, scratch: Scratch) -> str:
        """Start the program with this home, so that it loads the bridge, and return the end of its output."""

    def content(self, before: bytes | None, path: Path, connection: Path, program: str) -> bytes:
        if before is not None and self.installed_version(before, path) is None:
            raise BadInput(
                "foreign_file",
                f"{path} is another file, which Redline did not make. Nothing was changed. Move it away first.",
            )
        return self._with_connection(json.dumps(str(connection)).encode())

    def without(self, content: bytes, path: Path, before: bytes | None) -> bytes | None:
        return before

    def is_edited(self, content: bytes) -> bool:
        found = _CONNECTION.search(content)
        return found is not None and content != self._with_connection(found[1])

    def installed_version(self, content: bytes, path: Path) -> int | None:
        if _CONNECTION.search(content) is None:
            return None
        found = _VERSION.search(content)
        return int(found[1]) if found is not None else 0

    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        scratch = new_scratch(home, "")
        path = self.path(scratch.home, None)
        path.parent.mkdir(parents=True)
        path.write_bytes(self.content(None, path, connection, redline))
        return self.start(program, scratch)

    def _with_connection(self, literal: bytes) -> bytes:
        return self._source.replace(PLACEHOLDER, literal)


class HookBridge(Bridge):
    """A bridge that is a command which the agent calls before it compacts."""

    key: str
    label: str
    hook: CompactionHook
    version = BRIDGE

    def content(self, before: bytes | None, path: Path, connection: Path, program: str) -> bytes:
        return with_entry(before or b"", self.command(connection, program), str(path))

    def command(self, connection: Path, program: str) -> str:
        """The command that the agent calls."""
        return f"{program} ask {self.key} --connection {connection.stem}"

    def without(self, content: bytes, path: Path, before: bytes | None) -> bytes | None:
        left = without_entry(content, before, str(path))
        is_empty = not JsonDocument(left, str(path)).root.items
        return None if before is None and is_empty else left

    def installed_version(self, content: bytes, path: Path) -> int | None:
        return BRIDGE if entry_command(content, str(path)) is not None else None

    def remarks(self, content: bytes, path: Path) -> Sequence[str]:
        if JsonDocument(content, str(path)).is_strict:
            return ()
        return (
            f"{path} has comments or commas that JSON does not have: {self.label} ignores the whole file, and will not "
            "ask, until they are deleted.",
        )
