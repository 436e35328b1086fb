"""The request ledger: hashes of the messages that the client sent, compared with Redline's reading."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.claude_code.pure.sent import ledger_result, message_hash
from sessions_app.sessionlog.certificate import LedgerResult
from sessions_app.storage.session_certificate import certify
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import Object, answer, attachment, call, reply, result, text, timed, user
from tests.files import place

from .sent_messages import CURRENT, entries_of, line_in

EFFORT = {"effort": "medium"}


def message(role: str, *blocks: Any, **fields: Any) -> Object:
    content = [text(block) if isinstance(block, str) else block for block in blocks]
    return {"role": role, "content": content, **fields}


def request(name: str, *messages: Object, base: str = "", keep: int = 0) -> Object:
    ledger: Object = {"type": "api-request", "id": name, "keep": keep, "tail": list(map(message_hash, messages))}
    return ledger | {"params": {"output_config": EFFORT}} | ({"base": base} if base else {})


def blob(sent: Object) -> Object:
    return {"type": "api-request-blob", "hash": message_hash(sent), "message": sent}


def proof_of(lines: list[Object], compared: int = 10) -> LedgerResult | None:
    raw = timed(lines)
    return ledger_result(entries_of(raw), line_in(raw), compared)


P1, CALL = message("user", "p1"), message("assistant", call("c"))
TALK = [
    user("p1", None),
    request("q1", P1),
    reply("r1", "p1", call("c")),
    result("x1", "r1", "c"),
    request("q2", CALL, message("user", answer("c")), base="q1", keep=1),
    reply("r2", "x1"),
]


def test_recorded_requests_are_reproduced_from_the_lines_before_them_if_there_is_a_ledger():
    assert proof_of(TALK) == LedgerResult(2, compared=2, equal=2, messages=4, reproduced=4, recorded=0)
    assert proof_of(TALK, compared=1) == LedgerResult(2, compared=1, equal=1, messages=3, reproduced=3, recorded=0)
    assert proof_of([TALK[0], TALK[2]]) is None
    assert proof_of([TALK[0], request("q", P1, base="gone", keep=1)]) is None
    assert proof_of([TALK[0], {**blob(P1), "hash": []}, {**request("q", P1, keep=1), "base": {}}]) is None


def test_what_the_ledger_contains_itself_is_counted_apart():
    own = message("user", "the client's own words")
    lines = [blob(own), user("p1", None), request("q1", own, P1)]
    assert proof_of(lines) == LedgerResult(1, compared=1, equal=1, messages=2, reproduced=1, recorded=1)


def test_another_reading_is_noticed():
    other = [*TALK[:2], reply("r1", "p1", call("d")), *TALK[3:]]
    assert proof_of(other) == LedgerResult(2, compared=2, equal=1, messages=4, reproduced=2, recorded=0)
    swapped = [user("p1", None), reply("r1", "p1"), request("q", message("assistant", "r1"), P1)]
    assert proof_of(swapped) == LedgerResult(1, compared=1, equal=0, messages=2, reproduced=1, recorded=0)


def test_a_message_of_the_system_says_the_effort():
    system = message("system", "A", output_config=EFFORT)
    lines = [user("p1", None), attachment("a", "p1", "A", role="system"), request("q", P1, system)]
    assert proof_of(lines) == LedgerResult(1, compared=1, equal=1, messages=2, reproduced=2, recorded=0)


def test_the_hash_does_not_depend_on_how_a_text_is_recorded():
    marked = {**text("p1"), "cache_control": {"type": "ephemeral"}}
    assert len({message_hash(one) for one in (P1, {"role": "user", "content": "p1"}, message("user", marked))}) == 1
    as_sent = '{"content":[{"text":"é","type":"text"}],"role":"user"}'.encode()
    assert message_hash(message("user", "é")) == hashlib.sha256(as_sent).hexdigest()


def test_a_certificate_says_how_many_recorded_messages_are_reproduced(tmp_path):
    def sentence(lines: list[Object]) -> str:
        loaded = load_session(place(tmp_path / "session.jsonl", timed(lines)))
        return certify(loaded, CLAUDE_CODE, CURRENT.reader, datetime(2026, 1, 1, tzinfo=UTC)).ledger.sentence

    own = message("user", "own words")
    assert sentence(TALK) == "4 of the 4 messages of the last 2 recorded requests are those that Redline reads."
    recorded = [blob(own), user("p1", None), request("q", own, P1)]
    assert sentence(recorded).endswith("Redline reads, and 1 are recorded as they were sent.")
