"""The export of a branch that a page shows."""

from __future__ import annotations

import msgspec

from compaction_app.core.branch_views import messages_in
from compaction_app.entries.branches import branch_state
from compaction_app.exports.branch_export import LABELS, BranchExport
from compaction_app.exports.spoken_entry import ExportHead
from sessions_app.models import Session
from sessions_app.sessionlog.printable import plural
from sessions_app.storage.files import Fingerprint


def export_of(session: Session, leaf_id: str, view: str = "all") -> BranchExport:
    """The export of a view of a branch; an empty `leaf_id` is the session's last entry.

    Raises what `branch_state` raises.
    """
    state = branch_state(session, leaf_id)
    messages = messages_in(view, state.branch, state.context)
    facts = [
        session.agent_label,
        session.cwd,
        session.model,
        LABELS[view].lower(),
        plural(len(messages), "entry"),
        f"leaf {state.leaf_id}",
    ]
    return BranchExport(
        agent=session.agent,
        path=session.real_path(),
        fingerprint=msgspec.convert(session.fingerprint, Fingerprint),
        tree=state.tree,
        leaf_id=state.leaf_id,
        view=view,
        messages=messages,
        head=ExportHead(session.heading, [fact for fact in facts if fact]),
    )
