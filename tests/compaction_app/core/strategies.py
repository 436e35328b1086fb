"""Sessions that are difficult to compact and deletions that were accepted on them, for property tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, assume, given, settings, strategies as st

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.gates import Restraints
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Transcript
from sessions_app.sessionlog.entries import Entry, Target, Texts, request_of
from tests import factories
from tests.budget import examples

Recorded = dict[str, Any]

often = settings(examples(), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
"""Many requests of generated sessions are refused."""


def given_often(*drawn: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test with the values of these strategies, as often as the budget allows."""
    return lambda test: often(given(*drawn)(test))


WORDS = st.sampled_from(["", "a look", "the parser fails at line 40", "naïve 🙂 text", "x" * 90])
CALL_IDS = st.sampled_from(["c1", "c2", "c3"])
BLOCKS = st.one_of(
    st.builds(factories.text, WORDS),
    st.builds(factories.thinking, WORDS),
    st.builds(lambda call_id, words: factories.call(call_id, words=words), CALL_IDS, WORDS),
    st.builds(lambda call_id, words: factories.call(call_id, words=words), CALL_IDS, WORDS),
)
RESULT_BLOCKS = st.one_of(st.builds(factories.text, WORDS), st.builds(factories.image))
DELETED = st.builds(
    lambda place, index: factories.whole(f"e{place}") if index is None else factories.block(f"e{place}", index),
    st.integers(1, 8),
    st.sampled_from([None, 0, 1, 2]),
)
MESSAGES = st.one_of(
    st.builds(
        lambda blocks, stop: factories.assistant(*blocks, stopReason=stop),
        st.lists(BLOCKS, max_size=4),
        st.sampled_from(["stop", "stop", "toolUse", "aborted", "error"]),
    ),
    st.builds(lambda blocks: factories.assistant(*blocks), st.lists(BLOCKS, min_size=1, max_size=3)),
    st.builds(
        lambda call_id, blocks, error: {**factories.result(call_id, error=error), "content": blocks},
        st.one_of(CALL_IDS, st.just("nowhere")),
        st.lists(RESULT_BLOCKS, min_size=1, max_size=2),
        st.sampled_from([False, False, False, True]),
    ),
    st.builds(factories.result, CALL_IDS, WORDS),
    st.builds(factories.user, WORDS),
    st.builds(factories.custom, WORDS),
    st.builds(factories.branch_summary, WORDS),
    st.builds(lambda words, code: factories.bash("make", words, code), WORDS, st.sampled_from([0, 0, 1])),
    st.builds(lambda words: factories.bash("make", words, excludeFromContext=True), WORDS),
    st.lists(DELETED, min_size=1, max_size=3).map(lambda deleted: factories.compaction(*deleted)),
)


@dataclass(frozen=True)
class AcceptedDeletion:
    """A session, its transcript, and a deletion that was accepted on it."""

    recorded: list[Recorded]
    branch: Sequence[Entry]
    texts: dict[str, Texts]
    transcript: Transcript
    restraints: Restraints
    deletion: ValidatedDeletion

    @property
    def gone(self) -> set[Target]:
        return set(self.deletion.targets)

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """Hypothesis would print what the constructors take, and a deletion forgets its seal."""
        printer.text(repr(self))


def objects(transcript: Transcript) -> list[Target]:
    return [
        Target(entry.entry_id, index)
        for entry in transcript.entries
        for index in [None, *(found.index for found in entry.blocks)]
    ]


@st.composite
def accepted_deletions(draw: st.DrawFn) -> AcceptedDeletion:
    """A request that was accepted; at least one target goes."""
    recorded = factories.chain(factories.user("fix it"), *draw(st.lists(MESSAGES, min_size=3, max_size=12)))
    branch, texts = factories.branch_and_texts(factories.session_bytes(recorded))
    transcript = factories.prepare(branch, texts, {"preserve_recent": draw(st.sampled_from([0, 0, 1, 3]))})
    assume(transcript is not None)
    everything = objects(transcript)
    restraints = Restraints(
        pins=frozenset(draw(st.lists(st.sampled_from(everything), max_size=2))),
        thinking_guard=draw(st.sampled_from(["latest", "latest", "all"])),
    )
    free = [target for target in everything if accepts(transcript, restraints, target)]
    assume(free)
    store = DeletionStore(transcript, restraints)
    for target in draw(st.lists(st.sampled_from(free), min_size=1, max_size=5)):
        store.delete(request_of([target]))
    return AcceptedDeletion(recorded, branch, texts, transcript, restraints, store.validated())


def accepts(transcript: Transcript, restraints: Restraints, target: Target) -> bool:
    return isinstance(validate(request_of([target]), transcript, restraints), ValidatedDeletion)
