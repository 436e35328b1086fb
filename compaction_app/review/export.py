"""A review as a document: removed and kept units, the origin and reason of each proposal, and the time of each
approval.

Texts of sessions are hostile. In the Markdown they are code spans, so that nothing in them is markup, and control
characters are shown as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from compaction_app.core.review_fold import ReviewStatus
from compaction_app.models import Compaction
from sessions_app.cli import printable
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.text import plural

from .last_look import AmountRow, last_look
from .units import ReviewAccount, ReviewUnit

WORDS: Final = 160
"""The maximum length of a unit's line, and of its reason, in the Markdown. The JSON has the full texts."""
_BACKTICKS: Final = re.compile("`+")
_STATUS: Final = {
    ReviewStatus.UNDECIDED: "undecided",
    ReviewStatus.APPROVED: "approved",
    ReviewStatus.REJECTED: "rejected",
    ReviewStatus.GOES_WITH_PAIR: "goes with its pair",
    ReviewStatus.KEPT_WITH_PAIR: "kept with its pair",
    ReviewStatus.REFUSED: "refused",
    ReviewStatus.NARROWED: "narrowed",
}


def review_document(account: ReviewAccount, compaction: Compaction | None) -> dict[str, Any]:
    """The review as a JSON document. Tokens are in the measure of the context, whose basis is named."""
    run, look = account.run, last_look(account)
    return {
        "run": run.pk,
        "session": str(run.session.path),
        "agent": run.session.agent.key,
        "planner": run.planner,
        "state": run.state,
        "version": account.version,
        "tokens": {
            "before": account.before.tokens,
            "beforeBasis": str(account.before.basis),
            "struck": account.struck,
            "after": account.after.tokens,
            "afterBasis": str(account.after.basis),
        },
        "textsReadable": not account.is_unread,
        "entries": account.entries,
        "blocks": account.blocks,
        "kinds": [_amount(row) for row in look.kinds],
        "tools": [_amount(row) for row in look.tools],
        "proposals": [_unit(unit) for unit in account.units],
        "compaction": None if compaction is None else _compaction(compaction),
        "notes": run.notes,
    }


def _amount(row: AmountRow) -> dict[str, Any]:
    return {"name": row.name, "before": row.before, "struck": row.struck, "stays": row.stays}


def _unit(unit: ReviewUnit) -> dict[str, Any]:
    origin, approval = unit.item.origin, unit.approval
    return {
        **unit.target.to_json(),
        "turn": unit.turn,
        "tool": unit.line.tool,
        "words": unit.line.words,
        "status": str(unit.item.standing),
        "tokens": unit.tokens,
        "tokensOfPair": unit.pair_tokens,
        "group": unit.title,
        "reason": unit.reason,
        "proposedBy": {
            "source": unit.item.source,
            "call": origin.call if origin is not None else 0,
            "tool": origin.tool if origin is not None else "",
        },
        "approvedAt": _moment(approval.at) if approval is not None else None,
        "approvedTogether": approval.together if approval is not None else 0,
        "opened": unit.is_opened,
    }


def _compaction(compaction: Compaction) -> dict[str, Any]:
    return {
        "entryId": compaction.entry_id,
        "writer": compaction.writer,
        "writtenAt": _moment(compaction.written_at),
        "created": compaction.created,
        "backup": compaction.backup.path,
        "backupSha256": compaction.backup.sha256,
    }


# ---- Markdown ----------------------------------------------------------------------------------------------


def review_markdown(account: ReviewAccount, compaction: Compaction | None) -> str:
    """The review as Markdown."""
    return "\n".join(_lines(account, compaction)) + "\n"


def _lines(account: ReviewAccount, compaction: Compaction | None) -> Iterator[str]:
    run, look = account.run, last_look(account)
    yield f"# Review of run {run.pk}"
    yield ""
    yield f"- Session: {_code(str(run.session.path))}"
    yield f"- Agent: {_code(run.session.agent.label)}"
    yield f"- Planner: {_code(run.planner)}"
    yield (
        f"- Context: {account.before} before, {account.after} after; about "
        f"{plural(significant(account.struck), 'token')} struck"
    )
    yield (
        f"- {len(account.approved):,} approved, {len(account.kept):,} kept, {len(account.undecided):,} undecided; "
        f"{plural(account.entries, 'entry')} and {plural(account.blocks, 'block')} go"
    )
    if account.is_unread:
        yield "- The session has changed since: its texts cannot be shown any more"
    if compaction is not None:
        yield f"- Written: {_moment(compaction.written_at)} by {_code(compaction.writer)}"
        yield f"- Backup: {_code(compaction.backup.path)}, SHA-256 {compaction.backup.sha256}"
    for entry_id, words in run.notes.items():
        yield f"- Note of the user in place of what went from {_code(entry_id)} on: {_code(words)}"
    for name, rows in (("Kind", look.kinds), ("Tool", look.tools)):
        yield from _amounts(name, rows, account)
    for name, units in (
        ("Approved", account.approved),
        ("Kept", account.kept),
        ("Undecided", account.undecided),
    ):
        if units:
            yield from _units(name, units)


def _amounts(name: str, rows: Sequence[AmountRow], account: ReviewAccount) -> Iterator[str]:
    yield from (
        "",
        f"## By {name.lower()}",
        "",
        f"| {name} | Before | Struck | Stays |",
        "|---|---:|---:|---:|",
    )
    for row in rows:
        figures = " | ".join(f"{significant(tokens):,}" for tokens in (row.before, row.struck, row.stays))
        yield f"| {_code(row.name)} | {figures} |"
    yield f"| All | {account.before.shown:,} | {significant(account.struck):,} | {account.after.shown:,} |"


def _units(name: str, units: Sequence[ReviewUnit]) -> Iterator[str]:
    yield from ("", f"## {name}", "")
    yield "| Turn | What | Tokens | Reason | Proposed by | Decision | Opened |"
    yield "|---:|---|---:|---|---|---|---|"
    for unit in units:
        what = f"{unit.line.tool} {unit.line.words}"
        yield (
            f"| {unit.turn} | {_code(what)} | {significant(unit.tokens):,} | {_code(unit.reason)} | {_proposer(unit)} "
            f"| {_decision(unit)} | {'yes' if unit.is_opened else 'no'} |"
        )
    yield f"| | All {len(units):,} | {significant(sum(unit.tokens for unit in units)):,} | | | | |"


def _proposer(unit: ReviewUnit) -> str:
    return f"call {unit.call}" if unit.call else _code(unit.item.source)


def _decision(unit: ReviewUnit) -> str:
    status, approval = _STATUS[unit.item.standing], unit.approval
    if approval is None:
        return status
    together = f"with {plural(approval.together - 1, 'other')}" if approval.is_bulk else "alone"
    return f"{status} {_moment(approval.at)}, {together}"


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _code(text: str) -> str:
    """A text on one line as a code span, which contains no markup; in a table, a bar would end its cell."""
    line = printable(" ".join(text.split())).replace("|", "\\|")
    if not line:
        return ""
    shown = line if len(line) <= WORDS else f"{line[: WORDS - 1]}…"
    fence = "`" * (max(map(len, _BACKTICKS.findall(shown)), default=0) + 1)
    return f"{fence} {shown} {fence}"
