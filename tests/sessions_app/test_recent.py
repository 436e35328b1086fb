"""Promises of recent results: worked out once, kept while they are used, and never more than so many."""

from sessions_app.recent import Recent


def test_a_result_is_worked_out_once_until_it_is_the_least_recently_used():
    recent = Recent[str, str](2)
    for key in ("a", "b", "a", "c"):
        recent.get(key, lambda: "first")
    assert recent.get("a", lambda: "second") == "first"
    assert recent.get("b", lambda: "second") == "second"


def test_nothing_is_kept_after_clearing():
    recent = Recent[str, str](2)
    recent.get("a", lambda: "first")
    recent.clear()
    assert recent.get("a", lambda: "second") == "second"
