"""The meaning of the lines of an agent's sessions, and how changes are written as lines. Nothing here reads a file.

A `Generation` is the versions of an agent that read a session in the same way: a `Reader`, which rebuilds the context,
the `PlanRules` for what a plan may delete of it, and the `SessionWriter`s that record a deletion. A `Format` is the
generations of an agent with its parser and its other kinds of lines.

A summary (`SummaryFormat`) is not a deletion: it is generated, and a human reads and edits it before it is appended.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self, runtime_checkable

from sessions_app.agents.pure import fields
from sessions_app.sessionlog import diagnosis, jsjson
from sessions_app.sessionlog.certificate import LedgerResult
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import (
    Block,
    BlockType,
    Deletion,
    Entry,
    EntryKind,
    Protection,
    Role,
    Target,
    Texts,
)
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.model_facts import InputPrices
from sessions_app.sessionlog.repair_pieces import RepairPiece
from sessions_app.sessionlog.session import (
    Damage,
    DamageKind,
    Header,
    LineParser,
    ParserState,
    RecordedVersion,
    read_session,
)
from sessions_app.sessionlog.tree import SessionTree


class Reader(ABC):
    """One way in which an agent rebuilds what its model sees of a branch."""

    name: str
    honours: frozenset[EntryKind]
    """The kinds of entries that can change its context."""

    def ignores(self, entry: Entry) -> bool:
        """Whether an entry that changes the context of some readers has no effect on this one."""
        return entry.rebuilds and entry.kind not in self.honours

    @abstractmethod
    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        """The active context of a branch, given root first."""


class PlanRules:
    """The content that an agent allows a plan to delete. This base class allows everything that the model sees and the
    tables do not protect.
    """

    protected_roles: ClassVar[Mapping[str, Protection]] = MappingProxyType(
        {
            Role.USER: Protection.USER,
            Role.CUSTOM: Protection.CUSTOM,
            Role.BRANCH_SUMMARY: Protection.BRANCH_SUMMARY,
            Role.COMPACTION_SUMMARY: Protection.SUMMARY,
        }
    )
    protected_failures: ClassVar[Mapping[str, Protection]] = MappingProxyType(
        {
            Role.ASSISTANT: Protection.ASSISTANT_ERROR,
            Role.TOOL_RESULT: Protection.TOOL_ERROR,
            Role.COMMAND: Protection.FAILED_COMMAND,
        }
    )
    """The protection of entries that failed, by their roles."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._writer: SessionWriter | None = None

    def for_writer(self, writer: SessionWriter) -> Self:
        """These rules, extended by the protections of a writer."""
        rules = copy(self)
        rules._writer = writer
        return rules

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> Sequence[Message]:
        """The messages of a branch, given root first, that a plan may target after earlier compactions.

        `context` is the reader's context of the branch, if it is already known.
        """
        return [message for message in (context or self._reader.rebuild(branch)).messages if message.sent]

    def protection(self, entry: Entry) -> Protection | None:
        """Why an entry must not be deleted, regardless of its place; None if it may be."""
        reason = self.protected_roles.get(entry.role)
        if reason is None and entry.failed:
            reason = self.protected_failures.get(entry.role)
        return reason or (self._writer.protection(entry) if self._writer is not None else None)

    def replays(self, entry: Entry) -> bool:
        """Whether it is an assistant message whose thinking must be unchanged if it is the last that remains."""
        return False

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """For entries that must not be deleted alone: the entries that are deleted whenever they are, by id. Calls and
        results are joined in any case."""
        return {}


class SentPiece(Protocol):
    """The facts on which the order of sent entries depends."""

    @property
    def entry_id(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def reply(self) -> str: ...

    @property
    def result_for(self) -> str | None: ...

    @property
    def call_ids(self) -> tuple[str, ...]: ...

    @property
    def blocks(self) -> tuple[Block, ...]: ...


class Moved(NamedTuple):
    """An entry that will be sent before another one, which precedes it now; both by id."""

    entry_id: str
    before_id: str


class TurnOrder(Protocol):
    """The order in which an agent sends the entries between two replies, if it changes it."""

    def arranged(self, messages: Sequence[Message], *, is_new: bool) -> list[Message]:
        """The remaining messages of a context, in the order in which the agent rebuilds it from the same session, or
        from a new one, which may have another order.
        """

    def moved(
        self, before: Sequence[SentPiece], after: Sequence[SentPiece], line: Callable[[str], bytes]
    ) -> Sequence[Moved]:
        """The entries that overtake others if only those in `after` remain of those in `before`, both in the order of
        the context. Each is given once, with the first entry that it overtakes. `line` reads the line of an entry,
        given by id.
        """


class Append(NamedTuple):
    """A change of a session: complete lines to append in one write, each without its newline."""

    lines: tuple[bytes, ...]


class RowChange(NamedTuple):
    """A row of a database before and after a change: the exact text of its data, None without a row."""

    table: str
    row_id: str
    before: str | None
    after: str | None


class RowCopy(NamedTuple):
    """A new row: a copy of another one of its table, with other values in some columns. Columns that the table does not
    have are left out."""

    table: str
    row_id: str
    source_id: str
    columns: Mapping[str, str | int | None]
    appended: Mapping[str, str] = MappingProxyType({})
    """Texts to append to columns."""


class RowChanges(NamedTuple):
    """A change of a session in a database, made in one transaction if all rows are unchanged since they were read."""

    changes: tuple[RowChange, ...]
    copies: tuple[RowCopy, ...] = ()
    created: str = ""
    """The id of the new session that consists of the copies; empty if the session itself changes."""


class NewFile(NamedTuple):
    """A new session file beside the session, which does not change."""

    name: str
    pieces: Iterable[bytes]
    """Its bytes: each piece is one line with its newline."""


Change = Append | NewFile | RowChanges
CURATED: Final = " (curated)"
COPIED: Final = " (forked)"
"""The endings of the titles of forks, for agents that record a title: COPIED for complete copies, CURATED for
others."""


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """The facts that a writer needs beside a branch and a deletion."""

    new_id: Callable[[], str]
    """Returns a new entry id that is not used in the session."""
    session_id: str
    """The id of a new session."""
    written_at: datetime
    session: str
    """The real path of the session."""
    header: Header
    backup: str
    """The path of the backup made before the write."""
    line: Callable[[Entry], bytes]
    """Reads the recorded line of an entry, without its newline."""
    labels: Mapping[str, str]
    """The labels of the session's entries, by entry id."""
    title: Callable[[], str] = str
    """Reads the title of the session: its name, or how the first prompt begins; empty if it has neither."""
    state: ParserState = field(default_factory=ParserState)
    """The parser's state after all lines of the session."""
    lines: Callable[[], Iterable[bytes]] = tuple
    """Reads all complete lines of the session, each without its newline."""
    is_open: bool = False
    """Whether the agent certainly has the session open."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Notes of the user that replace deleted entries, by the id of the first of these: see `notes_before`."""

    @property
    def file_name(self) -> str:
        """The last part of the session's path, without its suffix."""
        name = self.session.rpartition("/")[2]
        return name.rpartition(".")[0] or name


class SessionWriter(ABC):
    """One way to record an approved deletion. It does no I/O except what `WriteFacts.line` does.

    Most writers may touch every entry, are honoured by every version alike, apply all targets, and write no notes.
    """

    name: str
    appends: bool
    """Whether it appends to the session; if not, it makes a new session and does not change this one."""
    holds_notes: bool = False
    """Whether it writes `WriteFacts.notes`, so that the agent sends them."""
    effect: str
    """A sentence about the change of the file."""
    undo: str
    """How to undo that, as a sentence."""

    @property
    def title(self) -> str:
        """How the deletion is saved, in a few words."""
        return "An edit in this session" if self.appends else "A new session"

    @property
    def universal(self) -> SessionWriter:
        """The variant of this writer that the most versions honour, for a session whose agent is a guess."""
        return self

    def protection(self, entry: Entry) -> Protection | None:
        """Why this writer must not touch an entry; None if it may."""
        return None

    @abstractmethod
    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Change:
        """The change that records a deletion at the end of a branch."""

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets that the agent would not apply if they were recorded at the end of a branch."""
        return ()


class ContextWriter(SessionWriter):
    """A writer that records a deletion from the context that its reader rebuilds."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader


class CopyingWriter(ContextWriter):
    """A writer of a new session with what survives of a context."""

    name = "fork"
    appends = False
    holds_notes = True
    effect = "Writes a new session beside this one, with what is kept. This session is not changed."
    undo = "To undo, continue with this session instead; the new one can be deleted."


@runtime_checkable
class ReplacingWriter(Protocol):
    """A writer that replaces deleted content instead of just leaving it out."""

    def remains(self, message: Message, blocks: frozenset[int] | None) -> Message | None:
        """The message that is sent in place of a message that is deleted, or loses these blocks; None if nothing is
        sent.
        """


@runtime_checkable
class ServedWriter(Protocol):
    """A writer whose changes the agent's running server can make."""

    def effect_through(self, address: str) -> str:
        """What happens if the server at this address makes the change, as a sentence."""


class Handed(NamedTuple):
    """A change that a running agent makes itself."""

    fields: Mapping[str, object]
    """The fields sent to its bridge, as in docs/handshake.md."""
    change: Change
    """The part of the change that the agent makes."""


@runtime_checkable
class HandedWriter(Protocol):
    """A writer whose change the running agent can make itself."""

    @property
    def honours(self) -> str:
        """The name of the kind of change that the bridge receives."""

    def hand(self, branch: Sequence[Entry], change: Change) -> Handed:
        """The data with which the running agent makes a change of this writer at the end of a branch."""


RestoreLines = Callable[
    [Sequence[Entry], Sequence[Message], Mapping[str, frozenset[int] | None], WriteFacts], tuple[bytes, ...]
]
"""Returns lines to append after a branch that give messages their content again. The mapping has the blocks that stay
deleted, by entry id."""


class FileLists(NamedTuple):
    """The files of a summarised part, sorted as the agent sorts them. No file is in both lists."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


class RecordedSummary(NamedTuple):
    """The fields of a summary's line; missing ones are None."""

    text: str
    files: FileLists | None
    """None if its details have no lists."""
    from_hook: bool
    """Whether an extension wrote it: its lists are then not trusted."""
    from_id: str | None
    """For the summary of a branch: the entry at which the user left that branch."""


RESULT_UNITS: Final = 2_000
"""The maximum UTF-16 units of a tool result that are shown to a model."""
SPLIT_TURN: Final = "Turn Context (split turn)"
_SUMMARY_HEADINGS: Final[Mapping[str, str]] = {
    Role.BRANCH_SUMMARY: "Summary of another branch of this conversation:",
    Role.COMPACTION_SUMMARY: "Summary of the conversation before this point:",
}
_SUMMARIES: Final = frozenset({"branch_summary", "compaction"})


@dataclass(frozen=True, slots=True)
class SummaryFormat:
    """The summaries of pi, and of agents with its format. Messages are in the form of `Format.message_json`.

    Summaries have lists of files, and are made from the conversation as text:

        messages ──conversation──▶ [User]: …  [Assistant]: …  [Assistant tool calls]: read(path="a")  [Tool result]: …
        messages ──files──▶ FileLists ──files_text──▶ <read-files>…</read-files>  <modified-files>…</modified-files>

    The text is that of pi's `serializeConversation`: sections joined by a blank line, empty ones left out, JSON as
    JavaScript prints it. Only what precedes an earlier summary is in Redline's own words.
    """

    new_line: Callable[..., bytes]
    """Gives the line of a new entry, as in `pi.pure.writers`."""
    honours_compactions: bool
    """Whether a `compaction_line` replaces anything in its context; a `branch_summary_line` always adds to it."""

    def conversation(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Messages as text, so that a model summarises the conversation instead of continuing it."""
        sections = (f"[{name}]: {text}" for message in messages for name, text in _sections(message) if text)
        # A result that was cut within a pair of surrogates cannot be sent.
        return jsjson.well_formed("\n\n".join(sections))

    def files(self, messages: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]] = ()) -> FileLists:
        """The files that calls in these messages read and modified, and those of earlier summaries.

        `earlier` are recorded objects of summaries; the lists of summaries written by an extension are ignored.
        """
        read: set[str] = set()
        modified: set[str] = set()
        for line in earlier:
            lists = None if _is_from_hook(line) else _recorded_lists(line)
            if lists is not None:
                read.update(lists.read)
                modified.update(lists.modified)
        by_tool = {"read": read, "write": modified, "edit": modified}
        for message in messages:
            for block in fields.objects(message, "content") if message.get("role") == Role.ASSISTANT else ():
                tool, path = fields.text(block, "name"), fields.text(fields.mapping(block, "arguments"), "path")
                if block.get("type") == BlockType.TOOL_CALL and path and tool in by_tool:
                    by_tool[tool].add(path)
        return FileLists(_sorted(read - modified), _sorted(modified))

    def files_text(self, files: FileLists) -> str:
        """The lists as they end a summary, after a blank line; empty if there are no files."""
        named = (("read-files", files.read), ("modified-files", files.modified))
        return "\n\n".join("\n".join((f"<{name}>", *paths, f"</{name}>")) for name, paths in named if paths)

    def split_turn_text(self, history: str, prefix: str) -> str:
        """The summary of a part that ends within a turn, made of those of the history and of the turn's beginning."""
        parts = (history, "---", f"**{SPLIT_TURN}:**", prefix)
        return "\n\n".join(parts if history else parts[2:])

    def branch_summary_line(
        self,
        entry_id: str,
        parent_id: str | None,
        moment: datetime,
        *,
        from_id: str,
        summary: str,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        """The line of a summary of the branch that the user left at `from_id`, without its newline. The agent continues
        after it; if the parent is None, it is a root.
        """
        recorded = {"fromId": from_id, "summary": summary, **_origin(files, from_hook)}
        return self.new_line("branch_summary", entry_id, parent_id, moment, **recorded)

    def compaction_line(
        self,
        entry_id: str,
        parent_id: str,
        moment: datetime,
        *,
        summary: str,
        first_kept_id: str,
        tokens_before: int,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        """The line of a summary that replaces everything before `first_kept_id`, without its newline."""
        recorded = {"summary": summary, "firstKeptEntryId": first_kept_id, "tokensBefore": tokens_before}
        return self.new_line("compaction", entry_id, parent_id, moment, **recorded, **_origin(files, from_hook))


def recorded_summary(line: bytes) -> RecordedSummary | None:
    """The fields of a line of pi with a summary of either kind; None if it is another line."""
    recorded = fields.object_in(line.removeprefix(BOM_UTF8))
    if recorded is None or fields.text(recorded, "type") not in _SUMMARIES:
        return None
    text, from_id = fields.text(recorded, "summary"), fields.text_or_none(recorded, "fromId")
    return RecordedSummary(text, _recorded_lists(recorded), _is_from_hook(recorded), from_id)


def _sections(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The sections of one message, each with its name; some may be empty."""
    role, summary = fields.text(message, "role"), fields.text(message, "summary")
    if role == Role.ASSISTANT:
        blocks = fields.objects(message, "content")
        thinking = (block.get("thinking", "") for block in blocks if block.get("type") == BlockType.THINKING)
        yield "Assistant thinking", "\n".join(map(jsjson.to_string, thinking))
        yield "Assistant", _content_text(message, "\n")
        calls = (_call_text(block) for block in blocks if block.get("type") == BlockType.TOOL_CALL)
        yield "Assistant tool calls", "; ".join(calls)
    elif role == Role.TOOL_RESULT:
        yield "Tool result", _cut(_content_text(message, ""))
    elif role in (Role.USER, Role.CUSTOM):
        yield "User", _content_text(message, "")
    elif role == Role.COMMAND:
        yield "User", _command_text(message)
    elif role in _SUMMARY_HEADINGS and summary:
        yield "User", f"{_SUMMARY_HEADINGS[role]}\n\n{summary}"


def _call_text(block: Mapping[str, Any]) -> str:
    """A call as `name(key=json, …)`."""
    arguments = fields.mapping(block, "arguments")
    values = (f"{jsjson.to_string(key)}={jsjson.stringify(arguments[key])}" for key in jsjson.property_order(arguments))
    return f"{jsjson.to_string(block.get('name', ''))}({', '.join(values)})"


def _content_text(message: Mapping[str, Any], separator: str) -> str:
    """The texts of a message's content, which may be one text or blocks."""
    texts = (block for block in fields.objects(message, "content") if block.get("type") == BlockType.TEXT)
    return fields.text(message, "content") or separator.join(jsjson.to_string(block.get("text", "")) for block in texts)


def _command_text(message: Mapping[str, Any]) -> str:
    output = jsjson.to_string(message.get("output", ""))
    ran = f"Ran `{jsjson.to_string(message.get('command', ''))}`\n"
    text = ran + (f"```\n{output}\n```" if output else "(no output)")
    code = message.get("exitCode")
    return f"{text}\n\nCommand exited with code {jsjson.to_string(code)}" if code else text


def _cut(text: str) -> str:
    more = jsjson.utf16_length(text) - RESULT_UNITS
    if more <= 0:
        return text
    return f"{jsjson.utf16_slice(text, 0, RESULT_UNITS)}\n\n[... {more} more characters truncated]"


def _recorded_lists(line: Mapping[str, Any]) -> FileLists | None:
    """The lists in the details of a summary as recorded; None if there are none."""
    details, names = fields.mapping(line, "details"), ("readFiles", "modifiedFiles")
    if not any(isinstance(details.get(name), list) for name in names):
        return None
    return FileLists(*(tuple(fields.texts(details, name)) for name in names))


def _is_from_hook(line: Mapping[str, Any]) -> bool:
    """Whether an extension wrote a summary: a derivative of pi has another name for it."""
    return any(line.get(name) is True for name in ("fromHook", "fromExtension"))


def _origin(files: FileLists, from_hook: bool) -> dict[str, Any]:
    details = {"readFiles": list(files.read), "modifiedFiles": list(files.modified)}
    return {"details": details, **({"fromHook": True} if from_hook else {})}


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths in JavaScript's order, which compares UTF-16 units."""
    return tuple(sorted(paths, key=lambda path: path.encode("utf-16-be", "surrogatepass")))


_SKIPPED: Final = "skips the line"
_UNTIED: Final = "may not find what comes before or after it"
_REFUSED: Final = "does not open the session"
_OF_TREE: Final = frozenset({DamageKind.DUPLICATE_ID, DamageKind.MISSING_PARENT, DamageKind.CYCLE})


@dataclass(frozen=True, slots=True)
class Generation:
    """The versions of an agent that read a session, and record deletions from it, in the same way."""

    label: str
    """The agent with its versions, as in "pi 0.87 and newer"."""
    reader: Reader
    rules: PlanRules
    writers: tuple[SessionWriter, ...]
    """The ways to record a deletion that these versions honour, the best one first."""
    restore_lines: RestoreLines | None = None
    """Makes lines that restore single entries; None if that is not possible."""
    can_move_leaf: bool = True
    """Whether `Format.leaf_line` gives a line."""
    turns: TurnOrder | None = None
    """The order of sent messages; None if it is that in which they are rebuilt."""
    since: tuple[int, ...] = ()
    """The first of these versions; empty for the generation of the oldest versions."""


class Format(ABC):
    """The format of an agent's sessions. The defaults of this base class are for features that an agent's format
    lacks.
    """

    name: str
    """The name of the format. Agents may share one: then their readers can be chosen for each other's sessions."""
    label: str
    """The name of the agent for people."""
    parser: type[LineParser]
    """The class of parsers, which start with the state of an earlier parser or a new `ParserState`."""
    generations: Sequence[Generation]
    """Its generations, the current one first."""
    current_version: int = 1
    """The version of the format that the agent writes; sessions of other versions are read only."""
    summary_format: SummaryFormat | None = None
    """How the agent records summaries that Redline can append; None if it has no such form."""

    def reparse_entry(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry at the position of an earlier one; None if there is none any more."""
        return self.parser.reparse(raw, place, version)

    def tree(self, entries: Sequence[Entry]) -> SessionTree:
        """The tree of a session's entries, given in file order."""
        return SessionTree(entries)

    def new_entry_id(self) -> str:
        """A new entry id in the agent's form."""
        return secrets.token_hex(4)

    @abstractmethod
    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        """A message of the context as the agent rebuilds it, given the line of its entry and of its edit."""

    @abstractmethod
    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[Mapping[str, Any]]:
        """The messages of a context as the agent sends them, with role and content.

        `line` reads the recorded bytes of an entry. Messages that the agent adds on each start are not included.
        """

    def reworded_entries(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[str]:
        """The ids of the entries to whose text the agent adds its own words: for these, `sent_messages` gives only the
        recorded content.
        """
        return ()

    def recorded_summary(self, line: bytes) -> RecordedSummary | None:
        """The fields of the line of a summary; None if it is another line, or the agent records none in lines."""
        return None

    def recorded_requests(self, entries: Sequence[Entry], line: Callable[[Entry], bytes]) -> LedgerResult | None:
        """The comparison of the requests that a session records with its reading; None if it records none."""
        return None

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """The agent's version recorded in a session's lines; None if there is none, or if all versions read them in the
        same way. `state` is the parser's after all lines of the session.
        """
        return None

    def recorded_prices(self, lines: Iterable[bytes], model: str) -> InputPrices | None:
        """The prices of a model that these lines of assistant messages record, the latest first; None if none does."""
        return None

    def refused_writers(self, state: ParserState) -> Mapping[str, str]:
        """The writers that must not write to a session although the installed agent honours their changes; each with
        the reason and the remedy, as sentences. `state` is the parser's after all lines of the session.
        """
        return {}

    def leaf_line(
        self, entry_id: str, parent_id: str | None, moment: datetime, *, undoes: bool = False
    ) -> bytes | None:
        """A line that adds nothing to the context: when it is appended, the agent continues after an earlier entry, or
        with an empty conversation if `parent_id` is None. None if the agent has no such line.

        `undoes`: whether it undoes a compaction.
        """
        return None

    def label_line(self, entry_id: str, parent_id: str, moment: datetime, target_id: str, label: str) -> bytes | None:
        """A line that labels an entry, or removes its label if `label` is empty. None if the agent has no labels."""
        return None

    @property
    def missing_forms(self) -> Mapping[str, str]:
        """The operations among `move` and `label` that the agent's files do not support; each with sentences for the
        user, including the alternative.
        """
        return {
            "move": f"Sessions of {self.label} have no entry that makes it continue after an earlier one. Fork from "
            "there instead.",
            "label": f"Sessions of {self.label} have no labels.",
        }

    def branch_copy(self, branch: Sequence[Entry], facts: WriteFacts) -> NewFile | None:
        """A new session with all recorded lines of a branch, and their labels, so that the agent rebuilds the same
        context and everything that its compactions removed is still there. None if only the writers make new sessions.
        """
        return None

    def migrate(self, lines: Iterable[jsjson.Line], name: str, header: Header) -> Iterator[bytes]:
        """The lines of a copy at `current_version`; `header` is for a session without one.

        Raises BadInput `is_current`, and `not_a_session` at the end.
        """
        raise BadInput("is_current", f"{name} is in the current format of {self.label}. No copy was made.")

    def examine(self, lines: Iterable[jsjson.Line], name: str) -> diagnosis.Examination:
        """The faults of a file, with the consequence of each for every agent that reads it.

        Raises BadInput `not_a_session`.
        """
        log = read_session(self.parser(ParserState(), []), lines, name)
        tree = self.tree(log.entries)
        obstacles = list(self.obstacles(log.state))
        found = [*log.damage, *tree.damage][: diagnosis.FINDINGS_KEPT]
        findings = []
        for damage in [*found, *obstacles]:
            consequences = (
                diagnosis.AgentConsequence(one.label, *self.consequence(damage.kind, one)) for one in self.generations
            )
            findings.append(diagnosis.damage_finding(damage, tuple(consequences), is_repairable=False))
        return diagnosis.Examination(findings, log.damaged + tree.damaged - len(found), tree)

    def obstacles(self, state: ParserState) -> Iterator[Damage]:
        """Faults for which some versions refuse to open a session with this state, although its lines can be read."""
        if state.header is None:
            yield Damage(DamageKind.NO_HEADER, 1, 0, 0, "the session has no header")

    def consequence(self, kind: DamageKind, generation: Generation) -> tuple[diagnosis.Severity, str]:
        """The consequence of this kind of damage in these versions. By default, they skip unusable content."""
        if kind is DamageKind.NO_HEADER:
            return diagnosis.Severity.FATAL, _REFUSED
        if kind is DamageKind.MORE_ON_LINE:
            return diagnosis.Severity.LOSS, "reads its first value only"
        return diagnosis.Severity.LOSS, _UNTIED if kind in _OF_TREE else _SKIPPED

    def repair(self, read: Callable[[], Iterable[jsjson.Line]], new_header: Header) -> Iterator[RepairPiece]:
        """The pieces of a repaired copy without repairable findings, and those of the original that it leaves out.

        `read` reads the lines of the file, the same each time; `new_header` is for a session without a header. Raises
        SystemFailure `no_repair` if sessions of this format cannot be repaired.
        """
        raise SystemFailure("no_repair", f"Sessions of {self.label} cannot be repaired by Redline. No copy was made.")


def note_text(words: str) -> str:
    """A note of the user as the agent sends it: its author, and the reason why it is there."""
    return f"[Note by the user, added with Redline in place of deleted entries: {words}]"


def notes_before(
    order: Iterable[Entry],
    kept_ids: Collection[str],
    notes: Mapping[str, str],
    may_follow: Callable[[Entry], bool] = lambda _: True,
) -> Mapping[str | None, list[str]]:
    """The notes by the entry that they precede; None for the end.

    A note is placed as near to its span as possible: before the next remaining entry that `may_follow` it, but never
    between a call and its results, between reasoning and the item that follows from it, or within a reply of several
    entries.
    """
    entries = list(order) if notes else []
    answered = {entry.result_for for entry in entries if entry.id in kept_ids and entry.result_for is not None}
    found: dict[str | None, list[str]] = {}
    waiting: list[str] = []
    unanswered: set[str] = set()
    previous: Entry | None = None
    for entry in entries:
        if entry.id not in kept_ids:
            waiting += [notes[entry.id]] if entry.id in notes else []
            continue
        is_apart = not unanswered and entry.result_for is None and not _continues_reply(previous, entry)
        if waiting and is_apart and may_follow(entry):
            found[entry.id], waiting = waiting, []
        unanswered |= answered.intersection(entry.call_ids())
        unanswered.discard(entry.result_for or "")
        previous = entry
    return {**found, None: waiting} if waiting else found


def _continues_reply(previous: Entry | None, entry: Entry) -> bool:
    """Whether an entry is of the same reply as the one before it."""
    if previous is None:
        return False
    is_reasoning = bool(previous.blocks) and all(block.is_thinking for block in previous.blocks or ())
    return is_reasoning or (bool(entry.reply) and entry.reply == previous.reply)
