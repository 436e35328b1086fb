"""Configurations with comments: read as the agent reads them; Redline's entry among the hooks changes no other byte."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from sessions_app.agents.edge.json_file import SIZE_LIMIT, JsonFile, read_commented_json_file
from sessions_app.agents.pure.hooks import STATUS, TIMEOUT, entry_command, with_entry, without_entry
from sessions_app.agents.pure.json_document import BYTE_ORDER_MARK, JsonDocument
from sessions_app.sessionlog.errors import BadInput
from tests.files import place

COMMAND: Final = "'/home/me/redline' ask claude-code --connection claude-code"
ENTRY: Final = {"type": "command", "command": COMMAND, "timeout": TIMEOUT, "statusMessage": STATUS}
GROUP: Final = {"hooks": [ENTRY]}
OLD_ENTRY: Final = {"type": "command", "command": "/old/redline ask claude-code --connection x", "timeout": 5}
NAME: Final = "settings.json"
THEIRS: Final = {"type": "command", "command": 'say "hi" // redline', "timeout": 3}
FOREIGN: Final = st.fixed_dictionaries(
    {"hooks": st.just([THEIRS])}, optional={"matcher": st.sampled_from(["auto", "manual", ""])}
)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a // b", 'q"/*', "ü\n", "x" * 40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=6,
)
HOOKS: Final = st.fixed_dictionaries(
    {}, optional={"PreCompact": st.lists(FOREIGN, max_size=2), "SessionStart": st.lists(FOREIGN, max_size=2)}
)
SETTINGS: Final = st.dictionaries(st.sampled_from(["model", "env", "permissions"]), VALUES, max_size=3).flatmap(
    lambda rest: st.fixed_dictionaries({}, optional={"hooks": HOOKS}).flatmap(
        lambda hooks: st.permutations(list({**rest, **hooks}.items())).map(dict)
    )
)
COMMENTS: Final = ["// a comment, with , and }", '/* "one" */', "/* two\n   lines */"]


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """A configuration as somebody may have written it, and what it says."""
    value = draw(SETTINGS)
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    indent = draw(st.sampled_from([None, "  ", "    ", "\t"]))
    text = json.dumps(value, indent=indent, ensure_ascii=draw(st.booleans()))
    pieces = re.split(r'("(?:[^"\\]|\\.)*")', text)
    is_commented, is_trailing = draw(st.booleans()), draw(st.booleans())
    for at in range(0, len(pieces), 2):
        # Outside of strings: comments and commas where they may be.
        if is_trailing:
            pieces[at] = re.sub(r"(?<=[\]}\w])(\s+)(?=[\]}])", r",\1", pieces[at])
        if is_commented and indent is not None:
            pieces[at] = re.sub(r"\n", lambda _: f" {draw(st.sampled_from(['', *COMMENTS]))}\n", pieces[at], count=2)
    text = "".join(pieces).replace("\r\n", "\n").replace("\n", newline)
    opening = draw(st.sampled_from(["", BYTE_ORDER_MARK, newline, f"// mine{newline}"]))
    ending = draw(st.sampled_from(["", newline, f"{newline}// the end"]))
    return (opening + text + ending).encode(), value


def plain(content: bytes) -> Any:
    """What a document says, as any reader of JSON with comments has it."""
    text = content.decode().removeprefix(BYTE_ORDER_MARK)
    strings = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
    text = strings.sub(lambda found: found[1] or " ", text)
    text = re.sub(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', lambda found: found[1] or "", text)
    return json.loads(text)


def with_group(value: dict[str, Any]) -> dict[str, Any]:
    hooks = value.get("hooks", {})
    return {**value, "hooks": {**hooks, "PreCompact": [*hooks.get("PreCompact", []), GROUP]}}


def without_blanks_in_empty(content: bytes) -> bytes:
    return re.sub(rb"([{\[])\s+([}\]])", rb"\1\2", content)


def is_within(small: bytes, large: bytes) -> bool:
    """Whether all bytes of one are in the other, in the same order."""
    rest = iter(large)
    return all(byte in rest for byte in small)


@given(documents())
def test_every_other_byte_stays_and_comes_back(document):
    content, value = document
    changed = with_entry(content, COMMAND, NAME)
    assert plain(changed) == with_group(value)
    assert is_within(content, changed)
    assert with_entry(changed, COMMAND, NAME) == changed
    assert entry_command(changed, NAME) == COMMAND
    assert entry_command(content, NAME) is None
    # Blanks between the brackets of an empty object are all that a removal by text may change.
    assert without_blanks_in_empty(without_entry(changed, content, NAME)) == without_blanks_in_empty(content)


@given(documents(), st.sampled_from(["before", "after", "hook", "reformatted"]))
def test_changes_of_others_stay(document, how):
    content, value = document
    changed = with_entry(content, COMMAND, NAME)
    foreign = {"hooks": [{"type": "command", "command": "theirs"}]}
    if how == "hook":
        edited = with_entry_of(changed, foreign)
        expected = with_group(value)
        expected["hooks"]["PreCompact"] = [*expected["hooks"]["PreCompact"][:-1], foreign]
    elif how == "reformatted":
        edited = json.dumps({**plain(changed), "model": "new"}, indent=4).encode()
        expected = {**value, "model": "new"}
    else:
        mark = b" /* theirs */ "
        edited = mark + changed if how == "before" and not changed.startswith(b"\xef\xbb\xbf") else changed + b"\n"
        expected = value
    left = without_entry(edited, content, NAME)
    assert plain(left) == expected
    assert entry_command(left, NAME) is None
    assert b"redline ask" not in left.replace(b"say", b"")


def with_entry_of(content: bytes, group: dict[str, Any]) -> bytes:
    document = JsonDocument(content, NAME)
    hooks = document.root.member("hooks")
    groups = hooks.member("PreCompact") if hooks is not None else None
    assert groups is not None
    return document.with_item(groups, group)


def written(before: str) -> str:
    return with_entry(before.encode(), COMMAND, NAME).decode()


@pytest.mark.parametrize("before", ["", "\n", "{}", "{\n}\n", "\ufeff{}", " "])
def test_a_document_without_anything(before):
    assert plain(written(before).encode()) == {"hooks": {"PreCompact": [GROUP]}}
    assert written(before).startswith("\ufeff") == before.startswith("\ufeff")


def test_what_is_written_into_a_usual_document():
    before = '{\n  "model": "opus" // the best\n}\n'
    assert written(before) == (
        '{\n  "model": "opus", // the best\n  "hooks": {\n    "PreCompact": [\n      {\n        "hooks": [\n'
        '          {\n            "type": "command",\n'
        f'            "command": {json.dumps(COMMAND)},\n            "timeout": 3660,\n'
        f'            "statusMessage": {json.dumps(STATUS)}\n'
        "          }\n        ]\n      }\n    ]\n  }\n}\n"
    )
    on_one_line = f'{{"model":"opus","hooks":{{"PreCompact": {json.dumps([GROUP])}}}}}'
    assert written('{"model":"opus","hooks":{}}') == on_one_line


ODD_GROUPS: Final = [1, None, {"hooks": 3}, {"hooks": [4, {"command": 5}]}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            [{"matcher": "auto", "hooks": [{"command": "theirs"}, OLD_ENTRY]}],
            [{"matcher": "auto", "hooks": [{"command": "theirs"}, ENTRY]}],
            id="an older entry is brought up to date where it is",
        ),
        pytest.param(
            [{"hooks": [OLD_ENTRY]}, {"hooks": [OLD_ENTRY]}, {"hooks": []}],
            [GROUP, {"hooks": []}],
            id="of two entries one is left",
        ),
        pytest.param(ODD_GROUPS, [*ODD_GROUPS, GROUP], id="groups of other shapes are left alone"),
    ],
)
def test_what_becomes_of_the_groups_that_are_there(before, after):
    changed = plain(written(json.dumps({"hooks": {"PreCompact": before}})).encode())
    assert changed == {"hooks": {"PreCompact": after}}


@pytest.mark.parametrize("indent", [None, 2])
def test_an_entry_is_brought_up_to_date_in_the_layout_that_it_has(indent):
    before, after = ({"hooks": {"PreCompact": [{"hooks": [entry]}]}} for entry in (OLD_ENTRY, ENTRY))
    assert written(json.dumps(before, indent=indent)) == json.dumps(after, indent=indent)


def test_only_the_entry_leaves_a_group_with_others_and_what_was_empty_before_stays():
    before = {"hooks": {"PreCompact": [{"hooks": [{"command": "theirs"}, OLD_ENTRY]}]}, "a": 1}
    left = without_entry(json.dumps(before, indent=2).encode(), b"{}", NAME)
    assert plain(left) == {"hooks": {"PreCompact": [{"hooks": [{"command": "theirs"}]}]}, "a": 1}
    before = b'{"hooks": {"PreCompact": []}}'
    assert without_entry(with_entry(before, COMMAND, NAME), before, NAME) == before
    assert plain(without_entry(with_entry(before, COMMAND, NAME), None, NAME)) == {}


def test_of_a_member_that_is_there_twice_the_last_one_counts():
    before = '{"hooks": {"a": 1}, "hooks": {"b": 2}}'
    assert json.loads(written(before))["hooks"] == {"b": 2, "PreCompact": [GROUP]}


@pytest.mark.parametrize(
    "content",
    [
        b"[]", b"1", b"{", b'{"a" 1}', b'{"a": 1,, }', b'{"a": 1} x', b'{"a": 01}', b"{'a': 1}", b"\xff{}",
        b'{"a": "\n"}', b'{"a": "\\x"}', b"{,}", b'{"a": truex}', b"/* {}", b'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"hooks": []}', b'{"hooks": {"PreCompact": {}}}', b'{"hooks": {"PreCompact": "x"}}',
    ],
)  # fmt: skip
def test_anything_else_is_refused(content):
    with pytest.raises(BadInput, match=r"Nothing was changed"):
        with_entry(content, COMMAND, NAME)


def test_a_document_with_comments_is_known_not_to_be_plain_json():
    assert JsonDocument(b"\xef\xbb\xbf{}", NAME).is_strict
    assert not JsonDocument(b"// x\n{}", NAME).is_strict
    assert not JsonDocument(b"{'a': 1,}".replace(b"'", b'"'), NAME).is_strict


def read(directory: Path, content: bytes) -> JsonFile:
    return read_commented_json_file(place(directory / "opencode.jsonc", content))


def test_comments_and_last_commas_are_left_out(tmp_path):
    found = read(tmp_path, b'{"a": "// no /* comment, }", /* "b": 1, */ "c": ["\\",", ], // d\n}')
    assert found.values == {"a": "// no /* comment, }", "c": ['",']}
    assert not found.fault


@pytest.mark.parametrize("unclosed", [b"/* ", b'\\"'], ids=["comment", "string"])
def test_what_is_not_closed_is_read_once(tmp_path, unclosed):
    assert read(tmp_path, unclosed * (SIZE_LIMIT // len(unclosed))).fault
