"""Automatic planning is switched on a page: it is in force as soon as it is saved, and the configuration locks it."""

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.models import Agreement, PlannerModel, Provider
from compaction_app.providers.addresses import origin_of
from compaction_app.runs.automatic import chosen_planner, is_on
from sessions_app.models import ChosenSetting
from tests.clients import page
from tests.html import element, elements, missing, text_of, texts

SWITCH = "button[role=switch]"


def send(browser: Client, **values: str) -> str:
    """Send the form, and return the words of the page that follows."""
    answer = browser.post("/settings/planning", values)
    assert (answer.status_code, answer["Location"]) == (303, "/settings#planning")
    return text_of(page(browser, "/settings"))


def test_the_switch_says_what_it_does_and_is_in_force_once_it_is_saved(browser, known_root):
    shown = page(browser, "/settings")
    assert (is_on(), element(shown, SWITCH).attributes["aria-checked"]) == (False, "false")
    assert "It never confirms a plan" in text_of(shown)
    for value, is_on_now in (("yes", True), ("no", False)):
        assert element(page(browser, "/settings"), SWITCH).attributes["value"] == value
        assert "in force now" in send(browser, on=value)
        assert is_on() is is_on_now
    assert ("plan_by_itself", "the settings page") in list(
        zip(
            *(texts(page(browser, "/settings/advanced"), f"td{one}") for one in (".setting-name", ".from")), strict=True
        )
    )


def test_a_planner_is_chosen_among_those_that_may_plan_without_asking(browser, known_root):
    for name in ("allowed", "other"):
        Provider.objects.create(name=name, dialect="openai", base_url=f"http://{name}.example:9/v1")
        PlannerModel.objects.create(provider=name, name="m", window=100_000, output_limit=8_000)
    Agreement.objects.create(
        provider="allowed", origin=origin_of("http://allowed.example:9/v1"), agreed_at=timezone.now()
    )
    offered = [one.attributes["value"] for one in elements(page(browser, "/settings"), "#planner option")]
    assert offered == ["embedded", "prune", "session", "allowed/m"]
    send(browser, planner="allowed/m")
    assert chosen_planner() == "allowed/m"
    assert "cannot plan automatically" in send(browser, planner="other/m")
    assert chosen_planner() == "allowed/m"
    Agreement.objects.all().delete()
    shown = text_of(page(browser, "/settings"))
    assert not missing(shown, "allowed/m (cannot be used now)", "You have not allowed automatic planning")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("redline.toml", "Set by redline.toml , line 2: plan_by_itself = true"),
        ("REDLINE_PLAN_BY_ITSELF", "Set by REDLINE_"),
    ],
)
def test_a_value_of_the_configuration_locks_the_switch_with_its_line(
    browser, known_root, settings, redline, source, words
):
    send(browser, on="no")
    (redline.data / "redline.toml").write_text("lock_seconds = 3\nplan_by_itself = true\n")
    settings.REDLINE_SOURCES = {"plan_by_itself": [source]}
    settings.REDLINE = settings.REDLINE.model_copy(update={"plan_by_itself": True})
    shown = page(browser, "/settings")
    assert words in text_of(shown)
    assert "disabled" in element(shown, SWITCH).attributes
    assert "sets plan_by_itself. Nothing was changed." in send(browser, on="no")
    assert (is_on(), ChosenSetting.objects.get().value) == (True, False)
