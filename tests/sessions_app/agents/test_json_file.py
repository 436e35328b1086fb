"""Settings with comments are read like the agent reads them; what is not closed is not searched again and again."""

from pathlib import Path

import pytest

from sessions_app.agents.json_file import SIZE_LIMIT, JsonFile, read_commented_json_file


def read(directory: Path, content: bytes) -> JsonFile:
    path = directory / "opencode.jsonc"
    path.write_bytes(content)
    found = read_commented_json_file(path)
    assert found is not None
    return found


def test_comments_and_last_commas_are_left_out(tmp_path):
    found = read(tmp_path, b'{"a": "// no /* comment, }", /* "b": 1, */ "c": ["\\",", ], // d\n}')
    assert found.values == {"a": "// no /* comment, }", "c": ['",']}
    assert not found.fault


@pytest.mark.parametrize("unclosed", [b"/* ", b'\\"'], ids=["comment", "string"])
def test_what_is_not_closed_is_read_once(tmp_path, unclosed):
    assert read(tmp_path, unclosed * (SIZE_LIMIT // len(unclosed))).fault
