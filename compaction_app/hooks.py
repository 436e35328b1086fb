"""Hooks: the user's own modules, called before a compaction or a move in the tree, and after one was written.

    hooks = ["my_hooks"]  ──import──▶  @receiver(session_before_compact)  ──answers─▶  None | Pin | Supply | Cancel
                                                                                       for a summary SupplySummary
                                       @receiver(session_before_tree)     ──answers─▶  None | Adjust | SupplySummary
                                                                                       | Cancel
                                       @receiver(session_compact), @receiver(session_tree)  ──▶  nothing

All are Django signals. The receivers of the first two are called in the order in which they were connected, until one
cancels or supplies something; their pins add up. A failing hook is not skipped: nothing is done, because its purpose
may be to protect something. A failure in a receiver of the others is logged and changes nothing.

`docs/hooks.md` lists their arguments, and explains them to authors of hooks.
"""

import importlib
import logging
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple

from django.dispatch import Signal

from compaction_app.core.hook_answers import FINAL, Adjust, Answer, Cancel, Pin, Supply, SupplySummary, answers_in
from sessions_app.agents.base import CompactionBudget
from sessions_app.agents.pure.formats import FileLists
from sessions_app.sessionlog.entries import Entry, Target
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.jsjson import parse, well_formed

__all__ = [
    "Adjust",
    "Cancel",
    "Pin",
    "Supply",
    "SupplySummary",
    "Target",
    "session_before_compact",
    "session_before_tree",
    "session_compact",
    "session_tree",
]
"""The interface for hooks; the rest is how Redline calls them."""

WORDS_KEPT: Final = 300
"""The number of characters of a hook's reason that are kept."""

_log = logging.getLogger("redline")

Receiver = Callable[..., object]


class HookSignal(Signal):
    """A signal whose receivers Redline calls one by one, to stop at an answer and to name one that fails."""

    def connect(
        self,
        receiver: Receiver,
        sender: object | None = None,
        weak: bool = True,
        dispatch_uid: Hashable | None = None,
    ) -> None:
        """Connect a function. Raises TypeError if it is async: Redline waits for a hook's answer."""
        if iscoroutinefunction(receiver):
            raise TypeError(f"{receiver_name(receiver)} is async; a hook must not be")
        super().connect(receiver, sender, weak, dispatch_uid)

    def connected(self) -> list[Receiver]:
        """The receivers, in the order in which they were connected."""
        return self._live_receivers(None)[0]


session_before_compact: Final = HookSignal()
"""Sent before planning. A receiver returns None, Pin, Supply or Cancel; for a summary
SupplySummary instead of Supply."""
session_compact: Final = HookSignal()
"""Sent after a compaction was written. Answers are ignored."""
session_before_tree: Final = HookSignal()
"""Sent before a move in the tree. A receiver returns None, Adjust, SupplySummary or
Cancel."""
session_tree: Final = HookSignal()
"""Sent after a move was written. Answers are ignored."""
SIGNALS: Final = (session_before_compact, session_compact, session_before_tree, session_tree)


@dataclass(frozen=True, slots=True)
class SummaryPreparation:
    """The range that a summary would replace: entries of the branch, oldest first, which would no longer be sent."""

    messages: tuple[Entry, ...]
    prefix: tuple[Entry, ...]
    """The beginning of a split turn, after `messages`; empty if there is none."""
    kept: tuple[Entry, ...]
    """The following entries, which are kept."""
    previous_summary: str | None
    """The text of the summary that this one updates."""
    files: FileLists
    """The files that the replaced entries read and modified, and those of earlier summaries."""
    tokens_before: int
    """The estimated tokens of the context."""
    first_kept_id: str
    settings: CompactionBudget
    """The agent's settings: the tokens that it leaves free, and those that it keeps."""


# ---- calls -----------------------------------------------------------------------------------------------


class HookAnswer(NamedTuple):
    """The answer of one receiver; `hook` is its module and name."""

    hook: str
    answer: Answer

    @property
    def why(self) -> str:
        """The hook and its reason, on one line."""
        why = well_formed(" ".join(self.answer.why.split())[:WORDS_KEPT]).rstrip(".")
        return f"{self.hook}: {why}" if why else self.hook


DELETIONS: Final = (Pin, Supply, Cancel)
SUMMARIES: Final = (Pin, SupplySummary, Cancel)
MOVES: Final = (Adjust, SupplySummary, Cancel)
NOTHING_PLANNED: Final = "Nothing was planned"


def ask_hooks(
    signal: HookSignal,
    allowed: tuple[type[Answer], ...],
    nothing_done: str,
    sent: Mapping[str, Any],
    final: tuple[type[Answer], ...] = FINAL,
) -> Iterator[HookAnswer]:
    """The answers of a signal's receivers, up to the first that is `final`: it cancels or supplies something.

    Each answer is yielded before the next receiver is called, which then receives the present arguments in `sent`.
    `nothing_done` states what a failure prevents, as in "Nothing was planned". Raises SystemFailure `hook_failed` if a
    receiver raises, and BadInput `bad_answer` for an answer that is not allowed.
    """
    for receiver in signal.connected():
        hook = receiver_name(receiver)
        for answer in _answers(receiver, hook, signal, allowed, nothing_done, sent):
            yield HookAnswer(hook, answer)
            if isinstance(answer, final):
                return


def _answers(
    receiver: Receiver,
    hook: str,
    signal: HookSignal,
    allowed: tuple[type[Answer], ...],
    nothing_done: str,
    sent: Mapping[str, Any],
) -> tuple[Answer, ...]:
    try:
        returned = receiver(signal=signal, sender=None, **sent)
    except (Exception, SystemExit) as fault:
        _log.exception("The hook %s failed", hook)
        raise SystemFailure(
            "hook_failed",
            f"The hook {hook} failed ({type(fault).__name__}). {nothing_done}, because it may have been there "
            "to keep something. The log says where. Correct it, or delete its module from `hooks`.",
        ) from fault
    names = " or ".join(", ".join(["None", *(one.__name__ for one in allowed)]).rsplit(", ", 1))
    refusal = f"{nothing_done}. It may return {names}."
    try:
        answers = answers_in(returned)
    except (TypeError, ValueError) as fault:
        words = f"returned a {type(returned).__name__} that cannot be used: {fault}"
        raise BadInput("bad_answer", f"The hook {hook} {words}. {refusal}") from fault
    for answer in answers:
        if not isinstance(answer, allowed):
            raise BadInput("bad_answer", f"The hook {hook} returned a {type(answer).__name__}. {refusal}")
    return answers


def notify_hooks(signal: HookSignal, what: str, lines: Sequence[bytes], **sent: Any) -> None:
    """Call every receiver of a signal after something was written, with the appended lines as `entries`. A failure is
    logged, and does not affect the others."""
    for receiver in signal.connected():
        try:
            receiver(signal=signal, sender=None, entries=[parse(line) for line in lines], **sent)
        except (Exception, SystemExit):  # noqa: BLE001  # it is written anyway
            _log.exception("The hook %s failed after %s", receiver_name(receiver), what)


def receiver_name(receiver: Receiver) -> str:
    """A receiver by its module and name."""
    named = receiver if hasattr(receiver, "__qualname__") else type(receiver)
    return f"{named.__module__}.{named.__qualname__}"


# ---- loading ---------------------------------------------------------------------------------------------


class Unloaded(NamedTuple):
    """A module that could not be imported, and the reason in words."""

    module: str
    why: str


_unloaded: list[Unloaded] = []
_silent: list[str] = []


def load_hooks(modules: Iterable[str]) -> None:
    """Import the modules, in this order. A failure is kept for `unloaded`: a system check reports it."""
    _unloaded.clear()
    _silent.clear()
    for module in modules:
        before = len(_connected())
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as fault:  # noqa: BLE001  # a user's module may raise anything; it is reported
            _unloaded.append(Unloaded(module, _why(fault)))
            continue
        connected = _connected()
        if len(connected) == before and not any(_is_in(receiver, module) for receiver in connected):
            _silent.append(module)


def unloaded() -> Sequence[Unloaded]:
    """The modules that could not be imported."""
    return tuple(_unloaded)


def silent() -> Sequence[str]:
    """The modules that connect no receiver."""
    return tuple(_silent)


def require_loaded() -> None:
    """Raise BadInput `hook_not_loaded` if a hook is missing: its purpose may be to keep something."""
    for module, why in _unloaded:
        raise BadInput(
            "hook_not_loaded",
            f"The hook {module} cannot be imported: {why}. Nothing was planned. Correct it, or delete it from `hooks`.",
        )


def _connected() -> list[Receiver]:
    return [receiver for signal in SIGNALS for receiver in signal.connected()]


def _is_in(receiver: Receiver, module: str) -> bool:
    return f"{receiver_name(receiver)}.".startswith(f"{module}.")


def _why(fault: Exception | SystemExit) -> str:
    """The reason for a failed import: the error, and the line of the user's own file."""
    error = " ".join(f"{type(fault).__name__}: {fault}".split())[:WORDS_KEPT].rstrip(".: ")
    frames = traceback.extract_tb(fault.__traceback__)
    place = frames[-1] if frames else None
    if place is None or place.filename.startswith("<frozen"):
        return error
    return f"{error} ({place.filename}, line {place.lineno})"
