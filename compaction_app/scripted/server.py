"""The scripted provider on a loopback socket: in a thread of tests and benchmarks, or as a separate command.

with ScriptedProvider() as provider:
    endpoint = provider.base_url("anthropic")
    ...
    assert provider.requests[0].model == "good-plan"
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .app import CUT, Received, ScriptedApp
from .request import Dialect

HOST: Final = "127.0.0.1"


class CuttableProtocol(HttpToolsProtocol):
    """HTTP with connections that the app can close, in the middle of an answer or before it."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"close": self.transport.close}}


def server_of(app: ScriptedApp) -> uvicorn.Server:
    """A server for the app, to be run on a listening socket."""
    # It does not wait for clients that never disconnect.
    config = uvicorn.Config(
        app,
        http=CuttableProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def listening(port: int = 0) -> socket.socket:
    """A socket on the loopback interface; port 0: any free one. Raises OSError."""
    # TCP is named explicitly, because otherwise asyncio does not send small events at once.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def base_url(port: int, dialect: Dialect) -> str:
    """The base URL for the dialect's official client: Anthropic's without `/v1`, OpenAI's with it."""
    return f"http://{HOST}:{port}" if dialect == "anthropic" else f"http://{HOST}:{port}/v1"


class ScriptedProvider:
    """The provider in a separate thread, from `__enter__` to `__exit__`."""

    def __init__(self, *, script: str = "", key: str = "", pace: float = 0.0) -> None:
        self.app = ScriptedApp(script=script, key=key, pace=pace)
        self._changed = threading.Condition()
        self.app.changed = self._notify
        self._server = server_of(self.app)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._listener = listening()
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="scripted-provider", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait_for(lambda: self._loop is not None)
        assert self._loop is not None  # noqa: S101  # it was waited for
        self._loop.call_soon_threadsafe(self.app.close_all)
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def base_url(self, dialect: Dialect) -> str:
        """The base URL for the dialect's official client."""
        return base_url(self.port, dialect)

    @property
    def requests(self) -> list[Received]:
        """All requests so far, in order of arrival."""
        return self.app.requests

    @property
    def closed(self) -> list[Received]:
        """Requests whose client closed the connection before the answer was complete."""
        return [request for request in self.requests if request.closed_at is not None]

    @property
    def faults(self) -> list[str]:
        """The reasons why requests were refused as invalid; a correct client has none."""
        return [request.fault for request in self.requests if request.fault]

    def wait_for(self, found: Callable[[], Any], seconds: float = 120) -> Any:
        """The first true result of `found`, called whenever a request changes. Raises TimeoutError."""
        with self._changed:
            value = self._changed.wait_for(found, seconds)
        if not value:
            raise TimeoutError(f"the scripted provider's condition was not met within {seconds} seconds")
        return value

    def wait_until_closed(self, seconds: float = 120) -> Received:
        """The first request whose client closed the connection; waits for one."""
        closed: list[Received] = self.wait_for(lambda: self.closed, seconds)
        return closed[0]

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notify()
        await self._server.serve(sockets=[self._listener])
