"""Promises of recent results: worked out once, kept while they are used, and never more than so many."""

from sessions_app.recent import Recent


def test_a_result_is_worked_out_once_until_it_is_the_least_recently_used_or_all_are_cleared():
    recent = Recent[str, str](2)
    for key in ("a", "b", "a", "c"):
        recent.get(key, lambda: "first")
    assert recent.get("a", lambda: "second") == "first"
    assert recent.get("b", lambda: "second") == "second"
    recent.clear()
    assert recent.get("a", lambda: "third") == "third"
