"""The outline: every entry of a tree in one run, forks where they are, and the leaf once."""

from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.outline import OutlineRun, labels, runs
from sessions_app.sessionlog.tree import SessionTree
from tests.factories import assistant, bash, chain, session_log, text, user


def tree_of(*links: tuple[str, str | None]) -> SessionTree:
    """A tree of (id, parent id)."""
    return SessionTree(
        [Entry(number, 0, 0, *link, "message", EntryKind.MESSAGE, tokens=1) for number, link in enumerate(links, 2)]
    )


def shown(run: OutlineRun) -> tuple[str, int]:
    """The ids of a run, joined, and its depth."""
    return "".join(entry.id for entry in run.entries), run.depth


FORKED = tree_of(
    *(("a", None), ("b", "a"), ("c", "b"), ("d", "c"), ("p", "b")),
    *(("q", "p"), ("x", "q"), ("y", "q"), ("r", "b"), ("e", "d")),
)
"""a─b─┬─c─d─e, where b also continues to p─q (and from there to x and to y) and to r; e is last in the file."""


def test_a_session_without_forks_is_one_run():
    (run,) = runs(tree_of(("a", None), ("b", "a"), ("c", "b")))
    assert (shown(run), run.is_last, run.above, run.has_leaf) == (("abc", 0), True, (), True)
    assert (run.first.id, run.last.id, run.tokens) == ("a", "c", 3)


def test_a_fork_lists_its_branches_in_file_order_each_with_its_own_forks():
    drawn = [("ab", 0), ("cde", 1), ("pq", 1), ("x", 2), ("y", 2), ("r", 1)]
    assert [shown(run) for run in runs(FORKED)] == drawn


def test_each_run_knows_whether_other_branches_follow():
    assert {run.first.id: (run.is_last, run.above) for run in runs(FORKED)} == {
        "a": (True, ()),
        "c": (False, ()),
        "p": (False, ()),
        "x": (False, (True,)),
        "y": (True, (True,)),
        "r": (True, ()),
    }


def test_the_leaf_is_the_last_entry_in_the_file_not_in_the_drawing():
    assert [run.first.id for run in runs(FORKED) if run.has_leaf] == ["c"]


def test_several_roots_are_branches_of_one_fork():
    tree = tree_of(("a", None), ("r", "gone"), ("b", "a"), ("s", "r"))
    assert [(shown(run), run.is_last) for run in runs(tree)] == [(("ab", 1), False), (("rs", 1), True)]


def test_an_empty_session_has_no_runs():
    assert list(runs(tree_of())) == []


def test_only_messages_count_tokens():
    summary = {"type": "compaction", "summary": "x" * 400}
    log = session_log(chain(user("1234"), summary, assistant(text("1234")), bash("", "1")))
    (run,) = runs(SessionTree(log.entries))
    assert run.tokens == 3


ids = st.integers(0, 9).map(str)


@given(st.lists(st.tuples(ids, ids | st.none()), min_size=1, max_size=20))
@example([("0", "0"), ("0", "1"), ("1", "0")])
def test_each_id_and_the_leaf_are_drawn_once_in_any_damaged_tree(links):
    tree = tree_of(*links)
    drawn = list(runs(tree))
    assert sorted(entry.id for run in drawn for entry in run.entries) == sorted({one for one, _ in links})
    assert [run.has_leaf for run in drawn].count(True) == 1
    (leaf_run,) = [run for run in drawn if run.has_leaf]
    assert tree.leaf in leaf_run.entries
    for run in drawn:
        branch = tree.branch(run.last.id)
        assert tuple(branch[-len(run.entries) :]) == run.entries
        assert len(run.above) == max(0, run.depth - 1)


def test_a_ladder_of_1_500_forks_is_drawn():
    links: list[tuple[str, str | None]] = [("m0", None)]
    for number in range(1, 1_500):
        links += [(f"m{number}", f"m{number - 1}"), (f"s{number}", f"m{number - 1}")]
    drawn = list(runs(tree_of(*links)))
    assert len(drawn) == len(links)
    assert max(run.depth for run in drawn) == 1_499


# ---- labels -------------------------------------------------------------------------------------------------


def test_a_later_label_replaces_an_earlier_one_and_an_empty_one_removes_it():
    def label(target: object, *words: object) -> dict[str, object]:
        return {"type": "label", "targetId": target, **({"label": words[0]} if words else {})}

    log = session_log(
        chain(
            user("x"),
            *(label("e1", "first"), label("e1", "second"), label("e9", "of something that is not there")),
            *(label("e2", "x"), label("e2", ""), label("e3", "x"), label("e3"), label("e4", "x"), label("e4", 7)),
            *(label(None, "x"), label(["e1"], "x"), label("e5", "once"), label("e5", None), label("e5", "again")),
        )
    )
    expected = {"e1": "second", "e9": "of something that is not there", "e5": "again"}
    assert labels(SessionTree(log.entries)) == expected


def test_only_label_entries_set_labels():
    log = session_log(chain(user("x"), {"type": "custom", "targetId": "e1", "label": "x"}))
    assert labels(SessionTree(log.entries)) == {}
