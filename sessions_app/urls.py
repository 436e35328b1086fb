from django.urls import path

from sessions_app.pages import agents, imports, list, search, settings  # noqa: A004  # named after their pages
from sessions_app.web import pages

app_name = "sessions"
urlpatterns = [
    path("", list.sessions, name="list"),
    path("settings/agents", agents.agents, name="agents"),
    path("settings/agents/<slug:key>/connect", agents.connect_agent, name="connect_agent"),
    path("settings/agents/<slug:key>/remove", agents.remove_agent, name="remove_agent"),
    path("settings/agents/<slug:key>/test", agents.test_agent, name="test_agent"),
    path("import", imports.imported, name="import"),
    path("import/<str:name>/remove", imports.remove, name="remove"),
    path("log-out", pages.log_out, name="log_out"),
    path("theme", pages.choose_theme, name="theme"),
    path("search", search.results, name="search"),
    path("settings", settings.settings_page, name="settings"),
    path("settings/windows", settings.settings_page, {"tab": "windows"}, name="windows"),
    path("settings/browser", settings.settings_page, {"tab": "browser"}, name="browser"),
    path("settings/advanced", settings.settings_page, {"tab": "advanced"}, name="advanced"),
]
