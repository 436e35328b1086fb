"""Real pi: it rebuilds and sends what Redline shows, after each step of the walk with summaries in the browser."""

from sessions_app.storage.session_loader import load_session
from tests.browser.conftest import browse, chromium
from tests.browser.summary_walk import EDITED, SummaryWalk, walk_server
from tests.interop.pi_runs import Conversations, difference, expected
from tests.interop.pi_sessions import context_of, fields_of, require_same

__all__ = ["browse", "chromium"]


def test_pi_follows_each_step_and_resumes_what_was_summarised(
    provider,
    browse,  # the fixture
    tmp_path,
):
    with walk_server(tmp_path, provider) as server:
        watched = browse(server)
        walk = SummaryWalk(watched, watched.open("/"))
        last = walk.leave_branch()
        require_same(walk.path)
        walk.move_back(last)
        require_same(walk.path)
        walk.label()
        require_same(walk.path)
        made = walk.fork_from_before()
        require_same(made)
        leaf = walk.lines()[-1]["id"]
        walk.summarise()
        require_same(walk.path)
        summarised = walk.path.read_bytes()
        walk.move_back(leaf)
        require_same(walk.path)
        watched.context.close()  # its page would miss the server
    conversations = Conversations(tmp_path / "home", provider)
    for path, content in ((made, made.read_bytes()), (walk.path, walk.path.read_bytes()), (walk.path, summarised)):
        path.write_bytes(content)
        loaded = load_session(path)
        messages = fields_of(loaded, context_of(loaded).messages)
        assert difference(conversations.sent(path), expected(messages)) == ""
    assert EDITED in str(messages)
