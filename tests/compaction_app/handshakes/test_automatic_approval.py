"""Plans that pass without a review touch only what the rule of their root names; the texts decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.models import AuditEntry, Compaction, Handshake, PassRule, Proposal
from compaction_app.runs.commands import start_run
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.targets import Target
from tests.compaction_app.handshakes.conftest import AskingAgent
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import place
from tests.runs import finish_run

READ = "\n".join(f"line {number} of the file" for number in range(200))
LISTING = "\n".join(f"file_{number}.py" for number in range(200))


def session() -> bytes:
    """e3 reads what e9 reads again; e5 and e11 have the same output; e7 is empty; e13 is like nothing else."""
    messages: list[dict[str, Any]] = [user("Mend it.")]
    outputs = {"c1": READ, "c2": LISTING, "c3": "", "c4": READ, "c5": LISTING, "c6": "unique " * 500}
    for call_id, words in outputs.items():
        is_read = words == READ
        called = (
            call(call_id, path="src/a.py") if is_read else call(call_id, "bash", command=f"run {call_id}")
        )
        messages += [
            assistant(text(f"Now {call_id}."), called),
            result(call_id, words, name="read" if is_read else "bash"),
        ]
    return session_bytes(chain(*messages, assistant(text("Done.")), user("Go on."), user("And then?")))


@pytest.fixture
def agent(pi_root: Path) -> AskingAgent:
    return AskingAgent(place(pi_root / "session.jsonl", session()))


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
    root = index_file(agent.path).root
    PassRule.objects.create(root=root, **{"most_tokens": 100_000, **fields})


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
def test_what_a_rule_names_passes(
    agent: AskingAgent, fields: dict[str, bool], chosen: dict[str, str]
) -> None:
    rule(agent, **fields)
    handshake = asked(agent, chosen)
    assert handshake.state == "approved"
    reported = agent.report("applied", handshake.pk, leaf=agent.apply(agent.poll(handshake.pk)))
    assert reported["state"] == "applied"
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
def test_anything_else_waits_for_a_human(
    agent: AskingAgent, fields: dict[str, object], chosen: dict[str, str]
) -> None:
    before = agent.path.read_bytes()
    rule(agent, **fields)
    assert asked(agent, chosen).state == "waiting"
    assert agent.path.read_bytes() == before


def test_no_rule_is_the_default(agent: AskingAgent) -> None:
    assert asked(agent, EMPTY).state == "waiting"


def test_a_rule_of_another_root_does_not_count(agent: AskingAgent, tmp_path: Path) -> None:
    other = index_file(place(tmp_path / "other" / "s.jsonl", session())).root
    PassRule.objects.create(root=other, empty=True, most_tokens=100_000)
    assert asked(agent, EMPTY).state == "waiting"


def test_rules_are_chosen_on_the_page(agent: AskingAgent, browser: Client) -> None:
    root = index_file(agent.path).root
    fields = {"passes": "save", f"root-{root.pk}-repeated": "on", f"root-{root.pk}-most_tokens": "20000"}
    page = browser.get("/handshakes/")
    assert "Plans that pass without a review" in page.content.decode()
    every = {
        f"root-{form.root.pk}-most_tokens": "0" for form in page.context["passes"] if form.root.pk != root.pk
    }
    assert browser.post("/handshakes/", {**every, **fields}).status_code == 303
    chosen = PassRule.objects.get(root=root)
    assert (chosen.repeated, chosen.empty, chosen.most_tokens) == (True, False, 20_000)
    assert (
        browser.post("/handshakes/", {**every, **fields, f"root-{root.pk}-most_tokens": "x"}).status_code
        == 422
    )
