"""A session that Codex has compressed is listed, and says how it is opened."""

from redline.configuration import Configuration, RootSetting
from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from tests.files import place
from tests.html import text_of
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout, meta, user

MAGIC = b"\x28\xb5\x2f\xfd"


def test_a_compressed_session_is_listed_and_says_how_it_is_opened(redline, settings, browser):
    root = redline.home / ".codex" / "sessions"
    settings.REDLINE = Configuration(roots=[RootSetting(path=root, agent="codex")])
    path = place(root / f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl.zst", MAGIC + b"\x00" * 40)
    index_roots()
    session = Session.objects.get()
    assert f"codex resume {THREAD}" in session.fault
    assert "unreadable" in text_of(browser.get("/"))
    shown = text_of(browser.get(session.get_absolute_url()))
    assert "is compressed" in shown
    assert f"codex resume {THREAD}" in shown

    path.unlink()
    place(root / path.name.removesuffix(".zst"), Rollout(meta(), user("go")).content)
    index_roots()
    assert min(Session.objects.values_list("missing", "fault", "first_user_message")) == (False, "", "go")
