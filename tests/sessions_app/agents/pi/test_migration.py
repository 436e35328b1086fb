"""Migration: the copy reads like the old file, and no byte changes unnecessarily."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sessions_app.agents.pi.pure.parser import SessionParser
from sessions_app.agents.pi.pure.repair import migrate
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines, stringify
from sessions_app.sessionlog.session import DamageKind, Header
from sessions_app.sessionlog.tree import SessionTree
from tests.factories import (
    HEADER,
    V1_HEADER,
    assistant,
    bash,
    call,
    chain,
    damage_of,
    read_log,
    result,
    session_bytes,
    text,
    user,
    version_1,
)
from tests.installation import refusal
from tests.paths import corpus

GIVEN = Header("new", 3, cwd="", timestamp="2026-01-01T00:00:00.000Z", parent_session="")


def copy_of(data: bytes, header: Header | None = None) -> bytes:
    return b"".join(migrate(split_lines([data]), "the session", header))


def recorded_in(data: bytes) -> list[tuple[Entry, Texts, dict[str, Any]]]:
    parser = SessionParser()
    found = [one for line in split_lines([data]) for one in parser.read(line)]
    return [(one.entry, one.texts, one.data) for one in found]


def assert_reads_alike(old: bytes, new: bytes, added_above: int = 0) -> None:
    """Check that ids, parents, roles, blocks, estimates and texts equal those of the old file, entry by entry.

    `added_above` is the number of lines that the new file has before the old ones.
    """
    before, after = recorded_in(old), recorded_in(new)
    assert len(before) == len(after)
    for (entry, texts, _), (copied, copied_texts, _) in zip(before, after, strict=True):
        for name in Entry.__struct_fields__:
            if name not in ("number", "offset", "length", "control"):
                assert getattr(copied, name) == getattr(entry, name), name
        assert copied.number == entry.number + added_above
        assert copied_texts == texts
    trees = [SessionTree([entry for entry, _, _ in found]) for found in (before, after)]
    branches = [tree.branch(tree.entries[-1].id) if tree.entries else [] for tree in trees]
    for reader in READERS.values():
        context, copied_context = map(reader.rebuild, branches)
        assert context.usage.tokens == copied_context.usage.tokens
        assert [one.entry.id for one in context.messages] == [one.entry.id for one in copied_context.messages]


def assert_splices(old: bytes, new: bytes) -> None:
    """Check that every line is the old one, except for fields inserted after its opening brace."""
    assert len(old.split(b"\n")) == len(new.split(b"\n"))
    for before, after in zip(old.split(b"\n"), new.split(b"\n"), strict=True):
        if before != after:
            assert after.startswith(b"{")
            assert after.endswith(before[1:])


TALK = (
    *(user("größer 😀"), assistant(text("b"), call("c1"), usage={"totalTokens": 50}), result("c1"), bash("ls", "a")),
    {"type": "compaction", "summary": "s", "firstKeptEntryIndex": 2},
    *({"type": "model_change", "provider": "p", "modelId": "m"}, user("last")),
)


def test_a_version_1_session_reads_alike_at_version_3_and_its_compaction_keeps_the_same_entries():
    old = session_bytes(version_1(*TALK))
    new = copy_of(old)
    assert (read_log(new).version, read_log(new).damage) == (3, [])
    assert read_log(new).header == read_log(session_bytes([HEADER, *version_1(*TALK)[1:]])).header
    assert_reads_alike(old, new)
    assert_splices(old, new)
    entries = read_log(new).entries
    branch = SessionTree(entries).branch(entries[-1].id)
    assert [one.entry.number for one in READERS["pi"].rebuild(branch).messages] == [6, 3, 4, 5, 8]


def test_precise_numbers_and_invalid_utf8_are_copied():
    line = b'{"type":"message","n":123456789012345678901234567890, "f":1.0,"g":1e400,"message":{"role":"user"}}'
    assert line[1:] in copy_of(session_bytes([V1_HEADER, line]))
    line = b'{"type":"message","message":{"role":"user","content":"a\xff\xc3(\xed\xa0\x80"}}'
    old = session_bytes([V1_HEADER, line])
    assert line[1:] in copy_of(old)
    assert_reads_alike(old, copy_of(old))


@pytest.mark.parametrize("spaced", [b"{}", b" {  } ", b' {"type":"message"}', b'{ "type" : "message" }\r'])
def test_a_line_with_blanks_in_it_is_spliced_too(spaced):
    old = session_bytes([V1_HEADER, spaced])
    new = copy_of(old)
    assert_reads_alike(old, new)
    assert new.endswith(spaced.partition(b"{")[2] + b"\n")
    assert read_log(new).damage == []


def test_an_id_in_a_version_1_entry_is_replaced_by_the_derived_one():
    old = session_bytes([V1_HEADER, {"type": "message", "id": "other", "parentId": "other", "message": user("x")}])
    assert_reads_alike(old, copy_of(old))
    assert read_log(copy_of(old)).entries[0].id == "00000001"


@pytest.mark.parametrize("depth", [100, 400, 800])
def test_a_deeply_nested_line_keeps_its_bytes(depth):
    line = b'{"type":"message","x":' + b"[" * depth + b"1.0" + b"]" * depth + b"}"
    assert copy_of(session_bytes([V1_HEADER, line])).endswith(line[1:] + b"\n")


DAMAGED = [
    *(b"{torn", b"", b"  ", b"\0" * 100, b"[1]", b"null", b'{"type":"x"}{"type":"y"}'),
    *(b"\xef\xbb\xbf" + json.dumps(V1_HEADER).encode(), b"\xff\xfe"),
]


@pytest.mark.parametrize("line", [*DAMAGED, json.dumps(V1_HEADER).encode()], ids=lambda line: repr(line[:20]))
def test_a_damaged_line_is_copied_byte_for_byte_in_its_place(line):
    sound = version_1(user("a"), user("b"))
    old = session_bytes([*sound[:2], line, *sound[2:]])
    new = copy_of(old)
    assert new.split(b"\n")[2] == line
    assert_reads_alike(old, new)
    assert damage_of(read_log(new)) == damage_of(read_log(old))


def test_a_last_line_without_newline_stays_without_one():
    whole = session_bytes(version_1(user("a"), user("b")))
    for old in (whole[:-1], whole[:-9], whole + b"{"):
        new = copy_of(old)
        assert not new.endswith(b"\n")
        assert_reads_alike(old, new)
        assert damage_of(read_log(new)) == damage_of(read_log(old))
    assert copy_of(whole[:-9]).endswith(whole[:-9].rpartition(b"\n")[2])


def test_a_header_keeps_its_byte_order_mark_and_its_fields():
    old = b"\xef\xbb\xbf" + session_bytes(version_1(user("a")))
    new = copy_of(old)
    assert new.startswith(b'\xef\xbb\xbf{"version":3,')
    assert_reads_alike(old, new)
    assert read_log(new).cwd == "/home/dev/project"


@pytest.mark.parametrize("above", [b"", b"\xef\xbb\xbf", b"\n", b"torn\n", b"\0\0\n"])
@pytest.mark.parametrize("recorded", [version_1(user("a"), user("b"))[1:], chain(user("a"), user("b"))[1:]])
def test_a_session_without_header_is_given_one_as_its_first_line(recorded, above):
    old = above + session_bytes(recorded)
    new = copy_of(old, GIVEN)
    assert_reads_alike(old, new, added_above=1)
    log = read_log(new)
    assert log.header == GIVEN
    assert new.startswith(b'{"type":"session","version":3,"id":"new"')
    assert DamageKind.NO_HEADER not in dict(damage_of(log))
    if "id" in recorded[0]:
        assert new.split(b"\n", 1)[1] == old.removeprefix(b"\xef\xbb\xbf")


def test_a_session_with_a_header_gets_no_second_one_and_one_without_none_if_none_is_given():
    with_header, *rest = version_1(user("a"), user("b"))
    old = session_bytes([with_header, *rest])
    assert copy_of(old, GIVEN) == copy_of(old)
    with pytest.raises(BadInput, match="version 3"):
        copy_of(session_bytes(chain(user("a"))), GIVEN)
    old = session_bytes(rest)
    new = copy_of(old)
    assert_reads_alike(old, new)
    assert (read_log(new).version, damage_of(read_log(new))) == (3, [(DamageKind.NO_HEADER, 1)])


V2_HEADER = {**HEADER, "version": 2}


def test_a_version_2_session_reads_alike_and_only_its_hook_messages_change():
    hook = {"role": "hookMessage", "content": 'says "role":"hookMessage" itself', "customType": "x"}
    recorded = [V2_HEADER, *chain(user("a"), hook, assistant(text("b")))[1:]]
    old = b"".join(stringify(one).encode() + b"\n" for one in recorded)
    new = copy_of(old)
    assert_reads_alike(old, new)
    assert (read_log(new).version, read_log(new).damage) == (3, [])
    before, after = old.split(b"\n"), new.split(b"\n")
    renamed = before[2].replace(b'"role":"hookMessage"', b'"role":"custom"', 1)
    assert after[1:4] == [before[1], renamed, before[3]]
    assert [data["message"]["role"] for _, _, data in recorded_in(new)] == ["user", "custom", "assistant"]


@pytest.mark.parametrize(
    "line",
    [
        rb'{"x":{"role":"hookMessage"},"type":"message","id":"e1","message":{"role":"hookMessage","content":"a"}}',
        rb'{"type":"message","id":"e1","message":{"role" : "hookMessage","content":"a"}}',
        rb'{"type":"message","id":"e1","message":{"role":"hook\u004dessage","content":"\ud800"}}',
    ],
)
def test_only_hook_messages_are_renamed_however_they_were_written(line):
    old = session_bytes([V2_HEADER, line])
    new = copy_of(old)
    assert_reads_alike(old, new)
    (_, _, before), (_, _, after) = *recorded_in(old), *recorded_in(new)
    assert after == {**before, "message": {**before["message"], "role": "custom"}}


def test_an_entry_of_version_2_without_id_is_damage_and_is_copied():
    line = b'{"type":"message","message":{"role":"hookMessage"}}'
    assert line + b"\n" in copy_of(session_bytes([V2_HEADER, *chain(user("a"))[1:], line]))


_, ENTRY = chain(user("x"))
REFUSED = {
    **{f"version {one}": ([{**HEADER, "version": one}, ENTRY], "is_current") for one in (3, 3.0, 4, 10**20)},
    "entries with ids and no header": ([ENTRY], "is_current"),
    "a copy": ([copy_of(session_bytes(version_1(user("x"))))[:-1]], "is_current"),
    "nothing": ([], "not_a_session"),
    **{f"{line!r}": ([line], "not_a_session") for line in (b"\0\0", b'{"type":"summary"}', b"prose")},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_an_old_session_is_refused_and_a_current_one_before_any_output(name):
    recorded, code = REFUSED[name]
    given_out = []
    found = migrate(split_lines([session_bytes(recorded)]), "the session")
    assert refusal(lambda: given_out.extend(found)) == f"2 {code}"
    assert given_out == [] or code == "not_a_session"


some_lines = st.lists(
    st.one_of(
        st.sampled_from([*TALK, {"role": "hookMessage", "content": "x"}]).map(lambda one: version_1(one)[1]),
        st.sampled_from(DAMAGED),
        st.dictionaries(
            st.sampled_from(["type", "id", "parentId", "message", "firstKeptEntryIndex", "0"]),
            st.sampled_from(["message", "compaction", "a", "\ud800", 1.5, 10**30, None, {}, []]),
        ),
    ),
    max_size=6,
)


@given(some_lines, st.booleans(), st.booleans())
def test_the_copy_of_any_old_file_reads_alike(lines, with_header, ended):
    old = session_bytes([V1_HEADER, *lines] if with_header else [*version_1(user("a"))[1:], *lines])
    old = old if ended else old[:-1]
    assert_reads_alike(old, copy_of(old))


def test_real_sessions_of_version_1_read_alike():
    directory = corpus()
    found = sorted(directory.glob("pi/*.v1.jsonl")) if directory else []
    sessions = [path.read_bytes() for path in found] or [session_bytes(version_1(*TALK * 50, *TALK))]
    for old in sessions:
        new = copy_of(old)
        assert_reads_alike(old, new)
        assert_splices(old, new)
        assert damage_of(read_log(new)) == damage_of(read_log(old))
