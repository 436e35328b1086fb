"""Entries on the page of a session: rendered, as recorded, opened and closed again; pictures and changes, too."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from compaction_app.rendering.pictures import Picture
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from tests.claude_sessions import SESSION_ID, ClaudeSession
from tests.clients import authorized_client
from tests.compaction_app.rendering.test_pictures import png
from tests.factories import assistant, call, chain, compaction, result, text, thinking, user, whole
from tests.html import element, elements, link, links, text_of, texts
from tests.opencode_stores import OpenCodeStore, tool
from tests.sessions import add_session, use_root
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout, meta

HTMX = {"HX-Request": "true"}


def page_of(browser: Client, address: str, **query: str) -> HttpResponse:
    answer = browser.get(address, query)
    assert answer.status_code == 200
    return answer


def article(page: HttpResponse, entry_id: str) -> Any:
    return next(one for one in elements(page, "article") if one.id == entry_id)


def body(page: HttpResponse, entry_id: str) -> Any:
    return element(article(page, entry_id), ".entry__text")


@pytest.fixture
def address(idle_root):
    recorded = chain(
        user("Fix *this*:\n\n```python\ndef f(): pass\n```"),
        assistant(thinking("\n\nI *think*."), text("\n\n## Plan\n\n- one\n- two"), call("c1", "read", path="a.py")),
        result("c1", 'import os\nx = "y"'),
        assistant(call("c2", "edit", path="/home/dev/project/a.py", oldText="x\ny", newText="x\nz")),
        result("c2", "\x1b[32mok\x1b[0m"),
        assistant(call("c3", "search", query="x" * 300, limit=3)),
        result("c3", '{"found": [1, 2]}'),
        assistant(call("c4", "bash", command="ls")),
        result("c4", "\n".join(f"line {number}" for number in range(40))),
        user("Go on."),
    )
    return add_session(idle_root, "a.jsonl", recorded)


def test_each_text_is_rendered_as_what_it_is(browser, address):
    """Prose and thinking as Markdown, what a tool read by the name of its file, an edit as a diff, an output with
    its colours, and JSON with a line for each value."""
    page = page_of(browser, address)
    assert texts(body(page, "e1"), "em") == ["this"]
    assert texts(body(page, "e1"), "pre .code__word") == ["def", "pass"]
    thought, plan, _ = elements(page, "article")[1:4]
    assert texts(thought, ".rich em") == ["think"]
    assert texts(plan, "h3, li") == ["Plan", "one", "two"]
    assert texts(body(page, "e3"), ".code__word, .code__string") == ["import", '"y"']
    assert texts(page_of(browser, f"{address}/entries/e3/text", block="0"), ".code__word") == ["import"]
    edit = body(page, "e4")
    assert text_of(element(edit, ".call-line")) == "edit a.py +1 −1"
    assert element(edit, ".diff").text() == " x\n-y\n+z\n"
    assert element(edit, ".diff").attributes["aria-label"] == "Change: 1 added, 1 deleted"
    assert texts(body(page, "e5"), ".ansi__green") == ["ok"]
    assert element(body(page, "e7"), "pre").text() == '{\n  "found": [\n    1,\n    2\n  ]\n}'


def test_headings_stand_under_one_of_the_page(browser, address):
    page = element(page_of(browser, address), "main")
    assert [int(str(one.tag)[1]) for one in elements(page, "h1, h2, h3, h4, h5, h6")][:4] == [1, 2, 2, 3]
    whole_page = element(page_of(browser, f"{address}/entries/e2/text", block="1"), "main")
    assert [one.tag for one in elements(whole_page, "h1, h2, h3")] == ["h1", "h2", "h3"]


def test_the_output_of_a_comparison_is_a_diff(browser, idle_root):
    output = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y"
    recorded = chain(user("go"), assistant(call("c1", "bash", command="git diff")), result("c1", output))
    shown = body(page_of(browser, add_session(idle_root, "b.jsonl", recorded)), "e3")
    assert texts(shown, ".diff__removed") == ["--- a/a.py", "-x"]
    assert texts(shown, ".diff__added") == ["+++ b/a.py", "+y"]
    assert element(shown, "pre").text() == output


def test_long_arguments_are_folded(browser, address):
    shown = body(page_of(browser, address), "e6")
    assert not elements(shown, "pre")
    opened = browser.get(link(shown, "Show arguments"), headers=HTMX)
    assert element(opened, "pre").text() == json.dumps({"query": "x" * 300, "limit": 3}, indent=2)
    assert text_of(element(opened, ".call-line")).startswith("search xxx")


def test_a_long_output_opens_in_place_and_closes_again(browser, address):
    shown = body(page_of(browser, address), "e9")
    assert "line 7" in text_of(shown)
    assert "line 8" not in text_of(shown)
    more = next(one for one in elements(shown, "a") if text_of(one) == "Show all 40 lines")
    opened = browser.get(str(more.attributes["hx-get"]), headers=HTMX)
    assert "line 39" in text_of(opened)
    less = next(one for one in elements(opened, "a") if text_of(one) == "Show less")
    closed = browser.get(str(less.attributes["hx-get"]), headers=HTMX)
    assert "line 8" not in text_of(closed)
    assert link(closed, "Show all 40 lines")
    short = browser.get(f"{address}/entries/e5/text?block=0", headers=HTMX)
    assert [words for words, _ in links(short)] == ["As recorded"], "it has nothing to close"


def test_a_long_answer_ends_with_a_paragraph(browser, idle_root):
    answer = "\n\n".join(f"Paragraph {number} of some words.\nAnd more." for number in range(30))
    page = page_of(browser, add_session(idle_root, "b.jsonl", chain(user("go"), assistant(text(answer)))))
    shown = texts(body(page, "e2"), "p")
    assert shown[-1].endswith("And more.")
    assert len(shown) == 9
    assert link(body(page, "e2"), "Show all 89 lines")


def test_one_text_is_shown_as_recorded_on_request(browser, address):
    page = page_of(browser, address)
    (toggle,) = [one for one in elements(body(page, "e1"), "a") if text_of(one) == "As recorded"]
    shown = browser.get(str(toggle.attributes["hx-get"]), headers=HTMX)
    assert element(shown, ".verbatim").text() == "Fix *this*:\n\n```python\ndef f(): pass\n```"
    (back,) = [one for one in elements(shown, "a") if text_of(one) == "Rendered"]
    assert texts(browser.get(str(back.attributes["hx-get"]), headers=HTMX), "em") == ["this"]
    assert "em" in {one.tag for one in elements(page_of(browser, address), "*")}, "of this text only"
    without_script = page_of(browser, link(body(page, "e1"), "As recorded"))
    assert "Fix *this*:" in text_of(element(without_script, "article"))
    assert texts(page_of(browser, link(without_script, "Rendered")), "em") == ["this"]


@pytest.mark.parametrize(
    ("entry_id", "recorded"),
    [
        ("e2", "I *think*."),
        ("e4", '{"path":"/home/dev/project/a.py","oldText":"x\\ny","newText":"x\\nz"}'),
        ("e5", "\\x1b[32mok\\x1b[0m"),
        ("e7", '{"found": [1, 2]}'),
    ],
)
def test_all_texts_are_shown_as_recorded_if_the_browser_prefers_it(browser, address, entry_id, recorded):
    page = page_of(browser, link(page_of(browser, address), "Show texts as recorded"))
    assert recorded in article(page, entry_id).text()
    assert not elements(page, ".rich, .diff, .code__word, .ansi__green")
    cookie = browser.cookies["redline_texts"]
    assert (cookie.value, cookie["samesite"], cookie["httponly"]) == ("recorded", "Strict", True)
    assert recorded in article(page_of(browser, address), entry_id).text()
    assert elements(page_of(browser, link(page, "Show texts rendered")), ".rich")
    assert elements(page_of(browser, address), ".rich")


def test_the_form_of_one_text_is_no_preference(browser, address):
    page_of(browser, f"{address}/entries/e1/text", form="recorded")
    assert "redline_texts" not in browser.cookies
    browser.cookies["redline_texts"] = "<script>"
    assert elements(page_of(browser, address), ".rich")


def test_a_deleted_text_is_struck_when_it_is_rendered(browser, idle_root):
    recorded = chain(
        user("go"),
        assistant(text("**Gone** and\n\n- listed")),
        assistant(call("c1", "edit", path="a", oldText="x", newText="y")),
        result("c1", "\x1b[32mok\x1b[0m"),
        compaction(whole("e2"), whole("e3"), whole("e4")),
        user("on"),
    )
    page = page_of(browser, add_session(idle_root, "b.jsonl", recorded), view="all")
    for entry_id, gone in (("e2", "Gone and listed"), ("e4", "ok")):
        assert [text_of(one) for one in elements(article(page, entry_id), "del.struck")] == [gone]
    assert texts(article(page, "e3"), "del") == ["edit a", "-x +y"]
    page = page_of(browser, link(page, "Show texts as recorded"))
    assert texts(article(page, "e3"), "del") == ["edit a", '{"path":"a","oldText":"x","newText":"y"}']


SMALL, SMALLER = Picture("image/png", 30, 20, png(30, 20)), Picture("image/png", 5, 5, png(5, 5))


def picture(data: bytes) -> dict[str, Any]:
    return {"type": "image", "data": b64encode(data).decode(), "mimeType": "image/png"}


@pytest.fixture
def seen(idle_root):
    content = [text("Look:"), picture(SMALL.data), picture(b"<svg onload=alert(1)/>"), picture(SMALLER.data)]
    return add_session(idle_root, "a.jsonl", chain({"role": "user", "content": content}, assistant(text("I see."))))


def test_a_picture_is_shown_with_its_size_at_an_address_of_its_own_and_not_drawn_as_recorded(browser, seen):
    page = page_of(browser, seen)
    shown = [(one.attributes["width"], one.attributes["height"]) for one in elements(page, "article img")]
    assert shown == [("30", "20"), ("5", "5")]
    assert texts(page, "article figcaption") == [
        f"picture, {one.width} × {one.height}, {len(one.data)} B" for one in (SMALL, SMALLER)
    ]
    assert texts(page, "article .rich").count("[image]") == 1, "what a browser could take for anything else"
    first, second = (str(one.attributes["src"]) for one in elements(page_of(browser, seen), "article img"))
    answer = browser.get(first)
    assert (answer.content, answer["Content-Type"]) == (SMALL.data, "image/png")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert answer["Cache-Control"] == "private, max-age=86400, immutable"
    assert browser.get(second).content == SMALLER.data
    page = page_of(browser, seen, texts="recorded")
    assert not elements(page, "article img")
    assert texts(page, "article .verbatim").count("[image]") == 3


@pytest.mark.parametrize("query", ["block=0", "block=2", "block=1&number=1", "block=9", "number=2"])
def test_what_is_no_picture_has_no_address(browser, seen, query):
    assert browser.get(f"{seen}/entries/e1/picture?{query}").status_code == 404
    assert browser.get(f"{seen}/entries/e9/picture?block=1").status_code == 404


@pytest.mark.parametrize("query", ["", "block=x", "number=-1", "number=99999999999"])
def test_without_a_block_the_pictures_of_the_entry_are_counted(browser, seen, query):
    assert browser.get(f"{seen}/entries/e1/picture?{query}").content == SMALL.data


DATA = b64encode(png(30, 20)).decode()
OTHER = b64encode(png(7, 5)).decode()
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"


def claude_code(directory: Path) -> Session:
    def image(data: str) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}

    def tool_use(call_id: str, name: str, **given: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": name, "input": given}

    session = ClaudeSession([{"type": "text", "text": "Look."}, image(DATA)])
    session.reply("m1", tool_use("t1", "Read", file_path="/a.png"))
    session.result("t1", [image(OTHER)], toolUseResult={"type": "image", "file": {"base64": OTHER}})
    session.reply("m2", tool_use("t2", "Edit", file_path="/a.py", old_string="x", new_string="y"))
    session.result("t2", "Done.")
    (directory / f"{SESSION_ID}.jsonl").write_bytes(session.content)
    index_roots()
    return Session.objects.get(relative_path=f"{SESSION_ID}.jsonl")


def codex(directory: Path) -> Session:
    def image(data: str) -> dict[str, Any]:
        return {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}

    asked = rollouts.user("Look.")
    asked["content"].append(image(DATA))
    patch = {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": PATCH}
    Rollout(
        meta(),
        asked,
        rollouts.call("c1", "view_image"),
        rollouts.output("c1", [image(OTHER)]),
        patch,
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done."},
    ).save(directory)
    index_roots()
    return Session.objects.get(header_id=THREAD)


def opencode(directory: Path) -> Session:
    def file(data: str) -> dict[str, Any]:
        return {"type": "file", "mime": "image/png", "filename": "a.png", "url": f"data:image/png;base64,{data}"}

    store = OpenCodeStore(directory)
    path = store.session()
    store.user("Look.", file(DATA))
    edit = {"filePath": "/a.py", "oldString": "x", "newString": "y"}
    store.assistant(tool("c1", "Read.", attachments=[file(OTHER)]), tool("c2", input=edit))
    return index_file(path)


AGENTS = {"claude-code": claude_code, "codex": codex, "opencode": opencode}


@pytest.fixture(params=sorted(AGENTS))
def page(request, idle_root, settings):
    use_root(settings, idle_root, request.param)
    session = AGENTS[request.param](idle_root)
    return authorized_client().get(session.get_absolute_url(), {"view": "all"})


def test_the_pictures_of_messages_and_of_results_are_shown_and_the_change_of_a_file_is_a_diff(page):
    shown = elements(page, "article img")
    assert [one.attributes["width"] for one in shown] == ["30", "7"]
    browser = authorized_client()
    assert [browser.get(str(one.attributes["src"])).content for one in shown] == [png(30, 20), png(7, 5)]
    (diff,) = elements(page, "article .diff")
    assert [line for line in diff.text().splitlines() if line[0] in "+-"] == ["-x", "+y"]
    assert "+1 −1" in texts(page, ".call-line")[-1]
