"""What a model streams is buffered for rows, and a key that its provider echoes is hidden in forms cheap to find."""

import base64
import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from compaction_app.planning.model_request import SecretRedactor, StreamBuffer
from compaction_app.providers.error_mapping import GAP, KeyForms, without_key
from compaction_app.providers.types import ArgumentsPiece, CallBegun, Piece, TextPiece, ThoughtPiece
from tests.budget import examples

KEY: Final = "sk-ant-api03-Vq7TzLw2NfX/k9Rb+YpHsJd8"
HINT: Final = "…sJd8"


def each(form: str, between: str = "") -> Callable[[str], str]:
    """Each byte of the key written in one way."""
    return lambda key: between.join(map(form.format, key.encode()))


def inside(before: str, after: str) -> Callable[[str], str]:
    """Base64 of data that contains the key."""
    return lambda key: base64.b64encode(f"{before}{key}{after}".encode()).decode()


FORMS: Final[dict[str, Callable[[str], str]]] = {
    "plain": lambda key: key,
    "upper": str.upper,
    "reversed": lambda key: key[::-1],
    "spaced": " ".join,
    "dotted": ".".join,
    "one a line": "\n".join,
    "one a line in JSON": r"\n".join,
    "a list in JSON": lambda key: json.dumps(list(key)),
    "without its own signs": lambda key: key.replace("-", " "),
    "zero-width": "\u200b".join,
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "base64 in lines": lambda key: base64.encodebytes(3 * key.encode()).decode(),
    **{f"base64 at {at}": inside("x" * at, "") for at in range(1, 6)},
    **{f"base64 before {at}": inside("Bearer ", "x" * at) for at in range(4)},
    "hex": each("{:02x}"),
    "HEX": each("{:02X}"),
    "hex with colons": each("{:02x}", ":"),
    "hex with 0x": each("0x{:02x}", ", "),
    "escaped with x": each(r"\x{:02x}"),
    "escaped with u": each(r"\u{:04x}"),
    "escaped twice": each(r"\\u{:04X}"),
    "percent-encoded": lambda key: quote(key, safe=""),
    "percent-encoded whole": each("%{:02X}"),
    "entities": each("&#{:d};"),
    "hexadecimal entities": each("&#x{:x};"),
    "decimal": each("{:d}", ", "),
    "JSON": lambda key: json.dumps(key).replace("/", r"\/"),
}
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def batches_of(*batches: list[Piece]) -> list[list[list[object]]]:
    """The rows of each batch."""
    pieces = StreamBuffer(SecretRedactor(KEY))
    rows = []
    for batch in batches:
        for piece in batch:
            pieces.add(piece)
        rows.append(pieces.take(last=batch is batches[-1]))
    return rows


def shown_of(pieces: Iterable[Piece]) -> str:
    """The text in all rows of pieces that come one by one."""
    return "".join(str(row[-1]) for rows in batches_of(*([piece] for piece in pieces)) for row in rows)


def leaks(shown: str, written: str) -> bool:
    """Whether more than a few characters in a row of what was written are left."""
    return any(written[at : at + GAP] in shown for at in range(4, len(written) - 2 * GAP))


@by_form
def test_each_form_is_hidden_in_a_text_and_in_what_an_error_quotes(form):
    written = form(KEY)
    whole = f"It was {written} all the time."
    quoted, shown = without_key(whole, KEY), SecretRedactor(KEY).text(whole)
    for hidden in (quoted, shown):
        assert HINT in hidden
        assert not leaks(hidden, written)
    assert shown.startswith("It was ")
    assert shown.endswith(" all the time.")


@by_form
@examples(10)
@given(data=st.data())
def test_each_form_is_hidden_however_it_is_cut_into_pieces(form, data):
    whole = f"It was {form(KEY)} all the time."
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)) | {0, len(whole)})
    make = data.draw(st.sampled_from([TextPiece, ThoughtPiece, partial(ArgumentsPiece, 0)]))
    shown = shown_of([make(whole[start:end]) for start, end in pairwise(cuts)])
    assert shown == SecretRedactor(KEY).text(whole)


@given(st.text(alphabet="skantpi03Vq7 -_./+=%\\nux0&#;:,", max_size=80), st.integers(1, 9))
def test_text_that_is_not_a_form_of_the_key_is_shown_unchanged(text, length):
    assert shown_of([TextPiece(text[start : start + length]) for start in range(0, len(text), length)]) == text


def test_a_piece_is_held_while_it_could_become_the_key_but_not_the_name_of_a_call():
    pieces = StreamBuffer(SecretRedactor(KEY))
    pieces.add(TextPiece("He asks"))
    assert pieces.take() == [["text", "He ask"]]
    pieces.add(TextPiece(" " * (2 * GAP + 1)))
    assert pieces.take() == [["text", "s" + " " * (2 * GAP + 1)]]
    pieces = StreamBuffer(SecretRedactor("t" + KEY))
    pieces.add(CallBegun(0, "context_search_transcript"))
    assert pieces.take() == [["call", 0, "context_search_transcript"]]


def test_held_back_text_stays_before_what_follows_it_and_in_its_own_call():
    pieces: list[Piece] = [ThoughtPiece("Yes"), TextPiece("It is"), CallBegun(0, "look"), ThoughtPiece("s")]
    assert batches_of(pieces) == [[["thought", "Yes"], ["text", "It is"], ["call", 0, "look"], ["thought", "s"]]]
    (row,) = batches_of([ArgumentsPiece(0, KEY[:10]), ArgumentsPiece(1, KEY[10:])])
    of_call = ["".join(str(text) for _, call, text in row if call == number) for number in (0, 1)]
    assert of_call == [KEY[:10], KEY[10:]]


@pytest.mark.parametrize("key", ["ollama", "EMPTY", "----------------------", "!" * 40])
def test_a_key_of_few_letters_hides_no_text_that_is_like_it(key):
    text = f"{key} o l l a m a 6f6c6c616d61 b2xsYW1h ... --- !!!"
    assert KeyForms(key).hide(text, "…") == text


def test_the_longest_key_is_hidden_in_a_long_text():
    key = "".join(base64.b64encode(bytes([number % 251, number % 241])).decode() for number in range(2_048))
    text = " x" * 50_000 + each("{:02x}")(key) + "y " * 50_000
    hiding = SecretRedactor(key)
    assert len(hiding.text(text)) < 200_100
    assert hiding.split(text + " " * 100)[1] == ""


def test_neighbours_of_one_kind_are_one_piece_and_each_call_starts_afresh():
    assert batches_of([TextPiece("a"), TextPiece("b"), ThoughtPiece("c"), TextPiece("d")]) == [
        [["text", "ab"], ["thought", "c"], ["text", "d"]]
    ]
    assert batches_of([CallBegun(0, "read"), CallBegun(1, "read"), ArgumentsPiece(1, "{"), ArgumentsPiece(1, "}")]) == [
        [["call", 0, "read"], ["call", 1, "read"], ["arguments", 1, "{}"]]
    ]


def test_values_of_any_shape_are_freed_of_the_key():
    hidden = SecretRedactor(KEY).value({"a": [KEY, 1, None], f"x{KEY}": {"b": f"{KEY}{KEY}"}})
    assert KEY not in json.dumps(hidden)
    assert hidden == {"a": [HINT, 1, None], f"x{HINT}": {"b": f"{HINT}{HINT}"}}


@pytest.mark.parametrize("word", ["", "ollama", "EMPTY", "lm-studio"])
def test_placeholder_keys_of_local_servers_are_not_secrets(word):
    value = {"pattern": f"the {word} server"}
    assert SecretRedactor(word).value(value) == value
