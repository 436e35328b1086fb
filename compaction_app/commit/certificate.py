"""The certificate of a compaction that was written, made again from the file as it is now, with the agent's own package
if that is installed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from compaction_app.models import Compaction
from sessions_app.document.document import Document
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.storage.session_certificate import certify


def stored_certificate(compaction: Compaction) -> Certificate | None:
    """The certificate of a compaction; None for one that was written before there were any."""
    return msgspec.convert(compaction.certificate, Certificate) if compaction.certificate is not None else None


def certify_again(compaction: Compaction, now: datetime) -> None:
    """Check the context that the agent would continue from now, and store the result.

    The comparison with the approved plan was made before the write, and is kept. Raises BadInput `unknown_entry` if
    the compaction is not in the file any more, and what reading the session raises.
    """
    created = compaction.created
    document = Document.to_change(Path(created)) if created else Document.of_session(compaction.session)
    reading = document.reading
    found = certify(
        document,
        reading.agent,
        reading.reader,
        now,
        leaf_id="" if compaction.created else compaction.entry_id,
        package=reading.agent.client.find_package(None),
    )
    before = stored_certificate(compaction)
    found = msgspec.structs.replace(found, difference=before.difference if before is not None else None)
    Compaction.objects.filter(pk=compaction.pk).update(certificate=found.to_json())
