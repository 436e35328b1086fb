"""Noise: records of the agent's environment are skipped, and nothing that a user said."""

import pytest

from sessions_app.sessionlog.noise import is_noise, noise_words, without_images


def test_records_of_the_environment_are_noise():
    records = [
        "<local-command-stdout>Catch you later!</local-command-stdout>",
        "<local-command-stdout></local-command-stdout>",
        "<local-command-stdout>cut off in the mid",
        "<local-command-stderr>no such file</local-command-stderr>\n",
        "<command-name>/exit</command-name>\n   <command-message>exit</command-message>\n<command-args></command-args>",
        "<command-message>review</command-message>\n<command-name>/review</command-name>",
        "<bash-stdout>Already up to date.</bash-stdout><bash-stderr></bash-stderr>",
        "[Request interrupted by user]",
        "  [Request interrupted by user for tool use]\n",
        "[Request interrupted by user]\n[Request interrupted by user]",
        *("/compact", "/exit\n", "/plugin:do-it keep the tests"),
    ]
    assert [words for words in records if not is_noise(words)] == []


def test_messages_of_the_user_are_not_noise():
    messages = [
        *("", "  ", "/", "Mend the parser.", "[ ] mend the parser", "// a comment that is wrong"),
        "Why does it print <command-name> here?",
        "<command-name>/ide</command-name>\nNow mend the parser.",
        "[Request interrupted by user]\nNo, the other file.",
        *("/home/dev/project/a.py fails", "/home/dev/a.py", "<div>is not closed</div>"),
        "/review this\nand mend what you find",
    ]
    assert [words for words in messages if is_noise(words)] == []


def test_a_long_text_of_unclosed_marks_is_classified_quickly():
    assert is_noise("<command-name>" * 200_000)
    assert not is_noise("[" * 1_000_000)
    assert not is_noise("[Request interrupted by user" * 100_000)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('<image name=[Image #1] path="/p.png">\n[image]\n</image>\nlook at it', "look at it"),
        ("<image>\n</image>", "<image>\n</image>"),
        ("why is <image></image> empty?", "why is <image></image> empty?"),
        ("<image name=[Image #1]", "<image name=[Image #1]"),
    ],
)
def test_the_tags_of_an_image_before_a_message_are_left_out(text, title):
    assert without_images(text) == title


MODEL = (
    "<command-name>/model</command-name>\n<command-message>model</command-message>\n<command-args>opus</command-args>"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MODEL, "/model opus"),
        ("<command-message>review</command-message>\n<command-name>/review</command-name>", "/review"),
        ("<local-command-stdout>Set to\n opus</local-command-stdout>", "Set to opus"),
        ("<bash-stdout>1 < 2</bash-stdout><bash-stderr></bash-stderr>", "1 < 2"),
        ("[Request interrupted by user]", "[Request interrupted by user]"),
        ("/compact now", "/compact now"),
    ],
)
def test_a_record_is_told_without_its_tags(text, words):
    assert noise_words(text) == words
