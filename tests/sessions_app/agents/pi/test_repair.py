"""Damage: what each agent makes of it, as measured with pi 0.86.1 and 0.87.1, Atomic 0.8.30 and after 0.9.15,
and its repair."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from devtools.bench.damage import NEW_HEADER, damaged, unaccounted
from devtools.bench.sessions import generate
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.pure.diagnosis import fragments
from sessions_app.sessionlog.diagnosis import Finding, Severity
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, split_lines
from sessions_app.sessionlog.repair_pieces import Fate, RepairAccount
from tests.factories import (
    HEADER,
    V1_HEADER,
    assistant,
    context_edit,
    message,
    session_bytes,
    summary_compaction,
    text,
    user,
    version_1,
)
from tests.paths import corpus
from tests.work_counts import calls_made

A, C = message("a", None, user("one")), message("c", "b", user("three"))
B = message("b", "a", assistant(text("two")))
NUL, BOM = b"\0" * 7, b"\xef\xbb\xbf"
SESSION = [msgspec.json.encode(one) for one in generate(entries=30, entry_bytes=400, seed=3)]


def raw(recorded: dict[str, Any]) -> bytes:
    return session_bytes([recorded])[:-1]


def repaired(original: bytes) -> tuple[bytes, bytes, RepairAccount]:
    """The copy, the lost bytes and the account of a repair."""
    account = RepairAccount()
    copy = lost = b""
    for piece in PI.format.repair(lambda: split_lines([original]), NEW_HEADER):
        account.add(piece)
        if piece.fate is Fate.LOST:
            lost += piece.raw
        else:
            copy += piece.raw
    return copy, lost, account


def copied(recorded: list[dict[str, Any] | bytes]) -> tuple[list[Any], bytes]:
    """The records of a repaired copy, parsed, and the lost bytes."""
    copy, lost, _ = repaired(session_bytes(recorded))
    return [parse(line) for line in copy.splitlines()], lost


def moved(recorded: dict[str, Any], parent: Any) -> dict[str, Any]:
    return recorded | {"parentId": parent}


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
        pytest.param([BOM + raw(HEADER), A], [HEADER, A], BOM, id="byte order mark"),
        pytest.param([HEADER, A, raw(B) + b"\r"], [HEADER, A, raw(B) + b"\r"], b"", id="carriage return"),
        pytest.param([HEADER, A, HEADER, B], [HEADER, A, B], raw(HEADER) + b"\n", id="second header"),
        pytest.param([HEADER, A, B, A], [HEADER, A, B], raw(A) + b"\n", id="repeated entry"),
        pytest.param([HEADER, A, moved(B, "x"), C], [HEADER, A, B, C], b'"x"', id="missing parent"),
        pytest.param([HEADER, moved(A, "x"), B], [HEADER, A, B], b'"x"', id="missing parent of the first entry"),
        pytest.param([HEADER, moved(A, "c"), B, C], [HEADER, A, B, C], b'"c"', id="cycle of the first entry"),
        pytest.param([HEADER, A, moved(B, "c"), C], [HEADER, A, B, C], b'"c"', id="cycle after an entry"),
        pytest.param([HEADER, A, B, moved(C, "c")], [HEADER, A, B, C], b'"c"', id="its own parent"),
        pytest.param([HEADER, B, A], [HEADER, B, A], b"", id="a parent that comes later"),
    ],
)
def test_a_repair_keeps_every_record(original, copy, lost):
    written, taken, _ = repaired(session_bytes(original))
    assert written == session_bytes(copy)
    assert taken == lost
    assert unaccounted(session_bytes(original)) == ""


def test_a_sound_session_is_copied_unchanged_and_its_last_line_completed_or_lost_if_it_is_torn():
    original = session_bytes([HEADER, A, B, C | {"extra": {"id": "x", "n": 1.50}}])
    copy, lost, account = repaired(original)
    assert (copy, lost, account.changes, account.inserted_size) == (original, b"", [], 0)
    original = session_bytes([HEADER, A])
    assert repaired(original[:-1])[:2] == (original, b"")
    assert repaired(original + raw(B)[:-9])[:2] == (original, raw(B)[:-9])


def test_a_missing_header_is_rebuilt_with_the_fields_of_one_that_comes_late():
    copy, lost, account = repaired(session_bytes([A, B]))
    header, rest = copy.split(b"\n", 1)
    assert rest == session_bytes([A, B])
    assert parse(header) == HEADER | {"id": NEW_HEADER.id, "timestamp": NEW_HEADER.timestamp, "cwd": ""}
    assert lost == b""
    assert [(one.fate, one.at, one.length) for one in account.changes] == [(Fate.INSERTED, 0, len(header) + 1)]
    assert copied([A, HEADER, B]) == ([HEADER, A, B], raw(HEADER) + b"\n")


@pytest.mark.parametrize("found", [None, 7, ["x"]])
def test_a_header_without_an_id_gets_one(found):
    assert copied([HEADER | {"id": found}, A])[0][0] == HEADER | {"id": NEW_HEADER.id}


def test_an_id_is_unique_and_children_follow_the_entry_that_was_there():
    other, child = message("a", "b", user("other")), message("d", "a", user("four"))
    copy, lost, account = repaired(session_bytes([HEADER, A, B, other, child]))
    _, first, second, renamed, last = map(parse, copy.splitlines())
    assert (first, second) == (A, B)
    assert renamed["id"] not in {"a", "b", "d"}
    assert renamed == other | {"id": renamed["id"]}
    assert last == moved(child, renamed["id"])
    assert lost == b'"a""a"'
    assert [one.fate for one in account.changes] == [Fate.LOST, Fate.INSERTED] * 2


@pytest.mark.parametrize("found", [None, "", 7, {"x": 1}, "\ud800"])
def test_an_entry_without_a_usable_id_gets_one(found):
    records, _ = copied([HEADER, A, B | {"id": found}, moved(C, found)])
    assert isinstance(records[2]["id"], str)
    assert len(records[2]["id"]) == 8
    assert records[2]["parentId"] == "a"
    if found in (7, "\ud800"):
        assert records[3]["parentId"] == records[2]["id"]


def test_entries_without_a_place_are_attached_and_those_that_stop_an_agent_made_inert():
    lone = {"type": "message", "message": user("lone")}
    (*_, record), lost = copied([HEADER, A, lone])
    assert record == {**lone, "id": record["id"], "parentId": "a"}
    assert lost == b""
    empty = {"type": "message", "id": "b", "parentId": "a"}
    edit = {"type": "context_edit", "id": "c", "parentId": "b", "targetId": "a"}
    inert = {"type": "custom", "customType": "redline.repair"}
    expected = [HEADER, A, empty | inert, edit | inert]
    assert copied([HEADER, A, empty, edit]) == (expected, b'"message""context_edit"')


@pytest.mark.parametrize("replacement", [None, {"content": ""}, {"content": []}])
def test_an_edit_that_can_be_used_stays(replacement):
    original = session_bytes([HEADER, A, {**context_edit("a", replacement), "id": "b", "parentId": "a"}])
    assert repaired(original)[0] == original


def test_version_1_is_a_chain_without_ids():
    header, first, second = version_1(user("one"), user("one"))
    glued = session_bytes([header, raw(first) + raw(second), b"x"])
    assert repaired(glued)[:2] == (session_bytes([header, first, second]), b"x\n")


def test_entries_inside_an_incomplete_record_stay_inside():
    torn = raw(B | {"details": {"entries": [message("inner", None, user("x")), A]}})[:-4]
    expected = (session_bytes([HEADER, A, moved(C, "a")]), torn + b'"b"')
    assert repaired(session_bytes([HEADER, A, torn + raw(C)]))[:2] == expected


def test_many_orphans_and_cycles_are_attached_with_work_that_grows_with_their_number():
    def attached(count: int) -> None:
        entries = [message(f"e{number}", f"e{number}", user("x")) for number in range(count)]
        parents = [one["parentId"] for one in copied([HEADER, *entries])[0][1:]]
        assert parents == [None, *(f"e{number}" for number in range(count - 1))]

    attached(10)
    assert calls_made(lambda: attached(400)) < 5 * calls_made(lambda: attached(100))


@given(st.integers(min_value=0, max_value=2**64), st.integers(min_value=1, max_value=30))
def test_every_byte_of_a_damaged_session_is_accounted_for(seed, size):
    assert unaccounted(damaged(SESSION[: size + 1], random.Random(seed))) == ""


@given(st.lists(st.sampled_from([raw(HEADER), raw(A), raw(B)[:30], b'{"', b"}", b"\0", b"\n", b"\xff", b"5"])))
def test_every_byte_of_any_file_is_accounted_for(parts):
    assert unaccounted(b"".join(parts)) == ""


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


NO_RECORD = "the end of a line without a record"


@pytest.mark.parametrize(
    ("original", "reasons"),
    [
        ([HEADER, A, moved(B, "x")], ["its parent was missing"]),
        ([HEADER, moved(A, "b"), B], ["it was its own ancestor"]),
        (
            [HEADER, A, B | {"id": "a"}, moved(C, "a")],
            ["the id was that of an earlier entry", "its parent has another id now"],
        ),
        ([HEADER, A, B | {"id": ""}], ["it had no usable id"]),
        (
            [HEADER, A, b"", b"\0", b"x"],
            [NO_RECORD, "NUL bytes", NO_RECORD, "not a record, or not a complete one", NO_RECORD],
        ),
    ],
)
def test_each_change_has_a_reason(original, reasons):
    _, _, account = repaired(session_bytes(original))
    assert [one.reason for one in account.changes if one.fate is Fate.LOST] == reasons


@pytest.mark.parametrize("recorded_type", [["message"], {}, 1, None])
def test_a_record_whose_type_is_no_text_is_repaired_like_any_other_unknown_one(recorded_type):
    odd = A | {"type": recorded_type}
    assert copied([HEADER, odd]) == ([HEADER, odd], b"")
    assert PI.format.recorded_summary(raw(odd)) is None
    assert [one.data for one in fragments(raw(odd) + b"{", is_first=False)] == [None]


REMOVED = "skips the line, and deletes it when it converts the file to version 3"
FATAL, LOSS, NONE = Severity.FATAL, Severity.LOSS, Severity.NONE
REFUSED = "refuses to open the session"
EMPTIED = "empties the file when it opens the session, up to 0.9.3; refuses to open it from 0.9.4 on"


def examined(original: bytes) -> list[Finding]:
    return PI.format.examine(split_lines([original]), "the session").findings


def entry(recorded: dict[str, Any], entry_id: str, parent: str | None) -> dict[str, Any]:
    return {**recorded, "id": entry_id, "parentId": parent}


def test_a_sound_session_has_no_findings():
    label = entry({"type": "label", "targetId": "a", "label": "x"}, "l", "c")
    new_root = message("r", None, user("again"))
    assert examined(session_bytes([HEADER, b"", A, B, raw(C) + b"\r", label, new_root])) == []


NO_MESSAGE = {"type": "message"}
EDIT = entry({"type": "context_edit", "targetId": "a"}, "e", "c")
LABELLED = entry({"type": "label"}, "l", "b")
REMOVAL = entry(context_edit("a", None), "f", "e")
FAULTS = {
    # What pi makes of a fault, and the files with it: their lines, and the finding with its line.
    (FATAL, REFUSED): {
        "no header": ([A, B], "no_header 1"),
        "header too late": ([A, HEADER, B], "no_header 1"),
        "header with a number as id": ([{**HEADER, "id": 3}, A], "no_header_id 1"),
        "byte order mark": ([BOM + raw(HEADER), A], "byte_order_mark 1"),
        "glued header": ([raw(HEADER) + raw(A), B], "no_header 2"),
        "one glued line": ([raw(HEADER) + raw(A)], "no_header 1"),
        "number before the header": ([b"5", HEADER, A], "not_an_object 1"),
    },
    (NONE, "skips the line"): {
        "null before the header": ([b"null", HEADER, A], "not_an_object 1"),
        "zero at the end": ([HEADER, A, B, b"0"], "not_an_object 4"),
    },
    (LOSS, "skips the line"): {
        "text before the header": ([b"x", HEADER, A], "not_json 1"),
        "glued records": ([HEADER, A, raw(B) + raw(C)], "not_json 3"),
        "NUL bytes": ([HEADER, A, b"\0\0", B], "not_json 3"),
    },
    (LOSS, REMOVED): {"version 1 is written anew": ([V1_HEADER, A, b"x", B], "not_json 3")},
    (FATAL, "fails when it converts the file to version 3"): {
        "old number": ([V1_HEADER, A, b"5", B], "not_an_object 3")
    },
    (NONE, "keeps it as an entry that nothing refers to"): {
        "an array in version 1": ([V1_HEADER, A, B, b"[]"], "not_an_object 4"),
        "number between entries": ([HEADER, A, b"5", B], "not_an_object 3"),
    },
    (FATAL, "continues after this line, with nothing of the conversation"): {
        "array at the end": ([HEADER, A, B, b"[1]"], "not_an_object 4")
    },
    (LOSS, "does not send the entry, because nothing can refer to it"): {
        "entry without id": ([HEADER, A, NO_MESSAGE | {"message": user("x")}, B], "no_id 3")
    },
    (FATAL, "begins a new branch with the next message, without anything before it"): {
        "last entry without id": ([HEADER, A, NO_MESSAGE | {"message": user("x")}], "no_id 3")
    },
    (NONE, "accepts the id"): {"number as id": ([HEADER, A, entry(B, 7, "a")], "no_id 3")},
    (NONE, "ignores the line"): {"second header": ([HEADER, A, HEADER, B], "second_header 3")},
    (LOSS, "reads only the last entry with this id, and does not send this one"): {
        "repeated id": ([HEADER, A, message("a", None, user("other")), B], "duplicate_id 2")
    },
    (LOSS, "sends nothing of what came before this entry"): {
        "missing parent": ([HEADER, A, entry(B, "b", "x"), C], "missing_parent 3")
    },
    (LOSS, "cuts the branch off from what came before this entry"): {
        "missing parent on another branch": ([HEADER, entry(B, "x", "y"), A, B], "missing_parent 2")
    },
    (FATAL, "never finishes opening the session, and fills its memory"): {
        "cycle": ([HEADER, entry(A, "a", "c"), B, C], "cycle 2")
    },
    (LOSS, "does not show these entries, because the beginning of the session does not lead to them"): {
        "cycle on another branch": ([HEADER, entry(A, "x", "x"), A, B], "cycle 2")
    },
    (FATAL, "fails when it opens the session"): {
        "no message": ([HEADER, A, entry(NO_MESSAGE, "b", "a")], "no_message 3"),
        "edit without replacement": ([HEADER, A, B, C, EDIT], "no_replacement 5"),
    },
    (FATAL, "fails when it records the next message"): {
        "no message beside users": ([HEADER, entry(NO_MESSAGE | {"message": None}, "x", None), A], "no_message 2")
    },
    (NONE, "does not send the entry"): {
        "no message beside an assistant's branch": ([HEADER, A, B, entry(NO_MESSAGE, "x", "b"), C], "no_message 4"),
        "text instead of a message": ([HEADER, A, entry(NO_MESSAGE | {"message": "hi"}, "b", "a")], "no_message 3"),
    },
    (LOSS, "sends the edited message without content"): {
        "replacement without content": ([HEADER, A, B, C, {**EDIT, "replacement": "x"}], "no_replacement 5")
    },
    (FATAL, "fails at the next prompt"): {
        "a number as content": ([HEADER, A, B, C, {**EDIT, "replacement": {"content": 5}}], "no_replacement 5")
    },
    (LOSS, "reads each invalid byte sequence as \N{REPLACEMENT CHARACTER}"): {
        "invalid UTF-8": ([HEADER, A, raw(B).replace(b"two", b"t\xff")], "not_utf8 3")
    },
    (NONE, "does not apply the edit"): {
        "edit of an unknown entry": ([HEADER, A, B, C, {**EDIT, "targetId": "x"}], "no_replacement 5"),
        "edit of a label": ([HEADER, A, B, LABELLED, C, {**EDIT, "targetId": "l"}], "no_replacement 6"),
        "edit on another branch": ([HEADER, A, B, entry(EDIT, "e", "b"), C], "no_replacement 4"),
        "edit that another one follows": ([HEADER, A, B, C, EDIT, REMOVAL], "no_replacement 5"),
        "edit before a compaction": (
            [HEADER, A, B, C, EDIT, entry(summary_compaction("s", None), "s", "e"), message("d", "s", user("x"))],
            "no_replacement 5",
        ),
    },
}


@pytest.mark.parametrize(
    ("recorded", "finding", "consequence"),
    [
        pytest.param(*fault, consequence, id=name)
        for consequence, faults in FAULTS.items()
        for name, fault in faults.items()
    ],
)
def test_a_fault_is_found_with_its_line_and_consequence(recorded, finding, consequence):
    original = session_bytes(recorded)
    (found,) = [one for one in examined(original) if f"{one.kind} {one.number}" == finding]
    assert found.offset == sum(len(line) + 1 for line in original.split(b"\n")[: found.number - 1])
    in_pi = found.consequences[0]
    assert (in_pi.agent, in_pi.severity, in_pi.text) == ("pi 0.87 and newer", *consequence)


AGENTS = [generation.label for agent in (PI, ATOMIC) for generation in agent.format.generations]


def consequences_of(original: bytes) -> list[tuple[Severity, str]]:
    """What each agent makes of the one fault."""
    (finding,) = examined(original)
    assert [one.agent for one in finding.consequences] == AGENTS
    return [(one.severity, one.text) for one in finding.consequences]


def test_atomic_before_0_9_4_empties_a_session_without_header_and_only_pi_completes_a_last_line():
    assert consequences_of(session_bytes([A, B])) == [(FATAL, REFUSED)] * 4 + [(FATAL, EMPTIED)]
    completed = "the line, and completes it with a newline"
    torn = (LOSS, "skips the line, and appends its next record to it, which is lost as well")
    whole = (LOSS, "reads the line, and appends its next record to it, so that both are lost")
    original = session_bytes([HEADER, A, B])
    assert consequences_of(original[:-6]) == [(LOSS, f"skips {completed}")] * 2 + [torn] * 3
    assert consequences_of(original[:-1]) == [(NONE, f"reads {completed}")] * 2 + [whole] * 3
    (finding,) = examined(original[:-1])
    assert finding.severity is LOSS, "the worst of its consequences"


def test_a_conversion_completes_an_unterminated_line_and_only_pi_since_0_87_applies_edits():
    assert {words for _, words in consequences_of(session_bytes([V1_HEADER, A])[:-1])} == {"reads the line"}
    assert {words for _, words in consequences_of(session_bytes([V1_HEADER, A]) + b'{"')} == {REMOVED}
    assert consequences_of(session_bytes([HEADER, A, B, C, EDIT]))[1:] == [(NONE, "ignores edits")] * 4


def test_records_that_can_be_recovered_are_counted_and_only_invalid_text_stays():
    (glued, _) = examined(session_bytes([HEADER, raw(A)[:30] + raw(B) + raw(C), message("d", "c", user("x"))]))
    assert glued.detail.endswith("; 2 records on it can be recovered")
    findings = examined(session_bytes([HEADER, raw(A).replace(b"one", b"\xff"), b"5"]))
    expected = [("not_utf8", False), ("not_an_object", True)]
    assert [(one.kind, one.is_repairable) for one in findings] == expected
    with pytest.raises(BadInput, match="not a session"):
        examined(b"\0" * 100)


def test_findings_beyond_a_limit_are_counted(monkeypatch):
    monkeypatch.setattr("sessions_app.agents.pi.pure.diagnosis.FINDINGS_KEPT", 2)
    examination = PI.format.examine(split_lines([session_bytes([HEADER, *[b"x"] * 5, A, A, A, A])]), "the session")
    assert len(examination.findings) == 4
    assert examination.more == 3 + 1


ENTRY = b'{"type":"message","id":"a","message":{"content":[{"type":"text","text":"x {\\"type\\":\\"label\\"}"}]}}'
LABEL = b'{"type":"label","id":"b","parentId":"a","targetId":"a"}'


def parts(raw: bytes, *, is_first: bool = False) -> list[tuple[bytes, bool]]:
    """The bytes of each fragment, and whether it is a record."""
    found = fragments(raw, is_first=is_first)
    assert b"".join(raw[one.start : one.end] for one in found) == raw
    return [(raw[one.start : one.end], one.data is not None) for one in found]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b" \t", [(b" \t", False)]),
        (ENTRY, [(ENTRY, True)]),
        (b" " + ENTRY + b"\r", [(b" " + ENTRY + b"\r", True)]),
        (b'{"any":"object"}', [(b'{"any":"object"}', True)]),
        (b"[1]", [(b"[1]", False)]),
        (ENTRY + LABEL, [(ENTRY, True), (LABEL, True)]),
        (raw(HEADER) + ENTRY, [(raw(HEADER), True), (ENTRY, True)]),
        (ENTRY + b" \r" + LABEL + b"\r", [(ENTRY + b" \r", True), (LABEL + b"\r", True)]),
        (ENTRY + b"\0\0" + LABEL + b"\0", [(ENTRY, True), (b"\0\0", False), (LABEL, True), (b"\0", False)]),
        (ENTRY + b"garbage", [(ENTRY, True), (b"garbage", False)]),
        (ENTRY[:-9] + LABEL, [(ENTRY[:-9], False), (LABEL, True)]),
        (ENTRY[:20] + LABEL + b"}", [(ENTRY[:20] + LABEL + b"}", False)]),
        (b'{"type":"new","id":"n"}' + LABEL, [(b'{"type":"new","id":"n"}', False), (LABEL, True)]),
        (BOM + ENTRY, [(BOM, False), (ENTRY, True)]),
        (b'{"a":NaN}' + LABEL, [(b'{"a":NaN}', False), (LABEL, True)]),
        (b"\xff" + LABEL, [(b"\xff", False), (LABEL, True)]),
    ],
)
def test_a_line_is_divided_into_records_and_other_bytes(raw, expected):
    assert parts(raw) == expected


@pytest.mark.parametrize(
    "torn",
    [ENTRY[:-3], *(b'{"type":"custom","id":"c","data":[' + LABEL + then for then in (b',"x', b"}", b"]", b' ,"'))],
)
def test_what_looks_like_a_record_inside_an_incomplete_one_is_not_one(torn):
    assert parts(torn) == [(torn, False)]


def test_a_record_keeps_invalid_utf_8_and_only_the_first_line_may_begin_with_a_byte_order_mark():
    raw = ENTRY.replace(b"x ", b"\xff\xe2\x80 ") + LABEL
    assert [is_record for _, is_record in parts(raw)] == [True, True]
    assert parts(b'{"type":"message","a":' * 3_000 + LABEL)[-1] == (LABEL, True)
    other = b'{"type":"new","id":"n"}'
    assert parts(BOM + other, is_first=True) == [(BOM, False), (other, True)]
    assert parts(BOM + other) == [(BOM + other, False)]


def test_a_line_is_searched_for_so_many_records(monkeypatch):
    monkeypatch.setattr("sessions_app.agents.pi.pure.diagnosis.ATTEMPTS", 2)
    assert parts(ENTRY + LABEL + ENTRY) == [(ENTRY, True), (LABEL, True), (ENTRY, False)]
