"""Certificates: what speaks against continuing a session, and how the result is stored."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sessions_app.sessionlog.certificate import Certificate, PackageOutcome, PackageResult, certified
from sessions_app.sessionlog.provider_rules import ProviderRule, Violation

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
BROKEN = certified([Violation(ProviderRule.EMPTY_CONTENT, "e1", "", "Entry e1 is empty")])
REPAIRED = certified([Violation(ProviderRule.EMPTY_CONTENT, "e1", "", "Entry e1 is empty", is_repaired=True)])


def certificate(**facts: Any) -> Certificate:
    return Certificate("pi", NOW, "e9", 1_234, **facts)


EQUAL, FAILED, DIFFERENT, REFUSED = (
    PackageResult("pi-coding-agent", "0.87.1", outcome)
    for outcome in (PackageOutcome.EQUAL, PackageOutcome.FAILED, PackageOutcome.DIFFERENT, PackageOutcome.REFUSED)
)


@pytest.mark.parametrize(
    ("facts", "holds"),
    [
        ({}, True),
        ({"violations": REPAIRED}, True),
        ({"violations": BROKEN}, False),
        ({"violations": (*REPAIRED, *BROKEN)}, False),
        ({"refusal": "no header"}, False),
        ({"difference": ""}, True),
        ({"difference": "message 3"}, False),
        *(({by: outcome}, True) for by in ("package", "client") for outcome in (EQUAL, FAILED)),
        *(({by: outcome}, False) for by in ("package", "client") for outcome in (DIFFERENT, REFUSED)),
    ],
)
def test_a_certificate_holds_unless_something_speaks_against_it(facts, holds):
    assert certificate(**facts).holds is holds


def test_it_says_what_was_checked():
    assert certificate().sentence == "1,234 messages as in pi"
    assert certificate(versions="pi 0.87 and newer").sentence == "1,234 messages as in pi 0.87 and newer"
    assert certificate(difference="").sentence.endswith("pi, compared with the approved plan")
    both = certificate(difference="", package=EQUAL)
    assert both.sentence.endswith("compared with the approved plan and pi-coding-agent 0.87.1")
    assert certificate(package=FAILED).sentence.endswith("as in pi")


def test_it_is_stored_as_json_and_read_back():
    full = certificate(violations=BROKEN, difference="", refusal="no", package=REFUSED)
    stored = msgspec.to_builtins(full)
    assert msgspec.convert(stored, Certificate) == full
    assert stored["violations"][0]["entryId"] == "e1"
    assert stored["checkedAt"] == "2026-11-22T12:00:00Z"
