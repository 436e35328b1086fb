"""One number for a context: the list, the session, the form, the run, the last look, the result, and the API agree."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import approval, commit_run, preflight_of
from compaction_app.commit.units import account_of
from compaction_app.core.decisions import Kind
from compaction_app.models import Compaction, Run
from compaction_app.runs.reviews import decide, review_of
from devtools.bench.sessions import generate, write_session
from redline.configuration import RootSetting
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import configured_roots
from sessions_app.models import Session
from tests.html import elements
from tests.installation import Installation
from tests.paths import corpus
from tests.runs import plan_session

GENERATED = "generated.jsonl"
ALL = Confirmations(live=True, switch_branch=True, not_honoured=True, below_target=True, after_torn_line=True)


def recorded_sessions() -> list[str]:
    """The names of all real sessions; without any, that of a generated one."""
    directory = corpus()
    if directory is None:
        return [GENERATED]
    return sorted(str(path.relative_to(directory)) for path in directory.glob("*/*.jsonl"))


def copied(name: str, root: Path) -> Path:
    directory, path = corpus(), root / Path(name).name
    if directory is None:
        write_session(path, generate(entries=400, entry_bytes=900, seed=7))
    else:
        shutil.copyfile(directory / name, path)
    return path


@pytest.fixture
def root(tmp_path: Path, settings: Any, redline: Installation) -> Path:
    directory = tmp_path / "shown"
    directory.mkdir()
    settings.REDLINE = settings.REDLINE.model_copy(
        update={"roots": [RootSetting(path=directory)], "live_minutes": 0}
    )
    configured_roots()
    return directory


def numbers(browser: Client, address: str) -> set[int]:
    """The sizes of a context that a page shows."""
    answer = browser.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return {int(found.attributes["value"] or 0) for found in elements(answer, "data[value]")}


def plan(session: Session) -> Run:
    """A reviewed run: half of its proposals are approved, one is rejected."""
    run = plan_session(session)
    leads = list(review_of(run).leads())
    chosen = [item.target for item in leads[: max(1, len(leads) // 2)]]
    decide(run, Kind.APPROVE, chosen, timezone.now())
    if len(leads) > 1:
        decide(run, Kind.REJECT, [leads[-1].target], timezone.now())
    return run


@pytest.mark.parametrize("name", recorded_sessions())
def test_all_pages_of_one_walk_agree(browser: Client, redline: Installation, root: Path, name: str) -> None:
    path = copied(name, root)
    session = index_file(path)
    size = session.context_size
    assert size is not None
    listed = browser.get("/api/sessions").json()
    assert [one["contextTokens"] for one in listed["sessions"]] == [size.tokens]
    here = session.get_absolute_url()
    for address in ("/", here, f"{here}/compact", f"{here}/timeline"):
        assert numbers(browser, address) == {size.tokens}, address
    assert redline.call("context", path, "--json").json["tokens"] == size.tokens

    if session.read_only or session.is_old or not session.has_header:
        return
    run = plan(session)
    assert run.context_size == size
    assert numbers(browser, reverse("compaction:runs")) == {size.tokens}
    account = account_of(run)
    assert account.struck == size.tokens - account.after.tokens
    assert numbers(browser, reverse("compaction:commit", args=(run.pk,))) == {
        size.tokens,
        account.after.tokens,
    }
    commit_run(run, ALL, preflight_of(approval(run), timezone.now()).digest(), timezone.now())
    compaction = Compaction.objects.get(run=run)
    assert numbers(browser, reverse("compaction:result", args=(run.pk,))) == {
        size.tokens,
        account.after.tokens,
    }
    written = Session.objects.exclude(pk=session.pk).get() if compaction.created else Session.objects.get()
    assert written.context_size is not None
    assert written.context_size.tokens == account.after.tokens
    assert written.context_size.ratio == size.ratio, "the same measure"
