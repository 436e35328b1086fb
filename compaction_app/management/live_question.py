"""The question of a command that changes a session, before it does.

If the session was written to in the last minutes, which is the normal case after leaving an agent, the question says
so, and its answer confirms the change and `--live` together. It is not asked if more is to be confirmed, or if anything
shows that the session is still open: an answer that would not be enough is not requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from compaction_app.session_activity import Activity, activity_at
from sessions_app.cli import RedlineCommand
from sessions_app.sessionlog.errors import ConfirmationNeeded

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LIVE: Final = "live"
Given = TypeVar("Given", bound="DataclassInstance")
"""The confirmations of a change: a dataclass with a field `live`."""


def confirmed(
    command: RedlineCommand,
    question: str,
    needs: Collection[str],
    given: Given,
    *,
    session: Path,
    activity: Activity,
    yes: bool,
    require: Callable[[], None],
) -> Given | None:
    """The confirmations with which a change is made; None if it is not to be made.

    `question` is a verb with what it does, such as `Undo this`; `needs` are the fields of the confirmations that the
    change needs, and `require` raises the first that is missing in `given`.
    """
    missing = [name for name in needs if not getattr(given, name)]
    if not yes and can_ask_about_live(command, missing, activity):
        return with_live(given) if is_live_confirmed(command, session, activity, question) else None
    require()
    return given if yes or (command.can_ask and command.ask(f"{question}?")) else None


def can_ask_about_live(command: RedlineCommand, missing: Collection[str], activity: Activity) -> bool:
    """Whether the answer to the question can give the only confirmation that is missing."""
    return command.can_ask and list(missing) == [LIVE] and activity.is_only_recent


def is_live_confirmed(command: RedlineCommand, session: Path, activity: Activity, question: str) -> bool:
    """Ask whether to change a session that was written to recently.

    Raises ConfirmationNeeded `session_live` if it was opened since it was asked.
    """
    if not command.ask(f"The session was {activity.recency}. {question}?"):
        return False
    now = activity_at(session, datetime.now(UTC))
    if now.is_live and not now.is_only_recent:
        raise ConfirmationNeeded(
            "session_live",
            f"{session} {now.sentence} since the question. Nothing was changed. Close it there, and use --live.",
            "--live",
        )
    return True


def with_live(given: Given) -> Given:
    added: dict[str, Any] = {LIVE: True}
    return replace(given, **added)
