"""The review request of a running agent: its fields, the session that it names, and the run that plans for it.

A connection may request reviews only for sessions of its agent, in its project, and in a directory that Redline lists.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pydantic
from pydantic import BaseModel, ConfigDict

from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.models import Handshake, Run
from compaction_app.runs.automatic import configured_planner
from compaction_app.runs.commands import start_run
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.formats import HandedWriter
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import AGENTS
from sessions_app.disk.files import real_path
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import shown_roots
from sessions_app.index.session_reading import indexed_reading
from sessions_app.models import Session
from sessions_app.server.connection_files import ConnectedAgent
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.text import plural

from .approval import report_failed
from .lifecycle import change_handshake, end_handshake, publish_change, wait_for

NOTHING: Final = "nothing"
COMPACTS: Final = "The agent compacts as usual."
NAME_CHARACTERS: Final = 300
PATH_CHARACTERS: Final = 4_096
PREPARATION_CHARACTERS: Final = 4_000
IN_FLIGHT: Final = "run_in_flight"
"""The code of `start_run` if a run of the session is under way."""
AGAIN: Final = "The agent asked again."


class AskedBranch(BaseModel):
    """The agent's branch: the number of its entries, and the SHA-256 of their ids, each with a newline."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entries: int = pydantic.Field(ge=0, lt=2**31)
    sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")


class ReviewRequest(BaseModel):
    """The fields of a review request, as docs/handshake.md describes them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    agent: str = pydantic.Field(max_length=NAME_CHARACTERS)
    version: str = pydantic.Field(default="", max_length=NAME_CHARACTERS)
    bridge: int = pydantic.Field(default=0, ge=0, lt=2**31)
    session: str = pydantic.Field(default="", max_length=PATH_CHARACTERS)
    reason: Literal["manual", "threshold", "overflow"] = "manual"
    honours: Literal["edits", "deletions", "parts", "nothing"] = NOTHING
    leaf: str = pydantic.Field(default="", max_length=NAME_CHARACTERS)
    branch: AskedBranch | None = None
    preparation: dict[str, Any] = pydantic.Field(default_factory=dict)
    test: bool = False

    @pydantic.field_validator("agent", "version", "session", "leaf")
    @classmethod
    def _is_text(cls, value: str) -> str:
        if well_formed(value) != value or "\0" in value:
            raise ValueError("a lone surrogate, or NUL")
        return value

    @pydantic.field_validator("preparation")
    @classmethod
    def _is_small(cls, value: dict[str, Any]) -> dict[str, Any]:
        # A number that JSON lacks is a ValueError here, and could not be stored.
        written = json.dumps(value, allow_nan=False)
        if len(written) > PREPARATION_CHARACTERS or "\\u0000" in written:
            raise ValueError(f"more than {PREPARATION_CHARACTERS} characters, or NUL")
        return value


def review_request_in(body: bytes, connection: ConnectedAgent) -> ReviewRequest:
    """The review request in a body. Raises BadInput `bad_body`, and `other_agent` if another agent is connected."""
    try:
        requested = ReviewRequest.model_validate_json(body)
    except pydantic.ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"])) or "the body"
        raise BadInput("bad_body", f"{name}: {first['msg']}. {COMPACTS}") from fault
    if requested.agent != connection.agent:
        raise BadInput(
            "other_agent",
            f"The connection {connection.name} is of {connection.agent}, and {requested.agent} asked. {COMPACTS} "
            "`redline connect` connects each agent.",
        )
    return requested


def request_review(requested: ReviewRequest, connection: ConnectedAgent, now: datetime) -> Handshake:
    """Record the review request of an agent, and start planning for it.

    Raises BadInput `unknown_session` and `unlisted_session`, Conflict `moved_on`, and the errors of reading the
    session: then nothing is recorded. Also raises BadInput `other_agent`, `other_project` and `other_honours`: then a
    failed handshake reports that to the user. If planning is impossible, the handshake has failed.
    """
    session = _session_of(requested, connection)
    try:
        require_in_scope(session, connection, requested.session)
        require_honoured(requested.honours, connection)
    except BadInput as fault:
        _record(_handshake_for(requested, connection, session, now), fault.message)
        raise
    _require_same_branch(requested, session)
    for earlier in Handshake.objects.unfinished().with_session().filter(session=session, connection=connection.name):
        # This request replaces an earlier one: the process that made that is gone, and no longer applies anything.
        end_handshake(earlier, HandshakeState.DECLINED, NextStep.COMPACT, AGAIN, now)
        report_failed(earlier, AGAIN, now)
    handshake = _handshake_for(requested, connection, session, now)
    # It is recorded with its run: the server looks after handshakes each second, and would take one without for lost.
    try:
        handshake.run = _run_for(handshake, session, wait_for(requested.agent, requested.reason).planner)
    except RedlineError as fault:
        return _record(handshake, f"{fault.message} {COMPACTS}")
    handshake.state = HandshakeState.ASKED if handshake.run is None else HandshakeState.PLANNING
    return _record(handshake)


def _handshake_for(requested: ReviewRequest, connection: ConnectedAgent, session: Session, now: datetime) -> Handshake:
    """A handshake that is not recorded yet."""
    wait = wait_for(requested.agent, requested.reason)
    return Handshake(
        connection=connection.name,
        agent=requested.agent,
        version=requested.version,
        session=session,
        reason=requested.reason,
        honours=requested.honours,
        leaf_id=requested.leaf,
        preparation=requested.preparation,
        asked_at=now,
        polled_at=now,
        ends_at=now + timedelta(seconds=wait.seconds),
        then=wait.then,
    )


def _record(handshake: Handshake, failure: str = "") -> Handshake:
    """Record a new handshake; with a failure, it has ended."""
    if failure:
        handshake.state, handshake.step = HandshakeState.FAILED, NextStep.COMPACT
        handshake.message, handshake.ended_at = failure, handshake.asked_at
    handshake.save()
    publish_change(handshake)
    return handshake


def start_requested(handshake: Handshake, now: datetime) -> None:
    """Start planning for a request that arrived while an earlier run of its session was being stopped."""
    if handshake.state != HandshakeState.ASKED:
        return
    planner = wait_for(handshake.agent, handshake.reason).planner
    try:
        run = _run_for(handshake, handshake.session, planner)
    except RedlineError as fault:
        if fault.code != IN_FLIGHT:  # another process has just started it
            words = f"{fault.message} {COMPACTS}"
            end_handshake(handshake, HandshakeState.FAILED, NextStep.COMPACT, words, now)
        return
    if run is not None:
        change_handshake(handshake, HandshakeState.PLANNING, run=run)


def _run_for(handshake: Handshake, session: Session, planner: str) -> Run | None:
    """A new run for a review request, or the one in progress; None while that is being stopped. Raises what `start_run`
    raises."""
    under_way = session.runs.active().first()
    if under_way is not None:
        return None if under_way.stop_requested else under_way
    chosen, reading = configured_planner(session, planner), indexed_reading(session)
    return start_run(
        session,
        planner=chosen.planner,
        requested_parameters={},
        leaf_id=handshake.leaf_id,
        # One whose change the agent can make itself; otherwise the best one.
        writer="" if reading is None else handed_writer(reading, handshake.honours),
        reason=handshake.reason,
        planner_note=chosen.note,
    )


def handed_writer(reading: Reading, honours: str) -> str:
    """The name of the first writer whose change an agent can make itself; empty if there is none."""
    names = (one.name for one in reading.writers if isinstance(one, HandedWriter) and one.honours == honours)
    return next(names, "")


def _session_of(requested: ReviewRequest, connection: ConnectedAgent) -> Session:
    """The row of the session of a review request, as its file is now."""
    agent = AGENTS[requested.agent]
    path = Path(requested.session)
    if not path.is_absolute():
        rows = Session.objects.shown().present().filter(header_id=requested.session).select_related("root")
        found = [one for one in rows if one.agent_key == agent.key]
        if not found:
            raise BadInput(
                "unknown_session",
                f"Redline does not know the session {requested.session or '(without an id)'} of {agent.label}. "
                f"{COMPACTS}",
            )
        # Copies of a session also have its id.
        path = max(found, key=lambda one: is_in_project(one, connection)).real_path()
    place = real_path(path)
    if not any(place.is_relative_to(root.path) for root in shown_roots()):
        raise unlisted(requested.session)  # before anything of the file is read
    session = index_file(place)
    if not session.root.configured:
        raise unlisted(requested.session)
    return session


def _require_same_branch(requested: ReviewRequest, session: Session) -> None:
    """Raise Conflict `moved_on` if the file does not have the branch that the agent has."""
    if not requested.leaf:
        return
    document = Document.of_index(session)
    path = document.path
    if requested.leaf not in document.tree:
        raise Conflict("moved_on", f"{path} has no entry {requested.leaf}, after which the agent continues. {COMPACTS}")
    branch = document.branch(requested.leaf)
    if requested.branch is not None and requested.branch != branch_of(branch):
        raise Conflict(
            "moved_on",
            f"{path} has {plural(len(branch), 'entry')} up to {requested.leaf}, and the agent has "
            f"{requested.branch.entries:,}, or others. {COMPACTS}",
        )


def branch_of(entries: Sequence[Entry]) -> AskedBranch:
    """A branch in the form of a review request."""
    ids = "".join(f"{entry.id}\n" for entry in entries)
    return AskedBranch(entries=len(entries), sha256=hashlib.sha256(ids.encode()).hexdigest())


# ---- the sessions of a connection ----------------------------------------------------------------------------


def require_in_scope(session: Session, connection: ConnectedAgent, named: str = "") -> None:
    """Raise BadInput `unlisted_session`, `other_agent` or `other_project` if a session is outside the connection's
    scope.

    `named` is the agent's name of the session: the message reveals nothing else about a session of another agent or
    project.
    """
    shown = named or str(session.path)
    label = AGENTS[connection.agent].label
    if not session.root.configured:
        raise unlisted(shown)
    if session.agent_key != connection.agent:
        raise BadInput(
            "other_agent",
            f"{shown} is a session of {session.agent_label or 'an unknown agent'}, and the connection "
            f"{connection.name} is of {label}. {COMPACTS} If it is one of {label}, choose how it is read on its page.",
        )
    if not is_in_project(session, connection):
        raise BadInput(
            "other_project",
            f"{shown} was not started in {connection.project}, and the connection {connection.name} counts there only. "
            f"{COMPACTS} `redline connect {connection.agent} --project DIR` connects another project.",
        )


def is_in_project(session: Session, connection: ConnectedAgent) -> bool:
    """Whether a session was started below the directory of a connection, however its path is written."""
    if not connection.project:
        return True
    directory = Path(session.cwd)
    if not directory.is_absolute() or "\0" in session.cwd:
        return False
    return real_path(directory).is_relative_to(connection.project)


def unlisted(named: str) -> BadInput:
    return BadInput(
        "unlisted_session",
        f"{named} is below none of the directories that Redline lists. {COMPACTS} The Settings page adds one.",
    )


def require_honoured(honours: str, connection: ConnectedAgent) -> None:
    """Raise BadInput `other_honours` if no version of an agent makes such a change itself."""
    agent = AGENTS[connection.agent]
    known = honoured_by(agent)
    if honours not in known:
        raise BadInput(
            "other_honours",
            f"{agent.label} does not apply {honours} itself, although the question says so: it honours "
            f"{' or '.join(sorted(known))}. {COMPACTS} `redline connect {agent.key}` installs the bridge again.",
        )


def honoured_by(agent: Agent) -> frozenset[str]:
    """The values of `honours` in docs/handshake.md that are possible for the versions of an agent."""
    writers = (writer for generation in agent.format.generations for writer in generation.writers)
    return frozenset({NOTHING, *(one.honours for one in writers if isinstance(one, HandedWriter))})
