from __future__ import annotations

from django.urls import path

from .views import importing, listing, logout
from .views import settings as settings_page

app_name = "sessions"
urlpatterns = [
    path("", listing.sessions, name="list"),
    path("import", importing.imported, name="import"),
    path("import/<str:name>/remove", importing.remove, name="remove"),
    path("log-out", logout.log_out, name="log_out"),
    path("settings", settings_page.in_force, name="settings"),
]
