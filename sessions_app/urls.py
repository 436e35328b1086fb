from __future__ import annotations

from django.urls import path

from sessions_app.pages import agents as connections_views
from sessions_app.pages import imports as imports_views
from sessions_app.pages import search as search_views
from sessions_app.pages.list import views as list_views
from sessions_app.pages.settings import views as settings_page
from sessions_app.web import pages

app_name = "sessions"
urlpatterns = [
    path("", list_views.sessions, name="list"),
    path("agents", connections_views.agents, name="agents"),
    path("agents/<slug:key>/connect", connections_views.connect_agent, name="connect_agent"),
    path("agents/<slug:key>/remove", connections_views.remove_agent, name="remove_agent"),
    path("agents/<slug:key>/test", connections_views.test_agent, name="test_agent"),
    path("import", imports_views.imported, name="import"),
    path("import/<str:name>/remove", imports_views.remove, name="remove"),
    path("log-out", pages.log_out, name="log_out"),
    path("theme", pages.choose_theme, name="theme"),
    path("search", search_views.results, name="search"),
    path("settings", settings_page.settings, name="settings"),
]
