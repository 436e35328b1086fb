import shlex
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandParser

from sessions_app.cli import RedlineCommand
from sessions_app.index.named_session import known_sessions
from sessions_app.server.children import redline_command
from sessions_app.sessionlog.text import one_line

SESSIONS: Final = "sessions"
MOST: Final = 200
"""The maximum number of sessions offered, the newest first."""
TITLE: Final = 60


@dataclass(frozen=True, slots=True)
class CommandCompletion:
    """The completions for one command: its summary, and its flags with their help texts."""

    summary: str
    flags: Mapping[str, str]
    takes_session: bool


class Command(RedlineCommand):
    help = "Print a shell script that completes commands, flags, sessions and paths."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "shell",
            choices=[*sorted(SCRIPTS), SESSIONS],
            help=f"the shell to print the script for; or {SESSIONS}, which the scripts call: the ids with the titles",
        )

    def warns(self, options: dict[str, Any]) -> bool:
        return bool(options["shell"] != SESSIONS)

    def run(self, options: dict[str, Any]) -> None:
        if options["shell"] == SESSIONS:
            named = [(session.short_id, one_line(session.heading, TITLE)) for session in known_sessions(MOST)]
            self.show_json([{"shortId": name, "title": title} for name, title in named])
            self.say_all((f"{name}\t{title}" for name, title in named), paged=False)
            return
        script = "\n".join(SCRIPTS[options["shell"]](dict(_commands())))
        self.say(script)
        self.show_json({"script": script})


def _commands() -> Iterator[tuple[str, CommandCompletion]]:
    for name, app in sorted(get_commands().items()):
        command = load_command_class(str(app), name) if app != "django.core" else None
        if isinstance(command, RedlineCommand):
            parser = command.create_parser("redline", name)
            takes_session = any(action.type == "session" for action in parser._actions)
            yield name, CommandCompletion(command.summary, dict(_flags(parser)), takes_session)


def _ask_for_sessions() -> str:
    """The command that prints the ids; it does not depend on the shell's directory and PATH."""
    return shlex.join(redline_command("completion", SESSIONS)) + " 2>/dev/null"


def _names(commands: Mapping[str, CommandCompletion], separator: str) -> str:
    return separator.join(name for name, one in commands.items() if one.takes_session)


def _flags(parser: ArgumentParser) -> Iterator[tuple[str, str]]:
    """The flags of a command and of its subcommands, with their help texts."""
    for action in parser._actions:  # argparse offers no other list
        yield from ((flag, action.help or "") for flag in action.option_strings if flag.startswith("--"))
        if isinstance(action.choices, Mapping):
            for one in action.choices.values():
                yield from _flags(one)


def _bash(commands: Mapping[str, CommandCompletion]) -> Iterator[str]:
    yield "_redline() {"
    yield "    local current=${COMP_WORDS[COMP_CWORD]} flags"
    yield "    case ${COMP_WORDS[1]} in"
    for name, completed in commands.items():
        yield f"        {name}) flags='{' '.join(completed.flags)}';;"
    yield "    esac"
    yield "    if [[ $COMP_CWORD -eq 1 ]]; then"
    yield f"        COMPREPLY=($(compgen -W '{' '.join(commands)} --help --version' -- \"$current\"))"
    yield "    elif [[ $current == -* ]]; then"
    yield '        COMPREPLY=($(compgen -W "$flags" -- "$current"))'
    yield f"    elif [[ ' {_names(commands, ' ')} ' == *\" ${{COMP_WORDS[1]}} \"* && $current =~ ^[0-9a-f]*$ ]]; then"
    yield "        local IFS=$'\\n'"
    yield f"        local ids=$({_ask_for_sessions()} | cut -f1)"
    yield '        COMPREPLY=($(compgen -W "$ids" -- "$current") $(compgen -f -- "$current"))'
    yield "        compopt -o filenames 2>/dev/null"
    yield "    fi"
    yield "}"
    # Anything else is completed as a path.
    yield "complete -o default -F _redline redline"


def _zsh(commands: Mapping[str, CommandCompletion]) -> Iterator[str]:
    yield "#compdef redline"
    yield "_redline() {"
    yield "    local -a commands flags"
    described = " ".join(_described(name, one.summary) for name, one in commands.items())
    yield f"    commands=({described})"
    yield "    if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield "    case $words[2] in"
    for name, completed in commands.items():
        yield f"        {name}) flags=({' '.join(_described(*flag) for flag in completed.flags.items())});;"
    yield "    esac"
    yield "    if [[ $PREFIX == -* ]]; then _describe flag flags; return; fi"
    yield f"    case $words[2] in {_names(commands, '|')})"
    yield "        local -a sessions"
    # The titles come from sessions: characters that `_describe` expands, or takes for the end of an id, are removed.
    yield f"        sessions=(\"${{(@f)$({_ask_for_sessions()} | tr -d ':\\\\' | tr '\\t' :)}}\")"
    yield "        _describe session sessions;;"
    yield "    esac"
    yield "    _files"
    yield "}"
    yield "compdef _redline redline"


def _described(word: str, meaning: str) -> str:
    return shlex.quote(f"{word}:{meaning}")


def _fish(commands: Mapping[str, CommandCompletion]) -> Iterator[str]:
    for name, completed in commands.items():
        yield (f"complete -c redline -n __fish_use_subcommand -f -a {name} -d {_fish_quoted(completed.summary)}")
        for flag, meaning in completed.flags.items():
            yield (
                f"complete -c redline -n '__fish_seen_subcommand_from {name}' -l {flag.removeprefix('--')}"
                f" -d {_fish_quoted(meaning)}"
            )
    yield (
        f"complete -c redline -n '__fish_seen_subcommand_from {_names(commands, ' ')}'"
        f" -a {_fish_quoted(f'({_ask_for_sessions()})')}"
    )


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
