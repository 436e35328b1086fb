"""Promises of hooks' answers: objects in agents' own shape mean the same as our classes; nothing else is guessed."""

import ast

import pytest

from compaction_app import hook_answers
from compaction_app.hook_answers import Adjust, Cancel, Pin, Supply, SupplySummary, answers_in
from sessions_app.sessionlog.targets import Target
from tests.compaction_app.planning.test_hooks import DOCUMENT, table_of

DELETION = {"kind": "entry", "entryId": "e3"}
TEXT = "It is mended."


@pytest.mark.parametrize(
    ("found", "answers"),
    [
        (None, ()),
        ({}, ()),
        ({"cancel": False}, ()),
        ({"cancel": None, "summary": None}, ()),
        ({"cancel": True}, (Cancel(""), )),
        ({"cancel": True, "summary": {"summary": TEXT}}, (Cancel(""), )),
        ({"deletionRequest": {"deletions": [DELETION]}}, (Supply([DELETION]), )),
        ({"compaction": {"summary": TEXT, "tokensBefore": 3}}, (SupplySummary(TEXT), )),
        ({"compaction": {"summary": TEXT, "firstKeptEntryId": "e5", "details": {"modifiedFiles": ["a"]}}},
            (SupplySummary(TEXT, first_kept_id="e5", modified_files=["a"]), )),
        ({"summary": {"summary": TEXT, "details": {"readFiles": ["a"]}}}, (SupplySummary(TEXT, read_files=["a"]),
            )),
        ({"customInstructions": "tests"}, (Adjust(focus="tests"), )),
        ({"label": "x", "summary": {"summary": TEXT}}, (Adjust(label="x"), SupplySummary(TEXT))),
        (Cancel("no"), (Cancel("no"), )),
        (Pin([Target("e3")]), (Pin([Target("e3")]), )),
    ],
)  # fmt: skip
def test_an_object_means_the_same_as_a_class(found, answers):
    assert answers_in(found) == answers


@pytest.mark.parametrize(
    "found",
    [
        True, "cancel", [DELETION], {"canceled": True}, {"cancel": "yes"}, {"deletions": [DELETION]},
        {"deletionRequest": [DELETION]}, {"deletionRequest": {"deletions": []}}, {"deletionRequest": {}},
        {"compaction": TEXT}, {"compaction": {"summary": "  "}},
        {"compaction": {"summary": TEXT, "firstKeptEntryId": 3}}, {"summary": TEXT},
        {"summary": {"summary": TEXT, "details": {"readFiles": "a"}}},
        {"summary": {"summary": TEXT}, "deletionRequest": {"deletions": [DELETION]}}, {"label": 3},
        {"customInstructions": ["a"]}, {3: True},
    ],
)  # fmt: skip
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
    ],
)
def test_an_invalid_answer_is_refused_when_it_is_created(make, values):
    with pytest.raises((TypeError, ValueError)):
        make(**values)


def test_the_objects_of_the_document_mean_what_it_says():
    found = table_of("Objects")
    assert len(found) == 6
    for shown, same in found.items():
        named = ast.literal_eval(shown.replace("true", "True"))
        expected = eval(same.strip("`"), vars(hook_answers))  # noqa: S307  # our own document
        assert answers_in(named) == (() if expected is None else (expected,))


def test_the_document_names_every_answer():
    for name in ("Adjust(focus, label, why)", "SupplySummary(text, why, first_kept_id, read_files, modified_files)"):
        assert f"`{name}`" in DOCUMENT
