"""EDGE: the plugin that makes OpenCode ask for a review before it compacts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sessions_app.agents.base import OUT_OF_REPOSITORY, TEST_VARIABLE
from sessions_app.agents.edge.bridges import FileBridge
from sessions_app.agents.edge.dry_resume.model_server import ModelServer
from sessions_app.agents.edge.dry_resume.process import Scratch, run_client

from .client import OpenCodeProgram, configure
from .settings import user_directory

SOURCE: Final = Path(__file__).with_name("redline.js")
SECONDS: Final = 60
"""How long a start may take; it usually takes one or two seconds."""
OFFLINE: Final = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    # It installs a package beside plugins, and would wait for the network.
    "npm_config_fetch_retries": "0",
}
"""Variables by which it starts at once without a network."""


class PluginBridge(FileBridge):
    """A plugin in the user's directory of OpenCode, or in a project's.

    ~/.config/opencode/plugin/redline.js; XDG_CONFIG_HOME names another directory
    PROJECT/.opencode/plugin/redline.js
    """

    source = SOURCE

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        within = (OUT_OF_REPOSITORY,) if in_project else ()
        return (*within, "A running OpenCode asks Redline when it is started again.")

    def path(self, home: Path, project: Path | None) -> Path:
        base = project / ".opencode" if project is not None else user_directory(home)
        return base / "plugin" / SOURCE.name

    def start(self, program: str, scratch: Scratch) -> str:
        with ModelServer() as server:
            scratch = scratch._replace(model_url=server.url)
            client = OpenCodeProgram(program)
            configure(scratch, "redline", "model")
            environment = {**client.environment(scratch), **OFFLINE, TEST_VARIABLE: "1"}
            ended = run_client(client.command("Hello"), cwd=scratch.project, environment=environment, seconds=SECONDS)
            return ended.last_words
