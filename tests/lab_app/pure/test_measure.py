"""The replay loss on a branch with known needs, by each measure, and the least that a plan can lose there."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from compaction_app.core.transcript import prepare
from lab_app.pure.measure import HORIZON, HORIZONS, Loss, NameIndex, Needs, ReplayCut, ReplayMeasure, bound, cuts
from lab_app.pure.strategies import ORDERS
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.sessionlog.entries import Entry, Target
from tests.factories import assistant, branch_and_texts, call, chain, result, session_bytes, text, user

Recorded = dict[str, Any]

NAMES = [f"src/module_{number:02}.py" for number in range(12)]
PADDING = "so it goes on and on and on with plain words only " * 800
"""About 10,000 tokens without a reference."""


def branch(**places: Recorded) -> list[Recorded]:
    """Fifty messages, e1 to e50, cut before e21, e31 and e41. Some are given, the others contain nothing relevant."""
    messages = [assistant(text("plain words only")) for _ in range(50)]
    messages[0] = user(PADDING)
    for entry_id, message in places.items():
        messages[int(entry_id[1:]) - 1] = message
    return messages


@pytest.fixture(params=list(ReplayMeasure))
def measure(request):
    return ReplayMeasure(request.param)


def cuts_of(messages: list[Recorded], **settings: object) -> list[ReplayCut]:
    entries, texts = branch_and_texts(session_bytes(chain(*messages)))
    rules = ATOMIC.format.generations[-1].rules

    def prepared(branch: Sequence[Entry]) -> Any:
        return prepare(branch, texts, settings, rules)

    return list(cuts(entries, prepared))


def losses(
    messages: list[Recorded],
    *targets: Target,
    measure: ReplayMeasure = ReplayMeasure.COMPONENTS,
    horizon: int = HORIZON,
) -> list[Loss]:
    needs = [cut.needs(measure, horizon) for cut in cuts_of(messages)]
    return [one.loss(targets) for one in needs if one is not None]


def counts(messages: list[Recorded], *targets: Target, **how: Any) -> list[tuple[float, int, int]]:
    return [(loss.cut, loss.needed, len(loss.lost)) for loss in losses(messages, *targets, **how)]


def says(names: list[str]) -> Recorded:
    return assistant(text(" and ".join(names)))


def test_a_deleted_reference_that_is_needed_again_is_lost_unless_kept_text_has_it(measure):
    messages = branch(e3=says(NAMES), e25=says(NAMES))
    assert counts(messages, Target("e3"), measure=measure) == [(0.4, 12, 12)]
    assert counts(messages, Target("e4"), measure=measure) == [(0.4, 12, 0)]
    assert counts(messages, measure=measure) == [(0.4, 12, 0)]
    (loss,) = losses(branch(e3=says(NAMES), e5=says(NAMES[:7]), e25=says(NAMES)), Target("e3"), measure=measure)
    assert (loss.needed, len(loss.lost), loss.share) == (12, 5, 5 / 12)
    assert counts(branch(e18=says(NAMES), e25=says(NAMES)), Target("e18"), measure=measure) == [(0.4, 12, 12)]


def test_a_deleted_block_loses_only_its_own_references(measure):
    messages = branch(e3=assistant(text(" ".join(NAMES[:4])), text(" ".join(NAMES[4:]))), e25=says(NAMES))
    assert [len(loss.lost) for loss in losses(messages, Target("e3", 0), measure=measure)] == [4]
    assert [len(loss.lost) for loss in losses(messages, Target("e3", 1), measure=measure)] == [8]


def test_each_cut_uses_its_own_prefix_and_forty_later_messages(measure):
    messages = branch(e3=says(NAMES), e35=says(NAMES))
    assert [(loss.cut, len(loss.lost)) for loss in losses(messages, Target("e3"), measure=measure)] == [
        (0.4, 12),
        (0.6, 12),
    ]
    messages = branch(e3=says(NAMES), e50=says(NAMES))
    assert [loss.cut for loss in losses(messages, Target("e3"), measure=measure)] == [0.4, 0.6, 0.8]
    far = [*branch(e3=says(NAMES)), *(assistant(text("plain words only")) for _ in range(50))]
    # A hundred messages, cut before e41, e61 and e81: e81 is one message beyond the first cut's forty.
    far[80] = says(NAMES)
    assert [loss.cut for loss in losses(far, Target("e3"), measure=measure)] == [0.6, 0.8]


@pytest.mark.parametrize(
    "places",
    [
        # Still visible: the prefix's last two messages contain it.
        {"e3": says(NAMES), "e19": says(NAMES), "e25": says(NAMES)},
        {"e3": says(NAMES), "e20": says(NAMES), "e25": says(NAMES)},
        # Shown to the model again before it wrote it.
        {"e3": says(NAMES), "e22": user(" ".join(NAMES)), "e25": says(NAMES)},
        # Not in the prefix: the model has it from elsewhere.
        {"e25": says(NAMES)},
        # Not written by an assistant.
        {"e3": says(NAMES), "e25": user(" ".join(NAMES))},
        # Too few to count.
        {"e3": says(NAMES[:9]), "e25": says(NAMES[:9])},
    ],
)
def test_references_not_needed_from_the_prefix_are_not_counted(places, measure):
    assert losses(branch(**places), Target("e3"), measure=measure) == []


def test_the_arguments_of_a_call_count_as_written_but_its_id_does_not(measure):
    calls = [call(name, "read", path=name.replace("module", "other")) for name in NAMES]
    assert losses(branch(e3=says(NAMES), e25=assistant(*calls)), Target("e3"), measure=measure) == []
    calls = [call(f"c{number}", "read", path=name) for number, name in enumerate(NAMES)]
    messages = branch(e3=says(NAMES), e25=assistant(*calls))
    assert counts(messages, Target("e3"), measure=measure) == [(0.4, 12, 12)]


def test_a_cut_moves_past_tool_results_and_a_branch_too_short_or_too_small_has_none(measure):
    # The cut before e21 moves to e23: e21 and e22 are then the last two messages of the prefix.
    moved = branch(e3=says(NAMES), e21=result("c1", " ".join(NAMES)), e22=result("c1", "plain"), e25=says(NAMES))
    assert losses(moved, Target("e3"), measure=measure) == []
    messages = branch(e3=says(NAMES), e25=says(NAMES))
    assert losses(messages[:39], Target("e3"), measure=measure) == []
    assert losses([user("short"), *messages[1:]], Target("e3"), measure=measure) == []


def test_a_cut_gives_the_prefix_as_it_was_prepared():
    cut = cuts_of(branch(e3=says(NAMES), e25=says(NAMES)), preserve_recent=5, compression_ratio=0.3)[0]
    assert [entry.entry_id for entry in cut.prefix.entries] == [f"e{number}" for number in range(1, 21)]
    assert (cut.prefix.parameters.preserve_recent, cut.prefix.parameters.compression_ratio) == (5, 0.3)
    assert (cut.share, cut.at, cut.next_entry_id) == (0.4, 20, "e21")


def test_a_horizon_is_a_number_of_messages():
    messages = branch(e3=says(NAMES), e41=says(NAMES))
    messages += [assistant(text("plain words only")) for _ in range(50)]
    assert [horizon for horizon in HORIZONS if losses(messages, horizon=horizon)] == [20, 40, 100]
    messages[40], messages[60] = messages[60], messages[40]
    assert [loss.cut for loss in losses(messages, horizon=20)] == [0.6]
    assert [loss.cut for loss in losses(messages, horizon=40)] == [0.4, 0.6]


def test_a_lost_reference_names_its_entries(measure):
    messages = branch(e3=says(NAMES), e5=says(NAMES[:1]), e25=says(NAMES[:6]), e27=says(NAMES))
    (loss,) = losses(messages, Target("e3"), Target("e5"), measure=measure)
    stood = {one.reference: one.stood_in for one in loss.lost}
    assert stood == {name: ("e3", "e5") if name == NAMES[0] else ("e3",) for name in NAMES}
    needed = {one.reference: one.needed_in for one in loss.lost}
    assert needed == {name: "e25" if name in NAMES[:6] else "e27" for name in NAMES}


WORDS = [f"name_{number:02}" for number in range(12)]


def lost_by(messages: list[Recorded], measure: ReplayMeasure, *targets: Target) -> list[tuple[float, int, int]]:
    return counts(messages, *targets, measure=measure)


def test_arguments_are_decoded():
    """A name at the beginning of a line of an argument: as JSON it is `nname_00`."""
    messages = branch(e3=says(WORDS), e25=assistant(*(call(f"c{name}", "write", text=f"\n{name}") for name in WORDS)))
    assert lost_by(messages, ReplayMeasure.COMPONENTS, Target("e3")) == [(0.4, 12, 12)]
    assert lost_by(messages, ReplayMeasure.SUBSTRINGS, Target("e3")) == []


def test_a_part_of_a_component_is_not_the_reference_and_what_was_shown_among_others_is_not_needed():
    messages = branch(e3=says(WORDS), e5=says([f"{name}_old" for name in WORDS]), e25=says(WORDS))
    assert lost_by(messages, ReplayMeasure.COMPONENTS, Target("e3")) == [(0.4, 12, 12)]
    assert lost_by(messages, ReplayMeasure.SUBSTRINGS, Target("e3")) == [(0.4, 12, 0)]
    paths = [f"src/{name}.py" for name in WORDS]
    messages = branch(e3=says(WORDS), e5=says(paths), e25=says(WORDS))
    assert lost_by(messages, ReplayMeasure.COMPONENTS, Target("e3")) == [(0.4, 12, 0)]
    messages = branch(e3=says(WORDS), e22=user(" ".join(paths)), e25=says(WORDS))
    assert lost_by(messages, ReplayMeasure.COMPONENTS, Target("e3")) == []
    assert lost_by(messages, ReplayMeasure.SUBSTRINGS, Target("e3")) == [(0.4, 12, 12)]


FILLER = "so it goes on and on and on with plain words only " * 200


def needs(**places: Recorded) -> Needs:
    found = cuts_of(branch(**places), preserve_recent=0)[0].needs()
    assert found is not None
    return found


def with_filler(names: list[str], times: int = 1) -> Recorded:
    return assistant(text(" ".join([*names, FILLER * times])))


def test_what_is_needed_stays_if_it_fits_else_the_cheaper_copy_and_the_most_names_per_token():
    one = needs(e3=with_filler(NAMES), e4=with_filler([]), e5=with_filler([]), e6=with_filler([]), e25=says(NAMES))
    assert bound(one, 0.3).lost == ()
    assert ORDERS["oldest"](one.cut.prefix, 0.3)
    one = needs(e3=with_filler(NAMES, 3), e4=with_filler(NAMES), e25=says(NAMES))
    assert bound(one, 0.2).lost == ()
    one = needs(e3=with_filler(NAMES[:8]), e4=with_filler(NAMES[8:]), e25=says(NAMES))
    assert {found.reference for found in bound(one, 0.15).lost} == set(NAMES[8:])


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_no_order_loses_less(share):
    places = {f"e{3 + number}": with_filler(NAMES[number : number + 3]) for number in range(12)}
    one = needs(**places, e25=says(NAMES), e2=user("again"))
    least = bound(one, share).share
    for order in ORDERS.values():
        assert least <= one.loss(order(one.cut.prefix, share)).share


TEXT = "a well-known Read-only claude-code-2 in src/app.py:42 of 3foo_bar and x1.foo_bar, readFile"


def test_only_the_older_measure_takes_hyphenated_words_ends_of_components_and_raw_arguments():
    found = {"claude-code-2", "src/app.py:42", "x1.foo_bar", "readFile"}
    assert ReplayMeasure.COMPONENTS.references(TEXT) == found
    assert ReplayMeasure.SUBSTRINGS.references(TEXT) == found | {"well-known", "Read-only", "foo_bar"}
    arguments = '{"path":"a.py","edits":[{"new_text":"one\\ntwo"},3,null]}'
    text = ReplayMeasure.COMPONENTS.call_text("edit", arguments)
    assert set(text.split("\n")) == {"edit", "path", "a.py", "edits", "new_text", "one", "two"}
    assert ReplayMeasure.SUBSTRINGS.call_text("edit", arguments) == f"edit {arguments}"


@pytest.mark.parametrize("arguments", ["", "{", "[" * 100_000])
def test_arguments_that_are_not_json_are_taken_as_they_are(arguments):
    assert ReplayMeasure.COMPONENTS.call_text("edit", arguments) == f"edit\n{arguments}"


@pytest.mark.parametrize(
    ("reference", "places", "substrings"),
    [
        ("foo_bar", "bc", "abc"),
        ("src/foo_bar", "c", "c"),
        ("foo_bar.py", "c", "c"),
        ("other", "", ""),
        ("rc/foo_bar", "", "c"),
    ],
)
def test_a_reference_stands_in_whole_components(reference, places, substrings):
    texts = [("a", {"my_foo_bar"}), ("b", {"foo_bar", "foo_bar_2"}), ("c", {"src/foo_bar.py"})]
    assert "".join(NameIndex(ReplayMeasure.COMPONENTS, texts).standing(reference)) == places
    assert "".join(NameIndex(ReplayMeasure.SUBSTRINGS, texts).standing(reference)) == substrings


def test_the_very_same_token_is_found_alone():
    index = NameIndex(ReplayMeasure.SUBSTRINGS, [(1, {"foo_bar_2"}), (2, {"foo_bar"}), (3, {"foo_bar"})])
    assert index.same("foo_bar") == (2, 3)
    assert index.same("bar_2") == ()


@given(st.lists(st.text(alphabet="ab_./:-", min_size=1, max_size=8), min_size=1, max_size=8))
def test_the_index_finds_what_a_search_by_components_finds(names):
    index = NameIndex(ReplayMeasure.COMPONENTS, [(name, [name]) for name in dict.fromkeys(names)])
    for reference in names:
        if not reference.strip("./:-"):
            continue
        bounded = re.compile(rf"(?<!\w){re.escape(reference)}(?!\w)")
        assert set(index.standing(reference)) >= {reference}
        assert set(index.standing(reference)) == {name for name in names if bounded.search(name)}
