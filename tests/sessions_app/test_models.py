"""A session answers alike as a row and as a query."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from django.urls import reverse

from sessions_app.models import Root, Session, live
from sessions_app.sessionlog.context import ANY_WINDOW
from tests.installation import override_configuration

pytestmark = pytest.mark.usefixtures("redline")
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)


def sessions(**columns: tuple[object, ...]) -> list[Session]:
    """A row for each combination of these values."""
    root = Root.objects.create(path="/s", configured=True)
    rows = [
        Session(root=root, relative_path=f"{number}.jsonl", **dict(zip(columns, values, strict=True)))
        for number, values in enumerate(product(*columns.values()))
    ]
    return Session.objects.bulk_create(rows)


@pytest.mark.parametrize("minutes", [0, 5])
def test_a_session_is_live_by_the_same_rule_in_a_query(minutes):
    edge = nanoseconds(NOW - timedelta(minutes=minutes))
    rows = sessions(
        mtime_ns=(None, edge - 10**6, edge, edge + 10**6, nanoseconds(NOW)),
        own_write_ns=(None, edge + 10**6),
        missing=(False, True),
    )
    with override_configuration(live_minutes=minutes):
        found = {session for session in rows if session.is_live(NOW)}
        assert found == set(Session.objects.filter(live(NOW)))
        assert {(session.mtime_ns, session.missing) for session in found} >= {(edge + 10**6, False)}
        assert not any(session.is_live(NOW, edge) for session in rows), "exactly so long ago is not live any more"


def test_a_session_is_due_by_the_same_rule_in_a_query():
    rows = sessions(
        context_tokens=(None, 70, 71, 200),
        overflow=(None, 99, 100, ANY_WINDOW),
        window=(None, 100),
        reserve_tokens=(30,),
        tokens_after_first=(0, 19, 20),
        keep_recent_tokens=(0, 20),
    )
    assert {(session.tokens_after_first, session.keep_recent_tokens) for session in rows if session.due} == {
        *((0, 0), (19, 0), (20, 0), (20, 20))
    }
    assert {session for session in rows if session.due} == set(Session.objects.due())


@pytest.mark.parametrize("name", ["a.jsonl", "d/b c.jsonl", "ä~:@!$&'()*+,;=.jsonl", "%2F?#.jsonl", "a\nb.jsonl"])
def test_the_page_of_a_session_is_where_its_address_says(name):
    session = Session(root=Root(pk=7, path="/s"), relative_path=name)
    assert session.get_absolute_url() == reverse("compaction:session", args=(7, name))
