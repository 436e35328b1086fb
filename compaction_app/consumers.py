"""The socket of a run's page: the rows after the last one it sent, drawn as the page draws them."""

from __future__ import annotations

from channels.generic.websocket import AsyncWebsocketConsumer


class RunConsumer(AsyncWebsocketConsumer):
    """Follows one run."""
