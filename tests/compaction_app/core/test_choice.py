"""The choice of units: enough goes, little of worth is lost, and every step is counted."""

import itertools
import random

import pytest

from compaction_app.core import choice
from compaction_app.core.choice import EFFORT, Choice, choose
from compaction_app.core.scoring import Worth
from compaction_app.core.transcript_entries import Object
from tests.budget import FACTOR
from tests.compaction_app.core.test_embedded import Session, names, prose, work


def worth_of(session: Session) -> Worth:
    return Worth(session.prepare(preserve_recent=1), {})


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
    """A wish, outputs with so many names and words each, and an ending."""
    session = Session("go on")
    for number, (count, words) in enumerate(sizes):
        session.calls("bash", f"{names(f'out_{number}', count)} {prose(number, words)}", command="run")
    session.user("end")
    return session


def test_a_large_cheap_unit_goes_although_it_is_more_than_has_to_go():
    worth = worth_of(outputs((1, 2_000), (20, 100), (20, 100), (20, 100)))
    large = max(free_units(worth), key=lambda index: worth.units[index].tokens)
    assert chosen(worth, worth.units[large].tokens - 300).units == (large,)


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


def test_if_everything_is_not_enough_everything_goes():
    worth = worth_of(outputs((3, 50), (4, 60)))
    assert set(chosen(worth, 1_000_000).units) == set(free_units(worth))


def test_the_effort_is_limited(monkeypatch):
    worth = worth_of(work(Session(), 3, 120))
    to_go = gone(worth, tuple(free_units(worth))) // 2
    monkeypatch.setattr(choice, "SWAPPED_SHARE", 0.0)
    # One more trial may be under way when the limit is reached.
    most = 2 * len(worth.units)
    assert chosen(worth, to_go, effort=2_000).looked <= 2_000 + most
    assert chosen(worth, to_go).looked <= 2 * most + choice.ROUNDS * choice.SWAPPED * most


def test_a_choice_leaves_the_worth_as_it_was():
    worth = worth_of(work(Session(), 5, 80))
    before = [worth.price(index) for index in range(len(worth.units))]
    found = chosen(worth, gone(worth, tuple(free_units(worth))) // 2)
    assert [worth.price(index) for index in range(len(worth.units))] == before
    assert chosen(worth, gone(worth, tuple(free_units(worth))) // 2) == found
