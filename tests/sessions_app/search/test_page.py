"""The page of the search: places by session, facets with counts, links to the entries, and nothing active in texts."""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app.index.indexer import index_paths
from sessions_app.models import Session
from sessions_app.search.text_index import update_texts
from tests.clients import page
from tests.factories import assistant, call, chain, result, session_bytes, text, thinking, user
from tests.files import place
from tests.html import HOSTILE_TEXTS, assert_inert, element, elements, text_of, texts


def add(root: Path, name: str, *messages: dict[str, Any], is_searchable: bool = True) -> Session:
    place(root / name, session_bytes(chain(*messages)))
    index_paths([root])
    for _ in update_texts() if is_searchable else ():
        pass
    return Session.objects.get(relative_path=name)


def searched(browser: Client, typed: str, **narrowed: Any) -> Any:
    return page(browser, "/search", q=typed, **narrowed)


def facets(answer: Any) -> dict[str, dict[str, int]]:
    return {
        facet.name: {choice.value: choice.places for choice in facet.choices}
        for facet in answer.context["results"].facets
        if facet.choices
    }


@pytest.fixture
def sessions(known_root):
    asked = user("Why does the needle break?")
    looked = assistant(thinking("A needle, hm"), text("The needle is old"), call("c1", "bash", command="find needle"))
    found = (result("c1", "needle: 3 of 4", name="bash"), assistant(text("and a needle again")))
    second = (user("nothing"), assistant(text("a needle in hay")))
    return [add(known_root, "a.jsonl", asked, looked, *found), add(known_root, "b.jsonl", *second)]


def test_places_are_grouped_by_session_and_marked(known_root, browser, sessions):
    answer = searched(browser, "needle")
    results = answer.context["results"]
    assert (results.places, results.sessions) == (7, 2)
    found = [(found.session, found.places, found.more) for found in results.found]
    assert found == [(sessions[0], 6, 3), (sessions[1], 1, 0)]
    assert [hit.who for hit in results.found[0].hits] == ["you", "assistant", "assistant"]
    assert {mark.text() for mark in elements(answer, "mark")} == {"needle"}
    assert "7 places in 2 sessions" in text_of(answer)


def test_a_place_leads_to_its_entry_with_the_search(browser, sessions):
    answer = searched(browser, "needle", session=sessions[1].pk)
    (address,) = [hit.attributes["href"] for hit in elements(answer, ".hit")]
    entry = sessions[1].entries.get(role="assistant").entry_id
    assert address == f"{sessions[1].get_absolute_url()}/entries/{entry}?q=needle"
    assert browser.get(address).status_code == 200


def test_facets_count_what_they_would_leave(browser, sessions):
    found = facets(searched(browser, "needle"))
    assert found["in"] == {"said": 1, "reply": 3, "thinking": 1, "call": 1, "result": 1}
    assert found["tool"] == {"bash": 1}
    assert found["is"] == {"seen": 7}
    narrowed = searched(browser, "needle", **{"in": "reply"})
    assert narrowed.context["results"].places == 3
    assert facets(narrowed)["in"] == found["in"]
    assert "tool" not in facets(narrowed)
    assert narrowed.context["results"].found[0].hits[0].who == "assistant"


def test_a_tool_has_one_name_however_its_agent_writes_it(known_root, browser, sessions):
    add(known_root, "c.jsonl", user("go"), assistant(call("c1", "Bash")), result("c1", "a needle", name="Bash"))
    assert facets(searched(browser, "needle"))["tool"] == {"bash": 2}
    for written in ("bash", "Bash"):
        assert searched(browser, f"needle tool:{written}").context["results"].places == 2


def test_a_filter_in_the_query_narrows_too(browser, sessions):
    for narrowed, places in (("tool:bash", 1), ("agent:codex", 0), ("project:project", 7), ("until:1999", 0)):
        assert searched(browser, f"needle {narrowed}").context["results"].places == places, narrowed
    assert "in:nobody was ignored" in text_of(searched(browser, "needle in:nobody"))


def test_only_what_was_ticked_can_be_unticked(browser, sessions):
    answer = searched(browser, "needle is:seen", **{"in": "reply"})
    ticks = {one.attributes["value"]: one.attributes for one in elements(answer, ".facet input[checked]")}
    assert {value: "disabled" in attributes for value, attributes in ticks.items()} == {"reply": False, "seen": True}


def test_empty_states_say_what_to_do(browser, known_root):
    assert "No sessions yet" in text_of(searched(browser, ""))
    add(known_root, "a.jsonl", user("alpha"))
    for typed, said in {
        "": "Search everything",
        "-alpha": "Add a word",
        "absent": "Nothing found",
        "alpha tool:bash": "Search without filters",
    }.items():
        assert said in text_of(searched(browser, typed))
    add(known_root, "b.jsonl", user("bravo"), is_searchable=False)
    assert "searchable: 1 of 2 sessions" in text_of(searched(browser, "alpha"))


def test_sessions_of_other_directories_are_not_shown(browser, tmp_path, known_root):
    add(tmp_path / "other", "c.jsonl", user("secret needle"))
    answer = searched(browser, "secret")
    assert (answer.context["results"].places, "c.jsonl" in text_of(answer)) == (0, False)


@pytest.mark.parametrize("hostile", HOSTILE_TEXTS)
def test_hostile_texts_are_inert(browser, known_root, hostile):
    called = assistant(call("c", hostile, path=f"needle {hostile}"))
    session = add(known_root, "a.jsonl", user(f"needle {hostile}"), called)
    typed = hostile.encode("utf-8", "replace").decode()
    for query in ("needle", f"needle {typed}"):
        assert_inert(searched(browser, query))
    assert_inert(browser.get(session.get_absolute_url(), {"q": f"absent {typed}"}))


def test_a_removed_file_is_said_beside_its_place(browser, known_root):
    session = add(known_root, "a.jsonl", user("needle"))
    session.path.unlink()
    assert "does not exist" in text_of(searched(browser, "needle"))


def test_htmx_gets_the_results_only(browser, sessions):
    part = browser.get("/search", {"q": "needle"}, headers={"HX-Request": "true"})
    assert part.content.lstrip().startswith(b'<div id="results">')


def test_queries_do_not_grow_with_the_results(browser, known_root):
    def queries():
        with CaptureQueriesContext(connection) as made:
            searched(browser, "needle")
        return len(made)

    add(known_root, "a.jsonl", user("needle"))
    few = [queries(), queries()]
    for number in range(5):
        add(known_root, f"{number}.jsonl", user("needle"), user("a needle"))
    assert [queries(), queries()] == few == [6, 2]


def test_odd_addresses_are_answered(browser, sessions):
    for query in ("page=0", "page=99", "page=x", "session=x", "session=99", "sort=x", "in=x", "q=%00"):
        assert browser.get(f"/search?q=needle&{query}").status_code == 200, query


def test_every_page_leads_to_the_search(browser, sessions):
    for address in ("/", "/search", sessions[0].get_absolute_url(), "/settings"):
        assert element(browser.get(address), "#jump").attributes["href"] == "/search"


def found_in_palette(browser: Client, typed: str) -> list[str]:
    return texts(browser.get("/go", {"q": typed}, headers={"HX-Request": "true"}), ".palette__name")


def test_the_palette_finds_sessions_by_title_pages_by_name_and_offers_the_search(browser, sessions):
    assert found_in_palette(browser, "")[-1] == "Search"
    assert found_in_palette(browser, "settings mod") == ["Settings: models", "Search “settings mod” in all sessions"]
    title = sessions[0].heading
    assert found_in_palette(browser, title[:12])[0] == title
    hostile = "<b>\x1b\u202e"
    assert found_in_palette(browser, hostile) == ["Search “<b>\\x1b\\u202e” in all sessions"]


def test_the_palette_s_address_leads_to_the_search(browser, sessions):
    assert browser.get("/go?q=a+b")["Location"] == "/search?q=a+b"


def within(browser: Client, address: str) -> Any:
    return browser.get(address).context["search"]


def test_a_search_within_a_session_goes_to_its_first_place(browser, sessions):
    address = sessions[0].get_absolute_url()
    ids = list(sessions[0].entries.order_by("offset").values_list("entry_id", flat=True))
    answer = browser.get(address, {"q": "needle -nothing"})
    assert (answer.status_code, answer["Location"]) == (303, f"{address}/entries/{ids[0]}?q=needle+-nothing")
    places = [within(browser, f"{address}/entries/{entry}?q=needle") for entry in ids]
    assert [(one.position, one.entries) for one in places] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [one.next for one in places] == [*ids[1:], ids[0]]
    assert [one.previous for one in places] == [ids[-1], *ids[:-1]]


def test_a_place_between_two_finds_has_both(browser, known_root):
    session = add(known_root, "a.jsonl", user("needle"), user("hay"), user("needle again"))
    first, hay, last = session.entries.order_by("offset").values_list("entry_id", flat=True)
    found = within(browser, f"{session.get_absolute_url()}/entries/{hay}?q=needle")
    assert (found.position, found.entries, found.previous, found.next) == (0, 2, first, last)


def test_a_search_within_a_session_that_finds_nothing_says_so(browser, sessions):
    assert "not found" in text_of(page(browser, sessions[1].get_absolute_url(), q="needle in:user"))


def test_a_session_that_is_not_searchable_yet_says_so(browser, known_root):
    session = add(known_root, "a.jsonl", user("needle"), is_searchable=False)
    assert "being read" in text_of(browser.get(session.get_absolute_url(), {"q": "needle"}))
