"""What a summary would summarise: branches that are left, and the beginning of a context.

In generated and real sessions, cuts, shared entries and lists of files are found here a second time, in another way,
from the recorded lines.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from compaction_app.core.summary_ranges import (
    SummaryRange,
    branch_budget,
    branch_left,
    compaction_range,
    history_output,
    messages_left,
    messages_of,
    prefix_output,
    tokens_before,
    within_budget,
)
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.pure.format import PiReader
from sessions_app.agents.pure.formats import FileLists
from sessions_app.disk.files import SessionReader
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.budget import FACTOR, some
from tests.compaction_app.core.strategies import CALL_IDS, MESSAGES, WORDS, Recorded, given_often
from tests.factories import (
    HEADER,
    assistant,
    bash,
    branch_of,
    branch_summary,
    call,
    chain,
    context_edit,
    custom,
    message,
    result,
    session_log,
    summary_compaction,
    text,
    user,
)
from tests.paths import corpus_sessions

MODEL = {"type": "model_change", "provider": "p", "modelId": "m"}


def ids(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.id for entry in entries]


def parts(found: SummaryRange | None) -> tuple[list[str], list[str], list[str]]:
    return ids(found.replaced), ids(found.prefix), ids(found.kept)


def range_of(*recorded: dict[str, Any], keep: int) -> SummaryRange | None:
    branch = branch_of(chain(*recorded))
    found = compaction_range(branch, keep)
    assert found == compaction_range(branch, keep, PiReader().rebuild(branch))
    return found


def words(tokens: int) -> str:
    return "word" * tokens


def turn(tokens: int) -> list[dict[str, Any]]:
    """A turn of four messages, each with an estimate of `tokens`, except the call."""
    called, said = assistant(call("c", path="a.py")), words(tokens)
    return [user(said), called, result("c", said), assistant(text(said))]


def test_a_branch_is_left_up_to_the_deepest_shared_entry():
    trunk = [message(f"a{n}", f"a{n - 1}" if n else None, user("a")) for n in range(4)]
    others = [message("b", "a1", user("b")), message("root", None, user("r"))]
    tree = SessionTree(session_log([HEADER, *trunk, *others]).entries)
    assert branch_left(tree, "a3", "b") == ("a1", tuple(map(tree.entry, ("a2", "a3"))))
    assert branch_left(tree, "b", "a3") == ("a1", (tree.entry("b"),))
    assert branch_left(tree, "a3", "a1") == ("a1", tuple(map(tree.entry, ("a2", "a3"))))
    assert branch_left(tree, "a1", "a3") == ("a1", ())
    assert branch_left(tree, "b", None) == (None, tuple(map(tree.entry, ("a0", "a1", "b"))))
    assert branch_left(tree, "b", "root") == (None, tuple(map(tree.entry, ("a0", "a1", "b"))))


def test_the_newest_messages_fit_into_a_budget_and_tool_results_are_left_out():
    branch = branch_of(chain(*turn(100), MODEL, *turn(100)))
    found = within_budget(branch, 210)
    assert (ids(found.entries), found.tokens, found.left_out) == (["e6", "e7", "e9"], 205, 3)
    assert ids(within_budget(branch, 10_000).entries) == ["e1", "e2", "e4", "e6", "e7", "e9"]
    assert ids(within_budget(branch, 99).entries) == []
    assert ids(within_budget(branch, 250, removed={"e6"}).entries) == ["e2", "e4", "e7", "e9"]


@pytest.mark.parametrize("summary", [branch_summary(words(500)), summary_compaction(words(500), "e1")])
def test_a_summary_that_does_not_fit_is_taken_unless_the_budget_is_nearly_full(summary):
    branch = branch_of(chain(user("old"), summary, user(words(100))))
    assert ids(within_budget(branch, 112).entries) == ["e2", "e3"]
    assert ids(within_budget(branch, 111).entries) == ["e3"]


def test_a_budget_is_the_window_without_a_reserve():
    assert branch_budget(200_000) == 183_616
    assert branch_budget(None, 8_000) == 120_000
    assert branch_budget(1_000) == 0
    assert (history_output(), prefix_output()) == (13_107, 8_192)


ONE, TWO, END = turn(100), [*turn(100), *turn(100)], assistant(text(words(10)))
BEFORE, KEPT_NOTHING = (summary_compaction("Before.", first_kept) for first_kept in ("e5", "gone"))
CUTS = {
    "at a user message, which splits no turn": (TWO, 300, "e1 e2 e3 e4 | | e5 e6 e7 e8"),
    "within a turn": (TWO, 50, "e1 e2 e3 e4 | e5 e6 e7 | e8"),
    "not at a result but after it": (TWO, 150, "e1 e2 e3 e4 | e5 e6 e7 | e8"),
    "not at the last result but at its call": (TWO[:7], 100, "e1 e2 e3 e4 | e5 | e6 e7"),
    "before what changed just before": ([*ONE, MODEL, MODEL, *ONE], 300, "e1 e2 e3 e4 | | e5 e6 e7 e8 e9 e10"),
    "in what the previous compaction kept": ([*TWO, BEFORE, *ONE], 300, "e5 e6 e7 e8 | | e10 e11 e12 e13"),
    "after a compaction that kept nothing": ([*ONE, KEPT_NOTHING, *TWO], 300, "e6 e7 e8 e9 | | e10 e11 e12 e13"),
    "at a command": ([*ONE, bash("ls", words(100)), END], 110, "e1 e2 e3 e4 | | e5 e6"),
    "at a custom message": ([*ONE, custom(words(100)), END], 110, "e1 e2 e3 e4 | | e5 e6"),
    "at a summary of a branch": ([*ONE, branch_summary(words(100)), END], 110, "e1 e2 e3 e4 | | e5 e6"),
}
"""Messages, the tokens to keep, and what is replaced, what of a turn is its prefix, and what is kept."""


@pytest.mark.parametrize(("recorded", "keep", "cut"), CUTS.values(), ids=CUTS)
def test_where_a_range_is_cut(recorded, keep, cut):
    found = range_of(*recorded, keep=keep)
    replaced, prefix, kept = (part.split() for part in cut.split("|"))
    assert parts(found) == (replaced, prefix, kept)
    assert (found.first_kept_id, found.prefix != ()) == (kept[0], prefix != [])
    compactions = [f"e{at}" for at, one in enumerate(recorded, 1) if one.get("type") == "compaction"]
    assert (found.previous_summary and [found.previous_summary.id]) == (compactions or None)


def test_there_may_be_nothing_to_replace():
    assert compaction_range([]) is None
    assert range_of(*turn(100), keep=1_000) is None
    assert range_of(*turn(100), summary_compaction("Before.", "e1"), keep=1) is None
    assert range_of(MODEL, keep=1) is None
    assert range_of(result("c", words(100)), keep=1) is None


def test_what_an_edit_removed_does_not_count():
    branch = branch_of(chain(*turn(100), *turn(100), context_edit("e8", None)))
    found = compaction_range(branch, 150, PiReader().rebuild(branch))
    assert parts(found) == (["e1", "e2", "e3", "e4"], [], [f"e{n}" for n in range(5, 10)])


def test_a_model_is_shown_the_context_a_left_branch_as_edited_and_what_was_compacted_as_recorded():
    branch = branch_of(chain(*turn(10), summary_compaction("Before.", "e4"), user("b"), context_edit("e6", None)))
    assert [one.entry.id for one in messages_of(branch)] == ["e1", "e2", "e3", "e4", "e5", "e6"]
    assert [one.entry.id for one in messages_of(branch, PiReader().rebuild(branch))] == ["e5", "e4"]
    edits = (context_edit("e3", None), context_edit("e4", {"content": "shorter"}))
    branch = branch_of(chain(user("a"), summary_compaction("Before.", "e3"), user("b"), user("c"), *edits))
    found = messages_left(branch, PiReader().rebuild(branch))
    assert [(one.entry.id, one.edit is not None) for one in found] == [("e1", False), ("e2", False), ("e4", True)]


def test_a_report_counts_until_the_context_is_edited():
    recorded = [user(words(10)), assistant(text("a"), usage={"totalTokens": 5_000}), user(words(10))]
    assert tokens_before(PiReader().rebuild(branch_of(chain(*recorded)))) == 5_010
    edited = branch_of(chain(*recorded, context_edit("e1", None)))
    assert tokens_before(PiReader().rebuild(edited)) == 11


KEPT = (1, 700, 5_000, 20_000, 90_000)
"""Tokens to keep."""
LEAVES = 6 * FACTOR
"""Leaves of each real session that are tried, besides its own."""
IDS = st.integers(1, 14).map(lambda number: f"e{number}")
CONTROLS = st.one_of(
    st.just(MODEL),
    st.builds(summary_compaction, WORDS, IDS),
    st.builds(context_edit, IDS, st.sampled_from([None, {"content": "shorter"}])),
)
CALLS = st.builds(
    lambda call_id, name, path: assistant(call(call_id, name, path=path)),
    CALL_IDS,
    st.sampled_from(["read", "write", "edit", "bash"]),
    st.sampled_from(["a.py", "b.py", "c.py", "", 7, None]),
)
SESSIONS = st.lists(st.one_of(MESSAGES, MESSAGES, CALLS, CONTROLS), min_size=1, max_size=14)
USER_LIKE = {"user", "bashExecution", "custom", "branchSummary"}


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    return list(map(load_session, some(corpus_sessions(tmp_path_factory.mktemp("corpus")))))


def region_of(branch: Sequence[Entry]) -> tuple[Entry | None, list[Entry]]:
    """The newest compaction, and the entries that it left, in the order of the branch."""
    compactions = [at for at, entry in enumerate(branch) if entry.kind is EntryKind.SUMMARY]
    if not compactions:
        return None, list(branch)
    at = compactions[-1]
    ids = [entry.id for entry in branch[:at]]
    first = getattr(branch[at].control, "first_kept_id", None)
    start = ids.index(first) if first in ids else at
    return branch[at], [entry for place, entry in enumerate(branch) if place >= start and place != at]


def expected_cut(region: Sequence[Entry], weights: Counter[str], keep: int) -> int | None:
    """The first place that may begin what is kept, and after which there are fewer tokens than are to be kept."""
    said = USER_LIKE | {"assistant"}
    points = [at for at, entry in enumerate(region) if entry.id in weights and entry.role in said]
    enough = [at for at in points if sum(weights[one.id] for one in region[at + 1 :]) < keep]
    return enough[0] if enough else points[-1] if points else None


def check_range(branch: Sequence[Entry], keep: int, context: ActiveContext | None) -> SummaryRange | None:
    """Check what a compaction would replace; `context` None is for entries as they were recorded."""
    found = compaction_range(branch, keep, context)
    previous, region = region_of(branch)
    if context is None:
        weights = Counter({entry.id: entry.tokens for entry in region if entry.is_message and not entry.empty})
    else:
        weights = Counter()
        for one in context.messages:
            if one.entry.kind is not EntryKind.SUMMARY:
                weights[one.entry.id] += one.tokens
    cut = expected_cut(region, weights, keep)
    if found is None:
        said = [entry for entry in region[:cut] if entry.id in weights and entry.role != "system"]
        assert branch[-1].kind is EntryKind.SUMMARY or cut is None or not said
        return None
    assert [*found.replaced, *found.prefix, *found.kept] == region
    assert found.previous_summary == previous
    messages = [entry for entry in found.kept if entry.id in weights]
    assert messages[0] is region[cut]
    assert messages[0].role != "toolResult"
    before = region[: region.index(found.kept[0])]
    assert not before or before[-1].id in weights or before[-1].kind is EntryKind.SUMMARY
    starts = [at for at, entry in enumerate(region[: cut + 1]) if entry.id in weights and entry.role in USER_LIKE]
    assert list(found.prefix[:1]) == [region[at] for at in starts[-1:] if at < cut]
    return found


@given_often(SESSIONS, st.sampled_from([1, 5, 20, 60]))
def test_a_range_has_replaced_prefix_and_kept_and_no_cut_at_a_result(recorded, keep):
    branch = branch_of(chain(*recorded))
    check_range(branch, keep, PiReader().rebuild(branch))
    if not any(entry.kind is EntryKind.EDIT for entry in branch):
        check_range(branch, keep, None)


def leaves_of(loaded: LoadedSession) -> list[str]:
    """The last entry, and some entries at the same distances."""
    entries = loaded.tree.entries
    return [*(entry.id for entry in entries[:: max(1, len(entries) // LEAVES)]), loaded.leaf_id]


def test_ranges_of_real_sessions_are_whole_and_no_cut_is_at_a_result(sessions):
    for loaded in sessions:
        found = 0
        for leaf_id in leaves_of(loaded):
            branch = loaded.tree.branch(leaf_id)
            context = PiReader().rebuild(branch)
            for made in filter(None, (check_range(branch, keep, context) for keep in KEPT)):
                found += 1
                check_files(loaded, made, context)
        assert found, loaded.path


def check_files(loaded: LoadedSession, found: SummaryRange, context: ActiveContext) -> None:
    """Compare the lists of a range with those that its lines have."""
    messages = messages_of(found.summarised, context)
    with SessionReader(loaded.path) as reader:
        lines = {one.entry.id: reader.read_at(one.entry.offset, one.entry.length) for one in messages}
        previous = found.previous_summary
        earlier = [] if previous is None else [json.loads(reader.read_at(previous.offset, previous.length))]
    files = PI.format.summary_format.files(
        [PI.format.message_json(one, lines[one.entry.id], None) for one in messages], earlier
    )
    assert files == recounted(list(map(json.loads, lines.values())), earlier)


def recounted(lines: list[Recorded], earlier: list[Recorded]) -> FileLists:
    calls = [
        (block["name"], block["arguments"].get("path"))
        for line in lines
        if line.get("message", {}).get("role") == "assistant"
        for block in line["message"]["content"]
        if block["type"] == "toolCall"
    ]
    details = [line.get("details", {}) for line in earlier if not line.get("fromHook")]
    read = {path for name, path in calls if name == "read"}
    modified = {path for name, path in calls if name in ("write", "edit")}
    read.update(path for one in details for path in one.get("readFiles", ()))
    modified.update(path for one in details for path in one.get("modifiedFiles", ()))
    wanted = [sorted(path for path in one if isinstance(path, str) and path) for one in (read - modified, modified)]
    return FileLists(tuple(wanted[0]), tuple(wanted[1]))


@given_often(st.lists(CALLS, max_size=10))
def test_lists_of_files_are_those_of_a_plain_recount(calls):
    lines = chain(*calls)[1:]
    assert PI.format.summary_format.files(calls) == recounted(lines, [])


def test_lists_that_real_summaries_recorded_are_recomputed(tmp_path):
    """One of 21 summaries has lists: 46 of its 54 read files and all 13 modified ones are on its branch. The others
    were read before a damaged line, which cuts the branch: with what is above it, both lists are equal."""
    for path in corpus_sessions(tmp_path):
        if b'"readFiles"' in path.read_bytes():
            check_recorded_lists(load_session(path))


def check_recorded_lists(loaded: LoadedSession) -> None:
    entries = loaded.tree.entries
    with SessionReader(loaded.path) as reader:
        lines = {entry.id: reader.read_at(entry.offset, entry.length) for entry in entries}

    def files(part: Sequence[Entry]) -> FileLists:
        return PI.format.summary_format.files(
            [PI.format.message_json(one, lines[one.entry.id], None) for one in messages_of(part)]
        )

    for entry in entries:
        recorded = PI.format.recorded_summary(lines[entry.id])
        if recorded is None or recorded.files is None:
            continue
        branch = loaded.tree.branch(entry.id)[:-1]
        first_kept_id = entry.control.first_kept_id
        cut = next(at for at, one in enumerate(branch) if one.id == first_kept_id)
        on_branch = files(branch[:cut])
        assert files(entries[: loaded.tree.position(first_kept_id)]) == recorded.files
        assert on_branch == recorded.files or loaded.log.damaged
        assert {*on_branch.read} <= {*recorded.files.read}
        assert on_branch.modified == recorded.files.modified


@given_often(st.lists(st.integers(0, 9), min_size=2, max_size=12), st.data())
def test_what_is_left_is_the_old_branch_after_the_last_shared_entry(parents, data):
    ancestors = [f"e{parent}" if parent < number else None for number, parent in enumerate(parents)]
    recorded = [message(f"e{number}", parent, user("a")) for number, parent in enumerate(ancestors)]
    tree = SessionTree(session_log([HEADER, *recorded]).entries)
    check_left(tree, *(data.draw(st.sampled_from(tree.entries)).id for _ in range(2)))


def check_left(tree: SessionTree, old: str, new: str) -> None:
    left = branch_left(tree, old, new)
    before, after = tree.branch(old), tree.branch(new)
    shared = before[: len(before) - len(left.entries)]
    assert [*shared, *left.entries] == before
    assert shared == after[: len(shared)]
    assert left.ancestor_id == (shared[-1].id if shared else None)
    # The branches part here, or one of them ends.
    assert [one.id for one in left.entries[:1]] != [one.id for one in after[len(shared) :][:1]] or old == new


def test_real_branches_are_left_whole(sessions):
    for loaded in sessions:
        tree, ids = loaded.tree, leaves_of(loaded)
        for old in ids:
            check_left(tree, old, ids[0])
            check_left(tree, old, ids[-1])
            check_left(tree, ids[-1], old)
        with pytest.raises(BadInput, match="no entry"):
            branch_left(tree, "nowhere", None)


@given_often(SESSIONS, st.integers(0, 120))
def test_what_fits_is_the_newest_that_is_not_a_result(recorded, budget):
    branch = branch_of(chain(*recorded))
    everything = within_budget(branch, 10**9)
    assert not everything.left_out
    assert all(entry.role not in ("toolResult", "system") for entry in everything.entries)
    found = within_budget(branch, budget)
    assert found.entries == everything.entries[found.left_out :]
    assert found.tokens == sum(entry.tokens for entry in found.entries)
    if found.tokens > budget:
        oldest = found.entries[0]
        assert oldest.role in ("branchSummary", "compactionSummary")
        assert found.tokens - oldest.tokens < 0.9 * budget
    elif found.left_out:
        assert found.tokens + everything.entries[found.left_out - 1].tokens > budget
