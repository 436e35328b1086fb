"""Rules of every command, and the read-only ones: `sessions`, `timeline`, `lost`, `tree`, `context`."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from redline.main import commands
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.browser.agent_sessions import AgentHome
from tests.budget import some
from tests.claude_sessions import ClaudeSession
from tests.factories import (
    assistant,
    bash,
    block,
    chain,
    compaction,
    context_edit,
    message,
    result,
    session_bytes,
    summary_compaction,
    text,
    user,
    whole,
)
from tests.files import backdate, place, unchanged
from tests.html import missing, text_of
from tests.installation import Installation, finish, override_configuration
from tests.paths import PROJECT, corpus_sessions
from tests.sessions_app.agents.codex import rollouts

OF_A_SESSION = "index tree context timeline lost costs benchmark check health backups compaction-settings".split()
INCOMPLETE = """
    tree timeline lost benchmark compaction-settings check health undo completion backups restore migrate-session
    check_vectors
""".split()
SUCCESSES: dict[str, str] = {
    **{name: f"{name} PATH" for name in OF_A_SESSION},
    **{name: name for name in ("sessions", "audit", "token", "connect")},
    "compact": "compact PATH --dry-run",
    "address": "address --revoke",
    "models": "models list",
    "completion": "completion bash",
    "restore": "restore BACKUP --yes --unverified",
    "migrate-session": "migrate-session OLD",
    "check_vectors": "check_vectors VECTORS",
}
WRONG: dict[str, str] = {
    **{name: name for name in INCOMPLETE},
    **{name: f"{name} --nonsense" for name in ("models", "index", "token", "connect")},
    **{name: f"{name} unexpected" for name in ("sessions", "audit")},
    **{name: f"{name} --port none" for name in ("serve", "address")},
    "context": "context a b",
    "costs": "costs --entry",
    "move": "move PATH",
    "compact": "compact a --ratio much",
}
REFUSALS: dict[str, str] = {
    "compress": "unknown_command",
    "completion tcsh": "bad_arguments",
    **dict.fromkeys(("context PATH --branch nowhere", "context PATH --entry nowhere"), "unknown_entry"),
    "context PATH --open-as nowhere": "unknown_reader",
    **dict.fromkeys(("check_vectors nowhere", "tree nowhere"), "no_such_file"),
}
KEYS: dict[str, str] = {
    "models": "providers",
    "address": "address",
    "token": "token",
    "connect": "connections",
    "index": "files entries bytes bytes_read damaged refused unread seconds",
    "completion": "script",
    "tree": "leafId version entries branches labels compactions damage",
    "context": "leafId openedAs kept tokens basis measuredBy fitsOpenedAs reader fittingReader",
    "timeline": "leafId reader openedAs points tokens",
    "lost": "reader openedAs summaries",
    "costs": "sessions total",
    "benchmark": "version strategies keeps failures horizon results sessions",
    "compaction-settings": (
        "agent automatic switchedOffIn threshold settings parameters hooks ownHooks files faults compactions"
    ),
    "check": (
        "path openedAs reader reason checkedAt leafId messages violations refusal versions difference package client "
        "ledger holds"
    ),
    "audit": "count sha256 broken entries",
    "compact": (
        "run plan leafId parameters deletedTargets protectedEntryIds stats tokens targetMet entryId backupPath reasons "
        "usage hooks needs to_write moved obstacle tornLine writer savedAs created"
    ),
    "restore": "restored sha256 previousBackup overtaken stillOpenIn",
    "health": "path problems moreProblems findings moreFindings repair",
    "migrate-session": "written bytes",
    "check_vectors": "passed failed failures",
}


def put(redline: Installation, *messages: dict[str, Any], name: str = "s.jsonl") -> Path:
    """A session of pi with these messages."""
    return place(redline.home / ".pi" / "agent" / "sessions" / name, session_bytes(chain(*messages)))


def arguments_of(command: str, path: Path) -> list[Any]:
    backup = path.with_name(f"{path.name}.2025-01-01T00-00-00-000Z.compact.bak")
    backup.write_bytes(path.read_bytes())
    old = place(path.with_name("old.jsonl"), b'{"type":"session"}\n{"type":"message","message":{"role":"user"}}\n')
    named = {"PATH": path, "BACKUP": backup, "OLD": old, "VECTORS": PROJECT / "tests" / "vectors"}
    return [named.get(argument, argument) for argument in SUCCESSES[command].split()]


@pytest.mark.parametrize("command", SUCCESSES)
def test_a_command_prints_one_document_with_json_and_else_text_for_people(redline, path, command):
    ended = redline.call(*arguments_of(command, path), "--json")
    assert ended.code == 0, ended
    assert (ended.err, ended.out.count("\n")) == ("", 1)
    if command in KEYS:
        assert ended.json.keys() == {*KEYS[command].split()}
    else:
        assert isinstance(ended.json, list)
    ended = redline.call(*arguments_of(command, place(path.parent / "another" / path.name, path.read_bytes())))
    assert (ended.code, bool(ended.out.strip())) == (0, True)
    with pytest.raises(json.JSONDecodeError):
        _ = ended.json


def test_help_is_given_for_each_command(redline):
    for command in commands():
        ended = redline.call(command, "--help")
        assert (ended.code, ended.err) == (0, ""), command
        assert not missing(ended.out, f"{command} [-h]", "--json")


def test_wrong_arguments_are_bad_input(redline):
    for command, arguments in WRONG.items():
        for_programs = redline.call(*arguments.split(), "--json")
        assert (for_programs.refusal, for_programs.err) == ("2 bad_arguments", ""), command
        for_people = redline.call(*arguments.split())
        assert (for_people.code, for_people.out) == (2, ""), command
        assert for_people.err.startswith("redline: ")
        assert f"{command} --help" in for_people.err


@pytest.mark.parametrize(("line", "code"), REFUSALS.items())
def test_what_is_unknown_is_bad_input(redline, path, line, code):
    assert redline.call(*line.replace("PATH", str(path)).split(), "--json").refusal == f"2 {code}"


def test_help_lists_redlines_commands(fresh):
    ended = fresh.call("help")
    listed = [line.split()[0] for line in ended.out.splitlines() if line.startswith("  ")]
    assert (ended.code, listed) == (0, [*commands()])


def test_an_abbreviated_flag_is_not_a_confirmation(redline, path):
    with unchanged(path):
        assert redline.call("compact", path, "--ye").code == 2


def test_a_closed_output_pipe_is_not_a_failure(fresh, tmp_path):
    path = place(tmp_path / "s.jsonl", session_bytes(chain(*[user(f"line {number}") for number in range(5_000)])))
    process = fresh.start("context", path)
    assert process.stdout.readline().startswith("Branch of e5000")
    process.stdout.close()
    process.stdout = None
    ended = finish(process)
    assert (ended.code, ended.err) == (0, "")


def test_a_terminal_with_a_small_character_set_gets_what_it_can_show(fresh, tmp_path):
    path = place(tmp_path / "s.jsonl", session_bytes(chain(user("Größe 大きさ"), user("x"))))
    ended = fresh.run("tree", path, PYTHONIOENCODING="ascii")
    assert (ended.code, "e1 user Gr" in ended.out) == (0, True)


def test_sessions_are_listed_with_their_context_usage(redline, tmp_path):
    answered = assistant(text("Yes."), provider="p", model="known-model", usage={"totalTokens": 90_000})
    recorded = chain(user("Mend the parser.\nPlease."), answered)
    place(redline.sessions / "--p--" / "a.jsonl", session_bytes(recorded))
    named = put(redline, user("x"), {"type": "session_info", "name": "A name"}, name="b.jsonl")
    named.write_bytes(named.read_bytes() + b"{torn\n")
    backdate(named, hours=5)
    with override_configuration(windows={"known-model": 100_000}):
        redline.call("index", redline.home)
        listed = redline.call("sessions", "--json").json
        shown = redline.call("sessions").out.splitlines()
    shown_as = ("title", "contextTokens", "contextWindow", "almostFull", "entries", "damaged")
    mended, other = (tuple(map(one.get, shown_as)) for one in listed)
    assert mended == ("Mend the parser. Please.", 90_000, 100_000, True, 2, 0)
    assert other == ("A name", 1, None, False, 2, 1)
    assert [one["project"] for one in listed] == ["/home/dev/project"] * 2
    assert all(one["size"] and one["lastUsed"] for one in listed)
    assert "WINDOW" in shown[0]
    assert re.search(r" 90,000 / 100k +almost full .*a\.jsonl", shown[1])
    assert "unknown" in shown[2]


def test_missing_and_unreadable_sessions_are_marked_and_an_empty_list_says_what_to_do_next(redline):
    assert "redline index" in redline.call("sessions").out
    assert redline.call("sessions", "--json").json == []
    root = redline.sessions
    place(root / "gone.jsonl", session_bytes(chain(user("x"))))
    place(root / "broken.jsonl", session_bytes(chain(user("x"))))
    redline.call("index", root)
    (root / "gone.jsonl").unlink()
    place(root / "broken.jsonl", b"no session any more\n")
    redline.call("index", root)
    assert not missing(redline.call("sessions").out, "gone.jsonl (missing)", "broken.jsonl (cannot be read)")
    listed = {Path(one["path"]).name: one for one in redline.call("sessions", "--json").json}
    assert listed["gone.jsonl"]["missing"]
    assert "is not a session" in listed["broken.jsonl"]["fault"]


def test_what_is_not_read_yet_is_said_beside_what_is(redline):
    store = AgentHome(redline.home).opencode
    store.user("Hi.", session_id=store.session().name)
    store.take_over("ses_1", "ses_9")
    said = "2 sessions of OpenCode 2 are not read yet; 1 is shown as OpenCode 1 left it."
    indexed = redline.call("index", store.directory, "--json")
    assert (indexed.code, indexed.json["refused"]) == (0, [])
    assert indexed.json["unread"] == [{"path": str(store.directory), "reason": said}]
    listed = redline.call("sessions")
    assert "ses_1 (taken over by OpenCode 2)" in listed.out
    found = redline.call("sessions", "--json")
    assert [one["takenOver"] for one in found.json] == ["taken over by OpenCode 2"]
    assert [done.err.count(said) for done in (indexed, listed, found)] == [1, 1, 1]


def test_a_session_that_cannot_be_continued_is_marked_and_a_fork_names_its_original(redline):
    recorded = chain(user("y"))
    place(redline.sessions / "a.jsonl", session_bytes(chain(user("x"), result("c1"))))
    place(redline.sessions / "b.jsonl", session_bytes([{**recorded[0], "parentSession": "/s/a.jsonl"}, *recorded[1:]]))
    redline.call("index", redline.sessions)
    heading, *rows = redline.call("sessions").out.splitlines()
    assert "BROKEN AT" in heading
    assert sorted((row.split()[0], row.split()[-2]) for row in rows) == [("x", "e2"), ("y", "-")]
    listed = {one["title"]: one for one in redline.call("sessions", "--json").json}
    assert [listed[title]["forkOf"] for title in "xy"] == [None, "/s/a.jsonl"]
    assert listed["y"]["broken"] is None
    assert listed["x"]["broken"]["entry"] == "e2"
    assert "Entry e2 is a result of call c1" in listed["x"]["broken"]["reason"]


def test_a_timeline_names_each_change(redline):
    talk = (user("go"), assistant(text("a " * 400)), user("on"))
    undo = {"type": "custom", "customType": "redline.undo"}
    path = put(redline, *talk, context_edit("e2", None), undo)
    points = redline.call("timeline", path, "--json").json["points"]
    found = [(one["type"], one["isUndo"], one["deleted"]) for one in points]
    assert found == [("context_edit", False, ["e2"]), ("custom", True, [])]
    rows = redline.call("timeline", path).out.splitlines()[2:4]
    assert [row.split()[1] for row in rows] == ["context_edit", "undo"]


@pytest.fixture
def summarised(redline):
    talk = [assistant(text(f"readFile {number}")) for number in range(5)]
    return put(redline, user("Mend it."), *talk, summary_compaction("It is mended.", None), user("on"))


def test_what_each_summary_of_a_branch_lost_is_listed(redline, summarised):
    shown = redline.call("lost", summarised).out
    assert "1 summary on this branch." in shown
    (row,) = (line for line in shown.splitlines() if line.startswith("e7"))
    assert row.endswith("0 of 0  0 of 1  0 of 0    0 of 1")
    (found,) = redline.call("lost", summarised, "--json").json["summaries"]
    assert (found["entryId"], found["entries"], found["isEncrypted"]) == ("e7", 6, False)
    assert found["total"] == {"paths": 0, "names": 1, "errors": 0, "messages": 1}
    assert found["summary"] == found["withWhatStayed"] == {"paths": 0, "names": 0, "errors": 0, "messages": 0}
    assert found["lost"]["names"] == [{"text": "readFile", "entryId": "e2", "uses": 5}]
    assert found["verbatimPlan"]["messages"] == 1
    assert "0 summaries on this branch." in redline.call("lost", summarised, "--branch", "e6").out


def test_what_one_summary_lost_is_listed_in_full_and_an_entry_that_is_none_is_refused(redline, summarised):
    shown = redline.call("lost", summarised, "--entry", "e7").out
    assert "1 name no longer mentioned:\n  readFile  (5, e2)" in shown
    assert "1 message no longer mentioned:\n  Mend it.  (1, e1)" in shown
    refused = redline.call("lost", summarised, "--entry", "e2")
    assert refused.code == 2
    assert "Entry e2 is not a summary that replaced something on this branch" in refused.err


def test_a_tree_shows_branches_labels_compactions_and_the_leaf(redline, path):
    recorded = [
        *chain(user("Begin."), assistant(text("One way.")), user("On.")),
        message("b1", "e2", user("Otherwise.")),
        {"id": "c1", "parentId": "b1", **compaction()},
        {"type": "label", "id": "l1", "parentId": "c1", "targetId": "e2", "label": "a place"},
        {"type": "label", "id": "l2", "parentId": "l1", "targetId": "e3", "label": "no more"},
        {"type": "label", "id": "l3", "parentId": "l2", "targetId": "e3"},
    ]
    place(path, session_bytes([*recorded, b"{torn"]))
    found = redline.call("tree", path, "--json").json
    assert (found["leafId"], found["entries"], found["version"]) == ("l3", 8, 3)
    assert found["labels"] == {"e2": "a place"}
    assert found["compactions"] == ["c1"]
    branches = [(one["first"], one["last"], one["parent"], one["active"]) for one in found["branches"]]
    assert branches == [("e1", "e2", None, False), ("e3", "e3", "e2", False), ("b1", "l3", "e2", True)]
    assert [(one["kind"], one["line"]) for one in found["damage"]] == [("not_json", 10)]
    shown = redline.call("tree", path).out
    assert not missing(
        shown, "label “a place”", "c1 context_compaction", "l3 ◀ the agent continues here", "├─ e3 user On."
    )
    assert ("damaged: line 10" in shown, "no more" in shown) == (True, False)


def test_the_context_is_what_the_model_sees(redline, path):
    ran = (bash("ls", "files"), bash("secret", "held back", excludeFromContext=True))
    recorded = chain(user("Begin."), assistant(text("One"), text("Two")), *ran, user("On."))
    cut = {"id": "c1", "parentId": "e5", **compaction(block("e2", 0), whole("e3"))}
    place(path, session_bytes([*recorded, cut, message("b1", "e1", user("Another branch."))]))
    measured = {"tokens": 5, "basis": "counted", "measuredBy": "file", "fitsOpenedAs": None, "fittingReader": None}
    opened = {"openedAs": "atomic-0.8", "reader": "atomic-0.8"}
    of_leaf = {"leafId": "b1", **opened, "kept": [{"entryId": "e1"}, {"entryId": "b1"}]}
    assert redline.call("context", path, "--json").json == of_leaf | measured
    kept = redline.call("context", path, "--branch", "c1", "--json").json["kept"]
    assert [one["entryId"] for one in kept] == ["e1", "e2", "e4", "e5"]
    assert [one.get("blocks") for one in kept] == [None, [1], None, None]
    as_pi = redline.call("context", path, "--branch", "c1", "--open-as", "pi", "--json").json
    assert (as_pi["reader"], len(as_pi["kept"])) == ("pi", 5)
    shown = redline.call("context", path, "--branch", "c1").out
    assert not missing(shown, "1 of 2", "recorded, not sent")
    assert "files" not in shown


def test_the_full_text_of_an_entry_is_shown_even_if_the_model_does_not_see_it(redline, path):
    words = "first\n\tsecond \x1b[2J " + "word " * 500
    place(path, session_bytes(chain(user("Begin."), assistant(text(words)), user("On."), compaction(whole("e2")))))
    found = redline.call("context", path, "--entry", "e2", "--json").json
    assert found.pop("tokens") > 500
    assert found == {"entryId": "e2", "role": "assistant", "inContext": False, "text": words}
    shown = redline.call("context", path, "--entry", "e2").out
    assert not missing(shown, "the model does not see it", "    second \\x1b[2J " + "word " * 500)
    assert "the model sees it" in redline.call("context", path, "--entry", "e1").out


def test_the_context_of_a_pi_session_contains_replacements_instead_of_the_recorded_text(redline):
    system = {"role": "system", "content": ""}
    path = put(
        redline,
        user("Forgotten."),
        {**system, "sections": {"tone": "Be brief."}},
        user("Kept."),
        summary_compaction("What was done before.", "e3"),
        user("Recorded."),
        context_edit("e5", {"content": "Edited."}),
        {**system, "sections": {"tone": "Be long."}},
        user("Whole."),
        context_edit("e8", {"content": [text("In parts.")]}),
    )
    shown = redline.call("context", path).out
    assert not missing(shown, "What was done before.", "Kept.", "Edited.", "Be long.", "In parts.")
    for words in ("Forgotten.", "Recorded.", "Be brief.", "Whole."):
        assert words not in shown
    assert "the content of e6 instead" in redline.call("context", path, "--entry", "e5").out


def test_an_entry_that_makes_the_agent_refuse_a_session_is_named(redline):
    path = put(redline, user("Asked."), {"type": "context_edit", "targetId": "e1"})
    shown = redline.call("context", path).out
    assert "pi cannot open this branch: entry e2 edits entry e1 but has no replacement." in shown
    assert redline.call("context", path, "--json").json["refused"]["entryId"] == "e2"


def pi_session(redline: Installation) -> Path:
    return put(redline, user("go"), assistant(text("done")))


def claude_session(redline: Installation) -> Path:
    session = ClaudeSession("go")
    session.reply("done")
    return AgentHome(redline.home).claude(1, session.content)


def codex_session(redline: Installation) -> Path:
    rollout = rollouts.Rollout(rollouts.meta(), rollouts.user("go"), rollouts.answer("done"))
    return AgentHome(redline.home).codex(1, rollout.content)


def opencode_session(redline: Installation) -> Path:
    store = AgentHome(redline.home).opencode
    path = store.session()
    store.user("go")
    store.assistant("done")
    return path


@pytest.mark.parametrize("session", [pi_session, claude_session, codex_session, opencode_session])
def test_each_agents_messages(session, redline):
    path = session(redline)
    shown = redline.call("context", path, "--json", "--messages").json
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant"]
    asked, answered = (json.dumps(message["content"]) for message in shown["messages"])
    assert ("go" in asked, "done" in answered, shown["reworded"]) == (True, True, [])
    assert "messages" not in redline.call("context", path, "--json").json


def test_messages_are_for_json(redline):
    found = redline.call("context", pi_session(redline), "--messages")
    assert (found.code, "--messages is for --json" in found.err) == (2, True)


def test_numbers_that_are_too_large_are_sent_as_null(redline):
    path = claude_session(redline)
    path.write_bytes(path.read_bytes().replace(b'"done"', b'"done", "n": 1e400, "s": "\\ud800"'))
    (_, reply) = redline.call("context", path, "--json", "--messages").json["messages"]
    (block,) = reply["content"]
    assert (block["n"], block["s"]) == (None, "\ud800")


OVERRATED = (
    *(user("old " * 4_000), assistant(text("older " * 4_000)), user("go on")),
    *(summary_compaction("What came before.", "e3"), user("and now")),
    assistant(text("done"), usage={"totalTokens": 900}),
)
"""A session whose agent honours its summary: 900 tokens are reported, and 11,000 are recorded before it."""


def test_a_reader_that_reads_far_more_than_was_reported_is_named_with_one_that_fits(redline):
    path = put(redline, *OVERRATED)
    assert redline.call("context", path, "--json").json["fittingReader"] is None
    other = redline.call("context", path, "--open-as", "atomic-0.8", "--json").json
    assert other["fittingReader"] == "pi", "900 are more than pi finds, and far less than the other one"
    assert "--open-as pi" in redline.call("context", path, "--open-as", "atomic-0.8").out


def test_the_pages_of_the_session_and_of_the_list_name_it_too(browser, known_root):
    session = index_file(place(known_root / "s.jsonl", session_bytes(chain(*OVERRATED))))
    for reader, is_named in (("pi", False), ("atomic-0.8", True), ("pi", False)):
        Session.objects.filter(pk=session.pk).update(reader=reader)
        index_file(session.path)
        said = "than this session has when it is opened as atomic-0.8. Opened as pi, it would fit."
        assert (said in text_of(browser.get(session.get_absolute_url()))) is is_named
        assert ("pi would fit" in text_of(browser.get("/"))) is is_named


def test_read_only_commands_change_no_byte_of_real_sessions(redline, tmp_path):
    for source in some(corpus_sessions(tmp_path), every=4):
        path = redline.home / source.name
        shutil.copyfile(source, path)
        backdate(path)
        found = path.stat()
        indexed = redline.call("index", path, "--json").json
        tree = redline.call("tree", path, "--json").json
        context = redline.call("context", path, "--json").json
        assert indexed["entries"] == tree["entries"] > 0, source.name
        assert indexed["bytes"] == found.st_size
        assert indexed["damaged"] == len(tree["damage"])
        assert context["leafId"] == tree["leafId"]
        assert context["tokens"] == Session.objects.get(relative_path=source.name).context_tokens
        assert context["kept"]
        assert redline.call("tree", path).out.count("◀ the agent continues here") == 1
        assert len(redline.call("context", path).out.splitlines()) == len(context["kept"]) + 3
        assert path.read_bytes() == source.read_bytes()
        assert path.stat().st_mtime_ns == found.st_mtime_ns
        path.unlink()
    assert [one.name for one in redline.home.iterdir()] == []


def test_a_differing_vector_fails_the_check(redline, tmp_path):
    line = gzip.decompress((PROJECT / "tests" / "vectors" / "cases.jsonl.gz").read_bytes()).splitlines()[0]
    case = json.loads(line)
    good = place(tmp_path / "good.json", json.dumps(case).encode())
    case["context"]["kept"].append({"entryId": "never"})
    bad = place(tmp_path / "bad.jsonl", line + b"\n\n" + json.dumps(case).encode() + b"\n")
    assert redline.call("check_vectors", good).code == 0
    ended = redline.call("check_vectors", good, bad, "--json")
    assert (ended.code, ended.json["passed"], ended.json["failed"]) == (1, 2, 1)
    assert ended.json["failures"][0]["case"] == "bad.jsonl:3"
    assert "bad.jsonl:3" in redline.call("check_vectors", bad).out


def test_a_file_that_is_not_a_vector_is_bad_input(redline, tmp_path):
    for name, content, code in (
        ("a.json", b"{", "not_a_vector"),
        ("b.json", b"[]", "not_a_vector"),
        ("c.jsonl.gz", b"not packed", "not_a_vector"),
        ("d.jsonl.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03garbage-that-is-no-deflate", "not_a_vector"),
        ("e.txt", b"", "no_cases"),
    ):
        assert redline.call("check_vectors", place(tmp_path / name, content), "--json").refusal == f"2 {code}", name
