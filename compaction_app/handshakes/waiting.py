"""The agents that wait for a review, as every page names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django.urls import reverse
from django.utils import timezone

from compaction_app.core.handshake_states import HandshakeState
from compaction_app.models import Handshake
from sessions_app.database.sqlite import UntilWritten
from sessions_app.sessionlog.text import one_line
from sessions_app.web.session_badges import MarkPlace, SessionBadge

TITLE_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class WaitingAgent:
    """An agent that waits, and the page on which its plan is reviewed or watched."""

    handshake: Handshake
    title: str
    address: str

    @property
    def is_planned(self) -> bool:
        """Whether its plan can be reviewed."""
        return self.handshake.state == HandshakeState.WAITING


def waiting_agents() -> list[WaitingAgent]:
    """The agents that wait for a review; the one whose time ends first at the beginning."""
    return [waiting_agent(one) for one in unfinished_handshakes() if one.is_open]


def unfinished_handshakes() -> list[Handshake]:
    """The handshakes whose agent waits, or has not applied what was approved."""
    # Every page queries this, and usually there is none.
    if not _is_any_unfinished():
        return []
    return list(Handshake.objects.unfinished().shown().with_session().order_by("ends_at"))


def waiting_agent(handshake: Handshake) -> WaitingAgent:
    """The agent of an open handshake."""
    return WaitingAgent(handshake, one_line(handshake.session.heading, TITLE_CHARACTERS), address_of(handshake))


def badges(sessions: Sequence[int]) -> Mapping[int, SessionBadge]:
    """The sessions of a list whose agent waits, each with the page on which that is decided."""
    return {
        one.handshake.session_id: SessionBadge(
            f"agent waits until {timezone.localtime(one.handshake.ends_at):%H:%M}",
            one.address,
            MarkPlace.WAITS,
            ends=one.handshake.ends_at,
        )
        for one in waiting_agents()
        if one.handshake.session_id in sessions
    }


_is_any_unfinished: Final = UntilWritten(lambda: Handshake.objects.unfinished().exists())


def address_of(handshake: Handshake) -> str:
    """The page on which the plan of a handshake is reviewed, or watched during planning."""
    if handshake.run_id is None:
        return reverse("compaction:handshake", args=(handshake.pk,))
    name = "compaction:review" if handshake.state == HandshakeState.WAITING else "compaction:run"
    return reverse(name, args=(handshake.run_id,))
