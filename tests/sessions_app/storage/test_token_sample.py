"""The beginning of a branch is counted once, whatever a message contains; what is not text has its estimate."""

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sessions_app.sessionlog.context import Measured
from sessions_app.sessionlog.entries import Texts
from sessions_app.storage.session_loader import branch_sample, load_session
from tests import claude_sessions
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.opencode_stores import OpenCodeStore, reasoning, tool
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.sessionlog.test_image_size import png

BLOCKS = 200


class Index(int):
    """The index of a block; counts how often blocks are compared with each other."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Index.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_the_blocks_of_a_message_are_not_compared_with_each_other(tmp_path):
    many = assistant(*[text("a word")] * BLOCKS)
    loaded = load_session(place(tmp_path / "s.jsonl", session_bytes(chain(user("go"), many))))
    branch = [
        msgspec.structs.replace(
            entry,
            blocks=entry.blocks
            and tuple(
                msgspec.structs.replace(block, index=Index(block.index), type=f"{block.type}") for block in entry.blocks
            ),
        )
        for entry in loaded.tree.branch(loaded.leaf_id)
    ]
    texts: dict[str, Texts] = loaded.texts(branch)
    assert branch_sample(branch, lambda entry: texts[entry.id]).tokens > BLOCKS
    assert Index.compared <= BLOCKS


def measured(path: Path) -> Measured:
    loaded = load_session(path)
    branch = loaded.tree.branch(loaded.leaf_id)
    texts = loaded.texts(branch)
    return branch_sample(branch, lambda entry: texts[entry.id])


def test_halves_of_a_character_are_counted_and_no_vocabulary_is_decoded_for_it(tmp_path):
    """Importing the tokenizer's package decodes three of them, for a second."""
    said = (user("cut \ud83d"), assistant(text("off \ude00")))
    assert measured(place(tmp_path / "s.jsonl", session_bytes(chain(*said)))).tokens == 4
    assert "bpe_openai" not in sys.modules


def place_claude(directory: Path, *lines: claude_sessions.Object) -> Path:
    path = directory / ".claude" / "projects" / "p" / f"{claude_sessions.SESSION_ID}.jsonl"
    return place(path, claude_sessions.timed(lines))


def claude_code(directory: Path, *blocks: Any, **model: Any) -> Path:
    """A thought of the model, or what the user said."""
    is_thought = bool(blocks) and "thinking" in blocks[0]["type"]
    said, answered = ((), blocks) if is_thought else (blocks, ())
    prompt = claude_sessions.user("p1", None, [text("go"), *said])
    return place_claude(directory, prompt, claude_sessions.reply("r1", "p1", *answered, "on", message=model))


def claude_code_result(directory: Path, *blocks: Any) -> Path:
    asked = (claude_sessions.user("p1", None), claude_sessions.reply("r1", "p1", claude_sessions.call("c1")))
    found = claude_sessions.answer("c1", [text("found"), *blocks])
    return place_claude(directory, *asked, claude_sessions.user("x", "r1", [found]))


def codex(directory: Path, *items: Any) -> Path:
    recorded = (rollouts.meta(), rollouts.turn_context("gpt-5.6"), rollouts.user("go"), *items, rollouts.answer("on"))
    return rollouts.Rollout(*recorded).save(directory / ".codex" / "sessions")


def opencode(directory: Path, *parts: Any) -> Path:
    store = OpenCodeStore(directory / "opencode")
    path = store.session()
    model = {"providerID": "anthropic", "modelID": "claude-opus-4-8"}
    store.user("go", *(part for part in parts if part["type"] == "file"), model=model)
    store.assistant(tool("c1") if not parts or parts[0]["type"] != "tool" else parts[0], **model)
    store.assistant("on", *(part for part in parts if part["type"] == "reasoning"), **model)
    return path


def pi(directory: Path, *blocks: Any) -> Path:
    is_thought = bool(blocks) and "thinking" in blocks[0]["type"]
    said, answered = ((), blocks) if is_thought else (blocks, ())
    model = {"provider": "anthropic", "model": "claude-sonnet-4-5"}
    messages = ({"role": "user", "content": [text("go"), *said]}, assistant(*answered, text("on"), **model))
    return place(directory / ".pi" / "s.jsonl", session_bytes(chain(*messages)))


def amp(directory: Path, *blocks: Any) -> Path:
    answer = {"role": "user", "content": [claude_sessions.answer("c1", [text("found"), *blocks])]}
    asked = {"role": "assistant", "content": [claude_sessions.call("c1")]}
    thread = {"v": 9, "id": "T-1", "messages": [{"role": "user", "content": [text("go"), *blocks]}, asked, answer]}
    return place(directory / "amp" / "threads" / "T-1.json", json.dumps(thread).encode())


def data(of: bytes) -> str:
    return base64.b64encode(of).decode()


PNG = data(png(1000, 1000))
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
BROKEN = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PDF = {"type": "document", "title": "chart.pdf", "source": {"type": "base64", "data": data(b"%PDF" * 6_000)}}
THICK = {**PDF, "source": {"type": "base64", "data": data(b"%PDF" * 60_000)}}
SEALED = "RU5D" * 60
"""As many units as 45 tokens have."""
ENCRYPTED = {"type": "encrypted_content", "encrypted_content": SEALED}
HIDDEN = {"itemId": "rs_1", "reasoningEncryptedContent": SEALED}
FILE = {"type": "file", "mime": "image/png", "filename": "x.png", "url": f"data:image/png;base64,{PNG}"}
PAGES = {"type": "file", "mime": "application/pdf", "filename": "x.pdf", "url": f"data:;base64,{data(bytes(240_000))}"}
INPUT = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
SEEN = [{"type": "input_text", "text": "done"}, INPUT]
WITHOUT_TEXT: dict[str, tuple[Callable[..., Path], Any, int]] = {
    "Claude Code: a document": (claude_code, PDF, 1_200),
    "Claude Code: a document of several pages": (claude_code, THICK, 3_600),
    "Claude Code: an image": (claude_code, IMAGE, 1_296),
    "Claude Code: an image in a result": (claude_code_result, IMAGE, 1_296),
    "Claude Code: an image without a size": (claude_code, BROKEN, 1_200),
    "Claude Code: redacted thinking": (claude_code, {"type": "redacted_thinking", "data": SEALED}, 45),
    "Claude Code: hidden thinking": (claude_code, {"type": "thinking", "thinking": "", "signature": SEALED}, 45),
    "Codex: encrypted reasoning": (codex, {"type": "reasoning", "summary": [], "encrypted_content": SEALED}, 45),
    "Codex: an encrypted compaction": (codex, {"type": "compaction", "encrypted_content": SEALED}, 45),
    "Codex: an encrypted message": (codex, {"type": "agent_message", "content": [ENCRYPTED]}, 45),
    "Codex: an image": (codex, {"type": "message", "role": "user", "content": [INPUT]}, 1_229),
    "Codex: an image in an output": (codex, rollouts.output("c1", [INPUT]), 1_229),
    "Codex: an image that was made": (codex, {"type": "image_generation_call", "result": PNG}, 1_229),
    "OpenCode: an image": (opencode, FILE, 1_296),
    "OpenCode: a document of several pages": (opencode, PAGES, 3_600),
    "OpenCode: an image in a result": (opencode, tool("c1", attachments=[FILE]), 1_296),
    "OpenCode: hidden reasoning": (opencode, reasoning("", metadata={"openai": HIDDEN}), 45),
    "pi: an image": (pi, {"type": "image", "data": PNG, "mimeType": "image/png"}, 1_296),
    "pi: redacted thinking": (pi, {"type": "redacted_thinking", "data": SEALED}, 45),
    "pi: hidden thinking": (pi, {"type": "thinking", "thinking": "", "thinkingSignature": SEALED}, 45),
    "Amp: an image, and again in a result": (amp, IMAGE, 2_400),
}


@pytest.mark.parametrize("case", WITHOUT_TEXT)
def test_what_is_not_text_counts_with_its_estimate_and_an_image_as_the_provider_counts_it(case, tmp_path):
    build, part, tokens = WITHOUT_TEXT[case]
    plain, found = measured(build(tmp_path / "plain")), measured(build(tmp_path / "found", part))
    assert found.tokens - plain.tokens == tokens
    # The agents' own estimate of an image is 1,200; pi does not estimate what is not shown.
    estimate = tokens // 1_000 * 1_200 if tokens > 45 else 0 if build is pi else 45
    assert found.estimate - plain.estimate == pytest.approx(estimate, abs=2)
