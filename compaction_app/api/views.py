"""The API for scripts: list sessions, start a plan, query its state, stop it. JSON, errors included.

Requests carry the token of `redline token` (see `sessions_app.web.middleware`). Nothing here confirms a plan: only
people who have seen it do that.

Addresses below `/api/runs`, and the fields `run`, `struck`, `byItself`, `commitUrl`, `writer` and `leaf`, are earlier
names. They work until the next version.

| field               | of a request; all are optional: the settings in effect are the defaults       |
|---------------------|-------------------------------------------------------------------------------|
| `compression_ratio` | the fraction of tokens to keep, between 0 and 1                               |
| `preserve_recent`   | how many of the last entries are kept, from 0 up                              |
| `query`             | what matters; empty, in JSON: your last message                               |
| `planner`           | `embedded`, which is the default, `prune`, or a model as `provider/name`      |
| `thinking`          | the thinking level of a model, or `off`; the session's own by default         |
| `save_as`           | how the plan is saved; the best way by default                                |
| `branch`            | the last entry of the branch; the file's last one by default                  |
"""

import json
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec
from urllib.parse import urlencode

import pydantic
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.urls import reverse
from pydantic import BaseModel, ConfigDict

from compaction_app.core import parameters as normal
from compaction_app.core.stats import target_reduction
from compaction_app.lookups import known_run, known_session
from compaction_app.models import Run
from compaction_app.planning.plan import EMBEDDED, effective_parameters, own_parameters, requested_level
from compaction_app.runs.commands import start_run, stop_run
from sessions_app.earlier_names import with_earlier_names
from sessions_app.models import Session
from sessions_app.pages.list import list_page
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.web.credentials import page_address
from sessions_app.web.middleware import failed

TEXT_CHARACTERS: Final = 4_000
NAME_CHARACTERS: Final = 300


class Wanted(BaseModel):
    """The fields of a request. Types are strict in JSON; a form contains only text."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    compression_ratio: float | None = None
    preserve_recent: int | None = pydantic.Field(default=None, lt=2**31)
    query: str | None = pydantic.Field(default=None, max_length=TEXT_CHARACTERS)
    planner: str = pydantic.Field(default=EMBEDDED, max_length=NAME_CHARACTERS)
    thinking: str = pydantic.Field(default="", max_length=NAME_CHARACTERS)
    writer: str = pydantic.Field(
        default="", max_length=NAME_CHARACTERS, validation_alias=pydantic.AliasChoices("save_as", "writer")
    )
    leaf: str = pydantic.Field(
        default="", max_length=NAME_CHARACTERS, validation_alias=pydantic.AliasChoices("branch", "leaf")
    )

    @pydantic.field_validator("query", "planner", "thinking", "writer", "leaf")
    @classmethod
    def _is_text(cls, value: str | None) -> str | None:
        if value is not None and (well_formed(value) != value or "\0" in value):
            raise ValueError("a lone surrogate, or NUL")
        return value

    @property
    def requested_parameters(self) -> dict[str, object]:
        """The plan's own parameters. Raises BadInput if one is out of range."""
        return own_parameters(self.compression_ratio, self.preserve_recent, self.query)


def wanted_by(request: HttpRequest) -> Wanted:
    """The fields of a JSON body, if any, or the non-empty fields of a form. Raises BadInput `bad_body`."""
    is_form = request.content_type in FORMS
    fields = _form_fields(request) if is_form else _json_fields(request.body)
    try:
        return Wanted.model_validate(fields, strict=not is_form)
    except pydantic.ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise BadInput("bad_body", f"{name}: {first['msg']}. Nothing was planned.") from fault


def _json_fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as fault:
        raise BadInput("bad_body", "The body is not JSON. Nothing was planned.") from fault
    if not isinstance(fields, dict):
        raise BadInput("bad_body", "The body is not a JSON object. Nothing was planned.")
    return fields


def _form_fields(request: HttpRequest) -> dict[str, str]:
    try:
        form = request.POST.dict()
    except MultiPartParserError as fault:
        raise BadInput("bad_body", "The body is not a form. Nothing was planned.") from fault
    return {name: str(value) for name, value in form.items() if value != "" and name != "csrfmiddlewaretoken"}


def require_entry(session: Session, leaf: str) -> None:
    """Raise BadInput `unknown_entry` if a session has no such entry; an empty leaf stands for its last entry."""
    if leaf and not session.has_entry(leaf):
        raise BadInput("unknown_entry", f"There is no entry {leaf} in {session.relative_path}. Nothing was planned.")


def started_run(run: Run, request: HttpRequest) -> dict[str, Any]:
    """The response to the start of a plan: `url` is for your browser, `stateUrl` for the script."""
    document = {
        "plan": run.pk,
        "state": str(run.state),
        "url": page_address(request, run.get_absolute_url()),
        "stateUrl": request.build_absolute_uri(reverse("compaction:api_run", args=(run.pk,))),
    }
    return with_earlier_names(document, run="plan")


def run_as_json(run: Run, request: HttpRequest) -> dict[str, Any]:
    """The current state of a plan; times are UTC.

    `context`, `deleted` and `goal` are tokens in one measure, that of the session's context: its size, the tokens that
    the plan deletes (from the commit on: the approved one), and those that the target deletes. `stats` and percentages
    use the agent's count, characters / 4, which decides whether the target is reached. `sources` name the file of each
    of the `parameters`, `this plan` or `default`; the query is null until the plan is prepared, if none was given.
    """
    size = run.context_size
    parameters = run.parameters if run.parameters is not None else _parameters_now(run)

    def page(name: str) -> str:
        return page_address(request, reverse(f"compaction:{name}", args=(run.pk,)))

    document = {
        **started_run(run, request),
        "session": page_address(request, run.session.get_absolute_url()),
        "leaf": run.leaf_id,
        "planner": run.planner,
        "thinking": run.thinking,
        "parameters": parameters,
        "sources": run.sources,
        "reason": run.reason,
        "automatic": run.automatic,
        "active": run.is_active,
        "stopping": run.is_stopping,
        "context": {"tokens": size.tokens, "basis": str(size.basis)} if run.stats else None,
        "deleted": run.struck,
        "goal": run.goal,
        "percent": run.percent,
        "target": target_reduction(parameters["compression_ratio"]),
        "targetMet": run.meets_target,
        "calls": run.calls,
        "stats": run.stats,
        "usage": run.usage,
        "failure": run.failure,
        "createdAt": _time(run.created_at),
        "startedAt": _time(run.started_at),
        "endedAt": _time(run.ended_at),
        "reviewUrl": page("review") if run.is_reviewable else None,
        "confirmUrl": page("commit") if run.is_reviewable else None,
        "stopUrl": request.build_absolute_uri(reverse("compaction:api_stop", args=(run.pk,)))
        if run.is_active
        else None,
    }
    return with_earlier_names(document, byItself="automatic", struck="deleted", commitUrl="confirmUrl")


def _parameters_now(run: Run) -> dict[str, Any]:
    """The parameters with which a plan would be prepared now."""
    values = effective_parameters(run.session.agent_settings(Path.home()), run.requested_parameters).values
    return {
        "compression_ratio": normal.compression_ratio(values.get("compression_ratio")),
        "preserve_recent": normal.preserve_recent(values.get("preserve_recent")),
        "query": values.get("query") or None,
    }


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def json_view(*methods: str) -> Callable[[View[P]], View[P]]:
    """Decorate a view that accepts these methods, and whose RedlineErrors are returned as JSON."""

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def json_or_failure(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.method not in methods:
                allowed = ", ".join(methods)
                answer = failed("bad_method", f"{request.path} takes {allowed}. Nothing was done.", 405)
                answer["Allow"] = allowed
                return answer
            try:
                return view(request, *args, **kwargs)
            except RedlineError as fault:
                return failed(fault.code, fault.message, _status(fault))

        return json_or_failure

    return decorate


def _status(fault: RedlineError) -> int:
    if isinstance(fault, BadInput):
        return 400
    return 409 if isinstance(fault, Conflict) else 503


SESSIONS, MOST_SESSIONS = 100, 1_000
"""The default and the maximum number of sessions on a page of the list."""
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")


@json_view("GET", "HEAD")
def sessions(request: HttpRequest) -> HttpResponse:
    """The sessions of all agents, a page at a time, the most recently used first."""
    query = request.GET
    limit = _number(query.get("limit", str(SESSIONS)), "limit", most=MOST_SESSIONS)
    after = _number(query["after"], "after", most=2**63 - 1) if query.get("after") else None
    text = query.get("q", "").strip()
    page = list_page(text, limit, after)
    following = {"q": text, "limit": limit, "after": page.sessions[-1].pk} if page.more else None
    return JsonResponse(
        {
            "sessions": [session.as_json() for session in page.sessions],
            "next": f"{request.path}?{urlencode(following)}" if following else None,
        }
    )


def _number(given: str, name: str, *, most: int) -> int:
    if given.isascii() and given.isdigit() and len(given) < 20 and 1 <= int(given) <= most:
        return int(given)
    raise BadInput("bad_query", f"{name} is a number from 1 to {most}. Nothing was listed.")


@json_view("GET", "HEAD")
def session(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """One session, as in the list."""
    del request
    return JsonResponse(known_session(root, path).as_json())


@json_view("POST")
def compact(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Start a plan for a session, by JSON or by a form."""
    found = known_session(root, path)
    wanted = wanted_by(request)
    require_entry(found, wanted.leaf)
    run = start_run(
        found,
        planner=wanted.planner,
        thinking=requested_level(wanted.thinking),
        writer=wanted.writer,
        requested_parameters=wanted.requested_parameters,
        leaf_id=wanted.leaf,
    )
    return JsonResponse(started_run(run, request), status=202)


@json_view("GET", "HEAD")
def run(request: HttpRequest, run: int) -> HttpResponse:
    """Return the current state of a plan."""
    return JsonResponse(run_as_json(known_run(run), request))


@json_view("POST")
def stop(request: HttpRequest, run: int) -> HttpResponse:
    """Request that planning stops; what was proposed so far is kept."""
    found = known_run(run)
    stop_run(found)
    found.refresh_from_db()
    return JsonResponse(run_as_json(found, request), status=202)
