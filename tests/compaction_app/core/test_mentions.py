"""What statements mention, and what of it others still mention: each rule, and what holds for all statements."""

import pytest
from hypothesis import given, strategies as st

from compaction_app.core.mentions import (
    ERROR_LENGTH,
    FREQUENT,
    MEASURES,
    Mentions,
    Statement,
    Subjects,
    statements_of,
    subjects_of,
)
from sessions_app.sessionlog.context import keep
from sessions_app.sessionlog.entries import Role
from tests.factories import assistant, bash, branch_and_texts, call, chain, image, session_bytes, text, thinking, user


def recorded(*messages: dict[str, object], project: str = "") -> list[Statement]:
    """The statements of a session with these messages."""
    branch, texts = branch_and_texts(session_bytes(chain(*messages)))
    found = [message for message in map(keep, branch) if message is not None]
    return list(statements_of(found, texts, project))


def said(*words: str, role: str = Role.ASSISTANT, failed: bool = False) -> list[Statement]:
    return [Statement(f"e{number}", role, one, failed) for number, one in enumerate(words, 1)]


def words_of(subjects: Subjects, measure: str) -> list[str]:
    return [subject.words for subject in getattr(subjects, measure)]


def names_in(*texts: str) -> list[str]:
    """The names in a text that stands in enough statements."""
    return words_of(subjects_of(said(*texts) * FREQUENT), "names")


def errors_in(output: str, *, failed: bool = True) -> list[str]:
    return words_of(subjects_of(said(output, role=Role.TOOL_RESULT, failed=failed)), "errors")


def touched(*calls: dict[str, object]) -> Subjects:
    return subjects_of(recorded(assistant(*calls)))


def test_each_block_is_a_statement_a_call_says_its_arguments_and_what_an_agent_adds_is_none():
    found = recorded(user("go"), assistant(thinking("hm"), text("done"), image()), bash("ls", "a.py"))
    assert [(one.entry_id, one.role, one.text) for one in found] == [
        ("e1", Role.USER, "go"),
        ("e2", Role.ASSISTANT, "hm"),
        ("e2", Role.ASSISTANT, "done"),
        ("e3", Role.COMMAND, "Ran ls\na.py"),
    ]
    (found,) = recorded(assistant(call("c1", "edit", oldText="a\tb", edits=[{"newText": "c"}], limit=7)))
    assert (found.text, found.tool) == ("a\tb\nc", "edit")
    found = recorded({"role": "system", "content": "You are."}, user("go"))
    assert found == [Statement("e2", Role.USER, "go")]


@pytest.mark.parametrize("argument", ["path", "file_path", "filePath", "notebook_path"])
def test_the_file_that_a_call_names_is_a_path(argument):
    assert words_of(touched(call("c1", "read", **{argument: "/src/a.py"})), "paths") == ["/src/a.py"]


def test_the_files_of_a_patch_are_paths_and_one_file_is_one_path_however_it_is_written():
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n*** Add File: c.py\n*** Delete File: d.py\n"
    assert words_of(touched(call("c1", "apply_patch", input=patch)), "paths") == ["a.py", "b.py", "c.py", "d.py"]
    blocks = [call(f"c{number}", path=path) for number, path in enumerate(["/p/a.py", "a.py", "./x/../a.py"])]
    (found,) = subjects_of(recorded(assistant(*blocks), project="/p")).paths
    assert (found.words, found.uses) == ("/p/a.py", 3)


@pytest.mark.parametrize("lines", ["", ":5", ":108-175", ":raw", ":1-20,40-60", ":5 "])
def test_lines_of_a_file_are_not_a_path_of_their_own(lines):
    found = touched(call("c1", path=f"/p/a.py{lines}"), call("c2", path="/p/a.py"))
    assert words_of(found, "paths") == ["/p/a.py"]


@pytest.mark.parametrize("path", ["/p/a:b", "/p/10:30.txt", "/p/a.py:5x"])
def test_a_colon_in_a_path_is_part_of_it(path):
    assert words_of(touched(call("c1", path=path)), "paths") == [path]


@pytest.mark.parametrize("path", ["", "  ", ".", "/", "/p", "a\nb", "x" * 1_001, 7])
def test_what_names_no_file_is_no_path(path):
    assert subjects_of(recorded(assistant(call("c1", path=path)), project="/p")).paths == ()


@pytest.mark.parametrize(
    ("paths", "mention", "expected"),
    [
        ("/p/src/main.ts", "see main.ts", "/p/src/main.ts"),
        ("/p/src/main.ts", "see `src/main.ts:12`.", "/p/src/main.ts"),
        ("/p/src/main.ts", "it is in /p/src/main.ts.", "/p/src/main.ts"),
        ("/p/src/main.ts", "domain.ts", ""),
        ("/p/src/main.ts", "main.tsx", ""),
        ("/p/a/index.ts /p/b/index.ts", "index.ts", ""),
        ("/p/a/index.ts /p/b/index.ts", "b/index.ts", "/p/b/index.ts"),
        ("/p/a/index.ts /p/b/index.ts", "/p/a/index.ts and b/index.ts", "/p/a/index.ts /p/b/index.ts"),
        ("/p/a/index.ts /p/b/index.ts", "/p/ab/index.ts", ""),
        ("/a.ts /p/a.ts", "/a.ts", "/a.ts"),
    ],
)
def test_a_path_is_mentioned_by_its_shortest_distinct_ending(paths, mention, expected):
    found = touched(*(call(f"c{number}", path=path) for number, path in enumerate(paths.split())))
    assert words_of(Mentions(said(mention)).of(found), "paths") == expected.split()


def test_a_path_with_a_blank_is_mentioned_by_a_call_that_names_it():
    found = touched(call("c1", path="/p/my notes.md"))
    assert Mentions(recorded(assistant(call("c2", path="/p/my notes.md")))).of(found).paths == found.paths


@pytest.mark.parametrize("name", ["readFile", "ReadFile", "read_file", "_readFile", "utf8Text", "MAX_SIZE"])
def test_an_identifier_with_a_capital_or_an_underscore_inside_is_a_name(name):
    assert names_in(f"call {name}(7)") == [name]


@pytest.mark.parametrize("word", ["readfile", "Read", "READ", "--noEmit", "x-noEmit", "_read", "9aB", "a" * 80 + "B"])
def test_other_words_are_no_names(word):
    assert names_in(f"the word {word} here") == []


def test_a_name_counts_once_for_each_statement_and_the_most_used_ones_come_first():
    few = said(*["readFile readFile"] * 4)
    assert subjects_of(few).names == ()
    (found,) = subjects_of([*few, Statement("e9", Role.USER, "readFile")]).names
    assert (found.words, found.entry_id, found.uses) == ("readFile", "e1", 5)
    statements = said(*["bA"] * FREQUENT, *["aB cD"] * FREQUENT, "cD")
    assert words_of(subjects_of(statements), "names") == ["cD", "aB", "bA"]


@pytest.mark.parametrize(
    ("mention", "count"), [("readFile", 1), ("(readFile)", 1), ("readFiles", 0), ("myreadFile", 0)]
)
def test_a_name_is_mentioned_as_a_whole_word(mention, count):
    found = subjects_of(said(*["readFile"] * FREQUENT))
    assert len(Mentions(said(mention)).of(found).names) == count


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("src/a.ts(16,58): error TS2305: no such member", "error TS2305: no such member"),
        ("a.c:3:9: error: expected ';'", "error: expected ';'"),
        ("a.py:3: Error: bad", "Error: bad"),
        ("error[E0308]: mismatched types", "error[E0308]: mismatched types"),
        ("  ValueError:  too   far", "ValueError: too far"),
        ("E   json.JSONDecodeError: empty", "json.JSONDecodeError: empty"),
        ("fatal: not a git repository", "fatal: not a git repository"),
        ("fatal error: a.h not found", "fatal error: a.h not found"),
        ("java.io.IOException: closed", "java.io.IOException: closed"),
        ("panic: nil map", "panic: nil map"),
    ],
)
def test_a_line_of_a_failed_result_that_begins_with_an_error_is_one(line, expected):
    assert errors_in(f"before\n{line}\nafter") == [expected]


@pytest.mark.parametrize(
    "line", ["npm error code 2", "an error: no", "error:", "errors: 3", "const error: string = 7", "terror: x"]
)
def test_other_lines_are_no_errors(line):
    assert errors_in(line) == []


@pytest.mark.parametrize(
    "output", ["Process exited with code 1\nfatal: x", "fatal: x\nExit code: 2", 'exit_code":1 \nfatal: x']
)
def test_a_command_that_reports_its_failure_has_failed(output):
    assert errors_in(output, failed=False) == ["fatal: x"]


@pytest.mark.parametrize(
    "output", ["fatal: x", "fatal: x\nexit code: 0", f"fatal: x\n{'y' * 500} exit code 1 {'y' * 500}"]
)
def test_what_did_not_fail_has_no_errors(output):
    assert errors_in(output, failed=False) == []
    assert subjects_of(said("fatal: x", failed=True)).errors == ()


def test_an_error_counts_each_time_and_is_cut():
    statements = said("error: a\nerror: a", f"error: {'b' * 400}", role=Role.TOOL_RESULT, failed=True)
    first, second = subjects_of(statements).errors
    assert (first.words, first.uses, len(second.words)) == ("error: a", 2, ERROR_LENGTH)


def test_messages_are_what_the_user_said_in_order():
    statements = said("b\n c", "a", "/clear", " ", role=Role.USER) + said("x")
    assert words_of(subjects_of(statements), "messages") == ["b c", "a"]


@pytest.mark.parametrize(
    ("message", "mention", "count"),
    [
        *(("fix the loop", "He said: fix\nthe  loop.", 1), ("fix the loop", "prefix the loop", 0)),
        *(("fix the loop", "fix the loops", 0), ("fix the loop", "Fix the loop", 0), ("go", "gone, then go", 1)),
    ],
)
def test_a_message_is_mentioned_word_for_word(message, mention, count):
    found = subjects_of(said(message, role=Role.USER))
    assert len(Mentions(said(mention)).of(found).messages) == count


WORDS = st.sampled_from(["readFile", "a_b", "main.ts", "src/main.ts", "error: bad", "go on", "\n", " ", "x", "💥"])
STATEMENTS = st.lists(
    st.builds(
        Statement,
        st.sampled_from(["e1", "e2"]),
        st.sampled_from([Role.USER, Role.ASSISTANT, Role.TOOL_RESULT]),
        st.lists(WORDS, max_size=6).map(" ".join),
        st.booleans(),
        st.just("read"),
        st.lists(st.sampled_from(["/p/src/main.ts", "/p/lib/main.ts", "/p/b.ts"]), max_size=2).map(tuple),
    ),
    max_size=12,
)


@given(STATEMENTS, STATEMENTS)
def test_more_statements_mention_no_less(statements, more):
    found = subjects_of(statements)
    few, all_of_them = Mentions(more[:3]).of(found), Mentions(more).of(found)
    for measure in MEASURES:
        less, more_of_it, most = (set(getattr(one, measure)) for one in (few, all_of_them, found))
        assert less <= more_of_it <= most


@given(STATEMENTS)
def test_statements_mention_everything_of_themselves_and_nothing_mentions_nothing(statements):
    found = subjects_of(statements)
    assert Mentions(statements).of(found) == found
    assert Mentions(()).of(found) == Subjects()
