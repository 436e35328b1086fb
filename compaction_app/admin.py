"""The rows of runs, proposals, decisions and what was written, in the read-only admin."""

from __future__ import annotations

from django.contrib import admin

from sessions_app.admin import ReadOnlyAdmin, site

from .models import (
    Agreement,
    Backup,
    Compaction,
    Decision,
    PlannerModel,
    Proposal,
    Provider,
    Run,
    RunEvent,
    Snapshot,
)


@admin.register(Run, site=site)
class RunAdmin(ReadOnlyAdmin):
    ordering = ("-pk",)


@admin.register(Snapshot, site=site)
class SnapshotAdmin(ReadOnlyAdmin):
    pass


@admin.register(RunEvent, site=site)
class RunEventAdmin(ReadOnlyAdmin):
    bulky = ("data",)
    ordering = ("-pk",)


@admin.register(Proposal, site=site)
class ProposalAdmin(ReadOnlyAdmin):
    bulky = ("reason",)
    ordering = ("-run", "order")


@admin.register(Decision, site=site)
class DecisionAdmin(ReadOnlyAdmin):
    ordering = ("-run", "seq")


@admin.register(Compaction, site=site)
class CompactionAdmin(ReadOnlyAdmin):
    bulky = ("parameters", "stats", "origins")
    ordering = ("-pk",)


@admin.register(Backup, site=site)
class BackupAdmin(ReadOnlyAdmin):
    ordering = ("-pk",)


@admin.register(Provider, site=site)
class ProviderAdmin(ReadOnlyAdmin):
    ordering = ("name",)


@admin.register(PlannerModel, site=site)
class PlannerModelAdmin(ReadOnlyAdmin):
    ordering = ("provider", "name")


@admin.register(Agreement, site=site)
class AgreementAdmin(ReadOnlyAdmin):
    ordering = ("provider",)
