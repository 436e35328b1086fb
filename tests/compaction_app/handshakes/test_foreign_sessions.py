"""The token of a connection: what is not its agent's, or not in its project, is not answered.

Each attack sends requests with a token that counts, and returns what was answered. The test is named after it.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from django.conf import settings as django_settings

from compaction_app.handshakes.scope import honoured_by
from compaction_app.models import Handshake, Run
from redline.configuration import Configuration, RootSetting
from sessions_app.agents.registry import AGENTS
from sessions_app.connections.connection_files import forget_connection
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import configured_roots
from sessions_app.models import Root, Session
from tests.claude_sessions import SESSION_ID, ClaudeSession
from tests.compaction_app.handshakes.conftest import AskingAgent, approved, state_of
from tests.factories import HEADER, session_bytes, working_session
from tests.files import place
from tests.html import text_of
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.sessions_app.agents.codex.rollouts import Rollout, answer, meta, user

HONOURED: Final = {"pi": "edits", "atomic": "deletions", "opencode": "parts"}
Answer = Mapping[str, Any]
Attack = Callable[["Machine"], list[Answer]]
ATTACKS: Final[list[Attack]] = []


class Machine:
    """A machine on which all agents have sessions, in two projects."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.project, self.elsewhere = base / "project", base / "project-2"
        for directory in (self.project / "below", self.elsewhere):
            directory.mkdir(parents=True)
        self.is_attacked = False
        """Whether a question of somebody else is, which goes on waiting then."""

    def directory(self, agent: str) -> Path:
        return self.base / agent

    def pi(self, cwd: object = None, *, agent: str = "pi", name: str = "session", **header: object) -> Path:
        """A session of pi, or of Atomic, that was started in a directory: by default in the project."""
        recorded = working_session()
        recorded[0] = {**HEADER, "cwd": str(self.project if cwd is None else cwd), **header}
        return place(self.directory(agent) / f"{name}.jsonl", session_bytes(recorded))

    def claude(self, cwd: object = None) -> Path:
        session = ClaudeSession("Look at everything.")
        session.reply("m", "Done.")
        content = session.content.replace(b"/home/dev/project", os.fsencode(str(cwd or self.project)))
        return place(self.directory("claude-code") / "-project" / f"{SESSION_ID}.jsonl", content)

    def codex(self) -> Path:
        return Rollout(meta(cwd=str(self.project)), user("go"), answer("Done.")).save(self.directory("codex"))

    def opencode(self, cwd: object = None) -> Path:
        store = OpenCodeStore(self.directory("opencode"))
        path = worked_session(store)
        store.run("UPDATE session SET directory = ?", str(cwd or self.project))
        return path

    def token(self, agent: str, path: Path, project: Path | None = None) -> AskingAgent:
        """The holder of the token of an agent."""
        return AskingAgent(path, agent, HONOURED.get(agent, "nothing"), project)

    def waiting(self, agent: str = "pi", path: Path | None = None, project: Path | None = None) -> AskingAgent:
        """An agent that has asked about its own session, whose plan can be reviewed."""
        asking = self.token(agent, path or self.pi(agent=agent), project)
        asking.planned(leaf="")
        return asking

    def attacked(self, agent: str = "pi", path: Path | None = None, project: Path | None = None) -> Handshake:
        """The question of somebody else."""
        self.is_attacked = True
        return question_of(self.waiting(agent, path, project))


def question_of(asking: AskingAgent) -> Handshake:
    return Handshake.objects.get(pk=asking.number)


@pytest.fixture
def machine(tmp_path, settings, redline):
    found = Machine(tmp_path)
    settings.REDLINE = Configuration().model_copy(update={"roots": []})
    for agent in ("pi", "atomic", "claude-code", "codex", "opencode"):
        found.directory(agent).mkdir()
        reader = {"pi": "pi", "atomic": "atomic-0.8"}.get(agent, "")
        settings.REDLINE.roots.append(RootSetting(path=found.directory(agent), agent=agent, reader=reader))
    configured_roots()
    return found


def attack(one: Attack) -> Attack:
    ATTACKS.append(one)
    return one


# ---- sessions of another agent -----------------------------------------------------------------------------


@attack
def pi_asks_about_a_session_of_claude_code(machine):
    return [machine.token("pi", machine.claude()).ask(leaf="")]


@attack
def pi_is_handed_parts_of_the_database_of_opencode(machine):
    return [machine.token("pi", machine.opencode()).ask(leaf="", honours="parts")]


@attack
def pi_asks_about_a_session_in_the_database_of_opencode_without_applying(machine):
    return [machine.token("pi", machine.opencode()).ask(leaf="", honours="nothing")]


@attack
def pi_asks_about_the_database_that_has_the_sessions(machine):
    asking = machine.token("pi", machine.opencode())
    return [asking.ask(leaf="", session=str(asking.path.parent))]


@attack
def pi_asks_about_a_session_of_atomic_which_has_its_format(machine):
    return [machine.token("pi", machine.pi(agent="atomic")).ask()]


@attack
def pi_asks_about_a_thread_of_codex(machine):
    return [machine.token("pi", machine.codex()).ask(leaf="")]


@attack
def every_other_agent_asks_about_a_session_of_pi(machine):
    others = ("atomic", "claude-code", "codex", "opencode")
    return [machine.token(agent, machine.pi()).ask() for agent in others]


@attack
def claude_code_and_codex_ask_about_each_other(machine):
    return [
        machine.token("claude-code", machine.codex()).ask(leaf=""),
        machine.token("codex", machine.claude()).ask(leaf=""),
    ]


@attack
def pi_says_that_it_is_the_other_agent(machine):
    return [machine.token("pi", machine.claude()).ask(leaf="", agent="claude-code", honours="nothing")]


@attack
def pi_asks_through_a_link_among_its_own_sessions(machine):
    link = machine.directory("pi") / "mine.jsonl"
    link.symlink_to(machine.claude())
    return [machine.token("pi", machine.pi()).ask(leaf="", session=str(link))]


@attack
def pi_asks_through_a_link_to_the_directory_of_another_agent(machine):
    name = machine.claude().name
    (machine.directory("pi") / "mine").symlink_to(machine.directory("claude-code") / "-project")
    asking = machine.token("pi", machine.pi())
    return [asking.ask(leaf="", session=str(machine.directory("pi") / "mine" / name))]


@attack
def pi_leaves_its_directory_by_dots(machine):
    path = machine.directory("pi") / ".." / machine.claude().relative_to(machine.base)
    return [machine.token("pi", machine.pi()).ask(leaf="", session=str(path))]


@attack
def pi_names_a_session_of_another_agent_by_its_id(machine):
    index_file(machine.claude())
    return [machine.token("pi", machine.pi()).ask(leaf="", session=SESSION_ID)]


@attack
def pi_asks_about_its_own_session_that_the_user_reads_as_one_of_atomic(machine):
    session = index_file(machine.pi())
    Session.objects.filter(pk=session.pk).update(reader="atomic-0.8")
    return [machine.token("pi", session.path).ask()]


# ---- what another connection has asked ----------------------------------------------------------------------


@attack
def pi_reads_the_state_of_a_question_of_atomic(machine):
    question = machine.attacked("atomic")
    return [machine.token("pi", machine.pi()).poll(question.pk)]


@attack
def atomic_fetches_the_edits_that_were_approved_for_pi(machine):
    question = approved(machine.attacked())
    return [machine.token("atomic", machine.pi(agent="atomic")).poll(question.pk)]


@attack
def pi_fetches_the_parts_that_were_approved_for_opencode(machine):
    question = approved(machine.attacked("opencode", machine.opencode()))
    return [machine.token("pi", machine.pi()).poll(question.pk)]


@attack
def pi_ends_the_question_of_atomic(machine):
    question, stranger = machine.attacked("atomic"), machine.token("pi", machine.pi())
    return [stranger.report(outcome, question.pk) for outcome in ("withdrawn", "failed", "applied")]


@attack
def a_connection_of_another_project_reads_a_question_of_the_same_agent(machine):
    question = machine.attacked(project=machine.project)
    other = machine.token("pi", machine.pi(machine.elsewhere, name="other"), machine.elsewhere)
    return [other.poll(question.pk), other.report("withdrawn", question.pk)]


@attack
def a_removed_connection_asks_and_reads_its_earlier_question(machine):
    removed, machine.is_attacked = machine.waiting(), True
    forget_connection(django_settings.REDLINE_DATA_DIR, removed.name)
    return [removed.ask(), removed.poll(), removed.report("withdrawn")]


@attack
def a_token_of_an_agent_opens_what_is_for_scripts(machine):
    asking = machine.token("pi", machine.pi())
    session = index_file(asking.path)
    return [asking.call("GET", f"/api{session.get_absolute_url()}"), asking.call("GET", "/api/sessions")]


# ---- sessions of another project ----------------------------------------------------------------------------


@attack
def a_session_that_was_started_in_another_project(machine):
    return [machine.token("pi", machine.pi(machine.elsewhere), machine.project).ask()]


@attack
def a_session_that_was_started_above_the_project(machine):
    return [machine.token("pi", machine.pi(machine.base), machine.project).ask()]


@attack
def a_session_whose_directory_leaves_the_project_by_dots(machine):
    cwd = f"{machine.project}/below/../../{machine.elsewhere.name}"
    return [machine.token("pi", machine.pi(cwd), machine.project).ask()]


@attack
def a_session_whose_directory_leaves_the_project_by_a_link(machine):
    (machine.project / "link").symlink_to(machine.elsewhere)
    return [machine.token("pi", machine.pi(machine.project / "link"), machine.project).ask()]


@attack
def a_session_that_records_no_usable_directory(machine):
    paths = [machine.pi(cwd, name=f"s{number}") for number, cwd in enumerate(("", "project", "below", "~", "a\0b"))]
    return [machine.token("pi", path, machine.project).ask() for path in paths]


@attack
def a_session_of_another_project_by_its_id(machine):
    path = machine.pi(machine.elsewhere, id="of-another-project")
    index_file(path)
    return [machine.token("pi", path, machine.project).ask(session="of-another-project")]


@attack
def a_session_of_another_project_through_a_link_in_the_project(machine):
    link = machine.project / "session.jsonl"
    link.symlink_to(machine.pi(machine.elsewhere))
    return [machine.token("pi", link, machine.project).ask()]


@attack
def claude_code_asks_about_another_project(machine):
    return [machine.token("claude-code", machine.claude(machine.elsewhere), machine.project).ask(leaf="")]


@attack
def opencode_is_handed_parts_of_another_project(machine):
    return [machine.token("opencode", machine.opencode(machine.elsewhere), machine.project).ask(leaf="")]


# ---- sessions that are moved after the question -------------------------------------------------------------


@attack
def a_session_is_moved_to_another_project_after_the_plan_was_approved(machine):
    asking = machine.waiting(project=machine.project)
    approved(question_of(asking))
    Session.objects.update(cwd=str(machine.elsewhere))
    return [asking.poll(), asking.report("applied")]


@attack
def a_session_becomes_one_of_another_agent_while_it_is_reviewed(machine):
    asking = machine.waiting()
    Session.objects.update(read_as="atomic-0.8")
    return [asking.poll(), asking.poll()]


@attack
def the_directory_of_a_session_is_replaced_by_a_link_out_of_the_project(machine):
    below = machine.project / "below"
    asking = machine.waiting(path=machine.pi(below), project=machine.project)
    below.rmdir()
    below.symlink_to(machine.elsewhere)
    return [asking.poll(), asking.ask()]


@attack
def the_project_is_replaced_by_a_link_to_another_one(machine):
    asking = machine.token("pi", machine.pi(machine.elsewhere), machine.project)
    machine.project.rename(machine.base / "moved")
    machine.project.symlink_to(machine.elsewhere)
    return [asking.ask()]


@attack
def a_session_whose_directory_is_listed_no_more_is_read_on(machine):
    asking = machine.waiting()
    Root.objects.update(configured=False)
    return [asking.poll()]


# ---- what the agent cannot do -------------------------------------------------------------------------------


@attack
def an_agent_says_that_it_applies_what_only_others_apply(machine):
    paths = {"pi": machine.pi(), "atomic": machine.pi(agent="atomic"), "claude-code": machine.claude()}
    paths |= {"codex": machine.codex(), "opencode": machine.opencode()}
    claimed = [(agent, one) for agent in paths for one in ("edits", "deletions", "parts")]
    lies = [(agent, one) for agent, one in claimed if HONOURED.get(agent) != one]
    assert len(lies) == 12
    return [machine.token(agent, paths[agent]).ask(leaf="", honours=one) for agent, one in lies]


# ---- the tests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_what_is_not_a_connections_own_is_not_answered(attack, machine):
    given = attack(machine)
    assert given
    for one in given:
        assert (one.keys(), one["error"].keys()) == ({"status", "error"}, {"code", "message"})
        assert one["status"] in (400, 401, 404), one
    assert Handshake.objects.unfinished().count() == machine.is_attacked
    assert not Run.objects.active().exists()


def test_there_are_enough_ways_to_ask():
    assert len(ATTACKS) >= 18


@pytest.mark.parametrize("cwd", ["", "below", "below/..", "../link", "new"])
def test_a_session_of_the_project_is_answered_however_its_directory_is_written(machine, cwd):
    (machine.base / "link").symlink_to(machine.project)
    asking = machine.token("pi", machine.pi(f"{machine.project}/{cwd}"), machine.project)
    assert asking.ask()["state"] == "planning"


def test_of_two_sessions_with_one_id_the_one_in_the_project_is_meant(machine):
    paths = [machine.pi(cwd, name=name, id="same") for cwd, name in ((machine.elsewhere, "a"), (None, "b"))]
    for path in paths:
        index_file(path)
    assert machine.token("pi", paths[1], machine.project).ask(session="same")["state"] == "planning"
    assert Handshake.objects.get().session.path == paths[1]


def test_the_page_of_a_refused_question_says_why(machine, browser):
    machine.token("pi", machine.claude()).ask(leaf="", honours="edits")
    machine.token("pi", machine.pi()).ask(honours="parts")
    machine.token("pi", machine.pi(machine.elsewhere, name="other"), machine.project).ask()
    pages = [text_of(browser.get(f"/handshakes/{one.pk}")) for one in Handshake.objects.order_by("pk")]
    assert "is a session of Claude Code, and the connection pi is of pi. The agent compacts as usual." in pages[0]
    assert "pi does not apply parts itself, although the question says so: it honours edits or nothing." in pages[1]
    assert f"was not started in {machine.project}, and the connection pi-project counts there only." in pages[2]


def test_a_question_that_is_no_more_its_connections_own_has_failed_and_says_why(machine):
    asking = machine.waiting(project=machine.project)
    question = approved(question_of(asking))
    Session.objects.update(cwd=str(machine.elsewhere))
    refused = asking.poll()["error"]["message"]
    assert state_of(question) == "failed"
    assert refused in question.message
    assert question.handed is None
    assert question.run.is_reviewable


def test_what_agents_honour_follows_from_their_writers():
    known = {key: honoured_by(agent) - {"nothing"} for key, agent in AGENTS.items()}
    assert {key: one for key, one in known.items() if one} == {key: {one} for key, one in HONOURED.items()}
