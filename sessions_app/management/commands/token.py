from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from sessions_app.cli import RedlineCommand
from sessions_app.disk.files import reported
from sessions_app.server.running_server import API_TOKEN_FILE, api_token


class Command(RedlineCommand):
    help = "Print the API token, with which scripts start and follow plans."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--new", action="store_true", help="replace the token; the old one stops working")

    def run(self, options: dict[str, Any]) -> None:
        path = settings.REDLINE_DATA_DIR / API_TOKEN_FILE
        with reported(path, "The token was not printed."):
            token = api_token(settings.REDLINE_DATA_DIR, renewed=options["new"])
        self.say(token)
        self.show_json({"token": token})
