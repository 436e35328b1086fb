"""The token of a connection: what is not its agent's, or not in its project, is not answered.

Each attack sends requests with a token that counts, and returns what was answered.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from django.conf import settings as django_settings

from compaction_app.handshakes.review_requests import honoured_by
from compaction_app.models import Handshake, Run
from redline.configuration import Configuration, RootSetting
from sessions_app.agents.registry import AGENTS
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import configured_roots
from sessions_app.models import Root, Session
from sessions_app.server.connection_files import delete_connection
from tests.claude_sessions import SESSION_ID, ClaudeSession
from tests.compaction_app.handshakes.conftest import AskingAgent, approved, state_of
from tests.factories import HEADER, session_bytes, working_session
from tests.files import place
from tests.html import text_of
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.sessions_app.agents.codex.rollouts import Rollout, answer, meta, user

HONOURED: Final = {"pi": "edits", "atomic": "deletions", "opencode": "parts"}
Answer = Mapping[str, Any]
Attack = Callable[["Machine"], Answer | list[Answer]]


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


def asked_by_every_other_agent(m: Machine) -> list[Answer]:
    others = ("atomic", "claude-code", "codex", "opencode")
    return [m.token(agent, m.pi()).ask() for agent in others]


def asked_about_each_other(m: Machine) -> list[Answer]:
    return [m.token("claude-code", m.codex()).ask(leaf=""), m.token("codex", m.claude()).ask(leaf="")]


def linked(link: Path, target: Path) -> Path:
    link.symlink_to(target)
    return link


def asked_through_a_link_to_a_directory(m: Machine) -> Answer:
    name = m.claude().name
    mine = linked(m.directory("pi") / "mine", m.directory("claude-code") / "-project")
    return m.token("pi", m.pi()).ask(leaf="", session=str(mine / name))


def asked_by_dots(m: Machine) -> Answer:
    path = m.directory("pi") / ".." / m.claude().relative_to(m.base)
    return m.token("pi", m.pi()).ask(leaf="", session=str(path))


def asked_by_an_id(m: Machine) -> Answer:
    index_file(m.claude())
    return m.token("pi", m.pi()).ask(leaf="", session=SESSION_ID)


def asked_about_one_that_is_read_as_atomics(m: Machine) -> Answer:
    session = index_file(m.pi())
    Session.objects.filter(pk=session.pk).update(reader="atomic-0.8")
    return m.token("pi", session.path).ask()


OF_ANOTHER_AGENT: dict[str, Attack] = {
    "a session of Claude Code": lambda m: m.token("pi", m.claude()).ask(leaf=""),
    "parts of the database of OpenCode": lambda m: m.token("pi", m.opencode()).ask(leaf="", honours="parts"),
    "that database, without applying": lambda m: m.token("pi", m.opencode()).ask(leaf="", honours="nothing"),
    "the database itself": lambda m: m.token("pi", path := m.opencode()).ask(leaf="", session=str(path.parent)),
    "a session of Atomic, which has its format": lambda m: m.token("pi", m.pi(agent="atomic")).ask(),
    "a thread of Codex": lambda m: m.token("pi", m.codex()).ask(leaf=""),
    "a session of pi, by every other agent": asked_by_every_other_agent,
    "sessions of each other": asked_about_each_other,
    "under the name of the other agent": lambda m: m.token("pi", m.claude()).ask(
        leaf="", agent="claude-code", honours="nothing"
    ),
    "through a link among its own sessions": lambda m: m.token("pi", m.pi()).ask(
        leaf="", session=str(linked(m.directory("pi") / "mine.jsonl", m.claude()))
    ),
    "through a link to a directory": asked_through_a_link_to_a_directory,
    "by dots": asked_by_dots,
    "by its id": asked_by_an_id,
    "its own that the user reads as one of Atomic": asked_about_one_that_is_read_as_atomics,
}


def ended_by_a_stranger(m: Machine) -> list[Answer]:
    question, stranger = m.attacked("atomic"), m.token("pi", m.pi())
    return [stranger.report(outcome, question.pk) for outcome in ("withdrawn", "failed", "applied")]


def read_from_another_project(m: Machine) -> list[Answer]:
    question = m.attacked(project=m.project)
    other = m.token("pi", m.pi(m.elsewhere, name="other"), m.elsewhere)
    return [other.poll(question.pk), other.report("withdrawn", question.pk)]


def asked_and_read_by_a_removed_connection(m: Machine) -> list[Answer]:
    removed, m.is_attacked = m.waiting(), True
    delete_connection(django_settings.REDLINE_DATA_DIR, removed.name)
    return [removed.ask(), removed.poll(), removed.report("withdrawn")]


def opened_as_by_a_script(m: Machine) -> list[Answer]:
    asking = m.token("pi", m.pi())
    session = index_file(asking.path)
    return [asking.call("GET", f"/api{session.get_absolute_url()}"), asking.call("GET", "/api/sessions")]


OF_ANOTHER_QUESTION: dict[str, Attack] = {
    "its state": lambda m: m.token("pi", m.pi()).poll(m.attacked("atomic").pk),
    "the edits that were approved": lambda m: m.token("atomic", m.pi(agent="atomic")).poll(approved(m.attacked()).pk),
    "the parts that were approved": lambda m: m.token("pi", m.pi()).poll(
        approved(m.attacked("opencode", m.opencode())).pk
    ),
    "its end": ended_by_a_stranger,
    "one of the same agent in another project": read_from_another_project,
    "its own earlier one, once removed": asked_and_read_by_a_removed_connection,
    "what is for scripts": opened_as_by_a_script,
}


def started_where_dots_leave_the_project(m: Machine) -> Answer:
    cwd = f"{m.project}/below/../../{m.elsewhere.name}"
    return m.token("pi", m.pi(cwd), m.project).ask()


def started_nowhere(m: Machine) -> list[Answer]:
    paths = [m.pi(cwd, name=f"s{number}") for number, cwd in enumerate(("", "project", "below", "~", "a\0b"))]
    return [m.token("pi", path, m.project).ask() for path in paths]


def asked_by_an_id_of_another_project(m: Machine) -> Answer:
    path = m.pi(m.elsewhere, id="of-another-project")
    index_file(path)
    return m.token("pi", path, m.project).ask(session="of-another-project")


OF_ANOTHER_PROJECT: dict[str, Attack] = {
    "started there": lambda m: m.token("pi", m.pi(m.elsewhere), m.project).ask(),
    "started above the project": lambda m: m.token("pi", m.pi(m.base), m.project).ask(),
    "started where dots leave it": started_where_dots_leave_the_project,
    "started where a link leaves it": lambda m: m.token(
        "pi", m.pi(linked(m.project / "link", m.elsewhere)), m.project
    ).ask(),
    "started in no usable directory": started_nowhere,
    "by its id": asked_by_an_id_of_another_project,
    "through a link in the project": lambda m: m.token(
        "pi", linked(m.project / "session.jsonl", m.pi(m.elsewhere)), m.project
    ).ask(),
    "of Claude Code": lambda m: m.token("claude-code", m.claude(m.elsewhere), m.project).ask(leaf=""),
    "parts of OpenCode": lambda m: m.token("opencode", m.opencode(m.elsewhere), m.project).ask(leaf=""),
}


def moved_to_another_project(m: Machine) -> list[Answer]:
    asking = m.waiting(project=m.project)
    approved(question_of(asking))
    Session.objects.update(cwd=str(m.elsewhere))
    return [asking.poll(), asking.report("applied")]


def read_as_another_agents(m: Machine) -> list[Answer]:
    asking = m.waiting()
    Session.objects.update(read_as="atomic-0.8")
    return [asking.poll(), asking.poll()]


def started_where_a_link_leaves_the_project_now(m: Machine) -> list[Answer]:
    below = m.project / "below"
    asking = m.waiting(path=m.pi(below), project=m.project)
    below.rmdir()
    below.symlink_to(m.elsewhere)
    return [asking.poll(), asking.ask()]


def asked_in_a_project_that_is_a_link_now(m: Machine) -> Answer:
    asking = m.token("pi", m.pi(m.elsewhere), m.project)
    m.project.rename(m.base / "moved")
    m.project.symlink_to(m.elsewhere)
    return asking.ask()


def listed_no_more(m: Machine) -> Answer:
    asking = m.waiting()
    Root.objects.update(configured=False)
    return asking.poll()


MOVED: dict[str, Attack] = {
    "to another project, after the approval": moved_to_another_project,
    "to another agent, while it is reviewed": read_as_another_agents,
    "by a link in the place of its directory": started_where_a_link_leaves_the_project_now,
    "by a link in the place of the project": asked_in_a_project_that_is_a_link_now,
    "out of what is listed": listed_no_more,
}


def what_only_others_apply(m: Machine) -> list[Answer]:
    paths = {"pi": m.pi(), "atomic": m.pi(agent="atomic"), "claude-code": m.claude()}
    paths |= {"codex": m.codex(), "opencode": m.opencode()}
    claimed = [(agent, one) for agent in paths for one in ("edits", "deletions", "parts")]
    lies = [(agent, one) for agent, one in claimed if HONOURED.get(agent) != one]
    assert len(lies) == 12
    return [m.token(agent, paths[agent]).ask(leaf="", honours=one) for agent, one in lies]


ATTACKS: Final = [
    pytest.param(attack, id=f"{what}: {name}")
    for what, attacks in (
        ("session of another agent", OF_ANOTHER_AGENT),
        ("question of another connection", OF_ANOTHER_QUESTION),
        ("session of another project", OF_ANOTHER_PROJECT),
        ("session that moves", MOVED),
        ("claim", {"to apply what only others apply": what_only_others_apply}),
    )
    for name, attack in attacks.items()
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_a_connections_own_is_not_answered(attack, machine):
    given = attack(machine)
    assert given
    for one in given if isinstance(given, list) else [given]:
        assert (one.keys(), one["error"].keys()) == ({"status", "error"}, {"code", "message"})
        assert one["status"] in (400, 401, 404), one
    assert Handshake.objects.unfinished().count() == machine.is_attacked
    assert not Run.objects.active().exists()


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
    pages = [text_of(browser.get(f"/inbox/agents/{one.pk}")) for one in Handshake.objects.order_by("pk")]
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
