"""The addresses of the pages."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("sessions_app.urls")),
    path("", include("compaction_app.urls")),
]
