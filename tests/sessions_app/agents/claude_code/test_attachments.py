"""Attachments, images, documents and saved outputs: what is sent of them, and what is shown in their place.

Of what stands beside a session, only files in the agent's own directories are ever opened.
"""

import base64
import json
from typing import Any

import pytest

from sessions_app.agents.claude_code.edge.store import companion_of
from sessions_app.sessionlog.entries import Entry, EntryKind, Texts
from tests.claude_sessions import Object, answer, attachment, call, line, reply, result, text, timed, user
from tests.files import place

from .sent_messages import messages, parsed, sent

DATA = base64.b64encode(b"\x89PNG" + b"x" * 3_000).decode()
SOURCE = {"type": "base64", "media_type": "image/png", "data": DATA}
IMAGE = {"type": "image", "source": SOURCE}
LABEL = "[image/png, 3,004 bytes]"


def picture(name: str, parent: str, **fields: Any) -> Object:
    content = {"type": "image", "file": {"base64": DATA, "type": "image/png", "originalSize": 3_004}}
    return bare(name, parent, type="file", displayPath="pic.png", content=content, **fields)


def bare(name: str, parent: str, **content: Any) -> Object:
    """An attachment that is not rendered."""
    return line(name, parent, "attachment", attachment=content)


def described(*lines: Object) -> tuple[Entry, Texts]:
    """The last entry of these lines, with its texts."""
    last = parsed(timed(lines))[1][-1]
    return last.entry, last.texts


def prompted(*attachments: Object) -> list[str]:
    """What is sent of a prompt with these attachments, before its reply."""
    return sent([user("p1", None), *attachments, reply("r1", attachments[-1]["uuid"])])[:-1]


def answered(*attachments: Object) -> str:
    """What is sent of a result with these attachments."""
    lines = [user("p1", None), reply("r1", "p1", call("c1")), result("x", "r1", "c1"), *attachments]
    return sent([*lines, reply("r2", attachments[-1]["uuid"])])[2]


def note(name: str, parent: str, *texts: str) -> Object:
    return attachment(name, parent, *texts, type="queued_command")


def file(name: str, parent: str, *texts: str, kind: str = "file") -> Object:
    return attachment(name, parent, *texts, type=kind, content={"type": "text"})


@pytest.mark.parametrize("kind", [note, file])
def test_only_the_first_attachment_with_several_texts_is_several_messages(kind):
    first = kind("a", "p1", "A1", "A2")
    assert prompted(first) == ["user: A1", "user: A2\n | p1"]
    assert prompted(first, note("b", "a", "B1", "B2")) == ["user: A1", "user: A2 | B1 | B2\n | p1"]


FILES = pytest.mark.parametrize("kind", ["file", "directory", "nested_memory"])


@FILES
def test_a_text_before_one_of_a_file_ends_with_a_newline_and_one_after_a_result_ends_that(kind):
    found = file("b", "a", "B1", "B2", kind=kind)
    assert prompted(note("a", "p1", "A"), found, note("c", "b", "C")) == ["user: A\n | B1\n | B2 | C\n | p1"]
    assert prompted(note("a", "p1", "A"), note("b", "a", "B1", "B2")) == ["user: A | B1 | B2\n | p1"]
    assert answered(note("a", "x", "A1", "A2"), note("b", "a", "B")) == 'user: =c1 "found c1\\n\\nA1\\n\\nA2\\n\\nB"'
    found = file("b", "a", "B1", "B2", kind=kind)
    after = 'user: =c1 "found c1\\n\\nA" | B1\n | B2 | C'
    assert answered(note("a", "x", "A"), found, note("c", "b", "C")) == after


def test_of_other_attached_data_no_byte_is_sent_and_of_a_resource_its_texts():
    def added(**content: Any) -> str:
        prompt, system = prompted(bare("a", "p1", **content))
        assert prompt == "user: p1"
        return system

    document = {"type": "pdf", "file": {"filePath": "/x/doc.pdf", "base64": DATA}}
    assert added(type="file", content=document) == "system: /x/doc.pdf"
    blobs, texts = [{"blob": DATA}], [{"uri": "u", "text": "one"}, {"uri": "v", "text": "two"}]
    assert added(type="mcp_resource", content={"contents": blobs}) == 'system: [{"blob":"[3,004 bytes]"}]'
    assert added(type="mcp_resource", content={"contents": texts}) == "system: one\ntwo"


def test_an_attached_image_is_sent_as_an_image_and_one_message_with_a_text_that_was_typed_with_it():
    b = attachment("b", "a", "B")
    assert prompted(picture("a", "p1"), b) == ["user: [image] | B\n | p1"]
    assert answered(picture("a", "x"), b) == "user: =c1 | [image] | B"
    first = messages([user("p1", None), picture("a", "p1"), reply("r1", "a")])[0]
    assert first["content"] == [IMAGE, text("p1")]
    typed = bare("a", "p1", type="queued_command", prompt=[text("see"), IMAGE])
    assert prompted(typed) == ["user: see | [image] | p1"]


def source(**fields: Any) -> Object:
    return {"type": "image", "source": fields or None}


PDF = {"type": "document", "title": "Plan", "source": {**SOURCE, "media_type": "application/pdf"}}


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (IMAGE, LABEL),
        (source(type="url", url="https://x.test/a.png"), "[image, https://x.test/a.png]"),
        (source(type="file", file_id="file_1"), "[image, file_1]"),
        (source(), "[image]"),
        ({"type": "image"}, "[image]"),
        (source(data=7, media_type=["a"]), "[image]"),
        (PDF, "[Plan, application/pdf, 3,004 bytes]"),
        ({"type": "document", "title": "N", "source": {"type": "text", "data": "Its words."}}, "N\nIts words."),
        ({"type": "document", "title": "T" * 9_000, "source": {"media_type": "m" * 9_000}}, None),
    ],
)
def test_an_image_or_a_document_is_named_instead_of_its_data(block, shown):
    for content in ([text("before"), block], [answer("c1", [text("before"), block])]):
        entry, texts = described(user("p1", None, content))
        label = texts.block((entry.blocks or ())[-1].index)
        assert DATA[:40] not in json.dumps(texts.blocks)
        assert label == shown if shown is not None else len(label) < 500
        assert [one.type for one in entry.blocks or ()][-1] == block["type"]


def test_an_image_and_each_page_of_a_document_are_estimated():
    def tokens(kind: str, size: int) -> int:
        entry, _ = described(user("p1", None, [{"type": kind, "source": {"data": "x" * (size * 4 // 3)}}]))
        return entry.tokens

    assert tokens("image", 50) == tokens("image", 900_000) == 1_200
    assert [tokens("document", size) for size in (50, 150_000, 1_050_000)] == [1_200, 2_400, 13_200]
    entry, texts = described(user("p1", None), picture("a", "p1"))
    assert texts.whole == f"pic.png\n{LABEL}"
    assert 1_200 < entry.tokens < 1_220


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"type": "file", "displayPath": "a.txt", "content": {"file": {"content": "1\n2"}}}, "a.txt\n1\n2"),
        ({"type": "file", "filename": "/x/a.txt", "content": {"file": {"content": "1"}}}, "/x/a.txt\n1"),
        ({"type": "directory", "displayPath": "sub", "content": "a\nb"}, "sub\na\nb"),
        ({"type": "todo", "content": [{"content": "Do it", "status": "pending"}]}, None),
        ({"type": "queued_command", "prompt": [text("see"), IMAGE]}, f"see\n{LABEL}"),
        ({"type": "new", "content": {"deep": [{"data": DATA}]}}, '{"deep":[{"data":"[3,004 bytes]"}]}'),
    ],
)
def test_an_attachment_is_shown_with_its_name_and_its_kind(content, shown):
    entry, texts = described(user("p1", None), bare("a", "p1", **content))
    assert entry.type == f"attachment:{content['type']}"
    assert texts.whole == shown if shown is not None else "Do it" in (texts.whole or "")
    assert DATA[:40] not in str(texts.whole)


def test_what_an_attachment_does_not_contain_is_not_sent():
    assert prompted(attachment("a", "p1", "A", type="file"), note("b", "a", "B")) == ["user: B\n | p1"]
    for content in (None, "", [], {}):
        added = bare("a", "p1", type="file", displayPath="a.txt", content=content)
        assert described(user("p1", None), added)[0].kind is EntryKind.OTHER


SESSION = "0b8f5b2e-8c1f-4a6e-9d57-3f0a4f1d2c3b"
OTHER = "9a7c5b2e-8c1f-4a6e-9d57-3f0a4f1d2c3b"


def saved(name: str, session: str = SESSION) -> str:
    return f"Output too large. Saved to: /somewhere/else/{session}/tool-results/{name}\n\nPreview"


@pytest.fixture
def session(tmp_path):
    for name in (f"{SESSION}/tool-results/b1.txt", f"{OTHER}/tool-results/b1.txt", "secret.txt"):
        place(tmp_path / name, b"its content")
    return tmp_path / f"{SESSION}.jsonl"


@pytest.mark.parametrize("owner", [SESSION, OTHER])
def test_an_output_is_found_below_the_directory_of_its_session(session, owner):
    assert companion_of(session, saved("b1.txt", owner)) == session.parent / owner / "tool-results" / "b1.txt"


@pytest.mark.parametrize(
    "text",
    [
        *map(saved, ("missing.txt", "../../secret.txt", "b1.txt.exe", "b1.json")),
        *("no output was saved", saved("b1.txt", ".." * 18), "x" * 5_000 + saved("b1.txt")),
    ],
)
def test_no_other_output_is_opened(session, text):
    assert companion_of(session, text) is None


def test_no_link_is_followed(session):
    linked = f"1{SESSION[1:]}"
    (session.parent / SESSION / "tool-results" / "link.txt").symlink_to(session.parent / "secret.txt")
    (session.parent / linked).symlink_to(session.parent / OTHER)
    assert companion_of(session, saved("link.txt")) is None
    assert companion_of(session, saved("b1.txt", linked)) is None
