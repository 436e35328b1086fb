"""Hooks: the user's own modules, called before a compaction is planned and after one was written.

    hooks = ["my_hooks"]  ──import──▶  @receiver(session_before_compact)  ──answers─▶  None | Pin | Supply | Cancel
                                       @receiver(session_compact)         ──────────▶  nothing

Both are Django signals. The receivers of the first are called in the order in which they were connected, until one
cancels or supplies a plan; their pins add up. A failing hook is not skipped: nothing is planned, because it may have
been there to protect something. A failure in a receiver of the second is logged and changes nothing.

BEFORE and AFTER list what they are sent; `docs/hooks.md` explains it to authors of hooks.
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
"""What a hook needs; the rest is how Redline calls it."""

WORDS_KEPT: Final = 300
"""Characters of a hook's reason that are kept."""

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
    "entries": "the appended entries, exactly as they were written; none if a new session was made",
    "reason": "`manual`, `threshold` or `overflow`",
    "from_hook": "whether a hook supplied part of the plan",
    "backup": "the file with the session's previous bytes",
    "created": "the file of the new session; None if entries were appended",
}

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
            raise TypeError(f"{name_of(receiver)} is async; a hook must not be")
        super().connect(receiver, sender, weak, dispatch_uid)

    def connected(self) -> list[Receiver]:
        """The receivers, in the order in which they were connected."""
        return self._live_receivers(None)[0]


session_before_compact: Final = HookSignal()
"""Sent before planning, with what BEFORE lists. A receiver returns None, Pin, Supply or Cancel."""
session_compact: Final = HookSignal()
"""Sent after a compaction was written, with what AFTER lists. Answers are ignored."""


# ---- answers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nothing is planned, for this reason. Raises TypeError if the reason is not a string."""

    why: str

    def __post_init__(self) -> None:
        _require_text(self.why)


@dataclass(frozen=True, slots=True)
class Supply:
    """A plan that replaces the planner's: deletions as in a tool call, and judged in the same way.

        Supply([{"kind": "entry", "entryId": "1a2b3c4d"}], "it was printed twice")

    Raises TypeError if it is not a list, and ValueError if it is empty: a hook with nothing to delete returns None.
    """

    deletions: Sequence[object]
    why: str = ""

    def __post_init__(self) -> None:
        _require_text(self.why)
        if not isinstance(self.deletions, list | tuple):
            raise TypeError("Supply takes a list of deletions, each an object with kind and entryId.")
        if not self.deletions:
            raise ValueError("Supply takes at least one deletion. Return None to leave it to the planner.")
        object.__setattr__(self, "deletions", tuple(self.deletions))


@dataclass(frozen=True, slots=True)
class Pin:
    """These targets stay, as if a human had rejected their deletion: pair repair may not delete them either.

    They may include protected targets, and some that are not in the transcript. Raises TypeError for other values.
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
        raise TypeError("The reason of an answer is a string.")


def _is_target(found: object) -> bool:
    if not isinstance(found, Target) or not isinstance(found.entry_id, str):
        return False
    index = found.block_index
    return index is None or (isinstance(index, int) and not isinstance(index, bool))


# ---- calls -----------------------------------------------------------------------------------------------


class HookAnswer(NamedTuple):
    """The answer of one receiver; `hook` is its module and name."""

    hook: str
    answer: Answer


def ask_hooks(**sent: Any) -> Iterator[HookAnswer]:
    """The answers of the receivers of `session_before_compact`, up to the first that cancels or supplies a plan.

    Raises SystemFailure `hook_failed` if one raises, and BadInput `bad_answer` for any other answer.
    """
    for receiver in session_before_compact.connected():
        hook = name_of(receiver)
        try:
            answer = receiver(signal=session_before_compact, sender=None, **sent)
        except (Exception, SystemExit) as fault:
            _log.exception("The hook %s failed before a compaction", hook)
            raise SystemFailure(
                "hook_failed",
                f"The hook {hook} failed ({type(fault).__name__}). Nothing was planned, because it may have been there "
                "to keep something. The log says where. Correct it, or remove its module from `hooks`.",
            ) from fault
        if answer is None:
            continue
        if not isinstance(answer, Answer):
            raise BadInput(
                "bad_answer",
                f"The hook {hook} returned a {type(answer).__name__}. Nothing was planned. "
                "It may return None, Pin, Supply or Cancel.",
            )
        yield HookAnswer(hook, answer)
        if not isinstance(answer, Pin):
            return


def notify_hooks(**sent: Any) -> None:
    """Call every receiver of `session_compact`. A failure is logged, and changes nothing for the others."""
    for receiver in session_compact.connected():
        try:
            receiver(signal=session_compact, sender=None, **sent)
        except (Exception, SystemExit):  # noqa: BLE001  # the compaction is written anyway
            _log.exception("The hook %s failed after a compaction", name_of(receiver))


def name_of(receiver: Receiver) -> str:
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
    """Raise BadInput `hook_not_loaded` if a hook is missing: it may have been there to keep something."""
    for module, why in _unloaded:
        raise BadInput(
            "hook_not_loaded",
            f"The hook {module} cannot be imported: {why}. Nothing was planned. Correct it, or remove it from `hooks`.",
        )


def _connected() -> list[Receiver]:
    return [*session_before_compact.connected(), *session_compact.connected()]


def _is_in(receiver: Receiver, module: str) -> bool:
    return f"{name_of(receiver)}.".startswith(f"{module}.")


def _why(fault: Exception | SystemExit) -> str:
    """A failed import: the error, and the line of the user's own file."""
    error = " ".join(f"{type(fault).__name__}: {fault}".split())[:WORDS_KEPT].rstrip(".: ")
    frames = traceback.extract_tb(fault.__traceback__)
    place = frames[-1] if frames else None
    if place is None or place.filename.startswith("<frozen"):
        return error
    return f"{error} ({place.filename}, line {place.lineno})"
