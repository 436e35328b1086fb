"""What the draft of a summary still mentions of what it would replace."""

from compaction_app.core.draft_check import DraftCheck, draft_texts, drafted_branch_summary, drafted_compaction
from compaction_app.core.mentions import Subject
from compaction_app.core.summary_loss import loss_of, replacement_by
from compaction_app.core.summary_ranges import branch_left, compaction_range, messages_of
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.reader import PiReader
from sessions_app.sessionlog.tree import SessionTree
from tests.factories import (
    assistant,
    branch_and_texts,
    call,
    chain,
    message,
    result,
    session_bytes,
    session_log,
    summary_compaction,
    text,
    user,
)

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


def test_a_draft_is_judged_again_whenever_it_is_edited():
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


def test_what_stays_beside_a_draft_is_not_lost():
    judged = check().judge("")
    assert words(judged.in_context.names) == ["readFile"]
    assert words(judged.lost.names) == ["parseLine"]


def test_a_draft_is_compared_as_the_summary_that_it_becomes():
    recorded = (*TALK, summary_compaction("Earlier: readFile.", "e2"), *TALK)
    draft = "readFile is mended in src/a.py, in some words."
    branch, texts = branch_and_texts(session_bytes(chain(*recorded)))
    context = PiReader().rebuild(branch)
    found = compaction_range(branch, 100, context)
    assert found is not None
    drafted = drafted_compaction(branch, context, found, draft)
    loss = loss_of(drafted, branch, {**texts, **draft_texts(draft)}, PI.generations[0].rules)

    lines = chain(*recorded, summary_compaction(draft, found.first_kept_id))
    tree = SessionTree(session_log(lines).entries)
    written, after = branch_and_texts(session_bytes(lines))
    replacement = replacement_by(tree, written, tree.leaf.id, PiReader())
    assert replacement is not None
    wanted = loss_of(replacement, branch, after, PI.generations[0].rules)
    assert (drafted.replaced, drafted.kept) == (replacement.replaced, replacement.kept)
    assert drafted.tokens_before == replacement.tokens_before
    assert drafted.tokens_after == replacement.tokens_after
    assert drafted.entries == replacement.entries
    assert (loss.still, loss.in_context, loss.lost) == (wanted.still, wanted.in_context, wanted.lost)
    assert loss.plan == wanted.plan is not None
    judged = DraftCheck.of(drafted, texts).judge(draft)
    assert (judged.still, judged.in_context, judged.lost) == (loss.still, loss.in_context, loss.lost)


def test_a_draft_of_a_left_branch_is_compared_with_what_was_left():
    lines = [*chain(*TALK), message("other", "e1", user("Another way."))]
    entries = session_log(lines).entries
    tree = SessionTree(entries)
    before, after = (PiReader().rebuild(tree.branch(leaf)) for leaf in ("e9", "other"))
    left = branch_left(tree, "e9", "other")
    drafted = drafted_branch_summary(left, before, after, "other", "parseLine")
    assert [one.entry.id for one in drafted.replaced] == [f"e{number}" for number in range(2, 10)]
    assert [one.entry.id for one in drafted.kept] == ["e1", "other"]
    assert (drafted.is_of_branch, drafted.entries, drafted.before_id) == (True, 8, "e9")
    _, texts = branch_and_texts(session_bytes(lines))
    judged = DraftCheck.of(drafted, texts).judge("parseLine")
    assert words(judged.still.names) == ["parseLine"]
    assert words(judged.lost.names) == ["readFile"]
