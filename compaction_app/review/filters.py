"""What of a review is shown, and by what it is grouped: an address's query, and the same fields of a form.

by = reason | tool | file | turn | call                 the groups
undecided = 1, tool = NAME, kind = KIND, over = TOKENS  only these proposals
reason = KEY                                            only those of one group by reason
q = TEXT or /PATTERN/                                   only those that contain it, as the planner's search finds it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from compaction_app.core.errors import Refusal
from compaction_app.core.groups import Grouping
from compaction_app.core.patterns import Pattern, compile_pattern

from .lines import KINDS

LENGTH: Final = 512
"""Characters of a field that count."""
FIELDS: Final = ("by", "undecided", "tool", "kind", "reason", "over", "q")


class ProposalFacts(msgspec.Struct, frozen=True):
    """What a filter looks at in a proposal, besides its texts."""

    is_undecided: bool
    tool: str
    kind: str
    reason: str
    """The key of its group by reason."""
    size: int


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """The proposals that are shown, and their groups."""

    by: Grouping = Grouping.REASON
    undecided: bool = False
    tool: str = ""
    kind: str = ""
    reason: str = ""
    over: int = 0
    q: str = ""

    @property
    def narrows(self) -> bool:
        """Whether it leaves any proposal out."""
        return replace(self, by=Grouping.REASON) != ReviewFilter()

    @property
    def values(self) -> dict[str, str]:
        """The fields that are not as without a filter."""
        given = {
            "by": "" if self.by is Grouping.REASON else self.by.value,
            "undecided": "1" if self.undecided else "",
            "tool": self.tool,
            "kind": self.kind,
            "reason": self.reason,
            "over": str(self.over) if self.over else "",
            "q": self.q,
        }
        return {name: value for name, value in given.items() if value}

    def query(self, **changes: Any) -> str:
        """The query of an address with this filter, changed."""
        return f"?{urlencode(replace(self, **changes).values, errors='replace')}"

    def leaves(self, facts: ProposalFacts) -> bool:
        """Whether it shows a proposal that its text or pattern is found in."""
        return (
            (not self.undecided or facts.is_undecided)
            and self.tool in ("", facts.tool)
            and self.kind in ("", facts.kind)
            and self.reason in ("", facts.reason)
            and (not self.over or facts.size > self.over)
        )

    @property
    def is_pattern(self) -> bool:
        return len(self.q) > 2 and self.q.startswith("/") and self.q.endswith("/")

    def pattern(self) -> Pattern | Refusal | None:
        """What is searched for: between slashes a pattern, otherwise a text; None if nothing is."""
        if not self.q:
            return None
        words = self.q[1:-1] if self.is_pattern else self.q
        return compile_pattern(words, regex=self.is_pattern, case_sensitive=False)


def filter_of(fields: Mapping[str, Any]) -> ReviewFilter:
    """The filter of a query or a form. Fields with other values than the page's own are left out."""
    given = {name: str(fields.get(name, ""))[:LENGTH].strip() for name in FIELDS}
    over = given["over"]
    return ReviewFilter(
        by=Grouping(given["by"]) if given["by"] in set(Grouping) else Grouping.REASON,
        undecided=given["undecided"] == "1",
        tool=given["tool"],
        kind=given["kind"] if given["kind"] in KINDS else "",
        reason=given["reason"],
        over=int(over) if over.isascii() and over.isdigit() and len(over) < 10 else 0,
        q=given["q"],
    )
