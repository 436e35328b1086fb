"""The addresses of the sockets of runs and of sessions."""

from django.urls import URLPattern, re_path

from compaction_app.pages.session.consumers import SessionConsumer

from .runs.consumers import RunConsumer

websocket_urlpatterns: list[URLPattern] = [
    re_path(r"^ws/sessions/(?P<session>[0-9]{1,18})$", SessionConsumer.as_asgi()),
    re_path(r"^ws/plans/(?P<run>[0-9]{1,18})/log$", RunConsumer.as_asgi()),
]
