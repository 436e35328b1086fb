"""What units are worth, and the choice of them: enough goes, little of worth is lost, and every step is counted."""

import itertools
import random

import pytest

from compaction_app.core import embedded
from compaction_app.core.embedded import CHANGED, EFFORT, SUPERSEDED, Choice, Worth, choose, given_query
from compaction_app.core.parameters import AUTO_DETECTED
from compaction_app.core.transcript import Object
from tests.budget import FACTOR
from tests.compaction_app.core.test_embedded import Session, names, prose, work


@pytest.fixture
def session():
    return Session("go on")


def worth_of(session: Session) -> Worth:
    session.user("end")
    return Worth(session.prepare(preserve_recent=1), {})


def price(worth: Worth, entry_id: str) -> float:
    """What the unit with this result or message is worth."""
    (index,) = [
        index
        for index, unit in enumerate(worth.units)
        if int(entry_id[1:]) - 1 in {found.position for found in unit.objects}
    ]
    return worth.price(index) * worth.units[index].tokens


@pytest.mark.parametrize("kept", [0, 5, 10])
def test_what_a_later_read_follows_is_worth_less_by_the_lines_that_still_stand(session, kept):
    lines = [f"line_of_file_{number}" for number in range(10)]
    old = session.calls("read", "\n".join(lines), path="a.py")
    session.calls("read", "\n".join([*lines[:kept], "another line"]), path="a.py")
    worth = worth_of(session)
    factors = [unit.factor for unit in worth.units if unit.touch is not None]
    assert factors == [pytest.approx(1 - SUPERSEDED * kept / 10), 1.0]
    assert (price(worth, old) > 0) is (kept < 10)


def test_a_read_of_a_file_that_was_changed_later_is_worth_more():
    def worth_with(path: str) -> float:
        session = Session("go on")
        read = session.calls("read", names("shown"), path="a.py")
        session.calls("edit", "ok", path=path, newText="another text")
        return price(worth_of(session), read)

    assert worth_with("a.py") == pytest.approx(CHANGED * worth_with("b.py"), rel=0.1)
    assert worth_with("a.py") > worth_with("b.py")


def test_a_name_at_the_beginning_of_an_arguments_line_is_a_copy(session):
    shown = session.calls("read", "some_name", path="a.txt")
    before = price(worth_of(session), shown)
    session.messages.pop()
    session.calls("bash", "ok", command="first\nsome_name")
    assert price(worth_of(session), shown) < before


def test_prose_without_names_is_worth_nothing(session):
    said = session.says("I see what has to be done, and do it.")
    assert price(worth_of(session), said) == 0


@pytest.mark.parametrize(
    ("settings", "query"),
    [({}, AUTO_DETECTED), ({"query": "the parser"}, "the parser"), ({"query": " Mend it. "}, AUTO_DETECTED)],
)
def test_a_query_counts_if_it_was_given_and_not_said_anyway(settings, query):
    session = Session("Mend it.")
    session.says("Done.")
    assert given_query(session.prepare(**settings)) == query


def free_units(worth: Worth) -> list[int]:
    return [index for index, unit in enumerate(worth.units) if unit.may_go]


def chosen(worth: Worth, to_go: int, effort: int = EFFORT) -> Choice:
    return choose(worth, free_units(worth), to_go, sum(unit.tokens for unit in worth.units), effort)


def gone(worth: Worth, units: tuple[int, ...]) -> int:
    return sum(worth.units[index].tokens for index in units)


def lost(worth: Worth, units: tuple[int, ...]) -> float:
    """What is lost by taking these units out, one after the other."""
    total = 0.0
    for index in units:
        total += worth.price(index) * worth.units[index].tokens
        worth.take_out(index)
    for index in units:
        worth.put_back(index)
    return total


def outputs(*sizes: tuple[int, int]) -> Session:
    """A wish, and outputs with so many names and words each."""
    session = Session("go on")
    for number, (count, words) in enumerate(sizes):
        session.calls("bash", f"{names(f'out_{number}', count)} {prose(number, words)}", command="run")
    return session


def test_a_large_cheap_unit_goes_although_it_is_too_much_and_everything_if_that_is_not_enough():
    worth = worth_of(outputs((1, 2_000), (20, 100), (20, 100), (20, 100)))
    large = max(free_units(worth), key=lambda index: worth.units[index].tokens)
    assert chosen(worth, worth.units[large].tokens - 300).units == (large,)
    worth = worth_of(outputs((3, 50), (4, 60)))
    assert set(chosen(worth, 1_000_000).units) == set(free_units(worth))


def test_what_still_fits_is_put_back_the_most_worth_first():
    worth = worth_of(outputs((0, 50), (1, 200), (2, 200), (5, 3_000)))
    first, second, third, large = free_units(worth)
    found = chosen(worth, worth.units[large].tokens - 10, effort=0)
    assert set(found.units) == {large}
    found = chosen(worth, worth.units[large].tokens + worth.units[first].tokens - 10, effort=0)
    assert set(found.units) == {first, large}
    assert second not in found.units
    assert third not in found.units


@pytest.mark.parametrize("seed", range(8 * FACTOR))
def test_enough_goes_and_nothing_that_could_stay(seed):
    transcript = work(Session(), seed, 60).prepare(preserve_recent=1)
    worth = Worth(transcript, {})
    units = free_units(worth)
    to_go = random.Random(seed).randrange(1, gone(worth, tuple(units)) * 9 // 10)
    found = chosen(worth, to_go)
    objects = {one for index in found.units for one in worth.units[index].objects}
    over = -to_go
    for entry in transcript.entries:
        slots = [slot for slot in range(len(entry.blocks)) if Object(entry.position, slot) in objects]
        is_gone = Object(entry.position) in objects or len(slots) == len(entry.blocks) > 0
        over += entry.tokens if is_gone else sum(entry.blocks[slot].tokens for slot in slots)
    assert over >= 0
    assert all(worth.units[index].tokens > over for index in found.units)
    assert len(set(found.units)) == len(found.units)


@pytest.mark.parametrize("seed", range(8 * FACTOR))
def test_swaps_lose_less(seed):
    worth = worth_of(work(Session(), seed, 60))
    to_go = gone(worth, tuple(free_units(worth))) // 2
    greedy, swapped = chosen(worth, to_go, effort=0), chosen(worth, to_go)
    assert lost(worth, swapped.units) <= lost(worth, greedy.units) + 1e-6
    assert not greedy.instead_of
    assert swapped.instead_of.keys() == swapped.instead_of.keys() & set(swapped.units) - set(greedy.units)
    assert not set(swapped.instead_of.values()) & set(swapped.units)


def test_a_few_units_are_chosen_nearly_as_well_as_by_trying_everything():
    bests, founds = 0.0, 0.0
    for seed in range(20):
        source = random.Random(seed)
        worth = worth_of(outputs(*((source.randrange(8), source.randrange(20, 400)) for _ in range(7))))
        units = free_units(worth)
        to_go = gone(worth, tuple(units)) // 2
        some = itertools.chain.from_iterable(itertools.combinations(units, count) for count in range(8))
        bests += min(lost(worth, one) for one in some if gone(worth, one) >= to_go)
        founds += lost(worth, chosen(worth, to_go).units)
    assert bests <= founds <= 1.1 * bests


def test_the_effort_is_limited(monkeypatch):
    worth = worth_of(work(Session(), 3, 120))
    to_go = gone(worth, tuple(free_units(worth))) // 2
    monkeypatch.setattr(embedded, "SWAPPED_SHARE", 0.0)
    # One more trial may be under way when the limit is reached.
    most = 2 * len(worth.units)
    assert chosen(worth, to_go, effort=2_000).looked <= 2_000 + most
    assert chosen(worth, to_go).looked <= 2 * most + embedded.ROUNDS * embedded.SWAPPED * most


def test_a_choice_leaves_the_worth_as_it_was():
    worth = worth_of(work(Session(), 5, 80))
    before = [worth.price(index) for index in range(len(worth.units))]
    found = chosen(worth, gone(worth, tuple(free_units(worth))) // 2)
    assert [worth.price(index) for index in range(len(worth.units))] == before
    assert chosen(worth, gone(worth, tuple(free_units(worth))) // 2) == found
