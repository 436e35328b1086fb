"""How a session is read and written: its agent, the generation of it, and the writers that may write to the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sessions_app.agents.pure.formats import Generation, PlanRules, Reader, SessionWriter
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import ParserState

from .base import Agent


@dataclass(frozen=True, slots=True)
class Reading:
    """The agent of a session, the generation by which it is read and written, and the reason for this choice."""

    agent: Agent
    generation: Generation
    reason: str
    is_guess: bool = False
    """Whether the agent of the session is unknown: then appending to it requires a confirmation."""
    alternatives: Sequence[Generation] = ()
    """The generations of all agents with this format: the reader of each can be chosen."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The writers that must not write to this session: see `Format.refused_writers`."""

    @property
    def reader(self) -> Reader:
        return self.generation.reader

    def rules(self, writer: str = "") -> PlanRules:
        """The plan rules for the writer of this name, or for the best one.

        Raises BadInput `unknown_writer` and `refused_writer`.
        """
        return self.generation.rules.for_writer(self.writer(writer))

    def of_session(self, state: ParserState) -> Reading:
        """This reading for a session with this parser state at its end, including the writers that it refuses."""
        refused, honoured = self.agent.format.refused_writers(state), {one.name for one in self.generation.writers}
        return replace(self, refused={name: refused[name] for name in refused if name in honoured})

    @property
    def honoured_writers(self) -> tuple[SessionWriter, ...]:
        """The writers whose changes the agent honours in this session, the best one first. If the agent is a guess,
        those that make a new session come first.
        """
        if not self.is_guess:
            return self.generation.writers
        universal = (writer.universal for writer in self.generation.writers)
        return tuple(sorted(universal, key=lambda writer: writer.appends))

    @property
    def writers(self) -> tuple[SessionWriter, ...]:
        """The ways to record a deletion, the best one first."""
        return tuple(writer for writer in self.honoured_writers if writer.name not in self.refused)

    def writer(self, name: str = "") -> SessionWriter:
        """The writer of this name, or the best one. Raises BadInput `unknown_writer` and `refused_writer`."""
        for writer in self.honoured_writers:
            if name in ("", writer.name) and writer.name not in self.refused:
                return writer
            if name == writer.name:
                raise BadInput("refused_writer", f"{self.refused[name]} Nothing was written.")
        if not name:
            reasons = " ".join(dict.fromkeys(self.refused.values()))
            raise BadInput("refused_writer", f"{reasons} Nothing was written.")
        known = ", ".join(writer.name for writer in self.writers)
        raise BadInput(
            "unknown_writer",
            f"The session is opened as that of {self.generation.label}, because {self.reason}. This does not honour "
            f"{name}. Nothing was written. It honours {known}.{self._readers_for(name)}",
        )

    def _readers_for(self, writer: str) -> str:
        """How to get a writer that other versions of the agent honour, as a sentence; empty if none does."""
        for one in self.alternatives:
            if any(writer == found.name for found in one.writers):
                return (
                    f" {one.label} honours {writer}: if that continues this session, open it as {one.reader.name}, by "
                    f"`redline compact --open-as {one.reader.name}` or on the page of the session."
                )
        return ""
