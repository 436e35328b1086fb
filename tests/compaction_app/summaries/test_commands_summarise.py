"""`redline summarise`: a draft appends nothing, and what is appended is what was read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_app.models import AuditEntry, PlannerModel, Provider
from devtools.scripted.server import ScriptedProvider
from tests.factories import session_bytes
from tests.files import backdate, place
from tests.installation import Installation

from .test_summary_task import work

MODEL = "scripted/good-plan"


@pytest.fixture
def path(redline: Installation) -> Path:
    placed = redline.home / ".pi" / "agent" / "sessions" / "s.jsonl"
    place(placed, session_bytes(work(turns=8)))
    return backdate(placed)


@pytest.fixture(params=["anthropic", "openai"])
def provider(redline: Installation, request: pytest.FixtureRequest) -> Iterator[ScriptedProvider]:
    del redline
    with ScriptedProvider() as scripted:
        Provider.objects.create(
            name="scripted", dialect=request.param, base_url=scripted.base_url(request.param)
        )
        for name in ("good-plan", "refuses", "overflow"):
            PlannerModel.objects.create(provider="scripted", name=name, window=100_000, output_limit=8_000)
        yield scripted


def test_a_draft_is_shown_and_saved_and_nothing_is_appended(
    redline: Installation, provider: ScriptedProvider, path: Path, tmp_path: Path
) -> None:
    before, saved = path.read_bytes(), tmp_path / "draft.md"
    ended = redline.call("summarise", path, "--model", MODEL, "--save", saved)
    assert ended.code == 0, ended.err
    assert "## Goal" in ended.out
    assert "This is a draft. Nothing was appended." in ended.out
    assert f"--text={saved}" in ended.out
    assert saved.read_text().startswith("## Goal")
    assert path.read_bytes() == before


def test_what_is_appended_is_the_edited_text(redline: Installation, path: Path, tmp_path: Path) -> None:
    edited = tmp_path / "edited.md"
    edited.write_text("We look at the cache.\n")
    ended = redline.call("summarise", path, "--text", edited, "--yes", "--json")
    assert ended.code == 0, ended
    recorded = json.loads(path.read_bytes().splitlines()[-1])
    assert recorded["type"] == "compaction"
    assert recorded["id"] == ended.json["entry"]
    assert recorded["summary"].startswith("We look at the cache.\n\n<read-files>")
    assert AuditEntry.objects.get().action == AuditEntry.Action.SUMMARY


def test_without_a_confirmation_nothing_is_appended(
    redline: Installation, path: Path, tmp_path: Path
) -> None:
    before, edited = path.read_bytes(), tmp_path / "edited.md"
    edited.write_text("We look at the cache.\n")
    ended = redline.call("summarise", path, "--text", edited, "--json")
    assert (ended.code, ended.error) == (5, "not_confirmed")
    assert path.read_bytes() == before


def test_a_branch_is_left_with_its_summary(redline: Installation, path: Path, tmp_path: Path) -> None:
    edited = tmp_path / "edited.md"
    edited.write_text("The other way failed.\n")
    ended = redline.call("summarise", path, "--leave-for", "e4", "--text", edited, "--yes", "--json")
    assert ended.json["kind"] == "branch", ended
    recorded = json.loads(path.read_bytes().splitlines()[-1])
    assert (recorded["type"], recorded["parentId"]) == ("branch_summary", "e4")


@pytest.mark.parametrize(("script", "code"), [("refuses", "no_summary"), ("overflow", "overflow")])
def test_a_model_that_writes_none_is_a_failure(
    redline: Installation, provider: ScriptedProvider, path: Path, script: str, code: str
) -> None:
    before = path.read_bytes()
    ended = redline.call("summarise", path, "--model", f"scripted/{script}", "--json")
    assert (ended.code, ended.error) == (6, code)
    assert path.read_bytes() == before


def test_without_a_model_nothing_is_sent(redline: Installation, path: Path) -> None:
    ended = redline.call("summarise", path, "--json")
    assert (ended.code, ended.error) == (2, "no_model")


def test_a_text_that_is_no_text_is_refused(redline: Installation, path: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"\xff\xfe")
    ended = redline.call("summarise", path, "--text", wrong, "--yes", "--json")
    assert (ended.code, ended.error) == (2, "not_utf8")
