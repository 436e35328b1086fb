"""Hooks: the user's own modules, asked before a compaction is planned and told after one was written.

    hooks = ["my_hooks"]  ──import──▶  @receiver(session_before_compact)  ──asked──▶  None | Pin | Supply | Cancel
                                       @receiver(session_compact)         ──told───▶  nothing

Both are Django signals. The receivers of the first are asked in the order in which they were connected, until one
cancels or supplies a plan; what they pin adds up. A hook that fails is not passed over: nothing is planned, because
it may have been there to protect something. What fails in a receiver of the second is logged and changes nothing.

What they are sent stands in BEFORE and AFTER; `docs/hooks.md` tells it to those who write one.
"""

from __future__ import annotations

import importlib
import logging
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple

from django.dispatch import Signal

from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.targets import Target

__all__ = ["Cancel", "Pin", "Supply", "Target", "session_before_compact", "session_compact"]
"""What a hook needs; the rest is how Redline asks and tells it."""

WORDS_KEPT: Final = 300
"""Characters that are kept of what a hook gives as its reason."""

BEFORE: Final[Mapping[str, str]] = {
    "path": "the session's file",
    "session": "its row in the index, or None if `redline compact` records nothing, for example with `--dry-run`",
    "loaded": "the whole session as it was read; `loaded.tree` includes the other branches",
    "branch": "the entries of the planned branch, root first",
    "preparation": "the transcript: what can be deleted, with protections, tokens and texts",
    "parameters": "the effective `compression_ratio`, `preserve_recent` and `query`",
    "reason": "`manual`, `threshold` or `overflow`",
}
AFTER: Final[Mapping[str, str]] = {
    "path": "the session's file",
    "session": "its row in the index",
    "result": "what was validated and written: `targets`, `stats`, `protected_entry_ids`, `parameters`",
    "entry": "the `context_compaction` entry, exactly as it was written",
    "reason": "`manual`, `threshold` or `overflow`",
    "from_hook": "whether a hook supplied part of the plan",
    "backup": "the file with the session's previous bytes",
}

_log = logging.getLogger("redline")

Receiver = Callable[..., object]


class HookSignal(Signal):
    """A signal whose receivers Redline calls one by one: to stop at an answer, to say which of them failed."""

    def connect(
        self,
        receiver: Receiver,
        sender: object | None = None,
        weak: bool = True,
        dispatch_uid: Hashable | None = None,
    ) -> None:
        """Connect a function. Raises TypeError for one that is async: Redline waits for what a hook says."""
        if iscoroutinefunction(receiver):
            raise TypeError(f"{name_of(receiver)} is async, and a hook may not be")
        super().connect(receiver, sender, weak, dispatch_uid)

    def listening(self) -> list[Receiver]:
        """The receivers, in the order in which they were connected."""
        return self._live_receivers(None)[0]


session_before_compact: Final = HookSignal()
"""Sent before a planner is asked, with what BEFORE lists. A receiver answers None, Pin, Supply or Cancel."""
session_compact: Final = HookSignal()
"""Sent after a compaction was written, with what AFTER lists. Nobody looks at the answers."""


# ---- answers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nothing is planned, and this is why. Raises TypeError if that is no text."""

    why: str

    def __post_init__(self) -> None:
        _require_text(self.why)


@dataclass(frozen=True, slots=True)
class Supply:
    """A plan in place of the planner's: deletions as a tool call would ask for them, judged like those.

        Supply([{"kind": "entry", "entryId": "1a2b3c4d"}], "it was printed twice")

    Raises TypeError if it is no list, and ValueError if it is empty: who has nothing to delete answers None.
    """

    deletions: Sequence[object]
    why: str = ""

    def __post_init__(self) -> None:
        _require_text(self.why)
        if not isinstance(self.deletions, list | tuple):
            raise TypeError("Supply takes a list of deletions, each an object with kind and entryId.")
        if not self.deletions:
            raise ValueError("Supply takes at least one deletion. Answer None to leave it to the planner.")
        object.__setattr__(self, "deletions", tuple(self.deletions))


@dataclass(frozen=True, slots=True)
class Pin:
    """These stay, as if a human had rejected their deletion: pair repair may not take them either.

    What the transcript does not hold, or protects anyway, may be among them. Raises TypeError for what is no Target.
    """

    targets: Iterable[Target]
    why: str = ""

    def __post_init__(self) -> None:
        _require_text(self.why)
        targets = tuple(self.targets)
        if not all(map(_is_target, targets)):
            raise TypeError(
                "Pin takes Targets, as in Pin([Target(entry_id), Target(other_id, block_index)])."
            )
        object.__setattr__(self, "targets", targets)


Answer = Pin | Supply | Cancel


def _require_text(why: object) -> None:
    if not isinstance(why, str):
        raise TypeError("The reason of an answer is a text.")


def _is_target(found: object) -> bool:
    if not isinstance(found, Target) or not isinstance(found.entry_id, str):
        return False
    index = found.block_index
    return index is None or (isinstance(index, int) and not isinstance(index, bool))


# ---- asking and telling ----------------------------------------------------------------------------------


class HookAnswer(NamedTuple):
    """What one receiver answered; `hook` is its module and name."""

    hook: str
    answer: Answer


def ask_hooks(**sent: Any) -> Iterator[HookAnswer]:
    """The answers of the receivers of `session_before_compact`, up to the first that cancels or supplies a plan.

    Raises SystemFailure `hook_failed` if one raises, and BadInput `bad_answer` if it answers something else.
    """
    for receiver in session_before_compact.listening():
        hook = name_of(receiver)
        try:
            answer = receiver(signal=session_before_compact, sender=None, **sent)
        except (Exception, SystemExit) as fault:
            _log.exception("The hook %s failed before a compaction", hook)
            raise SystemFailure(
                "hook_failed",
                f"The hook {hook} failed ({type(fault).__name__}). Nothing was planned, because it may have been there "
                "to keep something. The log tells where. Mend it, or take its module out of `hooks`.",
            ) from fault
        if answer is None:
            continue
        if not isinstance(answer, Answer):
            raise BadInput(
                "bad_answer",
                f"The hook {hook} answered with a {type(answer).__name__}. Nothing was planned. "
                "It may answer None, Pin, Supply or Cancel.",
            )
        yield HookAnswer(hook, answer)
        if not isinstance(answer, Pin):
            return


def notify_hooks(**sent: Any) -> None:
    """Tell every receiver of `session_compact`. What fails in one is logged, and changes nothing for the others."""
    for receiver in session_compact.listening():
        try:
            receiver(signal=session_compact, sender=None, **sent)
        except (Exception, SystemExit):  # noqa: BLE001  # the compaction is written, whatever it makes of that
            _log.exception("The hook %s failed when it was told of a compaction", name_of(receiver))


def name_of(receiver: Receiver) -> str:
    """A receiver by its module and name."""
    named = receiver if hasattr(receiver, "__qualname__") else type(receiver)
    return f"{named.__module__}.{named.__qualname__}"


# ---- loading ---------------------------------------------------------------------------------------------


class Unloaded(NamedTuple):
    """A module that could not be imported, and why in words."""

    module: str
    why: str


_unloaded: list[Unloaded] = []
_silent: list[str] = []


def load_hooks(modules: Iterable[str]) -> None:
    """Import the modules, in this order. What cannot be is kept for `unloaded`: a system check tells of it."""
    _unloaded.clear()
    _silent.clear()
    for module in modules:
        before = len(_connected())
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as fault:  # noqa: BLE001  # whatever a user's module raises; it is told
            _unloaded.append(Unloaded(module, _why(fault)))
            continue
        connected = _connected()
        if len(connected) == before and not any(_lies_in(receiver, module) for receiver in connected):
            _silent.append(module)


def unloaded() -> Sequence[Unloaded]:
    """The modules that could not be imported."""
    return tuple(_unloaded)


def silent() -> Sequence[str]:
    """The modules that connect nothing."""
    return tuple(_silent)


def require_loaded() -> None:
    """Raise BadInput `hook_not_loaded` if a hook is missing: it may have been there to keep something."""
    for module, why in _unloaded:
        raise BadInput(
            "hook_not_loaded",
            f"The hook {module} cannot be imported: {why}. Nothing was planned. Mend it, or take it out of `hooks`.",
        )


def _connected() -> list[Receiver]:
    return [*session_before_compact.listening(), *session_compact.listening()]


def _lies_in(receiver: Receiver, module: str) -> bool:
    return f"{name_of(receiver)}.".startswith(f"{module}.")


def _why(fault: Exception | SystemExit) -> str:
    """A failed import: what was raised, and in which line of the user's own file."""
    told = " ".join(f"{type(fault).__name__}: {fault}".split())[:WORDS_KEPT].rstrip(".: ")
    frames = traceback.extract_tb(fault.__traceback__)
    place = frames[-1] if frames else None
    if place is None or place.filename.startswith("<frozen"):
        return told
    return f"{told} ({place.filename}, line {place.lineno})"
