"""EDGE: an agent's installed client continues a copy of a session against a model on loopback, and is compared.

    copy of the session ─▶ client ─▶ first request with PROBE: the session's messages, and what the client adds
    (a new session)     ─▶ client ─▶ the control: only what the client adds

The client runs in a temporary home, without a terminal, the user's files, environment and keys, or a network. It has an
empty pipe as standard input, and a limit on time and output; whatever it started in its process group is ended with it.
If it sends other requests before the one with PROBE, it compacts the session before it continues.

A client adds something to each conversation: reminders, the environment, instructions. What it adds to a new session is
known from the control, and is left out of both sides. What remains must be equal, message by message and block by
block. These are no difference:

- after the session's messages, and in the one that PROBE was joined with: texts with known beginnings, or texts that
  are not a user's; for example, because the directory is not the recorded one
- words of the client around a recorded text, in such a text
- a newline that a text gets because another one follows it
- U+FFFD in the place of a lone surrogate, and null in the place of nothing
- an image that the client encoded again, perhaps smaller: it has the same shape, and is not another one of the session;
  nor is how closely the model is to look at an image
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.certificate import PackageOutcome, PackageResult
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.opaque import size_in_base64
from sessions_app.sessionlog.text import plural

from .installed_version import program_on_path
from .model_server import ModelRequest, ModelServer

PROBE: Final = "REDLINE-PROBE"
"""The prompt with which a session is continued."""
NOT_CONTENT: Final = frozenset({"id", "cache_control", "output_config"})
NOT_IN_BLOCKS: Final = frozenset({"cache_control", "annotations", "citations"})
NO_FIELDS: Final[tuple[Mapping[str, Any], ...]] = ({}, {"type": "message"})
CLIENT_ROLES: Final = frozenset({"system", "developer"})
"""The roles of messages that are neither the user's nor the model's."""
TEXTS: Final = frozenset({"text", "input_text"})
IMAGES: Final = frozenset({"image", "input_image", "image_url"})

Block = Mapping[str, Any]


class _Message(NamedTuple):
    role: str
    blocks: list[Block]
    fields: Mapping[str, Any]
    """Everything but its role and content."""
    number: int


def has_probe(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a conversation ends with the turn of PROBE."""
    return any(_is_probe(block) for message in messages[-2:] for block in _blocks(message))


def difference(
    sent: Sequence[Mapping[str, Any]],
    added: Sequence[Mapping[str, Any]],
    expected: Iterable[Mapping[str, Any]],
    openings: tuple[str, ...],
) -> str:
    """The first difference between the messages sent and the expected ones, in words; empty if there is none.

    `added` are the messages of the control; `openings` are the beginnings of texts that the client may add to a user's.
    """
    fresh = frozenset(_identity(message, block) for message in added for block in _blocks(message))
    last = max(at for at, message in enumerate(sent) if any(map(_is_probe, _blocks(message))))
    found = list(_without(sent, fresh))
    ours = list(_without(expected, fresh))
    forms = _Forms(ours)
    for theirs, mine in zip_longest(found, ours):
        if theirs is None:
            missing = f"message {mine.number + 1:,} ({mine.role}) is missing"
            return f"it sends {plural(len(found), 'message')} instead of {len(ours):,}: {missing}"
        if mine is None:
            if not _may_be_added(theirs, theirs.blocks, openings):
                return f"after the {plural(len(ours), 'message')} of the session it sends another one, {theirs.role}"
            continue
        name = f"message {mine.number + 1:,}"
        if theirs.role != mine.role:
            return f"{name} is {theirs.role} instead of {mine.role}"
        if theirs.number == last:  # the message that PROBE was joined with, as it was recorded
            kept = [
                block
                for block in theirs.blocks
                if any(_is_same_block(block, one, forms) for one in mine.blocks)
                or not _may_be_added(theirs, [block], openings)
            ]
            theirs = theirs._replace(blocks=kept)
        if not _is_same(theirs, mine, openings, forms):
            return f"{name}, {mine.role}, has another content"
    return ""


def _without(messages: Iterable[Mapping[str, Any]], fresh: frozenset[tuple[str, str]]) -> Iterator[_Message]:
    """Messages without the blocks of the control, of which PROBE is one."""
    for number, message in enumerate(messages):
        blocks = [block for block in _blocks(message) if _identity(message, block) not in fresh]
        left_out = NOT_CONTENT | {"role", "content"} if "role" in message else NOT_CONTENT
        others = {name: value for name, value in message.items() if name not in left_out and value is not None}
        if blocks or others not in NO_FIELDS:
            yield _Message(_role(message), blocks, others, number)


def _is_same(theirs: _Message, mine: _Message, openings: tuple[str, ...], forms: _Forms) -> bool:
    if len(theirs.blocks) != len(mine.blocks) or not forms.are_equal(theirs.fields, mine.fields):
        return False
    return all(
        _is_same_block(one, other, forms)
        or (_may_be_added(theirs, [one], openings) and _is_text(other) and well_formed(other["text"]) in one["text"])
        for one, other in zip(theirs.blocks, mine.blocks, strict=True)
    )


def _is_same_block(one: Block, other: Block, forms: _Forms) -> bool:
    if _is_text(one) and _is_text(other):
        one, other = ({**block, "text": block["text"].rstrip("\n")} for block in (one, other))
    return forms.are_equal(one, other)


class _Forms:
    """Compares sent values with recorded ones, allowing for equivalent forms."""

    def __init__(self, ours: Iterable[_Message]) -> None:
        self._images = frozenset(_images_in([[message.blocks, message.fields] for message in ours]))
        """The recorded images."""

    def are_equal(self, sent: object, recorded: object) -> bool:
        pending: list[tuple[object, object]] = [(sent, recorded)]
        while pending:
            one, other = pending.pop()
            if isinstance(one, dict) and isinstance(other, dict):
                image = _image_in(other)
                if image and self._is_same_image(_image_in(one), image):
                    continue
                one, other = _fields(one), _fields(other)
                if one.keys() != other.keys():
                    return False
                pending += ((one[name], other[name]) for name in one)
            elif isinstance(one, list) and isinstance(other, list):
                if len(one) != len(other):
                    return False
                pending += zip(one, other, strict=True)
            elif isinstance(one, str) and isinstance(other, str):
                if well_formed(one) != well_formed(other):
                    return False
            elif type(one) is not type(other) or one != other:
                return False
        return True

    def _is_same_image(self, sent: str, recorded: str) -> bool:
        """Whether an image is a recorded one that was encoded again, perhaps smaller."""
        ours, theirs = size_in_base64(recorded), size_in_base64(sent)
        if ours is None or theirs is None or sent in self._images:
            return sent == recorded
        scale = max(theirs.width / ours.width, theirs.height / ours.height)
        return scale <= 1 and all(abs(side * scale - other) <= 1 for side, other in zip(ours, theirs, strict=True))


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    return {well_formed(name): one for name, one in value.items() if one is not None}


def _image_in(block: Mapping[str, Any]) -> str:
    """The data of a block that is an image, in any of the dialects: Base64, or a data URL; empty if it is none."""
    if fields.text(block, "type") not in IMAGES:
        return ""
    for name, inner in (("source", "data"), ("image_url", "url")):
        value = block.get(name)
        found = value.get(inner) if isinstance(value, dict) else value
        if isinstance(found, str):
            return found
    return ""


def _images_in(value: object) -> Iterator[str]:
    """The data of all images in a value."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield from filter(None, (_image_in(one),))
            pending += one.values()
        elif isinstance(one, list):
            pending += one


def _may_be_added(message: _Message, blocks: Sequence[Block], openings: tuple[str, ...]) -> bool:
    """Whether a client can have added these blocks to a message, or as a message."""
    if message.fields not in NO_FIELDS or not all(map(_is_text, blocks)):
        return False
    is_clients = message.role in CLIENT_ROLES
    return is_clients or (message.role == "user" and all(block["text"].startswith(openings) for block in blocks))


def _role(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("type") or "")


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    """The content of a message as blocks. An item of Responses that is not a message has none."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or "role" not in message:
        return []
    blocks = (block for block in content if isinstance(block, dict) and "role" not in block)
    return [{name: value for name, value in block.items() if name not in NOT_IN_BLOCKS} for block in blocks]


def _identity(message: Mapping[str, Any], block: Block) -> tuple[str, str]:
    return _role(message), json.dumps(block, sort_keys=True)


def _is_text(block: Block) -> bool:
    return fields.text(block, "type") in TEXTS and isinstance(block.get("text"), str)


def _is_probe(block: Block) -> bool:
    return _is_text(block) and block["text"].strip() == PROBE


OUTPUT_LIMIT: Final = 1 << 20
"""The maximum number of bytes kept from the end of each output."""


SECONDS: Final = 120
"""The time that one run may take; it usually takes one to four seconds."""
ERROR_SHOWN: Final = 500
"""The maximum number of characters shown of an error."""


class ClientUnusable(Exception):
    """A client cannot be run, or did not do what was expected of it."""


class ClientExit(NamedTuple):
    """How a program ended: its exit code, None if it took too long, and the end of its outputs."""

    code: int | None
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The reason for the failure, as far as the program printed it."""
        if self.code is None:
            return f"it did not end within {SECONDS} seconds."
        said = (self.errors.strip() or self.output.strip()).splitlines()
        return said[-1][:ERROR_SHOWN] if said else f"exit code {self.code}."


def run_client(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], seconds: float = SECONDS
) -> ClientExit:
    """Run a client's program until it ends or times out. Raises ClientUnusable if it cannot be run."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        # Files instead of pipes: what the program leaves behind may keep them open; it is not waited for.
        try:
            process = subprocess.Popen(  # noqa: S603  # the user's own program
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except OSError as fault:
            raise ClientUnusable(f"{command[0]}: {fault.strerror}.") from fault
        try:
            assert process.stdin is not None  # noqa: S101  # it is a pipe
            process.stdin.close()
            code: int | None = None
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return ClientExit(code, _end(output), _end(errors))


def _end(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - OUTPUT_LIMIT))
    return output.read(OUTPUT_LIMIT).decode("utf-8", "replace")


NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that does not exist, so that requests to other computers fail immediately."""


class Scratch(NamedTuple):
    """A home directory, a project in it, and the base URL of the only model."""

    home: Path
    project: Path
    model_url: str

    @property
    def environment(self) -> dict[str, str]:
        """An environment without the user's variables, except the path to programs."""
        home = self.home
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "TMPDIR": str(home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
        }


def new_scratch(directory: Path, model_url: str) -> Scratch:
    """An empty home in an existing directory."""
    home = directory.resolve()
    project = home / "project"
    project.mkdir(exist_ok=True)
    return Scratch(home, project, model_url)


_VERSION: Final = re.compile(r"(?<![\d.])\d{1,6}\.\d{1,6}\.\d{1,6}")

Messages = Sequence[Mapping[str, Any]]


class ClientProgram(ABC):
    """A client's program, with the differences between clients."""

    label: str
    """The agent's name for people."""
    openings: tuple[str, ...] = ()
    """How the texts begin that it may add to a user's turn."""

    def __init__(self, program: str) -> None:
        self.program = program
        """The path of the program."""

    @abstractmethod
    def environment(self, scratch: Scratch) -> Mapping[str, str]:
        """The environment in which it runs."""

    @abstractmethod
    def place(self, name: str, content: Iterable[bytes], scratch: Scratch) -> str:
        """Write a session, given its file's name and its content, to the place from which the program loads it.

        Returns the id by which it is continued. If this takes a run with PROBE, that run is the control. Raises
        ClientUnusable.
        """

    @abstractmethod
    def command(self, prompt: str, session_id: str = "") -> list[str]:
        """The command for one turn without a terminal, in a session or in a new one."""

    @abstractmethod
    def messages(self, body: Mapping[str, Any]) -> Messages | None:
        """The messages of a request; None if it is not one of the conversation's."""


@dataclass(frozen=True, slots=True)
class AgentClient:
    """An installed client of an agent, which can continue a copy of a session against a model on loopback."""

    client: ClientProgram
    version: str

    @property
    def name(self) -> str:
        return self.client.label

    def resume(self, name: str, content: Iterable[bytes], messages: Iterable[Mapping[str, Any]]) -> PackageResult:
        """Whether the client sends these messages when it continues a copy of a session."""
        try:
            outcome, detail = self._outcome(name, content, messages)
        except ClientUnusable as fault:
            outcome, detail = PackageOutcome.FAILED, f"{self.name} {self.version} could not be used: {fault}"
        return PackageResult(self.name, self.version, outcome, detail)

    def _outcome(
        self, name: str, content: Iterable[bytes], messages: Iterable[Mapping[str, Any]]
    ) -> tuple[PackageOutcome, str]:
        """The comparison with the request with PROBE; `requests` counts those of the conversation up to it. Raises
        ClientUnusable."""
        client = self.client
        # What the program left running may still write.
        with (
            tempfile.TemporaryDirectory(prefix="redline-client-", ignore_cleanup_errors=True) as directory,
            ModelServer() as server,
        ):
            scratch = new_scratch(Path(directory), server.url)
            session_id = client.place(name, content, scratch)
            added, _ = _conversation(client, server.requests)
            if added is None:
                control = _run(client, client.command(PROBE), scratch)
                added, _ = _conversation(client, server.requests)
                if added is None:
                    raise ClientUnusable(f"it does not run without the user's settings: {control.last_words}")
            del server.requests[:]
            ended = _run(client, client.command(PROBE, session_id), scratch)
            sent, requests = _conversation(client, server.requests)
        if sent is None and requests:
            return PackageOutcome.DIFFERENT, "it compacts the session, and does not continue it"
        if sent is None:
            return PackageOutcome.REFUSED, ended.last_words
        if requests > 1:
            return PackageOutcome.DIFFERENT, "it compacts the session before it continues it"
        found = difference(sent, added, messages, client.openings)
        return (PackageOutcome.DIFFERENT if found else PackageOutcome.EQUAL), found


def find_client(kind: Callable[[str], ClientProgram], name: str, program: Path | None) -> AgentClient | None:
    """The client with this program, or the one of this name on the PATH; None if there is none.

    Raises BadInput `no_client` if the program does not print a version.
    """
    found = str(program.absolute()) if program is not None else program_on_path(name)
    client = None
    if found is not None:
        with (
            tempfile.TemporaryDirectory(prefix="redline-client-", ignore_cleanup_errors=True) as directory,
            suppress(ClientUnusable),
        ):
            printed = _run(kind(found), [found, "--version"], new_scratch(Path(directory), "")).output
            version = _VERSION.search(printed)
            client = AgentClient(kind(found), version.group()) if version is not None else None
    if client is None and program is not None:
        raise BadInput(
            "no_client",
            f"{program} is not a program that prints a version. Nothing was checked. "
            "Give the path of the agent's program, or leave it out to use the one on the PATH.",
        )
    return client


def _run(client: ClientProgram, command: Sequence[str], scratch: Scratch) -> ClientExit:
    return run_client(command, cwd=scratch.project, environment=client.environment(scratch))


def _conversation(client: ClientProgram, requests: Sequence[ModelRequest]) -> tuple[Messages | None, int]:
    """The messages of the request with PROBE, and its number among the conversation's."""
    found = [messages for request in requests if (messages := client.messages(request.body)) is not None]
    numbered = ((messages, number) for number, messages in enumerate(found, 1) if has_probe(messages))
    return next(numbered, (None, len(found)))
