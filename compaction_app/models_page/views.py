"""The pages of models: which there are, the forms that add and change them, and a test of one."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.models import PlannerModel
from compaction_app.planning.model_registry import (
    ADDED,
    ResolvedModel,
    ResolvedProvider,
    endpoint_of,
    provider_named,
)
from compaction_app.planning.model_registry import models as known_models
from compaction_app.providers.connection_test import Verdict
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.redirects import acts_on_post, see_other, wants_fragment

from .model_test import test_model
from .presenter import (
    ModelForm,
    ProviderForm,
    model_as_typed,
    models_page,
    new_model_form,
    preset_named,
    provider_as_typed,
    typed_model,
    typed_provider,
)
from .service import (
    Misfilled,
    add_model,
    add_provider,
    agree,
    change_model,
    change_provider,
    enter_key,
    forget_key,
    remove_model,
    remove_provider,
    take_agreement_back,
)

HERE = {"here": "models"}
TOLD: Final = "models.told"
"""What was just done stands in the address, signed: nobody else can put words on the page."""
TOLD_SECONDS: Final = 3_600


@require_safe
def models(request: HttpRequest) -> HttpResponse:
    """Every provider with its models, and what was just done with one."""
    return _page(request)


def _page(request: HttpRequest, status: int = 200, **more: Any) -> HttpResponse:
    context = {"shown": models_page(), "told": _told(request), **more, **HERE}
    return render(request, "models_page/list.html", context, status=status)


def _told(request: HttpRequest) -> dict[str, str]:
    """What was just done, where this server said so, and not long ago."""
    try:
        told: dict[str, str] = signing.loads(request.GET.get("told", ""), salt=TOLD, max_age=TOLD_SECONDS)
    except signing.BadSignature:
        return {}
    return told


def _back(anchor: str = "", **told: str) -> HttpResponse:
    query = f"?{urlencode({'told': signing.dumps(told, salt=TOLD)})}" if told else ""
    return see_other(f"{reverse('compaction:models')}{query}{anchor}")


# ---- models ------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
def new_model(request: HttpRequest) -> HttpResponse:
    """The form that adds a model; what the address names of it is filled in."""
    if request.method != "POST":
        form = new_model_form(request.GET.get("provider", ""), request.GET.get("name", ""))
        return _model_form(request, form)
    typed = typed_model(request.POST)
    try:
        row = add_model(typed)
    except RedlineError as fault:
        return _model_form(request, ModelForm(typed, faults=_faults(fault)), fault)
    return _back(f"#model-{row.pk}", added=str(row))


@require_http_methods(["GET", "HEAD", "POST"])
def model(request: HttpRequest, model: int) -> HttpResponse:
    """The form that changes a model."""
    row = get_object_or_404(PlannerModel, pk=model)
    if request.method != "POST":
        return _model_form(request, ModelForm(model_as_typed(row), row.pk))
    typed = typed_model(request.POST)
    try:
        change_model(row.pk, typed)
    except RedlineError as fault:
        return _model_form(request, ModelForm(typed, row.pk, _faults(fault)), fault)
    return _back(f"#model-{row.pk}")


def _model_form(request: HttpRequest, form: ModelForm, fault: RedlineError | None = None) -> HttpResponse:
    context = {"form": form, "fault": _elsewhere(fault), **HERE}
    return render(request, "models_page/model.html", context, status=200 if fault is None else 409)


@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, model: int) -> HttpResponse:
    """Remove a model, after a page that says what that means."""
    found = _known(model)
    if request.method == "POST":
        remove_model(found.pk)
        return _back(removed=found.planner)
    return render(request, "models_page/remove.html", {"model": found, **HERE})


@require_http_methods(["GET", "HEAD", "POST"])
def test(request: HttpRequest, model: int) -> HttpResponse:
    """Ask a model for one tiny tool call, and say what came of it. htmx gets the words, anyone else the page."""
    if request.method != "POST":
        return _back(f"#model-{model}")
    found = _known(model)
    tested: dict[str, Any] = {"tested": found.pk, "verdict": _try(found)}
    if wants_fragment(request):
        return render(request, "models_page/list.html#verdict", {"model": found, **tested})
    return _page(request, **tested)


def _try(model: ResolvedModel) -> Verdict:
    try:
        return test_model(endpoint_of(model), model)
    except RedlineError as fault:
        return Verdict(ok=False, said=fault.message, seconds=0)


def _known(key: int) -> ResolvedModel:
    found = next((model for model in known_models() if model.pk == key), None)
    if found is None:
        raise Http404("That model is not there.")
    return found


# ---- providers ---------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
def new_provider(request: HttpRequest) -> HttpResponse:
    """The form that adds a provider; a preset fills it in."""
    if request.method != "POST":
        return _provider_form(request, ProviderForm(preset_named(request.GET.get("for", ""))))
    typed = typed_provider(request.POST)
    try:
        row = add_provider(typed)
    except RedlineError as fault:
        return _provider_form(request, ProviderForm(typed, faults=_faults(fault)), fault)
    return _back(f"#provider-{row.name}", added=row.name)


@require_http_methods(["GET", "HEAD", "POST"])
def provider(request: HttpRequest, provider: str) -> HttpResponse:
    """The form that changes a provider; one of the environment takes a key alone."""
    known = _provider(provider)
    if request.method != "POST":
        return _provider_form(request, ProviderForm(provider_as_typed(known), known))
    typed = typed_provider(request.POST)
    told: dict[str, str] = {}
    try:
        if known.source == ADDED:
            done = change_provider(known.name, typed)
            told = {"dropped": known.name} if done.key_dropped else {}
            told |= {"ended": known.name} if done.agreement_ended else {}
        elif typed.forget:
            forget_key(known.name)
        else:
            enter_key(known.name, typed.key, request.POST.get("origin", ""))
    except RedlineError as fault:
        return _provider_form(request, ProviderForm(typed, known, _faults(fault)), fault)
    return _back(f"#provider-{known.name}", **told)


def _provider_form(
    request: HttpRequest, form: ProviderForm, fault: RedlineError | None = None
) -> HttpResponse:
    context = {"form": form, "fault": _elsewhere(fault), **HERE}
    return render(request, "models_page/provider.html", context, status=200 if fault is None else 409)


@require_http_methods(["GET", "HEAD", "POST"])
def remove_one_provider(request: HttpRequest, provider: str) -> HttpResponse:
    """Remove a provider that was added, after a page that says what goes with it."""
    known = _provider(provider)
    if known.source != ADDED:
        raise Http404("That provider comes from the environment.")
    fault = None
    if request.method == "POST":
        try:
            remove_provider(known.name)
            return _back(removed=known.name)
        except RedlineError as failure:
            fault = failure
    found = [model for model in known_models() if model.provider.name == known.name]
    context = {"provider": known, "models": found, "fault": fault, **HERE}
    return render(request, "models_page/remove.html", context, status=200 if fault is None else 409)


def _page_of(provider: str) -> str:
    return f"{reverse('compaction:models')}#provider-{provider}"


@acts_on_post(_page_of)
def agreement(request: HttpRequest, provider: str) -> HttpResponse:
    """Let a provider's models plan without being asked for, or take that back."""
    known = _provider(provider)
    try:
        if "back" in request.POST:
            take_agreement_back(known.name)
        else:
            agree(known.name, request.POST.get("origin", ""))
    except RedlineError as fault:
        return _page(request, status=409, fault=fault)
    return _back(f"#provider-{known.name}")


def _provider(name: str) -> ResolvedProvider:
    try:
        return provider_named(name)
    except BadInput as missing:
        raise Http404(missing.message) from missing


# ---- what is wrong -----------------------------------------------------------------------------------------


def _faults(fault: RedlineError) -> dict[str, str]:
    """What is wrong with each field; nothing where it is the whole that failed."""
    return fault.faults if isinstance(fault, Misfilled) else {}


def _elsewhere(fault: RedlineError | None) -> RedlineError | None:
    """A failure that no field is to blame for."""
    return None if isinstance(fault, Misfilled) else fault
