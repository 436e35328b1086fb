"""Sending to a closed or closing socket is not an error."""

import asyncio
from typing import Any

import pytest

from sessions_app.web import socket_auth


@pytest.mark.parametrize("leaves", [False, True])
def test_messages_to_a_closed_socket_are_dropped(monkeypatch, leaves):
    """The application closes the socket, or the peer has left; either way the server would raise an error."""
    monkeypatch.setattr(socket_auth, "may_connect", lambda _: True)
    sent: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for kind in ("accept", "send", "close", "send", "close"):
            await send({"type": f"websocket.{kind}"})

    async def send(message: dict[str, Any]) -> None:
        if leaves and sent:
            raise ConnectionResetError
        if "websocket.close" in sent:
            raise RuntimeError("Unexpected ASGI message, after sending websocket.close")
        sent.append(message["type"])

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.disconnect"}

    asyncio.run(socket_auth.only_known_browsers(application)({"headers": []}, receive, send))
    assert sent == (["websocket.accept"] if leaves else ["websocket.accept", "websocket.send", "websocket.close"])
