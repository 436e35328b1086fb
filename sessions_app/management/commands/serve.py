from __future__ import annotations

import contextlib
import errno
import logging
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import filelock
import uvicorn
from django.conf import settings
from django.core.management.base import CommandParser

from sessions_app.console import RedlineCommand
from sessions_app.launching import new_token
from sessions_app.logs import kept_log
from sessions_app.services.roots import managed_root
from sessions_app.sessionlog.errors import Conflict, SystemFailure
from sessions_app.uploads import upload_directory

from .address import DEFAULT_PORT

APPLICATION = "redline.asgi:application"
HOST = "127.0.0.1"
MESSAGE_BYTES: Final = 16_384
"""What a page may say over a socket at once."""
SHUTDOWN_SECONDS: Final = 3
"""How long requests may take that are under way when the server is told to stop."""


class Command(RedlineCommand):
    help = "Serve the pages on this machine, and keep the index up to date."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port", type=int, default=DEFAULT_PORT, help="where to listen; 0: any free port"
        )

    def run(self, options: dict[str, Any]) -> int | None:
        with only_server(), kept_log(settings.REDLINE_DATA_DIR), listening(options["port"]) as listener:
            managed_root()
            port = listener.getsockname()[1]
            address = f"http://{HOST}:{port}/launch?token={new_token(settings.REDLINE_DATA_DIR)}"
            self.say(f"Redline is at {address}")
            self.say("The address works once; `redline address` makes another. Ctrl-C stops the server.")
            self.show_json({"address": address})
            self.stdout.flush()
            # A long request waits in Python's temporary directory, which on many systems is memory.
            tempfile.tempdir = str(upload_directory())
            logging.getLogger("redline").info("serving on port %d", port)
            # Logging is configured by the settings, for Django and uvicorn alike.
            config = uvicorn.Config(
                APPLICATION,
                log_config=None,
                log_level="warning",
                lifespan="on",
                access_log=False,
                ws_max_size=MESSAGE_BYTES,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
            with contextlib.suppress(KeyboardInterrupt):
                # An interrupt is how a server is meant to end; it has shut down when this comes up.
                uvicorn.Server(config).run(sockets=[listener])
        return None


@contextmanager
def only_server() -> Iterator[None]:
    """One server on a data directory. Raises Conflict `already_served`."""
    lock = filelock.FileLock(settings.REDLINE_DATA_DIR / "server.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as busy:
        raise Conflict(
            "already_served",
            f"Another server uses the data directory {settings.REDLINE_DATA_DIR}. This one was not started. "
            "Stop the other one, or set REDLINE_DATA_DIR.",
        ) from busy
    try:
        yield
    finally:
        lock.release()


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """A socket on the loopback. Raises Conflict `port_taken`."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as fault:
            if fault.errno == errno.EADDRINUSE:
                message = f"Port {port} is taken. The server was not started. Choose another with --port."
                raise Conflict("port_taken", message) from fault
            message = f"Port {port} cannot be used: {fault.strerror}. The server was not started."
            raise SystemFailure("port_refused", message) from fault
        listener.listen(128)
        yield listener
    finally:
        listener.close()
