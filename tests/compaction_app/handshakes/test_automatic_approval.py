"""Plans that pass without a review touch only what the rule of their root names, whole; the texts decide."""

from typing import Any

import pytest
from django.utils import timezone

from compaction_app.core.review_fold import Kind
from compaction_app.handshakes import sweep
from compaction_app.models import AuditEntry, Compaction, Handshake, PassRule, Proposal, Run
from compaction_app.runs.commands import start_run
from compaction_app.runs.reviews import decide
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.entries import Target
from tests import claude_sessions
from tests.claude_sessions import ClaudeSession
from tests.compaction_app.handshakes.conftest import AskingAgent, asking
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import place, unchanged
from tests.runs import finish_run
from tests.sessions import use_root

READ = "\n".join(f"line {number} of the file" for number in range(200))
LISTING = "\n".join(f"file_{number}.py" for number in range(200))


def session() -> list[dict[str, Any]]:
    """e3 reads what e9 reads again; e5 and e11 have the same output; e7 is empty; e13 is like nothing else."""
    messages: list[dict[str, Any]] = [user("Mend it.")]
    outputs = {"c1": READ, "c2": LISTING, "c3": "", "c4": READ, "c5": LISTING, "c6": "unique " * 500}
    for call_id, words in outputs.items():
        is_read = words == READ
        called = call(call_id, path="src/a.py") if is_read else call(call_id, "bash", command=f"run {call_id}")
        messages += [
            assistant(text(f"Now {call_id}."), called),
            result(call_id, words, name="read" if is_read else "bash"),
        ]
    return chain(*messages, assistant(text("Done.")), user("Go on."), user("And then?"))


@pytest.fixture
def agent(pi_root):
    return asking(pi_root, session())


def asked(agent: AskingAgent, chosen: dict[str, str]) -> Handshake:
    """The agent asks, and the plan deletes these results with their calls, for these reasons."""
    found = index_file(agent.path)
    run = start_run(
        found,
        planner="hand",
        requested_parameters={"compression_ratio": 0.9},
        selected=[Target(entry_id) for entry_id in chosen],
        writer="context-edit",
    )
    for entry_id, reason in chosen.items():
        Proposal.objects.filter(run=run, entry_id=entry_id).update(reason=reason)
    handshake = Handshake.objects.get(pk=agent.ask()["id"])
    assert handshake.run == run
    finish_run(run)
    agent.poll(handshake.pk)
    handshake.refresh_from_db()
    return handshake


def rule(agent: AskingAgent, **fields: object) -> None:
    PassRule.objects.create(root=index_file(agent.path).root, **{"most_tokens": 100_000, **fields})


REPEATED = {"e5": "a repeat of the output in e11"}
SUPERSEDED = {"e3": "superseded by the read of src/a.py in e9"}
EMPTY = {"e7": "an output that is empty"}


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        ({"repeated": True}, REPEATED),
        ({"superseded": True}, SUPERSEDED),
        ({"empty": True}, EMPTY),
        ({"repeated": True, "superseded": True, "empty": True}, {**REPEATED, **SUPERSEDED, **EMPTY}),
    ],
)
def test_what_a_rule_names_passes(agent, fields, chosen):
    rule(agent, **fields)
    handshake = asked(agent, chosen)
    assert handshake.state == "approved"
    assert agent.applied(handshake) == "applied"
    assert Compaction.objects.get().certificate is not None
    assert "approved automatically" in AuditEntry.objects.get().writer


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        ({}, REPEATED),
        ({"superseded": True, "empty": True}, REPEATED),
        ({"repeated": True, "empty": True}, SUPERSEDED),
        ({"repeated": True, "superseded": True}, EMPTY),
        # The planner's words are not believed.
        ({"repeated": True}, {"e13": "a repeat of the output in e11"}),
        ({"superseded": True}, {"e13": "superseded by the read of src/a.py in e9"}),
        ({"empty": True}, {"e13": "an output that is empty"}),
        # What it repeats goes too.
        ({"repeated": True}, {**REPEATED, "e11": "a repeat of the output in e5"}),
        # One is not named.
        ({"repeated": True}, {**REPEATED, **EMPTY}),
        ({"repeated": True, "most_tokens": 1}, REPEATED),
        ({"repeated": True, "most_tokens": 0}, REPEATED),
    ],
)
def test_anything_else_waits_for_a_human(agent, fields, chosen):
    with unchanged(agent.path):
        rule(agent, **fields)
        assert asked(agent, chosen).state == "waiting"


def test_no_rule_is_the_default_and_a_rule_of_another_root_does_not_count(agent, tmp_path):
    other = index_file(place(tmp_path / "other" / "s.jsonl", session_bytes(session()))).root
    PassRule.objects.create(root=other, empty=True, most_tokens=100_000)
    assert asked(agent, EMPTY).state == "waiting"


def test_rules_are_chosen_on_the_page(agent, browser):
    root = index_file(agent.path).root
    page = browser.get("/inbox/agents")
    assert "Plans that pass without a review" in page.content.decode()
    most = f"root-{root.pk}-most_tokens"
    sent = {f"root-{form.root.pk}-most_tokens": "0" for form in page.context["passes"]}
    sent |= {"passes": "save", f"root-{root.pk}-repeated": "on", most: "20000"}
    assert browser.post("/inbox/agents", sent).status_code == 303
    chosen = PassRule.objects.get(root=root)
    assert (chosen.repeated, chosen.empty, chosen.most_tokens) == (True, False, 20_000)
    assert browser.post("/inbox/agents", {**sent, most: "x"}).status_code == 422


IMAGE = {"type": "image", "mimeType": "image/png"}


def steps(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """A session of these calls, e2, e4 and so on, and their results, e3, e5 and so on."""
    messages: list[dict[str, Any]] = [user("Mend it.")]
    for called, answered in pairs:
        messages += [assistant(text("Next."), called), answered]
    return chain(*messages, assistant(text("Done.")), user("Go on."), user("And then?"))


def read(call_id: str, words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return call(call_id, path="src/a.py"), result(call_id, words, name="read")


FIRST_LINE = "the first line of it\nx = 1\n"
REPEATS = {"e3": "a repeat of the output in e5"}
READ_AGAIN = {"e3": "superseded by the read of src/a.py in e5"}
EDIT = call("c1", "edit", path="src/a.py", oldText="what was there", newText="what is there now")


def shots(*images: str) -> list[dict[str, Any]]:
    shots = ((f"c{number}", [{**IMAGE, "data": data}]) for number, data in enumerate(images, 1))
    return steps(*((call(one, "shot"), {**result(one, "", name="shot"), "content": shown}) for one, shown in shots))


def writes(output: str) -> list[dict[str, Any]]:
    """Two files are written, each with this output."""
    made = [call(f"c{n}", "write", path=f"src/{n}.py", content="the only copy") for n in (1, 2)]
    return steps(*((one, result(one["id"], output, name="write")) for one in made))


@pytest.mark.parametrize(
    ("fields", "chosen", "content"),
    [
        ({"repeated": True}, REPEATS, shots("AAAA" * 9, "BBBB" * 9)),
        ({"empty": True}, EMPTY, shots(*["AAAA"] * 4)),
        ({"superseded": True}, READ_AGAIN, steps(read("c1", FIRST_LINE), read("c2", "the first line of it\nx = 2\n"))),
        (
            {"superseded": True},
            READ_AGAIN,
            steps((EDIT, result("c1", "done", name="edit")), read("c2", "what is there now")),
        ),
        ({"repeated": True, "empty": True}, REPEATS, writes("")),
        ({"repeated": True, "empty": True}, REPEATS, writes("Written.")),
    ],
    ids=[
        "two images are not compared", "nor is one empty", "a short line does not stand any more",
        "what an edit replaced stands nowhere else", "what was written goes with its empty output",
        "and with its repeated one",
    ],
)  # fmt: skip
def test_what_goes_with_an_output_has_to_stand_too(pi_root, fields, chosen, content):
    agent = asking(pi_root, content)
    rule(agent, **fields)
    assert asked(agent, chosen).state == "waiting"


def test_a_read_whose_short_lines_stand_too_passes(pi_root):
    agent = asking(pi_root, steps(read("c1", FIRST_LINE), read("c2", f"{FIRST_LINE}y")))
    rule(agent, superseded=True)
    assert asked(agent, READ_AGAIN).state == "approved"


@pytest.mark.parametrize("attached", [(), ("a = 1",)], ids=["the texts of the user keep their order", "a file moves"])
def test_a_plan_that_changes_the_order_of_what_stays_does_not_pass(idle_root, settings, attached):
    use_root(settings, idle_root, "claude-code")
    claude = ClaudeSession("go")
    claude.reply("msg_0", claude_sessions.call("t1"))
    empty = claude.result("t1", "")
    for words in attached:
        claude.attachment("file", words, content={"type": "text", "file": {"content": words}})
    claude.user("on")
    claude.reply("msg_1", text("done"))
    found = index_file(place(idle_root / f"{claude_sessions.SESSION_ID}.jsonl", claude.content))
    chosen = {"compression_ratio": 0.9, "preserve_recent": 0}
    run = start_run(found, planner="hand", requested_parameters=chosen, selected=[Target(empty)], writer="fork")
    given = PassRule(empty=True, most_tokens=100_000)
    assert sweep.passes(finish_run(run), given) is not bool(attached)


def test_a_decision_that_a_human_makes_meanwhile_is_not_approved_by_a_rule(agent, monkeypatch):
    judge = sweep.passes

    def judged_then_decided(run: Run, rule: PassRule) -> bool:
        has_passed = judge(run, rule)
        decide(run, Kind.ADD, [Target("e13")], timezone.now())
        return has_passed

    monkeypatch.setattr(sweep, "passes", judged_then_decided)
    rule(agent, empty=True)
    handshake = asked(agent, EMPTY)
    assert (handshake.state, handshake.handed) == ("waiting", None)


def test_a_plan_that_a_rule_refuses_is_judged_once(agent, monkeypatch):
    """Reading all texts takes long in a large session, and an agent asks twice a second."""
    judged, judge = [], sweep.passes

    def counted(run: Run, rule: PassRule) -> bool:
        judged.append(rule.most_tokens)
        return judge(run, rule)

    monkeypatch.setattr(sweep, "passes", counted)
    rule(agent, empty=True)
    handshake = asked(agent, REPEATED)
    for _ in range(3):
        assert agent.poll(handshake.pk)["state"] == "waiting"
    assert len(judged) == 1
    PassRule.objects.update(repeated=True)
    assert agent.poll(handshake.pk)["state"] == "approved"


@pytest.mark.parametrize(("fewer", "state"), [(0, "approved"), (1, "waiting")])
def test_a_rule_lets_as_many_tokens_pass_as_it_says(agent, fewer, state):
    handshake = asked(agent, EMPTY)
    handshake.run.refresh_from_db()
    rule(agent, empty=True, most_tokens=handshake.run.struck - fewer)
    assert agent.poll(handshake.pk)["state"] == state
