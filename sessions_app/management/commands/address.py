from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from sessions_app.cli import RedlineCommand
from sessions_app.disk.files import reported
from sessions_app.server.running_server import browser_host, launch_address, running_server
from sessions_app.sessionlog.errors import Conflict


class Command(RedlineCommand):
    help = "Print an address that logs one more browser in; it works once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type="port", help="the port in the address, if the server's port is forwarded")
        parser.add_argument(
            "--revoke",
            action="store_true",
            help="change the name in the address: all browsers are logged out, and old addresses stop working",
        )

    def run(self, options: dict[str, Any]) -> None:
        directory = settings.REDLINE_DATA_DIR
        done = "No address was made."
        if options["revoke"]:
            with reported(directory, "The name was not changed, and no browser was logged out."):
                browser_host(directory, renewed=True)
            done = "The name was changed, and all browsers are logged out."
        with reported(directory, done):
            server = running_server(directory)
            if server is None and not options["revoke"]:
                raise Conflict(
                    "not_served",
                    f"No server is using the data directory {directory}. {done} Start one with `redline serve`, which "
                    "prints an address.",
                )
            address = launch_address(directory, server, options["port"]) if server is not None else None
        if options["revoke"]:
            self.say(done)
        if address is not None:
            self.say(address)
        self.show_json({"address": address})
