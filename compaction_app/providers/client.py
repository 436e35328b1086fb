"""Requests to a model: one request, its answer piece by piece, and retries if they may help.

    async with aclosing(ask(endpoint, request)) as pieces:
        async for piece in pieces: ...          # Sent · Retrying · Sent · TextPiece · … · AnswerEnd

A request is retried if the provider cannot answer now, or if the connection breaks before the first byte. It is
not retried if the provider stays silent, nor after the first piece of an answer. Closing the generator, or
cancelling its task, closes the connection, even during a wait. A key is sent only to the endpoint's own origin:
no redirect is followed, and over plain http it is sent only to loopback.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import httpx
import stamina

from sessions_app.sessionlog.jsjson import well_formed

from . import anthropic, openai
from .addresses import checked_base_url, is_loopback
from .errors import ProviderError, Rejected
from .transport import AnswerReader, Exchange, Failed, client_for
from .transport import close as close
from .types import Dialect, Endpoint, Piece, Request, Retrying, Sent

FIRST_WAIT: Final = 1.0
"""Seconds before the second attempt; each wait is twice the one before."""
JITTER: Final = 0.25
"""A wait is longer by up to this fraction, so that runs that failed together do not retry together."""
DAY: Final = 24 * 3_600
_KEY: Final = re.compile(r"[!-~]+\Z")

# A retry is reported as a `Retrying`, and need not be logged as well.
stamina.instrumentation.set_on_retry_hooks([])


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a provider, in seconds, and how often to try."""

    connect: float = 10
    first_byte: float = 120
    """For the first byte of an answer, and for the first of its body."""
    between: float = 90
    """Between two bytes of the answer."""
    whole: float = 1800
    """For the whole answer, from the sending of its request. A model may reason for many minutes."""
    attempts: int = 5
    """Total number of attempts."""
    longest_wait: float = 60
    """The longest wait before a retry. If a provider demands a longer one, the request is not retried."""


async def ask(endpoint: Endpoint, request: Request, patience: Patience | None = None) -> AsyncGenerator[Piece, None]:
    """Send a request to a model and yield the events piece by piece; the last piece is the `AnswerEnd`.

    Raises ProviderError, and BadInput if the endpoint's address is invalid.
    """
    patience = patience or Patience()
    _refuse_unsafe(endpoint)
    client = client_for(is_loopback=is_loopback(endpoint.base_url))
    body = _body(endpoint, request)
    exchange: Exchange | None = None
    error: ProviderError | None = None
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
                exchange = _exchange(client, endpoint, request, body, patience)
                try:
                    await exchange.begin(client)
                except Failed as failure:
                    failed = failure
                    failed.wait = _wait(failed, attempt.next_wait, patience)
                    await exchange.close()
                    exchange = None
                    raise
                break
            if failed is not None and failed.wait is not None and attempt.num < patience.attempts:
                yield Retrying(attempt.num, failed.wait, failed.error.what)
        if exchange is not None:
            async with contextlib.aclosing(exchange.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
    except Failed as failure:
        error = _given_up(failure, patience)
    finally:
        if exchange is not None:
            await exchange.close()
    if error is not None:
        # Raised here, it has no reference to the client's own error, which contains the request and so the key.
        raise error


def size_of(request: Request, dialect: Dialect) -> int:
    """The length that the body of a request would have, in characters."""
    return len(_printed(anthropic.body_of(request) if dialect == Dialect.ANTHROPIC else openai.body_of(request)))


# ---- the request ----------------------------------------------------------------------------------------


def _refuse_unsafe(endpoint: Endpoint) -> None:
    if not endpoint.key:
        return
    if not endpoint.base_url.startswith("https://") and not is_loopback(endpoint.base_url):
        raise Rejected(
            "key_unprotected",
            f"{endpoint.host} uses plain http, so the key could be read on the way. Nothing was sent.",
            "Enter an address with https://, or remove the key.",
        )
    if not _KEY.match(endpoint.key):
        # A header accepts nothing else, and the client's own error would quote it.
        raise Rejected(
            "bad_key",
            f"The key for {endpoint.host} contains a blank or another invalid character. Nothing was sent.",
            "Enter it again.",
        )


def _body(endpoint: Endpoint, request: Request) -> str:
    if endpoint.dialect == Dialect.ANTHROPIC:
        return _printed(anthropic.body_of(request))
    return _printed(openai.body_of(request, endpoint.host))


def _printed(body: dict[str, Any]) -> str:
    return well_formed(json.dumps(body, ensure_ascii=False, separators=(",", ":")))


def _exchange(
    client: httpx.AsyncClient, endpoint: Endpoint, request: Request, body: str, patience: Patience
) -> Exchange:
    if endpoint.dialect == Dialect.ANTHROPIC:
        path, headers = anthropic.PATH, anthropic.headers_for(endpoint)
        reader: AnswerReader = anthropic.AnthropicReader(request.messages)
    else:
        path, headers = openai.PATH, openai.headers_for(endpoint)
        reader = openai.OpenAIReader(request.messages)
    sent = client.build_request(
        "POST",
        checked_base_url(endpoint.base_url) + path,
        content=body.encode(),
        headers={
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            **headers,
        },
        timeout=httpx.Timeout(
            connect=patience.connect,
            read=max(patience.first_byte, patience.between),
            write=patience.first_byte,
            pool=None,
        ),
    )
    return Exchange(
        endpoint,
        request.model,
        sent,
        reader,
        connect=patience.connect,
        first_byte=patience.first_byte,
        between=patience.between,
        whole=patience.whole,
    )


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


def _given_up(failure: Failed, patience: Patience) -> ProviderError:
    """The error of the last attempt, with the reason why there was no other attempt."""
    error = failure.error
    if failure.after is not None and failure.after > patience.longest_wait:
        wants = (
            f"It demands a wait of {_at_most_a_day(failure.after)} before the next attempt, "
            f"and Redline waits {patience.longest_wait:g} s at most."
        )
        return type(error)(error.code, f"{error.what} {wants}", error.advice)
    if failure.wait is not None and patience.attempts > 1:
        return type(error)(error.code, f"{error.what} Redline tried {patience.attempts} times.", error.advice)
    return error


def _at_most_a_day(seconds: float) -> str:
    return "more than a day" if seconds > DAY else f"{math.ceil(seconds):,} s"
