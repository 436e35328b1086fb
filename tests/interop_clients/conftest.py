"""Fixtures of the tests with real clients; what could not be checked is printed at the end."""

import pytest

from .scripted_model import ScriptedModel


@pytest.fixture
def model():
    with ScriptedModel() as scripted:
        yield scripted


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())}
    for reason in sorted(reason.removeprefix("Skipped: ") for reason in reasons):
        terminalreporter.write_line(reason, yellow=True)
