"""The certificate of a written compaction, made again from the present file, with the agent's own package if
installed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from compaction_app.models import Compaction
from sessions_app.document.document import Document
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.storage.session_certificate import certify


def stored_certificate(compaction: Compaction) -> Certificate | None:
    """The certificate of a compaction; None for one that was written before certificates existed."""
    return msgspec.convert(compaction.certificate, Certificate) if compaction.certificate is not None else None


def certify_again(compaction: Compaction, now: datetime) -> None:
    """Check the context from which the agent would continue now, and store the result.

    The comparison with the approved plan was made before the write, and is kept. Raises BadInput `unknown_entry` if the
    compaction is no longer in the file, and the errors of reading the session.
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
