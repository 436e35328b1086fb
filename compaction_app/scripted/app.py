"""The scripted provider as an ASGI app.

    POST /v1/messages            Anthropic's Messages API
    POST /v1/chat/completions    OpenAI's Chat Completions
    GET  /v1/models              the scripts, in the format of either dialect

A request is validated as strictly as the real service does before a script is played, so that each test of a client
also tests its requests. Requests are kept in `requests`, with the times that tests measure. Of a conversation, only the
number of times that the same request was refused is kept.
"""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from . import anthropic, openai
from .request import Cut, Dialect, Foreign, Frame, Move, Play, Refuse, RequestFault, ScriptedRequest, Silence
from .scripts import SCRIPTS, Script, script_named

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
PATHS: Final[Mapping[str, Dialect]] = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai"}
CUT: Final = "scripted.cut"
"""The extension of the ASGI scope that closes a connection."""


@dataclass
class Received:
    """One request and its outcome. Times are as from `time.time()`."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    at: float
    body: Any = None
    """The JSON document; None if there is none."""
    status: int = 0
    """The status of the response; 0 until then."""
    fault: str = ""
    """The reason for refusing an invalid request."""
    calls_at: list[float] = field(default_factory=list)
    """When the last byte of each call was written."""
    answered_at: float | None = None
    """When the complete answer was written."""
    closed_at: float | None = None
    """When the client closed the connection before the answer was complete."""
    was_cut: bool = False
    """Whether this side closed the connection."""

    @property
    def model(self) -> str:
        """The requested model."""
        return str(self.body.get("model", "")) if isinstance(self.body, dict) else ""


class ScriptedApp:
    """The app. `script` is played for every model name, `key` is the only one accepted.

    If `keeps` is given, only that many of the latest requests are kept.
    """

    def __init__(self, *, script: str = "", key: str = "", pace: float = 0.0, keeps: int | None = None) -> None:
        self.requests: list[Received] = []
        self.pace = pace
        """Seconds after each delta, for people who watch."""
        self.changed: Callable[[], None] = lambda: None
        """Called whenever a request is received, answered or closed."""
        self._script = script
        self._key = key
        self._keeps = keeps
        self._count = 0
        self._tries: Counter[str] = Counter()
        self._live: set[_Exchange] = set()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        raw = b""
        while True:
            message = await receive()
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        received = Received(scope["method"], scope["path"], headers, raw, time.time())
        self._count += 1
        self.requests.append(received)
        if self._keeps is not None:
            del self.requests[: max(0, len(self.requests) - self._keeps)]
        self.changed()
        exchange = _Exchange(self, self._count, received, send, scope.get("extensions", {})[CUT]["close"])
        self._live.add(exchange)
        answering = asyncio.create_task(exchange.answer())
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not received.was_cut:
                received.closed_at = time.time()
        finally:
            self._live.discard(exchange)
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
            self.changed()
        if not answering.cancelled():
            answering.result()

    def close_all(self) -> None:
        """Close the connections of all answers in progress."""
        for exchange in list(self._live):
            exchange.close()

    def script_of(self, model: str) -> Script | None:
        """The script played for a model."""
        return script_named(self._script or model)

    def is_right_key(self, key: str) -> bool:
        """Whether the key is accepted."""
        return not self._key or key == self._key

    def tries(self, raw: bytes) -> int:
        """The number of earlier refusals of the same request."""
        return self._tries[_digest(raw)]

    def settle(self, raw: bytes, move: Move) -> None:
        """Count a refused request; forget an answered one."""
        if isinstance(move, Play) and move.breaks is None:
            self._tries.pop(_digest(raw), None)
        else:
            self._tries[_digest(raw)] += 1


class _Exchange:
    """One request and its answer."""

    def __init__(self, app: ScriptedApp, number: int, received: Received, send: Send, cut: Callable[[], None]) -> None:
        self._app = app
        self._received = received
        self._send = send
        self._cut = cut
        by_header: Dialect = "anthropic" if "anthropic-version" in received.headers else "openai"
        is_anthropic = PATHS.get(received.path, by_header) == "anthropic"
        self._service = anthropic if is_anthropic else openai
        self._request_id = f"req_scripted{number:012}"
        self._message_id = f"msg_01scripted{number:012}" if is_anthropic else f"chatcmpl-{number:012}"
        bearer = received.headers.get("authorization", "").removeprefix("Bearer ")
        self._key = received.headers.get("x-api-key") or bearer

    async def answer(self) -> None:
        received = self._received
        if not self._app.is_right_key(self._key):
            await self._refuse(Refuse("key"))
        elif (received.method, received.path) == ("GET", "/v1/models"):
            await self._document(200, self._service.models(list(SCRIPTS)))
        elif received.method != "POST" or received.path not in PATHS:
            await self._refuse(Refuse("path"))
        else:
            try:
                request = self._request()
            except RequestFault as fault:
                received.fault = fault.message
                await self._refuse(Refuse("invalid", fault.message), param=fault.param)
            else:
                await self._play(request)
        received.answered_at = time.time()

    def _request(self) -> ScriptedRequest:
        """The validated request. Raises RequestFault."""
        received = self._received
        try:
            body = json.loads(received.raw)
        except ValueError as fault:
            raise RequestFault("The request body is not valid JSON") from fault
        if not isinstance(body, dict):
            raise RequestFault("Input should be a valid dictionary")
        received.body = body
        characters = len(received.raw.decode())
        self._service.check(body, received.headers)
        request: ScriptedRequest = self._service.read_request(body, characters, self._key)
        script = self._app.script_of(request.model)
        if script is not None and script.thinks:
            self._service.check_thoughts(body, is_sealed=script.name == "thinking-signed")
        return replace(request, tries=self._app.tries(received.raw))

    async def _play(self, request: ScriptedRequest) -> None:
        script = self._app.script_of(request.model)
        move = Refuse("model") if script is None else script.move(request)
        self._app.settle(self._received.raw, move)
        if isinstance(move, Play):
            is_stream = bool(self._received.body.get("stream")) and move.streams
            await (self._stream(request, move) if is_stream else self._whole(request, move))
        elif isinstance(move, Refuse):
            await self._refuse(move)
        elif isinstance(move, Foreign):
            await self._write(move.status, {"content-type": move.content_type, **move.headers}, move.body.encode())
        elif isinstance(move, Cut):
            await self._close()
        elif isinstance(move, Silence):
            await asyncio.Event().wait()

    async def _stream(self, request: ScriptedRequest, play: Play) -> None:
        await self._begin(200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
        for frame in self._service.frames(request, play, self._message_id, self._received.body):
            await self._event(frame, play)
        if play.breaks is not None:
            await self._break(play)
        await self._send({"type": "http.response.body", "body": b""})

    async def _event(self, frame: Frame, play: Play) -> None:
        length = play.pieces or len(frame.data)
        for start in range(0, len(frame.data), length):
            piece = frame.data[start : start + length]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        if frame.ends_call:
            self._received.calls_at.append(time.time())
            self._app.changed()
        pause = self._app.pace + play.step + (play.gap if frame.ends_call else 0)
        # Even without a pause, this lets the client run, and disconnect.
        await asyncio.sleep(pause)

    async def _break(self, play: Play) -> None:
        assert play.breaks is not None  # noqa: S101  # the caller looked
        if play.breaks.how == "cut":
            await self._close()
        elif play.breaks.how == "stall":
            await asyncio.Event().wait()
        else:
            await self._event(self._service.error_frame(self._request_id), play)

    async def _whole(self, request: ScriptedRequest, play: Play) -> None:
        if play.breaks is not None and play.breaks.how == "cut":
            await self._close()
        elif play.breaks is not None and play.breaks.how == "stall":
            await asyncio.Event().wait()
        elif play.breaks is not None:
            await self._refuse(Refuse("overloaded"))
        else:
            await self._document(200, self._service.whole(request, play, self._message_id))

    async def _refuse(self, refusal: Refuse, param: str | None = None) -> None:
        model, key = self._received.model, self._key
        status, document = self._service.error(refusal, model, self._request_id, key=key, param=param)
        await self._document(status, document, refusal.headers)

    async def _document(self, status: int, document: Any, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(document, ensure_ascii=False).encode()
        await self._write(status, {"content-type": "application/json", **(headers or {})}, body)

    async def _write(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        await self._begin(status, {**headers, "content-length": str(len(body))})
        await self._send({"type": "http.response.body", "body": body})

    async def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._received.status = status
        own = self._service.headers(self._request_id)
        pairs = [(name.encode(), value.encode()) for name, value in {**own, **headers}.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    def close(self) -> None:
        """Close the connection: bytes written before still arrive."""
        self._received.was_cut = True
        self._cut()

    async def _close(self) -> None:
        self.close()
        await asyncio.Event().wait()


async def _left(receive: Receive) -> None:
    """Wait until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
