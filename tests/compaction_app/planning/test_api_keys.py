"""The key file is private, complete or absent, bound to origins, and never quoted."""

import json
import logging
import multiprocessing
import os
import stat
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from compaction_app.providers.api_keys import KeptKey, checked_key, drop_key, hint_of, keep_key, read_keys
from sessions_app.disk import files
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from tests.files import unchanged
from tests.installation import refusal
from tests.processes import become_nobody, in_child

KEY = "sk-test-0123456789abcdefWXYZ"
KEPT = KeptKey("https://api.example.com", KEY)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys.json"


def test_without_a_file_there_are_no_keys_and_a_directory_in_its_place_is_refused(tmp_path, file):
    assert read_keys(tmp_path) == {}
    assert drop_key(tmp_path, "own") is False
    assert not file.exists()
    file.mkdir()
    assert refusal(lambda: keep_key(tmp_path, "own", KEPT)).endswith(" not_a_file")
    assert list(file.iterdir()) == []


def test_a_key_is_kept_with_its_origin_but_in_no_repr_until_it_is_dropped(tmp_path):
    keep_key(tmp_path, "own", KEPT)
    keep_key(tmp_path, "other", KeptKey("http://localhost:4000", "x"))
    assert read_keys(tmp_path)["own"] == KEPT
    assert drop_key(tmp_path, "own") is True
    assert list(read_keys(tmp_path)) == ["other"]
    keep_key(tmp_path, "own", KEPT)
    assert KEY not in repr(read_keys(tmp_path))
    assert KEY not in f"{KEPT} {KEPT!r}"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_file_is_private_whatever_the_umask(tmp_path, file, mask):
    usual = os.umask(mask)
    try:
        keep_key(tmp_path, "own", KEPT)
    finally:
        os.umask(usual)
    assert mode(file) == 0o600


@pytest.mark.parametrize("found", [0o644, 0o666, 0o640, 0o400])
def test_a_file_readable_by_others_is_made_private_when_first_read(tmp_path, file, found):
    keep_key(tmp_path, "own", KEPT)
    file.chmod(found)
    assert (read_keys(tmp_path)["own"], mode(file)) == (KEPT, 0o600)
    file.chmod(found)
    keep_key(tmp_path, "other", KEPT)
    assert mode(file) == 0o600


def test_a_change_never_writes_into_the_existing_file_and_a_failed_one_leaves_it_unchanged(tmp_path, file, monkeypatch):
    """A process that opened the file while it was readable sees no later key."""
    file.write_text("{}")
    file.chmod(0o644)
    with file.open() as opened_before:
        keep_key(tmp_path, "own", KEPT)
        assert opened_before.read() == "{}"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["keys.json"]
    keep_key(tmp_path, "own", KEPT)
    with unchanged(file):
        monkeypatch.setattr(files, "sync", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(SystemFailure) as failure:
            keep_key(tmp_path, "other", KEPT)
        assert failure.value.code == "disk_full"
        assert KEY not in failure.value.message
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["keys.json"]


def _keep_many(directory: Path, writer: int, count: int) -> None:
    for number in range(count):
        keep_key(directory, f"p{writer}-{number}", KeptKey("https://x.example", f"{KEY}{writer}{number}"))


def test_two_concurrent_writers_lose_no_key(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_keep_many, args=(tmp_path, writer, 15)) for writer in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        read_keys(tmp_path)  # at every moment the file is complete or absent
        for writer in writers:
            writer.join(0.01)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert set(read_keys(tmp_path)) == {f"p{writer}-{number}" for writer in range(2) for number in range(15)}


def test_a_file_of_another_user_is_permission_denied(tmp_path):
    base = tmp_path / "data"
    base.mkdir()
    for above in (*tmp_path.parents, tmp_path, base):
        if above.stat().st_uid == os.geteuid() and "pytest" in str(above):
            above.chmod(0o755)
    keep_key(base, "own", KEPT)
    answer = in_child(lambda: refusal(lambda: read_keys(base)), become_nobody)
    assert answer == ("6 permission_denied" if os.geteuid() == 0 else "done")


ORIGIN = {"origin": "https://x.example"}
ENTRIES = [KEY, ORIGIN, {**ORIGIN, "key": ["x", KEY]}, {**ORIGIN, "key": f"{KEY}\r\nHost: evil"}]
DAMAGED = [
    *(b"", b"{", b"[]", b"null", b"\xff\xfe\x00"),
    *(json.dumps({"own": entry}).encode() for entry in ENTRIES),
    json.dumps({"own": {**ORIGIN, "key": KEY}}).encode()[:-3],
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_an_error_and_never_overwritten(tmp_path, file, content, caplog):
    file.write_bytes(content)
    keep = partial(keep_key, tmp_path, "new", KEPT)
    for act in (partial(read_keys, tmp_path), keep, partial(drop_key, tmp_path, "own")):
        with pytest.raises(SystemFailure) as failure:
            act()
        assert failure.value.code == "bad_key_file"
        assert str(file) in failure.value.message
        # Neither the message nor the cause quotes the damaged content.
        assert KEY not in failure.value.message
        assert failure.value.__cause__ is None
        logging.getLogger("redline").error("it failed", exc_info=failure.value)
    assert file.read_bytes() == content
    assert KEY not in caplog.text


def test_a_key_unfit_for_a_header_is_refused_unquoted_and_blanks_around_it_are_cut():
    within = "\nx-evil: two|\r\ntwo| |\x00|\x7f|\x1b[31m|\u202e|–|\u00a0two".split("|")
    for given in (*(f"sk-one{part}one" for part in within), "sk-öne", "\ud83d", "x" * 8_193):
        with pytest.raises(BadInput) as refused:
            checked_key(given)
        assert refused.value.code == "bad_key", given
        assert "one" not in refused.value.message.replace("This one", "").replace("this one", "")
    assert (checked_key(f"  {KEY}\r\n"), checked_key(" \n")) == (KEY, "")


@pytest.mark.parametrize(
    ("key", "hint"), [(KEY, "…WXYZ"), ("", ""), ("abcd", "…"), ("secret-pass", "…"), ("x" * 12 + "last", "…last")]
)
def test_a_hint_shows_the_last_four_characters_and_nothing_of_a_short_key(key, hint):
    assert hint_of(key) == hint
