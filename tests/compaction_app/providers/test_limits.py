"""What a provider sends is bounded: no compressed data, no endless answer or wait, and no memory is filled."""

import asyncio
import contextlib
import gzip
import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final

import pytest

from compaction_app.providers import client
from compaction_app.providers.client import Patience, ask
from compaction_app.providers.error_mapping import Broken, TimedOut
from compaction_app.providers.types import AnswerEnd, ArgumentsPiece
from tests.compaction_app.providers.raw_server import (
    QUICK,
    STREAM,
    Play,
    RawServer,
    ReceivedRequest,
    answer,
    as_json,
    chunked,
    collect,
    failed,
    falling_silent,
)
from tests.compaction_app.providers.streams import LOOKING, both, on_a_loop, small_request
from tests.html import missing
from tests.scripted_models import added_provider
from tests.wait import WAIT_SECONDS

KEY = "sk-0123456789abcdefghij"
MEGABYTE: Final = 1 << 20
GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"


def bomb(megabytes: int) -> bytes:
    """Zeros, gzipped twice: some 10 KB for 3,500 MB. The inner stream repeats one block and has no end."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = squeezed.compress(bytes(MEGABYTE)) + squeezed.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(GZIP_HEAD + block * megabytes, 9)


@both
async def test_only_uncompressed_responses_are_requested_and_read(dialect):
    async with RawServer(answer(LOOKING[dialect])) as server:
        await collect(server.endpoint(dialect))
        (request,) = server.requests
    accepted = [line for line in request.head.lower().split("\r\n") if line.startswith("accept-encoding:")]
    assert accepted == ["accept-encoding: identity"]
    for encoding in ("identity", "IDENTITY", ""):
        plain = answer(LOOKING[dialect], "200 OK", "text/event-stream", f"content-encoding: {encoding}")
        async with RawServer(plain) as server:
            assert isinstance((await collect(server.endpoint(dialect)))[-1], AnswerEnd), encoding


@both
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain"])
async def test_a_compressed_answer_is_refused_unread(dialect, kind):
    for encoding in ("gzip", "gzip, gzip", "br", "deflate", "zstd", "x-own"):
        compressed = answer(bomb(megabytes=1), "200 OK", kind, f"content-encoding: {encoding}")
        error = await failed(compressed, dialect, Broken)
        assert error.code == "compressed"
        assert not missing(error.message, f"“{encoding}”", "Turn compression off")


@both
async def test_a_compressed_error_is_recognized_by_its_status_and_no_encoding_shows_the_key(dialect):
    body = gzip.compress(json.dumps({"error": {"message": "You exceeded your current quota"}}).encode())
    error = await failed(answer(body, "401 No", "application/json", "content-encoding: gzip"), dialect, key=KEY)
    assert error.code == "wrong_key"
    assert "quota" not in error.message
    error = await failed(answer(b"", "200 OK", "text/event-stream", f"content-encoding: {KEY}"), dialect, key=KEY)
    assert KEY not in error.message


DEADLINE = Patience(connect=60, first_byte=60, between=60, whole=50, attempts=3)


def repeating(first: bytes, again: bytes, pause: float) -> Play:
    """Something endless: each byte shows that the server is alive."""

    async def play(received: ReceivedRequest) -> None:
        await received.say(first)
        while not received.writer.is_closing():
            await received.say(again)
            await asyncio.sleep(pause)

    return play


JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000\r\n\r\n"


def nearly_late(play: Play) -> Play:
    """An answer that begins 0.3 s before the deadline, however long the request took."""

    async def play_late(received: ReceivedRequest) -> None:
        loop = asyncio.get_running_loop()
        usual = loop.time
        loop.time = lambda: usual() + DEADLINE.whole - 0.3
        await play(received)

    return play_late


ENDLESS = {
    "at once": repeating(STREAM, chunked(b": still here\n\n"), 0),
    "slowly": repeating(STREAM, chunked(b": still here\n\n"), 0.02),
    "one JSON value": repeating(JSON_HEAD, b" ", 0.02),
    "a head that never comes": falling_silent(),
}


@pytest.mark.parametrize("play", ENDLESS.values(), ids=ENDLESS)
@on_a_loop
async def test_an_answer_without_an_end_has_a_deadline(play):
    error = await failed(nearly_late(play), "openai", TimedOut, patience=DEADLINE)
    assert error.code == "too_long"
    assert not missing(error.message, "had not finished its answer after 50 s", "answer_minutes")


@both
async def test_what_comes_after_a_whole_answer_does_not_count_against_its_deadline(dialect):
    """The deadline ends the connection; the answer is whole and is used."""
    end = LOOKING[dialect].rindex(b"event: message_stop" if dialect == "anthropic" else b"data: [DONE]")
    play = repeating(STREAM + chunked(LOOKING[dialect][:end]), chunked(b": more\n\n"), 0.02)
    loop = asyncio.get_running_loop()
    usual, found, patience = loop.time, [], replace(QUICK, whole=WAIT_SECONDS / 2)
    async with (
        RawServer(play) as server,
        contextlib.aclosing(ask(server.endpoint(dialect), small_request(), patience)) as pieces,
    ):
        async for piece in pieces:
            found.append(piece)
            if isinstance(piece, ArgumentsPiece):
                # The rest of the answer has come with it. The time is over now.
                loop.time = lambda: usual() + patience.whole
    assert isinstance(found[-1], AnswerEnd)


@both
async def test_the_bytes_of_an_answer_are_counted_with_any_content(dialect):
    play = repeating(STREAM, chunked(b"event: ping\ndata: {}\n\n" * 1_000), 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "STREAM_BYTES", 200_000)
        error = await failed(play, dialect)
    assert isinstance(error, Broken)
    assert "it is longer than 200,000 bytes" in error.message


FAR = "Fri, 31 Dec 9999 23:59:59 GMT"
TOO_LONG = ["retry-after: 1e300", f"retry-after: {'9' * 300}", f"retry-after: {FAR}", "retry-after: 86401"]


@pytest.mark.parametrize("header", TOO_LONG, ids=["1e300", "300 digits", "the year 9999", "86401"])
@on_a_loop
async def test_an_excessive_wait_is_not_started_and_reported_briefly(header):
    error = await failed(as_json({}, "429 No", header), "openai", patience=Patience())
    demanded = "It demands a wait of more than a day before the next attempt, and Redline waits 60 s at most."
    assert demanded in error.message
    assert len(error.message) < 400


BAR_MEGABYTES: Final = 20


class Provider(BaseHTTPRequestHandler):
    """Answers every request with 3.5 GB of zeros, gzipped twice: some 8 KB on the network."""

    body: Final = bomb(megabytes=3_500)
    answered: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.answered.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        # The first part of the address says with which status.
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-encoding", "gzip, gzip")
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as its base calls it
        del format, args


@contextmanager
def hostile() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def peak_megabytes(process: int) -> float:
    """The most memory that a process has had so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1_000


def test_a_doubly_gzipped_answer_does_not_fill_the_memory_of_the_server(shared_server):
    assert len(Provider.body) < 10_000
    process = shared_server.child.pid
    with hostile() as address, ExitStack() as added:
        bases = {"closed": "http://127.0.0.1:1/v1", "ok": f"{address}/200", "failing": f"{address}/500"}
        models = {
            name: added.enter_context(added_provider(shared_server, name, base, "m"))[0] for name, base in bases.items()
        }
        # What it needs for any request to a provider is loaded before it is measured.
        shared_server.post("/settings/models", f"{models['closed']}/test")
        # What it needed for earlier tests is forgotten.
        Path(f"/proc/{process}/clear_refs").write_text("5")
        before = peak_megabytes(process)
        for name in ("ok", "failing"):
            shared_server.post("/settings/models", f"{models[name]}/test")
        grown = peak_megabytes(process) - before
    assert Provider.answered == ["/200/chat/completions", "/500/chat/completions"]
    assert grown < BAR_MEGABYTES, f"{grown:.1f} MB"
