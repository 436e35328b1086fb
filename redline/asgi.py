"""The ASGI application: pages, sockets, and the background work of the server."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "redline.settings")
pages = get_asgi_application()

from compaction_app.routing import websocket_urlpatterns as runs  # noqa: E402  # models need Django to be ready
from sessions_app.routing import websocket_urlpatterns as sessions  # noqa: E402
from sessions_app.web.credentials import only_known_browsers, refuse_socket  # noqa: E402
from sessions_app.web.gate import gated  # noqa: E402

from . import urls  # noqa: E402, F401  # the modules of all pages are imported before the first request
from .serving import lifespan  # noqa: E402

elsewhere = re_path("", refuse_socket)  # type: ignore[arg-type]  # routes of sockets have ASGI applications
application = gated(
    ProtocolTypeRouter(
        {
            "http": pages,
            "websocket": only_known_browsers(URLRouter([*sessions, *runs, elsewhere])),
            "lifespan": lifespan,
        }
    )
)
