"""Programs, terminal output, diffs, and what keeps rendered texts in memory."""

import pytest

from compaction_app.rendering import code as diffs
from compaction_app.rendering.code import (
    LANGUAGES,
    LIMIT,
    LINE_LIMIT,
    LINES,
    REACH,
    coloured,
    highlighted,
    highlighted_file,
    language_of,
    lexer_of,
    pretty_json,
    without_styles,
)
from compaction_app.rendering.markdown import ENTRY_CHARACTERS, RenderedTexts
from compaction_app.rendering.markup import sanitized
from tests.html import active_markup, elements, texts


def test_the_name_of_a_file_tells_its_language():
    languages = {"src/parse.py": "python", "C:\\src\\App.TSX": "typescript", "Makefile": "make"}
    languages |= {"a/Dockerfile": "docker"} | dict.fromkeys((".gitignore", "README", "notes.unknown", ""), "")
    assert {path: language_of(path) for path in languages} == languages


@pytest.mark.parametrize("language", sorted(set(LANGUAGES.values())))
def test_each_language_is_drawn_without_a_change_of_its_text(language):
    code = '\n\ndef f(a, b):  # <b> & \'c\'\n\treturn "x" + `y`; /* z */\n<p class="q">1.5</p> $v = @w\n\n'
    drawn = sanitized(highlighted(code, language) or "")
    assert "".join(one.text() for one in elements(f"<pre><i></i>{drawn}</pre>", "pre")) == code


def test_words_texts_names_and_notes_of_a_known_language_have_a_class():
    drawn = sanitized(highlighted('class A:\n    def f(self):  # go\n        return "x"', "py") or "")
    assert texts(drawn, ".code__word") == ["class", "def", "return"]
    assert (texts(drawn, ".code__name"), texts(drawn, ".code__note")) == (["A", "f"], ["# go"])
    assert texts(drawn, ".code__string") == ['"x"']
    assert (highlighted("x", "brainfuck"), highlighted("x", "")) == (None, None)


@pytest.mark.parametrize(
    "text",
    [("x" * 99 + "\n") * (LIMIT // 100 + 1), "x" * (LINE_LIMIT + 1), "\n" * LINES],
    ids=["long", "long line", "lines"],
)
def test_a_long_text_is_not_highlighted(text):
    assert highlighted(text, "python") is None
    assert highlighted_file(text, "python") is None


@pytest.mark.parametrize("language", ["java", "csharp"])
def test_a_rule_that_repeats_words_reads_only_what_is_near(language):
    near, far = ("public int count(", f"{'a ' * REACH}count(")
    rules = [rule for rules in lexer_of(language)._tokens.values() for rule in rules]
    found = [(match, match(near, 0)) for match, *_ in rules]
    declares = [match for match, one in found if one and one.lastindex and one[one.lastindex] == "("]
    assert declares
    assert not [match for match in declares if match(far, 0)]
    drawn = sanitized(highlighted("class A {\n  public int count() { }\n}", language) or "")
    assert "count" in texts(drawn, ".code__name")


def test_no_rule_of_any_language_that_repeats_words_reads_to_the_end():
    unbounded = [
        (language, match.__self__.pattern)
        for language in sorted(set(LANGUAGES.values()))
        for rules in getattr(lexer_of(language), "_tokens", {}).values()
        for match, *_ in rules
        if hasattr(match, "__self__") and r"\s+)+" in match.__self__.pattern
    ]
    assert not unbounded


@pytest.mark.parametrize(
    "numbers", [("     1→", "     2→"), ("1\t", "2\t"), ("00001| ", "00002| "), ("1: ", "2: ")], ids=repr
)
def test_the_numbers_of_lines_are_not_part_of_the_program(numbers):
    text = f'<file>\n{numbers[0]}"""A text\n{numbers[1]}of two lines."""\n</file>'
    drawn = sanitized(highlighted_file(text, "python") or "")
    assert texts(drawn, ".code__string") == ['"""A text', 'of two lines."""']
    assert texts(drawn, ".code__note") == [number.strip() for number in numbers]
    assert "".join(one.text() for one in elements(f"<pre><i></i>{drawn}</pre>", "pre")) == text


def test_a_program_with_few_lines_that_begin_with_numbers_is_one_program():
    drawn = sanitized(highlighted_file('"""\n1: a\n"""\n\n', "python") or "")
    assert texts(drawn, ".code__string") == ['""" 1: a """']


PRETTY: dict[str, str | None] = {
    '{"a": [1, {"ü": null}]}': '{\n  "a": [\n    1,\n    {\n      "ü": null\n    }\n  ]\n}',
    " [] ": "[]",
    **dict.fromkeys(("17", '"a"', "{a}", '{"a": 1, "a": 2}', "[" * 100_000, f'["{"x" * 200_000}"]')),
}


def test_json_is_shown_with_one_value_on_each_line():
    for written, pretty in PRETTY.items():
        assert pretty_json(written) == pretty, written[:30]


def spans_of(text: str) -> list[tuple[str, str]]:
    drawn = sanitized(coloured(text) or "")
    return [(str(one.attributes["class"]), one.text()) for one in elements(drawn, "span")]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("\x1b[32mok\x1b[0m", [("ansi__green", "ok")]),
        ("\x1b[1;31mno\x1b[m", [("ansi__red ansi__strong", "no")]),
        ("\x1b[91mno\x1b[39m so", [("ansi__red", "no")]),
        ("\x1b[38;5;12mblue\x1b[38;5;200mplain", [("ansi__blue", "blue")]),
        ("\x1b[38;2;31;32;33mplain\x1b[35mviolet", [("ansi__violet", "violet")]),
        ("\x1b[48;5;1mplain\x1b[36mcyan", [("ansi__cyan", "cyan")]),
        ("\x1b[2;3;4mx\x1b[22;23;24my", [("ansi__faint ansi__slanted ansi__underlined", "x")]),
        ("\x1b[33m<b>&\x1b[K\n2\x1b[0m", [("ansi__yellow", "<b>&\n2")]),
        ("\x1b[30ma\x1b[37mb\x1b[97mc", []),
        ("\x1b[38mx\x1b[38;5my\x1b[38;2;1mz", []),
    ],
)
def test_colours_and_styles_are_classes(text, spans):
    assert spans_of(text) == spans


def test_what_could_hide_or_move_text_is_shown_and_an_output_without_colours_has_none():
    drawn = sanitized(coloured("\x1b[32mok\x1b[0m\x1b[8mx \x1b]0;t\x07 \x1b[2J\rover\x1b[1A") or "")
    assert drawn == '<span class="ansi__green">ok</span>x \\x1b]0;t\\x07 \\x1b[2J\\x0dover\\x1b[1A'
    assert coloured("ok [32m") is None
    assert coloured("\x1b]0;t\x07") is None
    assert without_styles("a \x1b[1;32mok\x1b[0m\x1b[K \x1b[2J") == "a ok \x1b[2J"


def diff(old: str, new: str) -> str:
    return "|".join(sign + text for sign, text in diffs.diff_of([diffs.TextChange(old, new)]))


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", " a|-b|+B| c"),
        ("", "a\nb\n", "+a|+b"),
        ("a\n", "", "-a"),
        ("1\n2\n3\n4\n5\nx", "1\n2\n3\n4\n5\ny", " 3| 4| 5|-x|+y"),
        ("x\n1\n2\n3\n4\n5\n6\n7\nx", "y\n1\n2\n3\n4\n5\n6\n7\ny", "-x|+y| 1| 2| 3|@⋯| 5| 6| 7|-x|+y"),
        ("a", "a", ""),
    ],
)
def test_a_change_is_shown_with_the_lines_around_it(old, new, lines):
    assert diff(old, new) == lines


def test_places_are_apart_a_patch_has_its_signs_already_and_long_texts_are_compared_at_their_ends():
    lines = list(diffs.diff_of([diffs.TextChange("a", "b"), diffs.TextChange("c", "d")]))
    assert lines == [("-", "a"), ("+", "b"), ("@", "⋯"), ("-", "c"), ("+", "d")]
    assert diffs.counts(lines) == (2, 2)
    patch = ["*** Update File: a.py", "@@ def f():", " x", "-y", "+z", ""]
    assert list(diffs.diff_of_patch(patch)) == [
        *(("@", "*** Update File: a.py"), ("@", "@@ def f():")),
        *((" ", "x"), ("-", "y"), ("+", "z"), (" ", "")),
    ]
    start, end = "s\n" * diffs.COMPARED_LINES, "e\n" * diffs.COMPARED_LINES
    assert diff(f"{start}a\nb\n{end}", f"{start}a2\nb2\nc2\n{end}") == (" s| s| s|-a|-b|+a2|+b2|+c2| e| e| e")
    assert diff(f"{start}{start}", start) == f" s| s| s{'|-s' * diffs.COMPARED_LINES}"


def test_a_diff_is_text_with_signs():
    lines = [diffs.DiffLine("+", "<script>alert(1)</script>\x1b[2J"), diffs.DiffLine("-", ""), diffs.DiffLine("@", "⋯")]
    drawn = sanitized(diffs.diff_markup(lines))
    assert not active_markup(drawn)
    signs = [(one.attributes["class"], one.text()) for one in elements(drawn, "span")]
    added = ("diff__added", "+<script>alert(1)</script>\\x1b[2J\n")
    assert signs == [added, ("diff__removed", "-\n"), ("diff__gap", "⋯\n")]


def test_a_text_is_rendered_once_for_each_style_and_kept_while_it_is_among_those_used_last():
    kept = RenderedTexts()
    made = []

    def render() -> str:
        made.append(1)
        return "<p>x</p><script>y</script>"

    assert {kept.get(style, "x", render) for style in ("a", "b", "a", "b")} == {"<p>x</p>"}
    assert len(made) == 2
    assert kept.get("a", "other", lambda: None) is None
    kept = RenderedTexts(limit=3 * (ENTRY_CHARACTERS + 1))
    drawn: list[str] = []

    for words in ("1", "2", "3", "1", "4", "1", "2"):
        kept.get("a", words, lambda: drawn.append(words) or "x")  # noqa: B023  # it is called at once
    assert drawn == ["1", "2", "3", "4", "2"]
