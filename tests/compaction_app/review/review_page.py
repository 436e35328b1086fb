"""The review page of a run, as a browser without script or with htmx uses it."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.test import Client

from compaction_app.core.states import RunState
from compaction_app.models import Run
from compaction_app.review.lines import ref_of, target_of
from compaction_app.runs.reviews import review_of, reviewed
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Target
from tests.factories import session_bytes
from tests.files import backdate
from tests.html import Source, elements, values
from tests.runs import plan_session

HTMX = {"hx-request": "true"}


def planned(root: Path, recorded: list[Any], **parameters: object) -> Run:
    """A run of the embedded planner on this session, written as `work.jsonl`."""
    path = root / "work.jsonl"
    path.write_bytes(session_bytes(recorded))
    return planned_again(index_file(backdate(path)), **parameters)


def planned_again(session: Session, **parameters: object) -> Run:
    run = plan_session(session, **parameters)
    assert run.state in (RunState.TARGET_MET, RunState.BELOW_TARGET), run.failure
    return run


def leads(run: Run) -> list[Target]:
    return [item.target for item in review_of(run).leads()]


def version(run: Run) -> int:
    return reviewed(run).version


def page(browser: Client, run: Run, query: str = "") -> Any:
    answer = browser.get(f"/plans/{run.pk}{query}")
    assert answer.status_code == 200
    return answer


def post(browser: Client, run: Run, in_place: bool = False, **values: object) -> Any:
    """Press a button of the review, on a page that shows its latest version, or another one that is `seen`."""
    pressed = {"seen": version(run), **values}
    return browser.post(f"/plans/{run.pk}/decide", pressed, headers=HTMX if in_place else {})


def opened(browser: Client, run: Run, target: Target) -> Any:
    """The page with one proposal folded open."""
    return page(browser, run, f"?at={quote(ref_of(target), safe='')}")


def everything(run: Run, kind: str = "approve") -> dict[str, Any]:
    """The button and the ticks that decide on every proposal."""
    return {f"{kind}_picked": "1", "pick": [ref_of(target) for target in leads(run)]}


def extent(source: Source) -> dict[str, list[str]]:
    """The fields of a page that say which part of the review it shows."""
    return {name: values(source, name) for name in ("rows", "opened", "groups", "open")}


def shown_entries(source: Source) -> list[str]:
    """The ids of the entries whose proposals are drawn."""
    keys = [str(one.attributes["data-key"]) for one in elements(source, "li[data-key]")]
    return [target.entry_id for key in keys if (target := target_of(key)) is not None]


def group_keys(source: Source) -> list[str]:
    return [str(one.attributes["data-key"]) for one in elements(source, "section[data-key]")]
