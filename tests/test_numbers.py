"""One number for a context: the list, the session, the form, the run, the last look, the result, and the API agree."""

import shutil
from pathlib import Path

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval, commit
from compaction_app.core.groups import Grouping
from compaction_app.core.review_fold import Kind
from compaction_app.models import Compaction, Run
from compaction_app.pages.commit import view_commit
from compaction_app.pages.review.presenter import ReviewDesk
from compaction_app.review.account import ReviewAccount, account_of
from compaction_app.review.grouped_review import ReviewFilter
from compaction_app.runs.reviews import decide, review_of
from devtools.bench.sessions import generate, write_session
from redline.configuration import RootSetting
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import configured_roots
from sessions_app.models import Session
from sessions_app.sessionlog.context import ContextSize, significant
from tests.budget import some
from tests.html import Source, elements
from tests.installation import Installation
from tests.paths import corpus
from tests.runs import plan_session

GENERATED = "generated.jsonl"
GOES = {"approved", "goes_with_pair", "narrowed"}
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
def root(tmp_path, settings, redline):
    directory = tmp_path / "shown"
    directory.mkdir()
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": [RootSetting(path=directory)], "live_minutes": 0})
    configured_roots()
    return directory


def numbers(browser: Client, address: str) -> set[int]:
    """The sizes of a context that a page shows."""
    return values(page(browser, address), "data[title]")


def page(browser: Client, address: str) -> HttpResponse:
    answer = browser.get(address, headers={"HX-Request": "true"} if "part=" in address else {})
    assert answer.status_code == 200, (address, answer.status_code)
    assert isinstance(answer, HttpResponse)
    return answer


def values(source: Source, css: str) -> set[int]:
    return {int(found.attributes["value"] or 0) for found in elements(source, css)}


def value(source: Source, css: str) -> int:
    (found,) = values(source, css)
    return found


def near(one: int, other: int, size: ContextSize) -> bool:
    """Whether two numbers are the same, but for estimates that were whole tokens before they were converted."""
    return abs(one - other) <= 2 * size.ratio + 2


def plan(session: Session) -> Run:
    """A reviewed run: half of its proposals are approved, one is rejected."""
    run = plan_session(session)
    leads = list(review_of(run).leads())
    chosen = [item.target for item in leads[: max(1, len(leads) // 2)]]
    decide(run, Kind.APPROVE, chosen, timezone.now())
    if len(leads) > 1:
        decide(run, Kind.REJECT, [leads[-1].target], timezone.now())
    return run


@pytest.mark.parametrize("name", some(recorded_sessions(), every=7))
def test_all_pages_of_one_walk_agree(browser, redline, root, name):
    path = copied(name, root)
    session = index_file(path)
    size = session.context_size
    assert size is not None
    listed = browser.get("/api/sessions").json()
    assert [one["contextTokens"] for one in listed["sessions"]] == [size.tokens]
    here = session.get_absolute_url()
    for address in ("/", here, f"{here}/compact", f"{here}/timeline"):
        assert numbers(browser, address) == {size.tokens}, address
    shown = redline.call("context", path, "--json").json
    assert (shown["tokens"], shown["measuredBy"]) == (size.tokens, "index")
    assert f"{size.shown:,} tokens" in redline.call("context", path).out
    assert f"{size.shown:,} /" in redline.call("sessions").out

    if session.read_only or session.is_old or not session.has_header:
        return
    goal = value(page(browser, f"{here}/compact"), "#keep-tokens data.red")
    dry = redline.call("compact", path, "--dry-run", "--json").json["tokens"]
    run = plan(session)
    run.refresh_from_db()
    assert run.context_size == size
    assert (dry["before"], dry["deleted"], dry["goal"]) == (size.tokens, run.struck, run.goal)
    assert near(goal, run.goal, size)
    review_agrees(browser, run, size)
    log, inbox = page(browser, f"{run.get_absolute_url()}/log"), page(browser, reverse("compaction:runs"))
    for css, expected in (("data[title]", size.tokens), ("data.red", run.struck)):
        assert value(log, f".sum__now {css}") == expected
        assert value(inbox, css) == expected
    account = account_of(run)
    assert account.struck == size.tokens - account.after.tokens
    commit_page_agrees(browser, account)
    promised = view_commit(run, timezone.now())
    assert promised["plan"].present.state.size == path.stat().st_size
    exports_agree(browser, redline, account)

    commit(approval(run), ALL, timezone.now())
    compaction = Compaction.objects.get(run=run)
    if promised["plan"].writer.appends:
        assert promised["file_bytes_after"] == path.stat().st_size
    result = page(browser, reverse("compaction:result", args=(run.pk,)))
    assert values(result, "data[title]") == {size.tokens, account.after.tokens}
    tables_agree(result, account)
    assert value(page(browser, reverse("compaction:runs")), "data.red") == account.struck
    found = browser.get(reverse("compaction:api_run", args=(run.pk,))).json()
    assert (found["context"]["tokens"], found["deleted"]) == (size.tokens, account.struck)
    written = Session.objects.exclude(pk=session.pk).get() if compaction.created else Session.objects.get()
    assert written.context_size is not None
    assert written.context_size.tokens == account.after.tokens
    assert written.context_size.ratio == size.ratio, "the same measure"
    shown = redline.call("context", written.path, "--json").json
    assert (shown["tokens"], shown["measuredBy"]) == (account.after.tokens, "index")


def review_agrees(browser: Client, run: Run, size: ContextSize) -> None:
    """In each grouping what the buttons of the groups would approve, less what they share, adds up to the bar.

    That each number is what its button does is proven in `compaction_app/review/test_decision_numbers.py`.
    """
    here = reverse("compaction:review", args=(run.pk,))
    summary = ReviewDesk(run).summary
    assert near(summary.tokens.goal, run.goal, size)
    assert summary.context == size
    for by in Grouping:
        shown = page(browser, f"{here}?by={by}&open=none&more=1")
        assert values(shown, ".plan-head__sum data[title]") == {size.tokens}
        bar = [int(one.attributes["value"] or 0) for one in elements(shown, ".plan-head__sum data.red")]
        assert bar[0] == summary.tokens.approved
        assert set(bar[1:]) <= {summary.tokens.planned, summary.tokens.goal}
        rows = [one for one in elements(shown, ".group__row") if one.css("[name=approve_group]")]
        together = sum(value(row, ".group__tokens data") for row in rows) - ReviewDesk(run, ReviewFilter(by=by)).overlap
        assert together + summary.tokens.approved == pytest.approx(summary.tokens.planned, abs=len(rows) + 1)


def commit_page_agrees(browser: Client, account: ReviewAccount) -> None:
    before, after = account.before.tokens, account.after.tokens
    shown = page(browser, reverse("compaction:commit", args=(account.run.pk,)))
    assert values(shown, "data[title]") == {before, after}
    assert value(shown, "h1 .red data") == account.struck
    tables_agree(shown, account)
    for rows in (account.kinds, account.tools):
        assert sum(row.before for row in rows) == before
        assert sum(row.stays for row in rows) == after


def tables_agree(shown: HttpResponse, account: ReviewAccount) -> None:
    """Every table adds up to its last row: everything that is struck, or of the largest and the bulk a part of it."""
    totals = []
    for table in elements(shown, "table.table"):
        if not table.css("tfoot data.red"):
            continue
        totals.append(value(table, "tfoot data.red"))
        rows = [int(one.attributes["value"] or 0) for one in elements(table, "tbody data.red")]
        assert sum(rows) == totals[-1]
    assert totals.count(account.struck) >= 2, "by kind, and by tool or reason"
    assert max(totals) == account.struck


def exports_agree(browser: Client, redline: Installation, account: ReviewAccount) -> None:
    run = account.run
    found = browser.get(reverse("compaction:review_json", args=(run.pk,))).json()
    assert found == redline.call("review", run.pk, "--json").json
    tokens = found["tokens"]
    assert (tokens["before"], tokens["struck"], tokens["after"]) == (
        account.before.tokens,
        account.struck,
        account.after.tokens,
    )
    for rows in (found["kinds"], found["tools"]):
        assert sum(row["struck"] for row in rows) == account.struck
        assert sum(row["before"] for row in rows) == account.before.tokens
    goes = [one["tokens"] for one in found["proposals"] if one["status"] in GOES]
    assert sum(goes) == account.struck
    written = page(browser, reverse("compaction:review_markdown", args=(run.pk,))).content.decode()
    assert written == redline.call("review", run.pk).out
    total = f"| All | {account.before.shown:,} | {significant(account.struck):,} | {account.after.shown:,} |"
    assert written.count(total) == 2, "by kind and by tool"
    assert f"| All {len(goes):,} | {significant(account.struck):,} |" in written
