"""The subjects that a text keeps from what it replaces, as bars, and those that it loses, as lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compaction_app.core.mentions import FREQUENT, MEASURES, Subject, Subjects

SHOWN: Final = 22
"""The number of names and paths that are shown initially."""
LISTED: Final = 300
"""The maximum number of names and paths that are shown."""
ERRORS_SHOWN: Final = 30
MESSAGES_SHOWN: Final = 60
WORDS: Final = 160
"""The number of characters of a lost message that are shown."""
_LABELS: Final = {
    "paths": "Paths",
    "names": f"Names, {FREQUENT} uses up",
    "errors": "Error texts",
    "messages": "Messages, verbatim",
}
_AT_ONCE: Final = {"paths": SHOWN, "names": SHOWN, "errors": ERRORS_SHOWN, "messages": MESSAGES_SHOWN}


@dataclass(frozen=True, slots=True)
class HeldBar:
    """One measure as a bar: all subjects, those still mentioned, and those that only the messages beside it mention."""

    label: str
    total: int
    still: int
    beside: int

    @property
    def still_width(self) -> float:
        return self._width(self.still)

    @property
    def width(self) -> float:
        return self._width(self.still + self.beside)

    def _width(self, part: int) -> float:
        return round(100 * part / self.total, 1) if self.total else 0.0


@dataclass(frozen=True, slots=True)
class LostItem:
    """A subject that is no longer mentioned, with its place in the session."""

    words: str
    entry_id: str
    uses: int
    turn: int


@dataclass(frozen=True, slots=True)
class LostList:
    """The lost subjects of one measure: the first items, then the folded ones."""

    first: Sequence[LostItem]
    rest: Sequence[LostItem]
    total: int

    @property
    def items(self) -> list[LostItem]:
        return [*self.first, *self.rest]

    @property
    def unlisted(self) -> int:
        return self.total - len(self.first) - len(self.rest)


def bars_of(subjects: Subjects, still: Subjects, in_context: Subjects) -> list[HeldBar]:
    """The measures as bars; `in_context` has the subjects that the text or the messages beside it mention."""
    return [
        HeldBar(
            _LABELS[measure],
            len(getattr(subjects, measure)),
            len(getattr(still, measure)),
            len(getattr(in_context, measure)) - len(getattr(still, measure)),
        )
        for measure in MEASURES
    ]


def lost_lists(lost: Subjects, turns: Mapping[str, int], project: str) -> dict[str, LostList]:
    """The lost subjects, by measure. `turns` are the numbers of the entries' turns; paths in the directory of the
    project are shown relative to it."""
    lists = {}
    for measure, at_once in _AT_ONCE.items():
        found: Sequence[Subject] = getattr(lost, measure)
        below = project if measure == "paths" else ""
        items = [_item(subject, turns, below) for subject in found[: max(LISTED, at_once)]]
        lists[measure] = LostList(items[:at_once], items[at_once:], len(found))
    return lists


def below_project(path: str, project: str) -> str:
    """A path, relative to the session's directory if it is inside."""
    return path.removeprefix(f"{project.rstrip('/')}/") if project.strip("/") else path


def _item(subject: Subject, turns: Mapping[str, int], project: str) -> LostItem:
    words = below_project(subject.words, project)
    words = words if len(words) <= WORDS else f"{words[:WORDS]}…"
    return LostItem(words, subject.entry_id, subject.uses, turns.get(subject.entry_id, 0))
