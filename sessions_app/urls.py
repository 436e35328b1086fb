from __future__ import annotations

from django.urls import path

from . import views

app_name = "sessions"
urlpatterns = [
    path("", views.sessions, name="list"),
    path("settings", views.sessions, name="settings"),
]
