"""A commit as its page shows it: what would be written, where, which explicit yeses it needs; and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.agents import agent_of
from sessions_app.files import SessionReader, file_state
from sessions_app.models import Entry as EntryRow
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError

from ..deletion.airlock import ValidatedDeletion
from ..deletion.objects import TranscriptEntry
from ..deletion.targets import Target
from ..deletion.transcript import Transcript
from ..models import Compaction, Run
from ..services.committing import Yeses, approval, compaction_line
from ..services.planning import brought_back
from ..services.reviewing import approved_of
from ..services.snapshots import Prepared, session_path, snapshot_of

ENTRY_ID_SHOWN: Final = "00000000"
LINE_SHOWN: Final = 4_000
"""Bytes of the line that a page shows."""
KINDS: Final = {
    "text": "Assistant text",
    "thinking": "Thinking",
    "call": "Tool calls",
    "read": "Results: read",
    "bash": "Results: bash",
    "edit": "Results: edit",
    "write": "Results: write",
    "other": "Results: other",
    "custom": "Added context",
    "user": "User",
}
_RESULTS: Final = frozenset({"read", "bash", "edit", "write"})


@dataclass(frozen=True, slots=True)
class Yes:
    """One explicit yes that this commit needs: the field of `Yeses`, and what it says yes to."""

    name: str
    sentence: str
    why: str


@dataclass(frozen=True, slots=True)
class CommitView:
    """What would be written, where, and what it needs."""

    run: Run
    path: str
    validated: ValidatedDeletion
    entries: int
    blocks: int
    undecided: int
    line: str
    line_bytes: int
    backup: str
    yeses: list[Yes]
    brought_back: tuple[Target, ...]
    agent: str
    reader: str
    reader_reason: str
    appended_after: str


def view_commit(run: Run, now: datetime, undecided: int) -> CommitView:
    """What a commit of this run would do as things stand. Raises what `approval` raises."""
    approved = approval(run)
    validated, _, _ = approved_of(run)
    if validated is None:
        raise AssertionError("what was approved is gone")
    prepared = snapshot_of(run).prepared
    path = approved.loaded.path
    backup = path.with_name(f"{path.name}.{now.astimezone(UTC):%Y-%m-%dT%H-%M-%S-%fZ}.compact.bak")
    line = compaction_line(ENTRY_ID_SHOWN, approved.leaf_id, validated, backup, now)
    return CommitView(
        run=run,
        path=str(path),
        validated=validated,
        entries=sum(target.block_index is None for target in validated.targets),
        blocks=sum(target.block_index is not None for target in validated.targets),
        undecided=undecided,
        line=line[:LINE_SHOWN].decode("utf-8", "replace"),
        line_bytes=len(line) + 1,
        backup=backup.name,
        yeses=list(needed_yeses(run.session, prepared, validated, now)),
        brought_back=brought_back(approved.loaded.tree.branch(approved.leaf_id), validated.targets),
        agent=run.session.root.agent or agent_of(path),
        reader=prepared.reader,
        reader_reason=prepared.reader_reason,
        appended_after=approved.leaf_id,
    )


def needed_yeses(
    session: Session, prepared: Prepared, validated: ValidatedDeletion, now: datetime
) -> Iterable[Yes]:
    """The explicit yeses that a commit needs as things stand, each for its own case."""
    if _is_live(session, now):
        yield Yes(
            "live",
            "An agent may have this session open. I have closed it there, or will reload it.",
            f"It was written to in the last {settings.REDLINE.live_minutes:g} minutes. An agent that has it open "
            "goes on from its own copy, past this compaction.",
        )
    if prepared.leaf_id != prepared.file_leaf_id:
        yield Yes(
            "switch_branch",
            "Make the reviewed branch the active one.",
            f"The agent continues from {prepared.file_leaf_id}, on another branch than {prepared.leaf_id}, which was "
            "reviewed. What is appended there becomes the place from which it continues.",
        )
    if not prepared.honoured:
        yield Yes(
            "not_honoured",
            "Write it although the agent that reads this session ignores it.",
            f"The session is read as {prepared.reader}, because {prepared.reader_reason}. That agent does not honour "
            "a context_compaction: it would change nothing there.",
        )
    if not validated.target_met:
        yield Yes(
            "below_target",
            "Commit less than was asked for.",
            f"The approved deletions make up {validated.stats.percent_reduction}% of the tokens; asked for were "
            f"{100 * (1 - validated.parameters.compression_ratio):g}%.",
        )


def _is_live(session: Session, now: datetime) -> bool:
    state = file_state(session_path(session))
    if state is None or state.mtime_ns == session.own_write_ns:
        return False
    return now.timestamp() - state.mtime_ns / 1e9 < settings.REDLINE.live_minutes * 60


# ---- what came of it -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KindRow:
    """How much of one kind of content went. Tokens."""

    kind: str
    name: str
    before: int
    gone: int

    @property
    def stays(self) -> int:
        return self.before - self.gone

    @property
    def percent(self) -> float:
        return round(100 * self.gone / self.before, 1) if self.before else 0.0


@dataclass(frozen=True, slots=True)
class ResultView:
    """A compaction that was written: before and after, by kind, and the appended line."""

    compaction: Compaction
    kinds: list[KindRow]
    entries: int
    blocks: int
    line: str
    line_number: int | None
    line_bytes: int
    backup_there: bool

    @property
    def percent_left(self) -> float:
        return round(100 - float(self.compaction.stats["percentReduction"]), 1)

    @property
    def keep(self) -> str:
        """The fraction that was to be kept, in percent."""
        return f"{100 * float(self.compaction.parameters['compression_ratio']):g}"

    @property
    def backup_name(self) -> str:
        return Path(self.compaction.backup.path).name


def view_result(compaction: Compaction) -> ResultView:
    """What a compaction did."""
    targets = [Target(raw["entryId"], raw.get("blockIndex")) for raw in compaction.origins]
    line, number, length = _appended_line(compaction)
    run = compaction.run
    return ResultView(
        compaction=compaction,
        kinds=_kinds(snapshot_of(run).transcript, targets) if run is not None else [],
        entries=sum(target.block_index is None for target in targets),
        blocks=sum(target.block_index is not None for target in targets),
        line=line,
        line_number=number,
        line_bytes=length,
        backup_there=Path(compaction.backup.path).is_file(),
    )


def _appended_line(compaction: Compaction) -> tuple[str, int | None, int]:
    """The line as it lies in the file; empty where it is not there any more, or not indexed yet."""
    row = EntryRow.objects.filter(session=compaction.session, entry_id=compaction.entry_id).first()
    if row is None:
        return "", None, 0
    try:
        with SessionReader(session_path(compaction.session)) as reader:
            raw = reader.read_at(row.offset, row.length)
    except RedlineError:
        return "", None, 0
    return raw[:LINE_SHOWN].decode("utf-8", "replace"), row.number, row.length


def _kinds(transcript: Transcript, targets: Sequence[Target]) -> list[KindRow]:
    before: dict[str, int] = {}
    gone: dict[str, int] = {}
    whole = {target.entry_id for target in targets if target.block_index is None}
    blocks = {(target.entry_id, target.block_index) for target in targets if target.block_index is not None}
    for entry in transcript.entries:
        for kind, tokens, index in _pieces(entry):
            before[kind] = before.get(kind, 0) + tokens
            if entry.entry_id in whole or (entry.entry_id, index) in blocks:
                gone[kind] = gone.get(kind, 0) + tokens
    return [
        KindRow(kind, name, before[kind], gone.get(kind, 0))
        for kind, name in KINDS.items()
        if before.get(kind)
    ]


def _pieces(entry: TranscriptEntry) -> Iterable[tuple[str, int, int | None]]:
    """Kind, tokens and block index of each part of an entry."""
    if not entry.blocks:
        yield _kind(entry, ""), entry.tokens, None
    for block in entry.blocks:
        yield _kind(entry, "thinking" if block.is_thinking else block.type), block.tokens, block.index


def _kind(entry: TranscriptEntry, block_type: str) -> str:
    if entry.role == "toolResult":
        return entry.tool_name if entry.tool_name in _RESULTS else "other"
    if entry.role == "assistant":
        return {"thinking": "thinking", "toolCall": "call"}.get(block_type, "text")
    return {"user": "user", "bashExecution": "bash"}.get(entry.role, "custom")


def yeses_of(given: Iterable[str]) -> Yeses:
    """The explicit yeses that were ticked; what is not one is not looked at."""
    names = set(given)
    return Yeses(
        live="live" in names,
        switch_branch="switch_branch" in names,
        not_honoured="not_honoured" in names,
        below_target="below_target" in names,
    )
