"""Hooks run before a plan and after a commit, are never skipped, and cannot get around the airlock."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from compaction_app import hooks
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval, commit
from compaction_app.checks import check_hooks, check_hooks_connect
from compaction_app.core.review_fold import Kind, ReviewStatus
from compaction_app.core.states import RunState
from compaction_app.hooks import (
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
from compaction_app.runs.reviews import decide, review_of, undo
from compaction_app.runs.worker import work
from redline.configuration import FILE_NAME, load, sources
from sessions_app.index.indexer import index_file
from sessions_app.jobs.job import worker_name
from sessions_app.jobs.recorder import Terminated
from sessions_app.models import Session
from sessions_app.web.server_log import kept_log
from tests.factories import assistant, call, chain, result, session_bytes, user, whole, working_session
from tests.files import place
from tests.html import active_markup, elements, missing, text_of, texts
from tests.installation import override_configuration, refusal
from tests.paths import PROJECT
from tests.plans import approved_plan
from tests.runs import approve_proposals, failure_of, finish_run, plan_session
from tests.wait import wait_until

EXAMPLE = "compaction_app.examples.pin_labelled"
DOCUMENT = (PROJECT / "docs" / "hooks.md").read_text(encoding="utf-8")
NOT_THERE = "hooks_that_nobody_wrote"
pytestmark = pytest.mark.usefixtures("restored_receivers")
HOOK = f"{__name__}.connect_answer.<locals>.hook"
"""The name of a hook that `connect_answer` connects."""


def label(entry_id: str, name: object = "keep") -> dict[str, Any]:
    """A label of an entry, for `chain`."""
    return {"type": "label", "targetId": entry_id, **({} if name is None else {"label": name})}


def labelled(*labels: dict[str, Any]) -> list[dict[str, Any]]:
    """A session with much to delete, and these labels at its end."""
    session = working_session()
    added = chain(*([user("x")] * (len(session) - 1)), *labels)[len(session) :]
    added[0]["parentId"] = session[-1]["id"]
    return [*session, *added]


def connect(hook: Callable[..., object], **options: Any) -> None:
    """Connect a hook to which there is no other reference."""
    session_before_compact.connect(hook, weak=False, **options)


def heard(signal: HookSignal) -> list[dict[str, Any]]:
    """What a hook of this signal receives from now on."""
    received: list[dict[str, Any]] = []
    signal.connect(lambda **sent: received.append(sent), weak=False)
    return received


def connect_answer(answer: object) -> None:
    """Connect a hook that always returns this answer."""

    def hook(**sent: Any) -> object:
        return answer

    connect(hook)


def connect_example() -> None:
    # Importing it connects it.
    from compaction_app.examples.pin_labelled import keep_what_is_labelled

    session_before_compact.connect(keep_what_is_labelled)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A directory with modules of the user, which are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    monkeypatch.delitem(sys.modules, EXAMPLE, raising=False)
    before = set(sys.modules)
    yield tmp_path / "own"
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def why_not_planned(session: Session) -> str:
    """Why a run of the session fails without a proposal."""
    run = plan_session(session)
    assert not run.proposals.exists()
    return failure_of(run)


def hook_messages(run: Run) -> list[str]:
    return [event.data["text"] for event in run.events.filter(kind="hooked").order_by("seq")]


def proposed(run: Run) -> set[str]:
    return set(run.proposals.values_list("entry_id", flat=True))


def deleted(ended: Any) -> set[str]:
    """The entries of which `compact --json` deletes something."""
    return {target["entryId"] for target in ended.json["deletedTargets"]}


def test_the_example_keeps_labelled_entries_through_run_review_and_commit(browser, session):
    victim = plan_session(session).proposals.order_by("order")[0].entry_id
    path = place(session.real_path(), session_bytes(labelled(label(victim))))
    connect_example()
    kept = plan_session(index_file(path))
    pinned = f"1 object pinned by {EXAMPLE}.keep_what_is_labelled: it has a label."
    assert pinned in text_of(browser.get(f"/plans/{kept.pk}/log"))
    review = text_of(browser.get(f"/plans/{kept.pk}?at={victim}"))
    assert not missing(review, "pinned by a hook", f"{EXAMPLE}.keep_what_is_labelled: it has a label")
    approve_proposals(kept)
    commit(approval(kept), Confirmations(below_target=True), timezone.now())
    written = json.loads(path.read_bytes().splitlines()[-1])
    assert written["type"] == "context_compaction"
    gone = {target["entryId"] for target in written["deletedTargets"]}
    assert gone
    assert victim not in gone


def test_the_example_is_enabled_in_the_file_and_applies_to_the_command_line(redline):
    path = place(redline.sessions / "s.jsonl", session_bytes(labelled(label("e3"), label("e5"))))
    arguments = ("compact", path, "--ratio", "0.05")
    without = redline.call(*arguments, "--dry-run", "--json")
    assert {"e3", "e5"} <= deleted(without)
    assert without.json["hooks"] == []
    connect_example()
    shown = redline.call(*arguments, "--dry-run").out
    pinned = f"2 objects pinned by {EXAMPLE}.keep_what_is_labelled: it has a label."
    assert f"Hook: {pinned}\n" in shown
    # Only a new process reads the file.
    (redline.data / FILE_NAME).write_text(f'hooks = ["{EXAMPLE}"]\n')
    kept = redline.run(*arguments, "--allow-below-target", "--yes", "--json").ok()
    assert deleted(kept)
    assert deleted(kept).isdisjoint({"e3", "e5"})
    assert kept.json["hooks"] == [pinned]


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
def test_the_latest_label_counts_on_any_branch(redline, labels, stays):
    connect_example()
    here = labelled(*labels)
    back = {**here[-1 - len(labels)], "id": "back", "parentId": here[-1 - len(labels)]["id"]}
    for recorded in (here, [*here, back]):
        path = place(redline.sessions / "s.jsonl", session_bytes(recorded))
        ended = redline.call("compact", path, "--ratio", "0.05", "--dry-run", "--json")
        assert deleted(ended)
        assert ("e3" not in deleted(ended)) is stays, ended


def table_of(heading: str) -> dict[str, str]:
    section = DOCUMENT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {name.strip("`"): meaning for name, meaning in rows[2:]}


def arguments_of(signal: str) -> set[str]:
    """The arguments of a signal according to the document, with those of every signal."""
    return {"signal", "sender", *table_of(f"Arguments of `{signal}`")}


def test_the_document_lists_the_arguments_and_names_every_answer_and_check(session):
    seen: list[set[str]] = []
    connect(lambda **sent: seen.append(set(sent)))
    session_compact.connect(lambda **sent: seen.append(set(sent)), weak=False)
    run = plan_session(session)
    assert seen == [arguments_of("session_before_compact")]
    commit(approved_plan(Path(session.root.path) / session.relative_path), Confirmations(live=True), timezone.now())
    assert (seen[-1], run.state) == (arguments_of("session_compact"), RunState.TARGET_MET)
    for name in [*hooks.__all__, "redline.E002", "redline.W005", EXAMPLE]:
        assert name in DOCUMENT, name


def test_the_documented_module_does_what_the_document_says(redline, own):
    module = re.search(r'```python\n("""my_hooks.py""".*?)```', DOCUMENT, re.DOTALL)
    place(own / "my_hooks.py", module[1].encode())
    load_hooks(["my_hooks"])
    session = working_session()
    session[3]["message"]["content"][0]["text"] += " DECISION"
    path = place(redline.sessions / "s.jsonl", session_bytes(session))
    ended = redline.call("compact", path, "--ratio", "0.1", "--yes", "--allow-below-target", "--json").ok()
    assert ended.json["hooks"] == ["1 object pinned by my_hooks.keep_decisions: it says DECISION."]
    assert "e3" not in deleted(ended)
    silent = place(redline.sessions / "silent.jsonl", session_bytes(working_session()))
    assert redline.call("compact", silent, "--dry-run", "--json").json["hooks"] == []
    assert (redline.home / "compactions.txt").read_text() == f"s.jsonl {ended.json['stats']['percentReduction']}%\n"

    release = place(redline.sessions / "release-1.jsonl", session_bytes(session))
    ended = redline.call("compact", release, "--dry-run", "--json")
    assert ended.refused("my_hooks.keep_releases: sessions about releases are kept whole") == "2 cancelled_by_hook"

    listing = result("c1", "a b " * 99, name="ls")
    calls = assistant(call("c1", "ls"), call("c2"))
    listed = chain(user("Look."), calls, listing, result("c2"), user("Go."), user("On."))
    path = place(redline.sessions / "listed.jsonl", session_bytes(listed))
    supplied = redline.call("compact", path, "--dry-run", "--json")
    assert [target["entryId"] for target in supplied.json["deletedTargets"]] == ["e3", "e2"]
    assert supplied.json["reasons"] == [
        "supplied by my_hooks.delete_listings: it is a directory listing",
        "deleted with the other side of its tool call",
    ]


@pytest.mark.parametrize(
    ("value", "names"),
    [("a.b", "a.b"), (" a.b , c ", "a.b c"), ('["a.b", "c"]', "a.b c"), ("", ""), (",", ""), ("[]", "")],
)
def test_the_variable_accepts_names_or_json(tmp_path, monkeypatch, value, names):
    monkeypatch.setenv("REDLINE_HOOKS", value)
    (tmp_path / FILE_NAME).write_text('hooks = ["other"]\n')
    found, faults = load(tmp_path)
    assert (found.hooks, faults) == (names.split(), [])
    assert sources(tmp_path, faults)["hooks"] == ["REDLINE_HOOKS"]


@pytest.mark.parametrize("value", ['["a', "[1]", '[["a"]]'])
def test_an_invalid_variable_is_reported(tmp_path, monkeypatch, value):
    monkeypatch.setenv("REDLINE_HOOKS", value)
    found, faults = load(tmp_path)
    assert (found.hooks, len(faults)) == ([], 1)
    assert faults[0].startswith("hooks")


def test_a_module_that_cannot_be_imported_stops_every_command(path, redline, own):
    before, broken = path.read_bytes(), own / "broken.py"
    place(broken, b"import os\n\nraise KeyError('no such thing')\n")
    for name, message in [
        (NOT_THERE, f"No module named '{NOT_THERE}'"),
        ("broken", f"KeyError: 'no such thing' ({broken}, line 3)"),
        ("", "(without a name)"),
        ("..up", "TypeError"),
    ]:
        load_hooks([name])
        ended = redline.call("compact", path, "--yes", "--json")
        assert ended.refused("redline.E002", message) == "2 bad_configuration"
    assert path.read_bytes() == before


def test_a_module_that_connects_nothing_is_a_warning_and_an_async_function_is_an_error(redline, own):
    place(own / "idle.py", b"import compaction_app.hooks\n")
    place(own / "busy.py", b"import compaction_app.examples.pin_labelled\n")
    load_hooks(["idle", "busy", EXAMPLE])
    ended = redline.call("sessions", "--json")
    assert (ended.code, ended.json) == (0, [])
    assert ended.err.count("redline.W005") == 1
    assert "The hook idle connects no receiver." in ended.err

    async def later(**sent: Any) -> None: ...

    with pytest.raises(TypeError, match="later is async"):
        HookSignal().connect(later)


def test_a_module_that_exits_is_reported_and_ends_nothing(session, own):
    place(own / "leaves_at_once.py", b"import sys\n\nsys.exit(3)\n")
    load_hooks(["leaves_at_once"])
    [found] = check_hooks(None)
    assert not missing(found.msg, "SystemExit: 3", "leaves_at_once.py, line 3")
    assert "leaves_at_once" in why_not_planned(session)


def test_a_hook_that_exits_or_could_not_be_loaded_fails_only_its_run(session):
    connect(lambda **_: sys.exit(3))
    assert "failed (SystemExit). Nothing was planned" in why_not_planned(session)
    load_hooks([NOT_THERE])
    assert [found.id for found in check_hooks(None)] == ["redline.E002"]
    assert check_hooks_connect(None) == []
    assert NOT_THERE in why_not_planned(session)


def test_the_settings_page_shows_the_hooks_in_force(browser, known_root):
    with override_configuration(hooks=["my_hooks"]):
        page = browser.get("/settings/advanced")
    (setting,) = [row for row in elements(page, "tbody tr") if text_of(row).startswith("hooks ")]
    assert "my_hooks" in text_of(setting)


def test_pins_add_up_and_the_first_plan_wins(session):
    order: list[str] = []

    def hook(name: str, answer: object) -> None:
        connect(lambda **_: order.append(name) or answer)

    hook("silent", None)
    hook("one", Pin([Target("e3")], "first"))
    hook("two", Pin([Target("e3"), Target("e5")], "second"))
    hook("plan", Supply([whole("e7")], "enough"))
    hook("late", Cancel("too late"))
    run = plan_session(session)
    assert (order, run.state) == (["silent", "one", "two", "plan"], RunState.BELOW_TARGET)
    assert [event.data["pinned"] for event in run.events.filter(kind="hooked").order_by("seq")] == [1, 1, 0]
    assert set(review_of(run).pins) == {Target("e3"), Target("e5")}


def test_hooks_receive_what_will_be_planned(session):
    seen: dict[str, Any] = {}
    connect(lambda **sent: seen.update(sent))
    run = plan_session(session)
    assert (seen["path"], seen["session"]) == (Path(session.root.path) / session.relative_path, session)
    assert [entry.id for entry in seen["branch"]] == [f"e{number}" for number in range(1, 28)]
    assert (seen["loaded"].tree.leaf.id, seen["reason"]) == ("e27", "manual")
    assert seen["parameters"].query == "Now the tests."
    assert seen["preparation"].text(seen["preparation"].entry("e1")) == "Mend the parser."
    assert run.state == RunState.TARGET_MET


@pytest.mark.parametrize(
    ("answer", "why"), [(Cancel("not on a\nFriday"), ": not on a Friday."), ({"cancel": True}, ".")]
)
def test_a_cancelled_run_fails_with_the_reason_of_the_hook(session, answer, why):
    connect_answer(answer)
    run = plan_session(session)
    assert run.state == RunState.FAILED
    assert run.failure.startswith(f"Cancelled by {HOOK}{why}")
    assert hook_messages(run) == [f"Cancelled by {HOOK}{why}"]
    assert not run.proposals.exists()


def test_a_hook_that_fails_is_named_and_nothing_is_planned(session, tmp_path, monkeypatch):
    def protector(**sent: Any) -> None:
        raise KeyError("text of the session")

    connect(protector)
    later = heard(session_before_compact)
    with kept_log(tmp_path) as log:
        failure = why_not_planned(session)
    assert not missing(failure, "protector failed (KeyError)", "test_hooks")
    assert later == []
    written = log.read_text()
    assert "in protector" in written
    assert "text of the session" not in written + failure


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (True, "returned a bool"),
        ([Target("e3")], "returned a list"),
        ("e3", "returned a str"),
        ({"deletions": []}, "returned a dict"),
        (Pin, "returned a type"),
        # A summary is no plan of deletions.
        (SupplySummary("Mended."), "Nothing was planned. It may return None, Pin, Supply or Cancel."),
        ({"compaction": {"summary": "Mended."}}, "It may return None, Pin, Supply or Cancel."),
    ],
)
def test_an_unknown_answer_fails_the_run(session, answer, words):
    connect_answer(answer)
    assert words in why_not_planned(session)


def test_a_failing_hook_fails_the_command_with_an_explanation(redline, path):
    def protector(**sent: Any) -> None:
        raise ValueError

    connect(protector)
    assert redline.call("compact", path, "--yes", "--json").refused("protector") == "6 hook_failed"
    assert path.read_bytes() == session_bytes(working_session())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Supply([whole("e3"), whole("e5")], "read twice"), ": read twice"),
        ({"deletionRequest": {"deletions": [whole("e3"), whole("e5")]}}, ""),
    ],
    ids=["a class", "an object as of an agent's extension"],
)
def test_a_supplied_plan_is_proposed_in_the_name_of_its_hook(session, answer, why):
    connect_answer(answer)
    run = plan_session(session)
    rows = {row.entry_id: row for row in run.proposals.all()}
    hook, repair = Proposal.Source.HOOK, Proposal.Source.REPAIR
    sources = {name: row.source for name, row in rows.items()}
    assert sources == {"e3": hook, "e5": hook, "e2": repair, "e4": repair}
    assert rows["e3"].reason == f"supplied by {HOOK}{why}"
    assert run.stats["objectsDeleted"] > 0
    assert not run.events.filter(kind="called").exists()
    assert run.events.order_by("seq").last().kind == "ended"


def test_a_supplied_plan_that_the_airlock_refuses_fails_the_run(session):
    connect_answer(Supply([whole("e3"), whole("e1")]))
    assert not missing(why_not_planned(session), "entry e1", "hook was refused")


def test_a_supplied_plan_is_bound_by_the_pins_of_other_hooks(session):
    connect_answer(Pin([Target("e2")]))
    connect_answer(Supply([whole("e3")]))
    assert why_not_planned(session)


def test_a_supplied_plan_survives_being_carried_over(session):
    connect_answer(Supply([whole("e3")], "read twice"))
    run = plan_session(session)
    decide(run, Kind.APPROVE, [Target("e3")], timezone.now())
    later = finish_run(plan_again(run))
    assert {row.entry_id: row.source for row in later.proposals.all()}["e3"] == Proposal.Source.HOOK
    assert later.proposals.count() == run.proposals.count()


@pytest.fixture
def pinning(session):
    """A run with e3 pinned by a hook, which would be deleted otherwise."""
    assert "e3" in proposed(plan_session(session))
    connect_answer(Pin([Target("e3")], "dear to me"))
    run = plan_session(session)
    assert run.proposals.exists()
    return run


def test_neither_pair_repair_nor_undo_reaches_what_a_hook_pinned(pinning):
    assert proposed(pinning).isdisjoint({"e2", "e3"})
    assert review_of(pinning).items[Target("e3")].standing is ReviewStatus.REJECTED
    assert undo(pinning, timezone.now()) is None
    decide(pinning, Kind.APPROVE, [next(iter(review_of(pinning).leads())).target], timezone.now())
    assert undo(pinning, timezone.now()).kind is Kind.APPROVE
    assert undo(pinning, timezone.now()) is None
    assert review_of(pinning).pins == (Target("e3"),)


@pytest.mark.parametrize(
    ("targets", "message", "pins"),
    [
        (
            [Target("e1"), Target("e27"), Target("e3", 9), Target("nowhere"), Target("e4")],
            f"1 object pinned by {HOOK}; 2 more stay anyway; 2 are not in the context.",
            (Target("e4"),),
        ),
        (
            [Target("e1"), Target("nowhere")],
            f"Nothing more pinned by {HOOK}; 1 stays anyway; 1 is not in the context.",
            (),
        ),
        ([], None, ()),
    ],
)
def test_targets_that_stay_anyway_or_do_not_exist_are_counted_and_not_pinned(session, targets, message, pins):
    connect_answer(Pin(targets))
    run = plan_session(session)
    assert hook_messages(run) == ([message] if message else [])
    assert review_of(run).pins == pins


def test_a_pin_of_a_hook_that_a_reviewer_reopened_stays_so_when_the_session_is_planned_again(browser, pinning):
    shown = browser.get(f"/plans/{pinning.pk}?at=e3")
    assert texts(shown, ".proposal__state").count("pinned by a hook") == 1
    assert "dear to me" in text_of(shown)
    browser.post(f"/plans/{pinning.pk}/decide", {"reopen": "e3", "seen": "0"})
    assert review_of(pinning).pins == ()
    decide(pinning, Kind.ADD, [Target("e3")], timezone.now())
    approved = review_of(pinning).approved
    assert Target("e3") in approved.targets
    undo(pinning, timezone.now())
    undo(pinning, timezone.now())
    assert review_of(pinning).pins == (Target("e3"),)
    decide(pinning, Kind.REOPEN, [Target("e3")], timezone.now())
    for _ in range(2):
        pinning = finish_run(plan_again(pinning))
        assert "e3" in proposed(pinning)
        assert review_of(pinning).pins == ()


def test_planning_again_calls_the_hooks_again_and_duplicates_nothing(pinning):
    decide(pinning, Kind.REJECT, [Target("e9")], timezone.now())
    later = finish_run(plan_again(pinning))
    assert set(review_of(later).pins) == {Target("e3"), Target("e9")}
    assert later.decisions.filter(seq=PINNED_SEQ).count() == 1
    session_before_compact.receivers.clear()
    session_before_compact.sender_receivers_cache.clear()
    last = finish_run(plan_again(later))
    assert review_of(last).pins == (Target("e9"),)
    assert not last.decisions.filter(seq=PINNED_SEQ).exists()


def test_a_resumed_run_calls_the_hooks_again_and_duplicates_nothing(session, monkeypatch):
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


def test_an_interrupted_run_is_resumed_with_its_pins(session):
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


def test_every_receiver_is_called_after_the_write_even_if_others_fail(redline, path, tmp_path):
    received: list[dict[str, Any]] = []

    def failing(**sent: Any) -> None:
        raise ValueError("text of the session")

    def recording(**sent: Any) -> None:
        received.append({**sent, "bytes": path.read_bytes()})

    for hook in (failing, recording):
        session_compact.connect(hook, weak=False)
    with kept_log(tmp_path) as log:
        ended = redline.call("compact", path, "--ratio", "0.4", "--yes", "--json")
    assert ended.code == 0, ended
    (sent,) = received
    assert sent["parameters"] == sent["result"].parameters
    assert (sent["parameters"].compression_ratio, sent["summary"]) == (0.4, None)
    (entry,) = sent["entries"]
    assert (entry, entry["id"]) == (json.loads(sent["bytes"].splitlines()[-1]), ended.json["entryId"])
    assert [target.to_json() for target in sent["result"].targets] == entry["deletedTargets"]
    assert sent["result"].parameters.preserve_recent == 2
    assert (sent["reason"], sent["from_hook"], sent["path"]) == ("manual", False, path)
    assert sent["backup"].read_bytes() == session_bytes(working_session())
    assert sent["created"] is None
    assert sent["session"] == Compaction.objects.get().session
    assert "failing failed after a compaction" in log.read_text()
    assert "text of the session" not in log.read_text()


def test_receivers_learn_that_a_hook_supplied_the_plan(redline, path):
    received: list[bool] = []
    session_compact.connect(lambda **sent: received.append(sent["from_hook"]), weak=False)
    connect_answer(Supply([whole("e3")], "read twice"))
    ended = redline.call("compact", path, "--yes", "--allow-below-target", "--json")
    assert (ended.code, received) == (0, [True])
    assert deleted(ended) == {"e2", "e3"}
    (origin,) = [row for row in Compaction.objects.get().origins if row["entryId"] == "e3"]
    assert origin["tool"] == "hook"


def test_a_receiver_learns_the_new_session_of_a_fork(redline, path):
    received = heard(session_compact)
    ended = redline.call("compact", path, "--yes", "--json", "--save-as", "fork").ok()
    (sent,) = received
    assert (sent["entries"], str(sent["created"])) == ([], ended.json["created"])


def test_no_receiver_is_called_if_nothing_was_written(redline, path):
    received = heard(session_compact)
    assert redline.call("compact", path, "--dry-run").code == 0
    path.touch()
    assert refusal(lambda: commit(approved_plan(path), Confirmations(), timezone.now())) == "5 session_live"
    assert received == []


def test_the_reason_of_a_hook_is_escaped_on_every_page(browser, session):
    connect_answer(Pin([Target("e3")], "<script>alert(1)</script>\u202e\x1b[2J"))
    run = plan_session(session)
    for address in (f"/plans/{run.pk}/log", f"/plans/{run.pk}?at=e3"):
        page = browser.get(address)
        assert "<script>alert(1)</script>" in text_of(page)
        assert active_markup(page) == []
        assert not set(page.content.decode()) & set("\x1b\u202e")


def test_a_pin_of_one_block_leaves_the_others_free(session):
    """The text of e2 stays; its call may go with the result e3."""
    connect_answer(Pin([Target("e2", 0)]))
    run = plan_session(session)
    found = {Target(row.entry_id, row.block_index) for row in run.proposals.filter(entry_id__in=["e2", "e3"])}
    assert found == {Target("e2", 1), Target("e3")}


def test_a_hook_can_look_at_whether_its_run_was_stopped(session):
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
