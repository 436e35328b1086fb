"""What a rule lets pass without a review is named by it whole: nothing that goes with an output passes unseen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from compaction_app.core.decisions import Kind
from compaction_app.handshakes import automatic_approval
from compaction_app.models import PassRule, Run
from compaction_app.runs.reviews import decide
from sessions_app.sessionlog.targets import Target
from tests.compaction_app.handshakes.conftest import AskingAgent
from tests.compaction_app.handshakes.test_automatic_approval import EMPTY, REPEATED, asked, rule, session
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import place


@pytest.fixture
def agent(pi_root: Path) -> AskingAgent:
    return AskingAgent(place(pi_root / "session.jsonl", session()))


IMAGE = {"type": "image", "mimeType": "image/png"}


def image(call_id: str, data: str) -> dict[str, Any]:
    return {**result(call_id, "", name="shot"), "content": [{**IMAGE, "data": data}]}


def steps(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> bytes:
    """A session of these calls, e2, e4 and so on, and their results, e3, e5 and so on."""
    messages: list[dict[str, Any]] = [user("Mend it.")]
    for called, answered in pairs:
        messages += [assistant(text("Next."), called), answered]
    return session_bytes(chain(*messages, assistant(text("Done.")), user("Go on."), user("And then?")))


def read(call_id: str, words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return call(call_id, path="src/a.py"), result(call_id, words, name="read")


@pytest.mark.parametrize(
    ("fields", "chosen", "content"),
    [
        # Two images are not compared.
        (
            {"repeated": True},
            {"e3": "a repeat of the output in e5"},
            steps(
                (call("c1", "shot"), image("c1", "AAAA" * 9)), (call("c2", "shot"), image("c2", "BBBB" * 9))
            ),
        ),
        (
            {"empty": True},
            EMPTY,
            steps(*[(call(f"c{n}", "shot"), image(f"c{n}", "AAAA")) for n in (1, 2, 3, 4)]),
        ),
        # A short line does not stand any more.
        (
            {"superseded": True},
            {"e3": "superseded by the read of src/a.py in e5"},
            steps(read("c1", "the first line of it\nx = 1\n"), read("c2", "the first line of it\nx = 2\n")),
        ),
        # What an edit replaced stands nowhere else.
        (
            {"superseded": True},
            {"e3": "superseded by the read of src/a.py in e5"},
            steps(
                (
                    call(
                        "c1", "edit", path="src/a.py", oldText="what was there", newText="what is there now"
                    ),
                    result("c1", "done", name="edit"),
                ),
                read("c2", "what is there now"),
            ),
        ),
        # What a write put into a file goes with its empty, or repeated, output.
        *[
            (
                {"repeated": True, "empty": True},
                {"e3": "a repeat of the output in e5"},
                steps(
                    *[
                        (
                            call(f"c{n}", "write", path=f"src/{n}.py", content="the only copy"),
                            result(f"c{n}", words, name="write"),
                        )
                        for n in (1, 2)
                    ]
                ),
            )
            for words in ("", "Written.")
        ],
    ],
)
def test_what_goes_with_an_output_has_to_stand_too(
    pi_root: Path, fields: dict[str, object], chosen: dict[str, str], content: bytes
) -> None:
    agent = AskingAgent(place(pi_root / "session.jsonl", content))
    rule(agent, **fields)
    assert asked(agent, chosen).state == "waiting"


def test_a_read_whose_short_lines_stand_too_passes(pi_root: Path) -> None:
    content = steps(read("c1", "the first line of it\nx = 1\n"), read("c2", "the first line of it\nx = 1\ny"))
    agent = AskingAgent(place(pi_root / "session.jsonl", content))
    rule(agent, superseded=True)
    assert asked(agent, {"e3": "superseded by the read of src/a.py in e5"}).state == "approved"


def test_a_decision_that_a_human_makes_meanwhile_is_not_approved_by_a_rule(
    agent: AskingAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = automatic_approval.passes

    def judged_then_decided(run: Run, rule: PassRule) -> bool:
        has_passed = judge(run, rule)
        decide(run, Kind.ADD, [Target("e13")], timezone.now())
        return has_passed

    monkeypatch.setattr(automatic_approval, "passes", judged_then_decided)
    rule(agent, empty=True)
    handshake = asked(agent, EMPTY)
    assert (handshake.state, handshake.handed) == ("waiting", None)


def test_a_plan_that_a_rule_refuses_is_judged_once(
    agent: AskingAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all texts takes long in a large session, and an agent asks twice a second."""
    judged = []
    judge = automatic_approval.passes

    def counted(run: Run, rule: PassRule) -> bool:
        judged.append(rule.most_tokens)
        return judge(run, rule)

    monkeypatch.setattr(automatic_approval, "passes", counted)
    rule(agent, empty=True)
    handshake = asked(agent, REPEATED)
    for _ in range(3):
        assert agent.poll(handshake.pk)["state"] == "waiting"
    assert len(judged) == 1
    PassRule.objects.update(repeated=True)
    assert agent.poll(handshake.pk)["state"] == "approved"


@pytest.mark.parametrize(("fewer", "state"), [(0, "approved"), (1, "waiting")])
def test_a_rule_lets_as_many_tokens_pass_as_it_says(agent: AskingAgent, fewer: int, state: str) -> None:
    handshake = asked(agent, EMPTY)
    assert handshake.run is not None
    handshake.run.refresh_from_db()
    rule(agent, empty=True, most_tokens=handshake.run.struck - fewer)
    assert agent.poll(handshake.pk)["state"] == state
