"""`redline compaction-settings`: what the page shows, in a terminal and as JSON."""

import json

import pytest

from tests.factories import session_bytes, working_session
from tests.files import place


@pytest.fixture
def path(redline):
    settings = {"compaction": {"keepRecentTokens": 9_000, "reserveTokens": "much", "enabled": False}}
    place(redline.home / ".pi" / "agent" / "settings.json", json.dumps(settings).encode())
    return place(redline.home / ".pi" / "agent" / "sessions" / "s.jsonl", session_bytes(working_session()))


def test_each_setting_has_its_value_its_default_and_its_file(redline, path):
    found = redline.call("compaction-settings", path, "--json").json
    rows = {row["name"]: row for row in found["settings"]}
    kept = rows["compaction.keepRecentTokens"]
    assert (kept["value"], kept["default"]) == ("9000", "20000")
    assert kept["source"].endswith(".pi/agent/settings.json")
    assert rows["compaction.reserveTokens"]["source"] is None
    assert rows["compaction.reserveTokens"]["ignored"] == [kept["source"]]
    assert found["automatic"] is False
    assert found["switchedOffIn"] == kept["source"]
    assert {row["name"] for row in found["parameters"]} == {"compression_ratio", "preserve_recent", "query"}


def test_the_terminal_says_what_is_ignored_and_how_to_change_it(redline, path):
    shown = redline.call("compaction-settings", path).out
    assert "Automatic compaction is off, by" in shown
    assert "The value of compaction.reserveTokens in" in shown
    assert '"compaction": {"reserveTokens": 16384}' in shown
    assert "0 compactions so far." in shown
