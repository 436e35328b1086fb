"""What calls of tools change and read, for every agent's names of their arguments."""

import json

import pytest

from compaction_app.entries.view import arguments_in_short, call_words, changes_of, path_read
from sessions_app.sessionlog.entries import call_parts

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n x\n-y\n+z\n*** End Patch"
EDITS = [{"old_string": "y", "new_string": "z"}, {"old_string": "a", "new_string": "b"}, 7]
PATCHED = ["@*** Update File: a.py", "@@@ def f():", " x", "-y", "+z"]


@pytest.mark.parametrize(
    ("tool", "arguments", "lines"),
    [
        ("edit", {"path": "a.py", "oldText": "x\ny", "newText": "x\nz"}, [" x", "-y", "+z"]),
        ("edit", {"path": "a.py", "edits": [{"oldText": "y", "newText": "z"}]}, ["-y", "+z"]),
        ("write", {"path": "a.py", "content": "x\ny\n"}, ["+x", "+y"]),
        ("Edit", {"replace_all": False, "file_path": "a", "old_string": "y", "new_string": "z"}, ["-y", "+z"]),
        ("Edit", {"file_path": "a", "old_string": "", "new_string": "z"}, ["+z"]),
        ("MultiEdit", {"file_path": "a", "edits": EDITS}, ["-y", "+z", "@⋯", "-a", "+b"]),
        ("Write", {"file_path": "a", "content": "x"}, ["+x"]),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "cell_id": "1", "new_source": "x"}, ["+x"]),
        ("edit", {"filePath": "a", "oldString": "y", "newString": "z"}, ["-y", "+z"]),
        ("write", {"filePath": "a", "content": "x"}, ["+x"]),
        ("patch", {"patchText": PATCH}, PATCHED),
        ("apply_patch", {"input": PATCH}, PATCHED),
        ("shell", {"command": ["apply_patch", PATCH]}, PATCHED),
        ("shell", {"command": f"cd src && apply_patch <<'EOF'\n{PATCH}\nEOF"}, PATCHED),
        ("read", {"path": "a.py"}, []),
        ("upload", {"path": "a.py", "content": "x"}, []),
        ("write", {"content": "x"}, []),
        ("edit", {"path": "a.py", "oldText": 7, "newText": None}, []),
        ("edit", {"path": "a.py", "edits": "x"}, []),
        ("edit", ["path"], []),
        ("write", {"path": "a.py", "content": "x" * 200_000}, []),
    ],
)
def test_a_call_that_changes_a_file_has_a_diff(tool, arguments, lines):
    assert [line.sign + line.text for line in changes_of(tool, json.dumps(arguments))] == lines


@pytest.mark.parametrize(("arguments", "lines"), [(PATCH, PATCHED), (PATCH[:-14], PATCHED), ("***", []), ("", [])])
def test_a_patch_may_be_recorded_as_it_is(arguments, lines):
    assert [line.sign + line.text for line in changes_of("apply_patch", arguments)] == lines


@pytest.mark.parametrize(
    ("tool", "arguments", "path"),
    [
        ("read", {"path": "src/a.py", "offset": 3}, "src/a.py"),
        ("Read", {"file_path": "/b/a.go"}, "/b/a.go"),
        ("read", {"filePath": "a.ts"}, "a.ts"),
        ("bash", {"command": "cat src/a.py"}, "src/a.py"),
        ("shell", {"command": ["bash", "-lc", "sed -n '1,200p' src/a.rs"]}, "src/a.rs"),
        ("exec_command", {"cmd": "nl -ba a.c"}, "a.c"),
        ("bash", {"command": "head -n 20 a.py"}, "a.py"),
        ("bash", {"command": "cat a.py b.py"}, ""),
        ("bash", {"command": "cat a.py | sort"}, ""),
        ("bash", {"command": []}, ""),
        ("grep", {"path": "a.py", "pattern": "x"}, ""),
        ("read", {"path": 7}, ""),
        ("read", [], ""),
    ],
)
def test_the_file_whose_text_a_call_asks_for(tool, arguments, path):
    assert path_read(tool, json.dumps(arguments)) == path


def test_the_file_stands_first_in_the_words_of_a_call():
    text = 'toolCall c1 Edit {"replace_all":false,"file_path":"/home/dev/a.py","old_string":"x"}'
    assert call_words(text, "c1", "/home/dev") == ("Edit", "a.py replace_all: false old_string: x")
    assert arguments_in_short(call_parts(text, "c1")[1], "/home/dev", only_file=True) == "a.py"
