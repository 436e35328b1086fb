from __future__ import annotations

from django.urls import path, re_path
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView

from .views import api, backups, committing, models, runs
from .views import review as review_pages
from .views import session as session_pages

app_name = "compaction"
# A file name and an entry id hold whatever their writer liked: line breaks, and in an id slashes.
_SESSION = r"^sessions/(?P<root>[0-9]{1,18})/(?P<path>[\s\S]+\.jsonl)"
_ENTRY = r"/entries/(?P<entry>[\s\S]+)"
_BACKUP = r"/backups/(?P<name>[^/]+)"
_models_too = require_safe(RedirectView.as_view(pattern_name="compaction:models", query_string=True))
urlpatterns = [
    re_path(_SESSION + "$", session_pages.session, name="session"),
    # Before those with an entry in the path: an entry that is named like a session's file is asked for.
    re_path(_SESSION + "/text$", session_pages.text, name="text"),
    re_path(_SESSION + _ENTRY + "/text$", session_pages.text, name="text"),
    re_path(_SESSION + _ENTRY + "$", session_pages.session, name="entry"),
    re_path(_SESSION + "/reader$", session_pages.reader, name="reader"),
    re_path(_SESSION + "/read-anew$", session_pages.read_again, name="read_anew"),
    re_path(_SESSION + "/migrate$", session_pages.migrate, name="migrate"),
    re_path(_SESSION + "/compact$", runs.compact, name="compact"),
    re_path(_SESSION + "/backups$", backups.backups, name="backups"),
    re_path(_SESSION + _BACKUP + "/restore$", backups.restore, name="restore"),
    re_path(_SESSION + _BACKUP + "/verify$", backups.verify, name="verify_backup"),
    re_path(_SESSION + _BACKUP + "/delete$", backups.delete, name="delete_backup"),
    re_path(_SESSION + _BACKUP + "/download$", backups.download_backup, name="download_backup"),
    re_path(_SESSION + "/download$", backups.download_session, name="download"),
    path("api/sessions", api.sessions, name="api_sessions"),
    re_path(_SESSION.replace("^", "^api/") + "$", api.session, name="api_session"),
    re_path(_SESSION.replace("^", "^api/") + "/compact$", api.compact, name="api_compact"),
    path("api/runs/<int:run>", api.run, name="api_run"),
    path("api/runs/<int:run>/stop", api.stop, name="api_stop"),
    path("runs/", runs.runs, name="runs"),
    path("runs/<int:run>", runs.run, name="run"),
    path("runs/<int:run>/stop", runs.stop, name="stop"),
    path("runs/<int:run>/resume", runs.resume, name="resume"),
    path("runs/<int:run>/again", runs.again, name="again"),
    path("runs/<int:run>/transcript.jsonl", runs.transcript, name="transcript"),
    path("runs/<int:run>/requests/<int:seq>", runs.words, name="words"),
    path("runs/<int:run>/review", review_pages.review, name="review"),
    path("runs/<int:run>/decide", review_pages.decide, name="decide"),
    path("runs/<int:run>/stays", review_pages.stays, name="stays"),
    path("runs/<int:run>/commit", committing.commit, name="commit"),
    path("runs/<int:run>/result", committing.result, name="result"),
    path("models", models.models, name="models"),
    # `runs` without its slash is led on by Django; a slash too many is not.
    path("models/", _models_too, name="models_too"),
    path("models/add", models.new_model, name="add_model"),
    path("models/<int:model>", models.model, name="model"),
    path("models/<int:model>/remove", models.remove, name="remove_model"),
    path("models/<int:model>/test", models.test, name="test_model"),
    path("providers/add", models.new_provider, name="add_provider"),
    path("providers/<slug:provider>", models.provider, name="provider"),
    path("providers/<slug:provider>/remove", models.remove_one_provider, name="remove_provider"),
    path("providers/<slug:provider>/agreement", models.agreement, name="agreement"),
]
