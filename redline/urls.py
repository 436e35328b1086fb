"""The URLs of the pages."""

from django.apps import apps
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("sessions_app.urls")),
    path("", include("compaction_app.urls")),
]
if apps.is_installed("lab_app"):
    urlpatterns.append(path("", include("lab_app.urls")))
handler400 = "sessions_app.web.pages.bad_request"
handler404 = "sessions_app.web.pages.not_found"
handler500 = "sessions_app.web.pages.server_error"
