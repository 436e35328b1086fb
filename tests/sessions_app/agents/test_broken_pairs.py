"""What providers would refuse of a session, in each generation of the agents."""

from typing import Any

from sessions_app.agents import registry as module
from sessions_app.agents.registry import GENERATIONS, broken_pairs
from sessions_app.sessionlog.diagnosis import Finding, Severity
from sessions_app.sessionlog.tree import SessionTree
from tests.factories import assistant, call, chain, context_edit, message, result, session_log, user

EVERY = [generation for _, generation in GENERATIONS.values()]


def found_in(recorded: list[Any]) -> list[Finding]:
    return list(broken_pairs(SessionTree(session_log(recorded).entries), EVERY))


def test_a_complete_conversation_has_no_broken_pairs_and_each_generation_its_consequence_of_one():
    assert found_in(chain(user("go"), assistant(call("x")), result("x"), user("thanks"))) == []
    (finding,) = found_in(chain(user("go"), result("x")))
    assert (finding.kind, finding.number, finding.is_repairable) == ("stray_result", 3, False)
    assert [one.agent for one in finding.consequences] == [one.label for one in EVERY]
    severities = {one.agent: one.severity for one in finding.consequences}
    assert severities["pi 0.87 and newer"] is Severity.FATAL
    assert severities["Atomic 0.9.11 and newer"] is Severity.LOSS


def test_a_fault_of_one_generation_is_none_of_another():
    # Only pi 0.87 and newer honour the edit that removes the call.
    recorded = chain(user("go"), assistant(call("x")), result("x"), context_edit("e2", None))
    (finding,) = found_in(recorded)
    fatal = [one.agent for one in finding.consequences if one.severity is Severity.FATAL]
    assert (finding.number, fatal) == (4, ["pi 0.87 and newer"])
    assert {one.text for one in finding.consequences if one.severity is Severity.NONE} == {"is not affected"}


def test_a_fault_that_branches_share_is_found_once_and_other_branches_are_examined():
    recorded = chain(user("go"), assistant(call("x")), user("on"))
    recorded.insert(3, message("side", "e2", user("other")))
    recorded.insert(4, message("lone", "side", result("y")))
    expected = [("unanswered_call", 3), ("stray_result", 5)]
    assert [(one.kind, one.number) for one in found_in(recorded)] == expected


def test_so_many_entries_are_examined(monkeypatch):
    recorded = chain(user("go"), result("x"))
    recorded.insert(2, message("side", "e1", result("y")))
    monkeypatch.setattr(module, "MOST_ENTRIES", 1)
    assert [one.number for one in found_in(recorded)] == [4]
