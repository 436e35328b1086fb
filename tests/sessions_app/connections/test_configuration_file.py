"""An agent's configuration file is replaced as a whole, where it really is, and only as it was read."""

import os
import stat
from pathlib import Path

import pytest

from sessions_app.connections import configuration_file
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_new_file_is_private_and_comes_with_its_directories(tmp_path):
    path = tmp_path / "a" / "b" / "settings.json"
    file = configuration_file.read_configuration_file(path)
    assert file.content is None
    made = configuration_file.missing_directories(file)
    configuration_file.replace_configuration_file(file, b"{}")
    assert made == (str(tmp_path / "a"), str(tmp_path / "a" / "b"))
    assert path.read_bytes() == b"{}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    configuration_file.replace_configuration_file(configuration_file.read_configuration_file(path), None)
    configuration_file.remove_directories(made)
    assert names(tmp_path) == []


def test_an_existing_file_keeps_its_mode(tmp_path):
    path = tmp_path / "settings.json"
    path.write_bytes(b"old")
    path.chmod(0o644)
    assert configuration_file.missing_directories(configuration_file.read_configuration_file(path)) == ()
    configuration_file.replace_configuration_file(configuration_file.read_configuration_file(path), b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o644)
    assert names(tmp_path) == ["settings.json"]


def test_a_directory_in_which_something_else_is_stays(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "other").touch()
    configuration_file.remove_directories((str(tmp_path / "a"), str(tmp_path / "a" / "b")))
    assert names(tmp_path) == ["a", "a/other"]


@pytest.mark.parametrize(("before", "meanwhile"), [(b"old", b"theirs"), (b"old", None), (None, b"theirs")])
@pytest.mark.parametrize("after", [b"new", None])
def test_a_file_that_another_program_changed_is_left_alone(tmp_path, before, meanwhile, after):
    path = tmp_path / "settings.json"
    if before is not None:
        path.write_bytes(before)
    file = configuration_file.read_configuration_file(path)
    path.unlink(missing_ok=True)
    if meanwhile is not None:
        path.write_bytes(meanwhile)
    with pytest.raises(Conflict if meanwhile else (Conflict, BadInput)):
        configuration_file.replace_configuration_file(file, after)
    assert (path.read_bytes() if path.exists() else None) == meanwhile
    assert names(tmp_path) == (["settings.json"] if meanwhile else [])


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    real, path = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    real.write_bytes(b"old")
    path.symlink_to(real)
    file = configuration_file.read_configuration_file(path)
    assert (file.real, file.is_link) == (real, True)
    configuration_file.replace_configuration_file(file, b"new")
    assert (path.is_symlink(), real.read_bytes()) == (True, b"new")


def test_a_link_that_is_replaced_meanwhile_is_not_followed(tmp_path):
    real, other, path = tmp_path / "real", tmp_path / "other", tmp_path / "settings.json"
    for file in (real, other):
        file.write_bytes(b"old")
    path.symlink_to(real)
    read = configuration_file.read_configuration_file(path)
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(Conflict):
        configuration_file.replace_configuration_file(read, b"new")
    assert real.read_bytes() == other.read_bytes() == b"old"


def test_a_project_is_not_left(tmp_path):
    project, outside = tmp_path / "project", tmp_path / "outside.json"
    (project / ".claude").mkdir(parents=True)
    outside.write_bytes(b"{}")
    (project / ".claude" / "settings.local.json").symlink_to(outside)
    with pytest.raises(BadInput, match="leads out of"):
        configuration_file.read_configuration_file(project / ".claude" / "settings.local.json", project)


def test_other_things_than_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "large").write_bytes(b" " * (configuration_file.SIZE_LIMIT + 1))
    for name in ("pipe", "directory", "dangling", "large"):
        with pytest.raises(BadInput, match="Nothing was changed"):
            configuration_file.read_configuration_file(tmp_path / name)


def test_a_file_of_another_user_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "settings.json"
    path.write_bytes(b"{}")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(BadInput, match="another user"):
        configuration_file.read_configuration_file(path)


def test_directories_of_a_failed_write_are_removed(tmp_path, monkeypatch):
    file = configuration_file.read_configuration_file(tmp_path / "a" / "settings.json")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemFailure):
        configuration_file.replace_configuration_file(file, b"new")
    assert names(tmp_path) == []
