"""`redline summarise`: a draft appends nothing, and what is appended is what was read."""

import json

import pytest

from compaction_app import hooks
from compaction_app.models import AuditEntry, SummaryDraft
from tests.factories import session_bytes, turns_of_work
from tests.files import place, unchanged
from tests.html import missing

MODEL = "scripted/good-plan"


@pytest.fixture
def path(redline):
    return place(redline.home / ".pi" / "agent" / "sessions" / "s.jsonl", session_bytes(turns_of_work(turns=8)))


@pytest.fixture
def edited(tmp_path):
    """A file with an edited text."""
    return place(tmp_path / "edited.md", b"We look at the cache.\n")


def test_a_draft_is_shown_and_saved_if_it_can_be_and_nothing_is_appended(redline, provider, path, tmp_path):
    before, saved = path.read_bytes(), tmp_path / "draft.md"
    ended = redline.call("summarise", path, "--model", MODEL, "--save", saved).ok()
    assert not missing(ended.out, "## Goal", "This is a draft. Nothing was appended.", f"--text={saved}")
    assert saved.read_text().startswith("## Goal")
    assert path.read_bytes() == before
    there = tmp_path / "draft.md"
    there.write_text("an earlier draft")
    for target in (there, tmp_path / "nowhere" / "draft.md"):
        assert redline.call("summarise", path, "--model", MODEL, "--save", target, "--json").refusal == "2 cannot_save"
    assert there.read_text() == "an earlier draft"


def test_what_is_appended_after_a_confirmation_is_the_edited_text(redline, path, edited):
    with unchanged(path):
        assert redline.call("summarise", path, "--text", edited, "--json").refusal == "5 not_confirmed"
    ended = redline.call("summarise", path, "--text", edited, "--yes", "--json").ok()
    recorded = json.loads(path.read_bytes().splitlines()[-1])
    assert (recorded["type"], recorded["id"]) == ("compaction", ended.json["entry"])
    assert recorded["summary"].startswith("We look at the cache.\n\n<read-files>")
    assert AuditEntry.objects.get().action == AuditEntry.Action.SUMMARY


def test_a_branch_is_left_with_its_summary(redline, path, edited):
    ended = redline.call("summarise", path, "--leave-for", "e4", "--text", edited, "--yes", "--json")
    assert ended.json["kind"] == "branch", ended
    recorded = json.loads(path.read_bytes().splitlines()[-1])
    assert (recorded["type"], recorded["parentId"]) == ("branch_summary", "e4")


@pytest.mark.parametrize(("script", "code"), [("refuses", "no_summary"), ("overflow", "overflow")])
def test_a_model_that_writes_none_is_a_failure(redline, provider, path, script, code):
    with unchanged(path):
        ended = redline.call("summarise", path, "--model", f"scripted/{script}", "--json")
        assert (ended.code, ended.error) == (6, code)


def test_without_a_model_or_a_text_nothing_is_sent(redline, path, tmp_path):
    assert redline.call("summarise", path, "--json").error == "no_model"
    ended = redline.call("summarise", path, "--text", place(tmp_path / "wrong", b"\xff\xfe"), "--yes", "--json")
    assert (ended.code, ended.error) == (2, "not_utf8")


@pytest.mark.parametrize(
    ("answer", "leave", "code"),
    [
        (hooks.Pin([hooks.Target("e2")], "it is needed"), [], "pinned_by_hook"),
        (hooks.Cancel("not today"), [], "cancelled_by_hook"),
        (hooks.Cancel("not today"), ["--leave-for", "e4"], "cancelled_by_hook"),
    ],
)
def test_a_hook_stops_a_summary(redline, connect, path, edited, answer, leave, code):
    connect(hooks.session_before_tree if leave else hooks.session_before_compact, lambda **_: answer)
    with unchanged(path):
        assert redline.call("summarise", path, *leave, "--text", edited, "--yes", "--json").refusal == f"2 {code}"


def test_a_hook_supplies_the_draft_and_no_model_is_asked(redline, provider, connect, path):
    connect(
        hooks.session_before_compact,
        lambda **_: hooks.SupplySummary("The notes of a hook.", "it knows", first_kept_id="e9"),
    )
    ended = redline.call("summarise", path, "--model", "scripted/refuses", "--json")
    assert ended.json["draft"] == "The notes of a hook.", ended
    assert ended.json["usage"] is None
    assert (ended.json["firstKept"], ended.json["replaced"][-1]) == ("e9", "e8")


@pytest.mark.parametrize("leave", [[], ["--leave-for", "e4"]])
@pytest.mark.parametrize("is_drafted", [True, False])
def test_what_a_hook_supplied_beside_its_text_is_appended_too(redline, connect, path, edited, leave, is_drafted):
    supplied = hooks.SupplySummary("The notes.", "it knows", read_files=("a.py",), first_kept_id="" if leave else "e9")
    answers = iter([supplied])
    connect(hooks.session_before_tree if leave else hooks.session_before_compact, lambda **_: next(answers, None))
    if is_drafted:
        drafted = redline.call("summarise", path, *leave, "--json").json
        assert SummaryDraft.objects.get().pk == drafted["draftNumber"]
    redline.call("summarise", path, *leave, "--text", edited, "--yes", "--json").ok()
    recorded = json.loads(path.read_bytes().splitlines()[-1])
    assert recorded["summary"] == "We look at the cache.\n\n<read-files>\na.py\n</read-files>"
    assert (recorded["fromHook"], recorded["details"]["readFiles"]) == (True, ["a.py"])
    assert recorded.get("firstKeptEntryId") == (None if leave else "e9")
    found = [(one.state, one.text.strip(), one.appended_id) for one in SummaryDraft.objects.all()]
    assert found == ([("appended", "We look at the cache.", recorded["id"])] if is_drafted else [])


def test_a_hook_changes_the_focus(redline, provider, connect, path):
    plain = redline.call("summarise", path, "--leave-for", "e4", "--model", MODEL, "--json")
    connect(hooks.session_before_tree, lambda **_: hooks.Adjust(focus="the import paths of every module"))
    focused = redline.call("summarise", path, "--leave-for", "e4", "--model", MODEL, "--json")
    assert plain.json["draft"] != focused.json["draft"], "the scripted model counts the words that were sent"


def test_hooks_learn_of_a_summary_that_was_appended(redline, connect, path, edited):
    received: list[str] = []
    connect(hooks.session_compact, lambda *, summary, **_: received.append(summary))
    redline.call("summarise", path, "--text", edited, "--yes", "--json")
    assert received == [json.loads(path.read_bytes().splitlines()[-1])["summary"]]


def test_a_draft_that_cannot_be_saved_after_all_is_in_the_error(redline, provider, connect, path, tmp_path):
    directory = tmp_path / "drafts"
    directory.mkdir()
    connect(hooks.session_before_compact, lambda **_: directory.rmdir())
    ended = redline.call("summarise", path, "--model", MODEL, "--save", directory / "draft.md", "--json")
    assert not missing(ended.json["error"]["message"], "The draft was not saved.", "## Goal")
