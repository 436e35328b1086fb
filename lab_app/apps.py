from __future__ import annotations

from django.apps import AppConfig


class LabConfig(AppConfig):
    """What plans would have lost, and what compactions cost. Redline works without it."""

    name = "lab_app"
    verbose_name = "Lab"
