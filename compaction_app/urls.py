from __future__ import annotations

from django.urls import re_path

from . import views

app_name = "compaction"
_SESSION = r"^sessions/(?P<root>[0-9]+)/(?P<path>.+\.jsonl)"
_ENTRY = r"/entries/(?P<entry>[^/]+)"
urlpatterns = [
    re_path(_SESSION + "$", views.session, name="session"),
    re_path(_SESSION + _ENTRY + "$", views.session, name="entry"),
    re_path(_SESSION + _ENTRY + "/text$", views.text, name="text"),
]
