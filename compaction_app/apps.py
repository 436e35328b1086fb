from django.apps import AppConfig


class CompactionConfig(AppConfig):
    """Deletion: planning it, reviewing it, writing it, undoing it."""

    name = "compaction_app"
    verbose_name = "Compaction"

    def ready(self) -> None:
        from django.conf import settings

        from sessions_app.index.session_locks import add_settler
        from sessions_app.web.session_badges import add_needs, add_source

        from . import checks  # noqa: F401  # registers the checks
        from .hooks import load_hooks

        load_hooks(settings.REDLINE.hooks)
        add_source("compaction_app.handshakes.waiting.badges")
        add_source("compaction_app.runs.unseen_proposals.badges")
        add_source("compaction_app.session_marks.compacted")
        add_source("compaction_app.session_marks.drafted")
        add_needs("compaction_app.session_marks.needs_you")
        add_settler("compaction_app.changes.records.settle", "compaction_app.changes.records.unsettled")
