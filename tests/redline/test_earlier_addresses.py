"""Addresses of earlier versions lead to the pages of today."""

import pytest


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("/runs/", "/inbox"),
        ("/runs/7", "/plans/7/log"),
        ("/runs/7/review?at=e3", "/plans/7?at=e3"),
        ("/runs/7/commit?writer=fork", "/plans/7/confirm?writer=fork"),
        ("/runs/7/result", "/plans/7/result"),
        ("/handshakes/", "/inbox/agents"),
        ("/handshakes/3", "/inbox/agents/3"),
        ("/audit?page=2", "/history?page=2"),
        ("/backups", "/history/backups"),
        ("/agents", "/settings/agents"),
        ("/models/", "/settings/models"),
        ("/models/add", "/settings/models/add"),
        ("/providers/openai", "/settings/providers/openai"),
        ("/lab/", "/insights/benchmark"),
        ("/lab/2?keep=0.5", "/insights/benchmark/2?keep=0.5"),
        ("/lab/hindsight", "/insights/costs"),
    ],
)
def test_an_earlier_address_leads_to_the_page_of_today(browser, earlier, now):
    answer = browser.get(earlier)
    assert (answer.status_code, answer["Location"]) == (301, now)


def test_nothing_is_sent_to_an_earlier_address(browser):
    assert browser.post("/runs/7/commit").status_code == 405
