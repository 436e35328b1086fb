"""The URLs of the pages."""

from django.apps import apps
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView

EARLIER_ADDRESSES = {
    r"^runs/?$": "/inbox",
    r"^runs/(?P<plan>\d+)$": "/plans/%(plan)s/log",
    r"^runs/(?P<plan>\d+)/review$": "/plans/%(plan)s",
    r"^runs/(?P<plan>\d+)/commit$": "/plans/%(plan)s/confirm",
    r"^runs/(?P<plan>\d+)/(?P<rest>.+)$": "/plans/%(plan)s/%(rest)s",
    r"^handshakes/?$": "/inbox/agents",
    r"^handshakes/(?P<rest>.+)$": "/inbox/agents/%(rest)s",
    r"^audit$": "/history",
    r"^backups$": "/history/backups",
    r"^lab/?$": "/insights/benchmark",
    r"^lab/hindsight$": "/insights/costs",
    r"^lab/(?P<rest>.+)$": "/insights/benchmark/%(rest)s",
    r"^(?P<page>agents|models)/?$": "/settings/%(page)s",
    r"^(?P<page>agents|models|providers)/(?P<rest>.+)$": "/settings/%(page)s/%(rest)s",
}
"""Addresses of earlier versions, which are in bookmarks, in notes and in the scrollback of terminals."""

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("sessions_app.urls")),
    path("", include("compaction_app.urls")),
]
if apps.is_installed("lab_app"):
    urlpatterns.append(path("", include("lab_app.urls")))
urlpatterns += [
    re_path(earlier, require_safe(RedirectView.as_view(url=now, query_string=True, permanent=True)))
    for earlier, now in EARLIER_ADDRESSES.items()
]
handler400 = "sessions_app.web.pages.bad_request"
handler404 = "sessions_app.web.pages.not_found"
handler500 = "sessions_app.web.pages.server_error"
