"""What a summary replaced, or its draft would replace, and what of that is still mentioned: for each agent."""

from pathlib import Path
from typing import Any

import pytest

from compaction_app.core.mentions import MEASURES, Subjects
from compaction_app.core.summary_loss import (
    DraftCheck,
    SummaryLoss,
    draft_texts,
    drafted_branch_summary,
    drafted_compaction,
    is_summary,
    loss_of,
    replacement_by,
    summaries_on,
)
from compaction_app.core.summary_ranges import branch_left, compaction_range, messages_of
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.pure.format import PiReader
from sessions_app.agents.registry import READERS
from sessions_app.index.session_reading import reading_of
from sessions_app.sessionlog.entries import ENCRYPTED, Role
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import ClaudeSession, call as claude_call, text as claude_text
from tests.factories import (
    assistant,
    branch_and_texts,
    branch_of,
    branch_summary,
    call,
    chain,
    context_edit,
    message,
    result,
    session_bytes,
    session_log,
    summary_compaction,
    text,
    user,
    verbatim_compaction,
)
from tests.opencode_stores import OpenCodeStore, tool
from tests.paths import corpus
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import Rollout

PATH = "/home/dev/project/src/a.py"
ERROR = "src/a.py:3: error: readFile is not defined"
TALK = (
    user("Mend the parser."),
    assistant(text("readFile is broken, parseLine too."), call("c1", path=PATH)),
    result("c1", ERROR, error=True),
    *(assistant(text(f"readFile and parseLine, try {number}")) for number in range(4)),
    user("Go on with the lexer."),
    assistant(text("parseLine is mended.")),
)
"""e1 to e9: two turns, one path, one error, and two names."""


DRAFTED = (
    user("Mend the parser."),
    assistant(text("readFile is broken."), call("c1", path="src/a.py")),
    result("c1", ERROR, error=True),
    *(assistant(text(f"readFile and parseLine, try {number}")) for number in range(5)),
    user("Go on with readFile " + "x" * 400),
)
"""Of this a draft replaces all but the last message."""


def save(directory: Path, content: bytes) -> Path:
    path = directory / "a.jsonl"
    path.write_bytes(content)
    return path


def of_pi(directory: Path, *recorded: Any, reader: str = "pi") -> list[SummaryLoss]:
    """What each summary lost of a session with these messages."""
    return losses(save(directory, session_bytes(chain(*recorded))), reader)


def losses(path: Path, reader: str = "") -> list[SummaryLoss]:
    """What each summary of a session lost."""
    loaded = load_session(path)
    reading = reading_of(loaded.path, loaded.log.entries, loaded.log.state, reader)
    branch = loaded.tree.branch(loaded.leaf_id)
    found = []
    for summary in summaries_on(branch, reading.reader):
        replacement = replacement_by(loaded.tree, branch, summary.id, reading.reader)
        if replacement is None:
            continue
        before = loaded.tree.branch(replacement.before_id)
        texts = loaded.texts(replacement.sources)
        found.append(loss_of(replacement, before, texts, reading.rules(), project=loaded.log.cwd))
    return found


def words(subjects: Subjects) -> list[list[str]]:
    return [[subject.words for subject in getattr(subjects, measure)] for measure in MEASURES]


def counts(subjects: Subjects) -> list[int]:
    return [len(found) for found in words(subjects)]


def replaced_ids(loss: SummaryLoss) -> list[str]:
    return [one.entry.id for one in loss.replacement.replaced]


def test_what_a_summary_mentions_and_what_only_stays_beside_it(tmp_path):
    (loss,) = of_pi(tmp_path, *TALK, summary_compaction("readFile in a.py is mended.", "e8"), user("on"))
    only_there = [["error: readFile is not defined"], ["Mend the parser."]]
    assert words(loss.subjects) == [[PATH], ["readFile", "parseLine"], *only_there]
    assert words(loss.still) == [[PATH], ["readFile"], [], []]
    assert words(loss.in_context) == [[PATH], ["readFile", "parseLine"], [], []]
    assert words(loss.lost) == [[], [], *only_there]
    assert loss.text == "readFile in a.py is mended."


def test_what_was_replaced_and_what_stayed(tmp_path):
    (loss,) = of_pi(tmp_path, *TALK, summary_compaction("so far", "e8"), user("on"))
    found = loss.replacement
    assert replaced_ids(loss) == ["e1", "e2", "e3", "e4", "e5", "e6", "e7"]
    assert [one.entry.id for one in found.kept] == ["e8", "e9"]
    assert (found.before_id, found.entries, found.is_of_branch) == ("e9", 7, False)
    assert found.tokens_before == found.tokens_replaced + sum(one.tokens for one in found.kept)
    assert found.tokens_after == found.summary.tokens + sum(one.tokens for one in found.kept)


def test_entries_between_the_replaced_messages_count_too(tmp_path):
    note = {"type": "thinking_level_change", "thinkingLevel": "high"}
    talk = (note, user("go"), note, assistant(text("done")), note, user("on"))
    (loss,) = of_pi(tmp_path, *talk, summary_compaction("so far", "e6"))
    assert (len(loss.replacement.replaced), loss.replacement.entries) == (2, 3)


def test_the_turns_say_what_was_asked_and_which_files_were_touched(tmp_path):
    edits = [call(call_id, "edit", path="src/a.py") for call_id in ("c2", "c3")]
    talk = (*TALK, assistant(*edits, call("c4", path="b")))
    (loss,) = of_pi(tmp_path, *talk, summary_compaction("so far", None), user("on"))
    first, second = loss.turns
    assert (first.number, first.entry_id, first.words, first.messages) == (1, "e1", "Mend the parser.", 7)
    assert first.files == (("read", PATH, 1),)
    assert (second.number, second.entry_id, second.messages) == (2, "e8", 3)
    assert second.words == "Go on with the lexer."
    assert second.files == (("edit", PATH, 2), ("read", "/home/dev/project/b", 1))
    assert first.tokens + second.tokens == loss.replacement.tokens_replaced
    assert loss.turn_numbers["e9"] == 2


def test_turns_are_numbered_in_order_from_0_and_without_images(tmp_path):
    talk = (assistant(text("hi")), user("x" * 200), assistant(text("done")), summary_compaction("s", None))
    (loss,) = of_pi(tmp_path, *talk)
    assert [(turn.number, turn.words) for turn in loss.turns] == [(0, ""), (1, f"{'x' * 160}…")]
    talk = (*TALK, summary_compaction("alphaOne", "e6"), user("on"), summary_compaction("betaTwo", None))
    _, second = of_pi(tmp_path, *talk)
    assert [(turn.number, turn.messages) for turn in second.turns] == [(1, 2), (2, 3), (3, 1)]
    asked = user('<image name="a.png">[image]</image>\nMend it.')
    (loss,) = of_pi(tmp_path, asked, assistant(text("done")), summary_compaction("s", None))
    assert [turn.words for turn in loss.turns] == ["Mend it."]


def test_a_second_summary_replaces_the_first_one_too(tmp_path):
    talk = (*TALK, summary_compaction("alphaOne", "e8"), user("on"), summary_compaction("betaTwo", "e11"))
    first, second = of_pi(tmp_path, *talk)
    assert (first.text, second.text) == ("alphaOne", "betaTwo")
    assert replaced_ids(second) == ["e10", "e8", "e9"]
    assert [turn.number for turn in second.turns] == [2]


def test_an_edited_message_is_replaced_as_it_was_edited(tmp_path):
    edited = context_edit("e4", {"content": [text("nothing")]})
    (loss,) = of_pi(tmp_path, *TALK, edited, summary_compaction("so far", None))
    assert {name.words: name.uses for name in loss.subjects.names} == {"parseLine": 5, "readFile": 5}


def test_an_entry_that_replaced_nothing_or_that_the_reader_ignores_has_no_page(tmp_path):
    recorded = (*TALK, summary_compaction("so far", "e1"))
    assert of_pi(tmp_path, *recorded) == []
    tree = SessionTree(session_log(chain(*recorded)).entries)
    for entry_id in ("e10", "e1", "nowhere"):
        assert replacement_by(tree, tree.branch("e10"), entry_id, READERS["pi"]) is None
    tree = SessionTree(session_log(chain(*TALK, summary_compaction("so far", "e8"))).entries)
    assert summaries_on(tree.branch("e10"), READERS["atomic-0.8"]) == []
    assert replacement_by(tree, tree.branch("e10"), "e10", READERS["atomic-0.8"]) is None


def test_which_entries_are_summaries():
    recorded = chain(user("go"), summary_compaction("so far", "e1"), branch_summary("left"), branch_summary(""))
    assert [is_summary(entry) for entry in branch_of(recorded)] == [False, True, True, False]


def long_talk() -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    for turn in range(12):
        said = assistant(text(f"nameOf{turn} " * 5), call(f"c{turn}", path=f"/p/f{turn}.py"))
        found += [user(f"Do step {turn}."), said, result(f"c{turn}", "x" * 2_000)]
    return tuple(found)


def test_a_plan_leaves_no_more_than_the_summary_did_and_keeps_what_users_said_and_what_cannot_be_deleted(tmp_path):
    (loss,) = of_pi(tmp_path, *long_talk(), summary_compaction("word " * 900, "e34"))
    assert 0.6 < loss.plan.tokens_after / loss.replacement.tokens_after <= 1.01
    assert len(loss.plan.still.messages) == len(loss.subjects.messages) == 11
    assert counts(loss.plan.still) <= counts(loss.plan.in_context)
    assert len(loss.still.messages) == 0
    rules = {"role": "system", "content": "x" * 3_000}
    (loss,) = of_pi(tmp_path, rules, *long_talk(), summary_compaction("word " * 900, "e35"))
    assert 0.6 < loss.plan.tokens_after / loss.replacement.tokens_after <= 1.01


def test_a_plan_mentions_what_it_leaves_of_the_replaced_messages_and_elsewhere(tmp_path):
    talk = (*long_talk(), assistant(text("As in f0.py.")), summary_compaction("word " * 900, "e34"))
    (loss,) = of_pi(tmp_path, *talk)
    still, in_context = set(words(loss.plan.still)[0]), set(words(loss.plan.in_context)[0])
    assert 0 < len(still) < len(loss.subjects.paths)
    assert in_context - still == {"/p/f0.py"}


def test_a_plan_cannot_leave_less_than_what_always_stays_and_one_without_deletions_mentions_everything(tmp_path):
    asked = [user(f"{number} " * 400) for number in range(4)]
    (loss,) = of_pi(tmp_path, *asked, assistant(text("y" * 400)), summary_compaction("s", None))
    assert loss.plan.tokens_after > 10 * loss.replacement.tokens_after
    assert counts(loss.plan.still) == counts(loss.subjects)
    (loss,) = of_pi(tmp_path, *TALK, summary_compaction("z" * 4_000, "e8"))
    assert loss.plan.still == loss.subjects
    assert loss.plan.tokens_after == loss.replacement.tokens_before
    (loss,) = of_pi(tmp_path, user("go"), summary_compaction("so far", None))
    assert loss.plan is None


def test_a_summary_of_claude_codes(tmp_path):
    session = ClaudeSession("Mend the parser.")
    session.reply("m1", *(claude_text(f"readFile {number}") for number in range(5)), claude_call("t1"))
    session.result("t1", [{"type": "text", "text": ERROR}], is_error=True)
    session.reply("m2", claude_text("It is done."))
    session.boundary()
    summary = session.user("The summary says: Mend the parser.", isCompactSummary=True)
    session.user("Go on.")
    (loss,) = losses(save(tmp_path, session.content))
    assert loss.replacement.summary.entry.id == summary
    assert words(loss.subjects)[1:] == [["readFile"], [], ["Mend the parser."]]
    assert counts(loss.still) == [0, 0, 0, 1]
    assert loss.replacement.kept == ()


def test_what_claude_code_keeps_beside_its_summary(tmp_path):
    session = ClaudeSession("Mend the parser.")
    session.reply("m1", *(claude_text(f"readFile {number}") for number in range(5)))
    kept = [session.user("Now readFile."), *session.reply("m2", claude_text("It is done."))]
    session.boundary(*kept)
    session.user("so far", isCompactSummary=True)
    (loss,) = losses(save(tmp_path, session.content))
    assert [one.entry.id for one in loss.replacement.kept] == kept
    assert (counts(loss.still), counts(loss.in_context)) == ([0, 0, 0, 0], [0, 1, 0, 0])
    assert words(loss.lost) == [[], [], [], ["Mend the parser."]]


def of_codex(directory: Path, *recorded: rollouts.Item) -> SummaryLoss:
    """What the summary lost of a rollout that continues with these items after a turn."""
    turn = [
        rollouts.meta(),
        rollouts.environment(),
        rollouts.user("Mend the parser."),
        *(rollouts.answer(f"readFile {number}") for number in range(5)),
        rollouts.call("c1", "apply_patch", input="*** Begin Patch\n*** Update File: src/a.rs\n"),
        rollouts.output("c1", "Exit code: 1\nOutput:\nerror[E0308]: mismatched types"),
        rollouts.answer("It is done."),
    ]
    (loss,) = losses(Rollout(*turn, *recorded, rollouts.user("Go on.")).save(directory))
    return loss


def test_a_local_summary_of_codexs(tmp_path):
    said = "Summary: the file a.rs does not compile."
    compacted = rollouts.compacted(rollouts.user("Mend the parser."), rollouts.user(said), message=said)
    loss = of_codex(tmp_path, compacted)
    assert (loss.text, loss.is_encrypted) == (said, False)
    assert words(loss.subjects) == [["/work/src/a.rs"], ["readFile"], ["error[E0308]: mismatched types"], []]
    assert counts(loss.still) == [1, 0, 0, 0]
    assert [one.role for one in loss.replacement.kept] == [Role.USER]
    assert [(turn.number, turn.words) for turn in loss.turns] == [(1, "Mend the parser.")]


def test_what_codex_keeps_of_the_user_is_no_part_of_what_was_replaced(tmp_path):
    said, asked = "Summary.", ["Mend the parser.", "And readFile in a.rs?"]
    compacted = rollouts.compacted(*map(rollouts.user, [*asked, "And parse", said]), message=said)
    loss = of_codex(tmp_path, rollouts.user(asked[1]), rollouts.answer("So it is."), compacted)
    assert loss.text == said
    assert (len(loss.replacement.replaced), loss.replacement.entries) == (9, 9)
    assert len(loss.replacement.kept) == 3
    assert (counts(loss.still), counts(loss.in_context)) == ([0, 0, 0, 0], [1, 1, 0, 0])


def test_summaries_of_codex_are_opaque_or_read_as_an_older_one_wrote_them(tmp_path):
    opaque = {"type": "compaction", "encrypted_content": "readFile"}
    loss = of_codex(tmp_path, rollouts.compacted(rollouts.user("Mend the parser."), opaque))
    assert (loss.text, loss.is_encrypted) == (ENCRYPTED, True)
    assert counts(loss.still) == [0, 0, 0, 0]
    assert counts(loss.subjects) == [1, 1, 1, 0]
    loss = of_codex(tmp_path, rollouts.summarised("So far: src/a.rs."))
    assert loss.text.endswith("So far: src/a.rs.")
    assert counts(loss.still)[0] == 1


def test_a_summary_of_opencodes(tmp_path):
    store = OpenCodeStore(tmp_path)
    path = store.session()
    store.user("Mend the parser.")
    for number in range(5):
        store.assistant(f"readFile {number}")
    store.assistant(tool("c1", status="error", error="Error: readFile is gone"))
    asked = store.user({"type": "compaction", "auto": False})
    store.assistant("So far: readFile.", parentID=asked, summary=True, mode="compaction")
    store.user("Go on.")
    (loss,) = losses(path)
    assert loss.text == "So far: readFile."
    assert words(loss.subjects)[1:] == [["readFile"], ["Error: readFile is gone"], ["Mend the parser."]]
    assert counts(loss.still) == [0, 1, 0, 0]


def test_lines_that_atomic_kept_mention_themselves(tmp_path):
    lines = verbatim_compaction("[User]: Mend the parser.\nreadFile", "e8")
    (loss,) = of_pi(tmp_path, *TALK, lines, user("on"), reader="atomic-0.9")
    assert counts(loss.still) == [0, 1, 0, 1]


def left_branch(summary: str) -> list[dict[str, Any]]:
    """e1 and e2, a branch of e3 to e8 that was left, and its summary s1 after e2."""
    recorded = chain(user("go"), assistant(text("yes")), user("Try it."), *TALK[3:7], assistant(text("no")))
    other = message("e9", "s1", user("Another way."))
    return [*recorded, message("s1", "e2", {}) | branch_summary(summary), other]


def test_a_summary_of_a_branch_that_was_left_replaced_it_unless_it_is_empty(tmp_path):
    (loss,) = losses(save(tmp_path, session_bytes(left_branch("readFile was tried."))), "pi")
    found = loss.replacement
    assert (found.is_of_branch, found.before_id, found.entries) == (True, "e8", 6)
    assert replaced_ids(loss) == ["e3", "e4", "e5", "e6", "e7", "e8"]
    assert [one.entry.id for one in found.kept] == ["e1", "e2"]
    assert words(loss.subjects)[3] == ["Try it."]
    assert losses(save(tmp_path, session_bytes(left_branch(""))), "pi") == []


def test_the_figures_of_a_real_session():
    directory = corpus()
    if directory is None:
        pytest.skip("there are no real sessions here")
    first, second = losses(directory / "pi" / "before-compaction.v3.jsonl", "pi")
    assert (first.replacement.entries, second.replacement.entries) == (292, 258)
    assert counts(first.subjects) == [11, 165, 2, 11]
    assert counts(first.still) == [9, 35, 0, 0]
    paths, names, errors, messages = counts(first.plan.still)
    assert (errors, messages) == (2, 11)
    assert 8 <= paths <= 11
    assert names > 2 * len(first.still.names)
    for loss in (first, second):
        assert 0.85 < loss.plan.tokens_after / loss.replacement.tokens_after <= 1.01


def check() -> DraftCheck:
    branch, texts = branch_and_texts(session_bytes(chain(*DRAFTED)))
    found = compaction_range(branch, 100)
    assert found.first_kept_id == "e9"
    return DraftCheck(messages_of(found.summarised), messages_of(found.kept), texts, "/home/dev/project")


def test_a_draft_is_judged_again_whenever_it_is_edited():
    checked = check()
    nothing = checked.judge("")
    technical = [[PATH], ["readFile", "parseLine"], ["error: readFile is not defined"]]
    assert words(nothing.subjects) == [*technical, ["Mend the parser."]]
    assert counts(nothing.still) == [0, 0, 0, 0]
    draft = "parseLine was tried.\n\nerror: readFile is\nnot defined\n\n<read-files>\na.py\n</read-files>"
    edited = checked.judge(draft)
    assert words(edited.still) == [*technical, []]
    assert words(edited.lost) == [[], [], [], ["Mend the parser."]]


def test_what_stays_beside_a_draft_is_not_lost():
    judged = check().judge("")
    assert (words(judged.in_context)[1], words(judged.lost)[1]) == (["readFile"], ["parseLine"])


def test_a_draft_is_compared_as_the_summary_that_it_becomes():
    recorded = (*DRAFTED, summary_compaction("Earlier: readFile.", "e2"), *DRAFTED)
    draft = "readFile is mended in src/a.py, in some words."
    branch, texts = branch_and_texts(session_bytes(chain(*recorded)))
    context = PiReader().rebuild(branch)
    found = compaction_range(branch, 100, context)
    drafted = drafted_compaction(branch, context, found, draft)
    loss = loss_of(drafted, branch, {**texts, **draft_texts(draft)}, PI.format.generations[0].rules)

    lines = chain(*recorded, summary_compaction(draft, found.first_kept_id))
    tree = SessionTree(session_log(lines).entries)
    written, after = branch_and_texts(session_bytes(lines))
    replacement = replacement_by(tree, written, tree.leaf.id, PiReader())
    wanted = loss_of(replacement, branch, after, PI.format.generations[0].rules)
    for fact in ("replaced", "kept", "tokens_before", "tokens_after", "entries"):
        assert getattr(drafted, fact) == getattr(replacement, fact), fact
    assert (loss.still, loss.in_context, loss.lost) == (wanted.still, wanted.in_context, wanted.lost)
    assert loss.plan == wanted.plan is not None
    judged = DraftCheck(drafted.replaced, drafted.kept, texts).judge(draft)
    assert (judged.still, judged.in_context, judged.lost) == (loss.still, loss.in_context, loss.lost)


def test_a_draft_of_a_left_branch_is_compared_with_what_was_left():
    lines = [*chain(*DRAFTED), message("other", "e1", user("Another way."))]
    tree = SessionTree(session_log(lines).entries)
    before, after = (PiReader().rebuild(tree.branch(leaf)) for leaf in ("e9", "other"))
    drafted = drafted_branch_summary(branch_left(tree, "e9", "other"), before, after, "other", "parseLine")
    assert [one.entry.id for one in drafted.replaced] == [f"e{number}" for number in range(2, 10)]
    assert [one.entry.id for one in drafted.kept] == ["e1", "other"]
    assert (drafted.is_of_branch, drafted.entries, drafted.before_id) == (True, 8, "e9")
    _, texts = branch_and_texts(session_bytes(lines))
    judged = DraftCheck(drafted.replaced, drafted.kept, texts).judge("parseLine")
    assert (words(judged.still)[1], words(judged.lost)[1]) == (["parseLine"], ["readFile"])
