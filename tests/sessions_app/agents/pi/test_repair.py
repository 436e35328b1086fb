"""A repaired copy has every record of a damaged session, and each original byte is in it or among the lost bytes."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.bench.damage import NEW_HEADER, damaged, original_of, unaccounted
from devtools.bench.sessions import generate
from sessions_app.agents.pi.agent import PI
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.repair_pieces import Fate, RepairAccount
from tests.factories import HEADER, context_edit, message, session_bytes, user
from tests.paths import corpus
from tests.work_counts import calls_made

A, B, C = message("a", None, user("one")), message("b", "a", user("two")), message("c", "b", user("three"))
NUL = b"\0" * 7
SESSIONS = [[msgspec.json.encode(one) for one in generate(entries=30, entry_bytes=400, seed=3)]]


def raw(recorded: dict[str, Any]) -> bytes:
    return session_bytes([recorded])[:-1]


def repaired(original: bytes) -> tuple[bytes, bytes, RepairAccount]:
    """The copy, the lost bytes and the account of a repair."""
    account = RepairAccount()
    copy = lost = b""
    for piece in PI.repair(lambda: split_lines([original]), NEW_HEADER):
        account.add(piece)
        if piece.fate is Fate.LOST:
            lost += piece.raw
        else:
            copy += piece.raw
    return copy, lost, account


def changed(recorded: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**recorded, **fields}


def moved(recorded: dict[str, Any], parent: str | None) -> dict[str, Any]:
    return changed(recorded, parentId=parent)


@pytest.mark.parametrize(
    ("original", "copy", "lost"),
    [
        pytest.param([HEADER, A, raw(B) + raw(C)], [HEADER, A, B, C], b"", id="glued records"),
        pytest.param([raw(HEADER) + raw(A), B, C], [HEADER, A, B, C], b"", id="glued header"),
        pytest.param([HEADER, A, raw(B)[:40] + raw(C)], [HEADER, A, moved(C, "a")], raw(B)[:40] + b'"b"', id="torn"),
        pytest.param([HEADER, A, raw(B) + b"}x" + raw(C)], [HEADER, A, B, C], b"}x", id="garbage between records"),
        pytest.param([HEADER, A, NUL, B], [HEADER, A, B], NUL + b"\n", id="a line of NUL"),
        pytest.param([HEADER, A, NUL + raw(B) + NUL], [HEADER, A, B], NUL + NUL, id="NUL around a record"),
        pytest.param([HEADER, A, b"", b" \t", B], [HEADER, A, B], b"\n \t\n", id="blank lines"),
        pytest.param([HEADER, A, b"5", b"null", b"[{}]"], [HEADER, A], b"5\nnull\n[{}]\n", id="not objects"),
        pytest.param([HEADER, A, b"{}", b'{"x":1}'], [HEADER, A], b'{}\n{"x":1}\n', id="objects that are not entries"),
        pytest.param([b"\xef\xbb\xbf" + raw(HEADER), A], [HEADER, A], b"\xef\xbb\xbf", id="byte order mark"),
        pytest.param([HEADER, A, raw(B) + b"\r"], [HEADER, A, raw(B) + b"\r"], b"", id="carriage return"),
        pytest.param([HEADER, A, HEADER, B], [HEADER, A, B], raw(HEADER) + b"\n", id="second header"),
        pytest.param([HEADER, A, B, A], [HEADER, A, B], raw(A) + b"\n", id="repeated entry"),
        pytest.param([HEADER, A, moved(B, "x"), C], [HEADER, A, B, C], b'"x"', id="missing parent"),
        pytest.param([HEADER, moved(A, "x"), B], [HEADER, A, B], b'"x"', id="missing parent of the first entry"),
        pytest.param([HEADER, moved(A, "c"), B, C], [HEADER, A, B, C], b'"c"', id="cycle of the first entry"),
        pytest.param(
            [HEADER, A, moved(B, "c"), C], [HEADER, A, B, C], b'"c"', id="a cycle is attached to the entry before it"
        ),
        pytest.param([HEADER, A, B, moved(C, "c")], [HEADER, A, B, C], b'"c"', id="its own parent"),
        pytest.param([HEADER, B, A], [HEADER, B, A], b"", id="a parent that comes later"),
    ],
)
def test_a_repair_keeps_every_record(original, copy, lost):
    written, taken, _ = repaired(session_bytes(original))
    assert written == session_bytes(copy)
    assert taken == lost
    assert unaccounted(session_bytes(original)) == ""


def test_a_sound_session_is_copied_unchanged():
    original = session_bytes([HEADER, A, B, changed(C, extra={"id": "x", "n": 1.50})])
    copy, lost, account = repaired(original)
    assert (copy, lost, account.changes, account.inserted_size) == (original, b"", [], 0)


def test_the_last_line_is_completed():
    original = session_bytes([HEADER, A])
    assert repaired(original[:-1])[:2] == (original, b"")


def test_a_torn_last_line_is_lost():
    original = session_bytes([HEADER, A])
    assert repaired(original + raw(B)[:-9])[:2] == (original, raw(B)[:-9])


def test_a_missing_header_is_rebuilt():
    copy, lost, account = repaired(session_bytes([A, B]))
    header, rest = copy.split(b"\n", 1)
    assert rest == session_bytes([A, B])
    assert parse(header) == {
        "type": "session",
        "version": 3,
        "id": NEW_HEADER.id,
        "timestamp": NEW_HEADER.timestamp,
        "cwd": "",
    }
    assert lost == b""
    assert [(one.fate, one.at, one.length) for one in account.changes] == [(Fate.INSERTED, 0, len(header) + 1)]


def test_a_header_that_comes_late_gives_its_fields_to_the_new_one():
    copy, lost, _ = repaired(session_bytes([A, HEADER, B]))
    assert [parse(line) for line in copy.splitlines()] == [HEADER, A, B]
    assert lost == raw(HEADER) + b"\n"


@pytest.mark.parametrize("found", [None, 7, ["x"]])
def test_a_header_without_an_id_gets_one(found):
    copy, _, _ = repaired(session_bytes([changed(HEADER, id=found), A]))
    assert parse(copy.splitlines()[0]) == {**HEADER, "id": NEW_HEADER.id}


def test_an_id_is_unique_and_children_follow_the_entry_that_was_there():
    other, child = message("a", "b", user("other")), message("d", "a", user("four"))
    copy, lost, account = repaired(session_bytes([HEADER, A, B, other, child]))
    _, first, second, renamed, last = map(parse, copy.splitlines())
    assert (first, second) == (A, B)
    assert renamed["id"] not in {"a", "b", "d"}
    assert renamed == changed(other, id=renamed["id"])
    assert last == moved(child, renamed["id"])
    assert lost == b'"a""a"'
    assert [one.fate for one in account.changes] == [Fate.LOST, Fate.INSERTED] * 2


@pytest.mark.parametrize("found", [None, "", 7, {"x": 1}, "\ud800"])
def test_an_entry_without_a_usable_id_gets_one(found):
    copy, _, _ = repaired(session_bytes([HEADER, A, changed(B, id=found), moved(C, found)]))  # type: ignore[arg-type]
    records = [parse(line) for line in copy.splitlines()]
    assert isinstance(records[2]["id"], str)
    assert len(records[2]["id"]) == 8
    assert records[2]["parentId"] == "a"
    if found in (7, "\ud800"):
        assert records[3]["parentId"] == records[2]["id"]


def test_an_entry_without_any_place_is_attached_to_the_one_before():
    lone = {"type": "message", "message": user("lone")}
    copy, lost, _ = repaired(session_bytes([HEADER, A, lone]))
    record = parse(copy.splitlines()[2])
    assert record == {**lone, "id": record["id"], "parentId": "a"}
    assert lost == b""


def test_entries_that_stop_an_agent_are_made_inert():
    empty = {"type": "message", "id": "b", "parentId": "a"}
    edit = {"type": "context_edit", "id": "c", "parentId": "b", "targetId": "a"}
    copy, lost, _ = repaired(session_bytes([HEADER, A, empty, edit]))
    inert = {"type": "custom", "customType": "redline.repair"}
    assert [parse(line) for line in copy.splitlines()] == [HEADER, A, {**empty, **inert}, {**edit, **inert}]
    assert lost == b'"message""context_edit"'


@pytest.mark.parametrize("replacement", [None, {"content": ""}, {"content": []}])
def test_an_edit_that_can_be_used_stays(replacement):
    original = session_bytes([HEADER, A, {**context_edit("a", replacement), "id": "b", "parentId": "a"}])
    assert repaired(original)[0] == original


def test_version_1_is_a_chain_without_ids():
    header = {key: value for key, value in HEADER.items() if key != "version"}
    first, second = ({"type": "message", "message": user(words)} for words in ("one", "one"))
    copy, lost, _ = repaired(session_bytes([header, raw(first) + raw(second), b"x"]))
    assert copy == session_bytes([header, first, second])
    assert lost == b"x\n"


def test_entries_inside_an_incomplete_record_stay_inside():
    outer = changed(B, details={"entries": [message("inner", None, user("x")), A]})
    torn = raw(outer)[:-4]
    copy, lost, _ = repaired(session_bytes([HEADER, A, torn + raw(C)]))
    assert copy == session_bytes([HEADER, A, moved(C, "a")])
    assert lost == torn + b'"b"'


def test_many_orphans_and_cycles_are_attached_with_work_that_grows_with_their_number():
    def attached(count: int) -> None:
        entries = [message(f"e{number}", f"e{number}", user("x")) for number in range(count)]
        copy, _, _ = repaired(session_bytes([HEADER, *entries]))
        parents = [parse(line)["parentId"] for line in copy.splitlines()[1:]]
        assert parents == [None, *(f"e{number}" for number in range(count - 1))]

    attached(10)
    assert calls_made(lambda: attached(400)) < 5 * calls_made(lambda: attached(100))


@given(st.integers(min_value=0, max_value=2**64), st.integers(min_value=1, max_value=30))
def test_every_byte_of_a_damaged_session_is_accounted_for(seed, size):
    original = damaged(SESSIONS[0][: size + 1], random.Random(seed))
    assert unaccounted(original) == ""


@given(st.lists(st.sampled_from([raw(HEADER), raw(A), raw(B)[:30], b'{"', b"}", b"\0", b"\n", b"\xff", b"5"])))
def test_every_byte_of_any_file_is_accounted_for(parts):
    assert unaccounted(b"".join(parts)) == ""


def test_the_changes_lead_back_to_the_original():
    original = session_bytes([HEADER, raw(A) + raw(B), NUL, moved(C, "x")])
    copy, lost, account = repaired(original)
    assert original_of(copy, lost, account.changes) == original
    assert account.inserted_size == len(copy) + len(lost) - len(original)


@pytest.mark.skipif(corpus() is None, reason="there are no real sessions")
@pytest.mark.parametrize(
    ("name", "size"), [("pi-mono-glued-line.v1.jsonl", 0), ("agent-complex-task-youtube-headerless.jsonl", 2_038)]
)
def test_real_damaged_sessions_lose_nothing_that_can_be_read(name, size):
    directory = corpus()
    assert directory is not None
    original = (directory / "pi" / name).read_bytes()
    _, lost, _ = repaired(original)
    assert len(lost) == size
    assert unaccounted(original) == ""


@pytest.mark.parametrize(
    ("original", "reasons"),
    [
        ([HEADER, A, moved(B, "x")], ["its parent was missing"]),
        ([HEADER, moved(A, "b"), B], ["it was its own ancestor"]),
        (
            [HEADER, A, changed(B, id="a"), moved(C, "a")],
            ["the id was that of an earlier entry", "its parent has another id now"],
        ),
        ([HEADER, A, changed(B, id="")], ["it had no usable id"]),
        (
            [HEADER, A, b"", b"\0", b"x"],
            [
                "the end of a line without a record",
                "NUL bytes",
                "the end of a line without a record",
                "not a record, or not a complete one",
                "the end of a line without a record",
            ],
        ),
    ],
)
def test_each_change_has_a_reason(original, reasons):
    _, _, account = repaired(session_bytes(original))
    assert [one.reason for one in account.changes if one.fate is Fate.LOST] == reasons
