"""Shell completion offers every command, every flag, and paths."""

import subprocess

from redline.main import commands


def offered(script: str, *lines: str) -> list[list[str]]:
    """The completions that bash offers for the last word of each line."""
    complete = 'COMPREPLY=(); _redline; echo "${COMPREPLY[@]}"'
    asked = [f"COMP_WORDS=({line}); COMP_CWORD={line.count(' ')}; {complete}" for line in lines]
    shown = subprocess.run(["bash", "-c", "\n".join([script, *asked])], capture_output=True, text=True, check=True)
    return [line.split() for line in shown.stdout.splitlines()]


def test_bash_completes_commands_and_flags_and_leaves_paths_to_itself(redline):
    script = redline.call("completion", "bash").out
    first, beginning, flags, one, none, of_models, path = offered(
        script,
        "redline ''",
        "redline comp",
        "redline compact x --",
        "redline compact x --dry",
        "redline tree x --dry",
        "redline models add --",
        "redline tree /et",
    )
    assert set(first) == {*commands(), "--help", "--version"}
    assert beginning == ["compact", "compaction-settings", "completion"]
    assert "--switch-branch" in flags
    assert (one, none, path) == (["--dry-run"], [], [])
    assert "--window" in of_models
    assert "-o default" in script


def test_every_command_and_flag_is_in_each_script(redline):
    for shell in ("bash", "zsh", "fish"):
        script = redline.call("completion", shell, "--json").json["script"]
        for name in (*commands(), "dry-run", "switch-branch", "rebuild", "drop-newer"):
            assert name in script, shell


def test_an_unknown_shell_is_bad_input(redline):
    assert redline.call("completion", "tcsh", "--json").error == "bad_arguments"
