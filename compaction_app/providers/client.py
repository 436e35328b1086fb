"""Requests to a model: one request, its answer piece by piece, and retries if they may help.

    async with aclosing(ask(endpoint, request)) as pieces:
        async for piece in pieces: ...          # Sent · Retrying · Sent · TextPiece · … · AnswerEnd

    with AnswerStream(endpoint, request, patience) as stream:       # for synchronous code
        while (piece := stream.next(seconds)) is not None: ...

A request is retried if the provider cannot answer now, or if the connection breaks before the first byte. It is
not retried if the provider stays silent, nor after the first piece of an answer. Closing the generator, cancelling its
task, or leaving the block of an `AnswerStream` closes the connection, even during a wait. The network has one event
loop per process, in a separate thread. A key is sent only to the endpoint's own origin: no redirect is followed, and
over plain http it is sent only to loopback.

An exchange is read within limits, and every failure becomes one `Failed`. The status is checked before anything is read
as a stream: an error with status 529 is JSON, and a web page is not an answer. The body is then read as an event
stream, or as one JSON value. A slow one is abandoned, an endless one is cut off, and invalid UTF-8 becomes U+FFFD: no
server can block or fill this process. Bytes are counted as received from the network and are never decompressed: 10 KB
could become gigabytes. Any byte shows that the server is alive, even a comment of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import logging
import math
import queue
import random
import re
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from datetime import UTC, datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final
from weakref import WeakKeyDictionary

import httpx
import stamina
from httpx_sse import EventSource, ServerSentEvent

from compaction_app.providers import anthropic, openai
from sessions_app.sessionlog.jsjson import well_formed

from . import error_mapping
from .accumulator import AnswerReader
from .addresses import checked_base_url, is_loopback
from .types import AnswerEnd, Dialect, Endpoint, Piece, Request, Retrying, Sent

ERROR_SECONDS: Final = 5.0
"""How long to wait for the body of an error; without it, the status has to describe the error."""
REST_SECONDS: Final = 0.2
"""How long to wait for the end of the body after a complete answer, so that the connection can be reused."""
EVENT_BYTES: Final = 4 << 20
"""The maximum length of a stream's event, and of comments without an event between them, in bytes."""
PART_BYTES: Final = 64 << 10
"""The number of bytes parsed at a time: events of a longer chunk are processed one after the other."""
STREAM_BYTES: Final = 256 << 20
JSON_BYTES: Final = 16 << 20
"""The maximum length of an answer that is not a stream, in bytes."""
ERROR_BYTES: Final = 64 << 10
"""The number of bytes that are read of an error's body."""

_STREAM: Final = {"content-type": "text/event-stream; charset=utf-8-sig"}
"""Event streams are UTF-8, whatever a server calls them, and may begin with a byte-order mark."""


for _name in ("httpx", "httpcore"):
    # Below that level they log a provider's responses, which may contain the key.
    logging.getLogger(_name).setLevel(logging.WARNING)


class Body:
    """The body of an answer: `first` and `between` are the seconds until its first bytes and between further ones.

    `deadline` is the time by which it must be complete, on the clock of the event loop.
    """

    def __init__(self, response: httpx.Response, first: float, between: float, deadline: float = math.inf) -> None:
        self._response = response
        self._first, self._between, self._deadline = first, between, deadline
        self._since_event = 0
        self.read_bytes = 0

    async def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """The events of the stream that are not empty.

        Raises TimeoutError, httpx.HTTPError if the connection breaks, and Unreadable beyond the limits.
        """
        async with contextlib.aclosing(self._stream()) as chunks:
            source = EventSource(httpx.Response(200, headers=_STREAM, content=chunks))
            async with contextlib.aclosing(source.aiter_sse()) as events:
                async for event in events:
                    self._since_event = 0
                    if event.data or event.event == "error":
                        yield event

    async def value(self, most: int) -> bytes:
        """The whole body, cut off after `most` bytes."""
        found = bytearray()
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                found += chunk
                if len(found) > most:
                    break
        return bytes(found[:most])

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                if self.read_bytes > STREAM_BYTES:
                    raise error_mapping.Unreadable(f"it is longer than {STREAM_BYTES:,} bytes")
                for start in range(0, len(chunk), PART_BYTES):
                    part = chunk[start : start + PART_BYTES]
                    self._since_event += len(part)
                    if self._since_event > EVENT_BYTES:
                        raise error_mapping.Unreadable(f"one of its events is longer than {EVENT_BYTES:,} bytes")
                    yield part

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        clock = asyncio.get_running_loop().time
        async with contextlib.aclosing(self._response.aiter_raw()) as chunks:  # type: ignore[type-var]
            while True:
                until = clock() + (self._between if self.read_bytes else self._first)
                if clock() >= self._deadline:
                    # Chunks that arrive without a wait are never interrupted.
                    raise TimeoutError
                try:
                    async with asyncio.timeout_at(min(until, self._deadline)):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
                self.read_bytes += len(chunk)
                yield chunk


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a provider, in seconds, and how often to try."""

    connect: float = 10
    first_byte: float = 120
    """The wait for the first byte of an answer, and for the first byte of its body."""
    between: float = 90
    """The wait between two bytes of the answer."""
    whole: float = 1800
    """The wait for the whole answer, from the sending of its request. A model may reason for many minutes."""
    attempts: int = 5
    """Total number of attempts."""
    longest_wait: float = 60
    """The longest wait before a retry. If a provider demands a longer one, the request is not retried."""


class Failed(Exception):
    """An exchange failed with `error`. `again`: a retry may help; `after`: the wait that the provider demands, in
    seconds."""

    def __init__(self, error: error_mapping.ProviderError, *, again: bool = False, after: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.again, self.after = error, again, after
        self.wait: float | None = None
        """Seconds until the retry, once decided."""


class Exchange:
    """A request that is sent once."""

    def __init__(self, endpoint: Endpoint, request: Request, body: str, patience: Patience) -> None:
        self._endpoint, self._model, self._sent, self._patience = endpoint, request.model, body, patience
        self._dialect = _DIALECTS[endpoint.dialect]
        self._reader: AnswerReader = self._dialect.READER(request.messages)
        self._deadline = math.inf
        self._body: Body | None = None

    async def pieces(self, client: httpx.AsyncClient) -> AsyncGenerator[Piece, None]:
        """Send the request, and read its answer as it arrives; the last piece is the `AnswerEnd`. Raises Failed.

        At the end the connection is closed, unless the answer was read to its end and the connection can be reused.
        """
        patience = self._patience
        with self._mapping_errors():
            now = asyncio.get_running_loop().time()
            self._deadline = now + patience.whole
            # The client's timeout is for each read, this one for all of them.
            async with asyncio.timeout_at(min(now + patience.connect + patience.first_byte, self._deadline)):
                response = await client.send(self._request(client), stream=True, follow_redirects=False)
            async with contextlib.aclosing(response):
                await self._look_at(response)
                self._body = Body(response, patience.first_byte, patience.between, self._deadline)
                if "json" in _kind(response):
                    for piece in self._whole(await self._body.value(JSON_BYTES + 1)):
                        yield piece
                    return
                async with contextlib.aclosing(self._body.events()) as events:
                    has_ended = False
                    while not has_ended:
                        for piece in await self._read_event(events):
                            yield piece
                            has_ended = isinstance(piece, AnswerEnd)
                    await _read_rest(events)

    def _request(self, client: httpx.AsyncClient) -> httpx.Request:
        patience = self._patience
        return client.build_request(
            "POST",
            checked_base_url(self._endpoint.base_url) + self._dialect.PATH,
            content=self._sent.encode(),
            headers={
                "content-type": "application/json",
                "accept": "text/event-stream, application/json",
                **self._dialect.headers_for(self._endpoint),
            },
            timeout=httpx.Timeout(
                connect=patience.connect,
                read=max(patience.first_byte, patience.between),
                write=patience.first_byte,
                pool=None,
            ),
        )

    # ---- reading ----------------------------------------------------------------------------------------

    async def _look_at(self, response: httpx.Response) -> None:
        """Raise Failed unless this is a readable answer."""
        encoding = _encoding(response)
        if response.is_success:
            if encoding:
                raise Failed(self._compressed(encoding))
            if "html" in _kind(response):
                raise Failed(error_mapping.not_this_dialect(self._endpoint, " (it sends a web page)"))
            return
        if response.is_redirect or 300 <= response.status_code < 400:
            raise Failed(self._redirected(response))
        body = b"" if encoding else await self._error_body(response)
        fault = error_mapping.fault_of(response.status_code, "html" in _kind(response), body)
        error = self._error_of(fault)
        raise Failed(error, again=isinstance(error, error_mapping.Unavailable), after=_retry_after(response.headers))

    async def _error_body(self, response: httpx.Response) -> bytes:
        """The body of an error, within its limits; empty if none arrives."""
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(ERROR_SECONDS):
                return await Body(response, ERROR_SECONDS, ERROR_SECONDS).value(ERROR_BYTES)
        return b""

    def _whole(self, body: bytes) -> list[Piece]:
        """The pieces of an answer that is one JSON object."""
        if len(body) > JSON_BYTES:
            raise error_mapping.Unreadable(f"it is longer than {JSON_BYTES:,} bytes")
        try:
            payload = json.loads(body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            payload = None
        fault = error_mapping.fault_in(payload)
        if fault is not None:
            raise error_mapping.Reported(fault)
        if not isinstance(payload, dict):
            raise error_mapping.Unreadable("it is not a JSON object")
        return [*self._reader.feed_whole(payload), *self._reader.finish()]

    async def _read_event(self, events: AsyncGenerator[ServerSentEvent, None]) -> list[Piece]:
        """The pieces of the next event; those of the last one end with the `AnswerEnd`."""
        try:
            event = await anext(events)
        except StopAsyncIteration:
            return self._reader.finish()
        except (TimeoutError, httpx.HTTPError):
            if not self._reader.is_whole:
                raise
            # Text that was still expected is not part of the answer.
            return self._reader.finish()
        pieces = self._reader.feed(event.event, event.data)
        return [*pieces, *self._reader.finish()] if self._reader.is_done else pieces

    # ---- errors ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _mapping_errors(self) -> Iterator[None]:
        try:
            yield
        except error_mapping.Reported as reported:
            has_begun = bool(self._reader.builder.parts)
            raise Failed(self._error_of(reported.fault), again=reported.fault.passes and not has_begun) from None
        except error_mapping.Unreadable as unreadable:
            raise Failed(self._broken(str(unreadable))) from None
        except TimeoutError:
            raise Failed(self._silent()) from None
        except httpx.HTTPError as fault:
            raise self._disconnected(fault) from None

    def _error_of(self, fault: error_mapping.ProviderFault) -> error_mapping.ProviderError:
        return error_mapping.error_of(fault, self._endpoint, self._model)

    def _broken(self, why: str) -> error_mapping.Broken:
        what = f"The answer of {self._model} at {self._endpoint.host} cannot be used: {why}. Its calls were not run."
        return error_mapping.Broken("broken", what, "Try again.")

    def _silent(self) -> error_mapping.TimedOut:
        who = self._endpoint.host
        if asyncio.get_running_loop().time() >= self._deadline:
            whole = self._patience.whole
            duration = f"{whole:g} s" if whole < 120 else f"{whole / 60:g} minutes"
            late = f"{who} had not finished its answer after {duration}. Its calls were not run."
            return error_mapping.TimedOut(
                "too_long", late, "Choose a lower thinking level or a faster model, or raise answer_minutes."
            )
        if self._body is None or not self._body.read_bytes:
            late = f"{who} did not answer within {self._patience.first_byte:g} s. There is no answer."
            return error_mapping.TimedOut(
                "timed_out", late, "Try again: a local model may be loading, or reading a long prompt."
            )
        silent = f"{who} stopped sending in the middle of its answer, for {self._patience.between:g} s."
        return error_mapping.TimedOut("timed_out", f"{silent} Its calls were not run.", "Try again.")

    def _disconnected(self, fault: httpx.HTTPError) -> Failed:
        who, words = self._endpoint.host, error_mapping.quoted(str(fault), self._endpoint.key)
        check = "Check the address, and that the server is running."
        if isinstance(fault, httpx.ConnectTimeout):
            late = f"{who} accepted no connection within {self._patience.connect:g} s. Nothing was sent."
            return Failed(error_mapping.TimedOut("timed_out", late, check), again=True)
        if isinstance(fault, httpx.TimeoutException):
            return Failed(self._silent())
        if isinstance(fault, httpx.ConnectError | httpx.ProxyError):
            unsafe = "certificate" in str(fault).lower()
            why = "cannot prove that it is who it says" if unsafe else "cannot be reached"
            return Failed(
                error_mapping.Unreachable("unreachable", f"{who} {why}{words}. Nothing was sent.", check),
                again=not unsafe,
            )
        if isinstance(fault, httpx.TransportError) and (self._body is None or not self._body.read_bytes):
            cut = f"{who} closed the connection before the first byte of its answer{words}."
            return Failed(error_mapping.Unreachable("disconnected", cut, "Try again."), again=True)
        return Failed(self._broken(f"it ended too early{words}"))

    def _compressed(self, encoding: str) -> error_mapping.Broken:
        return error_mapping.Broken(
            "compressed",
            f"{self._endpoint.host} sends a compressed answer{error_mapping.quoted(encoding, self._endpoint.key)}, "
            "although Redline requests an uncompressed one. Nothing of it was read, so that it cannot fill the memory.",
            "Turn compression off at the server, or at the proxy in front of it.",
        )

    def _redirected(self, response: httpx.Response) -> error_mapping.Rejected:
        try:
            aim = response.url.join(response.headers.get("location", "")).netloc.decode("ascii", "replace")
        except (httpx.InvalidURL, ValueError):
            aim = ""
        return error_mapping.Rejected(
            "redirected",
            f"{self._endpoint.host} redirects requests "
            f"({response.status_code}){error_mapping.quoted(aim, self._endpoint.key)}. This "
            "was not followed, so that no key and no text is sent elsewhere. Enter the address it redirects to.",
        )


async def _read_rest(events: AsyncGenerator[ServerSentEvent, None]) -> None:
    with contextlib.suppress(TimeoutError, httpx.HTTPError, error_mapping.Unreadable):
        async with asyncio.timeout(REST_SECONDS):
            async for _ in events:
                pass


def _kind(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def _encoding(response: httpx.Response) -> str:
    """The encoding of the body, as the server names it; empty if it names none."""
    encoding: str = response.headers.get("content-encoding", "")
    return "" if encoding.strip().lower() in ("", "identity") else encoding


def _retry_after(headers: httpx.Headers) -> float | None:
    """The wait that the provider demands before a retry, in seconds; None if it demands none."""
    for name, unit in (("retry-after-ms", 1_000), ("retry-after", 1)):
        value = headers.get(name, "")
        with contextlib.suppress(ValueError, OverflowError):
            seconds = float(value) / unit
            if math.isfinite(seconds):
                return seconds if seconds > 0 else None
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            date = email.utils.parsedate_to_datetime(value)
            until = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
            seconds = (until - datetime.now(UTC)).total_seconds()
            return seconds if seconds > 0 else None
    return None


# ---- clients --------------------------------------------------------------------------------------------

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, httpx.AsyncClient]] = WeakKeyDictionary()


def client_for(*, is_loopback: bool) -> httpx.AsyncClient:
    """The client of this event loop. It connects to this machine directly, elsewhere through the environment's proxies.

    It keeps connections, but neither cookies nor a key, which is in each request. Raises Rejected for a proxy that
    cannot be used.
    """
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if is_loopback not in clients:
        try:
            clients[is_loopback] = httpx.AsyncClient(
                headers={"user-agent": "redline", "accept-encoding": "identity"},
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                verify=httpx.create_ssl_context(),
                trust_env=not is_loopback,
                follow_redirects=False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            )
        except (ImportError, ValueError):
            raise error_mapping.Rejected(
                "bad_proxy",
                "The proxy that the environment names (HTTPS_PROXY, ALL_PROXY) cannot be used: it is not an http:// or "
                "https:// address. Nothing was sent.",
            ) from None
    return clients[is_loopback]


async def close() -> None:
    """Close the open connections of this event loop."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


# ---- a request with its retries --------------------------------------------------------------------------

FIRST_WAIT: Final = 1.0
"""Seconds before the second attempt; each wait is twice the one before."""
JITTER: Final = 0.25
"""A wait is longer by up to this fraction, so that runs that failed together do not retry together."""
DAY: Final = 24 * 3_600
_KEY: Final = re.compile(r"[!-~]+\Z")
_DIALECTS: Final = {Dialect.ANTHROPIC: anthropic, Dialect.OPENAI: openai}

# A retry is reported as a `Retrying`, and need not be logged as well.
stamina.instrumentation.set_on_retry_hooks([])


async def ask(endpoint: Endpoint, request: Request, patience: Patience | None = None) -> AsyncGenerator[Piece, None]:
    """Send a request to a model and yield the events piece by piece; the last piece is the `AnswerEnd`.

    Raises ProviderError, and BadInput if the endpoint's address is invalid.
    """
    patience = patience or Patience()
    _refuse_unsafe(endpoint)
    client = client_for(is_loopback=is_loopback(endpoint.base_url))
    body = _printed(_DIALECTS[endpoint.dialect].body_of(request, endpoint.host))
    pieces: AsyncGenerator[Piece, None] | None = None
    error: error_mapping.ProviderError | None = None
    try:
        async for attempt in stamina.retry_context(
            on=_wait_after,
            attempts=patience.attempts,
            timeout=None,
            wait_initial=FIRST_WAIT,
            wait_max=patience.longest_wait,
            wait_jitter=0,
        ):
            yield Sent(len(body))
            failed: Failed | None = None
            with attempt:
                pieces = Exchange(endpoint, request, body, patience).pieces(client)
                try:
                    first = await anext(pieces)
                except Failed as failure:
                    failed = failure
                    failed.wait = _wait(failed, attempt.next_wait, patience)
                    raise
                break
            if failed is not None and failed.wait is not None and attempt.num < patience.attempts:
                yield Retrying(attempt.num, failed.wait, failed.error.what)
        if pieces is not None:
            yield first
            async for piece in pieces:
                yield piece
    except Failed as failure:
        error = _given_up(failure, patience)
    finally:
        if pieces is not None:
            await pieces.aclose()
    if error is not None:
        # Raised here, it has no reference to the client's own error, which contains the request and so the key.
        raise error


def size_of(request: Request, dialect: Dialect) -> int:
    """The length that the body of a request would have, in characters."""
    return len(_printed(_DIALECTS[dialect].body_of(request)))


# ---- the request ----------------------------------------------------------------------------------------


def _refuse_unsafe(endpoint: Endpoint) -> None:
    if not endpoint.key:
        return
    if not endpoint.base_url.startswith("https://") and not is_loopback(endpoint.base_url):
        raise error_mapping.Rejected(
            "key_unprotected",
            f"{endpoint.host} uses plain http, so the key could be read on the way. Nothing was sent.",
            "Enter an address with https://, or delete the key.",
        )
    if not _KEY.match(endpoint.key):
        # A header accepts nothing else, and the client's own error would quote it.
        raise error_mapping.Rejected(
            "bad_key",
            f"The key for {endpoint.host} contains a blank or another invalid character. Nothing was sent.",
            "Enter it again.",
        )


def _printed(body: dict[str, Any]) -> str:
    return well_formed(json.dumps(body, ensure_ascii=False, separators=(",", ":")))


# ---- retries --------------------------------------------------------------------------------------------


def _wait(failed: Failed, backoff: float, patience: Patience) -> float | None:
    """Seconds until the next attempt; None if there is none."""
    if not failed.again:
        return None
    if failed.after is not None:
        return failed.after if failed.after <= patience.longest_wait else None
    return min(backoff * (1 + random.uniform(0, JITTER)), patience.longest_wait)  # noqa: S311  # spreads load


def _wait_after(failure: Exception) -> float | bool:
    """The announced wait, for stamina; False means no further attempt."""
    return failure.wait if isinstance(failure, Failed) and failure.wait is not None else False


def _given_up(failure: Failed, patience: Patience) -> error_mapping.ProviderError:
    """The error of the last attempt, with the reason why there was no other attempt."""
    error, why = failure.error, ""
    if failure.after is not None and failure.after > patience.longest_wait:
        demanded = "more than a day" if failure.after > DAY else f"{math.ceil(failure.after):,} s"
        why = (
            f" It demands a wait of {demanded} before the next attempt, and Redline waits {patience.longest_wait:g} s "
            "at most."
        )
    elif failure.wait is not None and patience.attempts > 1:
        why = f" Redline tried {patience.attempts} times."
    return type(error)(error.code, f"{error.what}{why}", error.advice)


# ---- for synchronous code --------------------------------------------------------------------------------

CLOSE_SECONDS: Final = 5
"""How long leaving an `AnswerStream` waits for the connection to close, which takes milliseconds."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


class AnswerStream:
    """One request and its answer, piece by piece."""

    def __init__(self, endpoint: Endpoint, request: Request, patience: Patience) -> None:
        self._pieces: queue.SimpleQueue[Piece | BaseException] = queue.SimpleQueue()
        self._ended = threading.Event()
        # Starting the loop takes a moment: an interrupt then must not leave a coroutine behind that nothing runs.
        loop = network_loop()
        self._task: Future[None] = asyncio.run_coroutine_threadsafe(self._read(endpoint, request, patience), loop)

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()
        self._ended.wait(CLOSE_SECONDS)

    def next(self, seconds: float) -> Piece | None:
        """The next piece, or None if none arrives within this many seconds. Raises ProviderError.

        The last piece is an `AnswerEnd`.
        """
        try:
            found = self._pieces.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    async def _read(self, endpoint: Endpoint, request: Request, patience: Patience) -> None:
        try:
            async with contextlib.aclosing(ask(endpoint, request, patience)) as pieces:
                async for piece in pieces:
                    self._pieces.put(piece)
        except (asyncio.CancelledError, CancelledError):
            raise
        except BaseException as fault:  # noqa: BLE001  # `next` raises it in the thread that waits
            self._pieces.put(fault)
        finally:
            self._ended.set()


def network_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process's network thread, started on first use."""
    global _loop  # noqa: PLW0603  # there is one network thread in a process
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="network", daemon=True).start()
        return _loop
