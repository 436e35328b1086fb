"""Pictures and changed files in the sessions of each agent, as its client records them."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from tests.claude_sessions import SESSION_ID, ClaudeSession
from tests.clients import authorized_client
from tests.compaction_app.rendering.test_pictures import png
from tests.html import elements, texts
from tests.opencode_stores import OpenCodeStore, tool
from tests.sessions import use_root
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout, meta

DATA = b64encode(png(30, 20)).decode()
OTHER = b64encode(png(7, 5)).decode()
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"


def claude_code(directory: Path) -> Session:
    def image(data: str) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}

    def tool_use(call_id: str, name: str, **given: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": name, "input": given}

    session = ClaudeSession()
    session.user([{"type": "text", "text": "Look."}, image(DATA)])
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
        url = f"data:image/png;base64,{data}"
        return {"type": "file", "mime": "image/png", "filename": "a.png", "url": url}

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
