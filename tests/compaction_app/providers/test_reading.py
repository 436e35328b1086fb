"""Bytes as they come: cut anywhere, with any content, and of any length."""

import asyncio
import itertools
import json
import selectors
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st

from compaction_app.core.messages import AssistantMessage, CallPart, TextPart, ThinkingPart
from compaction_app.providers import accumulator, client
from compaction_app.providers.error_mapping import Reported, Unreadable
from compaction_app.providers.types import Dialect
from tests.budget import examples
from tests.compaction_app.providers.streams import (
    DIALECTS,
    LOOKING,
    answered,
    block,
    both,
    call_block,
    chunk,
    fragment,
    message,
    read,
    reader_of,
    shown,
    sse,
    text_block,
)

# Any character, halves of characters, NUL, and the separators that some line readers take for line ends.
TEXT = st.text(st.characters() | st.sampled_from('\ud83d\ude00\0\u2028\u2029\x85\r\n\\"{}'), max_size=12)
FRAGMENTS = st.lists(TEXT, max_size=4)
CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@st.composite
def answers(draw: st.DrawFn, dialect: Dialect) -> bytes:
    """A whole answer with reasoning, text and calls, in JSON with and without escapes."""
    thought, text = draw(FRAGMENTS), draw(FRAGMENTS)
    asked = draw(st.lists(FRAGMENTS, max_size=3))
    if dialect == "anthropic":
        thinking = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": one} for one in thought]
        blocks = [block(0, thinking, *deltas, {"type": "signature_delta", "signature": "s"}), text_block(1, *text)]
        blocks += [call_block(place + 2, f"t{place}", "look", *one) for place, one in enumerate(asked)]
        return message(*blocks)
    chunks = [chunk({"reasoning": one}) for one in thought] + [chunk({"content": one}) for one in text]
    for place, one in enumerate(asked):
        chunks.append(chunk(fragment(place, "", call_id=f"t{place}", name="look")))
        chunks += [chunk(fragment(place, part)) for part in one]
    return sse(*chunks, chunk(finish="tool_calls"), "[DONE]")


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@examples(100)
def test_what_was_watched_is_what_was_answered_however_its_bytes_are_cut_and_every_database_takes_it(dialect, data):
    whole = data.draw(answers(dialect))
    pieces = read(dialect, whole)
    assert read(dialect, *cut(whole, data.draw(CUTS))) == pieces
    seen, answer = shown(pieces), answered(pieces).answer
    assert seen["text"] == "".join(part.text for part in answer.parts if isinstance(part, TextPart))
    assert seen["thought"] == "".join(part.text for part in answer.parts if isinstance(part, ThinkingPart))
    assert [one[1] for one in seen["calls"].values()] == [call.arguments for call in answer.calls]
    text_of_seen = json.dumps(seen, ensure_ascii=False)
    assert "\\u0000" not in text_of_seen
    text_of_seen.encode()


@both
def test_every_single_byte_may_come_alone_and_lines_that_are_not_events_are_ignored(dialect):
    data = LOOKING[dialect]
    pieces = read(dialect, *(data[place : place + 1] for place in range(len(data))))
    assert answered(pieces).answer == AssistantMessage(
        [TextPart("Let me look."), CallPart("t1", "look", '{"at": "ü"}')]
    )
    around = b"\xef\xbb\xbf: OPENROUTER PROCESSING\n\nretry: 5\nid: 1\n\n: \n" + LOOKING[dialect]
    assert read(dialect, around) == read(dialect, LOOKING[dialect])


@both
@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"])
def test_all_ends_of_lines_are_ends_of_lines(dialect, end):
    usual = read(dialect, LOOKING[dialect])
    data = LOOKING[dialect].replace(b"\n", end)
    assert (read(dialect, data), read(dialect, *cut(data, list(range(0, len(data), 7))))) == (usual, usual)


@both
def test_separators_inside_a_text_are_text(dialect):
    odd = "a\u2028b\u2029c\x85d\x0be"
    raw = json.dumps(odd, ensure_ascii=False).replace("\\u000b", "\\u000b").encode()
    data = {
        "anthropic": message(text_block(0, "HERE")).replace(b'"HERE"', raw),
        "openai": sse(chunk({"content": "HERE"}), chunk(finish="stop")).replace(b'"HERE"', raw),
    }[dialect]
    assert answered(read(dialect, data)).answer == AssistantMessage([TextPart(odd)])


@both
def test_halves_of_characters_meet_and_lone_ones_are_replaced(dialect):
    fragments = ["a\ud83d", "\ude00b", "\ud83d", "c\ude00", "\0d\ud83d"]
    data = {
        "anthropic": message(text_block(0, *fragments)),
        "openai": sse(*(chunk({"content": one}) for one in fragments), chunk(finish="stop")),
    }[dialect]
    pieces = read(dialect, data)
    assert answered(pieces).answer == AssistantMessage([TextPart("a\U0001f600b\ufffdc\ufffd\ufffdd\ufffd")])
    assert shown(pieces)["text"] == "a\U0001f600b\ufffdc\ufffd\ufffdd\ufffd"


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@examples(100)
def test_any_bytes_are_a_response_or_a_reported_fault(dialect, data):
    """Garbage in front of, inside of and instead of a stream: never another error than `Unreadable` or `Reported`."""
    whole = LOOKING[dialect]
    place = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.binary(max_size=20) | st.sampled_from([b"\xff\xfe", b"\0", b"\xed\xa0\x80", b"data: {}\n\n"]))
    try:
        pieces = read(dialect, whole[:place] + junk + whole[place:])
    except (Unreadable, Reported):
        return
    json.dumps(shown(pieces), ensure_ascii=False).encode()


def test_invalid_utf8_becomes_replacement_characters():
    data = sse(chunk({"content": "HERE"}), chunk(finish="stop")).replace(b"HERE", b"a\xff\xed\xa0\x80b")
    assert answered(read("openai", data)).answer.parts == [TextPart("a\ufffd\ufffd\ufffd\ufffdb")]


def endless(dialect: Dialect, text: str, times: int) -> bytes:
    if dialect == "anthropic":
        start, *rest = text_block(0, text)
        return sse(start) + sse(rest[0]) * times
    return sse(chunk({"content": text})) * times


@both
def test_an_answer_an_event_and_calls_that_never_end_are_cut_off(dialect):
    text = "x" * 1_000_000
    with pytest.raises(Unreadable, match="8,000,000 characters"):
        read(dialect, endless(dialect, text, 9))
    with pytest.raises(Unreadable, match="one of its events"):
        read(dialect, *([b"data: "] + [b"x" * (1 << 20)] * 5))
    with pytest.raises(Unreadable, match="one of its events"):
        read(dialect, *([b"data: x\n" * (1 << 17)] * 5))
    many = range(accumulator.CALLS + 1)
    data = {
        "anthropic": lambda: message(*(call_block(place, f"t{place}", "look") for place in many)),
        "openai": lambda: sse(*(chunk(fragment(place, "{}", name="look")) for place in many), chunk(finish="stop")),
    }[dialect]()
    with pytest.raises(Unreadable, match="1,000 tool calls"):
        read(dialect, data)


def test_what_is_kept_and_never_shown_counts_as_well_and_so_do_empty_blocks():
    large = "x" * 3_000_000
    hidden = [block(place, {"type": "redacted_thinking", "data": large}) for place in range(3)]
    with pytest.raises(Unreadable, match="8,000,000 characters"):
        read("anthropic", message(*hidden))
    details = [chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": large}]})] * 3
    with pytest.raises(Unreadable, match="8,000,000 characters"):
        read("openai", sse(*details, chunk(finish="stop")))
    with pytest.raises(Unreadable, match="10,000 parts"):
        read("anthropic", message(*(text_block(place) for place in range(accumulator.PARTS + 1))))


def test_a_body_without_an_end_is_read_up_to_its_limit():
    async def sent() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 10_000

    async def take() -> bytes:
        return await client.Body(httpx.Response(500, content=sent()), 5, 5).value(client.ERROR_BYTES)

    assert len(asyncio.run(take())) == client.ERROR_BYTES


class InNoTime(asyncio.SelectorEventLoop):
    """An event loop that waits for nothing: its clock jumps to the next thing to do."""

    def __init__(self) -> None:
        loop = self
        loop.now = 0.0

        class Skipping(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> list[Any]:
                loop.now += max(timeout or 0, 0)
                return super().select(0)

        super().__init__(Skipping())

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("pauses", "is_read"),
    [([2, *[1] * 20], True), ([4], False), ([2, 2], False)],
    ids=["keep-alive comments", "silence at first", "silence later"],
)
def test_every_byte_extends_the_wait(pauses, is_read):
    async def sent() -> AsyncIterator[bytes]:
        for pause in pauses:
            await asyncio.sleep(pause)
            yield b": still reading\n\n"
        yield b"data: {}\n\n"

    async def take() -> list[Any]:
        return [event async for event in client.Body(httpx.Response(200, content=sent()), 3, 1.5).events()]

    with asyncio.Runner(loop_factory=InNoTime) as runner:
        if is_read:
            assert len(runner.run(take())) == 1
        else:
            with pytest.raises(TimeoutError):
                runner.run(take())


@both
def test_the_time_a_call_takes_grows_with_its_length_and_no_faster(dialect):
    def seconds(fragments: int) -> float:
        reader = reader_of(dialect)
        if dialect == "anthropic":
            start, delta, _ = call_block(0, "t", "look", "xy")
        else:
            # A name in every fragment makes the reader look whether another call begins.
            start, delta = (chunk(fragment(0, text, name="look")) for text in ('{"', "xy"))
        first, more = json.dumps(start), json.dumps(delta)
        began = time.process_time()
        reader.feed("", first)
        for _ in range(fragments):
            reader.feed("", more)
        assert len(reader.builder.calls) == 1
        return time.process_time() - began

    seconds(2_000)
    few, many = min(seconds(4_000) for _ in range(3)), min(seconds(40_000) for _ in range(2))
    assert many < 30 * few, f"ten times the fragments took {many / few:.0f} times as long"
