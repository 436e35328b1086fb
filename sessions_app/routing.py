"""The URLs of the list's sockets."""

from django.urls import URLPattern, re_path

from sessions_app.pages.list import SessionsConsumer

websocket_urlpatterns: list[URLPattern] = [
    re_path(r"^ws/sessions$", SessionsConsumer.as_asgi()),
]
