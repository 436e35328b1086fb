"""Shell completion offers every command, every flag, and paths."""

from __future__ import annotations

import subprocess

import pytest

from redline.main import commands
from tests.installation import Installation


def offered(script: str, *words: str) -> list[str]:
    """The completions that bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    command = f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _redline; echo "${{COMPREPLY[@]}}"'
    shown = subprocess.run(["bash", "-c", f"{script}\n{command}"], capture_output=True, text=True, check=True)
    return shown.stdout.split()


def test_bash_completes_commands_and_flags_and_leaves_paths_to_itself(redline: Installation) -> None:
    script = redline.call("completion", "bash").out
    assert set(offered(script, "redline", "")) == {*commands(), "--help", "--version"}
    assert offered(script, "redline", "comp") == ["compact", "compaction-settings", "completion"]
    assert "--switch-branch" in offered(script, "redline", "compact", "x", "--")
    assert offered(script, "redline", "compact", "x", "--dry") == ["--dry-run"]
    assert offered(script, "redline", "tree", "x", "--dry") == []
    assert "--window" in offered(script, "redline", "models", "add", "--")
    assert offered(script, "redline", "tree", "/et") == []
    assert "-o default" in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_flag_is_in_the_script(redline: Installation, shell: str) -> None:
    script = redline.call("completion", shell, "--json").json["script"]
    for name in commands():
        assert name in script
    for flag in ("dry-run", "switch-branch", "rebuild", "drop-newer"):
        assert flag in script


def test_an_unknown_shell_is_bad_input(redline: Installation) -> None:
    assert redline.call("completion", "tcsh", "--json").error == "bad_arguments"
