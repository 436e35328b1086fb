"""Redline without the lab: it is in no page, command or migration, and what it recorded is kept."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import urllib.error
from contextlib import closing
from typing import Final
from unittest import mock

import pytest
from django.apps import apps

import redline.serving
from tests.factories import assistant, chain, session_bytes, summary_compaction, text, user
from tests.files import place
from tests.html import addresses
from tests.installation import Installation
from tests.paths import PROJECT
from tests.server import Server, start_server

LEFT_OUT: Final = {"REDLINE_LAB": "false"}
RECORDED: Final = chain(
    user("Mend the parser."),
    assistant(text("so it goes on and on with plain words only " * 800)),
    user("Go on."),
    assistant(text("Yes.")),
    summary_compaction("It was mended.", "e3"),
    assistant(text("Done.")),
)


def addresses_of_lab(server: Server, page: str) -> set[str]:
    return {one for one in addresses(server.get(page)) if "/insights" in one or "/hindsight" in one}


def test_pages_lead_to_the_lab_only_if_it_is_there(tmp_path):
    path = place(tmp_path / "sessions" / "work.jsonl", session_bytes(RECORDED))
    roots = json.dumps([{"path": str(path.parent), "agent": "pi", "reader": "pi"}])
    with start_server(tmp_path, REDLINE_ROOTS=roots) as server:
        session = server.session("Mend the parser.")
        # In the menu of its head.
        tested = "/insights/benchmark/new?session=1"
        more = {
            session: {tested},
            f"{session}/timeline": {tested, f"{session}/hindsight", f"{session}/hindsight?entry=e5"},
            f"{session}/lost": {tested, f"{session}/hindsight?entry=e5"},
            "/inbox": {"/insights/costs"},
        }
        for page in ("/", *more, "/history/backups", "/settings/models", "/settings"):
            assert addresses_of_lab(server, page) == {"/insights/costs"} | more.get(page, set()), page
    with start_server(tmp_path, REDLINE_ROOTS=roots, **LEFT_OUT) as server:
        for page in ("/", *more, "/history/backups", "/settings/models", "/settings"):
            assert not addresses_of_lab(server, page), page
        for page in ("/insights/benchmark", "/insights/costs", f"{session}/hindsight"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                server.get(page)


def manage(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROJECT / "manage.py"), *arguments]
    return subprocess.run(command, env=installation.environment(**LEFT_OUT), capture_output=True, text=True)


def test_django_finds_no_fault_and_makes_a_database_that_has_the_lab_when_it_is_there_again(fresh):
    for arguments in (["migrate"], ["makemigrations", "--check", "--dry-run"]):
        ended = manage(fresh, *arguments)
        assert ended.returncode == 0, ended.stderr
    assert "Unknown command" in manage(fresh, "benchmark").stderr
    for left_out in ({}, LEFT_OUT):
        assert fresh.run("sessions", "--json", **left_out).ok().json == []
        with closing(sqlite3.connect(fresh.data / "redline.sqlite3")) as database:
            migrated = database.execute("SELECT name FROM django_migrations WHERE app = 'lab_app'").fetchall()
        # An app that is left out is not taken for that of a newer version.
        assert migrated == [("0001_initial",)]


def test_its_commands_are_unknown(redline):
    for name in ("benchmark", "costs", "lab", "hindsight"):
        assert redline.call(name, "--json", **LEFT_OUT).refusal == "2 unknown_command"
        listed = redline.call("help", "--json", **LEFT_OUT).json["help"]
        assert f"\n  {name} " not in listed
        assert "\n  compact " in listed


@pytest.mark.parametrize("is_there", [True, False])
def test_the_server_looks_back_on_compactions_only_if_it_is_there(monkeypatch, is_there):
    async def work(*given: object) -> None:
        await asyncio.Event().wait()

    for task in ("_follow", "_look_after_workers"):
        monkeypatch.setattr(redline.serving, task, work)
    looking_back = mock.Mock(side_effect=work)
    monkeypatch.setattr(redline.serving, "_look_back", looking_back)
    monkeypatch.setattr(apps, "is_installed", {"lab_app": is_there}.get)
    asyncio.run(redline.serving.lifespan({}, lambda: asyncio.sleep(0), mock.AsyncMock()))
    assert looking_back.called == is_there
