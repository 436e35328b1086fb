"""pi and Atomic as installed by `make interop`, and the conversation that they send when they resume a session."""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from compaction_app.scripted.server import ScriptedProvider
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.edge.client import PACKAGE, PiPackage
from tests.interop.install_atomic import BUN, CLI
from tests.paths import PROJECT

INSTALLED: Final = PROJECT / ".venv-interop" / "pi"
PINNED: Final = INSTALLED / "pinned"
OLDER: Final = INSTALLED / "older"
NEWEST: Final = INSTALLED / "newest"
ATOMIC: Final = PROJECT / ".venv-interop" / "atomic"
PROBE: Final = "REDLINE-PROBE"
RUN_SECONDS: Final = 300
TOOL_IMAGES: Final = "Attached image(s) from tool result:"
"""pi sends the images of tool results in a message of their own, which begins like this."""
NO_TEXT: Final = ("(see attached image)", "(no tool output)")
"""A result without text is sent as one of these: by pi according to its images, by Atomic 0.8 always as the first."""
NO_RESULT: Final = "No result provided"
"""The result that pi makes up for a call without one."""
SWITCHES: Final = ("--offline", "--no-skills", "--no-prompt-templates", "--no-context-files", "--no-themes")

Said = tuple[Any, ...]
"""One message on the wire, as its role and what it says; ids of calls are numbered in order of appearance."""


def installed_pis() -> list[Path]:
    """The directories of the pinned pi and, if it could be installed, of the newest one."""
    assert PINNED.is_dir(), "pi is not installed; `make interop` does that, and runs these tests"
    return [one for one in (PINNED, NEWEST) if one.is_dir()]


def package(directory: Path) -> PiPackage:
    found = PI.client.find_package(directory)
    assert found is not None
    return found


def node_of(directory: Path) -> str:
    """The Node.js with which an installed pi runs."""
    own = directory / "node_modules" / ".bin" / "node"
    return str(own) if own.exists() else "node"


def pi_command(directory: Path = PINNED) -> list[str]:
    """The command of an installed pi."""
    installed_pis()
    program = directory / "node_modules" / PACKAGE / "dist" / "bundle" / "cli.js"
    return [node_of(directory), str(program), "--no-approve", *SWITCHES]


def atomic_command(version: str) -> list[str]:
    """The command of an installed Atomic. A test is skipped if its source or packages could not be installed."""
    if not (ATOMIC / version).is_dir():
        pytest.skip(f"not checked: Atomic {version} cannot be installed here")
    # Its own extensions need what is compiled.
    return [str(ATOMIC / BUN), str(ATOMIC / version / CLI), *SWITCHES, "--no-extensions"]


def scripted_model(directory: Path, base_url: str, api: str, name: str, window: int) -> None:
    """Let an agent with this directory have one model only, in a window of so many tokens."""
    model = {"id": name, "contextWindow": window, "maxTokens": 1_000, "input": ["text", "image"]}
    scripted = {"baseUrl": base_url, "api": api, "apiKey": "none", "models": [model]}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "models.json").write_text(json.dumps({"providers": {"scripted": scripted}}))


def environment_in(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "PI_TELEMETRY": "0"}


class Conversations:
    """Runs of an agent with `-p` in a home of their own, without a network: its only model is the scripted provider.

    The agent is pi as installed in a directory, or Atomic in a version.
    """

    def __init__(self, home: Path, provider: ScriptedProvider, installed: Path | str = PINNED) -> None:
        self._home = home
        self._provider = provider
        is_pi = isinstance(installed, Path)
        command = pi_command(installed) if is_pi else atomic_command(installed)
        self._command = [*command, "--no-extensions"]
        agent = home / (".pi" if is_pi else ".atomic") / "agent"
        scripted_model(agent, provider.base_url("openai"), "openai-completions", "echo", 10**9)
        self.sessions = agent / "sessions" / "--home--"

    def sent(self, session: Path) -> list[Said]:
        """What the agent sends when a session is continued with PROBE, without the instructions and PROBE."""
        known = len(self._provider.requests)
        ended = subprocess.run(
            [*self._command, "-p", "--session", str(session), "--model", "scripted/echo", PROBE],
            cwd=self._home,
            env=environment_in(self._home),
            input=b"",
            capture_output=True,
            timeout=RUN_SECONDS,
        )
        requests = self._provider.requests[known:]
        assert requests, (ended.stdout, ended.stderr)
        return said_in(json.loads(requests[0].raw)["messages"])


def said_in(messages: Sequence[Mapping[str, Any]]) -> list[Said]:
    """The messages of a request that ends with PROBE, without the instructions and PROBE."""
    assert messages[-1]["content"] == [{"type": "text", "text": PROBE}]
    return list(_numbered(_said_on_wire(messages[:-1])))


def _said_on_wire(messages: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    for message in messages:
        content = message.get("content")
        if message["role"] == "tool":
            yield "tool", message["tool_call_id"], "" if content in NO_TEXT else content
        elif message["role"] == "assistant":
            calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
            made = tuple((key, made["name"], json.loads(made["arguments"])) for key, made in calls)
            yield "assistant", content or "", made
        elif message["role"] == "user":
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            texts = tuple(part["text"] for part in parts if part["type"] == "text")
            images = tuple(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
            # Without a text, pi sends an empty one, and Atomic 0.8 none.
            yield ("images", images) if texts[:1] == (TOOL_IMAGES,) else ("user", texts or ("",), images)


def expected(context: Iterable[Mapping[str, Any]]) -> list[Said]:
    """What pi must send of a context, given as the fields of its messages that are sent."""
    return list(_numbered(_said(context)))


def _said(context: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    pending: list[str] = []
    """The images of the results so far."""
    for message in context:
        role = message["role"]
        if role == "system":
            continue
        if role != "toolResult" and pending:
            yield "images", tuple(pending)
            pending = []
        if role == "toolResult":
            texts, images = _content(message["content"])
            pending += images
            yield "tool", message["toolCallId"], "\n".join(texts)
        elif role == "assistant":
            yield from _said_by_assistant(message)
        elif role in ("user", "custom"):
            texts, images = _content(message["content"])
            said = tuple(text for text in texts if text)
            if said or images or isinstance(message["content"], str):
                yield "user", said or ("",), images
        elif role == "bashExecution":
            yield "about", (message["command"], message["output"])
        else:
            yield "about", (message["summary"],)
    if pending:
        yield "images", tuple(pending)


def _said_by_assistant(message: Mapping[str, Any]) -> Iterator[Said]:
    """Thinking is sent as text, because another model continues; a failed answer is not sent."""
    if message.get("stopReason") in ("error", "aborted"):
        return
    words = {"text": "text", "thinking": "thinking"}
    blocks = [block for block in message["content"] if not block.get("redacted")]
    texts = [block[words[block["type"]]] for block in blocks if block["type"] in words]
    text = "".join(one for one in texts if one.strip())
    calls = tuple((block["id"], block["name"], block["arguments"]) for block in blocks if block["type"] == "toolCall")
    if text or calls:
        yield "assistant", text, calls


def _content(content: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of a content, and its images as URLs."""
    if isinstance(content, str):
        return (content,), ()
    texts = tuple(block["text"] for block in content if block["type"] == "text")
    images = (f"data:{block['mimeType']};base64,{block['data']}" for block in content if block["type"] == "image")
    return texts, tuple(images)


def _numbered(said: Iterable[Said]) -> Iterator[Said]:
    """The same with numbers for ids, which pi adapts to the provider, and without results that pi made up."""
    numbers: dict[str, int] = {}
    for one in said:
        if one[0] == "tool" and one[2] != NO_RESULT:
            yield "tool", numbers.setdefault(one[1], len(numbers)), one[2]
        elif one[0] == "assistant":
            calls = tuple((numbers.setdefault(key, len(numbers)), name, arguments) for key, name, arguments in one[2])
            yield "assistant", one[1], calls
        elif one[0] != "tool":
            yield one


def difference(sent: list[Said], wanted: list[Said]) -> str:
    """The first difference of what was sent from what was wanted; empty if there is none."""
    for number, (found, want) in enumerate(zip(sent, wanted, strict=False)):
        if want[0] == "about":
            is_same = found[0] == "user" and all(words in "".join(found[1]) for words in want[1])
        else:
            is_same = found == want
        if not is_same:
            return f"message {number}: sent {str(found)[:500]}, wanted {str(want)[:500]}"
    return "" if len(sent) == len(wanted) else f"{len(sent)} messages were sent, {len(wanted)} wanted"
