"""The prepared transcript of a run as JSONL: made on request, never stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.planning.snapshots import Prepared, read_snapshot_texts
from sessions_app.sessionlog.entries import Texts

BATCH: Final = 200


def transcript_lines(path: Path, prepared: Prepared) -> Iterator[bytes]:
    """One line for each entry of the transcript, a few at a time.

    Raises Conflict `session_rewritten` if the file is no longer the one that was prepared.
    """
    for start in range(0, len(prepared.entries), BATCH):
        entries = prepared.entries[start : start + BATCH]
        texts = read_snapshot_texts(path, prepared, entries)
        lines = (json.dumps(_line(entry, texts[entry.entry_id])) for entry in entries)
        yield "".join(f"{line}\n" for line in lines).encode()


def _line(entry: TranscriptEntry, texts: Texts) -> dict[str, Any]:
    return {
        "entryId": entry.entry_id,
        "entryType": entry.entry_type,
        "role": entry.role,
        "tokens": entry.tokens,
        "protected": entry.is_protected,
        "protectedBy": entry.reason.value if entry.reason is not None else None,
        "callIds": list(entry.call_ids),
        "answers": entry.result_for,
        "text": texts.joined(entry.blocks),
        "blocks": [
            {
                "index": block.index,
                "type": block.type,
                "tokens": block.tokens,
                "text": texts.block(block.index),
            }
            for block in entry.blocks
        ],
    }
