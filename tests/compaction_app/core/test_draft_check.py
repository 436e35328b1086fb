"""What the draft of a summary still mentions of what it would replace."""

from __future__ import annotations

from compaction_app.core.draft_check import DraftCheck
from compaction_app.core.mentions import Subject
from compaction_app.core.summary_ranges import compaction_range, messages_of
from tests.factories import assistant, branch_and_texts, call, chain, result, session_bytes, text, user

ERROR = "src/a.py:3: error: readFile is not defined"
TALK = (
    user("Mend the parser."),
    assistant(text("readFile is broken."), call("c1", path="src/a.py")),
    result("c1", ERROR, error=True),
    *(assistant(text(f"readFile and parseLine, try {number}")) for number in range(5)),
    user("Go on with readFile " + "x" * 400),
)


def check() -> DraftCheck:
    branch, texts = branch_and_texts(session_bytes(chain(*TALK)))
    found = compaction_range(branch, 100)
    assert found is not None
    assert found.first_kept_id == "e9"
    return DraftCheck(messages_of(found.summarised), messages_of(found.kept), texts, "/home/dev/project")


def words(subjects: tuple[Subject, ...]) -> list[str]:
    return [subject.words for subject in subjects]


def test_a_draft_is_judged_again_whenever_it_is_edited() -> None:
    checked = check()
    nothing = checked.judge("")
    assert words(nothing.subjects.paths) == ["/home/dev/project/src/a.py"]
    assert words(nothing.subjects.names) == ["readFile", "parseLine"]
    assert words(nothing.subjects.errors) == ["error: readFile is not defined"]
    assert words(nothing.subjects.messages) == ["Mend the parser."]
    assert not any((nothing.still.paths, nothing.still.names, nothing.still.errors, nothing.still.messages))
    edited = checked.judge(
        "parseLine was tried.\n\nerror: readFile is\nnot defined\n\n<read-files>\na.py\n</read-files>"
    )
    assert words(edited.still.paths) == ["/home/dev/project/src/a.py"]
    assert words(edited.still.names) == ["readFile", "parseLine"]
    assert words(edited.still.errors) == ["error: readFile is not defined"]
    assert words(edited.lost.messages) == ["Mend the parser."]


def test_what_stays_beside_a_draft_is_not_lost() -> None:
    judged = check().judge("")
    assert words(judged.in_context.names) == ["readFile"]
    assert words(judged.lost.names) == ["parseLine"]
