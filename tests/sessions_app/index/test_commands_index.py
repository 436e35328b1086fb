"""`index` reports what it found and read, and one bad file does not stop it."""

import ast
import json
import os
from pathlib import Path

import pytest

from sessions_app.models import Session
from tests.factories import chain, session_bytes, user, working_session
from tests.files import place, unchanged
from tests.processes import become_nobody, give_to_nobody, in_child
from tests.sessions import place_session

ONE = session_bytes(chain(user("One")))


def test_the_agents_directories_are_indexed_or_the_configured_ones(redline, tmp_path):
    assert redline.call("index", "--json", HOME=str(redline.home)).json["files"] == 0, "a missing one is no failure"
    atomic = place(redline.sessions / "--p--" / "a.jsonl", ONE)
    two = place_session(redline.home / ".pi" / "agent" / "sessions" / "--p--" / "b.jsonl", "One", "Two")
    place(tmp_path / "elsewhere" / "c.jsonl", ONE)
    found = redline.call("index", "--json", HOME=str(redline.home))
    assert (found.code, found.err) == (0, "")
    assert (found.json["files"], found.json["entries"], found.json["bytes"]) == (2, 3, len(ONE) + two.stat().st_size)
    assert isinstance(found.json["seconds"], float)
    listed = {Path(one["path"]).name: one for one in redline.call("sessions", "--json").json}
    assert {name: one["agent"] for name, one in listed.items()} == {"a.jsonl": "atomic", "b.jsonl": "pi"}
    assert listed["a.jsonl"]["path"] == str(atomic)
    roots = json.dumps([{"path": str(tmp_path / "elsewhere"), "agent": "pi"}])
    assert redline.call("index", "--json", REDLINE_ROOTS=roots).json["files"] == 1


def test_a_session_that_is_compacted_before_any_indexing_belongs_to_its_configured_root(redline, known_root):
    path = place(known_root / "project" / "s.jsonl", session_bytes(working_session()))
    redline.call("compact", path, "--yes", "--json")
    (listed,) = redline.call("sessions", "--json").json
    assert listed["path"] == str(path)
    assert Session.objects.get().root.path == str(known_root)


def test_the_second_run_reads_only_new_lines_and_rebuild_reads_everything(redline):
    path = place_session(redline.home / "s.jsonl", *["word " * 200] * 200)
    runs = [redline.call("index", redline.home, *flags, "--json").json for flags in ([], [], ["--rebuild"])]
    size = path.stat().st_size
    assert {(one["bytes"], one["entries"]) for one in runs} == {(size, 200)}
    assert [one["bytes_read"] >= size for one in runs] == [True, False, True]
    assert runs[1]["bytes_read"] < 20_000


def test_files_and_directories_can_be_named_together(redline, tmp_path):
    place(tmp_path / "one" / "a.jsonl", ONE)
    place(tmp_path / "one" / "deep" / "b.jsonl", ONE)
    single = place(tmp_path / "two" / "a session without the usual name", ONE)
    assert redline.call("index", tmp_path / "one", single, "--json").json["files"] == 3
    assert len(redline.call("sessions", "--json").json) == 3


def test_damage_is_counted_and_loses_nothing(redline):
    path = place(redline.home / "s.jsonl", session_bytes([*chain(user("One")), b"{torn", b"\0" * 99, b"[]"])[:-1])
    with unchanged(redline.home):
        assert redline.call("index", path, "--json").json["damaged"] == 3
        assert "3 damaged lines" in redline.call("index", path).out


def test_files_that_cannot_be_indexed_are_named_on_standard_error_and_the_rest_is_indexed(redline, tmp_path):
    root = tmp_path / "root"
    place(root / "a.jsonl", ONE)
    place(root / "b.jsonl", b"no session\n")
    outside = place(tmp_path / "outside.jsonl", ONE)
    (root / "c.jsonl").symlink_to(outside)
    (root / os.fsdecode(b"d\xff.jsonl")).write_bytes(ONE)
    os.mkfifo(root / "e.jsonl")
    ended = redline.call("index", root, "--json")
    assert (ended.code, ended.json["files"], ended.json["bytes"]) == (0, 1, len(ONE))
    assert len(ended.err.splitlines()) == 4
    assert f"c.jsonl: leads out of the root, to {outside}" in ended.err
    refused = {Path(one["path"]).name: one["reason"] for one in ended.json["refused"]}
    assert [name[0] for name in sorted(refused)] == ["b", "c", "d", "e"]
    assert "is not a session" in refused["b.jsonl"]
    assert "is not UTF-8" in refused["d\udcff.jsonl"]


@pytest.mark.parametrize("closed", ["root", "root/closed"])
def test_a_directory_that_cannot_be_listed_is_named_and_the_rest_is_indexed(public, closed):
    root = public.home / "root"
    path = place(root / "open" / "a.jsonl", ONE)
    (root / "closed").mkdir()
    give_to_nobody(root, root / "closed", path.parent, path)
    directory = public.home / closed
    directory.chmod(0o300)
    ended = in_child(lambda: repr(public.call("index", root, "--json")[:2]), become_nobody)
    code, printed = ast.literal_eval(ended)
    assert code == 6
    document = json.loads(printed)
    assert document["refused"] == [{"path": str(directory), "reason": "cannot be listed: Permission denied"}]
    assert document["files"] == (1 if closed == "root/closed" else 0)


def test_a_named_file_that_is_not_a_session_is_bad_input(redline, tmp_path):
    empty, text = place(tmp_path / "empty.jsonl", b""), place(tmp_path / "text.jsonl", b"text\n")
    for code, *arguments in (
        *(("no_such_file", tmp_path / "gone"), ("not_a_session", empty), ("not_a_session", text)),
        ("bad_arguments", redline.home, "--follow"),  # only the configured roots are followed
    ):
        ended = redline.call("index", *arguments, "--json")
        assert (ended.code, ended.error) == (2, code)
    assert redline.call("sessions", "--json").json == []
