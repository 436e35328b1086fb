"""PURE: what the draft of a summary still mentions of what it would replace, in the measures of `mentions`.

replaced ─statements─▶ subjects ◀─mentions─ the draft, and what stays beside it

The subjects and what stays are read once; a draft is judged again whenever it is edited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Role, Texts

from .mentions import Mentions, Statement, Subjects, statements_of, subjects_of
from .summary_loss import either, without


@dataclass(frozen=True, slots=True)
class DraftJudgement:
    """What the replaced messages mention, and which of it is still mentioned."""

    subjects: Subjects
    still: Subjects
    """What the draft mentions."""
    in_context: Subjects
    """What the draft or the messages beside it mention."""

    @property
    def lost(self) -> Subjects:
        """What would be mentioned no longer."""
        return without(self.subjects, self.in_context)


class DraftCheck:
    """Judges drafts of one summary.

    `replaced` are the messages that it would replace, `kept` those that stay; `texts` are by the id of each message's
    source. A path is read from `project`, the session's directory, if it is relative.
    """

    def __init__(
        self,
        replaced: Iterable[Message],
        kept: Iterable[Message],
        texts: Mapping[str, Texts],
        project: str = "",
    ) -> None:
        self.subjects = subjects_of(statements_of(replaced, texts, project))
        self._beside = Mentions(statements_of(kept, texts, project)).of(self.subjects)

    def judge(self, draft: str) -> DraftJudgement:
        """What a draft, with its lists of files, mentions."""
        said = Statement("", Role.COMPACTION_SUMMARY, draft)
        still = Mentions([said]).of(self.subjects)
        return DraftJudgement(self.subjects, still, either(self.subjects, still, self._beside))
