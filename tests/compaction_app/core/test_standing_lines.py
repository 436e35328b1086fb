"""How many lines of what was read still stand in what stays: a simple version, compared on random histories."""

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_app.core.file_touches import FileCall, Touch, file_calls
from compaction_app.core.standing_lines import FileHistory, Standing
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import Object
from tests.budget import some
from tests.compaction_app.core.test_embedded import Run
from tests.factories import branch_and_texts, prepare
from tests.paths import corpus, corpus_sessions

KINDS = st.sampled_from(["read", "part", "edit", "write"])
CALLS = st.lists(
    st.tuples(KINDS, st.sampled_from("ab"), st.lists(st.integers(0, 6), max_size=6), st.booleans()), max_size=12
)
Drawn = Sequence[tuple[str, str, Sequence[int], bool]]


def history(drawn: Drawn) -> tuple[list[FileCall], set[Object]]:
    """Calls at positions 0, 1, … with these lines, and what of them stays."""
    calls = [
        FileCall(100 + at, at, Touch(kind, path), Object(at), array("q", lines))
        for at, (kind, path, lines, _) in enumerate(drawn)
    ]
    return calls, {Object(at) for at, (*_, stays) in enumerate(drawn) if stays}


@given(CALLS, st.randoms())
def test_a_line_stands_if_a_later_call_on_its_file_that_stays_has_it(drawn, source):
    calls, staying = history(drawn)
    shuffled = sorted(calls, key=lambda call: hash((call.order, str(source))))
    found = FileHistory(shuffled).standing(staying.__contains__)
    for call in calls:
        same = [one for one in calls if one.touch.path == call.touch.path and one.position > call.position]
        stays = [one for one in same if one.shown in staying]
        if not same:
            assert call.order not in found
            continue
        lines = sum(any(line in one.lines for one in stays) for line in call.lines)
        assert found[call.order].standing == Standing(lines, len(call.lines))
        wholes = [one for one in stays if one.touch.kind in ("read", "write")] or stays
        assert found[call.order].call is (wholes[-1] if wholes else None)


@given(CALLS)
def test_the_best_of_the_later_calls_has_most_of_the_lines(drawn):
    calls, staying = history(drawn)
    found = FileHistory(calls)
    for call in calls:
        later = [one for one in found.later(call.order) if one.shown in staying]
        best = found.best(call.order, staying.__contains__)
        shared = [len(set(call.lines) & set(one.lines)) for one in later]
        assert (best is None) == (max(shared, default=0) == 0)
        if best is not None:
            at = max(number for number, count in enumerate(shared) if count == max(shared))
            assert best is later[at]


@pytest.mark.parametrize(("lines", "total", "enough"), [(8, 10, True), (79, 100, False), (0, 0, True), (0, 3, False)])
def test_four_fifths_are_enough(lines, total, enough):
    assert Standing(lines, total).is_enough is enough


def test_a_count_of_lines_in_words():
    assert str(Standing(1_132, 14_300)) == "1,132 of 14,300"


def test_a_superseded_read_of_a_real_session_has_most_of_its_lines_in_what_stays(tmp_path):
    for path in some(corpus_sessions(tmp_path)):
        transcript = prepare(*branch_and_texts(path.read_bytes()), {})
        if transcript is not None:
            require_true_claims(Run(transcript), transcript)


def require_true_claims(run: Run, transcript: Transcript) -> None:
    standing = FileHistory(file_calls(transcript)).standing(lambda found: found not in run.store)
    for order, later in standing.items():
        shown = transcript.pairs.calls[order].results[0]
        origin = run.loop.origins.get(run.store.airlock.target(shown))
        if origin is not None and origin.reason.startswith("superseded") and later.standing.total:
            assert later.standing.is_enough, origin.reason
            assert later.call is not None


def test_a_read_of_a_real_session_is_counted_line_by_line():
    path = corpus()
    if path is None:
        pytest.skip("there are no real sessions")
    transcript = prepare(*branch_and_texts((path / "pi/large-session.v3.jsonl").read_bytes()), {})
    assert transcript is not None
    run = Run(transcript)
    read = transcript.entry("00000152")
    assert read is not None
    call = transcript.pairs.answered_by(read)
    assert call is not None
    history = FileHistory(file_calls(transcript))
    assert str(history.standing(lambda found: found not in run.store)[call.order].standing) == "132 of 143"
    best = history.best(call.order, lambda found: found not in run.store)
    assert best is not None
    assert transcript.entries[best.shown.position].entry_id == "00000383"
