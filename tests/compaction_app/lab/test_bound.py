"""The bound: a plan that knows what will be needed."""

import pytest

from compaction_app.lab.bound import bound
from compaction_app.lab.measure import Needs
from compaction_app.lab.orders import ORDERS
from tests.compaction_app.lab.test_measure import NAMES, Recorded, branch, cuts_of, says
from tests.factories import assistant, text, user

FILLER = "so it goes on and on and on with plain words only " * 200


def needs(**places: Recorded) -> Needs:
    found = cuts_of(branch(**places), preserve_recent=0)[0].needs()
    assert found is not None
    return found


def with_filler(names: list[str], times: int = 1) -> Recorded:
    return assistant(text(" ".join([*names, FILLER * times])))


def test_what_is_needed_stays_if_it_fits():
    one = needs(e3=with_filler(NAMES), e4=with_filler([]), e5=with_filler([]), e6=with_filler([]), e25=says(NAMES))
    assert bound(one, 0.3).lost == ()
    assert ORDERS["oldest"](one.cut.prefix, 0.3)


def test_the_dearer_of_two_copies_goes():
    one = needs(e3=with_filler(NAMES, 3), e4=with_filler(NAMES), e25=says(NAMES))
    assert bound(one, 0.2).lost == ()


def test_of_what_does_not_fit_the_most_names_per_token_stay():
    one = needs(e3=with_filler(NAMES[:8]), e4=with_filler(NAMES[8:]), e25=says(NAMES))
    lost = {found.reference for found in bound(one, 0.15).lost}
    assert lost == set(NAMES[8:])


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_no_order_loses_less(share):
    places = {f"e{3 + number}": with_filler(NAMES[number : number + 3]) for number in range(12)}
    one = needs(**places, e25=says(NAMES), e2=user("again"))
    least = bound(one, share).share
    for order in ORDERS.values():
        assert least <= one.loss(order(one.cut.prefix, share)).share
