"""Promises of outputs beside a session: only files in the agent's own directories are ever opened."""

import pytest

from sessions_app.agents.claude_code.companion import companion_of

SESSION = "0b8f5b2e-8c1f-4a6e-9d57-3f0a4f1d2c3b"
OTHER = "9a7c5b2e-8c1f-4a6e-9d57-3f0a4f1d2c3b"


def note(name: str, session: str = SESSION) -> str:
    return f"Output too large. Saved to: /somewhere/else/{session}/tool-results/{name}\n\nPreview"


@pytest.fixture
def session(tmp_path):
    for owner in (SESSION, OTHER):
        directory = tmp_path / owner / "tool-results"
        directory.mkdir(parents=True)
        (directory / "b1.txt").write_text("the whole output")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / f"{SESSION}.jsonl"


@pytest.mark.parametrize("owner", [SESSION, OTHER])
def test_an_output_is_found_below_the_directory_of_its_session(session, owner):
    assert companion_of(session, note("b1.txt", owner)) == session.parent / owner / "tool-results" / "b1.txt"


@pytest.mark.parametrize(
    "text",
    [
        "no output was saved",
        note("missing.txt"),
        note("../../secret.txt"),
        note("b1.txt.exe"),
        note("b1.json"),
        note("b1.txt", ".." * 18),
        "x" * 5_000 + note("b1.txt"),
    ],
)
def test_nothing_else_is_opened(session, text):
    assert companion_of(session, text) is None


def test_no_link_is_followed(session):
    directory = session.parent / SESSION / "tool-results"
    (directory / "link.txt").symlink_to(session.parent / "secret.txt")
    (session.parent / "1b8f5b2e-8c1f-4a6e-9d57-3f0a4f1d2c3b").symlink_to(session.parent / OTHER)
    assert companion_of(session, note("link.txt")) is None
    assert companion_of(session, note("b1.txt", "1b8f5b2e-8c1f-4a6e-9d57-3f0a4f1d2c3b")) is None
