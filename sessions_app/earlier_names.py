"""Names that commands, flags and fields of JSON had in the version before, and that work until the next one."""

import sys
from collections.abc import Mapping
from typing import Any, Final

COMMANDS: Final = {
    "certify": "check",
    "doctor": "health",
    "hindsight": "costs",
    "lab": "benchmark",
    "navigate": "move",
}
FLAGS: Final = {
    "--leaf": "--branch",
    "--move": "--to",
    "--reader": "--open-as",
    "--remove": "--disconnect",
    "--run": "--plan",
    "--writer": "--save-as",
}


def report_renamed(earlier: str, now: str) -> None:
    """Say on standard error that a command or a flag has another name."""
    sys.stderr.write(f"redline: `{earlier}` is called `{now}` now. The earlier name works until the next version.\n")


def with_earlier_names(document: Mapping[str, Any], **earlier: str) -> dict[str, Any]:
    """A JSON document with fields repeated under their earlier names: `earlier` names the present field of each."""
    return {**document, **{name: document[now] for name, now in earlier.items()}}
