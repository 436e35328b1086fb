"""The two buttons of the introduction: try Redline on the demo, and hide the introduction."""

from django.http import HttpRequest, HttpResponse

from sessions_app import introduction
from sessions_app.index.demo_session import make_demo
from sessions_app.web.pages import acts_on_post, redirect


def _list() -> str:
    return "sessions:list"


@acts_on_post(_list)
def try_demo(request: HttpRequest) -> HttpResponse:
    """Open the demo, which is made if it is not there."""
    del request
    return redirect(make_demo())


@acts_on_post(_list)
def hide(request: HttpRequest) -> HttpResponse:
    """Hide the introduction for good."""
    del request
    introduction.hide()
    return redirect("sessions:list")
