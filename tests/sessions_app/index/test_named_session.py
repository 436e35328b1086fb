"""Sessions that a command line names by an id, or does not name."""

import os
import subprocess
from pathlib import Path

import pytest

from redline.configuration import Configuration, RootSetting
from redline.main import commands
from sessions_app.cli import RedlineCommand
from sessions_app.index.indexer import index_file
from sessions_app.management.commands import completion
from sessions_app.models import Session
from tests.factories import chain, session_bytes, user, working_session
from tests.files import backdate, place
from tests.html import missing
from tests.installation import Installation
from tests.runs import plan_session

ID = "5e551011-0000-4000-8000-000000000001"


def recorded(directory: Path | str, said: str = "go", *more: object) -> bytes:
    header, *entries = chain(user(said), user("on"))
    return session_bytes([{**header, "id": ID, "cwd": str(directory)}, *(more or entries)])


def add(redline: Installation, name: str, content: bytes) -> Session:
    return index_file(place(redline.sessions / name, content))


def test_a_session_is_named_by_a_short_id_by_its_own_or_by_its_number(redline, tmp_path, monkeypatch):
    session = add(redline, "s.jsonl", recorded(tmp_path))
    (listed,) = redline.call("sessions", "--json").json
    short = listed["shortId"]
    assert short in redline.call("sessions").out
    assert redline.call("completion", "sessions").out == f"{short}\tgo\n"
    for name in (short, short[:4], ID, ID[:8], session.pk):
        assert redline.call("tree", name, "--json").json["leafId"] == "e2", name
    for name in (short[:3], "00000000", f"{ID}0", session.pk + 1):
        assert redline.call("tree", name, "--json").refusal == "2 no_such_file", name
    copy = add(redline, "copy.jsonl", recorded(tmp_path))
    assert redline.call("context", ID, "--json").refused(short, copy.short_id, str(copy.path)) == "4 several_sessions"
    assert redline.call("context", copy.short_id, "--json").code == 0, "each has its own"
    copy.path.unlink()
    Session.objects.filter(pk=copy.pk).update(missing=True)
    assert redline.call("context", ID, "--json").code == 0, "the other one is gone"
    monkeypatch.chdir(tmp_path)
    place(tmp_path / short, recorded(tmp_path, "a file"))
    assert "a file" in redline.call("tree", short).out, "a file of that name comes first"


def test_every_command_that_reads_a_session_takes_its_id(redline):
    taking = {name for name, one in completion._commands() if one.takes_session}
    assert set(commands()) - taking == {
        *("address", "ask", "audit", "check_vectors", "completion", "connect", "fake_provider"),
        *("models", "restore", "review", "search", "serve", "sessions", "token", "worker"),
    }


def test_bash_completes_ids_and_paths(redline, tmp_path):
    script = redline.call("completion", "bash").out.replace(
        completion._ask_for_sessions(), "printf 'abcd1234\\tA b\\n'"
    )
    place(tmp_path / "abc d.jsonl", b"")
    for command, typed, expected in (
        ("tree", "abc", "[abcd1234][abc d.jsonl]"),
        ("tree", "abcd1", "[abcd1234]"),
        ("tree", "x", ""),
        ("serve", "abcd1", ""),
        ("tree", "--js", "[--json]"),
    ):
        asked = f"COMP_WORDS=(redline {command} '{typed}') COMP_CWORD=2; _redline; printf '[%s]' \"${{COMPREPLY[@]}}\""
        ended = subprocess.run(["bash", "-c", script + asked], cwd=tmp_path, capture_output=True, text=True)
        assert ended.stdout == (expected or "[]"), (command, typed, ended)


@pytest.fixture
def terminal(redline, settings, monkeypatch):
    """Commands have a terminal, and the root of the sessions is configured."""
    roots = [RootSetting(path=redline.sessions, agent="atomic")]
    settings.REDLINE = Configuration().model_copy(update={"roots": roots})
    redline.sessions.mkdir(parents=True)
    monkeypatch.setattr(RedlineCommand, "can_ask", True)
    monkeypatch.setattr(RedlineCommand, "ask", lambda *_: False)


def test_without_a_name_the_newest_session_of_this_directory_is_taken(redline, tmp_path, monkeypatch, terminal):
    monkeypatch.chdir(tmp_path)
    assert "There is no session of" in redline.call("tree").err
    add(redline, "elsewhere.jsonl", recorded("/elsewhere"))
    backdate(add(redline, "old.jsonl", recorded(tmp_path, "the older")).path, hours=9)
    # It is not in the index yet.
    newest = place(redline.sessions / "new.jsonl", recorded(tmp_path, "", *working_session()[1:]))
    for command in ("tree", "context"):
        found = redline.call(command)
        named = Session.objects.get(relative_path="new.jsonl")
        words = f"{named.short_id} “Mend the parser.” (Atomic)"
        assert (found.code, found.err) == (0, f"The newest session of this folder is {words}: {newest}\n")
    refused = redline.call("review")
    assert (refused.code, f"redline compact {named.short_id}" in refused.err) == (2, True)
    planned = redline.call("compact")
    assert (planned.code, f"Session: {words}" in planned.out, str(newest) in planned.out) == (5, True, True)
    run = plan_session(named)
    found = redline.call("review")
    assert (found.code, f"Its newest plan is number {run.pk}." in found.err) == (0, True)
    assert f"plan {run.pk}" in found.out.lower()
    monkeypatch.chdir(newest.parent)
    os.utime(redline.sessions / "elsewhere.jsonl")
    assert "elsewhere.jsonl" in redline.call("tree").err, "its file is here"


def test_a_session_must_be_named_if_it_is_not_clear_which_one_is_meant(redline, tmp_path, monkeypatch, terminal):
    monkeypatch.chdir(tmp_path)
    live = [place(redline.sessions / f"{name}.jsonl", recorded(tmp_path, name)) for name in "ab"]
    for path in live:
        os.utime(path)
    refused = redline.call("tree")
    assert (refused.code, refused.out) == (4, "")
    assert not missing(refused.err, *map(str, live))
    backdate(live[0])
    assert str(live[1]) in redline.call("tree").err, "one is live"
    assert redline.call("compact", "--yes").code == 2
    monkeypatch.setattr(RedlineCommand, "can_ask", False)
    for command in ("tree", "context", "compact", "review"):
        assert redline.call(command, "--json").refusal == "2 bad_arguments"
