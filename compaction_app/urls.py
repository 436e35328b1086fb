from django.urls import path, re_path
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView

from compaction_app.api import handshakes as handshakes_api
from compaction_app.pages import audit as audit_views
from compaction_app.pages import backups as backups_views
from compaction_app.pages import commit as commit_views
from compaction_app.pages import doctor as doctor_views
from compaction_app.pages import evidence as evidence_views
from compaction_app.pages import handshakes as handshakes_views
from compaction_app.pages import losses as losses_views
from compaction_app.pages import navigation as navigation_views
from compaction_app.pages import runs as runs_views
from compaction_app.pages import selection as selection_views
from compaction_app.pages import settings_in_force as settings_views
from compaction_app.pages import summaries as summaries_views
from compaction_app.pages import timeline as timeline_views
from compaction_app.pages import tree as tree_page_views
from compaction_app.pages import undo as undo_views
from compaction_app.pages.models import views as models_page_views
from compaction_app.pages.review import views as review_pages
from compaction_app.pages.session import views as session_pages
from sessions_app.models import SESSION_ROUTE as _SESSION

from .api import views as api_views

app_name = "compaction"
# An entry id may contain anything: line breaks and slashes.
_ENTRY = r"/entries/(?P<entry>[\s\S]+)"
_BACKUP = r"/backups/(?P<name>[^/]+)"
_models_too = require_safe(RedirectView.as_view(pattern_name="compaction:models", query_string=True))
urlpatterns = [
    re_path(_SESSION + "$", session_pages.session, name="session"),
    # Before the routes with an entry in the path: an entry may be named like a session's file.
    re_path(_SESSION + "/text$", session_pages.text, name="text"),
    re_path(_SESSION + "/picture$", session_pages.picture, name="picture"),
    re_path(_SESSION + _ENTRY + "/text$", session_pages.text, name="text"),
    re_path(_SESSION + _ENTRY + "/picture$", session_pages.picture, name="picture"),
    re_path(_SESSION + _ENTRY + "$", session_pages.session, name="entry"),
    re_path(_SESSION + "/tree$", tree_page_views.tree, name="tree"),
    re_path(_SESSION + "/tree/compare$", tree_page_views.comparison, name="compare_branches"),
    re_path(_SESSION + "/tree/move$", navigation_views.move, name="move"),
    re_path(_SESSION + "/tree/label$", navigation_views.label, name="label"),
    re_path(_SESSION + "/tree/fork$", navigation_views.fork_from, name="fork_from"),
    re_path(_SESSION + "/timeline$", timeline_views.timeline, name="timeline"),
    re_path(_SESSION + "/summarise$", summaries_views.summarise, name="summarise"),
    re_path(_SESSION + "/lost$", losses_views.lost, name="lost"),
    re_path(_SESSION + "/lost/report$", losses_views.report, name="lost_report"),
    re_path(_SESSION + "/fork$", timeline_views.fork, name="fork"),
    re_path(_SESSION + "/export$", session_pages.export, name="export"),
    re_path(_SESSION + "/place$", session_pages.place, name="place"),
    re_path(_SESSION + "/reader$", session_pages.reader, name="reader"),
    re_path(_SESSION + "/read-anew$", session_pages.reindex_session, name="reindex"),
    re_path(_SESSION + "/migrate$", session_pages.migrate, name="migrate"),
    re_path(_SESSION + "/doctor$", doctor_views.doctor, name="doctor"),
    re_path(_SESSION + "/settings$", settings_views.compaction_settings, name="compaction_settings"),
    re_path(_SESSION + "/compact$", runs_views.compact, name="compact"),
    re_path(_SESSION + "/select$", selection_views.select_for_plan, name="select_for_plan"),
    re_path(_SESSION + "/backups$", backups_views.backups, name="backups"),
    re_path(_SESSION + _BACKUP + "/restore$", backups_views.restore, name="restore"),
    re_path(_SESSION + _BACKUP + "/verify$", backups_views.verify, name="verify_backup"),
    re_path(_SESSION + _BACKUP + "/delete$", backups_views.delete, name="delete_backup"),
    re_path(_SESSION + _BACKUP + "/download$", backups_views.download_backup, name="download_backup"),
    re_path(_SESSION + "/download$", backups_views.download_session, name="download"),
    path("api/sessions", api_views.sessions, name="api_sessions"),
    re_path(_SESSION.replace("^", "^api/") + "$", api_views.session, name="api_session"),
    re_path(_SESSION.replace("^", "^api/") + "/compact$", api_views.compact, name="api_compact"),
    path("api/runs/<int:run>", api_views.run, name="api_run"),
    path("api/runs/<int:run>/stop", api_views.stop, name="api_stop"),
    path("api/handshakes", handshakes_api.handshakes, name="api_handshakes"),
    path("api/handshakes/<int:handshake>", handshakes_api.handshake, name="api_handshake"),
    path("handshakes/", handshakes_views.handshakes, name="handshakes"),
    path("handshakes/waiting", handshakes_views.waiting, name="waiting_agents"),
    path("handshakes/<int:handshake>", handshakes_views.handshake, name="handshake"),
    path("handshakes/<int:handshake>/decline", handshakes_views.decline_handshake, name="decline_handshake"),
    path("handshakes/<int:handshake>/take-back", handshakes_views.take_back, name="take_back_handshake"),
    path("backups", backups_views.overview, name="all_backups"),
    path("backups/verify", backups_views.verify_all, name="verify_backups"),
    path("runs/", runs_views.runs, name="runs"),
    path("runs/<int:run>", runs_views.run, name="run"),
    path("runs/<int:run>/stop", runs_views.stop, name="stop"),
    path("runs/<int:run>/resume", runs_views.resume, name="resume"),
    path("runs/<int:run>/again", runs_views.again, name="again"),
    path("runs/<int:run>/transcript.jsonl", runs_views.transcript, name="transcript"),
    path("runs/<int:run>/requests/<int:seq>", runs_views.words, name="words"),
    path("runs/<int:run>/review", review_pages.review, name="review"),
    path("runs/<int:run>/decide", review_pages.decide, name="decide"),
    path("runs/<int:run>/select", selection_views.select, name="select"),
    path("runs/<int:run>/evidence", evidence_views.evidence, name="evidence"),
    path("runs/<int:run>/place", review_pages.place, name="review_place"),
    path("runs/<int:run>/stays", review_pages.stays, name="stays"),
    path("runs/<int:run>/commit", commit_views.commit, name="commit"),
    path("runs/<int:run>/review.md", commit_views.review_markdown, name="review_markdown"),
    path("runs/<int:run>/review.json", commit_views.review_json, name="review_json"),
    path("runs/<int:run>/approve-rest", commit_views.approve_rest, name="approve_rest"),
    path("runs/<int:run>/handoff.md", commit_views.handoff, name="handoff"),
    path("runs/<int:run>/result", commit_views.result, name="result"),
    path("runs/<int:run>/undo", undo_views.undo, name="undo"),
    path("runs/<int:run>/certify", commit_views.certify, name="certify"),
    path("drafts/<int:draft>", summaries_views.draft, name="draft"),
    path("drafts/<int:draft>/stop", summaries_views.stop, name="stop_draft"),
    path("drafts/<int:draft>/use", summaries_views.use, name="use_draft"),
    path("drafts/<int:draft>/discard", summaries_views.discard, name="discard_draft"),
    path("drafts/<int:draft>/replaced", losses_views.draft_lost, name="draft_lost"),
    path("drafts/<int:draft>/append", summaries_views.append, name="append_draft"),
    path("audit", audit_views.audit, name="audit"),
    path("models", models_page_views.models, name="models"),
    # Django redirects `runs` without its slash; it does not remove a slash too many.
    path("models/", _models_too, name="models_too"),
    path("models/add", models_page_views.new_model, name="add_model"),
    path("models/<int:model>", models_page_views.model, name="model"),
    path("models/<int:model>/remove", models_page_views.remove, name="remove_model"),
    path("models/<int:model>/test", models_page_views.test, name="test_model"),
    path("providers/add", models_page_views.new_provider, name="add_provider"),
    path("providers/<slug:provider>", models_page_views.provider, name="provider"),
    path("providers/<slug:provider>/remove", models_page_views.remove_one_provider, name="remove_provider"),
    path("providers/<slug:provider>/agreement", models_page_views.agreement, name="agreement"),
]
