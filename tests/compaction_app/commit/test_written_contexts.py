"""What a writer records makes its agent rebuild the approved context: random plans, each generation, each writer."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, strategies as st

from compaction_app.changes.proof import approved_messages
from compaction_app.core.gates import NO_RESTRAINTS
from compaction_app.core.store import DeletionStore
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pure.formats import Append
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import GENERATIONS, reading_by
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Deletion, Target, request_of
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines
from tests import factories
from tests.compaction_app.core.strategies import MESSAGES, WORDS, Recorded, accepts, objects, often

PLACES = st.integers(1, 9).map(lambda place: f"e{place}")
REPLACEMENTS = st.one_of(
    st.none(),
    st.builds(lambda words: {"content": words}, WORDS),
    st.builds(
        lambda words: {"content": [factories.text(word) for word in words]}, st.lists(WORDS, min_size=1, max_size=3)
    ),
)
STEPS = st.one_of(
    MESSAGES,
    MESSAGES,
    MESSAGES,
    st.builds(factories.context_edit, PLACES, REPLACEMENTS),
    st.builds(factories.summary_compaction, WORDS, st.one_of(PLACES, st.none())),
    st.builds(factories.verbatim_compaction, WORDS, st.one_of(PLACES, st.none())),
    st.builds(lambda words: {"type": "custom_message", "customType": "n", "content": words}, WORDS),
    st.builds(lambda words: {"role": "system", "content": words}, WORDS),
)
WRITERS = [
    (name, writer.name)
    for name, (agent, generation) in GENERATIONS.items()
    if agent.format.name == PI.format.name
    for writer in generation.writers
]


class Plan(NamedTuple):
    """A session, and a deletion that was accepted on it."""

    recorded: list[Recorded]
    deletion: Deletion


@st.composite
def plans(draw: st.DrawFn, reading: Reading, writer: str) -> Plan:
    recorded = factories.chain(factories.user("fix it"), *draw(st.lists(STEPS, min_size=3, max_size=12)))
    branch, texts = factories.branch_and_texts(factories.session_bytes(recorded))
    transcript = factories.prepare(
        branch, texts, {"preserve_recent": draw(st.sampled_from([0, 0, 1]))}, rules=reading.rules(writer)
    )
    assume(transcript is not None)
    free = [target for target in objects(transcript) if accepts(transcript, NO_RESTRAINTS, target)]
    assume(free)
    store = DeletionStore(transcript, NO_RESTRAINTS)
    for target in draw(st.lists(st.sampled_from(free), min_size=1, max_size=5)):
        store.delete(request_of([target]))
    found = store.validated()
    return Plan(recorded, Deletion(tuple(found.targets), tuple(found.protected_entry_ids), found.stats))


def context_of(reading: Reading, data: bytes) -> ActiveContext:
    """The context of a session file's bytes."""
    branch, _ = factories.branch_and_texts(data)
    return reading.reader.rebuild(branch)


def sent(reading: Reading, messages: Iterable[Message], data: bytes) -> list[Mapping[str, Any]]:
    """Messages as the agent rebuilds them from a session file's bytes."""
    raws = {json.loads(line.raw)["id"]: line.raw for line in split_lines([data])}
    return [
        reading.agent.format.message_json(
            message, raws[message.entry.id], raws[message.edit.id] if message.edit is not None else None
        )
        for message in messages
    ]


def changed(reading: Reading, writer: str, plan: Plan) -> tuple[bytes, Sequence[Target]]:
    """The session, or the new one, after the change, and the targets that the agent applies."""
    data = factories.session_bytes(plan.recorded)
    branch, _ = factories.branch_and_texts(data)
    by = reading.writer(writer)
    change = by.write(branch, plan.deletion, factories.write_facts(plan.recorded))
    unapplied = set(by.unapplied(branch, plan.deletion.targets))
    applied = [target for target in plan.deletion.targets if target not in unapplied]
    if isinstance(change, Append):
        return data + b"".join(line + b"\n" for line in change.lines), applied
    return b"".join(change.pieces), applied


@pytest.mark.parametrize(("reader", "writer"), WRITERS)
def test_the_agent_rebuilds_the_approved_context(reader, writer):
    reading = reading_by(reader, "the test says so")

    @often
    @given(plans(reading, writer))
    def check(plan: Plan) -> None:
        data = factories.session_bytes(plan.recorded)
        try:
            after, applied = changed(reading, writer, plan)
        except BadInput as refused:
            if refused.code != "brings_back":
                raise
            return
        approved = approved_messages(context_of(reading, data), applied)
        assert sent(reading, context_of(reading, after).messages, after) == sent(reading, approved, data)

    check()
