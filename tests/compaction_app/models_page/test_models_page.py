"""Promises of the page of models: the configuration and its sources, forms that explain errors, and a test."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.models import Agreement, PlannerModel, Provider
from compaction_app.pages.models.forms import SMALLEST_OUTPUT, SMALLEST_WINDOW
from compaction_app.planning.model_registry import COMFORTABLE_WINDOW, endpoint_of, model_named, provider_named
from compaction_app.providers.api_keys import read_keys
from sessions_app.index.indexer import index_roots
from tests.factories import assistant, chain, session_bytes, text, user
from tests.fake_provider_echo import start_echo_provider
from tests.files import place
from tests.html import (
    active_markup,
    addresses,
    element,
    elements,
    field,
    fields,
    link,
    links,
    missing,
    outermost,
    parse,
    text_of,
    texts,
)
from tests.paths import PROJECT

KEY = "sk-environment-0123456789abcdefWXYZ"
TYPED = "sk-entered-by-hand-0123456789abZYXW"
OWN = {"name": "own", "dialect": "openai", "base_url": "https://llm.example.com/v1"}
MODEL = {
    "provider": "own", "name": "qwen3:32b", "window": "40,960", "output_limit": "8192",
    "thinking_levels": ["low", "high"], "thinking_style": "budget", "price_in": "0.5", "price_out": "",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("known_root")


@pytest.fixture
def echo():
    with start_echo_provider() as running:
        yield running


def page(browser: Client, path: str = "/settings/models", status: int = 200) -> str:
    answer = browser.get(path)
    assert answer.status_code == status, path
    return answer.content.decode()


def sent(browser: Client, path: str, values: Any, status: int = 303) -> str:
    """Post a form; returns the address it redirects to, or the page's answer."""
    answer = browser.post(path, values)
    shown = answer.content.decode()
    assert answer.status_code == status, text_of(shown)
    return str(answer["Location"]) if status == 303 else shown


def add(browser: Client, **values: str) -> str:
    """Add the provider `own`."""
    return sent(browser, "/settings/providers/add", {**OWN, **values})


def test_a_fresh_machine_is_shown_both_ways_to_a_model_and_presets_for_local_servers(browser):
    words = text_of(page(browser))
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        assert f"set {variable} to use it" in words
    assert not missing(words, "needs no key", "nothing leaves this machine")
    nav = element(page(browser), 'nav[aria-label="Main"]')
    assert [words.split()[0] for words, _ in links(nav)] == ["Sessions", "Inbox", "Insights", "History", "Settings"]
    assert texts(nav, '[aria-current="page"]') == ["Settings"]
    offered = [address for _, address in links(page(browser, "/settings/providers/add")) if "/add?for=" in address]
    presets = [page(browser, address) for address in offered]
    found = [(field(preset, "name"), field(preset, "base_url")) for preset in presets]
    ports = (("ollama", 11434), ("llama-cpp", 8080), ("lm-studio", 1234), ("vllm", 8000))
    assert found == [(name, f"http://localhost:{port}/v1") for name, port in ports]
    assert field(page(browser, "/settings/providers/add?for=nobody"), "name") == ""


def test_a_provider_of_the_environment_is_marked_and_shows_the_last_four_characters(browser, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example.com/anthropic")
    shown = page(browser)
    words = text_of(shown)
    hint = "…WXYZ from the environment, sent only to https://gateway.example.com"
    assert not missing(words, "the environment: ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL", hint)
    assert KEY[:-4] not in shown
    assert "/settings/providers/anthropic" not in addresses(shown)
    variables = texts(shown, ".mono")
    assert "ANTHROPIC_API_KEY" in variables
    assert not [one for one in variables if "and" in one.split()]


def test_faults_of_the_environment_are_shown_with_their_provider(browser, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.example.com/v1")
    words = text_of(page(browser))
    assert "Not used. OPENAI_BASE_URL is plain http to another machine." in words
    assert "…WXYZ from the environment, not sent" in words
    assert "Let them plan" not in words


def test_hostile_names_do_nothing_on_the_page(browser, known_root):
    evil = '"><script>alert(1)</script>\x1b\u202e'
    (known_root / "a.jsonl").write_bytes(
        session_bytes(chain(user("x"), assistant(text("y"), provider="own", model=evil)))
    )
    index_roots()
    add(browser)
    PlannerModel.objects.create(provider="own", name=evil[:-1], window=9_999, output_limit=9)
    key = PlannerModel.objects.get().pk
    for path in (
        "/settings/models",
        f"/settings/models/{key}",
        f"/settings/models/{key}/remove",
        "/settings/providers/own/remove",
    ):
        shown = page(browser, path)
        assert not active_markup(shown)
        assert not set(shown) & set("\x1b\u202e")


def test_no_other_site_can_put_a_message_on_the_page(browser):
    add(browser)
    signed = browser.cookies["messages"].value
    for forged in (f"{signed}x", "evil", ""):
        browser.cookies["messages"] = forged
        shown = page(browser)
        assert not elements(shown, 'main .banner[role="status"]')
        assert "evil" not in shown
    browser.cookies["messages"] = signed
    assert "Added: own" in text_of(page(browser))
    assert "evil" not in text_of(page(browser, "/settings/models?told=evil&added=evil&dropped=evil"))


def test_a_message_is_shown_once_and_its_cookie_is_for_pages_of_this_host_only(browser):
    place = add(browser).partition("#")[0]
    cookie = browser.cookies["messages"]
    assert (cookie["httponly"], cookie["samesite"], cookie["domain"]) == (True, "Strict", "")
    assert place == "/settings/models"
    assert "Added: own" in text_of(page(browser, place))
    answer = browser.get(place)
    assert "Added: own" not in text_of(answer)
    assert "messages" not in answer.cookies


def test_a_small_window_is_marked_or_refused_by_the_same_numbers_as_in_the_readme(browser):
    add(browser)
    reason = "A planner needs that much for its"
    for name, typed, words in (
        ("window", "7999", f"The context window must be at least 8,000 tokens. {reason} instructions"),
        ("output_limit", "499", f"The output limit must be at least 500 tokens. {reason} calls."),
    ):
        assert words in text_of(sent(browser, "/settings/models/add", {**MODEL, name: typed}, 422))
    assert not PlannerModel.objects.exists()
    sent(browser, "/settings/models/add", {**MODEL, "window": "16000", "output_limit": "500"})
    assert "small for a planner" not in text_of(page(browser))
    sent(browser, "/settings/models/add", {**MODEL, "name": "small", "window": "8000", "output_limit": "500"})
    assert text_of(page(browser)).count("small for a planner") == 1
    readme = " ".join((PROJECT / "README.md").read_text(encoding="utf-8").split())
    assert f"at least {SMALLEST_WINDOW:,} tokens, better {COMFORTABLE_WINDOW:,} or more" in readme
    assert f"an output limit of at least {SMALLEST_OUTPUT:,} tokens" in readme
    form = text_of(page(browser, "/settings/models/add"))
    assert f"At least {SMALLEST_WINDOW:,}; less than {COMFORTABLE_WINDOW:,} is small for a planner." in form
    assert f"at least {SMALLEST_OUTPUT:,}." in form


def test_missing_prices_are_mentioned_once_on_a_narrow_page(browser):
    add(browser)
    sent(browser, "/settings/models/add", {**MODEL, "price_in": ""})
    narrow = parse(page(browser))
    for cell in elements(narrow, "td.wide-only"):
        cell.decompose()
    assert "price unknown" in text_of(narrow)
    assert text_of(narrow).count("unknown") == 1


def test_a_slash_more_or_less_and_a_page_that_is_gone_lead_to_the_models(browser):
    for typed, there in (("/models/", "/settings/models"), ("/runs", "/inbox")):
        answer = browser.get(f"{typed}?page=1", follow=True)
        assert answer.status_code == 200
        assert (answer.request["PATH_INFO"], answer.request["QUERY_STRING"]) == (there, "page=1")
    shown = page(browser, "/settings/models/12345", 404)
    assert "a model or a provider may have been deleted" in text_of(shown)
    assert elements(shown, 'a.button[href="/settings/models"]')


def put_sessions(root: Path, *pairs: tuple[str, str]) -> None:
    for number, (provider, model) in enumerate(pairs):
        recorded = chain(user("hello"), assistant(text("hi"), provider=provider, model=model))
        (root / f"{number}.jsonl").write_bytes(session_bytes(recorded))
    index_roots()


def test_models_of_sessions_are_suggested_if_their_provider_is_configured(browser, known_root, monkeypatch):
    put_sessions(
        known_root,
        ("anthropic", "claude-x"), ("anthropic", "claude-x"), ("openai", "gpt-5"), ("nobody", "m"),
        ("anthropic", "odd & name/1"),
    )  # fmt: skip
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    suggested = element(page(browser), 'section[aria-labelledby="suggested"]')
    assert "gpt-5" not in text_of(suggested)
    claude, odd = [page(browser, address) for _, address in links(suggested)]
    shown = [field(claude, name) for name in ("name", "window", "provider")]
    assert (shown, field(odd, "name")) == (["claude-x", "200,000", "anthropic"], "odd & name/1")
    sent(browser, "/settings/models/add", {**MODEL, "provider": "anthropic", "name": "claude-x"})
    assert "claude-x" not in text_of(element(page(browser), 'section[aria-labelledby="suggested"]'))


def test_a_window_comes_from_the_agents_own_models(browser, known_root, redline):
    models = redline.home / ".pi" / "agent" / "models.json"
    place(models, b'{"providers": {"own": {"models": [{"id": "qwen", "contextWindow": 32768}]}}}')
    put_sessions(known_root, ("own", "qwen"))
    add(browser)
    assert "32,768" in text_of(page(browser))
    form = page(browser, "/settings/models/add?provider=own&name=qwen")
    assert (field(form, "window"), field(form, "output_limit")) == ("32,768", "8,192")


def test_a_provider_is_added_changed_and_removed_with_its_models_after_a_confirmation(browser, redline):
    place, _, anchor = add(browser, key=TYPED).partition("#")
    assert (anchor, "Added: own" in text_of(page(browser, place))) == ("provider-own", True)
    sent(browser, "/settings/models/add", MODEL)
    sent(browser, "/settings/providers/own", {"dialect": "anthropic", "base_url": OWN["base_url"]})
    assert (Provider.objects.get().dialect, read_keys(redline.data)["own"].key) == ("anthropic", TYPED)
    words = text_of(page(browser, "/settings/providers/own/remove"))
    assert not missing(words, "…ZYXW is deleted", "1, deleted with it: qwen3:32b")
    assert Provider.objects.exists()
    sent(browser, "/settings/providers/own/remove", {})
    assert (Provider.objects.count(), PlannerModel.objects.count(), read_keys(redline.data)) == (0, 0, {})
    page(browser, "/settings/providers/own", 404)


def test_a_model_is_added_changed_and_removed_after_a_confirmation(browser):
    add(browser)
    sent(browser, "/settings/models/add", MODEL)
    row = PlannerModel.objects.get()
    shown = page(browser, f"/settings/models/{row.pk}")
    assert [field(shown, name) for name in ("window", "price_in", "price_out")] == ["40,960", "0.5", ""]
    sent(browser, f"/settings/models/{row.pk}", {**MODEL, "name": "other", "price_out": "$ 2", "thinking_levels": []})
    row.refresh_from_db()
    assert (row.name, row.price_out, row.thinking_levels) == ("other", 2, [])
    assert "Its plans are kept" in text_of(page(browser, f"/settings/models/{row.pk}/remove"))
    assert PlannerModel.objects.exists()
    assert "Deleted: own/other" in text_of(page(browser, sent(browser, f"/settings/models/{row.pk}/remove", {})))
    page(browser, f"/settings/models/{row.pk}", 404)
    page(browser, f"/settings/models/{row.pk}/remove", 404)


def test_an_invalid_form_keeps_every_value_and_explains_the_error(browser):
    add(browser)
    wrong = {**MODEL, "window": "many", "price_in": "cheap", "name": "kept <b>", "thinking_style": "adaptive"}
    shown = sent(browser, "/settings/models/add", wrong, 422)
    assert not missing(text_of(shown), "Enter the context window in digits", "Enter a price in US dollars")
    for name, value in (("window", "many"), ("price_in", "cheap"), ("name", "kept <b>")):
        assert field(shown, name) == value
        assert ("aria-invalid" in element(shown, f'input[name="{name}"]').attributes) is (name != "name")
    assert fields(shown)["thinking_levels"] == ["low", "high"]
    assert field(shown, "thinking_style") == "adaptive"
    assert not PlannerModel.objects.exists()


def test_an_invalid_key_is_refused_without_quoting_it_and_none_is_filled_in_again(browser, redline):
    for key in ("sk-a\nb", "sk-ä", "sk a"):
        shown = sent(browser, "/settings/providers/add", {**OWN, "key": key}, 422)
        assert "A key consists of ASCII letters" in text_of(shown)
        assert key not in shown
    assert (Provider.objects.exists(), read_keys(redline.data)) == (False, {})
    shown = sent(browser, "/settings/providers/add", {**OWN, "name": "Bad Name", "key": TYPED}, 422)
    assert field(shown, "base_url") == "https://llm.example.com/v1"
    assert "type it again" in text_of(shown)
    assert TYPED not in shown
    add(browser, key=TYPED)
    for path in ("/settings/providers/own", "/settings/models", "/settings/providers/own/remove"):
        assert TYPED[:-4] not in page(browser, path)
    assert "value" not in element(page(browser, "/settings/providers/own"), 'input[type="password"]').attributes


def test_changing_the_base_url_warns_that_the_key_is_deleted(browser, redline):
    add(browser, key=TYPED)
    sent(browser, "/settings/providers/own/agreement", {"origin": "https://llm.example.com"})
    place = sent(browser, "/settings/providers/own", {**OWN, "base_url": "https://evil.example/v1"})
    words = text_of(page(browser, place.partition("#")[0]))
    assert not missing(words, "The key of own was deleted", "plan only when you start a plan")
    assert read_keys(redline.data) == {}


def test_a_key_can_be_forgotten_alone(browser, redline):
    add(browser, key=TYPED)
    sent(browser, "/settings/providers/own", {**OWN, "forget": "1"})
    assert (read_keys(redline.data), Provider.objects.count()) == ({}, 1)


def test_a_key_for_a_provider_of_the_environment_is_entered_on_its_page(browser, redline):
    origin = field(page(browser, "/settings/providers/openai"), "origin")
    assert origin == "https://api.openai.com"
    sent(browser, "/settings/providers/openai", {"key": TYPED, "origin": origin})
    assert "…ZYXW entered by you, sent only to https://api.openai.com" in text_of(page(browser))
    shown = sent(browser, "/settings/providers/openai", {"key": "", "origin": origin}, 422)
    assert "Enter the key." in text_of(shown)
    shown = sent(browser, "/settings/providers/openai", {"key": KEY, "origin": "https://evil.example"}, 409)
    assert "Reload the page" in text_of(shown)
    sent(browser, "/settings/providers/openai", {"forget": "1", "origin": origin})
    assert read_keys(redline.data) == {}
    page(browser, "/settings/providers/openai/remove", 404)


def test_an_entered_key_is_used_if_the_variable_is_unusable(browser, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-torn in two")
    words = text_of(page(browser))
    assert not missing(words, "Not used. OPENAI_API_KEY cannot be used.", "or enter a key on the Models page")
    assert link(page(browser), "Key… of OpenAI") == "/settings/providers/openai"
    sent(browser, "/settings/providers/openai", {"key": TYPED, "origin": "https://api.openai.com"})
    shown = page(browser)
    words = text_of(shown)
    assert "Not used." not in words
    assert "…ZYXW entered by you, sent only to https://api.openai.com" in words
    assert not missing(words, "OPENAI_API_KEY cannot be used.", "the key you entered is used")
    assert "torn" not in shown
    sent(browser, "/settings/models/add", {**MODEL, "provider": "openai"})
    assert endpoint_of(model_named("openai/qwen3:32b")).key == TYPED


def test_no_key_field_is_shown_if_a_key_could_not_be_sent(browser, monkeypatch):
    for url in ("no address", "http://gateway.example.com/v1"):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        shown = page(browser)
        assert "Not used. OPENAI_BASE_URL is" in text_of(shown)
        assert "/settings/providers/openai" not in addresses(shown)


def test_the_first_usable_provider_is_chosen_and_a_model_is_listed_with_all_that_is_known(browser, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "torn in two")
    add(browser)
    for address in ("/settings/models/add", "/settings/models/add?provider=nobody"):
        assert field(page(browser, address), "provider") == "own"
    sent(browser, "/settings/models/add", {**MODEL, "base_url": "http://localhost:9/v1"})
    words = text_of(page(browser))
    assert not missing(words, "own", "qwen3:32b", "40,960", "8,192", "low, high", "$0.5", "unknown", "added by you")
    assert "at http://localhost:9/v1" in words


def test_a_damaged_key_file_is_reported_on_the_page_and_not_changed(browser, redline):
    add(browser)
    (redline.data / "keys.json").write_text("{ torn")
    assert "It is never overwritten" in text_of(page(browser))
    shown = sent(browser, "/settings/providers/add", {**OWN, "name": "other", "key": TYPED}, 503)
    assert "It is never overwritten" in text_of(shown)
    sent(browser, "/settings/providers/own/remove", {}, 503)
    assert ((redline.data / "keys.json").read_text(), Provider.objects.count()) == ("{ torn", 1)


def test_agreeing_is_for_the_host_that_was_shown_and_can_be_taken_back(browser):
    add(browser)
    words = text_of(page(browser))
    assert "Not allowed: its models plan only when you start a plan." in words
    assert "This sends parts of sessions to https://llm.example.com without asking you." in words
    shown = sent(browser, "/settings/providers/own/agreement", {"origin": "https://evil.example"}, 409)
    assert "not the one on the page" in text_of(shown)
    assert not Agreement.objects.exists()
    sent(browser, "/settings/providers/own/agreement", {"origin": "https://llm.example.com"})
    assert provider_named("own").agreed
    assert "Allowed: when a session is almost full" in text_of(page(browser))
    sent(browser, "/settings/providers/own/agreement", {"back": "1"})
    assert not Agreement.objects.exists()
    assert browser.get("/settings/providers/own/agreement")["Location"] == "/settings/models#provider-own"


def put_model(base_url: str, name: str = "m", dialect: str = "openai", **values: Any) -> PlannerModel:
    Provider.objects.update_or_create(name="own", defaults={"dialect": dialect, "base_url": base_url})
    return PlannerModel.objects.create(
        provider="own", name=name, **{"window": 100_000, "output_limit": 4_000, **values}
    )


def verdict_of(browser: Client, row: PlannerModel) -> str:
    """What the page says of a model after its test."""
    shown = browser.post(f"/settings/models/{row.pk}/test")
    assert shown.status_code == 200
    verdict = element(shown, f"#verdict-{row.pk}")
    element(verdict, ".waiting").decompose()
    return text_of(verdict)


def test_a_model_that_calls_a_tool_at_its_lowest_level_passes_and_its_time_is_shown(browser, echo):
    words = verdict_of(browser, put_model(f"{echo.base}/good/v1", thinking_levels=["high", "low"]))
    assert words.startswith("It can plan.")
    assert re.search(r"called a tool (at once|after \d+\.[1-9] s|after [1-9]\d*\.\d s)\.", words)
    assert len(echo.received) == 1
    assert b'"reasoning_effort":"low"' in echo.bodies[0].replace(b" ", b"")


def test_htmx_gets_only_the_result_and_other_clients_the_whole_page(browser, echo):
    row = put_model(f"{echo.base}/good/v1")
    part = browser.post(f"/settings/models/{row.pk}/test", headers={"HX-Request": "true"})
    assert [one.id for one in outermost(part)] == [f"verdict-{row.pk}"]
    assert "called a tool" in text_of(part)
    whole = browser.post(f"/settings/models/{row.pk}/test")
    assert ("Models" in texts(whole, "h2"), text_of(whole).count("called a tool")) == (True, 1)
    assert browser.get(f"/settings/models/{row.pk}/test")["Location"] == f"/settings/models#model-{row.pk}"


def test_a_server_that_cannot_be_reached_or_a_missing_key_is_reported(browser):
    with start_echo_provider() as gone:
        base = gone.base
    assert base.removeprefix("http://") in verdict_of(browser, put_model(f"{base}/v1"))
    row = PlannerModel.objects.create(provider="openai", name="m", window=9_999, output_limit=99)
    assert "Set OPENAI_API_KEY" in verdict_of(browser, row)


def test_a_key_arrives_at_its_address_and_no_longer_after_the_base_url_was_edited(browser, echo):
    with start_echo_provider() as evil:
        sent(browser, "/settings/providers/add", {**OWN, "base_url": f"{echo.base}/good/v1", "key": TYPED})
        sent(browser, "/settings/models/add", MODEL)
        row = PlannerModel.objects.get()
        verdict_of(browser, row)
        assert echo.keys() == [f"Bearer {TYPED}"]
        sent(browser, "/settings/providers/own", {**OWN, "base_url": f"{evil.base}/good/v1"})
        verdict_of(browser, row)
        assert (len(evil.received), evil.keys()) == (1, [])
        sent(browser, "/settings/providers/own", {**OWN, "base_url": f"{echo.base}/good/v1"})
        verdict_of(browser, row)
        assert echo.keys() == [f"Bearer {TYPED}"]
