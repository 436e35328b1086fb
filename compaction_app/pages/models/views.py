"""The pages of models: the list of providers with their models and suggestions, the forms that add and change them, and
the test of a model."""

from typing import Any, Final

from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.models import PlannerModel
from compaction_app.planning import model_registry
from compaction_app.providers.connection_test import Verdict
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.templatetags.formatting import escape_line
from sessions_app.web.pages import FormInvalid, acts_on_post, redirect, require_valid, status_of, wants_fragment

from . import forms

SUGGESTED: Final = 12
"""The maximum number of suggested models."""


PRESETS: Final = (
    ("ollama", "Ollama", "http://localhost:11434/v1"),
    ("llama-cpp", "llama.cpp", "http://localhost:8080/v1"),
    ("lm-studio", "LM Studio", "http://localhost:1234/v1"),
    ("vllm", "vLLM", "http://localhost:8000/v1"),
)
"""The kinds of servers that users run themselves: the name of a provider, its label, and its default address."""


def models_page() -> dict[str, Any]:
    """All providers with their models, and the models of sessions that could be added."""
    blocks = model_registry.models_by_provider()
    configured = {model.planner for block in blocks for model in block.models}
    return {
        "blocks": [block for block in blocks if block.models or not block.provider.unset],
        "unset": [block.provider for block in blocks if block.provider.unset and not block.models],
        "suggestions": _suggestions([block.provider for block in blocks], configured),
        "presets": PRESETS,
    }


def _suggestions(known: list[model_registry.ResolvedProvider], configured: set[str]) -> list[dict[str, Any]]:
    """Models with which sessions were written, at usable providers."""
    usable = {provider.name: provider for provider in known if not provider.unset}
    named = Session.objects.shown().with_model().filter(provider__in=usable)
    counted = named.values_list("provider", "model").annotate(sessions=Count("pk")).order_by("-sessions", "model")
    lookup = ContextWindowLookup()
    return [
        {"provider": usable[provider], "name": name, "sessions": sessions, "window": lookup.window(name)}
        for provider, name, sessions in counted[: SUGGESTED + len(configured)]
        if f"{provider}/{name}" not in configured
    ][:SUGGESTED]


# ---- initial values of forms --------------------------------------------------------------------------------


def preset_values(name: str) -> dict[str, str]:
    """The values of a preset; empty for an unknown name."""
    return next(({"name": one, "base_url": base_url} for one, _, base_url in PRESETS if one == name), {})


def chosen_provider(name: str) -> str:
    """The provider of a new model: the one with this name, otherwise the first usable one; empty if there is none."""
    known = model_registry.providers()
    if name in {one.name for one in known}:
        return name
    return next((one.name for one in known if one.usable), "")


ACTIVE_NAV = {"active_nav": "settings", "tab": "models"}
OUTPUT_LIMIT: Final = 8_192
"""The output limit that is filled in for a new model, in tokens."""


@require_safe
def models(request: HttpRequest) -> HttpResponse:
    """Every provider with its models."""
    return _page(request)


def _page(request: HttpRequest, status: int = 200, **more: Any) -> HttpResponse:
    return render(request, "models_page/list.html", {"shown": models_page(), **more, **ACTIVE_NAV}, status=status)


def _address_of(provider: str) -> str:
    return reverse("compaction:models", fragment=f"provider-{provider}")


def _say(request: HttpRequest, done: str, name: str) -> None:
    messages.success(request, format_html('{}: <span class="mono">{}</span>', done, escape_line(name)))


# ---- models ------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
def new_model(request: HttpRequest) -> HttpResponse:
    """The form that adds a model; values in the address are filled in."""
    if request.method == "POST":
        return _save_model(request, forms.PlannerModelForm(request.POST))
    name = request.GET.get("name", "")
    window = ContextWindowLookup().window(name)
    initial = {
        "provider": chosen_provider(request.GET.get("provider", "")),
        "name": name,
        "window": window.value if window is not None else None,
        "output_limit": OUTPUT_LIMIT,
    }
    return _model_page(request, forms.PlannerModelForm(initial=initial), window=window)


@require_http_methods(["GET", "HEAD", "POST"])
def model(request: HttpRequest, model: int) -> HttpResponse:
    """The form that changes a model."""
    row = get_object_or_404(PlannerModel, pk=model)
    if request.method == "POST":
        return _save_model(request, forms.PlannerModelForm(request.POST, instance=row))
    return _model_page(request, forms.PlannerModelForm(instance=row))


def _save_model(request: HttpRequest, form: forms.PlannerModelForm) -> HttpResponse:
    is_new = form.instance.pk is None
    try:
        row = forms.save_model(form)
    except FormInvalid as fault:
        return _model_page(request, form, fault)
    if is_new:
        _say(request, "Added", str(row))
    return redirect(row)


def _model_page(
    request: HttpRequest, form: forms.PlannerModelForm, fault: FormInvalid | None = None, **more: Any
) -> HttpResponse:
    context = {"form": form, "providers": model_registry.providers(), "fault": fault, **more, **ACTIVE_NAV}
    return render(request, "models_page/model.html", context, status=status_of(fault))


@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, model: int) -> HttpResponse:
    """Delete a model, after a page that explains the consequences."""
    found = _known(model)
    if request.method == "POST":
        forms.remove_model(found.pk)
        _say(request, "Deleted", found.planner)
        return redirect("compaction:models")
    return render(request, "models_page/remove.html", {"model": found, **ACTIVE_NAV})


@require_http_methods(["GET", "HEAD", "POST"])
def test(request: HttpRequest, model: int) -> HttpResponse:
    """Have a model make one tiny tool call, and show the result. htmx gets the result, other clients the page."""
    if request.method != "POST":
        return redirect(reverse("compaction:models", fragment=f"model-{model}"))
    found = _known(model)
    tested: dict[str, Any] = {"tested": found.pk, "verdict": _try(found)}
    if wants_fragment(request):
        return render(request, "models_page/list.html#verdict", {"model": found, **tested})
    return _page(request, **tested)


def _try(model: model_registry.ResolvedModel) -> Verdict:
    try:
        return forms.test_model(model_registry.endpoint_of(model), model)
    except RedlineError as fault:
        return Verdict(ok=False, message=fault.message, seconds=0)


def _known(key: int) -> model_registry.ResolvedModel:
    found = next((model for model in model_registry.models() if model.pk == key), None)
    if found is None:
        raise Http404("That model is not there.")
    return found


# ---- providers ---------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
def new_provider(request: HttpRequest) -> HttpResponse:
    """The form that adds a provider; a preset fills it in."""
    if request.method != "POST":
        preset = request.GET.get("for", "")
        return _provider_page(request, forms.ProviderForm(initial=preset_values(preset)))
    form = forms.ProviderForm(request.POST)
    try:
        row = forms.add_provider(form)
    except RedlineError as fault:
        return _provider_page(request, form, fault=fault)
    _say(request, "Added", row.name)
    return redirect(_address_of(row.name))


@require_http_methods(["GET", "HEAD", "POST"])
def provider(request: HttpRequest, provider: str) -> HttpResponse:
    """The form that changes a provider; one of the environment takes only a key."""
    known = _provider(provider)
    posted = request.POST if request.method == "POST" else None
    form: forms.ProviderForm | forms.KeyForm
    if known.source == model_registry.ADDED:
        form = forms.ProviderForm(posted, instance=forms.added_provider(known.name))
    else:
        form = forms.KeyForm(known, posted)
    if posted is None:
        return _provider_page(request, form, known)
    try:
        if isinstance(form, forms.KeyForm):
            forms.change_key(form)
        else:
            _warn(request, known.name, forms.change_provider(form))
    except RedlineError as fault:
        return _provider_page(request, form, known, fault)
    return redirect(_address_of(known.name))


def _warn(request: HttpRequest, name: str, done: forms.Consequence) -> None:
    """Warn about the side effects of a change of a provider."""
    if done.key_dropped:
        messages.warning(
            request,
            format_html(
                'The key of <span class="mono">{}</span> was deleted: a key is sent only to the address that it was '
                "entered for.",
                name,
            ),
        )
    if done.agreement_ended:
        messages.warning(
            request,
            format_html(
                'The models of <span class="mono">{}</span> plan only when you start a plan: you had allowed automatic '
                "planning for another host.",
                name,
            ),
        )


def _provider_page(
    request: HttpRequest,
    form: forms.ProviderForm | forms.KeyForm,
    known: model_registry.ResolvedProvider | None = None,
    fault: RedlineError | None = None,
) -> HttpResponse:
    """The form of a provider. A key is never filled in again: `retype` is whether one was entered."""
    context = {
        "form": form,
        "known": known,
        "presets": PRESETS,
        "retype": bool(request.POST.get("key")),
        "fault": fault,
        **ACTIVE_NAV,
    }
    return render(request, "models_page/provider.html", context, status=status_of(fault))


@require_http_methods(["GET", "HEAD", "POST"])
def remove_one_provider(request: HttpRequest, provider: str) -> HttpResponse:
    """Delete an added provider, after a page that explains the consequences."""
    known = _provider(provider)
    if known.source != model_registry.ADDED:
        raise Http404("That provider comes from the environment.")
    fault = None
    if request.method == "POST":
        try:
            forms.remove_provider(known.name)
            _say(request, "Deleted", known.name)
            return redirect("compaction:models")
        except RedlineError as failure:
            fault = failure
    found = [model for model in model_registry.models() if model.provider.name == known.name]
    context = {"provider": known, "models": found, "fault": fault, **ACTIVE_NAV}
    return render(request, "models_page/remove.html", context, status=status_of(fault))


@acts_on_post(_address_of)
def agreement(request: HttpRequest, provider: str) -> HttpResponse:
    """Allow a provider's models to plan automatically, or withdraw the permission."""
    known, form = _provider(provider), forms.AgreementForm(request.POST)
    try:
        require_valid(form)
        if form.cleaned_data["back"]:
            forms.take_agreement_back(known.name)
        else:
            forms.agree(known.name, form.cleaned_data["origin"])
    except RedlineError as fault:
        return _page(request, status_of(fault), fault=fault)
    return redirect(_address_of(known.name))


def _provider(name: str) -> model_registry.ResolvedProvider:
    try:
        return model_registry.provider_named(name)
    except BadInput as missing:
        raise Http404(missing.message) from missing
