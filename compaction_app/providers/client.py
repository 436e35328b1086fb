"""Asking a model: one request, what comes of it piece by piece, and asking again if that may help.

    async with aclosing(ask(endpoint, request)) as pieces:
        async for piece in pieces: ...          # Sent · Retrying · Sent · TextPiece · … · Answered

A provider that cannot answer now, and a connection that breaks before the first byte, are asked again. One that stays
silent is not, and nothing is from the first piece of an answer on. Closing the generator, or cancelling its task,
closes the connection, also while it waits. A key goes to the endpoint's own origin alone: no redirect is followed, and
over plain http it goes only to loopback.
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
"""Seconds before a provider is asked for the second time; each wait is twice the one before."""
JITTER: Final = 0.25
"""A wait is longer by up to this part of it, so that runs that failed together do not ask together."""
DAY: Final = 24 * 3_600
_KEY: Final = re.compile(r"[!-~]+\Z")

# What is asked again is told as a `Retrying`, and not to a log as well.
stamina.instrumentation.set_on_retry_hooks([])


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a provider is waited for, in seconds, and how often it is asked."""

    connect: float = 10
    first_byte: float = 120
    """For the first byte of an answer, and for the first of its body."""
    between: float = 90
    """From one byte of the answer to the next."""
    whole: float = 1800
    """For an answer as a whole, from when its request is sent. A model may reason for many minutes."""
    attempts: int = 5
    """Times in all."""
    longest_wait: float = 60
    """Before asking again. A provider that wants a longer one is not asked again."""


async def ask(
    endpoint: Endpoint, request: Request, patience: Patience | None = None
) -> AsyncGenerator[Piece, None]:
    """Ask a model, and give what happens piece by piece; the last one is the `Answered`.

    Raises ProviderError, and BadInput if the endpoint's address is none.
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
        # Raised here it holds nothing of the client's own error, which holds the request and so the key.
        raise error


def size_of(request: Request, dialect: Dialect) -> int:
    """How many characters the body of a request has, as it would be sent."""
    return len(_printed(anthropic.body_of(request) if dialect == "anthropic" else openai.body_of(request)))


# ---- the request ----------------------------------------------------------------------------------------


def _refuse_unsafe(endpoint: Endpoint) -> None:
    if not endpoint.key:
        return
    if not endpoint.base_url.startswith("https://") and not is_loopback(endpoint.base_url):
        raise Rejected(
            "key_unprotected",
            f"{endpoint.host} is asked over plain http, and a key would be readable on the way. Nothing was sent.",
            "Enter an address with https://, or remove the key.",
        )
    if not _KEY.match(endpoint.key):
        # A header takes nothing else, and the client's own error would quote it.
        raise Rejected(
            "bad_key",
            f"The key for {endpoint.host} holds a blank or a character that no key has. Nothing was sent.",
            "Enter it again.",
        )


def _body(endpoint: Endpoint, request: Request) -> str:
    if endpoint.dialect == "anthropic":
        return _printed(anthropic.body_of(request))
    return _printed(openai.body_of(request, endpoint.host))


def _printed(body: dict[str, Any]) -> str:
    return well_formed(json.dumps(body, ensure_ascii=False, separators=(",", ":")))


def _exchange(
    client: httpx.AsyncClient, endpoint: Endpoint, request: Request, body: str, patience: Patience
) -> Exchange:
    if endpoint.dialect == "anthropic":
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


# ---- asking again ---------------------------------------------------------------------------------------


def _wait(failed: Failed, backoff: float, patience: Patience) -> float | None:
    """Seconds until it is asked again; None if it is not."""
    if not failed.again:
        return None
    if failed.after is not None:
        return failed.after if failed.after <= patience.longest_wait else None
    return min(backoff * (1 + random.uniform(0, JITTER)), patience.longest_wait)  # noqa: S311  # spreads load


def _wait_after(failure: Exception) -> float | bool:
    """What stamina waits for, as it was announced; False: it is not asked again."""
    return failure.wait if isinstance(failure, Failed) and failure.wait is not None else False


def _given_up(failure: Failed, patience: Patience) -> ProviderError:
    """The error of the last exchange, with why there was no other."""
    error = failure.error
    if failure.after is not None and failure.after > patience.longest_wait:
        wants = (
            f"It wants to be asked again in {_at_most_a_day(failure.after)}, "
            f"and Redline waits {patience.longest_wait:g} s at most."
        )
        return type(error)(error.code, f"{error.what} {wants}", error.advice)
    if failure.wait is not None and patience.attempts > 1:
        return type(error)(error.code, f"{error.what} It was asked {patience.attempts} times.", error.advice)
    return error


def _at_most_a_day(seconds: float) -> str:
    return "more than a day" if seconds > DAY else f"{math.ceil(seconds):,} s"
