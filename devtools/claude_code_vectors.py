"""EDGE: vectors of Claude Code, recognised by their layout: a session, and the contexts that real clients sent when
they resumed it.

    NAME.jsonl    the session
    NAME.json     `clients`: by version, the `context` of the request, or the `error` of a client that refused

A context lacks the texts that the client adds on each start. Two texts have more of the client's wording than Redline
keeps, and are compared without it: an attachment that was recorded without its final text, and the result of a call
that was open when the session ended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devtools.pure.conformance import VectorDifference, compare
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.claude_code.pure.parser import ClaudeCodeParser, rendered_texts, unrendered_text
from sessions_app.agents.claude_code.pure.sent import INTERRUPTED, REMINDER
from sessions_app.agents.pure.formats import Generation
from sessions_app.disk.files import SessionReader, real_path
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, split_lines
from sessions_app.sessionlog.session import read_session

CLIENTS: Final = "clients"
REFRESHED: Final = frozenset({"environment", "model", "date", "remote_session_change", "total_tokens_reminder"})
"""The attachments that are left out of the contexts of vectors: the client adds them on each start."""
TAG: Final = REMINDER.split("{}")


def is_claude_code_vector(file: Path) -> bool:
    """Whether a `.json` has its session beside it."""
    return file.suffix == ".json" and file.with_suffix(".jsonl").is_file()


def claude_code_differences(session: Path, case: Mapping[str, Any]) -> Iterator[VectorDifference]:
    """For each client, the first difference between the context that it sent and the one that Redline rebuilds."""
    with SessionReader(real_path(session)) as reader:
        raw = b"".join(reader.chunks(0))

    def line(entry: Entry) -> bytes:
        return raw[entry.offset :][: entry.length]

    for version, client in case[CLIENTS].items():
        if "context" not in client:
            continue
        parser = ClaudeCodeParser(client=_numbers(version))
        tree = CLAUDE_CODE.format.tree(read_session(parser, split_lines([raw]), str(session)).entries)
        context = generation_of(version).reader.rebuild(tree.branch(tree.leaf.id))
        found = list(CLAUDE_CODE.format.sent_messages(context, line))
        attached = [parse(line(entry)) for entry in _attachments(context)]
        bare = {text for data in attached if (text := _bare_text(data))}
        found = list(_without_refreshed(found, attached, client["context"]))
        yield from compare(version, _without_words(client["context"], found, bare), found)


def generation_of(version: str) -> Generation:
    """The generation of a client's version. Raises BadInput `not_a_version`."""
    wanted = _numbers(version)
    return next(one for one in CLAUDE_CODE.format.generations if one.since <= wanted)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = version.split(".")
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise BadInput("not_a_version", f"{version} is not a version of Claude Code. Nothing was checked.")
    return tuple(map(int, numbers))


def _attachments(context: ActiveContext) -> Iterator[Entry]:
    return (message.entry for message in context.messages if message.role == Role.CUSTOM)


def _bare_text(data: Mapping[str, Any]) -> str:
    """The text of an attachment if the client's words around it are not recorded; otherwise empty."""
    is_bare = rendered_texts(data) is None or data["attachment"].get("type") == "queued_command"
    return unrendered_text(data["attachment"]) if is_bare else ""


def _without_refreshed(
    messages: Iterable[Mapping[str, Any]],
    attached: Sequence[Mapping[str, Any]],
    sent: Sequence[Mapping[str, Any]],
) -> Iterator[Mapping[str, Any]]:
    """The messages without texts that begin with what the client adds again on each start, if it was left out."""
    texts = [_untagged(str(block.get("text", ""))) for message in sent for block in message["content"]]
    added = (
        _untagged(text)
        for data in attached
        if data["attachment"].get("type") in REFRESHED
        for text in rendered_texts(data) or ()
    )
    refreshed = tuple(text for text in added if not any(text in one for one in texts))
    for message in messages:
        content = [
            block
            for block in message["content"]
            if not (refreshed and _untagged(str(block.get("text", ""))).startswith(refreshed))
        ]
        if content:
            yield {**message, "content": content}


def _untagged(text: str) -> str:
    return text.strip().removeprefix(TAG[0]).removesuffix(TAG[1]).strip()


def _without_words(sent: Any, found: Any, bare: set[str]) -> Any:
    """What a client sent, with the texts found here where they differ only in the client's words."""
    if isinstance(sent, dict) and isinstance(found, dict):
        return {name: _without_words(value, found.get(name), bare) for name, value in sent.items()}
    if isinstance(sent, list) and isinstance(found, list):
        rest = sent[len(found) :]
        return [*(_without_words(*pair, bare) for pair in zip(sent, found, strict=False)), *rest]
    if isinstance(sent, str) and isinstance(found, str):
        is_interrupted = found == INTERRUPTED and sent.startswith(INTERRUPTED.rstrip("]"))
        pieces = found.strip().split("\n\n")
        is_bare = not bare.isdisjoint(pieces) and all(piece in sent for piece in pieces)
        return found if is_interrupted or is_bare else sent
    return sent
