"""Promises of exports: a branch as it was said, and nothing in the file acts, whatever the session contains."""

import base64
import itertools
import json
import re
from urllib.parse import urlencode

import pytest
from django.test import Client
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from compaction_app.rendering.exported import is_harmless
from sessions_app.index.indexer import index_file
from tests.browser.agent_sessions import AgentHome, opencode_session
from tests.clients import fetched, page
from tests.factories import (
    HEADER,
    assistant,
    block,
    call,
    chain,
    compaction,
    message,
    result,
    session_bytes,
    text,
    thinking,
    user,
    whole,
)
from tests.files import place
from tests.html import HOSTILE_TEXTS, element, elements, links, missing, text_of
from tests.sessions import add_session

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
TALK = [
    user("Mend the **parser**, see [the page](https://example.org/)."),
    assistant(thinking("Where is it?"), text("I look at `parse`."), call("c1", path="src/parse.py")),
    result("c1", "\n".join(f"\x1b[31mline {n}\x1b[0m" for n in range(30))),
    user("Thanks."),
]
FORKED = [*chain(*TALK), message("x1", "e2", user("Not that.")), message("x2", "x1", user("Stop."))]


def exported(browser: Client, address: str, form: str, **query: str) -> str:
    answered, content = fetched(browser, f"{address}/export?{urlencode({'format': form, **query})}")
    assert (answered.status_code, answered["X-Content-Type-Options"]) == (200, "nosniff")
    assert answered["Content-Disposition"].startswith("attachment; ")
    return content.decode()


def test_markdown_has_every_entry_of_the_branch_and_what_cannot_be_exported_is_not_found(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    written = exported(browser, address, "markdown").replace('":"', '": "')
    thought, asked = "Thinking:\n\n```\nWhere is it?\n```", 'Call of read:\n\n```\n{"path": "src/parse.py"}\n```'
    words = "Mend the **parser**, see [the page](https://example.org/)."
    assert not missing(written, words, thought, asked, "## read\n", "line 29")
    assert "\x1b" not in written
    for query in ("format=markdown&view=other", "format=pdf", "format=html&leaf=nobody"):
        page(browser, f"{address}/export?{query}", 404)


READ = [user("Mend the parser."), assistant(text("I look at it."), call("c1")), result("c1", "line 29")]
COMPACTED = chain(*READ, user("Thanks."), compaction(whole("e3"), block("e2", 1)))


@pytest.mark.parametrize(
    ("view", "there", "gone"),
    [
        ("sees", ["Mend the", "I look at", "Thanks."], ["Call of read", "line 29"]),
        ("removed", ["Call of read", "line 29"], ["I look at", "Thanks."]),
        ("all", ["Mend the", "I look at", "Call of read", "line 29", "Thanks."], []),
    ],
)
@pytest.mark.parametrize("form", ["markdown", "html"])
def test_each_view_is_exported_as_the_page_shows_it(form, view, there, gone, browser, idle_root):
    address = add_session(idle_root, "a.jsonl", COMPACTED)
    written = exported(browser, address, form, view=view).replace("call of <b>", "Call of ")
    assert [words for words in (*there, *gone) if words in written] == there
    assert {"sees": "what the model sees", "all": "everything", "removed": "deleted"}[view] in written


def test_the_page_offers_each_view_in_each_form_and_recorded_lines_are_those_of_its_entries(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", COMPACTED)

    def ids(view: str) -> list[str]:
        lines = exported(browser, address, "jsonl", view=view).splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert ids("all") == [HEADER["id"], "e1", "e2", "e3", "e4", "e5"]
    assert (ids("sees"), ids("removed")) == ([HEADER["id"], "e1", "e2", "e4"], [HEADER["id"], "e2", "e3"])
    menu = element(browser.get(address, {"view": "removed"}), "#exports")
    offered = [link for _, link in links(menu) if "/export?" in link]
    assert len(offered) == 9
    for link in offered:
        page(browser, link)
    assert "Deleted" in text_of(element(menu, "dt.strong"))
    assert "a-removed.md" in browser.get(offered[6])["Content-Disposition"]
    assert "Atomic opens these lines as a session" in menu.text()
    words = [*["Markdown", "HTML", "JSONL"] * 3, "The whole session as it is stored"]
    assert [words for words, _ in links(menu)] == words


def test_a_page_is_whole_and_forbids_itself_everything(browser, idle_root):
    image = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    talk = [*TALK, {"role": "user", "content": [text("Look:"), image]}]
    written = exported(browser, add_session(idle_root, "a.jsonl", chain(*talk)), "html")
    policy = element(written, "meta[http-equiv]").attributes["content"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert [len(elements(written, kind)) for kind in ("article", "details")] == [5, 1]
    assert [str(one.attributes["src"])[:15] for one in elements(written, "img")] == ["data:image/png;"]
    assert ("the page", "https://example.org/") in links(written)
    assert not elements(written, "script, link, iframe, object, form, style[src]")


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_hostile_texts_do_nothing(browser, idle_root, form):
    hostile = [
        *HOSTILE_TEXTS,
        "![x](https://evil.example/a.png)",
        "[x](javascript:alert(1))",
        "[x]: javascript:alert(1)\n\n[x]",
        "```\nnever closed",
        "</style><script>alert(1)</script>",
        "<!--",
    ]
    said = [
        (user(words), assistant(text(words), call(f"c{number}", words, x=words)), result(f"c{number}", words))
        for number, words in enumerate(hostile)
    ]
    talk = [user("one"), *itertools.chain(*said)]
    written = exported(browser, add_session(idle_root, "a.jsonl", chain(*talk, user("the last"))), form)
    page = written if form == "html" else MarkdownIt("commonmark").render(written)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written)
    parsed = LexborHTMLParser(page)
    assert not parsed.css("script, iframe, object, form, [onerror], img")
    assert {str(one.attributes["href"])[:8] for one in parsed.css("a")} <= {"https://"}
    assert "the last" in (parsed.css("p")[-1].text() if form == "markdown" else page)


@pytest.mark.parametrize(
    ("words", "harmless"),
    [
        ("Some *words* and `<b>`.", True),
        ("```\n<script>\n```", True),
        ("a <b>word</b>", False),
        ("<https://example.org>", True),
        ("[x](javascript:x)", False),
        ("![x](a.png)", False),
        ("~~~\nopen", False),
        ("<!-- open", False),
        ("[x]: /y\n", False),
        ("- a list\n\n  - with more", True),
        ("", True),
        ("x" * 60_000, False),
    ],
)
def test_markdown_stays_markdown_if_it_does_nothing_and_ends(words, harmless):
    assert is_harmless(words) is harmless


def test_recorded_lines_are_those_of_the_branch_byte_for_byte(browser, idle_root):
    lines = session_bytes(FORKED).splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"role": ', b'"role":   ')
    path = idle_root / "a.jsonl"
    path.write_bytes(b"".join(lines))
    address = index_file(path).get_absolute_url()
    assert exported(browser, address, "jsonl") == b"".join([*lines[:3], *lines[5:]]).decode()
    assert exported(browser, address, "jsonl", leaf="e4") == b"".join(lines[:5]).decode()
    (idle_root / "b.jsonl").write_text(exported(browser, address, "jsonl", leaf="e4"))
    assert index_file(idle_root / "b.jsonl").leaf_id == "e4"


def test_the_command_writes_a_new_file_of_a_branch_or_a_view(redline, tmp_path):
    path = place(tmp_path / "s.jsonl", session_bytes(FORKED))
    output = tmp_path / "out.md"
    redline.call("export", path, "--output", output).ok()
    assert "Not that." in output.read_text()
    assert redline.call("export", path, "--output", output, "--format", "html", "--json").refusal == "2 exists"
    branch = tmp_path / "e4.jsonl"
    done = redline.call("export", path, "--format", "jsonl", "--branch", "e4", "--output", branch, "--json")
    assert (done.json["leafId"], done.json["bytes"]) == ("e4", len(branch.read_bytes()))
    lines = [json.loads(line)["id"] for line in branch.read_bytes().splitlines()]
    assert lines == [HEADER["id"], "e1", "e2", "e3", "e4"]
    path = place(tmp_path / "s.jsonl", session_bytes(COMPACTED))
    written = {
        view: redline.call("export", path, "--view", view, "--output", tmp_path / view, "--json").json
        for view in ("sees", "all", "removed")
    }
    assert [one["entries"] for one in written.values()] == [3, 5, 2]
    assert "line 29" in (tmp_path / "removed").read_text()
    assert "line 29" not in (tmp_path / "sees").read_text()


def test_rows_of_a_database_are_not_what_the_agent_opens(redline, tmp_path):
    home = AgentHome(tmp_path)
    opencode_session(home.opencode, "ses_1", "Mend it.")
    path = home.opencode.database / "ses_1"
    done = redline.call("export", path, "--format", "jsonl", "--output", tmp_path / "x.jsonl", "--json")
    assert "OpenCode does not keep this session as such lines" in done.json["note"]
