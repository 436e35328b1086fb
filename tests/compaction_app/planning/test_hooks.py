"""Hooks run before a plan and after a commit, are never skipped, and cannot get around the airlock."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app import hooks
from compaction_app.checks import check_hooks, check_hooks_connect
from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import commit
from compaction_app.core.decisions import Kind
from compaction_app.core.review_fold import ReviewStatus
from compaction_app.core.states import RunState
from compaction_app.hooks import (
    AFTER,
    AFTER_TREE,
    BEFORE,
    BEFORE_TREE,
    SIGNALS,
    Cancel,
    HookSignal,
    Pin,
    Supply,
    SupplySummary,
    Target,
    load_hooks,
    session_before_compact,
    session_compact,
)
from compaction_app.models import Compaction, Decision, Proposal, Run
from compaction_app.planning.hook_runner import PINNED_SEQ
from compaction_app.runs.commands import plan_again, resume_run, start_run, stop_run
from compaction_app.runs.heartbeat import Terminated
from compaction_app.runs.lease import worker_name
from compaction_app.runs.reviews import decide, review_of, undo
from compaction_app.runs.worker import work
from redline.configuration import FILE_NAME, load, sources
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.web.server_log import kept_log
from tests.browser.scenarios import approve_everything, finished_run
from tests.factories import assistant, call, chain, result, session_bytes, user, whole, working_session
from tests.files import backdate, place
from tests.html import active_markup, elements, text_of, texts
from tests.installation import Installation, override_configuration, refusal
from tests.paths import PROJECT
from tests.plans import approved_plan
from tests.runs import finish_run, plan_session
from tests.server import start_server
from tests.wait import wait_until

EXAMPLE = "compaction_app.examples.pin_labelled"
DOCUMENT = (PROJECT / "docs" / "hooks.md").read_text(encoding="utf-8")
NOT_THERE = "hooks_that_nobody_wrote"
HOOK = f"{__name__}.connect_answer.<locals>.hook"
"""The name of a hook that `connect_answer` connects."""


def label(entry_id: str, name: object = "keep") -> dict[str, Any]:
    """A label of an entry, for `chain`."""
    named = {} if name is None else {"label": name}
    return {"type": "label", "targetId": entry_id, **named}


def labelled(*labels: dict[str, Any]) -> list[dict[str, Any]]:
    """A session with much to delete, and these labels at its end."""
    session = working_session()
    added = chain(*([user("x")] * (len(session) - 1)), *labels)[len(session) :]
    added[0]["parentId"] = session[-1]["id"]
    return [*session, *added]


@pytest.fixture(autouse=True)
def restored_receivers() -> Iterator[None]:
    """Disconnects after each test what it connected."""
    usual = [(signal, list(signal.receivers)) for signal in SIGNALS]
    yield
    for signal, receivers in usual:
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()
    load_hooks([])


def connect(hook: Callable[..., object], **options: Any) -> None:
    """Connect a hook to which there is no other reference."""
    session_before_compact.connect(hook, weak=False, **options)


def connect_answer(answer: object) -> None:
    """Connect a hook that always returns this answer."""

    def hook(**sent: Any) -> object:
        return answer

    connect(hook)


def connect_example() -> None:
    from compaction_app.examples.pin_labelled import keep_what_is_labelled

    session_before_compact.connect(keep_what_is_labelled)


@pytest.fixture
def session(known_root: Path) -> Session:
    path = known_root / "work.jsonl"
    path.write_bytes(session_bytes(working_session()))
    return index_file(backdate(path))


def hook_messages(run: Run) -> list[str]:
    return [event.data["text"] for event in run.events.filter(kind="hooked").order_by("seq")]


def proposed(run: Run) -> set[str]:
    return set(run.proposals.values_list("entry_id", flat=True))


def deleted(ended: Any) -> set[str]:
    """The entries of which `compact --json` deletes something."""
    return {target["entryId"] for target in ended.json["deletedTargets"]}


# ---- the example, as a user switches it on ---------------------------------------------------------------


def test_the_example_keeps_labelled_entries_through_run_review_and_commit(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    path = place(root / "s.jsonl", session_bytes(working_session()))
    with start_server(tmp_path, roots=root, REDLINE_HOOKS=EXAMPLE) as server:
        address = server.session("Mend the parser.")
        page = finished_run(server, address)
        victim = str(elements(server.get(f"{page}/review"), "li[data-key]")[-1].attributes["data-key"])
        labels = labelled(label(victim))
        backdate(place(path, session_bytes(labels)))
        server.wait_for(lambda: "label" in text_of(server.get(address)))
        kept = finished_run(server, address)
        pinned = f"1 object pinned by {EXAMPLE}.keep_what_is_labelled: it has a label."
        assert pinned in text_of(server.get(kept))
        review = text_of(server.get(f"{kept}/review?at={victim}"))
        assert "pinned by a hook" in review
        assert f"{EXAMPLE}.keep_what_is_labelled: it has a label" in review
        approve_everything(server, kept)
        server.post(f"{kept}/commit", f"{kept}/commit", yes="below_target")
    written = json.loads(path.read_bytes().splitlines()[-1])
    assert written["type"] == "context_compaction"
    gone = {target["entryId"] for target in written["deletedTargets"]}
    assert gone
    assert victim not in gone


def test_the_example_is_enabled_in_the_file_and_applies_to_the_command_line(fresh: Installation) -> None:
    path = place(fresh.sessions / "s.jsonl", session_bytes(labelled(label("e3"), label("e5"))))
    without = fresh.run("compact", path, "--ratio", "0.05", "--dry-run", "--json")
    assert {"e3", "e5"} <= deleted(without)
    assert without.json["hooks"] == []
    (fresh.data / FILE_NAME).write_text(f'hooks = ["{EXAMPLE}"]\n')
    shown = fresh.run("compact", path, "--ratio", "0.05", "--dry-run").out
    assert f"Hook: 2 objects pinned by {EXAMPLE}.keep_what_is_labelled: it has a label.\n" in shown
    kept = fresh.run("compact", path, "--ratio", "0.05", "--allow-below-target", "--yes", "--json")
    assert kept.code == 0, kept
    assert deleted(kept)
    assert deleted(kept).isdisjoint({"e3", "e5"})
    assert kept.json["hooks"] == [f"2 objects pinned by {EXAMPLE}.keep_what_is_labelled: it has a label."]


@pytest.mark.parametrize(
    ("labels", "stays"),
    [
        ([label("e3")], True),
        ([label("e3"), label("e3", "other")], True),
        ([label("e3"), label("e3", "")], False),
        ([label("e3"), label("e3", None)], False),
        ([label("e3"), label("e3", ""), label("e3", "again")], True),
        ([label("gone")], False),
        ([label("e3", 7), {"type": "label"}, label([1], "x")], False),
    ],
)
def test_the_latest_label_counts(redline: Installation, labels: list[dict[str, Any]], stays: bool) -> None:
    connect_example()
    path = place(redline.sessions / "s.jsonl", session_bytes(labelled(*labels)))
    ended = redline.call("compact", path, "--ratio", "0.05", "--dry-run", "--json")
    assert ("e3" not in deleted(ended)) is stays, ended


def test_a_label_set_on_another_branch_counts(redline: Installation) -> None:
    connect_example()
    elsewhere = labelled(label("e3"))
    back = {**elsewhere[-2], "id": "back", "parentId": elsewhere[-2]["id"]}
    path = place(redline.sessions / "s.jsonl", session_bytes([*elsewhere, back]))
    ended = redline.call("compact", path, "--ratio", "0.05", "--dry-run", "--json")
    assert deleted(ended)
    assert "e3" not in deleted(ended)


# ---- the documents ---------------------------------------------------------------------------------------


def table_of(heading: str) -> dict[str, str]:
    section = DOCUMENT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line[:1] == "|"
    ]
    return {name.strip("`"): meaning for name, meaning in rows[2:]}


def test_the_document_lists_the_arguments(session: Session) -> None:
    assert table_of("Arguments of `session_before_compact`") == dict(BEFORE)
    assert table_of("Arguments of `session_compact`") == dict(AFTER)
    assert table_of("Arguments of `session_before_tree`") == dict(BEFORE_TREE)
    assert table_of("Arguments of `session_tree`") == dict(AFTER_TREE)
    seen: list[set[str]] = []
    connect(lambda **sent: seen.append(set(sent)))
    session_compact.connect(lambda **sent: seen.append(set(sent)), weak=False)
    run = plan_session(session)
    assert seen == [{"signal", "sender", *BEFORE}]
    commit(
        approved_plan(Path(session.root.path) / session.relative_path),
        Confirmations(live=True),
        timezone.now(),
    )
    assert seen[-1] == {"signal", "sender", *AFTER}
    assert run.state == RunState.TARGET_MET


def test_the_document_names_every_answer_and_check() -> None:
    for name in [*hooks.__all__, "redline.E002", "redline.W005", EXAMPLE]:
        assert name in DOCUMENT, name


@pytest.fixture
def written_as_documented(fresh: Installation, tmp_path: Path) -> dict[str, str]:
    """The environment of a user who wrote the module that the document shows."""
    module = re.search(r'```python\n("""my_hooks.py""".*?)```', DOCUMENT, re.DOTALL)
    assert module is not None
    place(tmp_path / "own" / "my_hooks.py", module[1].encode())
    return {"REDLINE_HOOKS": "my_hooks", "PYTHONPATH": str(tmp_path / "own")}


def test_the_documented_module_does_what_the_document_says(
    fresh: Installation, written_as_documented: dict[str, str]
) -> None:
    session = working_session()
    session[3]["message"]["content"][0]["text"] += " DECISION"
    path = place(fresh.sessions / "s.jsonl", session_bytes(session))
    ended = fresh.run(
        "compact", path, "--ratio", "0.1", "--yes", "--allow-below-target", "--json", **written_as_documented
    )
    assert ended.code == 0, ended
    assert ended.json["hooks"] == ["1 object pinned by my_hooks.keep_decisions: it says DECISION."]
    assert "e3" not in deleted(ended)
    silent = place(fresh.sessions / "silent.jsonl", session_bytes(working_session()))
    assert fresh.run("compact", silent, "--dry-run", "--json", **written_as_documented).json["hooks"] == []
    notes = (fresh.home / "compactions.txt").read_text()
    assert notes == f"s.jsonl {ended.json['stats']['percentReduction']}%\n"

    release = place(fresh.sessions / "release-1.jsonl", session_bytes(session))
    refused = fresh.run("compact", release, "--dry-run", "--json", **written_as_documented)
    assert (refused.code, refused.error) == (2, "cancelled_by_hook")
    assert "my_hooks.keep_releases: sessions about releases stay whole" in refused.json["error"]["message"]

    listed = [
        user("Look."),
        assistant(call("c1", "ls"), call("c2")),
        result("c1", "a b " * 99, name="ls"),
        result("c2"),
        user("Go."),
        user("On."),
    ]
    path = place(fresh.sessions / "listed.jsonl", session_bytes(chain(*listed)))
    supplied = fresh.run("compact", path, "--dry-run", "--json", **written_as_documented)
    assert [target["entryId"] for target in supplied.json["deletedTargets"]] == ["e3", "e2"]
    assert supplied.json["reasons"] == [
        "supplied by my_hooks.delete_listings: it is a directory listing",
        "goes with the other side of its tool call",
    ]


# ---- configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("a.b", ["a.b"]),
        (" a.b , c ", ["a.b", "c"]),
        ('["a.b", "c"]', ["a.b", "c"]),
        ("", []),
        (",", []),
        ("[]", []),
    ],
)
def test_the_variable_accepts_names_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, names: list[str]
) -> None:
    monkeypatch.setenv("REDLINE_HOOKS", value)
    (tmp_path / FILE_NAME).write_text('hooks = ["other"]\n')
    found, faults = load(tmp_path)
    assert (found.hooks, faults) == (names, [])
    assert sources(tmp_path, faults)["hooks"] == ["REDLINE_HOOKS"]


@pytest.mark.parametrize("value", ['["a', "[1]", '[["a"]]'])
def test_an_invalid_variable_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("REDLINE_HOOKS", value)
    found, faults = load(tmp_path)
    assert found.hooks == []
    assert len(faults) == 1
    assert faults[0].startswith("hooks")


def test_a_module_that_cannot_be_imported_stops_every_command(fresh: Installation, tmp_path: Path) -> None:
    own = place(tmp_path / "own" / "broken.py", b"import os\n\nraise KeyError('no such thing')\n")
    path = place(fresh.sessions / "s.jsonl", session_bytes(working_session()))
    for name, message in [
        (NOT_THERE, f"No module named '{NOT_THERE}'"),
        ("broken", f"KeyError: 'no such thing' ({own}, line 3)"),
        ('[""]', "(without a name)"),
        ("..up", "TypeError"),
    ]:
        ended = fresh.run("compact", path, "--yes", "--json", REDLINE_HOOKS=name, PYTHONPATH=str(own.parent))
        assert (ended.code, ended.error) == (2, "bad_configuration"), ended
        assert "redline.E002" in ended.json["error"]["message"]
        assert message in ended.json["error"]["message"]
    assert path.read_bytes() == session_bytes(working_session())


def test_a_module_that_connects_nothing_is_a_warning(fresh: Installation, tmp_path: Path) -> None:
    own = place(tmp_path / "own" / "idle.py", b"import compaction_app.hooks\n")
    place(own.with_name("busy.py"), b"import compaction_app.examples.pin_labelled\n")
    names = f"idle,busy,{EXAMPLE}"
    ended = fresh.run("sessions", "--json", REDLINE_HOOKS=names, PYTHONPATH=str(own.parent))
    assert (ended.code, ended.json) == (0, [])
    assert ended.err.count("redline.W005") == 1
    assert "The hook idle connects no receiver." in ended.err


def test_an_async_function_cannot_be_a_hook() -> None:
    async def later(**sent: Any) -> None: ...

    with pytest.raises(TypeError, match="later is async"):
        HookSignal().connect(later)


def test_a_module_that_exits_is_reported_and_ends_nothing(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path / "own" / "leaves_at_once.py", b"import sys\n\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    load_hooks(["leaves_at_once"])
    [found] = check_hooks(None)
    assert "SystemExit: 3" in found.msg
    assert "leaves_at_once.py, line 3" in found.msg
    run = plan_session(session)
    assert (run.state, "leaves_at_once" in run.failure) == (RunState.FAILED, True)


def test_a_hook_that_exits_fails_only_its_run(session: Session) -> None:
    def leaver(**sent: Any) -> None:
        sys.exit(3)

    connect(leaver)
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert "leaver failed (SystemExit). Nothing was planned" in run.failure


def test_a_plan_is_refused_if_a_hook_could_not_be_loaded(session: Session) -> None:
    load_hooks([NOT_THERE])
    assert [found.id for found in check_hooks(None)] == ["redline.E002"]
    assert check_hooks_connect(None) == []
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert NOT_THERE in run.failure
    assert not run.proposals.exists()


def test_the_settings_page_shows_the_hooks_in_force(browser: Client, known_root: Path) -> None:
    with override_configuration(hooks=["my_hooks"]):
        page = browser.get("/settings")
    (setting,) = [row for row in elements(page, "tbody tr") if text_of(row).startswith("hooks ")]
    assert "my_hooks" in text_of(setting)


# ---- asking ----------------------------------------------------------------------------------------------


def test_pins_add_up_and_the_first_plan_wins(session: Session) -> None:
    order: list[str] = []

    def hook(name: str, answer: object) -> None:
        connect(lambda **_: order.append(name) or answer)

    hook("silent", None)
    hook("one", Pin([Target("e3")], "first"))
    hook("two", Pin([Target("e3"), Target("e5")], "second"))
    hook("plan", Supply([whole("e7")], "enough"))
    hook("late", Cancel("too late"))
    run = plan_session(session)
    assert order == ["silent", "one", "two", "plan"]
    assert run.state == RunState.BELOW_TARGET
    assert [event.data["pinned"] for event in run.events.filter(kind="hooked").order_by("seq")] == [1, 1, 0]
    assert set(review_of(run).pins) == {Target("e3"), Target("e5")}


def test_hooks_receive_what_will_be_planned(session: Session) -> None:
    seen: dict[str, Any] = {}
    connect(lambda **sent: seen.update(sent))
    run = plan_session(session)
    assert seen["path"] == Path(session.root.path) / session.relative_path
    assert seen["session"] == session
    assert [entry.id for entry in seen["branch"]] == [f"e{number}" for number in range(1, 28)]
    assert seen["loaded"].tree.leaf.id == "e27"
    assert seen["reason"] == "manual"
    assert seen["parameters"].query == "Now the tests."
    assert seen["preparation"].text(seen["preparation"].entry("e1")) == "Mend the parser."
    assert run.state == RunState.TARGET_MET


def test_a_cancelled_run_fails_with_the_reason_of_the_hook(session: Session) -> None:
    connect_answer(Cancel("not on a\nFriday"))
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert run.failure.startswith(f"Cancelled by {HOOK}: not on a Friday.")
    assert hook_messages(run) == [f"Cancelled by {HOOK}: not on a Friday."]
    assert not run.proposals.exists()


def test_a_hook_that_fails_is_named_and_nothing_is_planned(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[object] = []

    def protector(**sent: Any) -> None:
        raise KeyError("text of the session")

    connect(protector)
    connect(lambda **sent: later.append(sent))
    with kept_log(tmp_path) as log:
        run = plan_session(session)
    assert run.state == RunState.FAILED
    assert "protector failed (KeyError)" in run.failure
    assert "test_hooks" in run.failure
    assert later == []
    assert not run.proposals.exists()
    written = log.read_text()
    assert "in protector" in written
    assert "text of the session" not in written + run.failure


@pytest.mark.parametrize("answer", [True, [Target("e3")], "e3", {"deletions": []}, Pin])
def test_an_unknown_answer_fails_the_run(session: Session, answer: object) -> None:
    connect_answer(answer)
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert f"returned a {type(answer).__name__}" in run.failure
    assert not run.proposals.exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pin(["e3"]),  # type: ignore[list-item]
        lambda: Pin([Target(3)]),  # type: ignore[arg-type]
        lambda: Pin([Target("e3", True)]),
        lambda: Pin([whole("e3")]),  # type: ignore[list-item]
        lambda: Supply({"deletions": []}),  # type: ignore[arg-type]
        lambda: Supply([]),
        lambda: Cancel(None),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_answer_is_refused_when_it_is_created(make: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


def test_a_failing_hook_fails_the_command_with_an_explanation(redline: Installation) -> None:
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))

    def protector(**sent: Any) -> None:
        raise ValueError

    connect(protector)
    ended = redline.call("compact", path, "--yes", "--json")
    assert (ended.code, ended.error) == (6, "hook_failed")
    assert "protector" in ended.json["error"]["message"]
    assert path.read_bytes() == session_bytes(working_session())


# ---- a plan of a hook ------------------------------------------------------------------------------------


def test_a_supplied_plan_is_proposed_in_the_name_of_its_hook(session: Session) -> None:
    connect_answer(Supply([whole("e3"), whole("e5")], "read twice"))
    run = plan_session(session)
    rows = {row.entry_id: row for row in run.proposals.all()}
    assert {name: row.source for name, row in rows.items()} == {
        "e3": Proposal.Source.HOOK,
        "e5": Proposal.Source.HOOK,
        "e2": Proposal.Source.REPAIR,
        "e4": Proposal.Source.REPAIR,
    }
    assert rows["e3"].reason == f"supplied by {HOOK}: read twice"
    assert run.stats["objectsDeleted"] > 0
    assert not run.events.filter(kind="called").exists()
    assert run.events.order_by("seq").last().kind == "ended"  # type: ignore[union-attr]


def test_a_supplied_plan_that_the_airlock_refuses_fails_the_run(session: Session) -> None:
    connect_answer(Supply([whole("e3"), whole("e1")]))
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert "entry e1" in run.failure
    assert "hook was refused" in run.failure
    assert not run.proposals.exists()


def test_a_supplied_plan_is_bound_by_the_pins_of_other_hooks(session: Session) -> None:
    connect_answer(Pin([Target("e2")]))
    connect_answer(Supply([whole("e3")]))
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert not run.proposals.exists()


def test_a_supplied_plan_survives_being_carried_over(session: Session) -> None:
    connect_answer(Supply([whole("e3")], "read twice"))
    run = plan_session(session)
    decide(run, Kind.APPROVE, [Target("e3")], timezone.now())
    later = finish_run(plan_again(run))
    assert {row.entry_id: row.source for row in later.proposals.all()}["e3"] == Proposal.Source.HOOK
    assert later.proposals.count() == run.proposals.count()


# ---- pins of hooks ---------------------------------------------------------------------------------------


@pytest.fixture
def pinning(session: Session) -> Run:
    """A run with e3 pinned by a hook, which would be deleted otherwise."""
    assert "e3" in proposed(plan_session(session))
    connect_answer(Pin([Target("e3")], "dear to me"))
    run = plan_session(session)
    assert run.proposals.exists()
    return run


def test_pair_repair_leaves_what_a_hook_pinned(pinning: Run) -> None:
    assert proposed(pinning).isdisjoint({"e2", "e3"})
    review = review_of(pinning)
    assert review.items[Target("e3")].standing is ReviewStatus.REJECTED


def test_targets_that_stay_anyway_or_do_not_exist_are_counted_and_not_pinned(session: Session) -> None:
    connect_answer(Pin([Target("e1"), Target("e27"), Target("e3", 9), Target("nowhere"), Target("e4")]))
    run = plan_session(session)
    assert hook_messages(run) == [
        f"1 object pinned by {__name__}.connect_answer.<locals>.hook; 2 more stay anyway; 2 are not in the context."
    ]
    assert review_of(run).pins == (Target("e4"),)


def test_an_empty_pin_is_not_recorded(session: Session) -> None:
    connect_answer(Pin([], "it never finds any"))
    assert hook_messages(plan_session(session)) == []


def test_a_pin_of_targets_that_stay_anyway_counts_no_objects(session: Session) -> None:
    connect_answer(Pin([Target("e1"), Target("nowhere")]))
    assert hook_messages(plan_session(session)) == [
        f"Nothing more pinned by {HOOK}; 1 stays anyway; 1 is not in the context."
    ]


def test_undo_does_not_reach_the_pins_of_hooks(pinning: Run) -> None:
    assert undo(pinning, timezone.now()) is None
    first = next(iter(review_of(pinning).leads())).target
    decide(pinning, Kind.APPROVE, [first], timezone.now())
    step = undo(pinning, timezone.now())
    assert step is not None
    assert step.kind is Kind.APPROVE
    assert undo(pinning, timezone.now()) is None
    assert review_of(pinning).pins == (Target("e3"),)


def test_a_reviewer_can_reopen_a_pin_of_a_hook(browser: Client, pinning: Run) -> None:
    shown = browser.get(f"/runs/{pinning.pk}/review?at=e3")
    assert texts(shown, ".proposal__state").count("pinned by a hook") == 1
    assert "dear to me" in text_of(shown)
    browser.post(f"/runs/{pinning.pk}/decide", {"reopen": "e3", "seen": "0"})
    assert review_of(pinning).pins == ()
    decide(pinning, Kind.ADD, [Target("e3")], timezone.now())
    approved = review_of(pinning).approved
    assert approved is not None
    assert Target("e3") in approved.targets
    undo(pinning, timezone.now())
    undo(pinning, timezone.now())
    assert review_of(pinning).pins == (Target("e3"),)


def test_a_reopened_pin_stays_reopened_when_the_session_is_planned_again(pinning: Run) -> None:
    decide(pinning, Kind.REOPEN, [Target("e3")], timezone.now())
    later = finish_run(plan_again(pinning))
    assert "e3" in proposed(later)
    assert review_of(later).pins == ()
    last = finish_run(plan_again(later))
    assert "e3" in proposed(last)
    assert review_of(last).pins == ()


def test_planning_again_calls_the_hooks_again_and_duplicates_nothing(pinning: Run) -> None:
    decide(pinning, Kind.REJECT, [Target("e9")], timezone.now())
    later = finish_run(plan_again(pinning))
    assert set(review_of(later).pins) == {Target("e3"), Target("e9")}
    assert later.decisions.filter(seq=PINNED_SEQ).count() == 1
    session_before_compact.receivers.clear()
    session_before_compact.sender_receivers_cache.clear()
    last = finish_run(plan_again(later))
    assert review_of(last).pins == (Target("e9"),)
    assert not last.decisions.filter(seq=PINNED_SEQ).exists()


def test_a_resumed_run_calls_the_hooks_again_and_duplicates_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_answer(Pin([Target("e3"), Target("e5")], "dear to me"))
    run = plan_session(session)
    decide(run, Kind.REOPEN, [Target("e5")], timezone.now())
    Run.objects.filter(pk=run.pk).update(state=RunState.INTERRUPTED)
    run.refresh_from_db()
    resume_run(run)
    finish_run(run)
    assert run.state == RunState.TARGET_MET
    assert review_of(run).pins == (Target("e3"),)
    assert Decision.objects.filter(run=run, seq=PINNED_SEQ).count() == 1
    assert "e3" not in proposed(run)


def test_an_interrupted_run_is_resumed_with_its_pins(session: Session) -> None:
    def killed(**sent: Any) -> None:
        raise Terminated

    connect_answer(Pin([Target("e3")]))
    connect(killed, dispatch_uid="killed")
    run = start_run(session, planner="embedded", requested_parameters={})
    with pytest.raises(Terminated):
        work(run.pk, worker_name())
    session_before_compact.disconnect(dispatch_uid="killed")
    run.refresh_from_db()
    assert run.state == RunState.INTERRUPTED
    resume_run(run)
    assert finish_run(run).state == RunState.TARGET_MET
    assert review_of(run).pins == (Target("e3"),)


# ---- after the write ------------------------------------------------------------------------------------


def test_every_receiver_is_called_after_the_write_even_if_others_fail(
    redline: Installation, tmp_path: Path
) -> None:
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))
    received: list[dict[str, Any]] = []

    def failing(**sent: Any) -> None:
        raise ValueError("text of the session")

    def recording(**sent: Any) -> None:
        received.append({**sent, "bytes": path.read_bytes()})

    for hook in (failing, recording):
        session_compact.connect(hook, weak=False)
    with kept_log(tmp_path) as log:
        ended = redline.call("compact", path, "--yes", "--json")
    assert ended.code == 0, ended
    (sent,) = received
    (entry,) = sent["entries"]
    assert entry == json.loads(sent["bytes"].splitlines()[-1])
    assert entry["id"] == ended.json["entryId"]
    assert [target.to_json() for target in sent["result"].targets] == entry["deletedTargets"]
    assert sent["result"].parameters.preserve_recent == 2
    assert (sent["reason"], sent["from_hook"], sent["path"]) == ("manual", False, path)
    assert sent["backup"].read_bytes() == session_bytes(working_session())
    assert sent["created"] is None
    assert sent["session"] == Compaction.objects.get().session
    assert "failing failed after a compaction" in log.read_text()
    assert "text of the session" not in log.read_text()


def test_receivers_learn_that_a_hook_supplied_the_plan(redline: Installation) -> None:
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))
    received: list[bool] = []
    session_compact.connect(lambda **sent: received.append(sent["from_hook"]), weak=False)
    connect_answer(Supply([whole("e3")], "read twice"))
    ended = redline.call("compact", path, "--yes", "--allow-below-target", "--json")
    assert (ended.code, received) == (0, [True])
    assert deleted(ended) == {"e2", "e3"}
    (origin,) = [row for row in Compaction.objects.get().origins if row["entryId"] == "e3"]
    assert origin["tool"] == "hook"


def test_a_receiver_learns_the_new_session_of_a_fork(redline: Installation) -> None:
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))
    received: list[dict[str, Any]] = []
    session_compact.connect(lambda **sent: received.append(sent), weak=False)
    ended = redline.call("compact", path, "--yes", "--json", "--writer", "fork")
    assert ended.code == 0, ended
    (sent,) = received
    assert (sent["entries"], str(sent["created"])) == ([], ended.json["created"])


def test_no_receiver_is_called_if_nothing_was_written(redline: Installation) -> None:
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))
    received: list[object] = []
    session_compact.connect(lambda **sent: received.append(sent), weak=False)
    assert redline.call("compact", path, "--dry-run").code == 0
    path.touch()
    assert refusal(lambda: commit(approved_plan(path), Confirmations(), timezone.now())) == "5 session_live"
    assert received == []


def test_the_reason_of_a_hook_is_escaped_on_every_page(browser: Client, session: Session) -> None:
    connect_answer(Pin([Target("e3")], "<script>alert(1)</script>\u202e\x1b[2J"))
    run = plan_session(session)
    for address in (f"/runs/{run.pk}", f"/runs/{run.pk}/review?at=e3"):
        page = browser.get(address)
        assert "<script>alert(1)</script>" in text_of(page)
        assert active_markup(page) == []
        assert not set(page.content.decode()) & set("\x1b\u202e")


def test_a_pin_of_one_block_leaves_the_others_free(session: Session) -> None:
    """The text of e2 stays; its call may go with the result e3."""
    connect_answer(Pin([Target("e2", 0)]))
    run = plan_session(session)
    found = {Target(row.entry_id, row.block_index) for row in run.proposals.filter(entry_id__in=["e2", "e3"])}
    assert found == {Target("e2", 1), Target("e3")}


# ---- answers in the shape of agents' extensions, and a stop ----------------------------------------------


def test_a_plan_in_the_shape_of_an_extension_is_proposed(session: Session) -> None:
    connect_answer({"deletionRequest": {"deletions": [whole("e3"), whole("e5")]}})
    run = plan_session(session)
    assert proposed(run) == {"e2", "e3", "e4", "e5"}


def test_an_extension_cancels_with_an_object(session: Session) -> None:
    connect_answer({"cancel": True})
    run = plan_session(session)
    assert (run.state, run.failure.startswith(f"Cancelled by {HOOK}.")) == (RunState.FAILED, True)


@pytest.mark.parametrize("answer", [SupplySummary("It is mended."), {"compaction": {"summary": "Mended."}}])
def test_a_summary_is_no_plan_of_deletions(session: Session, answer: object) -> None:
    connect_answer(answer)
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert "Nothing was planned. It may return None, Pin, Supply or Cancel." in run.failure
    assert not run.proposals.exists()


def test_a_hook_can_look_at_whether_its_run_was_stopped(session: Session) -> None:
    seen: list[bool] = []

    def patient(*, stop: Callable[[], bool], **sent: Any) -> None:
        seen.append(stop())
        stop_run(Run.objects.get())
        wait_until(stop)
        seen.append(stop())

    connect(patient)
    run = plan_session(session)
    assert seen == [False, True]
    assert (run.state, run.proposals.count()) == (RunState.CANCELLED, 0)


def test_receivers_learn_the_parameters_of_the_plan(redline: Installation) -> None:
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))
    received: list[dict[str, Any]] = []
    session_compact.connect(lambda **sent: received.append(sent), weak=False)
    assert redline.call("compact", path, "--ratio", "0.4", "--yes", "--json").code == 0
    (sent,) = received
    assert sent["parameters"] == sent["result"].parameters
    assert (sent["parameters"].compression_ratio, sent["summary"]) == (0.4, None)
