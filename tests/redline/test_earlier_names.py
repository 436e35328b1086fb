"""Names of the version before: commands, flags and fields of JSON still have them, and say what they are called now."""

import pytest

from sessions_app.earlier_names import COMMANDS
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.html import missing

SAID = {"certify": "The session can be continued.", "doctor": "no damage", "lab": "too short"}


@pytest.fixture
def path(redline):
    return place(redline.sessions / "s.jsonl", session_bytes(chain(user("Mend it."), assistant(text("Done.")))))


@pytest.mark.parametrize("earlier", SAID)
def test_a_command_works_under_its_earlier_name_and_names_the_present_one(redline, path, earlier):
    ended = redline.call(earlier, path).ok()
    assert SAID[earlier] in ended.out
    assert ended.err == (
        f"redline: `{earlier}` is called `{COMMANDS[earlier]}` now. The earlier name works until the next version.\n"
    )


def test_earlier_names_are_in_no_help(redline):
    shown = redline.call("help").out
    assert not missing(shown, *COMMANDS.values())
    assert all(f"\n  {name} " not in shown for name in (*COMMANDS, "bench"))
    helped = redline.call("help", "doctor")
    assert not missing(helped.out, "usage: redline health")
    assert redline.call("bench", "--json").refusal == "2 unknown_command"


def test_flags_work_under_their_earlier_names(redline, path):
    now = redline.call("context", path, "--open-as", "pi", "--branch=e1", "--json").ok()
    earlier = redline.call("context", path, "--reader", "pi", "--leaf=e1", "--json").ok()
    assert earlier.json == now.json
    assert (now.err, earlier.err.count("The earlier name works")) == ("", 2)
    assert "`--leaf` is called `--branch` now." in earlier.err
    assert redline.call("tree", path, "--leaf", "e1", "--json").refusal == "2 bad_arguments", "it has no such flag"
    assert redline.call("connect", "codex", "--remove", "--json").refusal == "2 not_connected"


def test_only_the_first_word_after_a_command_is_renamed(redline):
    ended = redline.call("models", "remove", "remove/remove", "--json")
    assert (ended.error, ended.err.count("\n")) == ("unknown_planner", 1)
    assert redline.call("models", "test", "remove/x", "--json").err == ""


def test_documents_have_fields_under_their_earlier_names_too(redline, path):
    health = redline.call("health", path, "--json").json
    assert (health["findings"], health["moreFindings"]) == (health["problems"], health["moreProblems"])
    context = redline.call("context", path, "--json").json
    assert (context["reader"], context["fittingReader"]) == (context["openedAs"], context["fitsOpenedAs"])
