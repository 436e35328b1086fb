from __future__ import annotations

from django.urls import path, re_path

from .views import session as session_pages

app_name = "compaction"
_SESSION = r"^sessions/(?P<root>[0-9]+)/(?P<path>.+\.jsonl)"
_ENTRY = r"/entries/(?P<entry>[^/]+)"
urlpatterns = [
    re_path(_SESSION + "$", session_pages.session, name="session"),
    re_path(_SESSION + _ENTRY + "$", session_pages.session, name="entry"),
    re_path(_SESSION + _ENTRY + "/text$", session_pages.text, name="text"),
    path("runs/", session_pages.session, name="runs"),
]
