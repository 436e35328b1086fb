"""Confirm and Result: their sums agree, and what was not opened is named, can be opened, and needs a yes."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.core.review_fold import Kind
from compaction_app.models import Run
from compaction_app.pages.commit import deleted_of
from compaction_app.review.account import LastLook, ReviewAccount, account_of, last_look, undecided_look
from compaction_app.runs.commands import opened_targets, record_opened
from compaction_app.runs.reviews import approve_undecided, decide, review_of, undo
from redline.configuration import PriceSetting
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import Target
from tests.factories import assistant, call, chain, result, session_bytes, text, thinking, user, working_session
from tests.files import backdate, place
from tests.html import HOSTILE_TEXTS, element, elements, fields, link, missing, text_of, texts, values
from tests.installation import override_configuration
from tests.runs import approve_proposals, plan_session


def recorded() -> list[dict[str, Any]]:
    """A session with calls of several tools, thinking, and a model."""
    found = working_session()
    found[2]["message"]["content"].insert(0, thinking("I think of part 1. " * 20))
    for number, name in ((5, "bash"), (7, "edit")):
        found[number - 1]["message"]["content"][1]["name"] = name
        found[number]["message"]["toolName"] = name
    for entry in found:
        if entry.get("message", {}).get("role") == "assistant":
            entry["message"] |= {"provider": "p", "model": "claude-x"}
    return found


@pytest.fixture
def path(known_root):
    return place(known_root / "work.jsonl", session_bytes(recorded()))


@pytest.fixture
def run(path):
    return plan_session(index_file(path))


@pytest.fixture
def approved(run):
    return approve_proposals(run)


def leads(run: Run) -> list[Target]:
    return [item.target for item in review_of(run).leads()]


def look_at(run: Run) -> LastLook:
    return last_look(account_of(run))


def test_all_tables_have_the_headline_as_their_total(approved):
    look = look_at(approved)
    account = look.account
    stats = account.review.approved_stats
    assert look.tokens == account.struck == account.before.tokens - account.after.tokens > 0
    for rows in (account.kinds, account.tools):
        assert sum(row.struck for row in rows) == look.tokens
        assert sum(row.before for row in rows) == account.before.tokens
    deleted = deleted_of(account)
    assert sum(row.tokens for row in deleted["rows"]) == look.tokens
    assert sum(len(row.units) for row in deleted["rows"]) == len(account.approved)
    assert deleted["after"].tokens == pytest.approx(stats.tokens_after, rel=0.01)


def test_the_undecided_add_up_to_what_approving_them_removes(run):
    decide(run, Kind.APPROVE, leads(run)[:1], timezone.now())
    look = undecided_look(account_of(run))
    assert look.tokens == look.largest_tokens + sum(group.tokens for group in look.groups)
    before, undecided = look.account.after.tokens, look.tokens
    approve_undecided(run, timezone.now(), look.account.version)
    assert account_of(run).after.tokens == before - undecided


def test_the_pairs_are_part_of_each_number(run):
    decide(run, Kind.APPROVE, leads(run)[:2], timezone.now())
    account = account_of(run)
    assert (len(account.approved), account.entries + account.blocks) == (2, len(account.review.goes))
    assert account.entries + account.blocks > 2
    own = account.before.of(sum(unit.item.tokens for unit in account.approved))
    assert own < account.struck
    assert account.struck == pytest.approx(own + last_look(account).pair_tokens, rel=0.01)


def test_a_rejected_proposal_shows_what_it_would_have_removed(run):
    target = leads(run)[0]
    before = next(unit.tokens for unit in account_of(run).units if unit.target == target)
    decide(run, Kind.REJECT, [target], timezone.now())
    (kept,) = account_of(run).kept
    assert (kept.target, kept.tokens) == (target, pytest.approx(before, rel=0.01))
    assert look_at(run).tokens == 0


def numbers(row: Any) -> list[str]:
    return texts(row, "td.numeric")


def test_the_page_shows_its_headline_in_its_tables_what_nobody_opened_and_that_nothing_is_undecided(browser, approved):
    page = browser.get(f"/plans/{approved.pk}/confirm")
    struck = re.search(r"Delete ([\d,]+) of ([\d,]+) tokens", text_of(element(page, "h1")))
    kinds, tools = [numbers(foot)[:2] for foot in elements(page, "tfoot")[-2:]]
    assert kinds == tools == [struck[2], f"−{struck[1]}"]
    undecided = browser.get(f"/plans/{approved.pk}/confirm?undecided=1")
    assert "Nothing is undecided" in text_of(element(undecided, "h1"))
    assert not elements(undecided, "form[action$=approve-rest]")
    largest = look_at(approved).largest[0].target
    assert set(texts(page, "tbody .opened")) == {"not opened"}
    record_opened(approved, [largest], timezone.now())
    look = look_at(approved)
    assert look.largest[0].is_opened
    assert look.opened == look.in_bulk.opened == 1
    assert texts(browser.get(f"/plans/{approved.pk}/confirm"), "tbody .opened")[0] == "opened"


@pytest.mark.parametrize("ending", [b"", b"\n"], ids=["without-newline", "with-newline"])
def test_the_size_that_the_file_will_have_is_the_one_it_gets(browser, path, ending):
    place(path, path.read_bytes().rstrip(b"\n") + ending)
    run = approve_proposals(plan_session(index_file(path)))
    shown = text_of(browser.get(f"/plans/{run.pk}/confirm"))
    committed(browser, run)
    assert f"afterwards {path.stat().st_size:,} bytes" in shown


def test_a_spot_check_shows_the_largest_and_counts_as_opening_them(browser, approved):
    assert browser.get(f"/plans/{approved.pk}/confirm?look=nothing").status_code == 200
    assert opened_targets(approved) == frozenset()
    shown = [unit.target for unit in look_at(approved).unopened.unopened]
    page = browser.get(f"/plans/{approved.pk}/confirm")
    address = link(page, f"Look at {len(shown)} of them")
    page = browser.get(f"/plans/{approved.pk}/confirm{address}")
    assert len(elements(page, "article.sample")) == len(shown) <= 5
    assert opened_targets(approved) == frozenset(shown)
    assert texts(page, ".sample__text")[0]
    assert f"{len(shown)} of {len(leads(approved))}" in texts(page, "dd")
    assert look_at(approved).in_bulk.opened == len(shown)


@pytest.fixture
def with_names(run):
    """A plan all of which is approved; one of its proposals has names mentioned nowhere else."""
    proposal = run.proposals.order_by("order").first()
    run.proposals.filter(pk=proposal.pk).update(reason="an old output; 2 of the 3 names in it occur only there")
    decide(run, Kind.APPROVE, leads(run), timezone.now())
    return run, proposal.target


def test_what_was_not_opened_needs_a_yes_and_names_mentioned_nowhere_else_need_another(browser, with_names):
    run, target = with_names
    assert [unit.target for unit in look_at(run).unread_names.units] == [target]
    page = browser.get(f"/plans/{run.pk}/confirm")
    assert values(page, "yes") == ["unopened", "names"]
    every = len(leads(run))
    words = (f"{every} of {every} are approved without being opened, −", "1 contains names mentioned nowhere else")
    assert not missing(text_of(page), *words, "the model could not look up 2 names any more", "2 ticks missing")
    before, plan = run.session.real_path().read_bytes(), fields(page)["plan"][0]
    for yes, left in (([], 2), (["unopened"], 1), (["names"], 1), (["unopened", "nonsense"], 0)):
        refused = browser.post(f"/plans/{run.pk}/confirm", {"plan": plan, "yes": yes})
        assert (refused.status_code, len(elements(refused, "[aria-invalid]"))) == (422, left), yes
        assert run.session.real_path().read_bytes() == before
    browser.get(f"/plans/{run.pk}/confirm{link(page, 'Look at it')}")
    assert opened_targets(run) == {target}
    assert values(browser.get(f"/plans/{run.pk}/confirm"), "yes") == ["unopened"]
    record_opened(run, leads(run), timezone.now())
    page = browser.get(f"/plans/{run.pk}/confirm")
    assert "Nothing: you opened everything that you approved" in text_of(page)
    assert browser.post(f"/plans/{run.pk}/confirm", {"plan": plan}).status_code == 303


def test_ticks_that_were_set_for_another_plan_are_not_kept(browser, run):
    first, *rest = leads(run)
    decide(run, Kind.APPROVE, rest, timezone.now())
    plan = fields(browser.get(f"/plans/{run.pk}/confirm"))["plan"][0]
    decide(run, Kind.APPROVE, [first], timezone.now())
    refused = browser.post(f"/plans/{run.pk}/confirm", {"plan": plan, "yes": ["live"]})
    assert not elements(refused, "[name=yes][checked]")
    assert browser.post(f"/plans/{run.pk}/confirm", {"plan": plan, "yes": ["unopened"]}).status_code == 409


def test_what_was_approved_one_by_one_is_not_counted_as_approved_in_bulk(run):
    first, *rest = leads(run)
    decide(run, Kind.APPROVE, [first], timezone.now())
    decide(run, Kind.APPROVE, rest, timezone.now())
    look = look_at(run)
    assert (look.singly, look.in_bulk.count) == (1, len(rest))
    assert first not in {unit.target for unit in look.in_bulk.units}


def test_the_largest_and_the_groups_of_the_others_are_all_of_it(long_run):
    look = look_at(long_run)
    assert (len(look.largest), look.others.count) == (10, len(look.units) - 10)
    assert look.others.count == sum(group.count for group in look.groups) > 0
    assert look.tokens == look.largest_tokens + look.others.tokens


@pytest.fixture
def long_run(known_root):
    path = place(known_root / "long.jsonl", session_bytes(working_session(steps=30)))
    return approve_proposals(plan_session(index_file(path)))


def test_what_was_added_by_hand_is_named(browser, approved):
    assert "Added by you" not in text_of(browser.get(f"/plans/{approved.pk}/confirm"))
    stays = next(
        entry
        for entry in account_of(approved).transcript.entries
        if not entry.is_protected and Target(entry.entry_id) not in review_of(approved).goes and entry.result_for
    )
    decide(approved, Kind.ADD, [Target(stays.entry_id)], timezone.now())
    assert [unit.target.entry_id for unit in look_at(approved).by_hand] == [stays.entry_id]
    assert "Added by you" in texts(browser.get(f"/plans/{approved.pk}/confirm"), "dt")


def test_the_undecided_are_approved_by_one_decision_that_can_be_undone(browser, run, path):
    before = path.read_bytes()
    assert link(browser.get(f"/plans/{run.pk}/confirm"), "Approve everything undecided…") == "?undecided=1"
    first, *rest = leads(run)
    decide(run, Kind.REJECT, [first], timezone.now())
    page = browser.get(f"/plans/{run.pk}/confirm?undecided=1")
    assert f"Approve {len(rest)} undecided" in text_of(element(page, "h1"))
    assert f"You did not open {len(rest)} of them" in text_of(page)
    answer = browser.post(f"/plans/{run.pk}/approve-rest", {name: given[0] for name, given in fields(page).items()})
    assert (answer.status_code, answer["Location"]) == (303, f"/plans/{run.pk}/confirm")
    account = account_of(run)
    assert (len(account.approved), len(account.undecided)) == (len(rest), 0)
    assert all(unit.is_bulk for unit in account.approved)
    assert undo(run, timezone.now()) is not None
    assert len(account_of(run).undecided) == len(rest)
    assert path.read_bytes() == before


def test_a_form_shown_before_a_decision_or_of_another_plan_approves_nothing(browser, run):
    sent = {name: given[0] for name, given in fields(browser.get(f"/plans/{run.pk}/confirm?undecided=1")).items()}
    decide(run, Kind.REJECT, leads(run)[:1], timezone.now())
    for wrong in (sent, {}, {"seen": "x"}, {"seen": "0", "mark": "another"}):
        assert browser.post(f"/plans/{run.pk}/approve-rest", wrong).status_code in (409, 422), wrong
        assert not account_of(run).approved


def test_with_a_price_the_page_says_when_it_pays_and_without_one_only_tokens_are_given(browser, approved):
    page = text_of(browser.get(f"/plans/{approved.pk}/confirm"))
    assert missing(page, "The price of claude-x is not known", "$") == ["$"]
    with override_configuration(prices={"claude-x": PriceSetting(input=3, cache_read=0.3, cache_write=3.75)}):
        page = browser.get(f"/plans/{approved.pk}/confirm")
    assert elements(page, "svg.plot path.plot__struck")
    words = text_of(page)
    assert "$0.3 cache read, $3.75 cache write, per million tokens, from your configuration" in words
    assert re.search(r"Even after \d+ requests?", words)
    assert "because its price is not known" not in words


def test_what_is_counted_as_input_is_said_and_a_free_model_has_no_plot(browser, approved):
    pages = []
    for price in (3, 0):
        with override_configuration(prices={"claude-x": PriceSetting(input=price)}):
            pages.append(browser.get(f"/plans/{approved.pk}/confirm"))
    assert "Cached input is counted as input, because its price is not known." in text_of(pages[0])
    assert "Even after 1 request" in text_of(pages[0])
    assert not elements(pages[1], "svg.plot")
    assert "Even after" not in text_of(pages[1])


def committed(browser: Client, run: Run) -> Any:
    page = browser.get(f"/plans/{run.pk}/confirm")
    sent = {"plan": fields(page)["plan"][0], "yes": values(page, "yes")}
    assert browser.post(f"/plans/{run.pk}/confirm", sent).status_code == 303
    return browser.get(f"/plans/{run.pk}/result")


def test_the_result_says_who_proposed_and_approved_each_removal_and_how_to_continue(browser, approved):
    account, page = account_of(approved), committed(browser, approved)
    feet = [numbers(foot) for foot in elements(page, "tfoot")]
    struck = re.search(r"−([\d,]+) deleted", text_of(element(page, "h1")))
    assert [foot for foot in feet if f"−{struck[1]}" in foot] == feet
    (row, *_) = deleted_of(account)["rows"]
    shown = elements(browser.get(f"/plans/{approved.pk}/result?reason={row.key}"), "#each tbody tr")
    assert len(shown) == len(row.units)
    assert not missing(text_of(shown[0]), f"call {row.units[0].call}", f"with {len(leads(approved)) - 1} others")
    heights = [int(str(one.attributes["viewBox"]).split()[3]) for one in elements(page, ".maps svg")]
    assert heights[1] < heights[0]
    assert text_of(element(page, "[data-copy] code")).startswith("atomic --session")
    assert "hidden" in element(page, "[data-copy-button]").attributes
    assert browser.get(f"/plans/{approved.pk}/review.json").json()["compaction"]["backup"].endswith(".compact.bak")
    assert "SHA-256" in browser.get(f"/plans/{approved.pk}/review.md").content.decode()


def test_both_exports_have_the_numbers_of_the_page(browser, run):
    first, *rest = leads(run)
    decide(run, Kind.REJECT, [first], timezone.now())
    decide(run, Kind.APPROVE, rest, timezone.now())
    look, document = look_at(run), browser.get(f"/plans/{run.pk}/review.json").json()
    assert document["tokens"]["struck"] == look.tokens
    approved = [one for one in document["proposals"] if one["status"] == "approved"]
    assert sum(one["tokens"] for one in approved) == look.tokens
    assert {one["approvedTogether"] for one in approved} == {len(rest)}
    assert document["compaction"] is None
    answer = browser.get(f"/plans/{run.pk}/review.md")
    assert answer["Content-Type"] == "text/markdown; charset=utf-8"
    lines, struck = answer.content.decode().splitlines(), f"{significant(look.tokens):,}"
    assert sum(line.startswith("| All |") and f"| {struck} |" in line for line in lines) == 2
    assert f"| | All {len(rest)} | {struck} | | | | |" in lines


def test_a_run_that_was_never_prepared_has_no_export(browser, run):
    queued = Run.objects.create(session=run.session, planner="embedded", created_at=timezone.now())
    assert browser.get(f"/plans/{queued.pk}/review.json").status_code == 404
    assert browser.get(f"/plans/{queued.pk + 1}/review.md").status_code == 404


def test_the_command_prints_the_exports(redline, browser, approved):
    assert redline.call("review", approved.pk).out == browser.get(f"/plans/{approved.pk}/review.md").content.decode()
    assert redline.call("review", approved.pk, "--json").json == browser.get(f"/plans/{approved.pk}/review.json").json()
    assert redline.call("review", approved.pk + 1, "--json").error == "no_such_run"


def test_hostile_texts_are_no_markup_in_the_export(browser, known_root):
    hostile = [*HOSTILE_TEXTS, "a | b ``` c ` d", "[x](javascript:1) ![y](z) <b> # h"]
    steps = [
        one
        for number, words in enumerate(hostile)
        for one in (
            assistant(text("Step."), call(f"c{number}", name=words[:20], path=words)),
            result(f"c{number}", words * 60, name=words[:20]),
        )
    ]
    content = session_bytes(chain(user("go"), *steps, user("on"), assistant(text("ok"))))
    path = place(known_root / "hostile.jsonl", content)
    run = approve_proposals(plan_session(index_file(path)))
    exported = browser.get(f"/plans/{run.pk}/review.md").content.decode()
    assert not re.search(r"[<>\x1b\u202e\x00]|javascript|\]\(", re.sub(r"(`+) .*? \1(?!`)", "", exported))
    rows = [line for line in exported.splitlines() if line.startswith("| ") and "approved" in line]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {8}
    for page in ("confirm", "confirm?undecided=1", "review.json"):
        assert browser.get(f"/plans/{run.pk}/{page}").status_code == 200


def test_a_session_that_changed_since_still_has_its_numbers(browser, approved, path):
    struck = look_at(approved).tokens
    committed(browser, approved)
    path.write_bytes(session_bytes(recorded()[:4]))
    backdate(path)
    account: ReviewAccount = account_of(approved)
    assert account.struck == struck
    assert browser.get(f"/plans/{approved.pk}/result").status_code == 200
