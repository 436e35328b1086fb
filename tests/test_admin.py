"""Promises of the admin: every row can be looked at, none can be changed, and there is nobody to log in as."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.apps import apps
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import BinaryField
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction_app.models import (
    Agreement,
    Backup,
    Compaction,
    Decision,
    PlannerModel,
    Proposal,
    Provider,
    Run,
    RunEvent,
    Snapshot,
)
from redline.urls import site
from sessions_app.index.indexer import index_roots
from sessions_app.models import Entry, Session
from tests.factories import assistant, chain, session_bytes, text, user
from tests.html import active_markup

OURS = [
    model for app in ("sessions_app", "compaction_app") for model in apps.get_app_config(app).get_models()
]


@pytest.fixture
def rows(known_root: Path) -> None:
    """A row of every model, with texts that would like to act."""
    (known_root / "a.jsonl").write_bytes(
        session_bytes(chain(user("<script>x</script>\x1b\u202e"), assistant(text("hi"))))
    )
    index_roots()
    session = Session.objects.get()
    now = timezone.now()
    run = Run.objects.create(session=session, planner="embedded\u202e", created_at=now)
    Snapshot.objects.create(run=run, packed=b"packed")
    RunEvent.objects.create(run=run, seq=1, kind="prepared", at=now, data={"told": "<b>\u202e"})
    Proposal.objects.create(run=run, order=1, entry_id="e2", source="planner", call=1, tool="context_delete")
    Decision.objects.create(run=run, seq=1, kind="approve", targets=[], at=now)
    backup = Backup.objects.create(
        session=session, path="/x", sha256="0" * 64, size=1, taken_at=now, reason="compact"
    )
    Compaction.objects.create(
        session=session, backup=backup, run=run, entry_id="e9", leaf_id="e2", planner="embedded", written_at=now,
        parameters={}, stats={}, origins={},
    )  # fmt: skip
    Provider.objects.create(name="own", dialect="openai", base_url="http://localhost:8080/v1")
    PlannerModel.objects.create(provider="own", name="<script>x\u202e", window=32_000, output_limit=1_000)
    Agreement.objects.create(provider="own", origin="http://localhost:8080", agreed_at=now)


def address(model: type, key: object = "") -> str:
    place = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
    return f"{place}{key}/change/" if key else place


def test_every_model_is_there() -> None:
    assert set(site._registry) == set(OURS)


def test_an_unknown_browser_gets_403(client: Client, rows: None) -> None:
    assert client.get("/admin/").status_code == 403
    assert client.get(address(Run)).status_code == 403


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_every_row_can_be_viewed(browser: Client, rows: None, model: type) -> None:
    key = model._default_manager.first().pk
    for place in ("/admin/", f"/admin/{model._meta.app_label}/", address(model), address(model, key)):
        answer = browser.get(place)
        assert answer.status_code == 200, place
        assert active_markup(answer) == []
        assert not set(answer.content.decode()) & set("\x1b\u202e")
        assert "unsafe" not in answer["Content-Security-Policy"]


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_nothing_can_be_changed(browser: Client, rows: None, model: type) -> None:
    key = model._default_manager.first().pk
    before = list(model._default_manager.values())
    places = [
        address(model),
        address(model, key),
        f"{address(model)}add/",
        f"{address(model)}{key}/delete/",
        f"{address(model)}{key}/history/",
    ]
    for place in places:
        for method in ("post", "put", "patch", "delete"):
            form = {"action": "delete_selected", "_selected_action": str(key), "post": "yes"}
            assert getattr(browser, method)(place, form if method == "post" else None).status_code in (
                404,
                405,
            )
    assert list(model._default_manager.values()) == before


def test_there_are_no_accounts_and_no_login(browser: Client, rows: None) -> None:
    for place in (
        "login/",
        "logout/",
        "password_change/",
        "password_change/done/",
        "autocomplete/",
        "r/1/1/",
    ):
        assert browser.get(f"/admin/{place}").status_code == 404, place
    assert not [name for name in connection.introspection.table_names() if name.startswith(("auth", "django_"))
                and name != "django_migrations"]  # fmt: skip


def test_lists_do_not_load_bulky_columns(browser: Client, rows: None) -> None:
    bulky = [
        (Session, "state"), (Session, "fingerprint"), (Session, "damage"), (RunEvent, "data"),
        *[(model, field.name) for model in OURS for field in model._meta.concrete_fields
          if isinstance(field, BinaryField)],
    ]  # fmt: skip
    assert (Entry, "digest") in bulky
    assert (Snapshot, "packed") in bulky
    for model, name in bulky:
        with CaptureQueriesContext(connection, ) as queries:  # fmt: skip
            assert browser.get(address(model)).status_code == 200
        column = f'"{model._meta.db_table}"."{name}"'
        assert queries.captured_queries
        assert not [query["sql"] for query in queries.captured_queries if column in query["sql"]]


def test_a_missing_row_is_not_found(browser: Client, rows: None) -> None:
    assert browser.get(address(Run, 999)).status_code == 404
    assert browser.get(address(Run, "x")).status_code == 404


def test_the_admin_apps_leave_no_trace_in_the_database(browser: Client, rows: None) -> None:
    applied = MigrationExecutor(connection).loader.applied_migrations
    assert {app for app, _ in applied} == {"sessions_app", "compaction_app"}
