from __future__ import annotations

from django.urls import path, re_path

from .views import committing, runs
from .views import session as session_pages

app_name = "compaction"
_SESSION = r"^sessions/(?P<root>[0-9]+)/(?P<path>.+\.jsonl)"
_ENTRY = r"/entries/(?P<entry>[^/]+)"
urlpatterns = [
    re_path(_SESSION + "$", session_pages.session, name="session"),
    re_path(_SESSION + _ENTRY + "$", session_pages.session, name="entry"),
    re_path(_SESSION + _ENTRY + "/text$", session_pages.text, name="text"),
    re_path(_SESSION + "/compact$", runs.compact, name="compact"),
    path("runs/", runs.runs, name="runs"),
    path("runs/<int:run>", runs.run, name="run"),
    path("runs/<int:run>/stop", runs.stop, name="stop"),
    path("runs/<int:run>/resume", runs.resume, name="resume"),
    path("runs/<int:run>/again", runs.again, name="again"),
    path("runs/<int:run>/transcript.jsonl", runs.transcript, name="transcript"),
    path("runs/<int:run>/commit", committing.commit, name="commit"),
    path("runs/<int:run>/result", committing.result, name="result"),
]
