"""JSON: everything that the agent reads is read, printed as the agent prints it, and found where it is on its line."""

import json
import math
import random
import re
import shutil
import subprocess
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from sessions_app.sessionlog import jsjson
from sessions_app.sessionlog.jsjson import (
    Span,
    canonical,
    items,
    members,
    parse,
    splice,
    stringify,
    to_string,
    utf16_slice,
)

any_text = st.text(st.characters(exclude_categories=()))
"""Any code points, lone surrogates among them."""
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(any_text | st.just("7"), inner, max_size=5),
    max_leaves=20,
)


def nested(depth: int, inside: bytes = b"") -> bytes:
    return b"[" * depth + inside + b"]" * depth


NUMBERS = """
    1.0=1 1.50=1.5 -0=0 -0.0=0 1e5=100000 1e20=100000000000000000000 123456789012345678901=123456789012345680000
    1e21=1e+21 1.25e21=1.25e+21 -1e21=-1e+21 0.000001=0.000001 0.0000012=0.0000012 0.0000001=1e-7
    -1.5e-10=-1.5e-10 5e-324=5e-324 2e-324=0 1.7976931348623157e308=1.7976931348623157e+308
    9007199254740991=9007199254740991 9007199254740993=9007199254740992 -9007199254740993=-9007199254740992
    111111111111111111111111111111=1.111111111111111e+29 1e400=null -1e400=null
"""
"""Numbers as they are recorded, and as JavaScript prints them."""


def test_every_number_is_the_double_that_javascript_reads():
    numbers = dict(pair.split("=") for pair in NUMBERS.split())
    numbers |= {"1" * 310: "null", "-" + "9" * 5000: "null"}
    assert {recorded: stringify(parse(recorded.encode())) for recorded in numbers} == numbers
    for recorded, printed in numbers.items():
        assert stringify(parse(f'{{"a":[{recorded}]}}'.encode())) == f'{{"a":[{printed}]}}'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_double_is_read_as_the_same_double(number):
    printed = stringify(number)
    assert float(printed) == number
    assert stringify(parse(printed.encode())) == printed


@pytest.mark.parametrize(
    ("recorded", "printed"),
    [
        (
            b'{"b":1,"10":2,"9":3,"01":4,"4294967294":5,"4294967295":6,"-1":7,"1.5":8,"0":9,"":10}',
            '{"0":9,"9":3,"10":2,"4294967294":5,"b":1,"01":4,"4294967295":6,"-1":7,"1.5":8,"":10}',
        ),
        ('{"b":1,"٣":2,"3":3}'.encode(), '{"3":3,"b":1,"٣":2}'),
        (b'{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
        (rb'"\ud83d"', r'"\ud83d"'),
        (rb'["x\uDE00\uD83D"]', r'["x\ude00\ud83d"]'),
        (rb'"\ud83d\ude00"', '"😀"'),
        (rb'{"\ud83d":"\ud83d\ude00 \ude00"}', r'{"\ud83d":"😀 \ude00"}'),
        (b' { "a" : [ 1 , { } , [ ] , true , false , null ] } ', '{"a":[1,{},[],true,false,null]}'),
    ],
    ids=[
        *("keys that are array indexes come first", "digits of other scripts are not indexes", "a repeated key"),
        *("a lone surrogate", "two that are no pair", "a pair", "a pair beside lone ones", "no white space"),
    ],
)
def test_what_is_read_is_printed_as_javascript_prints_it(recorded, printed):
    assert stringify(parse(recorded)) == printed


def test_only_quotes_backslashes_and_control_characters_are_escaped_and_bytes_are_refused():
    assert stringify('"\\/') == r'"\"\\/"'
    assert stringify("\ud83d" + "\ude00") == '"😀"', "two halves that were joined later are one character"
    assert stringify("\b\t\n\f\r") == r'"\b\t\n\f\r"'
    assert stringify("\x00\x0b\x1b\x1f") == r'"\u0000\u000b\u001b\u001f"'
    for plain in "\x7f\x80\u00e9\u2028\u2029\ufeff\uffff😀":
        assert stringify(plain) == f'"{plain}"'
        # A double beside it selects the other printer.
        assert stringify([plain, 1.5]) == f'["{plain}",1.5]'
    with pytest.raises(TypeError, match="bytes"):
        stringify({"a": b"x"})


@given(json_values)
@example({"a": 1e400})
@example({"0": "\ud800", "b": [1.0, -0.0]})
def test_printing_is_stable(value):
    printed = stringify(value)
    assert stringify(parse(printed.encode())) == printed


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text().filter(lambda key: not key.isdigit()), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(plain_values, st.booleans())
def test_output_is_the_same_if_javascript_and_python_agree(value, beside_a_double):
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if beside_a_double:
        # A double selects the other printer.
        assert stringify([value, 0.5]) == f"[{expected},0.5]"
    else:
        assert stringify(value) == expected


def sample(seed: int, count: int) -> list[Any]:
    """Values of every kind, with many awkward ones."""
    rng = random.Random(seed)
    bits = [*'abc"\\/\b\n\x00\x1f\x7f\u2028é漢😀', "\ud83d", "\ude00", "\ud800", "\udfff"]
    awkward = [0, -0.0, 1e21, 1e-7, 123456789012345680000, 2**53 + 1, 10**30, 5e-324, None, True, False]

    def words(_depth: int = 0) -> str:
        return "".join(rng.choices(bits, k=rng.randrange(6)))

    def key() -> str:
        return rng.choice([words(), str(rng.randrange(20)), "01", "4294967294", "4294967295", "-1"])

    def value(depth: int) -> Any:
        return rng.choice(kinds if depth else kinds[:-2])(depth)

    kinds: list[Callable[[int], Any]] = [
        words,
        lambda _: rng.randrange(-(2**64), 2**64),
        lambda _: rng.uniform(-1, 1) * 10.0 ** rng.randrange(-320, 308),
        lambda _: round(rng.uniform(-1, 1), rng.randrange(9)) * 10 ** rng.randrange(-9, 25),
        lambda _: rng.choice(awkward),
        lambda depth: [value(depth - 1) for _ in range(rng.randrange(6))],
        lambda depth: {key(): value(depth - 1) for _ in range(rng.randrange(6))},
    ]
    return [value(4) for _ in range(count)]


def test_a_fixed_sample_is_printed_as_the_real_json_stringify_prints_it():
    values = sample(seed=2026, count=500)
    # Python's own printer escapes everything that is not ASCII, so that the recorded bytes are unambiguous.
    recorded = [json.dumps(value).encode() for value in values]
    printed = [stringify(parse(line)) for line in recorded]
    assert [stringify(parse(line.encode())) for line in printed] == printed
    if node := shutil.which("node"):
        script = (
            "const lines = require('fs').readFileSync(0, 'utf8').split('\\n');"
            "console.log(JSON.stringify(lines.map(line => JSON.stringify(JSON.parse(line)))))"
        )
        lines = b"\n".join(recorded)
        done = subprocess.run([node, "-e", script], input=lines, capture_output=True, check=True)
        assert printed == json.loads(done.stdout)


@pytest.mark.parametrize("depth", [100, 500, 900])
def test_whatever_can_be_read_can_be_printed_at_any_depth(depth):
    for inside in (b"", b"1.5", b'{"a":[1.0,2]}'):
        recorded = nested(depth, inside)
        try:
            value = parse(recorded)
        except ValueError:
            # Then it need not be printed. Far below the depth that Python can read, this must not happen.
            assert depth > 100
            continue
        assert stringify(value).encode() == recorded.replace(b"1.0", b"1")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        *((b'"\xff"', "�"), (b'"a\xc3("', "a�("), (b'"\xed\xa0\x80"', "���"), (b'{"\xff":1}', {"�": 1})),
        (rb'"\ud800"', "\ud800"),
        (rb'"\ud800 \udc00"', "\ud800 \udc00"),
        (rb'{"\udfff":"\ud83d\ude00"}', {"\udfff": "😀"}),
        *((b'"\x7f"', "\x7f"), ('"\u2028"'.encode(), "\u2028"), (b" \t\r\n1 \t\r\n", 1)),
        *((b"1e400", math.inf), (b"9" * 5000, math.inf)),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_everything_the_agent_reads_is_read(raw, value):
    assert parse(raw) == value


def test_input_the_agent_cannot_read_is_refused_with_an_explanation():
    def is_explained(raw: bytes) -> bool:
        try:
            parse(raw)
        except ValueError as fault:
            return bool(str(fault))
        return False

    unreadable = [
        *(b"NaN", b"Infinity", b"-Infinity", b"[NaN]", b"nan", b"undefined"),
        *(b'"\x00"', b'"\x1f"', b'"a\tb"', b'"a\nb"', b'{"a\x01":1}', b'"\xff\x01"'),
        *(b"[1,]", b'{"a":1,}', b"[,1]", b"[1 2]", b'{"a" 1}', b"{1:2}", b"'a'"),
        *(b"01", b"1.", b".5", b"+1", b"-", b"1e", b"0x10", b"1_0", "１".encode()),
        *(rb'"\x41"', rb'"\u12"', rb'"\u+123"', rb'"\u 123"', rb'"\u0_12"'),
        *(b"", b" ", b"\0", b"[1", b'"a', b'{"a":1}{"a":2}', b"1 2", b"tru", b"\x0b1", b"\xc2\xa01"),
        *(b"\xef\xbb\xbf1", b"\xff"),
        *(nested(100_000), b'{"a":' * 50_000 + b"1" + b"}" * 50_000, nested(100_000, b'"\xff"')),
    ]
    assert [raw[:20] for raw in unreadable if not is_explained(raw)] == []
    with pytest.raises(ValueError, match="a byte order mark stands before it"):
        parse(b"\xef\xbb\xbf1")


@given(
    st.binary(max_size=60) | any_text.map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
)
def test_arbitrary_bytes_are_read_or_refused(raw):
    try:
        value = parse(raw)
    except ValueError:
        return
    stringify(value)
    to_string(value)


def units(text: str) -> list[int]:
    """The UTF-16 code units of a string, by definition."""
    found = []
    for character in text:
        code = ord(character)
        if code >= 0x10000:
            found += [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)]
        else:
            found.append(code)
    return found


@given(any_text)
@example("😀")
@example("\ud83d")
def test_the_length_of_a_string_is_its_number_of_utf16_units(text):
    assert jsjson.utf16_length(text) == len(units(text))


@given(any_text, st.integers(0, 12), st.integers(0, 12))
@example("a😀b", 2, 4)
@example("a😀b", 0, 2)
@example("😀😀", 3, 1)
def test_a_slice_counts_utf16_units_and_may_cut_a_pair(text, start, end):
    assert units(utf16_slice(text, start, end)) == units(text)[start:end]


@given(any_text)
@example("\ud83d\ude00")
@example("\ude00\ud83d")
@example("\ud800\ud800\udc00")
def test_well_formed_text_can_be_stored_and_loses_only_lone_surrogates(text):
    stored = jsjson.well_formed(text)
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert stored.encode().decode() == stored == re.sub("[\ud800-\udfff]", "�", joined)


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        *((b'"a"', "a"), (b"null", "null"), (b"true", "true"), (b"1.0", "1"), (b'{"a":1}', "[object Object]")),
        *((b"[]", ""), (b"[[],[]]", ","), (b"[[[]]]", ""), (b"[null]", "")),
        (b'[1,[2,[],null,[3,"x"]],{}]', "1,2,,,3,x,[object Object]"),
        (nested(600, b'1,"b"'), "1,b"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_a_value_in_a_template_looks_as_in_javascript(recorded, shown):
    assert to_string(parse(recorded)) == shown


@pytest.mark.parametrize(
    ("recorded", "printed"),
    [
        (b'{"b": [1, true], "a": null}', '{"a":null,"b":[1,true]}'),
        (b'{"10": 0, "9": 0, "a": {"c": 1, "b": 2}}', '{"10":0,"9":0,"a":{"b":2,"c":1}}'),
        (b"[120.0, 1e21, 1e-7, 0.5, 12345678901234567890]", "[120,1e+21,1e-7,0.5,12345678901234567000]"),
        ('"é😀"'.encode(), '"\\u00e9\\ud83d\\ude00"'),
        ('{"é": 1.0}'.encode(), '{"\\u00e9":1}'),
        (rb'["\ud800", 1.0]', '["\\ud800",1]'),
        (nested(600, b'{"b":1,"a":2}'), nested(600, b'{"a":2,"b":1}').decode()),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_equal_values_have_one_canonical_text(recorded, printed):
    assert canonical(parse(recorded)) == printed


@given(st.dictionaries(any_text, json_values))
def test_the_canonical_text_does_not_depend_on_the_order_of_keys(value):
    assert canonical(dict(reversed(value.items()))) == canonical(value)
    assert canonical(value).isascii()


BLANKS = st.sampled_from([b"", b"", b" ", b"\t", b" \r\n "])
WORDS = st.one_of(
    st.sampled_from(["", "a", "id", '"', "\\", '\\"', "{", "}]", "[,", ":", "naïve 🙂", "\u0000\n", '{"a":[1]}']),
    st.text(max_size=6),
)
STRINGS = st.builds(lambda words, plain: json.dumps(words, ensure_ascii=plain).encode(), WORDS, st.booleans())
ODD_STRINGS = st.sampled_from([b'"\\u005b\\u007d"', b'"\\/"', b'"\\ud83d\\ude42"', b'"\\\\"', b'"\\\\\\""'])
SCALARS = st.one_of(
    st.sampled_from([b"null", b"true", b"false", b"0", b"-0.0", b"1e3", b"1.50", b"-12E-2"]), STRINGS, ODD_STRINGS
)


def padded(value: bytes, before: bytes, after: bytes) -> bytes:
    return before + value + after


def arrays(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    inside = st.lists(st.builds(padded, values, BLANKS, BLANKS), max_size=4)
    return st.builds(lambda found, blank: b"[" + (b",".join(found) or blank) + b"]", inside, BLANKS)


def objects(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Objects with repeated keys among them."""
    keys = st.one_of(STRINGS, st.sampled_from([b'"a"', b'"\\u0061"', b'"b"']))
    pairs = st.builds(
        lambda key, value: key + b":" + value,
        st.builds(padded, keys, BLANKS, BLANKS),
        st.builds(padded, values, BLANKS, BLANKS),
    )
    return st.builds(
        lambda found, blank: b"{" + (b",".join(found) or blank) + b"}", st.lists(pairs, max_size=4), BLANKS
    )


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(arrays(inner), objects(inner)), max_leaves=12)


def parsed(raw: bytes, spans: Sequence[Span]) -> list[object]:
    """The values at these positions. Each has no blank around it."""
    found = [span.of(raw) for span in spans]
    assert all(value == value.strip() != b"" for value in found)
    return [json.loads(value) for value in found]


@given(objects(VALUES), st.binary(max_size=3))
@example(b'{"a":1,"\\u0061":{"a":2},"b":3}', b"")
def test_members_are_those_of_the_parsed_object(raw, behind):
    found = members(raw + behind)
    assert dict(zip(found, parsed(raw, list(found.values())), strict=True)) == json.loads(raw)


@given(arrays(VALUES), st.binary(max_size=3))
def test_items_are_those_of_the_parsed_array(raw, behind):
    assert parsed(raw, items(raw + behind)) == json.loads(raw)


@given(st.builds(lambda inner, blank: b'{"x":[1],"in":' + blank + inner + b"}", objects(VALUES), BLANKS))
def test_positions_inside_another_value_count_from_the_beginning_of_the_line(raw):
    inside = members(raw, members(raw)["in"].start)
    assert dict(zip(inside, parsed(raw, list(inside.values())), strict=True)) == json.loads(raw)["in"]


@given(objects(VALUES), st.data())
def test_a_replaced_value_is_the_only_change(raw, data):
    found = members(raw)
    assert splice(raw, []) == splice(raw, [(span, span.of(raw)) for span in found.values()]) == raw
    if not found:
        return
    chosen = data.draw(st.lists(st.sampled_from(sorted(found)), unique=True))
    changed = splice(raw, [(found[name], b"[0]") for name in chosen])
    assert json.loads(changed) == {**json.loads(raw), **{name: [0] for name in chosen}}
    assert len(changed) - len(raw) == sum(3 - (found[name].end - found[name].start) for name in chosen)


@pytest.mark.parametrize("changes", [[(1, 1), (4, 5)], [(4, 5), (1, 1)]])
def test_the_order_of_changes_does_not_matter(changes):
    assert splice(b'{"a":1}', [(Span(*span), b"x") for span in changes]) == b'{x"a"x1}'


@pytest.mark.parametrize("piece", [b"A", rb"\n", rb"A\\"])
def test_a_long_string_takes_no_memory_for_each_of_its_bytes(piece):
    raw = b'{"data":"' + piece * 100_000 + b'"}'
    tracemalloc.start()
    try:
        assert members(raw)["data"] == Span(8, len(raw) - 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(raw)
