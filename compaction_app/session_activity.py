"""Whether an agent may have a session open: it was written to recently, or a process has it open for writing.

Commits and restores use it for their confirmations, and pages show it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings

from sessions_app.agents.base import AgentServer, OpenElsewhere
from sessions_app.agents.pure.formats import ServedWriter, SessionWriter
from sessions_app.disk.files import FileState
from sessions_app.disk.open_files import SHOWS_WRITERS, Writer, describe, writers_of
from sessions_app.index.index_store import session_row
from sessions_app.models import Session
from sessions_app.sessionlog.errors import ConfirmationNeeded, Conflict, RedlineError
from sessions_app.storage.session_loader import TornLine


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of other writers of a session. `writers` are known on Linux only, and only to their user."""

    is_recent: bool
    writers: tuple[Writer, ...]
    elsewhere: OpenElsewhere | None = None
    """A process that has the session open, according to the agent itself."""
    is_in_database: bool = False
    """Whether the agent reads the session again before each request."""
    server: AgentServer | None = None
    """The agent's configured server, through which the session can be changed although the server has it open."""
    seconds_ago: float = 0.0
    """Seconds since the last write."""

    @property
    def is_open_elsewhere(self) -> bool:
        """Whether the agent certainly has the session open."""
        return self.elsewhere is not None and self.elsewhere.is_certain

    @property
    def is_live(self) -> bool:
        """Whether writing to the session requires a confirmation, or is refused."""
        return self.is_recent or bool(self.writers) or self.elsewhere is not None

    @property
    def is_only_recent(self) -> bool:
        """Whether it was written to recently, and nothing shows that it is still open."""
        return self.is_recent and not self.writers and self.elsewhere is None

    @property
    def recency(self) -> str:
        """Words to follow `was`: the time of the last write, and whether a process is known to have it open."""
        minutes = int(max(0.0, self.seconds_ago) // 60)
        when = f"{minutes} minute{'s' if minutes > 1 else ''} ago" if minutes else "less than a minute ago"
        known = "no process has it open" if SHOWS_WRITERS else "whether a process has it open is not known here"
        return f"written to {when}; {known}"

    @property
    def sentence(self) -> str:
        """The known activity, such as `was written to in the last 5 minutes`; empty if there is none."""
        parts = [f"was written to in the last {settings.REDLINE.live_minutes:g} minutes"] if self.is_recent else []
        if self.writers:
            parts.append(f"is open for writing in {describe(self.writers)}")
        if self.elsewhere is not None:
            parts.append(self.elsewhere.sentence)
        return " and ".join(parts)

    @property
    def agreement(self) -> str:
        """The user's confirmation for a change of a live session."""
        if self.server is not None:
            return "The agent has this session open. I will not prompt it until this is done."
        return "An agent may have this session open. I have closed it there, or will reload it."

    @property
    def consequence(self) -> str:
        """The effect of a change on an agent that has the session open."""
        if self.is_in_database:
            return "An agent that has it open may be writing a reply, and reads the change with its next request."
        return "An agent that has it open continues from its own copy, past this change."

    def require_closed(self, path: Path) -> None:
        """Raise Conflict `open_in_agent` if the agent certainly has the session open."""
        if self.elsewhere is not None and self.elsewhere.is_certain:
            raise Conflict(
                "open_in_agent",
                f"{path} {self.elsewhere.sentence}. {self.consequence} Nothing was written. Close the session there "
                "first, or use a writer that makes a new session.",
            )


def activity_of(session: Session, state: FileState | None, now: datetime, *, with_writers: bool = True) -> Activity:
    """The activity of others in a session with this state; none if it is gone.

    `with_writers`: the system's processes are searched for writers, which takes some 20 ms.
    """
    if state is None:
        return Activity(is_recent=False, writers=())
    agent, path = session.agent, session.path
    address = settings.REDLINE.servers.get(agent.key, "")
    server = agent.store.server(path, address)
    elsewhere = agent.store.open_elsewhere(path) if server is None else None
    if elsewhere is not None and address:
        known = f"{elsewhere.sentence}, which is not, or not alone, the server configured at {address}"
        elsewhere = elsewhere._replace(sentence=known)
    return Activity(
        is_recent=session.is_live(now, state.mtime_ns),
        writers=writers_of(state) if with_writers else (),
        elsewhere=elsewhere,
        is_in_database=agent.store.database(path) is not None,
        server=server,
        seconds_ago=now.timestamp() - state.mtime_ns / 1e9,
    )


def activity_at(path: Path, now: datetime) -> Activity:
    """The activity of others in the session at a real path."""
    session = session_row(path)
    return activity_of(session, session.agent.store.state(path), now)


def effect_of(writer: SessionWriter, activity: Activity) -> str:
    """The effect of a writer on the session, as a sentence."""
    if activity.server is not None and isinstance(writer, ServedWriter):
        return writer.effect_through(activity.server.address)
    return writer.effect


def confirmation(name: str, code: str, message: str) -> tuple[str, ConfirmationNeeded]:
    """A required confirmation: its field of `Confirmations`, and the error raised without it, which names its
    option."""
    return name, ConfirmationNeeded(code, message, f"--{name.replace('_', '-')}")


def append_needs(
    path: str, activity: Activity | None, torn: TornLine | None, not_done: str, what: str = "what is appended"
) -> Iterator[tuple[str, RedlineError]]:
    """The confirmations that an append to a session needs: `live` and `after_torn_line`, each with the error that is
    raised if it is missing. `not_done` is the sentence that states what did not happen; `what` names the appended text.

    `activity` is None if the activity of others does not matter.
    """
    if activity is not None and activity.is_live and not activity.is_open_elsewhere:
        yield confirmation(
            "live",
            "session_live",
            f"{path} {activity.sentence}: an agent may have it open. {activity.consequence} {not_done} Close "
            "the session in the agent, or reload it afterwards, and use --live.",
        )
    if torn is not None:
        yield confirmation(
            "after_torn_line",
            "torn_last_line",
            f"{path} ends in {torn}. {not_done} Let the agent finish the line; if it never does, use "
            f"--after-torn-line: {what} then begins on a new line after it.",
        )
