"""The reasons for which entries must not be deleted."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Protection(StrEnum):
    """Why an entry must not be deleted. RECENT may apply together with another reason."""

    USER = "user"
    CUSTOM = "custom"
    INJECTED = "injected"
    BRANCH_SUMMARY = "branch_summary"
    SUMMARY = "summary"
    ASSISTANT_ERROR = "assistant_error"
    TOOL_ERROR = "tool_error"
    FAILED_COMMAND = "failed_command"
    NOT_EDITABLE = "not_editable"
    RECENT = "recent"

    @property
    def label(self) -> str:
        """The reason in one or two words."""
        return _LABELS[self]

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return _SENTENCES[self]


_LABELS: Final = {
    Protection.USER: "user message",
    Protection.CUSTOM: "added context",
    Protection.INJECTED: "agent's context",
    Protection.BRANCH_SUMMARY: "branch summary",
    Protection.SUMMARY: "summary",
    Protection.ASSISTANT_ERROR: "error",
    Protection.TOOL_ERROR: "tool error",
    Protection.FAILED_COMMAND: "failed command",
    Protection.NOT_EDITABLE: "not editable",
    Protection.RECENT: "recent",
}
_SENTENCES: Final = {
    Protection.USER: "it contains what the user said",
    Protection.CUSTOM: "it was added by an extension as context",
    Protection.INJECTED: "the agent adds it again itself, so deleting it saves nothing",
    Protection.BRANCH_SUMMARY: "it summarises a branch",
    Protection.SUMMARY: "it summarises what the agent compacted",
    Protection.ASSISTANT_ERROR: "the assistant stopped there with an error",
    Protection.TOOL_ERROR: "it contains a tool's error",
    Protection.FAILED_COMMAND: "it contains a command that failed",
    Protection.NOT_EDITABLE: "the agent cannot leave it out of this session, only out of a fork",
    Protection.RECENT: "it is among the most recent entries",
}
