"""Test clients without a server, which use the address of the pages."""

from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.test import Client

from sessions_app.server.running_server import api_token, browser_host
from sessions_app.web.credentials import COOKIE, new_launch_cookie


def new_client(**options: Any) -> Client:
    """A browser that uses the address of the pages, but is not logged in."""
    return Client(headers={"host": browser_host(settings.REDLINE_DATA_DIR)}, **options)


def authorized_client(**options: Any) -> Client:
    """A browser with the launch cookie."""
    client = new_client(**options)
    client.cookies[COOKIE] = new_launch_cookie()
    return client


def script_client() -> Client:
    """A script with the token of the API, without a cookie or a CSRF token."""
    headers = {"authorization": f"Bearer {api_token(settings.REDLINE_DATA_DIR)}", "host": "127.0.0.1"}
    return Client(enforce_csrf_checks=True, headers=headers)


def page(browser: Client, address: str, status: int = 200, **query: Any) -> Any:
    """A page that is sent with this status."""
    answered = browser.get(address, query)
    assert answered.status_code == status
    return answered


def fetched(browser: Client, page: str) -> tuple[Any, bytes]:
    """A download with its body, received as an ASGI server receives it."""
    answer: Any = browser.get(page)
    assert answer.is_async
    return answer, body_of(answer)


def body_of(answer: Any) -> bytes:
    """The body of an answer, also of one that is produced piece by piece."""
    if not answer.streaming:
        return bytes(answer.content)

    async def body() -> bytes:
        return b"".join([piece async for piece in answer])

    return async_to_sync(body)()
