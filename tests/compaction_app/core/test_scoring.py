"""What units are worth: what is needed again, what stands later, and what a file became."""

import pytest

from compaction_app.core.embedded import given_query
from compaction_app.core.parameters import AUTO_DETECTED
from compaction_app.core.scoring import CHANGED, SUPERSEDED, Worth
from tests.compaction_app.core.test_embedded import Session, names


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
def test_what_a_later_read_follows_is_worth_less_by_the_lines_that_still_stand(kept):
    session = Session("go on")
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


def test_a_name_at_the_beginning_of_an_arguments_line_is_a_copy():
    session = Session("go on")
    shown = session.calls("read", "some_name", path="a.txt")
    before = price(worth_of(session), shown)
    session.messages.pop()
    session.calls("bash", "ok", command="first\nsome_name")
    assert price(worth_of(session), shown) < before


def test_prose_without_names_is_worth_nothing():
    session = Session("go on")
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
