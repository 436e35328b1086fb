"""Approved plans, and the active context before and after them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from compaction_app.changes.compaction import Approved
from compaction_app.core.loop import Event
from compaction_app.planning.plan import EMBEDDED, Plan, dry_run
from sessions_app.agents.registry import READERS
from sessions_app.document.document import Document
from sessions_app.storage.session_loader import load_session


class SilentListener:
    """Receives a planner's events and ignores them."""

    def begin(self, plan: Plan) -> None: ...

    def step(self, plan: Plan, event: Event, place: Mapping[str, int] | None = None) -> None: ...

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None: ...

    def is_stopped(self) -> bool:
        return False


def approved_plan(
    path: Path, leaf_id: str = "", writer: str = "context-compaction", reader: str = "atomic-0.8", **own: object
) -> Approved:
    """The plan of a user who approves everything that the embedded planner proposes."""
    document = Document.to_change(path)
    plan = dry_run(replace(document, chosen_reader=reader), leaf_id, own, EMBEDDED, "", SilentListener(), writer)
    return Approved(
        document=document,
        leaf_id=plan.leaf_id,
        parameters=plan.transcript.parameters,
        targets=plan.validated.targets,
        planner=EMBEDDED,
        origins=plan.origins,
        writer=writer,
    )


def context_ids(path: Path, leaf_id: str | None = None) -> list[tuple[str, list[int] | None]]:
    """The active context as Atomic reads it: entry ids with the indexes of the remaining blocks."""
    loaded = load_session(path)
    branch = loaded.tree.branch(leaf_id or loaded.leaf_id)
    return [
        (message.entry.id, None if message.blocks is None else [block.index for block in message.blocks])
        for message in READERS["atomic-0.8"].rebuild(branch).messages
    ]


def context_without(kept: list[tuple[str, list[int] | None]], targets: list[dict[str, Any]]) -> list[Any]:
    """The context without the targets of a compaction, by a simple computation."""
    gone = {target["entryId"] for target in targets if target["kind"] == "entry"}
    blocks = {(target["entryId"], target["blockIndex"]) for target in targets if target["kind"] != "entry"}
    return [
        (entry_id, None if left is None else [index for index in left if (entry_id, index) not in blocks])
        for entry_id, left in kept
        if entry_id not in gone
    ]
