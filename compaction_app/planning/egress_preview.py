"""The data that would leave the machine if an LLM planned: the first request, built like that of a run, and measured.

Nothing is sent, and no request is made to a model before a form has shown this. The request is built from the index;
the only texts read are those at the start of the manifest's entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compaction_app.core.messages import UserMessage
from compaction_app.core.stats import Budget
from compaction_app.core.transcript import Transcript
from compaction_app.providers.client import size_of
from compaction_app.providers.usage import CHARACTERS_PER_TOKEN
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Stats

from .llm_planner import prompt_for, request_for
from .model_registry import ResolvedModel
from .plan import effective_parameters
from .snapshots import open_snapshot_texts, prepare_snapshot


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """The first request that a run would send."""

    characters: int
    """Characters of its body: the instructions, the tools, the parameters and the manifest."""
    tokens: int
    """Estimated: four characters per token, as the agents estimate."""
    entries: int
    """Entries of the session whose beginnings the manifest shows."""


def measure_first_request(
    session: Session, leaf_id: str, own: Mapping[str, object], model: ResolvedModel, thinking: str
) -> FirstRequest:
    """The first request of a run that would start now; `own` are the parameters given for it.

    Raises the errors of preparing a run: BadInput `unknown_entry`, `no_entries`, `not_indexed` and
    `nothing_to_compact`, Conflict `session_rewritten` and `being_indexed`, and the errors of reading the file.
    """
    home = Path.home()
    window = ContextWindowLookup(home).window_of_session(session)
    in_force = effective_parameters(session.agent_settings(home), own)
    prepared = prepare_snapshot(session, leaf_id, in_force.values, window.value if window is not None else None)
    with open_snapshot_texts(session.real_path(), prepared) as texts:
        transcript = prepared.transcript(texts)
        prompt, entries = prompt_for(model, transcript, _budget(transcript, prepared.window))
    characters = size_of(request_for(model, thinking, [UserMessage(prompt)]), model.provider.dialect)
    return FirstRequest(characters, math.ceil(characters / CHARACTERS_PER_TOKEN), entries)


def _budget(transcript: Transcript, window: int | None) -> Budget:
    """The budget before anything is deleted; without a store, which would take as long as everything else."""
    nothing = Stats(
        objects_before=transcript.objects,
        objects_after=transcript.objects,
        objects_deleted=0,
        tokens_before=transcript.tokens,
        tokens_after=transcript.tokens,
        percent_reduction=0.0,
    )
    return Budget(transcript.parameters.compression_ratio, nothing, window)
