"""The gate in front of Django decides whose request bodies are received, and up to which size.

Django receives the whole body before it looks at a request, and stores a long one on disk. The gate therefore reads the
headers before the first byte of the body is requested:

1. Too many or too long headers, by the limits in `connections`, are refused with 431.
2. A body is received only for a POST to one of our hosts, by an admitted client, from one of our pages (or from no
   page, as scripts send it), to a URL that exists. Any other request reaches Django without its body, and Django
   refuses it with its own message.
3. It is received up to the limit of its route. Bytes are counted as they arrive, whatever Content-Length says. A longer
   body reaches Django as a request that `middleware.BodyMiddleware` refuses with 413.

Except for uploads, a received body is small enough for Django to keep in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from django.conf import settings
from django.urls import Resolver404, resolve
from django.utils.http import parse_header_parameters

from sessions_app.server.connections import HEADER_BYTES, HEADER_COUNT, REFUSAL_HEADERS

from .credentials import Credentials, Headers, refuse_socket
from .middleware import REFUSED_BODY
from .uploads import is_for_uploads, upload_room

MOST_PARTS: Final = 200
"""The maximum number of parts of a multipart form. Django accepts a hundred files at most, and is slow with empty
parts."""

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def gated(application: Application) -> Application:
    """The application behind the gate."""

    async def gate(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and are_too_long(scope["headers"]):
            await refuse_headers(scope, receive, send)
        elif scope["type"] == "http":
            await application(scope, admitted_body(scope, receive), send)
        else:
            await application(scope, receive, send)

    return gate


def are_too_long(headers: Headers) -> bool:
    sizes = [len(name) + len(value) for name, value in headers]
    return len(sizes) > HEADER_COUNT or sum(sizes) > HEADER_BYTES


async def refuse_headers(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await refuse_socket(scope, receive, send, status=431)
        return
    await send({"type": "http.response.start", "status": 431, "headers": REFUSAL_HEADERS})
    await send({"type": "http.response.body", "body": b"The headers of the request are too long."})


def admitted_body(scope: Scope, receive: Receive) -> Receive:
    """The part of the body that Django may receive: nothing, or as much as arrives up to a limit."""
    credentials = Credentials.of_headers(scope["headers"])
    if scope["method"] != "POST" or not may_send_body(credentials, scope["path"]):
        return empty_body()
    try:
        route = resolve(scope["path"])
    except Resolver404:
        return empty_body()
    limit = upload_room() if is_for_uploads(route.func) else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    headers = dict(scope["headers"])
    if int(headers.get(b"content-length", 0)) > limit:
        scope[REFUSED_BODY] = too_long(limit)
        return empty_body()
    return bounded_body(scope, receive, limit, boundary_in(headers.get(b"content-type", b"")))


def may_send_body(credentials: Credentials, path: str) -> bool:
    """Whether these credentials may change anything: another site's page may send the cookie, but not a token."""
    if not credentials.name_our_host() or not credentials.admit_to(path):
        return False
    return credentials.bring_token_to(path) or not credentials.origin or credentials.come_from_our_page()


def boundary_in(content_type: bytes) -> bytes:
    """The delimiter between the parts of a multipart form; empty for anything else."""
    kind, options = parse_header_parameters(content_type.decode("latin-1"))
    return options.get("boundary", "").encode("latin-1") if kind.startswith("multipart/") else b""


def too_long(limit: int) -> str:
    return f"The body of the request is longer than {limit:,} bytes, the limit here. Nothing was done."


def empty_body() -> Receive:
    """A body of no bytes, after which Django waits for the client to disconnect until it has responded."""
    was_received = False

    async def nothing() -> Message:
        nonlocal was_received
        if was_received:
            await asyncio.get_running_loop().create_future()
        was_received = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return nothing


def bounded_body(scope: Scope, receive: Receive, limit: int, boundary: bytes) -> Receive:
    """A body as it arrives, until it has too many bytes or parts. Then it ends, and the scope records why."""
    end, delimiter = empty_body(), b"--" + boundary if boundary else b""
    size = parts = 0
    # The last received bytes: a delimiter may start in them.
    tail = b""

    async def bounded() -> Message:
        nonlocal size, parts, tail
        if REFUSED_BODY not in scope:
            message = await receive()
            came = message.get("body", b"")
            size += len(came)
            if delimiter:
                seen = tail + came
                parts += seen.count(delimiter)
                tail = seen[-len(delimiter) + 1 :]
            if size <= limit and parts <= MOST_PARTS:
                return message
            too_many = f"The form has more than {MOST_PARTS} parts. Nothing was done."
            scope[REFUSED_BODY] = too_long(limit) if size > limit else too_many
        return await end()

    return bounded
