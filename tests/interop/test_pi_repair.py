"""Real pi refuses the damaged sessions that the doctor says it refuses, and opens every repaired copy.

Each session of the corpus, or the generated one, is damaged in several ways.
"""

import random
from typing import Final

import pytest

from devtools.bench.damage import NEW_HEADER, damaged
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.package import PiPackage
from sessions_app.sessionlog.certificate import PackageOutcome
from sessions_app.sessionlog.diagnosis import Diagnosis
from sessions_app.storage.examination import diagnose
from sessions_app.storage.repair import write_repaired
from sessions_app.storage.session_certificate import certify
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.interop.pi_runs import installed_pis, package
from tests.interop.pi_sessions import DIRECTORY, core
from tests.interop.test_pi import NOW

NOT_OPENED: Final = {
    "refuses to open the session",
    "fails when it opens the session",
    "fails when it converts the file to version 3",
}
IN_PI: Final = "pi 0.87 and newer"
CASES: Final = 40


@pytest.fixture(scope="module")
def pi():
    return package(installed_pis()[0])


def texts_in_pi(diagnosis: Diagnosis) -> set[str]:
    """What pi makes of the findings."""
    return {one.text for found in diagnosis.findings for one in found.consequences if one.agent == IN_PI}


def require_equal(loaded: LoadedSession, pi: PiPackage) -> None:
    found = certify(loaded, PI, pi.reader, NOW, package=pi).package
    assert found is not None
    assert found.outcome is PackageOutcome.EQUAL, found.detail


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=core if seed < 2 else ()) for seed in range(CASES)])
def test_pi_opens_what_was_repaired(seed, sessions, pi, tmp_path):
    chance = random.Random(seed)
    lines = chance.choice([*sessions.values()]).read_bytes().splitlines()[: chance.randint(3, 60)]
    path, copy = tmp_path / "damaged.jsonl", tmp_path / "copy.jsonl"
    path.write_bytes(damaged(lines, chance))
    write_repaired(path, copy, tmp_path / "copy.lost", NEW_HEADER)

    expected = texts_in_pi(diagnose(path))
    if not any("never finishes" in text for text in expected):
        refused = bool(pi.rebuild([path.read_bytes()]).refusal)
        assert refused == bool(expected & NOT_OPENED)

    assert pi.rebuild([copy.read_bytes()])[1:] == ("", "")
    loaded = load_session(copy)
    if loaded.log.entries:
        require_equal(loaded, pi)


@pytest.mark.skipif(DIRECTORY is None, reason="there are no real sessions")
@pytest.mark.parametrize("name", ["pi-mono-glued-line.v1.jsonl", "agent-complex-task-youtube-headerless.jsonl"])
def test_pi_opens_the_repaired_copies_of_real_damaged_sessions(name, sessions, pi, tmp_path):
    copy = tmp_path / "copy.jsonl"
    write_repaired(sessions[name], copy, tmp_path / "copy.lost", NEW_HEADER)
    require_equal(load_session(copy), pi)
