"""PURE: the answers of hooks, as our classes or as objects in the shape that agents' own extensions use.

| object                                                    | the same as                                    |
|-----------------------------------------------------------|------------------------------------------------|
| `{"cancel": true}`                                        | `Cancel("")`                                   |
| `{"deletionRequest": {"deletions": […]}}`                 | `Supply([…])`                                  |
| `{"compaction": {"summary": …, "firstKeptEntryId": …}}`   | `SupplySummary(…, first_kept_id=…)`            |
| `{"summary": {"summary": …}}`                             | `SupplySummary(…)`                             |
| `{"customInstructions": …, "label": …}`                   | `Adjust(focus=…, label=…)`                     |

`details` of a summary may have the lists `readFiles` and `modifiedFiles`. `{}` is the same as None; a key whose value
is None is ignored, and any other key is an error: it may have been meant to prevent something.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sessions_app.sessionlog.entries import Target


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels the action, for this reason. Raises TypeError if the reason is not a string."""

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
    """Keeps these targets, as if a human had rejected their deletion: pair repair may not delete them either.

    They may include protected targets, and some that are not in the transcript. Raises TypeError for other values.
    """

    targets: Iterable[Target]
    why: str = ""

    def __post_init__(self) -> None:
        _require_text(self.why)
        targets = tuple(self.targets)
        if not all(map(_is_target, targets)):
            raise TypeError("Pin takes Targets, as in Pin([Target(entry_id), Target(other_id, block_index)]).")
        object.__setattr__(self, "targets", targets)


@dataclass(frozen=True, slots=True)
class SupplySummary:
    """A summary that replaces the model's. It is a draft like the model's: a human reads and edits it.

    `first_kept_id` is the first entry that a compaction keeps; empty for the prepared one. The files are listed beside
    the text. Raises TypeError for values of other types, and ValueError if the text is blank.
    """

    text: str
    why: str = ""
    first_kept_id: str = ""
    read_files: Sequence[str] = ()
    modified_files: Sequence[str] = ()

    def __post_init__(self) -> None:
        _require_text(self.why)
        if not isinstance(self.text, str) or not isinstance(self.first_kept_id, str):
            raise TypeError("SupplySummary takes a text, and the id of an entry.")
        if not self.text.strip():
            raise ValueError("SupplySummary takes a text. Return None to leave it to the model.")
        for files in (self.read_files, self.modified_files):
            if not isinstance(files, list | tuple) or not all(isinstance(path, str) for path in files):
                raise TypeError("SupplySummary takes files as lists of paths.")
        object.__setattr__(self, "read_files", tuple(self.read_files))
        object.__setattr__(self, "modified_files", tuple(self.modified_files))


@dataclass(frozen=True, slots=True)
class Adjust:
    """Another focus of the summary, or another label; None keeps it, and an empty string removes it.

    Raises TypeError for values of other types.
    """

    focus: str | None = None
    label: str | None = None
    why: str = ""

    def __post_init__(self) -> None:
        _require_text(self.why)
        if not all(value is None or isinstance(value, str) for value in (self.focus, self.label)):
            raise TypeError("Adjust takes a focus and a label as strings.")


Answer = Pin | Supply | SupplySummary | Adjust | Cancel
KEY_LENGTH: Final = 40
"""The number of characters of an unknown key that a message repeats."""
FINAL: Final = (Cancel, Supply, SupplySummary)
"""The answers after which no other hook is called."""


def answers_in(found: object) -> tuple[Answer, ...]:
    """The answers in a hook's return value: at most two, an adjustment before a summary; none for None.

    Raises TypeError and ValueError, with a description of the fault, for anything else.
    """
    if found is None:
        return ()
    if isinstance(found, Answer):
        return (found,)
    if not isinstance(found, Mapping):
        raise TypeError(f"it is a {type(found).__name__}")
    return _answers_of_object({key: value for key, value in found.items() if value is not None})


def _answers_of_object(found: Mapping[object, object]) -> tuple[Answer, ...]:
    unknown = [str(key) for key in found if key not in _KEYS]
    if unknown:
        raise ValueError(f"it has the key {unknown[0][:KEY_LENGTH]}")
    cancel = found.get("cancel", False)
    if not isinstance(cancel, bool):
        raise TypeError("cancel is not true or false")
    if cancel:
        return (Cancel(""),)
    answers: list[Answer] = []
    if "customInstructions" in found or "label" in found:
        answers.append(Adjust(_text_or_none(found, "customInstructions"), _text_or_none(found, "label")))
    plans = [key for key in ("deletionRequest", "compaction", "summary") if key in found]
    if len(plans) > 1:
        raise ValueError(f"it has both {plans[0]} and {plans[1]}")
    if plans == ["deletionRequest"]:
        deletions = _object(found, "deletionRequest").get("deletions")
        if not isinstance(deletions, list | tuple):
            raise TypeError("deletionRequest has no list of deletions")
        answers.append(Supply(deletions))
    elif plans:
        answers.append(_summary(_object(found, plans[0])))
    return tuple(answers)


_KEYS: Final = frozenset({"cancel", "deletionRequest", "compaction", "summary", "customInstructions", "label"})


def _summary(found: Mapping[str, object]) -> SupplySummary:
    details = found.get("details")
    lists: Mapping[str, object] = details if isinstance(details, Mapping) else {}
    return SupplySummary(
        _text(found, "summary"),
        first_kept_id=_text_or_none(found, "firstKeptEntryId") or "",
        read_files=_paths(lists, "readFiles"),
        modified_files=_paths(lists, "modifiedFiles"),
    )


def _object(found: Mapping[object, object], key: str) -> Mapping[str, object]:
    value = found[key]
    if not isinstance(value, Mapping):
        raise TypeError(f"{key} is not an object")
    return value


def _text(found: Mapping[str, object], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


def _text_or_none(found: Mapping[object, object] | Mapping[str, object], key: str) -> str | None:
    value = dict(found).get(key)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


def _paths(lists: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = lists.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(path, str) for path in value):
        raise TypeError(f"{key} is not a list of paths")
    return tuple(value)


def _require_text(why: object) -> None:
    if not isinstance(why, str):
        raise TypeError("The reason of an answer is a string.")


def _is_target(found: object) -> bool:
    if not isinstance(found, Target) or not isinstance(found.entry_id, str):
        return False
    index = found.block_index
    return index is None or (isinstance(index, int) and not isinstance(index, bool))
