"""The certificate of a session: its context is checked, and compared with what the agent's own package rebuilds."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.base import PackageContext, RebuiltMessage
from sessions_app.agents.pure.formats import Reader
from sessions_app.agents.registry import AGENTS, READERS
from sessions_app.sessionlog.certificate import Certificate, PackageOutcome
from sessions_app.sessionlog.diagnosis import Severity
from sessions_app.storage.session_certificate import certify, rebuilt_messages
from sessions_app.storage.session_loader import LoadedSession, diagnose, load_session
from tests.factories import HEADER, assistant, call, chain, context_edit, result, session_bytes, text, user, version_1
from tests.files import append_as_agent, place
from tests.installation import refusal
from tests.sessions_app.agents.pi.test_repair import A, B

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PLAIN = (user("go"), assistant(text("ok"), call("c1")), result("c1"), user("on"))


@dataclass
class StubPackage:
    """An agent's package that rebuilds a given context."""

    found: PackageContext
    reader: Reader = READERS["pi"]
    name: str = "agent"
    version: str = "1.2.3"
    asked: list[tuple[bytes, str]] = field(default_factory=list)

    def rebuild(self, content: Iterable[bytes], leaf_id: str = "") -> PackageContext:
        self.asked.append((b"".join(content), leaf_id))
        return self.found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.jsonl"


def load(path: Path, *messages: dict[str, Any]) -> LoadedSession:
    return load_session(place(path, session_bytes(chain(*messages))))


def check(loaded: LoadedSession, package: StubPackage | None = None, leaf_id: str = "") -> Certificate:
    return certify(loaded, AGENTS["pi"], READERS["pi"], NOW, leaf_id=leaf_id, package=package)


def messages_of(loaded: LoadedSession) -> tuple[RebuiltMessage, ...]:
    return rebuilt_messages(loaded, AGENTS["pi"], READERS["pi"].rebuild(loaded.tree.branch(loaded.leaf_id)))


def same_package(loaded: LoadedSession) -> StubPackage:
    """A package that rebuilds what Redline reads."""
    return StubPackage(PackageContext(messages_of(loaded)))


def test_a_session_without_faults_is_certified(path):
    found = check(load(path, *PLAIN))
    assert (found.reader, found.checked_at, found.leaf_id, found.messages) == ("pi", NOW, "e4", 4)
    assert found.holds
    assert found.package is None


def test_violations_and_refusals_are_found(path):
    broken = check(load(path, user("go"), assistant(call("c1")), user("on"), result("c1")))
    assert [one.is_repaired for one in broken.violations] == [True, False]
    assert [one.entry_id for one in broken.unrepaired] == ["e4"]
    assert not broken.holds
    removed = {key: value for key, value in context_edit("e1", None).items() if key != "replacement"}
    assert "has no replacement" in check(load(path, *PLAIN, removed)).refusal
    place(path, session_bytes(chain(*PLAIN)[1:]))
    assert "no header" in check(load_session(path)).refusal


EMPTY = {"type": "message", "id": "c", "parentId": "b"}
EDIT = {**EMPTY, "type": "context_edit", "targetId": "a"}
EVERY = {one.label for key in ("pi", "atomic") for one in AGENTS[key].format.generations}
DAMAGED = {
    "a byte order mark": (b"\xef\xbb\xbf" + session_bytes([HEADER, A, B]), EVERY),
    "a header without an id": (session_bytes([{**HEADER, "id": 3}, A, B]), EVERY),
    "an entry that is its own parent": (session_bytes([HEADER, A, {**B, "parentId": "b"}]), EVERY),
    "entries in a circle": (session_bytes([HEADER, {**A, "parentId": "b"}, B]), EVERY),
    "a value as the last entry": (session_bytes([HEADER, A, B]) + b"7\n", EVERY),
    "an entry without a message": (session_bytes([HEADER, A, B, EMPTY]), EVERY),
    "an edit that says nothing": (session_bytes([HEADER, A, B, EDIT]), {"pi 0.87 and newer"}),
    "a line that is not JSON": (session_bytes([HEADER, A]) + b"{\n" + session_bytes([B]), set[str]()),
}


@pytest.mark.parametrize(("content", "refusing"), DAMAGED.values(), ids=DAMAGED)
def test_a_session_that_the_doctor_finds_fatal_for_an_agent_cannot_be_continued_in_it(path, content, refusing):
    loaded = load_session(place(path, content))
    consequences = [one for finding in diagnose(loaded.path).findings for one in finding.consequences]
    fatal = {one.agent for one in consequences if one.severity is Severity.FATAL}
    assert fatal == refusing
    for agent in (AGENTS["pi"], AGENTS["atomic"]):
        for generation in agent.format.generations:
            found = certify(loaded, agent, generation.reader, NOW)
            assert found.holds is (generation.label not in refusing), generation.label
            assert bool(found.refusal) is (generation.label in refusing)


def test_the_package_gets_the_content_that_was_loaded_and_the_leaf_only_if_it_is_another(path):
    loaded = load(path, *PLAIN)
    package = same_package(loaded)
    data = path.read_bytes()
    for leaf_id in ("", "e4", "e3"):
        assert check(loaded, package, leaf_id).package is not None
    append_as_agent(path, b"more\n")
    assert check(loaded, package).holds
    assert package.asked == [(data, ""), (data, ""), (data, "e3"), (data, "")]
    path.write_bytes(session_bytes(chain(user("other"))))
    assert refusal(lambda: check(loaded, package)) == "4 session_rewritten"


EQUAL, DIFFERENT = PackageOutcome.EQUAL, PackageOutcome.DIFFERENT


@pytest.mark.parametrize(
    ("change", "outcome", "detail"),
    [
        (lambda them: them, EQUAL, ""),
        (lambda them: them[:3], DIFFERENT, "it rebuilds 3 messages instead of 4: message 4 (entry e4) is missing"),
        (lambda them: (*them, them[0]), DIFFERENT, "it rebuilds 5 messages instead of 4: the next one is user"),
        (lambda them: (them[1], *them[1:]), DIFFERENT, "message 1 (entry e1) is assistant instead of user"),
        (lambda them: (them[3], *them[1:]), DIFFERENT, "message 1 (entry e1), user, has another content"),
        (lambda _: PackageContext(refusal="not valid"), PackageOutcome.REFUSED, "not valid"),
        (lambda _: PackageContext(failure="no Node.js"), PackageOutcome.FAILED, "no Node.js"),
    ],
    ids=["equal", "shorter", "longer", "another role", "another content", "refused", "failed"],
)
def test_the_result_of_a_package_names_the_first_difference(path, change, outcome, detail):
    loaded = load(path, *PLAIN, context_edit("e1", {"content": "gone"}))
    changed = change(messages_of(loaded))
    rebuilt = changed if isinstance(changed, PackageContext) else PackageContext(changed)
    certificate = check(loaded, StubPackage(rebuilt))
    found = certificate.package
    assert (found.name, found.version, found.outcome, found.detail) == ("agent", "1.2.3", outcome, detail)
    assert certificate.holds is (outcome in (EQUAL, PackageOutcome.FAILED))


def test_another_branch_of_a_file_without_ids_is_not_compared(path):
    loaded = load_session(place(path, session_bytes(version_1(*PLAIN))))
    package = same_package(loaded)
    assert check(loaded, package).package.outcome is EQUAL
    assert check(loaded, package, loaded.log.entries[0].id).package.outcome is PackageOutcome.FAILED
