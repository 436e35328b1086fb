"""Models on the command line follow the rules of the Models page, and a key is never an argument."""

import io
import stat
import subprocess
import sys
from typing import Any, Final

import pytest

from compaction_app.models import PlannerModel, Provider
from compaction_app.providers.api_keys import read_keys
from tests.html import missing
from tests.installation import Installation, finish

KEY: Final = "sk-0123456789abcdefghijklmn"
URL: Final = "https://api.example.com/v1"
LIMITS: Final = ("--window", "100,000", "--output-limit", "8000")
HERE: Final = (*LIMITS, "--base-url", URL)


def added(redline: Installation, model: str = "acme/m-1", *more: str) -> Any:
    return redline.call("models", "add", model, *HERE, *more, "--json").ok().json


def test_a_model_is_added_with_its_provider_and_a_second_one_without_which_is_deleted_alone(redline):
    document = added(redline, "acme/vendor/m-1", "--thinking", "high,low", "--price-in", "3", "--price-out", "15")
    limits = {"window": 100_000, "outputLimit": 8_000, "thinking": ["low", "high"]}
    prices = {"input": 3.0, "output": 15.0, "cacheRead": None, "cacheWrite": None}
    assert document == {"model": "acme/vendor/m-1", "baseUrl": URL, **limits, "prices": prices, "fault": None}
    providers = {one["name"]: one for one in redline.call("models", "list", "--json").json["providers"]}
    assert providers["acme"]["models"] == [document]
    assert (providers["acme"]["source"], providers["acme"]["dialect"]) == ("added", "openai")
    assert providers["anthropic"]["models"] == []
    assert not missing(redline.call("models", "list").out, "acme/vendor/m-1", "ready")
    assert (redline.call("models", "add", "acme/m-2", *LIMITS).code, PlannerModel.objects.count()) == (0, 2)
    assert redline.call("models", "add", "acme/m-3", *LIMITS, "--base-url", URL, "--json").refusal == "2 known_provider"
    ended = redline.call("models", "delete", "acme/m-2", "--json")
    assert (ended.code, ended.json) == (0, {"deleted": ["acme/m-2"], "removed": ["acme/m-2"]})
    assert redline.call("models", "delete", "acme/m-2", "--json").error == "unknown_planner"
    assert Provider.objects.exists()


REFUSED = [
    (("acme/m", *LIMITS), "unknown_provider"),
    (("acme", *HERE), "bad_model"),
    (("acme/m", "--base-url", URL), "bad_arguments"),
    (("acme/m", "--window", "many", "--base-url", URL), "misfilled"),
    (("Acme!/m", *HERE), "misfilled"),
    (("acme/m", *HERE, "--key-variable", "NOT_SET_AT_ALL"), "no_key"),
    (("acme/m", *LIMITS, "--base-url", "http://api.example.com", "--key-variable", "OWN_KEY"), "misfilled"),
    (("acme/m", *HERE, "--key", KEY), "key_in_arguments"),
]


def test_a_model_that_cannot_be_added_leaves_nothing_behind(redline, monkeypatch):
    monkeypatch.setenv("OWN_KEY", KEY)
    for arguments, code in REFUSED:
        ended = redline.call("models", "add", *arguments, "--json")
        assert (ended.code, ended.error) == (2, code), arguments
        assert KEY not in ended.json["error"]["message"]
    assert not Provider.objects.exists()
    assert not PlannerModel.objects.exists()
    assert read_keys(redline.data) == {}


def test_a_key_from_a_variable_is_kept_for_its_host_only_and_goes_with_its_provider(redline, monkeypatch):
    monkeypatch.setenv("OWN_KEY", KEY)
    assert KEY not in str(added(redline, "acme/m-1", "--key-variable", "OWN_KEY"))
    (kept,) = read_keys(redline.data).values()
    assert (kept.origin, kept.key) == ("https://api.example.com", KEY)
    assert stat.S_IMODE((redline.data / "keys.json").stat().st_mode) == 0o600
    assert KEY not in redline.call("models", "list", "--json").out
    assert f"…{KEY[-4:]}" in redline.call("models", "list").out
    assert redline.call("models", "delete", "acme", "--json").refusal == "5 remove_provider"
    assert PlannerModel.objects.exists()
    ended = redline.call("models", "delete", "acme", "--yes", "--json")
    assert (ended.code, ended.json) == (0, {"deleted": ["acme", "acme/m-1"], "removed": ["acme", "acme/m-1"]})
    assert not Provider.objects.exists()
    assert read_keys(redline.data) == {}
    assert redline.call("models", "delete", "anthropic", "--yes", "--json").error == "unknown_provider"


def test_a_key_comes_from_standard_input(redline, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert redline.call("models", "add", "acme/m-1", *HERE, "--key-stdin", "--json").error == "no_key"
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\nmore\n"))
    added(redline, "acme/m-1", "--key-stdin")
    assert read_keys(redline.data)["acme"].key == KEY


def test_a_process_reads_a_key_from_a_pipe(redline):
    child = redline.start("models", "add", "acme/m-1", *HERE, "--key-stdin", "--json", stdin=subprocess.PIPE)
    child.stdin.write(f"{KEY}\n")
    assert (finish(child).code, read_keys(redline.data)["acme"].key) == (0, KEY)


@pytest.mark.parametrize("name", ["acme", "openai"])
def test_a_key_for_an_existing_provider_becomes_its_key(redline, monkeypatch, name):
    added(redline)
    monkeypatch.setenv("OWN_KEY", KEY)
    ended = redline.call("models", "add", f"{name}/m-2", *LIMITS, "--key-variable", "OWN_KEY", "--json")
    assert (ended.code, ended.json["fault"]) == (0, None)
    assert read_keys(redline.data)[name].key == KEY


def test_a_model_without_a_key_is_added_with_a_hint_about_the_missing_key(redline):
    assert "Set ANTHROPIC_API_KEY" in redline.call("models", "add", "anthropic/m-1", *LIMITS).ok().out
    assert redline.call("models", "test", "anthropic/m-1", "--json").error == "no_key"


@pytest.mark.parametrize(("script", "code"), [("good-plan", 0), ("refuses", 1)])
def test_a_model_is_tested_with_one_request(redline, provider, script, code):
    url = provider.base_url("openai")
    assert redline.call("models", "add", f"own/{script}", *LIMITS, "--base-url", url).code == 0
    ended = redline.call("models", "test", f"own/{script}", "--json")
    assert ended.code == code
    assert ended.json["ok"] is (code == 0)
    assert ended.json.keys() == {"model", "ok", "message", "seconds"}
    assert redline.call("models", "test", f"own/{script}").code == code


def test_wrong_arguments_give_one_json_document_and_name_the_help_of_the_action(redline):
    for arguments in ((), ("nonsense",), ("list", "more"), ("add",), ("test",), ("--no",)):
        ended = redline.call("models", *arguments, "--json")
        assert (ended.code, ended.error) == (2, "bad_arguments"), arguments
    assert "`redline models add --help`" in redline.call("models", "add").err
    assert "`redline models --help`" in redline.call("models").err
