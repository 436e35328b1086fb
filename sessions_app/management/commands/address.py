from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from sessions_app.console import RedlineCommand
from sessions_app.launching import new_token

DEFAULT_PORT = 8000


class Command(RedlineCommand):
    help = "Print an address that lets one more browser in, once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="where the server listens")

    def run(self, options: dict[str, Any]) -> int | None:
        address = f"http://127.0.0.1:{options['port']}/launch?token={new_token(settings.REDLINE_DATA_DIR)}"
        self.say(address)
        self.show_json({"address": address})
        return None
