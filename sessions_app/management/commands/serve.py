import contextlib
import logging
import tempfile
from typing import Any, Final

import uvicorn
from django.conf import settings
from django.core.management.base import CommandParser

from sessions_app.cli import RedlineCommand
from sessions_app.database.sqlite import only_this_database
from sessions_app.disk.files import reported
from sessions_app.index.roots import managed_root
from sessions_app.server import connections
from sessions_app.server.connection_files import announce_server
from sessions_app.server.running_server import RunningServer, launch_address, only_server
from sessions_app.web.server_log import kept_log
from sessions_app.web.uploads import upload_directory

_log = logging.getLogger("redline")

APPLICATION = "redline.asgi:application"
DEFAULT_PORT: Final = 8000
HOSTS: Final = (connections.IPV4, connections.IPV6)
"""The addresses to listen on. Browsers try ::1 first: another process listening there would receive their requests."""
MESSAGE_BYTES: Final = 16_384
"""The maximum size of a message that a page sends over a socket."""
SHUTDOWN_SECONDS: Final = 3
"""How long requests in progress may take when the server is stopped."""
PLAIN: Final = (
    "Browsers are admitted at 127.0.0.1. That is weaker: a browser sends its cookie for 127.0.0.1 to every port there, "
    "so another user of this machine who gets you to open a page on their port can take over your session here. "
    "Omit --plain unless your browser cannot open names that end in .localhost."
)


class Command(RedlineCommand):
    help = "Serve the pages on this machine, and keep the index up to date."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port",
            type="port",
            help=f"the port to listen on; 0: any free port (default: {DEFAULT_PORT}, or the next free one)",
        )
        parser.add_argument(
            "--plain",
            action="store_true",
            help="admit browsers at 127.0.0.1, if they cannot open names that end in .localhost; weaker",
        )

    def run(self, options: dict[str, Any]) -> None:
        directory = settings.REDLINE_DATA_DIR
        port, plain = options["port"], options["plain"]
        listen = connections.listening_from(DEFAULT_PORT, HOSTS) if port is None else connections.listening(port, HOSTS)
        with only_server(directory), kept_log(directory), listen as listeners, only_this_database() as database:
            managed_root()
            settings.REDLINE_PLAIN = plain
            server = RunningServer(connections.shared_port(listeners), plain, database)
            with reported(directory, "The server was not started."):
                server.keep(directory)
                announce_server(directory, server.port)
                address = launch_address(directory, server)
            if port is None and server.port != DEFAULT_PORT:
                self.say(f"Port {DEFAULT_PORT} is in use; {server.port} is the next free one.")
            if len(listeners) < len(HOSTS):
                self.say("This machine has no IPv6: the server uses 127.0.0.1 only.")
            if plain:
                self.say(PLAIN)
            self.say(f"Redline is at {address}")
            self.say("The address works once; `redline address` makes another. Ctrl-C stops the server.")
            self.show_json({"address": address, "plain": plain, "listening": [_shown(one) for one in listeners]})
            self.stdout.flush()
            # Long requests are stored in Python's temporary directory, which on many systems is in memory.
            tempfile.tempdir = str(upload_directory())
            _log.info("serving on port %d", server.port)
            try:
                connections.raise_descriptor_limit()
            except (OSError, ValueError) as fault:
                _log.warning("The limit of open files could not be raised: %s", fault)
            # Logging is configured by the settings, for Django and uvicorn alike.
            config = uvicorn.Config(
                APPLICATION,
                http=connections.BoundedProtocol,
                h11_max_incomplete_event_size=connections.HEADER_BYTES,
                ws=connections.RefusableSocket,
                headers=list(connections.HEADERS),
                server_header=False,
                # There is no proxy between this server and its user: forwarding headers are ignored.
                proxy_headers=False,
                timeout_keep_alive=connections.IDLE_SECONDS,
                log_config=None,
                log_level="warning",
                lifespan="on",
                access_log=False,
                ws_max_size=MESSAGE_BYTES,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
            with contextlib.suppress(KeyboardInterrupt):
                # An interrupt is the normal way to stop the server; uvicorn raises it after shutting down.
                uvicorn.Server(config).run(sockets=listeners)


def _shown(listener: Any) -> str:
    """Host and port of a socket, as in a URL."""
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
