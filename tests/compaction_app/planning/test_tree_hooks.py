"""Promises of the hooks of moves and summaries: what they receive and may answer, and that a failing one stops all.

The services that move and summarise call these functions; here they are called as those do, on a file that was read.
"""

import ast
import json
from collections.abc import Callable
from typing import Any

import pytest

from compaction_app.core import hook_answers
from compaction_app.core.hook_answers import answers_in
from compaction_app.core.summary_ranges import branch_left, compaction_range
from compaction_app.hooks import (
    Adjust,
    Cancel,
    HookSignal,
    Pin,
    SummaryPreparation,
    Supply,
    SupplySummary,
    Target,
    load_hooks,
    session_before_compact,
    session_before_tree,
    session_compact,
    session_tree,
)
from compaction_app.planning import hook_runner
from compaction_app.planning.hook_runner import (
    HookAnswers,
    after_compact,
    ask_summary_hooks,
)
from sessions_app.agents.base import CompactionBudget
from sessions_app.agents.pure.formats import FileLists
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.compaction_app.planning.test_hooks import DOCUMENT, arguments_of, heard, table_of
from tests.factories import message, prepare, session_bytes, user, whole, working_session
from tests.files import place
from tests.html import missing

WORDS = "Both ways were tried."
pytestmark = pytest.mark.usefixtures("restored_receivers")


@pytest.fixture
def session(known_root):
    """A worked session with a second branch from e5."""
    recorded = [*working_session(), message("other", "e5", user("Try it differently."))]
    return index_file(place(known_root / "s.jsonl", session_bytes(recorded)))


@pytest.fixture
def loaded(session):
    return load_session(session.real_path())


def connect(signal: HookSignal, hook: Callable[..., object]) -> None:
    signal.connect(hook, weak=False)


def answer(signal: HookSignal, *answers: object) -> None:
    """Connect a hook for each answer."""
    for one in answers:
        connect(signal, lambda _one=one, **_: _one)


def code_of(act: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(RedlineError) as refused:
        act()
    return refused.value.code, refused.value.message


def move(loaded: LoadedSession, **values: Any) -> hook_runner.TreeMove:
    """Back from the second branch to the first one."""
    return hook_runner.TreeMove("e9", "other", "e9", branch_left(loaded.tree, "other", "e9"), **values)


def asked(loaded: LoadedSession, **values: Any) -> HookAnswers:
    return hook_runner.ask_tree_hooks(loaded, move(loaded, **values))


def test_later_hooks_see_what_earlier_ones_changed_of_a_users_move_and_the_last_wins(loaded):
    assert asked(loaded, focus="tests", label="x") == HookAnswers(hook_runner.NOT_MOVED, "tests", "x")
    seen: list[tuple[str, str]] = []
    answer(session_before_tree, Adjust(focus="a", label="one"))
    connect(session_before_tree, lambda focus, label, **_: seen.append((focus, label)))
    answer(session_before_tree, {"customInstructions": "b"}, Adjust(label=""))
    answers = asked(loaded, focus="tests")
    assert seen == [("a", "one")]
    assert (answers.focus, answers.label) == ("b", "")
    assert len(answers.messages) == 4


def test_a_hook_receives_what_is_left_behind(loaded, session):
    seen = heard(session_before_tree)
    hook_runner.ask_tree_hooks(loaded, move(loaded, wants_summary=True, focus="tests"), session, lambda: True)
    (sent,) = seen
    assert set(sent) == arguments_of("session_before_tree")
    assert [entry.id for entry in sent["entries"]] == ["other"]
    assert (sent["target_id"], sent["old_leaf_id"], sent["new_leaf_id"]) == ("e9", "other", "e9")
    assert (sent["common_ancestor_id"], sent["wants_summary"], sent["focus"]) == ("e5", True, "tests")
    assert (sent["session"], sent["path"], sent["stop"]()) == (session, loaded.path, True)


def test_a_supplied_summary_is_used_only_if_one_is_wanted(loaded):
    supplied = SupplySummary(WORDS, "I was there", read_files=["b", "a", "c"], modified_files=["c"])
    answer(session_before_tree, {"label": "x"}, supplied)
    later = heard(session_before_tree)
    wanted = asked(loaded, wants_summary=True)
    assert (wanted.supplied.text, wanted.supplied.files) == (WORDS, FileLists(("a", "b"), ("c",)))
    assert wanted.supplied.why.endswith("I was there")
    assert (wanted.label, later) == ("x", [])
    unwanted = asked(loaded)
    assert (unwanted.supplied, len(later)) == (None, 1)
    assert "It is not used, because none is wanted." in unwanted.messages[-1].text


@pytest.mark.parametrize("found", [Cancel("not today"), {"cancel": True}])
def test_a_cancelled_move_is_refused_with_the_name_of_the_hook(loaded, found):
    answer(session_before_tree, found)
    later = heard(session_before_tree)
    answers = asked(loaded)
    code, words = code_of(answers.require_not_cancelled)
    assert (code, later) == ("cancelled_by_hook", [])
    assert "answer.<locals>" in words
    assert words.endswith("Nothing was moved.")
    HookAnswers("").require_not_cancelled()


def test_a_hook_of_moves_that_fails_is_not_skipped(loaded):
    def protector(**sent: Any) -> None:
        raise KeyError("text of the session")

    connect(session_before_tree, protector)
    later = heard(session_before_tree)
    code, words = code_of(lambda: asked(loaded))
    assert (code, later) == ("hook_failed", [])
    assert "protector failed (KeyError). Nothing was moved" in words
    assert "text of the session" not in words


@pytest.mark.parametrize("found", [Pin([Target("e3")]), Supply([whole("e3")]), True, {"canceled": True}])
def test_an_answer_that_a_move_cannot_have_stops_it(loaded, found):
    answer(session_before_tree, found)
    code, words = code_of(lambda: asked(loaded))
    assert code == "bad_answer"
    assert words.endswith("Nothing was moved. It may return None, Adjust, SupplySummary or Cancel.")


@pytest.mark.parametrize("asks", ["move", "summary"])
def test_nothing_is_done_if_a_hook_could_not_be_loaded(loaded, preparation, transcript, asks):
    load_hooks(["hooks_that_nobody_wrote"])
    acts = {"move": lambda: asked(loaded), "summary": lambda: ask_summary_hooks(loaded, "e27", transcript, preparation)}
    assert code_of(acts[asks])[0] == "hook_not_loaded"


def test_every_receiver_learns_of_a_move_even_if_others_fail(loaded, session, tmp_path):
    def failing(**sent: Any) -> None:
        raise ValueError

    connect(session_tree, failing)
    received = heard(session_tree)
    line = {"type": "branch_summary", "id": "n", "summary": WORDS}
    lines = [json.dumps(line).encode()]
    hook_runner.after_move(loaded.path, session, move(loaded), lines, tmp_path, summary=WORDS, from_hook=True)
    (sent,) = received
    assert set(sent) == arguments_of("session_tree")
    assert (sent["entries"], sent["summary"], sent["from_hook"]) == ([line], WORDS, True)
    assert (sent["old_leaf_id"], sent["new_leaf_id"]) == ("other", "e9")


@pytest.fixture
def transcript(loaded):
    branch = loaded.tree.branch("e27")
    found = prepare(branch, loaded.texts(branch), {})
    assert found is not None
    return found


@pytest.fixture
def preparation(loaded):
    found = compaction_range(loaded.tree.branch("e27"), 3_000)
    assert found.summarised
    return SummaryPreparation(
        messages=found.replaced,
        prefix=found.prefix,
        kept=found.kept,
        previous_summary=None,
        files=FileLists(("a.py",), ()),
        tokens_before=9_000,
        first_kept_id=found.first_kept_id,
        settings=CompactionBudget(16_384, 3_000),
    )


@pytest.fixture
def ask(loaded, transcript, preparation):
    return lambda: ask_summary_hooks(loaded, "e27", transcript, preparation)


def test_a_hook_receives_what_a_summary_would_replace(ask, transcript, preparation):
    seen = heard(session_before_compact)
    assert ask() == HookAnswers(hook_runner.NOTHING_SUMMARISED)
    (sent,) = seen
    assert set(sent) == arguments_of("session_before_compact")
    assert (sent["summary"], sent["preparation"]) == (preparation, transcript)
    assert sent["branch"][-1].id == "e27"
    assert not sent["stop"]()


@pytest.mark.parametrize("kind", ["class", "object"])
def test_a_supplied_summary_is_the_draft(ask, preparation, kind):
    found = SupplySummary(WORDS, read_files=["a"])
    shape = {"compaction": {"summary": WORDS, "details": {"readFiles": ["a"]}}}
    answer(session_before_compact, found if kind == "class" else shape)
    supplied = ask().supplied
    assert (supplied.text, supplied.first_kept_id) == (WORDS, preparation.first_kept_id)
    assert supplied.files == FileLists(("a",), ())


@pytest.mark.parametrize(("first", "why"), [("nowhere", "not in the range"), ("e5", "needs its call")])
def test_a_first_entry_that_cannot_be_kept_is_refused(ask, first, why):
    answer(session_before_compact, SupplySummary(WORDS, first_kept_id=first))
    code, words = code_of(ask)
    assert code == "hook_refused"
    assert why in words
    assert words.endswith("Nothing was summarised.")


@pytest.mark.parametrize("index", [None, 0])
def test_a_summary_does_not_replace_what_a_hook_pins(ask, index):
    answer(session_before_compact, Pin([Target("e2", index)], "it has a label"))
    code, words = code_of(ask)
    assert code == "pinned_by_hook"
    assert not missing(words, "entry e2, which is pinned by", "it has a label")


def test_a_pin_of_what_stays_does_not_matter_and_a_hook_may_keep_more(ask, preparation):
    answer(session_before_compact, Pin([Target(preparation.first_kept_id), Target("nowhere")]))
    assert ask().supplied is None
    answer(session_before_compact, Pin([Target("e6")]), SupplySummary(WORDS, first_kept_id="e4"))
    assert ask().supplied.first_kept_id == "e4"


def test_a_cancelled_summary_is_refused_with_the_reason(ask):
    answer(session_before_compact, Pin([Target("e2")]), Cancel("not today"))
    answers = ask()
    code, words = code_of(answers.require_not_cancelled)
    assert code == "cancelled_by_hook"
    assert words.endswith("not today. Nothing was summarised.")


@pytest.mark.parametrize("found", [Supply([whole("e3")]), {"deletionRequest": {"deletions": [whole("e3")]}}, Adjust()])
def test_an_answer_that_a_summary_cannot_have_stops_it(ask, found):
    answer(session_before_compact, found)
    code, words = code_of(ask)
    assert code == "bad_answer"
    assert words.endswith("Nothing was summarised. It may return None, Pin, SupplySummary or Cancel.")


def test_receivers_learn_that_a_compaction_is_a_summary(loaded, session, tmp_path):
    received = heard(session_compact)
    after_compact(loaded.path, session, [b'{"id":"n"}'], tmp_path, from_hook=False, summary=WORDS)
    (sent,) = received
    assert set(sent) == arguments_of("session_compact")
    assert (sent["summary"], sent["result"], sent["parameters"]) == (WORDS, None, None)
    assert sent["entries"] == [{"id": "n"}]


DELETION = {"kind": "entry", "entryId": "e3"}
TEXT = "It is mended."


@pytest.mark.parametrize(
    ("found", "answers"),
    [
        (None, ()),
        ({}, ()),
        ({"cancel": False}, ()),
        ({"cancel": None, "summary": None}, ()),
        ({"cancel": True}, (Cancel(""),)),
        ({"cancel": True, "summary": {"summary": TEXT}}, (Cancel(""),)),
        ({"deletionRequest": {"deletions": [DELETION]}}, (Supply([DELETION]),)),
        ({"compaction": {"summary": TEXT, "tokensBefore": 3}}, (SupplySummary(TEXT),)),
        (
            {"compaction": {"summary": TEXT, "firstKeptEntryId": "e5", "details": {"modifiedFiles": ["a"]}}},
            (SupplySummary(TEXT, first_kept_id="e5", modified_files=["a"]),),
        ),
        ({"summary": {"summary": TEXT, "details": {"readFiles": ["a"]}}}, (SupplySummary(TEXT, read_files=["a"]),)),
        ({"customInstructions": "tests"}, (Adjust(focus="tests"),)),
        ({"label": "x", "summary": {"summary": TEXT}}, (Adjust(label="x"), SupplySummary(TEXT))),
        (Cancel("no"), (Cancel("no"),)),
        (Pin([Target("e3")]), (Pin([Target("e3")]),)),
    ],
)
def test_an_object_means_the_same_as_a_class(found, answers):
    assert answers_in(found) == answers


@pytest.mark.parametrize(
    "found",
    [
        True,
        "cancel",
        [DELETION],
        {"canceled": True},
        {"cancel": "yes"},
        {"deletions": [DELETION]},
        {"deletionRequest": [DELETION]},
        {"deletionRequest": {"deletions": []}},
        {"deletionRequest": {}},
        {"compaction": TEXT},
        {"compaction": {"summary": "  "}},
        {"compaction": {"summary": TEXT, "firstKeptEntryId": 3}},
        {"summary": TEXT},
        {"summary": {"summary": TEXT, "details": {"readFiles": "a"}}},
        {"summary": {"summary": TEXT}, "deletionRequest": {"deletions": [DELETION]}},
        {"label": 3},
        {"customInstructions": ["a"]},
        {3: True},
    ],
)
def test_anything_else_is_an_error(found):
    with pytest.raises((TypeError, ValueError)):
        answers_in(found)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (SupplySummary, {"text": 3}),
        (SupplySummary, {"text": " "}),
        (SupplySummary, {"text": TEXT, "read_files": "a"}),
        (SupplySummary, {"text": TEXT, "modified_files": [3]}),
        (SupplySummary, {"text": TEXT, "first_kept_id": None}),
        (Adjust, {"focus": 3}),
        (Adjust, {"label": ["a"]}),
        (Adjust, {"why": None}),
        (Cancel, {"why": None}),
        *((Pin, {"targets": [wrong]}) for wrong in ("e3", Target(3), Target("e3", True), whole("e3"))),
        *((Supply, {"deletions": wrong}) for wrong in ({"deletions": []}, [])),
    ],
)
def test_an_invalid_answer_is_refused_when_it_is_created(make, values):
    with pytest.raises((TypeError, ValueError)):
        make(**values)


def test_the_document_names_every_answer_and_its_objects_mean_what_it_says():
    found = table_of("Objects")
    assert len(found) == 6
    for shown, same in found.items():
        named = ast.literal_eval(shown.replace("true", "True"))
        expected = eval(same.strip("`"), vars(hook_answers))  # noqa: S307  # our own document
        assert answers_in(named) == (() if expected is None else (expected,))
    for name in ("Adjust(focus, label, why)", "SupplySummary(text, why, first_kept_id, read_files, modified_files)"):
        assert f"`{name}`" in DOCUMENT
