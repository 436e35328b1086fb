"""What each agent makes of damage, as measured with pi 0.87.1, Atomic 0.8.30 and Atomic after 0.9.15."""

from typing import Any

import pytest

from sessions_app.agents.pi import diagnosis
from sessions_app.agents.pi.agent import PI
from sessions_app.sessionlog.diagnosis import Finding, Severity
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.lines import split_lines
from tests.factories import HEADER, assistant, context_edit, message, session_bytes, summary_compaction, text, user

A, C = message("a", None, user("one")), message("c", "b", user("three"))
B = message("b", "a", assistant(text("two")))
OLD = {key: value for key, value in HEADER.items() if key != "version"}

FATAL, LOSS, NONE = Severity.FATAL, Severity.LOSS, Severity.NONE
REFUSED = "refuses to open the session"
EMPTIED = "empties the file when it opens the session, up to 0.9.3; refuses to open it from 0.9.4 on"
NOT_OPENED = "fails when it opens the session"


def examined(original: bytes) -> list[Finding]:
    return PI.examine(split_lines([original]), "the session").findings


def entry(recorded: dict[str, Any], entry_id: str, parent: str | None) -> dict[str, Any]:
    return {**recorded, "id": entry_id, "parentId": parent}


def test_a_sound_session_has_no_findings():
    label = entry({"type": "label", "targetId": "a", "label": "x"}, "l", "c")
    new_root = message("r", None, user("again"))
    assert examined(session_bytes([HEADER, b"", A, B, raw_with_return(C), label, new_root])) == []


def raw_with_return(recorded: dict[str, Any]) -> bytes:
    return session_bytes([recorded])[:-1] + b"\r"


def raw(recorded: dict[str, Any]) -> bytes:
    return session_bytes([recorded])[:-1]


EDIT = entry({"type": "context_edit", "targetId": "a"}, "e", "c")

NOT_APPLIED = {
    "edit of an unknown entry": (5, [A, B, C, {**EDIT, "targetId": "x"}]),
    "edit of a label": (6, [A, B, entry({"type": "label"}, "l", "b"), C, {**EDIT, "targetId": "l"}]),
    "edit on another branch": (4, [A, B, entry(EDIT, "e", "b"), C]),
    "edit that another one follows": (5, [A, B, C, EDIT, entry(context_edit("a", None), "f", "e")]),
    "edit before a compaction": (
        5,
        [A, B, C, EDIT, entry(summary_compaction("s", None), "s", "e"), message("d", "s", user("x"))],
    ),
}
CASES: dict[str, tuple[list[Any], tuple[str, int, Severity, str]]] = {
    # The file, the finding with its line, and what pi makes of it.
    "no header": ([A, B], ("no_header", 1, FATAL, REFUSED)),
    "header too late": ([A, HEADER, B], ("no_header", 1, FATAL, REFUSED)),
    "header with a number as id": ([{**HEADER, "id": 3}, A], ("no_header_id", 1, FATAL, REFUSED)),
    "byte order mark": ([b"\xef\xbb\xbf" + raw(HEADER), A], ("byte_order_mark", 1, FATAL, REFUSED)),
    "glued header": ([raw(HEADER) + raw(A), B], ("no_header", 2, FATAL, REFUSED)),
    "one glued line": ([raw(HEADER) + raw(A)], ("no_header", 1, FATAL, REFUSED)),
    "number before the header": ([b"5", HEADER, A], ("not_an_object", 1, FATAL, REFUSED)),
    "null before the header": ([b"null", HEADER, A], ("not_an_object", 1, NONE, "skips the line")),
    "text before the header": ([b"x", HEADER, A], ("not_json", 1, LOSS, "skips the line")),
    "glued records": ([HEADER, A, raw(B) + raw(C)], ("not_json", 3, LOSS, "skips the line")),
    "NUL bytes": ([HEADER, A, b"\0\0", B], ("not_json", 3, LOSS, "skips the line")),
    "version 1 is written anew": (
        [OLD, A, b"x", B],
        ("not_json", 3, LOSS, "skips the line, and removes it when it converts the file to version 3"),
    ),
    "old number": ([OLD, A, b"5", B], ("not_an_object", 3, FATAL, "fails when it converts the file to version 3")),
    "an array in version 1": (
        [OLD, A, B, b"[]"],
        ("not_an_object", 4, NONE, "keeps it as an entry that nothing refers to"),
    ),
    "number between entries": (
        [HEADER, A, b"5", B],
        ("not_an_object", 3, NONE, "keeps it as an entry that nothing refers to"),
    ),
    "array at the end": (
        [HEADER, A, B, b"[1]"],
        ("not_an_object", 4, FATAL, "continues after this line, with nothing of the conversation"),
    ),
    "zero at the end": ([HEADER, A, B, b"0"], ("not_an_object", 4, NONE, "skips the line")),
    "entry without id": (
        [HEADER, A, {"type": "message", "message": user("x")}, B],
        ("no_id", 3, LOSS, "does not send the entry, because nothing can refer to it"),
    ),
    "last entry without id": (
        [HEADER, A, {"type": "message", "message": user("x")}],
        ("no_id", 3, FATAL, "begins a new branch with the next message, without anything before it"),
    ),
    "number as id": ([HEADER, A, entry(B, 7, "a")], ("no_id", 3, NONE, "accepts the id")),
    "second header": ([HEADER, A, HEADER, B], ("second_header", 3, NONE, "ignores the line")),
    "repeated id": (
        [HEADER, A, message("a", None, user("other")), B],
        ("duplicate_id", 2, LOSS, "reads only the last entry with this id, and does not send this one"),
    ),
    "missing parent": (
        [HEADER, A, entry(B, "b", "x"), C],
        ("missing_parent", 3, LOSS, "sends nothing of what came before this entry"),
    ),
    "missing parent on another branch": (
        [HEADER, entry(B, "x", "y"), A, B],
        ("missing_parent", 2, LOSS, "cuts the branch off from what came before this entry"),
    ),
    "cycle": (
        [HEADER, entry(A, "a", "c"), B, C],
        ("cycle", 2, FATAL, "never finishes opening the session, and fills its memory"),
    ),
    "cycle on another branch": (
        [HEADER, entry(A, "x", "x"), A, B],
        ("cycle", 2, LOSS, "does not show these entries, because no root leads to them"),
    ),
    "no message": ([HEADER, A, entry({"type": "message"}, "b", "a")], ("no_message", 3, FATAL, NOT_OPENED)),
    "no message on another branch before an assistant": (
        [HEADER, entry({"type": "message", "message": None}, "x", None), A],
        ("no_message", 2, FATAL, "fails when it records the next message"),
    ),
    "no message on another branch after an assistant": (
        [HEADER, A, B, entry({"type": "message"}, "x", "b"), C],
        ("no_message", 4, NONE, "does not send the entry"),
    ),
    "text instead of a message": (
        [HEADER, A, entry({"type": "message", "message": "hi"}, "b", "a")],
        ("no_message", 3, NONE, "does not send the entry"),
    ),
    "edit without replacement": ([HEADER, A, B, C, EDIT], ("no_replacement", 5, FATAL, NOT_OPENED)),
    "replacement without content": (
        [HEADER, A, B, C, {**EDIT, "replacement": "x"}],
        ("no_replacement", 5, LOSS, "sends the edited message without content"),
    ),
    "a number as content": (
        [HEADER, A, B, C, {**EDIT, "replacement": {"content": 5}}],
        ("no_replacement", 5, FATAL, "fails at the next prompt"),
    ),
    "invalid UTF-8": (
        [HEADER, A, raw(B).replace(b"two", b"t\xff")],
        ("not_utf8", 3, LOSS, "reads each invalid byte sequence as \N{REPLACEMENT CHARACTER}"),
    ),
    **{
        name: ([HEADER, *lines], ("no_replacement", number, NONE, "does not apply the edit"))
        for name, (number, lines) in NOT_APPLIED.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_with_its_line_and_consequence(name):
    recorded, (kind, number, severity, words) = CASES[name]
    original = session_bytes(recorded)
    found = [finding for finding in examined(original) if (finding.kind, finding.number) == (kind, number)]
    assert len(found) == 1
    lines = original.split(b"\n")
    assert found[0].offset == sum(len(line) + 1 for line in lines[: number - 1])
    in_pi = found[0].consequences[0]
    assert (in_pi.agent, in_pi.severity, in_pi.text) == ("pi 0.87 and newer", severity, words)


def consequences_of(original: bytes) -> list[tuple[str, Severity, str]]:
    (finding,) = examined(original)
    return [tuple(one) for one in finding.consequences]  # type: ignore[misc]


def test_atomic_before_0_9_4_empties_a_session_without_a_header():
    assert consequences_of(session_bytes([A, B])) == [
        ("pi 0.87 and newer", FATAL, REFUSED),
        ("Atomic 0.8.26 to 0.9.8", FATAL, EMPTIED),
        ("Atomic 0.9.9 and newer", FATAL, REFUSED),
    ]


def test_only_pi_completes_an_unterminated_line():
    torn = "skips the line, and appends its next record to it, which is lost as well"
    whole = "reads the line, and appends its next record to it, so that both are lost"
    assert consequences_of(session_bytes([HEADER, A]) + raw(B)[:-5]) == [
        ("pi 0.87 and newer", LOSS, "skips the line, and completes it with a newline"),
        ("Atomic 0.8.26 to 0.9.8", LOSS, torn),
        ("Atomic 0.9.9 and newer", LOSS, torn),
    ]
    assert consequences_of(session_bytes([HEADER, A, B])[:-1]) == [
        ("pi 0.87 and newer", NONE, "reads the line, and completes it with a newline"),
        ("Atomic 0.8.26 to 0.9.8", LOSS, whole),
        ("Atomic 0.9.9 and newer", LOSS, whole),
    ]


def test_a_conversion_completes_an_unterminated_line():
    assert {one[2] for one in consequences_of(session_bytes([OLD, A])[:-1])} == {"reads the line"}
    removed = "skips the line, and removes it when it converts the file to version 3"
    assert {one[2] for one in consequences_of(session_bytes([OLD, A]) + b'{"')} == {removed}


def test_atomic_ignores_edits():
    consequences = consequences_of(session_bytes([HEADER, A, B, C, EDIT]))
    assert [one[1:] for one in consequences[1:]] == [(NONE, "ignores edits")] * 2


def test_the_records_that_can_be_recovered_are_counted():
    (glued, _) = examined(session_bytes([HEADER, raw(A)[:30] + raw(B) + raw(C), message("d", "c", user("x"))]))
    assert glued.detail.endswith("; 2 records on it can be recovered")


def test_only_invalid_text_stays_in_a_repaired_copy():
    findings = examined(session_bytes([HEADER, raw(A).replace(b"one", b"\xff"), b"5"]))
    expected = [("not_utf8", False), ("not_an_object", True)]
    assert [(one.kind, one.is_repairable) for one in findings] == expected


def test_the_worst_consequence_is_the_severity():
    (finding,) = examined(session_bytes([HEADER, A])[:-1])
    assert finding.severity is Severity.LOSS


def test_a_file_without_any_record_is_not_a_session():
    with pytest.raises(BadInput, match="not a session"):
        examined(b"\0" * 100)


def test_findings_beyond_a_limit_are_counted(monkeypatch):
    monkeypatch.setattr(diagnosis, "FINDINGS_KEPT", 2)
    examination = PI.examine(split_lines([session_bytes([HEADER, *[b"x"] * 5, A, A, A, A])]), "the session")
    assert len(examination.findings) == 4
    assert examination.more == 3 + 1
