"""A session of Claude Code on the pages: subagents, outputs beside the session, and bookkeeping."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.core.states import RunState
from compaction_app.review.lines import ref_of
from compaction_app.runs.commands import start_run
from compaction_app.runs.reviews import reviewed
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Target
from tests.claude_sessions import (
    SESSION_ID as ID,
    ClaudeSession,
    call,
    prompted,
    reply,
    system,
    talk,
    text,
    timed,
    user,
)
from tests.files import place
from tests.html import element, links, missing, text_of, texts
from tests.runs import approve_proposals, finish_run, plan_session
from tests.sessions import use_root


@pytest.fixture
def root(idle_root, settings):
    use_root(settings, idle_root, "claude-code")
    return idle_root


def begun(*blocks: dict[str, Any]) -> ClaudeSession:
    """A session in which the user has asked, and the agent has replied."""
    session = ClaudeSession("go")
    session.reply("msg_1", *blocks)
    return session


def worked() -> ClaudeSession:
    session = ClaudeSession("go")
    for number in range(6):
        session.reply(f"msg_{number}", call(f"t{number}"))
        session.result(f"t{number}", "output " * 90)
    return session


def add(root: Path, session: ClaudeSession) -> Session:
    (root / f"{ID}.jsonl").write_bytes(session.content)
    index_roots()
    return Session.objects.get(relative_path=f"{ID}.jsonl")


@pytest.mark.parametrize("named", ["r2", "p2", "r1", "r2b", "gone", "n"])
def test_the_end_that_is_named_later_is_that_of_the_whole_file(root, named):
    path = root / f"{ID}.jsonl"
    lines = [*talk(2), user("p2b", "r1"), reply("r2b", "p2b"), system("n", "r2b", "turn_duration"), prompted(named)]
    lines += [{"type": "last-prompt", "lastPrompt": "p"}, user("p3", "n")]
    found: list[tuple[str, int]] = []
    for number in range(1, len(lines) + 1):
        path.write_bytes(timed(lines[:number]))
        index_roots()
        session = Session.objects.get()
        found.append((session.leaf_id, session.context_tokens))
        Session.objects.update(read_as="")
        session = index_file(path)
        assert found[-1] == (session.leaf_id, session.context_tokens), number
    last = [named] * 3 if named in ("r2", "p2") else ["n", "n", "p3"]
    ends = ["p1", "r1", "p2", "r2", "p2b", "r2b", "n", *last]
    assert [leaf for leaf, _ in found] == ends


def test_the_doctor_names_a_line_with_more_behind_its_first_value(browser, root):
    (root / f"{ID}.jsonl").write_bytes(timed(talk(2)).replace(b"\n", b" more\n", 1))
    index_roots()
    shown = text_of(browser.get(f"{Session.objects.get().get_absolute_url()}/doctor"))
    said = (
        "1 problem",
        "Has more behind its first value",
        "reads its first value only",
        "what the agent does not read",
    )
    assert not missing(shown, *said)


def addresses(browser: Client, page: str) -> list[str]:
    return [address for _, address in links(browser.get(page))]


def test_an_output_beside_the_session_is_shown_whole(browser, root):
    session = begun(call("t1"))
    entry = session.result("t1", f"Too large. Saved to: /home/me/{ID}/tool-results/b1.txt\n\nPreview:\nline 1")
    directory = root / ID / "tool-results"
    place(directory / "b1.txt", b"line 1\nline 2 <script>alert(1)</script>\n")
    answer = browser.get(f"{add(root, session).get_absolute_url()}/entries/{entry}/text")
    assert not missing(text_of(answer), "line 2 <script>alert(1)</script>", "b1.txt beside the session")
    assert b"<script>alert" not in answer.content


def add_subagent(root: Path, agent_id: str, *call_ids: str) -> None:
    """The session of a subagent, which itself starts one subagent with each of these calls."""
    subagent = ClaudeSession("look around", isSidechain=True, agentId=agent_id)
    for call_id in call_ids:
        subagent.reply("msg_of_subagent", call(call_id, "Agent"))
        subagent.result(call_id, "found", toolUseResult={"agentId": f"of-{call_id}"})
    directory = root / ID / "subagents"
    place(directory / f"agent-{agent_id}.jsonl", subagent.content)


def address_of(agent_id: str) -> str:
    return Session.objects.get(header_id=agent_id).get_absolute_url()


def test_a_subagent_is_listed_apart_and_linked_with_its_session(browser, root):
    session = begun()
    add_subagent(root, "a1")
    parent = add(root, session)
    child = Session.objects.get(relative_path=f"{ID}/subagents/agent-a1.jsonl")
    assert (child.is_subagent, child.parent_path) == (True, ID)
    page = text_of(browser.get(child.get_absolute_url()))
    assert page.count("This is the session of a subagent") == 1
    assert "Compact…" not in texts(browser.get(child.get_absolute_url()), "main a")
    assert child.get_absolute_url() in addresses(browser, parent.get_absolute_url())
    assert parent.get_absolute_url() in addresses(browser, child.get_absolute_url())
    assert child.get_absolute_url() not in addresses(browser, "/")
    assert child.get_absolute_url() in addresses(browser, "/?show=subagents")
    assert "started by" not in text_of(browser.get(child.get_absolute_url()))


def test_a_subagent_is_linked_with_the_call_that_started_it(browser, root):
    session = ClaudeSession("go")
    first, second = session.reply("msg_1", call("t1", "Agent"), call("t2", "Agent"))
    session.result("t1", "found", parent=first, toolUseResult={"status": "completed", "agentId": "a1"})
    session.result("t2", "found", parent=second, toolUseResult={"agentId": "a2"})
    add_subagent(root, "a1")
    add_subagent(root, "a2", "t9")
    add_subagent(root, "of-t9")
    parent = add(root, session)
    page = browser.get(f"{parent.get_absolute_url()}/entries/{second}")
    assert text_of(page).count("started the subagent look around") == 1
    assert address_of("a2") in [address for _, address in links(page)]
    for agent_id, entry in [("a1", first), ("a2", second)]:
        assert f"{parent.get_absolute_url()}/entries/{entry}" in addresses(browser, address_of(agent_id))
    assert "started by Agent" in text_of(browser.get(address_of("of-t9")))
    started = [one for one in addresses(browser, address_of("of-t9")) if "/entries/" in one]
    assert any(one.startswith(f"{address_of('a2')}/entries/") for one in started)


def test_of_subagents_with_one_id_that_of_the_session_is_linked(browser, root):
    session = begun(call("t1", "Agent"))
    session.result("t1", "found", toolUseResult={"agentId": "a1"})
    add_subagent(root, "a1")
    other = ID.replace("5", "6")
    for path in [*root.rglob("*.jsonl")]:
        copy = root / str(path.relative_to(root)).replace(ID, other)
        place(copy, path.read_bytes().replace(ID.encode(), other.encode()))
    (root / f"{other}.jsonl").write_bytes(session.content.replace(ID.encode(), other.encode()))
    for name, found in ((ID, add(root, session)), (other, Session.objects.get(header_id=other))):
        page = browser.get(found.get_absolute_url())
        started = [address for words, address in links(page) if words == "look around"]
        assert len(started) == 2
        assert all(f"/{name}/subagents/" in address for address in started)


def test_a_subagent_without_an_id_was_started_by_no_call_and_a_call_of_none_has_no_link(browser, root):
    session = begun(call("t1", "Agent"), call("t2", "Agent"))
    session.result("t1", "found")
    session.result("t2", "found", toolUseResult={"agentId": "gone"})
    (root / "agent-x.jsonl").write_bytes(ClaudeSession("look around", isSidechain=True).content)
    assert "started the subagent" not in text_of(browser.get(add(root, session).get_absolute_url()))
    child = Session.objects.get(relative_path="agent-x.jsonl")
    assert (child.is_subagent, child.header_id, child.parent_path) == (True, "", ID)
    assert "started by" not in text_of(browser.get(child.get_absolute_url()))


def test_a_line_with_a_result_and_words_of_the_user_is_planned_and_shown(browser, root):
    session = worked()
    session.reply("msg_9", call("t9"))
    found = {"type": "tool_result", "tool_use_id": "t9", "content": "nothing"}
    said = {"type": "text", "text": "Not that one."}
    line = session.node("user", None, message={"role": "user", "content": [found, said]})
    session.reply("msg_10")
    indexed = add(root, session)
    planned = plan_session(indexed, preserve_recent=0)
    assert planned.state == RunState.TARGET_MET, planned.failure
    assert browser.get(f"/plans/{planned.pk}").status_code == 200
    assert "Not that one." in text_of(browser.get(f"{indexed.get_absolute_url()}/entries/{line}/text?block=1"))


def test_the_page_of_a_commit_says_why_no_boundary_is_appended(browser, root):
    session = worked()
    session.user("go on", version="2.1.112")
    run = approve_proposals(plan_session(add(root, session)))
    shown = text_of(browser.get(f"/plans/{run.pk}/confirm"))
    assert not missing(shown, "version 2.1.112 of Claude Code", "Back up and make the new session")
    refused = browser.get(f"/plans/{run.pk}/confirm", {"writer": "boundary"})
    assert not missing(text_of(refused), "Continue the session once", "A new session instead")


def joined() -> tuple[ClaudeSession, str, str]:
    """A session in which one reply parts two turns, the second with a file that was read; and that reply and file."""
    session = ClaudeSession("go")
    parting = session.assistant("msg_0", text("word " * 900))
    file = session.attachment("file", "a = 1", content={"type": "text", "file": {"content": "a = 1"}})
    session.user("on")
    session.reply("msg_1", text("done"))
    return session, parting, file


def test_what_a_plan_moves_is_said_wherever_it_is_approved(browser, root):
    session, parting, file = joined()
    indexed, reply_gone = add(root, session), Target(parting)
    chosen = {"compression_ratio": 0.5, "preserve_recent": 0}
    run = start_run(indexed, planner="hand", requested_parameters=chosen, selected=[reply_gone], writer="boundary")
    run, said = finish_run(run), f"otherwise {file[:8]} is sent before"
    review, commit = f"/plans/{run.pk}", f"/plans/{run.pk}/confirm"
    assert said in text_of(element(browser.get(review), "#moved"))
    for kind, is_said in (("reject", False), ("approve", True)):
        pressed = {"seen": reviewed(run).version, kind: ref_of(reply_gone)}
        answer = browser.post(f"/plans/{run.pk}/decide", pressed, headers={"hx-request": "true"})
        for shown in (answer, browser.get(review)):
            assert (said in text_of(element(shown, "#moved"))) is is_said
    assert said in text_of(browser.get(commit))


def test_the_command_says_what_its_plan_moves(redline):
    session, _, file = joined()
    path = place(redline.home / ".claude" / "projects" / "-work" / f"{ID}.jsonl", session.content)
    arguments = ("compact", path, "--dry-run", "--ratio", "0.5", "--preserve-recent", "0")
    moves = redline.call(*arguments, "--json").json["moved"]
    assert [one["entryId"] for one in moves] == [file]
    assert f"it sends {file} before {moves[0]['beforeId']}." in redline.call(*arguments).out.replace("\n", " ")


def test_the_timeline_shows_what_the_agents_compaction_put_in_the_place_of_what_it_removed(browser, root):
    session = begun(call("t1"))
    session.result("t1", "x" * 400)
    session.boundary()
    session.user("What was done so far.", isCompactSummary=True)
    session.user("on")
    shown = text_of(browser.get(f"{add(root, session).get_absolute_url()}/timeline"))
    assert not missing(shown, "counted 900 tokens before and 300 after this manual compaction", "Bash echo t1")
    assert "In their place: summary, about 3 tokens What was done so far." in shown


def test_what_cannot_be_read_is_shown_without_a_repair(browser, root):
    session = ClaudeSession("go")
    session.lines.append(b"{torn")
    session.user("on", parent="00000000-0000-4000-8000-00000000000f")
    shown = text_of(browser.get(f"{add(root, session).get_absolute_url()}/doctor"))
    assert not missing(shown, "Is not valid JSON", "loss: every version: skips the line")
    assert "has a parent that does not exist loss: every version: may not find what comes before" in shown
    assert "Redline does not repair sessions of Claude Code." in shown


def test_images_and_attached_files_are_named_and_never_shown_as_data(browser, root):
    data = "iVBORw0KGgo" + "A" * 400_001
    session = ClaudeSession()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    session.user([{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}])
    file = {"type": "image", "file": {"base64": data, "type": "image/png"}}
    session.attachment("file", displayPath="<script>a.png", content=file)
    session.attachment("directory", displayPath="src", content="parse.py")
    session.reply("msg_1", call("t1", "Read"))
    entry = session.result("t1", [{"type": "document", "source": {**source, "media_type": "application/pdf"}}])
    session.reply("msg_2")
    found = add(root, session)
    page = browser.get(found.get_absolute_url())
    assert data[:40] not in page.content.decode()
    assert b"<script>a" not in page.content
    assert len(page.content) < 100_000
    shown = text_of(page)
    assert not missing(shown, "[image/png, 300,009 bytes]", "<script>a.png [image/png, 300,009 bytes]")
    assert not missing(shown, "added context file", "src parse.py")
    whole = text_of(browser.get(f"{found.get_absolute_url()}/entries/{entry}/text?block=0"))
    assert "[application/pdf, 300,009 bytes]" in whole
    assert data[:40] not in whole
