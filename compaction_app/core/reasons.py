"""PURE: the reasons given by planners without a model: written as sentences, and parsed from them.

| reason                                            | can be checked by                                        |
|---------------------------------------------------|----------------------------------------------------------|
| superseded by a later call on the same file       | its lines that are also in later kept calls              |
| a repeat of an output                             | the lines of that output                                 |
| deleted so that another entry can be kept         | its statement about names; the other entry is kept       |
| a statement about names                           | the places at which they occur in kept entries           |
| beyond the newest tool results                    | the tokens of the result and of all newer ones           |
"""

import re
from typing import Final, NamedTuple

from .file_touches import Standing

NO_NAMES: Final = "it holds no names that later work could need"
NOT_MENTIONED: Final = "nothing later mentions a name in it"
ELSEWHERE: Final = "every name in it occurs elsewhere too"
ONLY_THERE: Final = "names in it occur only there"

_SUPERSESSION: Final = re.compile(
    r"(?:(?:partly )?superseded by|older than) the (read|edit|write) of (.+) in (.+?)(?:: .* later)?",
    re.DOTALL,
)
_REPEAT: Final = re.compile(r"a repeat of the output in (.+)", re.DOTALL)
_SWAP: Final = re.compile(r"[^,;]+, deleted so that (.+) can stay(?:; .*)?", re.DOTALL)
_PRUNED: Final = re.compile(
    r"an output(?: of .+)? beyond the newest ([\d,]+) tokens of tool results, which are [\d,]+ with it",
    re.DOTALL,
)

_ONE_NAME: Final = re.compile(r"(?<![\d,])(1 of the [\d,]+ names in it) are ")
_SAID: Final = (
    ("lines still stand later", "lines are kept later"),
    ("none of its lines stands later", "none of its lines is kept later"),
    ("can stay", "can be kept"),
    ("has to stay with its call", "has to be kept with its call"),
    ("it holds no names", "it contains no names"),
    ("nothing later mentions a name in it", "no name in it is mentioned later"),
    ("every name in it occurs elsewhere too", "every name in it is mentioned elsewhere too"),
    ("names in it occur only there", "names in it are mentioned nowhere else"),
)
"""Words of recorded reasons, and those that people read."""


class Supersession(NamedTuple):
    """A later call on the same file, and its entry."""

    verb: str
    path: str
    entry_id: str

    def words(self, standing: Standing) -> str:
        """The reason in words, which claims no more than the lines show.

        Without comparable lines, only a later text of the whole file supersedes.
        """
        call = f"the {self.verb} of {self.path} in {self.entry_id}"
        if standing.is_enough and (standing.total or self.verb != "edit"):
            return f"superseded by {call}"
        if not standing.lines:
            return f"older than {call}: none of its lines stands later"
        return f"partly superseded by {call}: {standing} lines still stand later"


def has_names_only_there(reason: str) -> bool:
    """Whether a reason states that some names of the text occur in no kept entry."""
    return reason.endswith(ONLY_THERE)


def shown_reason(reason: str) -> str:
    """A recorded reason in the words of pages and commands."""
    for recorded, said in _SAID:
        reason = reason.replace(recorded, said)
    return _ONE_NAME.sub(r"\1 is ", reason)


def supersession_in(reason: str) -> Supersession | None:
    """The supersession that a reason names; None if it names none."""
    found = _SUPERSESSION.fullmatch(reason)
    return Supersession(*found.groups()) if found is not None else None


def swap_words(what: str, stays: str) -> str:
    """The reason for deleting a unit that its price alone would have kept: another entry is kept instead."""
    return f"{what}, deleted so that {stays} can stay"


def swap_in(reason: str) -> str | None:
    """The id of the entry that is kept instead, according to a reason; None if it names none."""
    found = _SWAP.fullmatch(reason)
    return found[1] if found is not None else None


def repeat_words(entry_id: str) -> str:
    return f"a repeat of the output in {entry_id}"


def repeat_in(reason: str) -> str | None:
    """The id of the entry whose output is repeated, according to a reason; None if it names none."""
    found = _REPEAT.fullmatch(reason)
    return found[1] if found is not None else None


def pruned_words(tool: str, safe: int, reached: int) -> str:
    """The reason for pruning a tool result: with all newer ones it has `reached` tokens, and `safe` of them are
    kept."""
    of = f" of {tool}" if tool else ""
    return f"an output{of} beyond the newest {safe:,} tokens of tool results, which are {reached:,} with it"


def pruned_in(reason: str) -> str | None:
    """The number of safe tokens of newer results in a reason, as written; None if it states none."""
    found = _PRUNED.fullmatch(reason)
    return found[1] if found is not None else None


def is_about_names(reason: str) -> bool:
    """Whether a reason states where the names in a text occur."""
    return reason.endswith((NOT_MENTIONED, ELSEWHERE, ONLY_THERE))


def is_checkable(reason: str) -> bool:
    """Whether a reason can be checked without lines of a file."""
    return repeat_in(reason) is not None or is_about_names(reason)
