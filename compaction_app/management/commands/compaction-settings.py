from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandParser

from compaction_app.pages.settings_in_force import SettingsView, view_settings
from sessions_app.agents.base import SettingInForce
from sessions_app.cli import SESSION_HELP, RedlineCommand, printable
from sessions_app.disk.files import real_path
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.text import plural
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("SETTING"),
    Column("IN FORCE", style="cyan"),
    Column("DEFAULT"),
    Column("FROM", cut="start"),
    Column("TO CHANGE IT"),
)


class Command(RedlineCommand):
    help = (
        "Show the settings by which a session is compacted. These are its agent's, the parameters of plans, and the "
        "hooks; each has its value, default and file, and the line that changes it."
    )
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)

    def run(self, options: dict[str, Any]) -> None:
        session = index_file(real_path(options["path"]))
        view = view_settings(session, Path.home())
        self.show_json({**_document(view), "compactions": session.compaction_count})
        self.say_all(f"{printable(fault)} Nothing of this file is in force." for fault in view.faults)
        rows = [
            [row.name, printable(row.text), row.setting.default, printable(row.source), row.line]
            for row in (*view.of_agent, *view.of_plans)
        ]
        self.say_all(self.screen.table(COLUMNS, rows))
        self.say_all(_words(view))
        self.say(f"{plural(session.compaction_count, 'compaction')} so far.")


def _words(view: SettingsView) -> Iterator[str]:
    if not view.of_agent:
        yield f"{view.agent} has no settings of compaction that Redline knows."
    elif view.compacts_automatically:
        above = f" above {plural(view.threshold, 'token')}" if view.threshold is not None else ""
        yield f"Automatic compaction is on{above}."
    else:
        yield f"Automatic compaction is off, by {printable(view.switched_off_in)}."
    for row in (*view.of_agent, *view.of_plans):
        yield from (f"The value of {row.name} in {printable(path)} cannot be used." for path in row.refused)
        yield from (
            f"The value of {row.name} in {printable(path)} is not read: the file before it sets it too."
            for path in row.unread
        )
    for path, hooks in view.hooks:
        yield f"Hooks in {printable(path)}: {', '.join(map(printable, hooks))}"
    if view.own_hooks:
        yield f"Redline's own hooks: {', '.join(map(printable, view.own_hooks))}"


def _document(view: SettingsView) -> dict[str, Any]:
    return {
        "agent": view.agent,
        "automatic": view.compacts_automatically,
        "switchedOffIn": view.switched_off_in or None,
        "threshold": view.threshold,
        "settings": [_row(row, view) for row in view.of_agent],
        "parameters": [_row(row, view) for row in view.of_plans],
        "hooks": [{"file": path, "hooks": hooks} for path, hooks in view.hooks],
        "ownHooks": view.own_hooks,
        "files": view.files,
        "faults": view.faults,
    }


def _row(row: SettingInForce, view: SettingsView) -> dict[str, Any]:
    return {
        "name": row.name,
        "meaning": row.setting.meaning,
        "value": row.text,
        "default": row.setting.default,
        "source": None if row.is_default else row.source,
        "ignored": row.refused,
        "hidden": row.unread,
        "line": row.line or None,
        "pasteInto": view.user_file if row.is_default else row.source,
    }
