"""The model registry: the sources of providers, the model of a name, and the host that a key is sent to.

The attacks come first. Each says what was done, and what the provider's side then sees of the key: nothing.
"""

import itertools
from functools import partial
from typing import Any

import pytest

from compaction_app.models import Agreement, PlannerModel, Provider
from compaction_app.pages.models import forms
from compaction_app.pages.models.forms import KeyForm, PlannerModelForm, ProviderForm
from compaction_app.planning.model_registry import (
    LEVELS,
    endpoint_of,
    level_for,
    level_taken,
    model_named,
    model_of_session,
    models,
    provider_named,
    providers,
)
from compaction_app.providers.api_keys import KeptKey, keep_key, read_keys
from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.pages import FormInvalid
from tests.factories import assistant, chain, session_bytes, text, user
from tests.installation import refusal

KEY = "sk-environment-0123456789abcdefWXYZ"
TYPED = "sk-entered-by-hand-0123456789abZYXW"
OWN = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
}


@pytest.fixture
def added(redline):
    """A provider that was added with a key, and a model of it."""
    row = add("own", "https://llm.example.com/v1", TYPED)
    put("own", "m")
    return row


@pytest.fixture
def openai_key(redline, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def add(name: str, base_url: str, key: str = "") -> Provider:
    return forms.add_provider(ProviderForm({"name": name, "dialect": "openai", "base_url": base_url, "key": key}))


def change(name: str, base_url: str, key: str = "") -> forms.Consequence:
    values = {"dialect": "openai", "base_url": base_url, "key": key}
    return forms.change_provider(ProviderForm(values, instance=Provider.objects.get(name=name)))


def enter_key(provider: str, key: str, origin: str) -> None:
    forms.change_key(KeyForm(provider_named(provider), {"key": key, "origin": origin}))


def put(provider: str, name: str, **values: Any) -> PlannerModel:
    """A row created without the checks of the form."""
    return PlannerModel.objects.create(
        provider=provider, name=name, **{"window": 200_000, "output_limit": 8_000, **values}
    )


def key_sent(planner: str) -> str:
    """The key sent with a request to a model, or the code of the reason why none is sent."""
    try:
        return endpoint_of(model_named(planner)).key
    except BadInput as refused:
        return "quoted" if KEY in refused.message or TYPED in refused.message else refused.code


@pytest.mark.parametrize("name", OWN)
def test_an_environment_key_is_sent_to_its_providers_own_host(redline, monkeypatch, name):
    monkeypatch.setenv(f"{name.upper()}_API_KEY", f"{KEY}\n")
    put(name, "m")
    endpoint = endpoint_of(model_named(f"{name}/m"))
    assert (endpoint.base_url, endpoint.key) == (OWN[name], KEY)
    assert KEY not in repr(endpoint)


def test_with_a_base_url_variable_the_key_is_sent_there_and_not_to_the_providers_own_host(openai_key, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example.com/openai/v1/")
    put("openai", "there")
    put("openai", "back", base_url=OWN["openai"])
    endpoint = endpoint_of(model_named("openai/there"))
    assert (endpoint.base_url, endpoint.key) == ("https://gateway.example.com/openai/v1", KEY)
    assert key_sent("openai/back") == "no_key"


def test_only_a_model_at_the_providers_own_host_gets_the_environment_key(openai_key):
    evil = ("https://evil.example", "https://api.openai.com.evil.example", "https://evil-api.openai.com")
    for number, base in enumerate(
        (*evil, "https://api.openai.com:8443", "http://api.openai.com", "https://api.openai.co")
    ):
        put("openai", f"m{number}", base_url=f"{base}/v1")
        assert key_sent(f"openai/m{number}") == "no_key", base
        assert "is sent nowhere else" in model_named(f"openai/m{number}").fault
    put("openai", "local", base_url="http://localhost:8080/v1")
    assert key_sent("openai/local") == ""
    put("openai", "path", base_url="https://api.openai.com/v2")
    assert key_sent("openai/path") == KEY


@pytest.mark.parametrize("plain", ["http://gateway.example.com/v1", "http://10.0.0.7/v1", "http://0.0.0.0/v1"])
def test_no_key_is_sent_over_plain_http_to_another_machine(redline, monkeypatch, plain):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", plain)
    put("openai", "m")
    assert key_sent("openai/m") == "provider_unusable"
    with pytest.raises(RedlineError, match="plain http"):
        add("own", plain, TYPED)
    assert (Provider.objects.count(), read_keys(redline.data)) == (0, {})
    # A key written into the file by hand for such an address is not sent either.
    add("own", plain)
    put("own", "m")
    keep_key(redline.data, "own", KeptKey(provider_named("own").origin, TYPED))
    assert key_sent("own/m") == ""


def test_a_server_on_this_machine_gets_a_key_over_plain_http_and_needs_none(redline, monkeypatch):
    add("own", "http://127.0.0.1:4000/v1", TYPED)
    put("own", "m")
    assert key_sent("own/m") == TYPED
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8080/v1")
    put("openai", "m")
    assert not provider_named("openai").unset
    assert key_sent("openai/m") == ""


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/v1", "https://llm.example.com/other/v1", "https://llm.example.com:444/v1"]
)
def test_changing_the_base_url_drops_the_key_for_good(redline, added, elsewhere):
    assert key_sent("own/m") == TYPED
    assert change("own", elsewhere).key_dropped
    assert key_sent("own/m") == ""
    change("own", added.base_url)
    assert key_sent("own/m") == ""
    assert TYPED not in (redline.data / "keys.json").read_text()


def test_the_key_stays_with_a_base_url_in_another_spelling_and_a_new_one_has_its_own(added, redline):
    assert not change("own", " https://LLM.example.com:443/v1/ ").key_dropped
    assert key_sent("own/m") == TYPED
    change("own", "https://new.example.com/v1", KEY)
    assert key_sent("own/m") == KEY
    assert TYPED not in (redline.data / "keys.json").read_text()


def test_no_model_at_another_host_namesake_or_base_url_changed_in_the_database_gets_the_key(added):
    put("own", "elsewhere", base_url="https://evil.example/v1")
    assert key_sent("own/elsewhere") == ""
    with pytest.raises(BadInput):
        add("own", "https://evil.example/v1", KEY)
    assert key_sent("own/m") == TYPED
    Provider.objects.update(base_url="https://evil.example/v1")
    assert (key_sent("own/m"), provider_named("own").key_hint) == ("", "")


def test_removing_a_provider_removes_its_key_and_a_namesake_inherits_none(redline, added):
    forms.remove_provider("own")
    assert TYPED not in (redline.data / "keys.json").read_text()
    keep_key(redline.data, "own", KeptKey("https://llm.example.com", TYPED))
    add("own", "https://llm.example.com/v1")
    put("own", "m2")
    assert key_sent("own/m2") == ""
    assert not PlannerModel.objects.filter(name="m").exists()


def test_an_entered_key_for_an_environment_provider_is_overridden_by_the_variable(redline, monkeypatch):
    put("openai", "m")
    assert key_sent("openai/m") == "no_key"
    enter_key("openai", TYPED, "https://api.openai.com")
    assert (key_sent("openai/m"), provider_named("openai").key_source) == (TYPED, "entered")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert (key_sent("openai/m"), provider_named("openai").key_source) == (KEY, "environment")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://evil.example/v1")
    assert key_sent("openai/m") == "no_key"
    assert forms.forget_key("openai")


def test_a_key_is_kept_only_for_the_origin_its_user_was_shown(redline, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://evil.example/v1")
    for shown in ("https://api.openai.com", ""):
        assert refusal(partial(enter_key, "openai", TYPED, shown)) == "4 other_address"
    assert read_keys(redline.data) == {}


def test_an_added_provider_cannot_take_the_name_of_an_environment_provider(openai_key):
    for name in (*OWN, "embedded", "add", "OpenAI", "open/ai", "", "-", "x" * 41, "a b", "ö"):
        with pytest.raises(BadInput):
            add(name, "https://evil.example/v1")
    assert not Provider.objects.exists()
    # Nor does a row that was created without the form.
    Provider.objects.create(name="openai", dialect="openai", base_url="https://evil.example/v1")
    put("openai", "m")
    assert key_sent("openai/m") != KEY or model_named("openai/m").base_url == OWN["openai"]


def test_an_invalid_key_variable_is_reported_and_not_sent(redline, monkeypatch):
    put("openai", "m")
    for value in ("sk-one\r\nx-evil: two", "sk-öne", "sk one", "sk-\u202eone"):
        monkeypatch.setenv("OPENAI_API_KEY", value)
        assert key_sent("openai/m") == "provider_unusable", value
        assert "OPENAI_API_KEY" in provider_named("openai").fault
        assert value not in provider_named("openai").fault


def test_an_invalid_base_url_variable_is_reported_without_being_quoted(openai_key, monkeypatch):
    put("openai", "m")
    spoiled = ("https://user:hunter2@api.openai.com/v1", "https://api.openai.com@evil.example/v1?x")
    for url in (*spoiled, "ftp://api.openai.com", "api.openai.com/v1", "https://", "https://x/\nv1"):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert key_sent("openai/m") == "provider_unusable", url
        found = provider_named("openai")
        assert (found.base_url, found.origin, found.agreed) == ("", "", False)
        assert "OPENAI_BASE_URL" in found.fault
        assert "hunter2" not in found.fault


def test_a_damaged_key_file_stops_only_providers_that_may_need_it(openai_key, redline):
    add("own", "https://llm.example.com/v1")
    put("own", "m")
    put("openai", "m")
    (redline.data / "keys.json").write_text("{")
    assert (key_sent("openai/m"), key_sent("own/m")) == (KEY, "provider_unusable")
    assert "keys.json" in provider_named("own").fault
    assert model_of(provider="own", model="m") is None


def test_the_environment_offers_three_providers_and_reports_missing_keys(redline):
    found = providers()
    assert [(one.name, one.unset, one.key_variable) for one in found] == [
        (name, True, f"{name.upper()}_API_KEY") for name in OWN
    ]
    assert [one.base_url for one in found] == list(OWN.values())


def test_a_provider_shows_its_origin_and_four_characters_of_its_key(redline, monkeypatch, added):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example.com")
    anthropic, own = provider_named("anthropic"), provider_named("own")
    assert anthropic.variables == ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    assert (anthropic.key_hint, anthropic.key_source) == ("…WXYZ", "environment")
    assert (own.variables, own.key_hint, own.key_source) == ((), "…ZYXW", "entered")
    assert KEY not in repr(providers())
    assert TYPED not in repr(models())


def test_an_agreement_covers_one_host_and_ends_with_it(redline, monkeypatch, added):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    put("own", "elsewhere", base_url="https://evil.example/v1")
    put("openai", "m")
    forms.agree("own", "https://llm.example.com")
    forms.agree("openai", "https://api.openai.com")
    assert [model.planner for model in models() if model.agreed] == ["openai/m", "own/m"]
    monkeypatch.setenv("OPENAI_BASE_URL", "https://other.example/v1")
    assert change("own", "https://evil.example/v1").agreement_ended
    assert not [model for model in models() if model.agreed]
    change("own", "https://llm.example.com/v1")
    assert not provider_named("own").agreed
    with pytest.raises(RedlineError):
        forms.agree("own", "https://evil.example")
    assert Agreement.objects.get().provider == "openai"


def test_a_model_is_found_by_its_full_name_or_an_unambiguous_short_one(redline, added):
    put("openai", "gpt-5")
    put("openrouter", "openai/gpt-5")
    put("openrouter", "m")
    assert model_named("openai/gpt-5").provider.name == "openai"
    assert model_named("openrouter/openai/gpt-5").provider.name == "openrouter"
    assert model_named("gpt-5").planner == "openai/gpt-5"
    with pytest.raises(BadInput, match="openrouter/m, own/m"):
        model_named("m")
    known = "embedded, prune, openai/gpt-5, openrouter/m, openrouter/openai/gpt-5, own/m"
    assert refusal(lambda: model_named("nobody"), known) == "2 unknown_planner"


def test_levels_are_ordered_and_prices_unchanged(redline):
    put("openai", "m", thinking_levels=["high", "low", "nonsense"], price_in=1.25)
    model = model_named("openai/m")
    assert model.thinking_levels == ("low", "high")
    assert (model.prices.input, model.prices.output) == (1.25, None)
    assert model.host == "api.openai.com"


def model_of(**values: str) -> str | None:
    found = model_of_session(Session(**values))
    return None if found is None else found.planner


def test_a_sessions_own_model_is_found_if_it_is_usable(redline, monkeypatch, added):
    put("anthropic", "claude")
    assert model_of(provider="anthropic", model="claude") is None
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert model_of(provider="anthropic", model="claude") == "anthropic/claude"
    assert model_of(provider="amazon-bedrock", model="claude") == "anthropic/claude"
    assert model_of(provider="", model="") is None
    put("openai", "claude")
    assert model_of(provider="anthropic", model="claude") == "anthropic/claude"
    assert model_of(provider="amazon-bedrock", model="claude") is None


LIMITS = {"window": "200,000", "output_limit": "8 000"}
GOOD = {"provider": "own", "name": "new", **LIMITS, "thinking_style": "budget", "price_in": "$3", "price_out": "0.25"}


def test_the_form_becomes_a_model_and_none_is_added_twice(added):
    row = forms.save_model(PlannerModelForm(GOOD))
    row.refresh_from_db()
    assert (row.window, row.output_limit, row.price_in, row.price_out) == (200_000, 8_000, 3, 0.25)
    assert row.price_cache_read is None
    with pytest.raises(BadInput, match="already"):
        forms.save_model(PlannerModelForm(GOOD))
    with pytest.raises(BadInput, match="already"):
        forms.save_model(PlannerModelForm({**GOOD, "name": "m"}, instance=row))


INVALID = [
    ("provider", "nobody"), ("name", ""), ("name", "x" * 201), ("name", "a\u202eb"), ("name", "a\nb"),
    ("base_url", "ftp://x"), ("base_url", "https://user@x/v1"), ("window", ""), ("window", "200k"),
    ("window", "-1"), ("window", "7999"), ("window", "100000001"), ("window", "٣٠٠٠"), ("output_limit", "499"),
    ("output_limit", "200001"), ("thinking_levels", ("low", "extreme")), ("thinking_style", "vibes"),
    ("price_in", "cheap"), ("price_out", "-1"), ("price_cache_read", "nan"), ("price_cache_write", "inf"),
]  # fmt: skip


def test_invalid_values_are_reported_at_their_fields_and_change_nothing(added):
    before = list(PlannerModel.objects.values())
    for (field, typed), row in itertools.product(INVALID, (None, PlannerModel.objects.get())):
        form = PlannerModelForm({**GOOD, field: typed}, instance=row)
        with pytest.raises(FormInvalid) as refused:
            forms.save_model(form)
        assert list(form.errors) == [field], typed
        assert refused.value.message == f"{form.errors[field][0]} Nothing was changed."
    assert list(PlannerModel.objects.values()) == before


def test_the_form_refuses_a_base_url_that_the_environment_key_is_not_for(openai_key):
    values = {**GOOD, "provider": "openai"}
    with pytest.raises(BadInput, match="is sent nowhere else"):
        forms.save_model(PlannerModelForm({**values, "base_url": "https://evil.example/v1"}))
    assert forms.save_model(PlannerModelForm({**values, "base_url": "https://api.openai.com/v1/"})).base_url == ""


@pytest.mark.parametrize(
    ("level", "taken", "asked"),
    [
        ("high", LEVELS, "high"), ("high", ("low", "medium"), "medium"),
        ("xhigh", ("high", "minimal"), "high"), ("minimal", ("medium", "high"), "medium"),
        ("off", LEVELS, ""), ("", LEVELS, ""), ("ultra", LEVELS, ""), ("high", (), ""),
    ],
)  # fmt: skip
def test_a_thinking_level_is_used_if_supported_else_the_next_lower_else_the_lowest(level, taken, asked):
    assert level_taken(level, taken) == asked


def test_the_thinking_level_is_that_of_the_branch_not_of_the_file(known_root, redline):
    recorded = chain(
        user("one"),
        {"type": "thinking_level_change", "thinkingLevel": "high"},
        assistant(text("first")),
        {"type": "thinking_level_change", "thinkingLevel": "low"},
        assistant(text("second")),
        {"type": "thinking_level_change", "thinkingLevel": 7},
    )
    recorded[4]["parentId"] = "e1"  # the second branch starts before the first level was set
    (known_root / "a.jsonl").write_bytes(session_bytes(recorded))
    index_roots()
    session = Session.objects.select_related("root").get()
    put("openai", "m", thinking_levels=list(LEVELS))
    put("openai", "plain")
    assert level_for(session, model_named("openai/m")) == "low"
    assert level_for(session, model_named("openai/m"), "e3") == "high"
    assert level_for(session, model_named("openai/m"), "e1") == ""
    assert level_for(session, model_named("openai/plain")) == ""
