"""A session of OpenCode on the pages: shown, planned, reviewed, committed and undone."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from compaction_app.changes.backups import list_backups, restore
from compaction_app.changes.change import Confirmations
from compaction_app.core.states import RunState
from compaction_app.models import AuditEntry, Run
from compaction_app.runs.commands import start_run
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.index.session_reading import reading_of
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.timeline import timeline_of
from sessions_app.storage.session_loader import load_session
from tests.clients import authorized_client, fetched
from tests.files import place, unchanged
from tests.html import fields, link, links, missing, text_of, texts, values
from tests.installation import override_configuration, refusal
from tests.opencode_plans import sent_of
from tests.opencode_server import opencode_server
from tests.opencode_stores import OpenCodeStore, documents, reasoning, text, tool, worked_session
from tests.runs import approve_proposals, finish_run
from tests.sessions import use_root


@pytest.fixture
def store(known_root, settings):
    use_root(settings, known_root, "opencode")
    return OpenCodeStore(known_root)


@pytest.fixture
def path(store):
    return worked_session(store, turns=8)


def page(address: str, **data: str) -> str:
    response = authorized_client().get(address, data)
    assert response.status_code == 200, (address, text_of(response)[:600])
    return response.content.decode()


def shown(address: str, **data: str) -> str:
    return text_of(page(address, **data))


def sent_by(source: str, *without: str) -> dict[str, Any]:
    """What the form of a page sends with every confirmation."""
    found = {name: one[0] for name, one in fields(source).items() if one and name not in without}
    return {**found, "yes": values(source, "yes")}


def committed_run(path: Path, writer: str = "delete") -> Run:
    run = reviewed_run(path, writer)
    commit_run(run, writer)
    return run


def reviewed_run(path: Path, writer: str) -> Run:
    planned = finish_run(start_run(index_file(path), planner="embedded", requested_parameters={}, writer=writer))
    assert planned.state == RunState.TARGET_MET, planned.failure
    return approve_proposals(planned)


def commit_run(run: Run, writer: str) -> None:
    """Commit a run as its page offers it, with every confirmation."""
    plan = page(f"/plans/{run.pk}/confirm", writer=writer)
    assert "database" in text_of(plan)
    response = authorized_client().post(f"/plans/{run.pk}/confirm", {**sent_by(plan), "writer": writer})
    assert response.status_code == 303, text_of(response)[:900]
    run.refresh_from_db()
    assert run.state == RunState.COMMITTED


def test_backed_up_rows_are_verified_and_downloaded_and_not_restored_as_a_session(path):
    run = committed_run(path)
    address, browser = f"{run.session.get_absolute_url()}/backups", authorized_client()
    (backup,) = list_backups(path)
    listed = page(address)
    assert "Before a compaction" in text_of(listed)
    assert link(listed, "Undo…") == f"/plans/{run.pk}/undo"
    assert "Restore…" not in texts(listed, "a")
    assert browser.post(f"{address}/{backup.name}/verify").status_code == 303
    assert "Verified" in shown(address)
    place(backup.file.path, backup.file.path.read_bytes() + b" ")
    assert browser.post(f"{address}/{backup.name}/verify").status_code == 303
    assert "Hash mismatch" in shown(address)
    assert int(browser.get(f"{address}/{backup.name}/download")["Content-Length"]) == backup.file.path.stat().st_size
    with unchanged(backup.file.path.parent):
        assert "Undo the compaction" in text_of(browser.get(f"{address}/{backup.name}/restore"))
        act = partial(
            restore, backup.file.path, Confirmations(live=True, drop_newer=True, unverified=True), datetime.now(UTC)
        )
        assert refusal(act) == "2 backup_of_rows"


def test_backed_up_rows_are_deleted_after_a_page_that_shows_what_will_be_lost(store, path):
    run = committed_run(path)
    address, browser = f"{run.session.get_absolute_url()}/backups", authorized_client()
    (backup,) = list_backups(path)
    rows, deletion = store.parts(), link(page(address), "Delete…")
    assert "This is the only backup of ses_1 . Nothing else has these rows as they were" in shown(deletion)
    assert backup.file.path.exists()
    assert "has become the only backup" in text_of(browser.post(deletion))
    assert browser.post(deletion, {"only": "yes"}).status_code == 303
    assert list_backups(path) == []
    assert not any(backup.file.path.parent.iterdir())
    assert store.parts() == rows
    assert "does not exist any more. Nothing was undone" in text_of(browser.get(f"/plans/{run.pk}/undo"))


def test_another_database_with_the_same_session_has_other_backups(store, path, known_root):
    committed_run(path)
    other = worked_session(OpenCodeStore(known_root, "opencode-beta.db"), turns=8)
    assert other.name == path.name
    assert list_backups(other) == []
    assert len(list_backups(path)) == 1


def test_the_words_of_the_assistant_are_prose_and_rows_that_say_nothing_are_one_line(path):
    history = page(index_file(path).get_absolute_url(), view="all")
    prose = "".join(texts(history, ".rich"))
    assert "I will do 0." in prose
    assert "output 0 a" not in prose
    assert "2 entries not part of the model's context message, step-start" in text_of(history)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_the_conversation_before_a_compaction_is_continued_in_a_fork(store, path, journal):
    store.run(f"PRAGMA journal_mode = {journal}")
    before = load_session(path)
    store.assistant("So far.", parentID=store.user({"type": "compaction", "auto": False}), summary=True)
    rows, row = store.parts(), index_file(path)
    timeline = reverse("compaction:timeline", args=(row.root_id, row.relative_path))
    assert "Fork from before this change" in shown(timeline)
    (entry,) = fields(page(timeline))["entry"]
    address = reverse("compaction:fork", args=(row.root_id, row.relative_path))
    assert authorized_client().post(address, {"entry": entry}).status_code == 303
    made = Session.objects.get(relative_path=str(Path(AuditEntry.objects.get().new_file).relative_to(path.parents[1])))

    assert made.real_path().parent == path.parent
    assert sent_of(load_session(made.real_path())) == sent_of(before)
    assert store.parts()[: len(rows)] == rows
    assert AuditEntry.objects.get().new_file == str(made.path)


@pytest.mark.parametrize("writer", ["prune", "fork"])
def test_a_plan_is_reviewed_committed_shown_and_undone(store, path, writer):
    before, run = store.parts(), reviewed_run(path, writer)
    assert "Results: bash" in shown(f"/plans/{run.pk}")
    commit = shown(f"/plans/{run.pk}/confirm?writer={writer}")
    assert ("with a placeholder as the result" in commit) is (writer == "prune")
    commit_run(run, writer)
    for of in ("", "/timeline", "/backups"):
        assert page(f"{run.session.get_absolute_url()}{of}"), of
    result = page(f"/plans/{run.pk}/result")
    assert "own copy" not in text_of(result)
    assert link(result, "Read what was deleted") == f"/plans/{run.pk}/undo"

    assert "deletions" in shown(f"/plans/{run.pk}/undo")
    undo = page(f"/plans/{run.pk}/undo?all=1")
    assert "output 0 a" in text_of(undo)
    assert "own copy" not in text_of(undo)
    assert "byte for byte" not in text_of(undo)
    assert authorized_client().post(f"/plans/{run.pk}/undo", sent_by(undo, "entry")).status_code == 303
    assert store.parts() == before
    assert "Read what was deleted" not in texts(page(f"/plans/{run.pk}/result"), "a")
    assert "Undo…" not in texts(page(f"{run.session.get_absolute_url()}/backups"), "a")
    assert (f"by {writer}; undone" in shown(f"{run.session.get_absolute_url()}/timeline")) is (writer != "fork")


def test_a_compaction_that_changed_rows_is_named_on_the_timeline_and_where_removed_ones_are_shown(path):
    run = reviewed_run(path, "delete")
    address = run.session.get_absolute_url()
    assert "The model still sees everything" in shown(address, view="removed")
    commit_run(run, "delete")
    removed = page(address, view="removed")
    assert f'href="/plans/{run.pk}/undo"' in removed
    assert "Nothing else was deleted" in text_of(removed)
    assert "The model still sees everything" not in text_of(removed)
    assert "changed rows of" not in shown(address, view="sees")
    timeline = shown(f"{address}/timeline")
    assert "Rows changed by Redline" in timeline
    assert "it only grew" not in timeline
    assert "on another branch" not in timeline


def test_the_size_on_the_timeline_is_that_of_the_context(path):
    loaded = load_session(path)
    reading = reading_of(path, loaded.log.entries, loaded.log.state)
    branch = loaded.tree.branch(loaded.leaf_id)
    found = timeline_of(branch, reading.reader)
    assert found.sizes[-1] == sum(message.tokens for message in reading.reader.rebuild(branch).messages)
    assert len(found.sizes) == len(branch)


def test_every_kind_of_part_is_shown_and_the_data_of_files_is_not(store):
    data = "data:image/png;base64," + "QUJD" * 100_000
    path = store.session()
    image = {"type": "file", "mime": "image/png", "filename": "look.png", "url": data}
    plain = {"type": "file", "mime": "text/plain", "filename": "notes.txt", "url": "file:///notes.txt"}
    store.user(
        "See.",
        image,
        plain,
        text("The notes.", synthetic=True),
        text("Left out.", ignored=True),
        {"type": "agent", "name": "general"},
        {"type": "subtask", "prompt": "do it", "description": "d", "agent": "general"},
    )
    store.assistant(
        {"type": "step-start"},
        {"type": "snapshot", "snapshot": "5eed"},
        reasoning("Hm."),
        tool("c1", "seen", attachments=[{"mime": "image/png", "filename": "shot.png", "url": data}]),
        {"type": "retry", "attempt": 1, "error": {"name": "APIError"}},
        {"type": "patch", "hash": "5eed", "files": ["a.txt"]},
        {"type": "of-tomorrow", "words": "new"},
        {"type": "step-finish", "reason": "stop"},
    )
    session = index_file(path)
    for view in ("sees", "all"):
        answer = page(session.get_absolute_url(), view=view)
        assert len(answer) < 100_000
        for words in ("See.", "[image/png: look.png]", "The notes.", "Hm.", "[image/png: shot.png]"):
            assert words in text_of(answer)
    for words in ("[text/plain: notes.txt]", "Left out.", "agent", "snapshot", "retry", "patch", "of-tomorrow"):
        assert words in text_of(answer)


def test_a_compaction_that_names_no_possible_message_is_indexed(store):
    path = store.session("ses_2")
    asked = store.user({"type": "compaction", "auto": True, "tail_start_id": "\ud800"}, session_id="ses_2")
    store.assistant("The summary.", summary=True, parentID=asked, session_id="ses_2")
    assert "The summary." in shown(index_file(path).get_absolute_url())


def test_what_opencode_2_has_taken_over_is_said_where_it_is_shown(store, path, known_root):
    store.run("UPDATE message SET data = json_set(data, '$.tokens.total', 990000) WHERE id LIKE '%'")
    session, newer = index_file(path), index_file(store.session("ses_2"))
    Session.objects.update(window=1_000_000, reserve_tokens=100_000)
    assert Session.objects.due().get() == session
    store.take_over("ses_1", "ses_2")
    total = index_roots()
    unread = "2 sessions of OpenCode 2 are not read yet; 1 is shown as OpenCode 1 left it."
    assert [tuple(one) for one in total.unread] == [(known_root, unread)]
    assert not total.faults
    assert missing(shown("/"), unread, "taken over by OpenCode 2", "file missing", "damaged") == ["damaged"]
    assert not Session.objects.due().exists()
    reason = "OpenCode 2 has taken this session over"
    for of in ("", "/timeline", "/doctor", "/compact"):
        assert shown(f"{session.get_absolute_url()}{of}").count(reason) == 1, of
    assert "Compact…" not in texts(page(session.get_absolute_url()), "a")
    with pytest.raises(RedlineError, match="a session of OpenCode 2"):
        index_file(store.database / "ses_2")
    assert "a session of OpenCode 2" in text_of(authorized_client().get(newer.get_absolute_url()))
    Session.objects.all().delete()
    store.drop_older()
    index_roots()
    assert "2 sessions of OpenCode 2 are not read yet." in shown("/")


def test_only_a_hand_off_of_documents_is_offered(store, known_root):
    worked_session(store, turns=8)
    store.assistant("So far.", parentID=store.user({"type": "compaction", "auto": False}), summary=True)
    store.user("Go on.")
    older = documents(known_root, store)
    row = index_file(older)
    reason = "Download the session: OpenCode 1 imports that file"
    timeline = shown(f"{row.get_absolute_url()}/timeline")
    assert timeline.count(reason) == 1
    assert "Compact that instead" not in timeline
    assert "Fork from before this change" not in timeline
    main = page(row.get_absolute_url())
    assert "Compact…" not in texts(main, "a")
    assert text_of(main).count(reason) == 1
    assert text_of(page(link(main, "Plan a hand-off…"))).count(reason) == 1
    worked_session(store, turns=8, session_id="ses_2")
    run = reviewed_run(documents(known_root, store, "ses_2"), "")
    with unchanged(older.parents[2]):
        assert "Hand off…" in shown(f"/plans/{run.pk}")
        commit = text_of(authorized_client().get(f"/plans/{run.pk}/confirm"))
        assert "Download what is kept, as Markdown" in commit
        assert commit.count(reason) == 1


def test_a_session_is_downloaded_as_an_export_which_can_be_imported(path):
    browser, session = authorized_client(), index_file(path)
    answer, body = fetched(browser, f"{session.get_absolute_url()}/download")
    assert answer["Content-Disposition"] == 'attachment; filename="ses_1.json"'
    assert answer["Content-Type"] == "application/json"
    brought = browser.post("/import", {"sessions": SimpleUploadedFile("ses_1.json", body)})
    assert "Step 2 is done." in shown(brought["Location"])


def test_a_subagent_is_linked_with_the_call_that_started_it(store):
    parent = store.session()
    store.user("Look around.")
    store.assistant(tool("c1", "Seen.", metadata={"sessionId": "ses_2"}), finish="tool-calls")
    child = store.session("ses_2", parent_id="ses_1", title="A look around (@general subagent)")
    store.user("Look.", session_id="ses_2")
    store.assistant("Seen.", session_id="ses_2")
    of_parent, of_child = (index_file(one).get_absolute_url() for one in (parent, child))
    shown = page(of_parent)
    assert "started the subagent A look around (@general subagent)" in text_of(shown)
    named = "A look around (@general subagent)"
    assert [address for words, address in links(shown) if words == named] == [of_child] * 2
    shown = page(of_child)
    assert "subagent of A title started by bash" in text_of(shown)
    started = next(address for words, address in links(shown) if words.startswith("bash "))
    assert started.startswith(f"{of_parent}/entries/prt_")
    assert "started the subagent" in text_of(page(started))
    assert of_child not in [address for _, address in links(page("/"))]
    assert index_file(child).is_subagent


def test_each_page_says_that_the_server_writes(store, path):
    run = reviewed_run(path, "delete")
    assert "in one transaction" in shown(f"/plans/{run.pk}/confirm?writer=delete")
    with opencode_server(store.database) as server, override_configuration(servers={"opencode": server.url}):
        plan = shown(f"/plans/{run.pk}/confirm?writer=delete")
        assert f"This is done through the OpenCode server at {server.url}, part by part" in plan
        assert "OpenCode may compact at the next prompt" in plan
        assert f"through the server at {server.url}, one call for each" in plan
        assert "I will not prompt it until this is done" in plan
        commit_run(run, "delete")
        undo = shown(f"/plans/{run.pk}/undo?all=1")
        assert f"This is done through the server at {server.url}, one call for each row" in undo
        assert "I will not prompt it until this is done" in undo
    assert f"saved through the server at {server.url}" in shown(f"/plans/{run.pk}/result")
    assert f"delete, through the server at {server.url}" in shown("/history")


def test_what_was_shown_before_the_server_started_is_not_written_through_it(store, path):
    run = reviewed_run(path, "delete")
    sent, rows = sent_by(page(f"/plans/{run.pk}/confirm", writer="delete")), store.parts()
    with opencode_server(store.database) as server, override_configuration(servers={"opencode": server.url}):
        answer = authorized_client().post(
            f"/plans/{run.pk}/confirm", {**sent, "yes": ["unopened", "live", "below_target"], "writer": "delete"}
        )
        assert "is no longer the one that was shown" in text_of(answer)
    assert store.parts() == rows
