"""The socket of the list: it hears of changes and draws the list anew."""

from __future__ import annotations

from channels.generic.websocket import AsyncWebsocketConsumer


class SessionsConsumer(AsyncWebsocketConsumer):
    """Draws the list for the address that its page shows."""
