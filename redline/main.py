"""The `redline` command: finds a command, and loads the parts of Django that this command needs.

`manage.py` also has Django's own commands, and always loads everything. Django is imported inside functions here:
until then, an interrupt ends the process at once and quietly.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from types import FrameType

    from sessions_app.cli import RedlineCommand

WITH_PAGES: Final = frozenset({"serve"})
"""Commands that load the pages as well."""
WITHOUT_MODELS: Final = frozenset({"address", "ask", "check_vectors", "connect", "token", "tree"})
"""Commands that use neither the database nor hooks: they load no apps."""
FOR_AGENTS: Final = frozenset({"ask"})
"""Commands that agents call: a failure before they start must not stop the agent by its exit code."""
OBJECTS_SCANNED: Final = 20_000
"""The number of new objects after which the garbage collector runs. A page creates thousands, and indexing a file more,
nearly all freed without it: with Python's default of 700, collection takes a tenth of the time."""
USAGE: Final = "usage: redline COMMAND [ARGUMENT…] [--json] | redline COMMAND --help | redline --version\n"


def main() -> None:
    """Run the command given on the command line."""
    prepare_process()
    name = sys.argv[1] if len(sys.argv) > 1 else "help"
    os.environ["DJANGO_SETTINGS_MODULE"] = "redline.settings" if name in WITH_PAGES else "redline.command_settings"
    try:
        run(sys.argv)
    except KeyboardInterrupt:
        _end_now()
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # The command has finished: while Python shuts down, there is nothing left to interrupt.
            signal.signal(signal.SIGINT, _end_now)


def prepare_process() -> None:
    """Set up interrupts, memory, the permissions of new files and the standard streams, before Django is loaded."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_now)
    gc.set_threshold(OBJECTS_SCANNED)
    # None is used, and to look for some reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _keep_files_private()
    _open_standard_streams()


def develop() -> None:
    """Run one of Django's or Redline's commands, for `manage.py`."""
    _keep_files_private()
    os.environ["DJANGO_SETTINGS_MODULE"] = "redline.settings"
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


def run(argv: list[str]) -> NoReturn:
    """Run the command in `argv`, and exit with its code."""
    from sessions_app.cli import report_failure, wants_json
    from sessions_app.sessionlog.errors import RedlineError

    name, *rest = argv[1:] or ["help"]
    if name in ("help", "--help", "-h") and [one for one in rest if one != "--json"]:
        name, rest = rest[0], [*rest[1:], "--help"]
    try:
        name = _present_name(name)
        if name in ("--version", "version"):
            _show("version", _version(), as_json=wants_json(argv))
        if name in ("help", "--help", "-h"):
            _show("help", _help(), as_json=wants_json(argv))
        command = _load(name)
    except RedlineError as failure:
        code = report_failure(failure, as_json=wants_json(argv))
        sys.exit(0 if name in FOR_AGENTS else code)
    if signal.getsignal(signal.SIGINT) is _end_now:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command.run_from_argv([argv[0], name, *rest])
    sys.exit()


def _present_name(name: str) -> str:
    """The name of a command for an earlier name of it, which a line on standard error names."""
    from sessions_app.earlier_names import COMMANDS, report_renamed

    now = COMMANDS.get(name, name)
    if now != name and now in commands():
        report_renamed(name, now)
        return now
    return name


def commands() -> dict[str, str]:
    """The names of Redline's commands, in order, each with its app. Raises the errors of the settings."""
    from importlib.util import find_spec

    from django.conf import settings
    from django.core.management import find_commands

    from .checkout import DEVELOPER_TOOLS

    found = {}
    for app in (*settings.REDLINE_APPS, *DEVELOPER_TOOLS):
        spec = find_spec(app)
        assert spec is not None and spec.submodule_search_locations is not None  # noqa: S101, PT018  # it is installed
        for name in find_commands(os.path.join(spec.submodule_search_locations[0], "management")):  # noqa: PTH118
            found[name] = app
    return dict(sorted(found.items()))


def _load(name: str) -> RedlineCommand:
    """Import a command, after what it needs. Raises BadInput `unknown_command`, and the errors of the settings."""
    import django
    from django.core.management import load_command_class

    from sessions_app.sessionlog.errors import BadInput

    app = commands().get(name)
    if app is None:
        raise BadInput("unknown_command", f"There is no command {name}. Nothing was done. `redline help` lists them.")
    gc.disable()
    if name not in WITHOUT_MODELS:
        django.setup()
    command: RedlineCommand = load_command_class(app, name)  # type: ignore[assignment]  # all of ours are
    # What was loaded stays until the process ends: the garbage collector need not scan it again and again.
    gc.freeze()
    gc.enable()
    return command


def _help() -> str:
    names = commands()
    width = max(map(len, names))
    lines = [f"  {name:<{width}} {_load(name).summary}" for name in names]
    return "\n".join([USAGE, *lines])


def _version() -> str:
    from importlib.metadata import version

    return f"redline {version('redline')}"


def _show(kind: str, text: str, *, as_json: bool) -> NoReturn:
    import json

    sys.stdout.write(json.dumps({kind: text}) + "\n" if as_json else f"{text}\n")
    sys.exit()


def _end_now(signum: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Exit on an interrupt, before anything has begun or after everything is done."""
    del signum, frame
    os.write(2, b"redline: interrupted\n")
    os._exit(130)


def _keep_files_private() -> None:
    """Make all new files in the data directory private, including those of libraries.

    A copy of a session gets the session's own mode.
    """
    os.umask(0o077)


def _open_standard_streams() -> None:
    """Reopen closed standard streams, and let the others escape characters that they cannot encode.

    Closed streams are opened on the null device, in the order of their descriptors: no other file must get one of them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  # until the end
        elif mode == "w":
            stream.reconfigure(errors="backslashreplace")
