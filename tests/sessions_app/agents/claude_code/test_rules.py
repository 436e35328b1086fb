"""What belongs together in a session of Claude Code goes together, or not at all."""

import pytest

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.transcript import prepare
from sessions_app.agents.reading import WriterRules
from sessions_app.sessionlog.targets import Target, request_of
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import ClaudeSession, call, text, thinking

from .sent_messages import CURRENT
from .writing import WRITERS, put


@pytest.mark.parametrize(
    ("named", "deleted"),
    [
        ({"said"}, {"said"}),
        ({"thought"}, {"thought"}),
        ({"call"}, {"call", "result", "thought"}),
        ({"said", "result"}, {"said", "call", "result", "thought"}),
    ],
    ids=["a text alone", "thinking alone", "a call with its thinking", "a whole reply"],
)
def test_no_reply_is_left_with_only_its_thinking(tmp_path, named, deleted):
    session = ClaudeSession()
    session.user("go")
    said = session.reply("m1", thinking("t"), text("s"), call("c"))
    ids = dict(zip(("thought", "said", "call"), said, strict=True))
    ids["result"] = session.result("c", "done")
    session.reply("m2")
    loaded = load_session(put(session, tmp_path))
    branch = loaded.tree.branch(loaded.leaf_id)
    rules = WriterRules(CURRENT.rules, WRITERS["boundary"])
    transcript = prepare(branch, loaded.texts(branch), {"preserve_recent": 0}, rules)
    assert transcript is not None
    judged = validate(request_of(Target(ids[name]) for name in sorted(named)), transcript)
    assert isinstance(judged, ValidatedDeletion)
    assert {target.entry_id for target in judged.targets} == {ids[name] for name in deleted}
