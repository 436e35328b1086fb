"""An agent's configuration file is replaced as a whole, where it really is, and only as it was read."""

import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from sessions_app.disk.configuration_file import (
    SIZE_LIMIT,
    missing_directories,
    read_configuration_file as read,
    remove_directories,
    replace_configuration_file as replace,
)
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure


@pytest.fixture
def path(tmp_path):
    """An agent's configuration file."""
    return tmp_path / "settings.json"


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_new_file_is_private_and_comes_with_its_directories(tmp_path):
    path = tmp_path / "a" / "b" / "settings.json"
    file = read(path)
    assert file.content is None
    made = missing_directories(file)
    replace(file, b"{}")
    assert made == (str(tmp_path / "a"), str(tmp_path / "a" / "b"))
    assert path.read_bytes() == b"{}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replace(read(path), None)
    remove_directories(made)
    assert names(tmp_path) == []


def test_an_existing_file_keeps_its_mode(tmp_path, path):
    path.write_bytes(b"old")
    path.chmod(0o644)
    assert missing_directories(read(path)) == ()
    replace(read(path), b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o644)
    assert names(tmp_path) == ["settings.json"]


def test_a_directory_in_which_something_else_is_stays(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "other").touch()
    remove_directories((str(tmp_path / "a"), str(tmp_path / "a" / "b")))
    assert names(tmp_path) == ["a", "a/other"]


@pytest.mark.parametrize(("before", "meanwhile"), [(b"old", b"theirs"), (b"old", None), (None, b"theirs")])
@pytest.mark.parametrize("after", [b"new", None])
def test_a_file_that_another_program_changed_is_left_alone(tmp_path, path, before, meanwhile, after):
    if before is not None:
        path.write_bytes(before)
    file = read(path)
    path.unlink(missing_ok=True)
    if meanwhile is not None:
        path.write_bytes(meanwhile)
    with pytest.raises(Conflict if meanwhile else (Conflict, BadInput)):
        replace(file, after)
    assert (path.read_bytes() if path.exists() else None) == meanwhile
    assert names(tmp_path) == (["settings.json"] if meanwhile else [])


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path, path):
    real = tmp_path / "dotfiles.json"
    real.write_bytes(b"old")
    path.symlink_to(real)
    file = read(path)
    assert (file.real, file.is_link) == (real, True)
    replace(file, b"new")
    assert (path.is_symlink(), real.read_bytes()) == (True, b"new")


def test_a_link_that_is_replaced_meanwhile_is_not_followed(tmp_path, path):
    real, other = tmp_path / "real", tmp_path / "other"
    for file in (real, other):
        file.write_bytes(b"old")
    path.symlink_to(real)
    found = read(path)
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(Conflict):
        replace(found, b"new")
    assert real.read_bytes() == other.read_bytes() == b"old"


def test_other_things_than_files_and_links_out_of_a_project_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "large").write_bytes(b" " * (SIZE_LIMIT + 1))
    for name in ("pipe", "directory", "dangling", "large"):
        with pytest.raises(BadInput, match="Nothing was changed"):
            read(tmp_path / name)
    project, outside = tmp_path / "project", tmp_path / "outside.json"
    (project / ".claude").mkdir(parents=True)
    outside.write_bytes(b"{}")
    (project / ".claude" / "settings.local.json").symlink_to(outside)
    with pytest.raises(BadInput, match="leads out of"):
        read(project / ".claude" / "settings.local.json", project)


def test_a_file_of_another_user_is_refused(path, monkeypatch):
    path.write_bytes(b"{}")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(BadInput, match="another user"):
        read(path)


def test_directories_of_a_failed_write_are_removed(tmp_path, monkeypatch):
    file = read(tmp_path / "a" / "settings.json")
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(SystemFailure):
        replace(file, b"new")
    assert names(tmp_path) == []
