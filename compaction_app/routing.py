"""The addresses of the sockets of runs."""

from __future__ import annotations

from django.urls import URLPattern, re_path

from .runs.consumers import RunConsumer

websocket_urlpatterns: list[URLPattern] = [
    re_path(r"^ws/runs/(?P<run>[0-9]{1,18})$", RunConsumer.as_asgi()),
]
