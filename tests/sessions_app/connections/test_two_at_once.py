"""Two commands, or a command and the server, change connections at the same time: what is removed stays removed."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from django.conf import settings

from sessions_app.connections import connection_files
from sessions_app.connections.connection_files import (
    ConnectedAgent,
    announce_server,
    connection_with,
    keep_connection,
    only_one_change,
)
from sessions_app.connections.service import all_connections, connect, disconnect, planned_connection, planned_removal
from tests.installation import refusal

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
KEY: Final = "claude-code"
BEFORE: Final = '{\n  "model": "opus"\n}\n'


@pytest.fixture
def file(redline):
    """The user's settings of Claude Code."""
    path = redline.home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(BEFORE)
    return path


def counts(one: ConnectedAgent) -> bool:
    """Whether the token of a connection admits."""
    return connection_with(settings.REDLINE_DATA_DIR, one.token) is not None


def test_a_start_of_the_server_does_not_bring_back_what_is_removed_meanwhile(file, monkeypatch):
    one = connect(planned_connection(KEY, None), NOW)
    removal = threading.Thread(target=lambda: disconnect(planned_removal(KEY, None)))

    def keep_after_a_while(directory: Path, kept: ConnectedAgent) -> None:
        removal.start()
        removal.join(0.3)  # it has to wait
        keep_connection(directory, kept)

    monkeypatch.setattr(connection_files, "keep_connection", keep_after_a_while)
    announce_server(settings.REDLINE_DATA_DIR, 8_123)
    removal.join()
    assert not counts(one)
    assert file.read_text() == BEFORE


@pytest.mark.parametrize("edit", ["3660", "no such text"])
def test_what_was_removed_since_it_was_shown_is_not_connected_with_its_old_token(file, edit):
    one = connect(planned_connection(KEY, None), NOW)
    file.write_text(file.read_text().replace(edit, "60"))
    shown = planned_connection(KEY, None)
    disconnect(planned_removal(KEY, None))
    assert refusal(lambda: connect(shown, NOW)) == "4 connection_changed"
    assert not counts(one)
    assert all_connections() == []


def test_of_two_who_connect_the_second_does_not_end_the_first(file):
    first, second = planned_connection(KEY, None), planned_connection(KEY, None)
    one = connect(first, NOW)
    assert refusal(lambda: connect(second, NOW)) == "4 connection_changed"
    assert counts(one)
    disconnect(planned_removal(KEY, None))
    assert file.read_text() == BEFORE


def test_a_connection_that_was_made_anew_is_not_removed_unseen(file):
    connect(planned_connection(KEY, None), NOW)
    shown = planned_removal(KEY, None)
    disconnect(planned_removal(KEY, None))
    one = connect(planned_connection(KEY, None), NOW)
    assert refusal(lambda: disconnect(shown)) == "4 connection_changed"
    assert counts(one)
    assert "redline" in file.read_text()


def test_a_server_that_started_meanwhile_changes_nothing_that_was_shown(file):
    connect(planned_connection(KEY, None), NOW)
    shown = planned_removal(KEY, None)
    announce_server(settings.REDLINE_DATA_DIR, 8_123)
    disconnect(shown)
    assert file.read_text() == BEFORE


def test_a_command_that_takes_too_long_is_not_waited_for(redline, monkeypatch):
    del redline
    monkeypatch.setattr(connection_files, "LOCK_SECONDS", 0.1)
    with only_one_change(settings.REDLINE_DATA_DIR):
        assert refusal(lambda: announce_server(settings.REDLINE_DATA_DIR, 8_123)) == "4 busy"


def test_a_connection_whose_file_another_program_changes_meanwhile_stays_as_it_was(file):
    one = connect(planned_connection(KEY, None), NOW)
    file.write_text(file.read_text().replace("3660", "60").replace("opus", "haiku"))
    shown = planned_connection(KEY, None)
    file.write_text(file.read_text().replace("haiku", "sonnet"))
    assert refusal(lambda: connect(shown, NOW)) == "4 file_changed"
    assert all_connections() == [one]
