"""The line of a call: on a phone, the name of a file is what can be seen of its path."""

import pytest
from django.template import Context, Template


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ("src/core/main.ts :1–20", '<span class="wide-only">src/core/</span>main.ts :1–20'),
        ("/etc/hosts", '<span class="wide-only">/etc/</span>hosts'),
        ("main.ts", "main.ts"),
        ("cat src/a.py", "cat src/a.py"),
        ("<b>/<i> x", '<span class="wide-only">&lt;b&gt;/</span>&lt;i&gt; x'),
        ("a/\x1b[2Jb", '<span class="wide-only">a/</span>\\x1b[2Jb'),
        ("", ""),
    ],
)
def test_directories_are_left_out_where_a_line_is_short(words, drawn):
    assert Template("{{ words|line_words }}").render(Context({"words": words})) == drawn
