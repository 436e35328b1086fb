"""A session of OpenCode that is compacted and undone in its database."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import Approved, commit
from compaction_app.changes.undo import UndoRequest, undo
from compaction_app.core.loop import Origin
from compaction_app.core.parameters import Parameters
from sessions_app.agents.opencode.edge.server import is_same_row
from sessions_app.document.document import Document
from sessions_app.sessionlog.entries import Target
from sessions_app.storage.session_loader import load_session
from tests.installation import Installation
from tests.opencode_plans import every_row, sent_of
from tests.opencode_stores import OpenCodeStore, worked_session

PLACEHOLDER: Final = "[Old tool result content cleared]"
RESULT: Final = "prt_0007"
CALL: Final = "prt_0007.call"
THINKING: Final = "prt_0005"
Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class RowScene:
    """A session in OpenCode's own directory, and its rows and messages before anything is changed."""

    store: OpenCodeStore
    path: Path
    before: Rows
    messages: list[dict[str, Any]]

    def approved(self, writer: str, *entry_ids: str, path: Path | None = None) -> Approved:
        document, targets = Document.to_change(path or self.path), tuple(map(Target, entry_ids))
        return Approved(
            document=document,
            leaf_id=document.leaf_id,
            parameters=Parameters(compression_ratio=1.0, preserve_recent=0, query="the step"),
            targets=targets,
            planner="embedded",
            origins={target: Origin(0, "", "", by_repair=False) for target in targets},
            writer=writer,
        )

    def delete(self, writer: str, *entry_ids: str) -> Path | None:
        """Compact; returns the new session, if one was made."""
        return self.commit(self.approved(writer, *entry_ids)).made.created

    def commit(self, plan: Approved) -> Any:
        return commit(plan, Confirmations(live=True, below_target=True), datetime.now(UTC))

    def undo(self, *entry_ids: str) -> None:
        request = UndoRequest(Document.to_change(self.path), entry_ids=entry_ids)
        undo(request, Confirmations(live=True), datetime.now(UTC))

    def rows(self) -> Rows:
        return every_row(self.store.database)

    def sent(self, path: Path | None = None) -> list[dict[str, Any]]:
        """What the client sends of the session, or of another one."""
        return [dict(message) for message in sent_of(load_session(path or self.path))]

    def is_as_before(self, **but: list[dict[str, Any]]) -> bool:
        """Whether the rows mean the same as before; `but` are rows of tables that are compared instead."""
        now = self.rows() | but
        return all(
            len(now[table]) == len(rows) and all(map(is_same_row, now[table], rows))
            for table, rows in self.before.items()
        )


def row_scene(redline: Installation, turns: int = 3) -> RowScene:
    store = OpenCodeStore(redline.home / ".local" / "share" / "opencode")
    path = worked_session(store, turns=turns)
    messages = [dict(message) for message in sent_of(load_session(path))]
    return RowScene(store, path, every_row(store.database), messages)
