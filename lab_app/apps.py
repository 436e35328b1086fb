from django.apps import AppConfig


class LabConfig(AppConfig):
    """The tokens that plans would have lost, and the costs of compactions. Redline works without it."""

    name = "lab_app"
    verbose_name = "Lab"
