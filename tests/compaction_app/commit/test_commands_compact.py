"""`compact` shows its plan, writes exactly one line after a confirmation, and `restore` undoes it."""

import hashlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import connection

from compaction_app.changes.change import Confirmations
from compaction_app.management.change_command import FLAGS, ChangeCommand
from compaction_app.management.commands.compact import Command
from compaction_app.models import Compaction
from compaction_app.session_activity import Activity
from redline.main import main
from sessions_app.agents.registry import GENERATIONS
from sessions_app.disk.open_files import Writer
from sessions_app.index.indexer import index_file
from sessions_app.index.session_reading import reading_of
from sessions_app.models import Session
from sessions_app.sessionlog.context import significant
from sessions_app.storage.session_loader import load_session
from tests.budget import some
from tests.factories import message, session_bytes, user, working_session
from tests.files import last_line, place, snapshot, unchanged
from tests.html import missing
from tests.installation import refusal
from tests.paths import sessions_to_try
from tests.plans import context_ids, context_without
from tests.wait import WAIT_SECONDS


def on_terminal(answer: str, *arguments: object, **environment: str) -> tuple[int, str]:
    """Exit code and screen of a command on a terminal, in a fork of this process, with `answer` typed at the prompt."""
    connection.close()
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            signal.alarm(WAIT_SECONDS)
            os.environ.update({"PAGER": "cat", "TERM": "dumb", **environment})
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
            sys.argv = ["redline", *map(str, arguments)]
            main()
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(ended.code or 0)
        finally:
            os._exit(1)
    screen, has_answered = b"", False
    with suppress(OSError):  # the other end is closed
        while piece := os.read(terminal, 65_536):
            screen += piece
            if not has_answered and b"[y/N]" in screen:
                os.write(terminal, answer.encode())
                has_answered = True
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), screen.decode()


def test_real_sessions_are_compacted_and_restored(redline, tmp_path):
    for source in some(sessions_to_try(tmp_path), every=7):
        log = load_session(source).log
        if log.version != 3 or log.header is None:
            continue
        home, whole = redline.home / source.stem, source.read_bytes()
        path = place(home / source.name, whole)
        # The steps are those of an Atomic session: another agent's compactions are inert for it.
        context = context_ids(path)
        Session.objects.filter(pk=index_file(path).pk).update(reader="atomic-0.8")

        planned = redline.call("compact", path, "--dry-run", "--json")
        assert planned.code == 0, (source.name, planned)
        assert (planned.json["entryId"], planned.json["backupPath"]) == (None, None)
        assert planned.json["targetMet"]
        assert planned.json["stats"]["percentReduction"] >= 50
        assert len(planned.json["reasons"]) == len(planned.json["deletedTargets"]) > 0
        assert all(planned.json["reasons"])
        assert snapshot(home) == {path.name: whole}

        written = redline.call("compact", path, "--yes", "--json")
        assert written.code == 0, (source.name, written)
        assert written.json["deletedTargets"] == planned.json["deletedTargets"]
        after = path.read_bytes()
        assert after.startswith(whole)
        added = after[len(whole) :].strip(b"\n")
        assert b"\n" not in added
        assert len(after) - len(whole) - len(added) == (1 if whole.endswith(b"\n") else 2)
        entry = json.loads(added)
        assert entry["id"] == written.json["entryId"] != planned.json["leafId"]
        assert entry["id"] not in {one.id for one in load_session(source).log.entries}
        assert entry["parentId"] == written.json["leafId"] == load_session(source).leaf_id
        for name in ("deletedTargets", "protectedEntryIds", "stats", "backupPath"):
            assert entry[name] == written.json[name]
        assert context_ids(path) == context_without(context, entry["deletedTargets"])
        backup = Path(entry["backupPath"])
        assert backup.read_bytes() == whole
        digest = hashlib.sha256(whole).hexdigest()
        assert backup.with_name(f"{backup.name}.sha256").read_text().startswith(digest)

        (listed,) = redline.call("backups", path, "--json").json
        found = [listed[name] for name in ("path", "sha256", "holds", "reason")]
        assert found == [str(backup), digest, True, "compact"]
        undone = redline.call("restore", backup, "--yes", "--json")
        assert undone.code == 0, (source.name, undone)
        assert undone.json["sha256"] == digest
        assert path.read_bytes() == whole
        redone = redline.call("restore", undone.json["previousBackup"], "--yes", "--json")
        assert redone.code == 0, (source.name, redone)
        assert path.read_bytes() == after
        for beside in home.iterdir():
            beside.unlink()


def test_an_old_session_is_compacted_in_a_copy(redline, tmp_path):
    header, *entries = working_session()
    for entry in entries:
        del entry["id"], entry["parentId"]
    old = {name: value for name, value in header.items() if name != "version"}
    path = place(redline.sessions / "old.jsonl", session_bytes([old, *entries]))
    with unchanged(path):
        assert redline.call("compact", path, "--dry-run").code == 0
        assert redline.call("compact", path, "--yes", "--json").refused("migrate-session") == "2 needs_migration"
        copied = redline.call("migrate-session", path, "--json")
        copy = Path(copied.json["written"])
        assert (copied.code, copied.json["bytes"]) == (0, copy.stat().st_size)
        # Redline's own writes do not make a session live.
        redline.call("compact", copy, "--yes", "--json").ok()
        assert redline.call("migrate-session", path, "--json").error == "exists"
        assert redline.call("migrate-session", copy, "--json").error == "is_current"
    assert len(context_ids(copy)) < len(context_ids(path))


def test_parameters_on_the_command_line_are_used_and_shown(redline, path):
    given = ["--ratio", "0.3", "--preserve-recent", "5", "--query", "line_7_1"]
    found = redline.call("compact", path, "--dry-run", "--json", *given).json
    assert found["parameters"] == {"compression_ratio": 0.3, "preserve_recent": 5, "query": "line_7_1"}
    assert found["stats"]["percentReduction"] >= 70
    assert found["protectedEntryIds"] == ["e1", "e23", "e24", "e25", "e26", "e27"]
    assert not {target["entryId"] for target in found["deletedTargets"]} & set(found["protectedEntryIds"])


def test_the_users_settings_are_the_defaults(redline, path):
    settings = b'{"compaction":{"compression_ratio":0.8,"preserve_recent":4}}'
    place(redline.home / ".atomic" / "agent" / "settings.json", settings)
    found = redline.call("compact", path, "--dry-run", "--json", "--ratio", "0.6").json
    assert (found["parameters"]["compression_ratio"], found["parameters"]["preserve_recent"]) == (0.6, 4)
    shown = redline.call("compact", path, "--dry-run", "--ratio", "0.6").out
    assert not missing(shown, "Ratio 0.6 (this plan), recent 4 (", "settings.json), query: Now the tests. (")
    assert "the embedded planner does not use it" in shown


def test_wrong_parameters_are_bad_input(redline, path):
    before = snapshot(path.parent)
    for name, value, code in (
        ("--save-as", "context-edit", "unknown_writer"),
        ("--ratio", "0", "bad_ratio"),
        ("--ratio", "1", "bad_ratio"),
        ("--ratio", "-0.5", "bad_ratio"),
        ("--ratio", "nan", "bad_ratio"),
        ("--preserve-recent", "-1", "bad_preserve_recent"),
        ("--preserve-recent", "1.5", "bad_arguments"),
        ("--planner", "oracle", "unknown_planner"),
        ("--branch", "nowhere", "unknown_entry"),
    ):
        ended = redline.call("compact", path, "--yes", "--json", name, value)
        assert (ended.code, ended.error) == (2, code), (name, value)
    ended = redline.call("compact", path, "--dry-run", "--json", "--save-as", "context-edit")
    assert "It honours context-compaction, fork." in ended.json["error"]["message"]
    assert snapshot(path.parent) == before


def test_without_an_installed_agent_a_reader_can_be_chosen_for_a_writer(redline, path, monkeypatch):
    monkeypatch.setattr("sessions_app.agents.registry.installed_version", {}.get)
    before, writer = path.read_bytes(), ["--save-as", "context-compaction"]
    ended = redline.call("compact", path, "--yes", "--json", *writer)
    assert ended.refused("--open-as atomic-0.8") == "2 unknown_writer"
    ended = redline.call("compact", path, "--dry-run", "--json", "--open-as", "claude-code")
    assert ended.refused("atomic-0.8") == "2 unknown_reader"
    chosen = redline.call("compact", path, "--dry-run", "--json", *writer, "--open-as", "atomic-0.8").json
    assert (chosen["needs"], "--open-as=atomic-0.8" in chosen["to_write"]) == (["--yes"], True)
    assert Session.objects.get().reader == "", "a dry run keeps no choice"
    written = redline.call(*shlex.split(chosen["to_write"])[1:], "--json")
    assert (written.code, written.json["writer"]) == (0, "context-compaction"), written
    assert path.read_bytes().startswith(before)
    # Every command reads the session so from now on, as its page does.
    assert Session.objects.get().reader == "atomic-0.8"
    for command in ("context", "timeline", "lost"):
        assert redline.call(command, path, "--json").json["reader"] == "atomic-0.8"
    assert redline.call("undo", path, "--yes", "--json").code == 0


def test_every_deletion_is_shown_with_its_reason(redline, path):
    planned = redline.call("compact", path, "--dry-run", "--json").json
    shown = redline.call("compact", path, "--dry-run").out.splitlines()
    rows = shown[1 : 1 + len(planned["deletedTargets"])]
    order = {entry.id: entry.number for entry in load_session(path).log.entries}
    planned_rows = sorted(
        zip(planned["deletedTargets"], planned["reasons"], strict=True),
        key=lambda one: (order[one[0]["entryId"]], one[0].get("blockIndex", 0)),
    )
    for row, (target, reason) in zip(rows, planned_rows, strict=True):
        assert row.startswith(target["entryId"])
        assert reason in row
    tokens, percent = planned["tokens"], planned["stats"]["percentReduction"]
    assert tokens["deleted"] == tokens["before"] - tokens["after"]
    figures = " ".join(shown)
    assert f"objects deleted, about {significant(tokens['deleted']):,} tokens. The context has " in figures
    assert f"By the agent's own count that is {percent}%; the target is 50%, about " in figures


def test_texts_are_shown_in_full_on_request(redline, path):
    plan = redline.call("compact", path, "--dry-run", "--json").json
    shown = redline.call("compact", path, "--dry-run", "--full").out
    texts = load_session(path).texts(load_session(path).log.entries)
    for target in plan["deletedTargets"]:
        held, index = texts[target["entryId"]], target.get("blockIndex")
        text = ("\n".join(held.blocks) or held.whole) if index is None else held.blocks[index]
        assert text
        assert all(f"    {line}" in shown for line in text.split("\n"))


@pytest.mark.parametrize("pager", ["sh -c 'sed s/^/paged:/'", "nowhere", "'open", ""])
def test_a_long_plan_is_shown_in_the_users_pager_before_the_question(path, pager):
    code, screen = on_terminal("n\n", "compact", path, "--full", PAGER=pager, LINES="10")
    assert code == 5, screen
    assert ("paged:" in screen) == pager.startswith("sh")
    assert screen.index("tokens:") < screen.index("save this as context-compaction? [y/N]")
    assert "Traceback" not in screen


def test_on_a_terminal_a_plan_fits_and_is_coloured_unless_disabled(path):
    _, screen = on_terminal("n\n", "compact", path, PAGER="cat", COLUMNS="60", TERM="xterm")
    assert "\x1b[31m" in screen
    _, plain = on_terminal("n\n", "compact", path, PAGER="cat", COLUMNS="60", TERM="dumb")
    assert "\x1b" not in plain
    rows = [line for line in plain.split("\r\n") if line.startswith("e")]
    assert rows
    assert all(len(line) <= 60 for line in rows)


def test_without_a_confirmation_and_a_terminal_nothing_is_written(redline, path):
    before, ended = snapshot(redline.home), redline.call("compact", path, "--json")
    assert (ended.code, ended.err, ended.json["entryId"]) == (5, "", None)
    assert ended.json["deletedTargets"]
    assert redline.call("compact", path).code == 5
    assert redline.call("compact", path, *ask_too_much(path)).code == 5
    assert snapshot(redline.home) == before


def test_a_plan_shows_the_command_with_every_confirmation_it_needs(redline, path):
    named = path.rename(path.with_name("it's a session.jsonl"))
    arguments = [*make_another_branch(named), "--ratio", "0.4", "--query", "a b"]
    make_live(named)
    found = redline.call("compact", named, *arguments, "--json")
    assert (found.code, found.json["needs"]) == (5, ["--yes", "--live", "--switch-branch"])
    shown = redline.call("compact", named, *arguments, "--dry-run").ok()
    assert f"To write this: `{found.json['to_write']}`" in shown.out.splitlines()

    words = shlex.split(found.json["to_write"])
    assert words[:3] == ["redline", "compact", str(named)]
    written = redline.call(*words[1:], "--json").ok()
    assert written.json["deletedTargets"] == found.json["deletedTargets"]
    assert (written.json["needs"], written.json["to_write"]) == ([], None)


def test_a_torn_last_line_is_shown_with_the_plan(redline, path):
    assert redline.call("compact", path, "--dry-run", "--json").json["tornLine"] is None
    size = path.stat().st_size
    tear_the_last_line(path)
    torn = redline.call("compact", path, "--dry-run", "--json")
    assert torn.json["tornLine"] == {"offset": size, "length": 25}
    assert torn.json["needs"] == ["--yes", "--after-torn-line"]
    shown = redline.call("compact", path, "--dry-run").out
    assert f"The session ends in a torn line of 25 bytes, from byte {size:,} on." in shown


def test_a_refused_plan_shows_that_command_too(redline, path):
    make_live(path)
    arguments = ["compact", path, "--yes", *ask_too_much(path)]
    assert redline.call(*arguments, "--json").refused("--yes --live --allow-below-target`") == "5 session_live"
    for_people = redline.call(*arguments)
    assert (for_people.code, "\nTo write this: `redline compact " in for_people.out) == (5, True)


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        (rb'"version": ?3', b'"version":9', "unknown_version", "version 9"),
        (rb"^.*?\n", b"", "no_header", "migrate-session"),
    ],
)
def test_a_plan_that_cannot_be_written_says_why_and_asks_for_no_confirmation(redline, path, old, new, code, words):
    place(path, re.sub(old, new, path.read_bytes(), count=1))
    found = redline.call("compact", path, "--dry-run", "--json")
    assert (found.code, found.json["needs"], found.json["to_write"]) == (0, [], None)
    assert found.json["obstacle"]["code"] == code
    assert words in found.json["obstacle"]["message"]
    assert words in redline.call("compact", path, "--dry-run").out
    assert redline.call("compact", path, "--json").error == code


def test_the_help_lists_every_writer_and_reader(redline):
    shown = re.sub(r"\s", "", redline.call("compact", "--help").out)  # it is wrapped behind hyphens, too
    writers = {writer.name for _, one in GENERATIONS.values() for writer in one.writers}
    assert len(writers) == 8
    assert [name for name in (*writers, *GENERATIONS) if name not in shown] == []


def test_every_confirmation_has_a_flag():
    assert set(FLAGS) == {field.name for field in fields(Confirmations)}


def test_a_dry_run_overrides_yes_and_adds_nothing_to_the_index(redline, path):
    with unchanged(redline.home):
        for more in ([], ["--yes"]):
            assert redline.call("compact", path, "--dry-run", *more).code == 0
    assert redline.call("sessions", "--json").json == []


@pytest.mark.parametrize(("answer", "code"), [("n\n", 5), ("\n", 5), ("y\n", 0), ("\x03", 130)])
def test_on_a_terminal_the_plan_is_shown_before_the_question(path, answer, code):
    before = snapshot(path.parent)
    ended, screen = on_terminal(answer, "compact", path)
    assert ended == code, screen
    assert screen.index("REASON") < screen.index("save this as context-compaction? [y/N]")
    assert "Traceback" not in screen
    assert (snapshot(path.parent) == before) == (code != 0)
    if code == 0:
        assert "Appended 1 line to" in screen
        assert f"its last entry is {last_line(path)['id']} now" in screen.replace("\r\n", " ")
        assert last_line(path)["backupPath"] in screen.replace("\r\n", "")


JUST_USED = "The session was written to less than a minute ago; no process has it open. {}? [y/N]"


@pytest.mark.parametrize("answer", ["n\n", "y\n"])
def test_a_session_that_was_just_used_is_asked_about_in_the_same_question(redline, path, answer):
    before = path.read_bytes()
    make_live(path)
    code, screen = on_terminal(answer, "compact", path)
    assert (JUST_USED.format("Write") in screen, screen.count("[y/N]")) == (True, 1), screen
    assert (code, path.read_bytes() == before) == ((0, False) if answer == "y\n" else (5, True))
    if code == 0:
        make_live(path)
        code, screen = on_terminal(answer, "undo", path)
        assert (code, JUST_USED.format("Undo this") in screen) == (0, True), screen
        make_live(path)
        code, screen = on_terminal(answer, "move", path, "--label", "e1", "here")
        assert (code, JUST_USED.format("Write this") in screen) == (0, True), screen


def test_an_answer_that_would_not_be_enough_is_not_requested(path):
    command = ["sh", "-c", 'exec 9>>"$0"; echo; read line', str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        for more in ([], ["--save-as", "context-compaction"], ask_too_much(path)):
            code, screen = on_terminal("y\n", "compact", path, *more)
            assert (code, "[y/N]" in screen, "--yes --live" in screen) == (5, False, True), screen
        process.communicate(b"\n")
    make_live(path)
    assert "[y/N]" not in on_terminal("y\n", "compact", path, *ask_too_much(path))[1]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"seconds_ago": -3.0}, "written to less than a minute ago; no process has it open"),
        ({"seconds_ago": 119.0}, "written to 1 minute ago; no process has it open"),
        ({"seconds_ago": 179.0}, "written to 2 minutes ago; no process has it open"),
    ],
)
def test_the_question_says_when_the_session_was_used(monkeypatch, found, words):
    recent = Activity(is_recent=True, writers=(), **found)
    assert (recent.recency, recent.is_only_recent) == (words, True)
    opened = Activity(is_recent=True, writers=(Writer(7, "node"),), **found)
    assert not opened.is_only_recent
    monkeypatch.setattr("compaction_app.session_activity.SHOWS_WRITERS", False)
    assert recent.recency.endswith("whether a process has it open is not known here")
    # What was opened since the question is not confirmed by its answer.
    asked = SimpleNamespace(ask=lambda question: words.split(";")[0] in question)
    for now, expected in ((recent, True), (Activity(is_recent=False, writers=()), True), (opened, None)):
        monkeypatch.setattr("compaction_app.management.change_command.activity_at", lambda *_, now=now: now)
        if expected:
            assert ChangeCommand.is_live_confirmed(asked, Path("s"), recent, "Write")
        else:
            assert (
                refusal(lambda: ChangeCommand.is_live_confirmed(asked, Path("s"), recent, "Write")) == "5 session_live"
            )


def test_with_json_no_question_is_asked(path):
    with unchanged(path.parent):
        code, screen = on_terminal("y\n", "compact", path, "--json")
        assert code == 5
        assert "[y/N]" not in screen
        # The progress of a command that takes longer is on the screen as well, and is wiped out before the document.
        assert json.loads(screen[screen.index("{") :])["entryId"] is None


def make_live(path: Path) -> list[str]:
    os.utime(path)
    return []


def make_another_branch(path: Path) -> list[str]:
    place(path, path.read_bytes() + session_bytes([message("b1", "e3", user("Otherwise."))]))
    return ["--branch", "e27"]


def tear_the_last_line(path: Path) -> list[str]:
    place(path, path.read_bytes() + b'{"type":"message","id":"t')
    return []


def ask_too_much(path: Path) -> list[str]:
    return ["--ratio", "0.1", "--preserve-recent", "20"]


@pytest.mark.parametrize(
    ("prepare", "flag", "exit_code", "code"),
    [
        (make_live, "--live", 5, "session_live"),
        (make_another_branch, "--switch-branch", 5, "switches_branch"),
        (tear_the_last_line, "--after-torn-line", 5, "torn_last_line"),
        (ask_too_much, "--allow-below-target", 3, "target_not_met"),
    ],
)
def test_each_case_needs_its_own_confirmation(redline, path, prepare, flag, exit_code, code):
    arguments = ["compact", path, "--yes", "--json", *prepare(path)]
    others = {FLAGS[name][0] for name in Command.CONFIRMED} - {flag}
    before = snapshot(path.parent)
    for given in (arguments, [*arguments, *sorted(others)]):
        assert redline.call(*given).refused(flag) == f"{exit_code} {code}"
        assert snapshot(path.parent) == before
    for_people = redline.call(*(argument for argument in arguments if argument != "--json"))
    assert for_people.code == exit_code
    assert flag in for_people.err

    written = redline.call(*arguments, flag).ok()
    assert last_line(path)["id"] == written.json["entryId"]
    assert Compaction.objects.get().entry_id == written.json["entryId"]


def test_a_dry_run_below_the_target_has_its_own_exit_code(redline, path):
    ended = redline.call("compact", path, "--dry-run", "--json", *ask_too_much(path))
    assert (ended.code, ended.json["targetMet"]) == (3, False)
    assert ended.json["deletedTargets"]
    shown = redline.call("compact", path, "--dry-run", *ask_too_much(path))
    assert (shown.code, "--allow-below-target" in shown.out) == (3, True)


def test_a_session_with_nothing_to_delete_is_reported_as_such(redline, path):
    place(path, session_bytes(working_session(steps=0)))
    ended = redline.call("compact", path, "--yes", "--json", "--allow-below-target")
    assert (ended.code, ended.error) == (3, "nothing_deletable")
    place(path, session_bytes(working_session(steps=0)[:2]))
    ended = redline.call("compact", path, "--json")
    assert (ended.code, ended.error) == (2, "nothing_to_compact")


def test_a_closed_output_pipe_does_not_stop_the_write(redline, path):
    before = path.read_bytes()
    child = redline.start("compact", path, "--yes", "--live")
    child.stdout.close()
    assert child.wait(timeout=WAIT_SECONDS) == 0
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().count(b"\n") == before.count(b"\n") + 1


@pytest.mark.long
def test_an_unwritable_output_is_reported_and_undoes_nothing(redline, path):
    before = path.read_bytes()
    with Path("/dev/full").open("wb") as full:
        assert redline.start("compact", path, "--yes", "--live", "--json", stdout=full).wait(timeout=WAIT_SECONDS) == 6
    assert path.read_bytes().count(b"\n") == before.count(b"\n") + 1


def test_a_plan_uses_the_same_reader_as_its_commit(redline, tmp_path):
    """The reader the user chose, even after Redline itself appended to the session."""
    path = place(tmp_path / "guessed.jsonl", session_bytes(working_session()))
    log = load_session(path).log
    writer = next(writer.name for writer in reading_of(path, log.entries, log.state).writers if writer.appends)
    redline.call("compact", path, "--yes", "--not-honoured", "--ratio", "0.8", "--save-as", writer).ok()
    again = redline.call("compact", path, "--ratio", "0.5", "--save-as", writer).out
    assert not missing(again, "a guess", "--not-honoured")
    Session.objects.update(reader="pi")
    assert not missing(redline.call("compact", path, "--ratio", "0.5").out, "Opened as pi,", "Saved as context-edit.")


def test_a_fork_is_written_beside_the_session(redline, path):
    before = path.read_bytes()
    written = redline.call("compact", path, "--yes", "--save-as", "fork", "--json").ok()
    new = Path(written.json["created"])
    assert (written.json["writer"], new.parent) == ("fork", path.parent)
    assert json.loads(new.read_bytes().splitlines()[0])["id"] == written.json["entryId"]
    assert path.read_bytes() == Path(written.json["backupPath"]).read_bytes() == before
    assert "Continue there with: atomic --session" in redline.call("compact", path, "--yes", "--save-as", "fork").out
