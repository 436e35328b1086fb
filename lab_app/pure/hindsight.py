"""PURE: hindsight: the cost of a compaction in the messages that followed it.

    branch ──timeline──▶ change: deleted, kept, following messages ──▶ Hindsight

Only messages up to the next change of the context are counted, so that none counts for two compactions.

| what                | counts if it was in deleted content, in no kept content, and                                 |
|---------------------|----------------------------------------------------------------------------------------------|
| a reference         | the assistant wrote it afterwards: from memory or as a guess; after a result had shown it    |
|                     | again; or after the user or the agent had. A part of a longer one does not count             |
| a file              | a later read of the same path returned some of the same lines: their part of the result      |
| a command           | a later call with the same arguments returned the same output, up to a tenth: the same part  |

A summary counts as kept content: a reference that it mentions was not deleted. References and their places are those of
`names`, by whole components. Sizes are the agents' estimates.

The figures cannot show whether the agent would have read a file again anyway, whether a name was guessed, or what was
done worse without the deleted content. They do not contain the agent's calls to fetch something, nor the request that
made a summary.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from compaction_app.core.file_touches import comparable, decoded_path, new_text, touch_of
from compaction_app.core.mentions import decoded
from compaction_app.core.summary_loss import summary_of
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import ENCRYPTED, NO_TEXTS, BlockType, Entry, Role, Texts, call_parts
from sessions_app.sessionlog.timeline import ContextChange, ContextReader, TimelinePoint, changes_of

from .measure import NameIndex, ReplayMeasure

ReadTexts = Callable[[Iterable[Entry]], Mapping[str, Texts]]
"""Reads the texts of entries, by id; entries without texts are left out."""
SAME_OUTPUT: Final = 0.9
"""The minimum share of an output that must have been deleted for it to count as the same: agents add times and numbers
to outputs."""
NAME_LENGTH: Final = 300
"""The maximum length of a command used as a name, in characters."""
_MEASURE: Final = ReplayMeasure.COMPONENTS
_RESULTS: Final = frozenset({Role.TOOL_RESULT, Role.COMMAND})


class Way(StrEnum):
    """The way in which a reference came back."""

    MEMORY = "memory"
    """The assistant wrote it before anything had shown it: from memory, or as a guess."""
    FETCHED = "fetched"
    """A result of a tool had shown it again."""
    SHOWN = "shown"
    """The user or the agent had shown it again."""


class Returned(NamedTuple):
    """A deleted reference that the assistant wrote again."""

    reference: str
    way: Way
    entry_id: str
    """The entry in which it first occurred again."""
    stood_in: str
    """The last deleted entry in which it occurred."""


class Fetched(NamedTuple):
    """A call that brought back deleted content."""

    kind: str
    """`file` or `command`."""
    name: str
    """The path, or the command."""
    entry_id: str
    """The entry of its result."""
    stood_in: str
    """The last deleted entry that contained the content."""
    tokens: int
    """The tokens of its result."""
    again: int
    """The tokens of the result that had been deleted."""
    requests: int
    """Later requests that sent the result again, up to the next change of the context."""

    @property
    def sent(self) -> int:
        """The deleted tokens sent again: `again` times `requests`."""
        return self.again * self.requests


@dataclass(frozen=True, slots=True)
class Hindsight:
    """A compaction, judged by the messages that followed it. Sizes in estimated tokens."""

    point: TimelinePoint
    is_summary: bool
    is_encrypted: bool
    """Whether only the provider can read its summary: then references cannot be judged."""
    messages: int
    """The number of following messages, up to the next change."""
    requests: int
    """The number of requests among them: answers of the model that did not fail."""
    rewritten: int
    """The tokens after the first deletion, which the first request wrote to the prompt cache again."""
    until_id: str
    """The entry of the next change of the context; empty if there is none."""
    returned: tuple[Returned, ...]
    fetched: tuple[Fetched, ...]

    @property
    def entry_id(self) -> str:
        """The entry that ends the compaction."""
        return self.point.last.id

    @property
    def saved(self) -> int:
        """Tokens saved: the deleted tokens times the number of following requests."""
        return self.point.tokens_removed * self.requests

    @property
    def again(self) -> int:
        """Deleted tokens that were fetched again."""
        return sum(one.again for one in self.fetched)

    @property
    def sent(self) -> int:
        """Deleted tokens that were fetched again, counted once for each request that sent them."""
        return sum(one.sent for one in self.fetched)

    def count(self, way: Way) -> int:
        """The references that came back in this way."""
        return sum(one.way is way for one in self.returned)

    @property
    def files(self) -> int:
        """The distinct files that were read again."""
        return len({one.name for one in self.fetched if one.kind == "file"})


def hindsights(
    branch: Sequence[Entry], reader: ContextReader, read_texts: ReadTexts, project: str = ""
) -> Iterator[Hindsight]:
    """The compactions of a branch that were followed by an assistant message, in order; the branch is given root first.

    A relative path is resolved from `project`, the session's directory.
    """
    changes = (one for one in changes_of(branch, reader) if one.point.removed or one.point.returned)
    change = next(changes, None)
    while change is not None:
        following = next(changes, None)
        if change.point.removed and change.point.tokens_removed > 0:
            ended = following.before if following is not None else reader.rebuild(branch)
            shown = {(message.entry.id, message.role) for message in change.after.messages}
            later = [
                message
                for message in ended.messages
                if (message.entry.id, message.role) not in shown and message.role != Role.SYSTEM
            ]
            if any(message.role == Role.ASSISTANT for message in later):
                aftermath = _Aftermath(change, later, read_texts, project)
                yield aftermath.back(following.point.first.id if following is not None else "")
        change = following


class _Call(NamedTuple):
    """A successful call of a tool, with its result."""

    kind: str
    """`file`, `command`, or `written`: a file whose new text is in the call."""
    name: str
    key: str
    """The key by which calls count as the same."""
    made_in: str
    """The id of the entry of the call."""
    result: Message
    text: str
    """The lines of the file, or the output of the command."""


class _Aftermath:
    """One change, the messages that followed it, and their texts."""

    def __init__(self, change: ContextChange, later: Sequence[Message], read_texts: ReadTexts, project: str) -> None:
        self._change = change
        self._later = later
        self._project = project
        messages = (*change.before.messages, *change.after.messages, *later)
        sources = {message.source.id: message.source for message in messages}
        self._texts = {**dict.fromkeys(sources, NO_TEXTS), **read_texts(sources.values())}
        left = {(message.entry.id, message.role): message for message in change.after.messages}
        self._gone = [
            what_went(message, left.get((message.entry.id, message.role))) for message in change.point.removed
        ]

    def back(self, until_id: str) -> Hindsight:
        summary = summary_of(self._change.point)
        is_encrypted = summary is not None and self._text(summary) == ENCRYPTED
        return Hindsight(
            point=self._change.point,
            is_summary=summary is not None,
            is_encrypted=is_encrypted,
            messages=len(self._later),
            requests=len(_requests(self._later)),
            rewritten=_rewritten(self._change),
            until_id=until_id,
            returned=() if is_encrypted else tuple(self._returned()),
            fetched=tuple(self._fetched()),
        )

    # ---- references ------------------------------------------------------------------------------------

    def _returned(self) -> Iterator[Returned]:
        gone, kept, later = map(self._index, (self._gone, self._change.after.messages, self._later))
        written: dict[str, None] = {}
        for message in self._later:
            if message.role == Role.ASSISTANT:
                written.update(dict.fromkeys(sorted(self._references(message))))
        missed = [name for name in written if gone.standing(name) and not kept.standing(name)]
        whole = NameIndex(_MEASURE, ((name, [name]) for name in missed))
        for name in missed:
            if len(whole.standing(name)) > 1:
                # It is a component of a longer one, such as a file's name of its path.
                continue
            stood = gone.standing(name)
            first = self._later[later.standing(name)[0]]
            way = Way.MEMORY if first.role == Role.ASSISTANT else Way.SHOWN
            way = Way.FETCHED if first.role in _RESULTS else way
            yield Returned(name, way, first.entry.id, self._gone[stood[-1]].entry.id)

    def _index(self, messages: Sequence[Message]) -> NameIndex[int]:
        return NameIndex(_MEASURE, ((number, self._references(message)) for number, message in enumerate(messages)))

    def _references(self, message: Message) -> set[str]:
        return _MEASURE.references("\n".join(self._statements(message)))

    def _statements(self, message: Message) -> Iterator[str]:
        """The texts of a message; for calls the decoded arguments."""
        if message.blocks is None or self._texts[message.source.id].whole is not None:
            yield self._text(message)
            return
        for block in message.blocks:
            if block.type == BlockType.TOOL_CALL:
                # Names of tools and of arguments are in the tools' schemas, which a compaction does not remove.
                arguments = self._call_parts(message, block.index, block.call_id or "")[1]
                yield from decoded(arguments, with_names=False)
            elif block.type != BlockType.IMAGE:
                yield self._texts[message.source.id].block(block.index)

    def _text(self, message: Message) -> str:
        return message.text(self._texts[message.source.id])

    def _call_parts(self, message: Message, index: int, call_id: str) -> tuple[str, str]:
        """The tool of a call, and its arguments as JSON."""
        text = self._texts[message.source.id].block(index)
        tool, arguments = call_parts(text, call_id)
        return tool, arguments

    # ---- calls -----------------------------------------------------------------------------------------

    def _fetched(self) -> Iterator[Fetched]:
        known = _Known()
        went = {message.entry.id for message in self._gone}
        stays = {message.entry.id for message in self._change.after.messages}
        for call in self._calls(self._change.before.messages):
            holder = call.made_in if call.kind == "written" else call.result.entry.id
            if holder in went:
                known.went(call, holder)
            if holder in stays and holder not in went:
                known.show(call)
        requests = _requests(self._later)
        places = {message.entry.id: place for place, message in enumerate(self._later)}
        for call in self._calls((*self._change.after.messages, *self._later)):
            if call.result.entry.id not in places:
                continue
            share = known.share(call)
            if share:
                here = places[call.result.entry.id]
                yield Fetched(
                    call.kind,
                    call.name,
                    call.result.entry.id,
                    known.stood_in(call),
                    call.result.tokens,
                    round(share * call.result.tokens),
                    sum(place > here for place in requests),
                )
            known.show(call)

    def _calls(self, messages: Iterable[Message]) -> Iterator[_Call]:
        """The successful calls among messages that have a result, in the order of their results."""
        made: dict[str, tuple[str, str, str]] = {}
        for message in messages:
            if message.role == Role.ASSISTANT and self._texts[message.source.id].whole is None:
                for block in message.blocks or ():
                    if block.type == BlockType.TOOL_CALL and block.call_id is not None:
                        tool, arguments = self._call_parts(message, block.index, block.call_id)
                        made[block.call_id] = (message.entry.id, tool, arguments)
            call = made.get(message.entry.result_for or "")
            if call is not None and message.role == Role.TOOL_RESULT and not message.entry.failed:
                yield self._call(*call, message)

    def _call(self, made_in: str, tool: str, arguments: str, result: Message) -> _Call:
        touch = touch_of(tool, arguments)
        if touch is None:
            words = " ".join(" ".join([tool, *decoded(arguments, with_names=False)]).split())
            key = f"{tool} {arguments}"
            return _Call("command", words[:NAME_LENGTH], key, made_in, result, self._text(result))
        path = decoded_path(touch.path)
        key = posixpath.normpath(posixpath.join(self._project, path))
        if touch.reads:
            return _Call("file", path, key, made_in, result, self._text(result))
        return _Call("written", path, key, made_in, result, new_text(arguments))


class _Known:
    """The deleted lines of files and outputs of commands, and the parts that the model has seen since."""

    def __init__(self) -> None:
        self._gone: dict[tuple[bool, str], dict[str, str]] = {}
        """For each file or command: its lines or outputs, with the last entry that had them."""
        self._seen: dict[tuple[bool, str], set[str]] = {}

    def went(self, call: _Call, entry_id: str) -> None:
        self._gone.setdefault(_subject(call), {}).update(dict.fromkeys(_parts(call), entry_id))

    def show(self, call: _Call) -> None:
        """Record that the model sees the content of the call."""
        if _subject(call) in self._gone or call.kind != "command":
            self._seen.setdefault(_subject(call), set()).update(_parts(call))

    def share(self, call: _Call) -> float:
        """The share of a call's output that had been deleted and was not seen since: 0 to 1."""
        gone = self._gone.get(_subject(call))
        if gone is None or call.kind == "written":
            return 0.0
        seen = self._seen.get(_subject(call), ())
        parts = _parts(call)
        back = sum(len(part) for part in parts if part in gone and part not in seen)
        share = back / sum(map(len, parts)) if back else 0.0
        return share if call.kind == "file" or share >= SAME_OUTPUT else 0.0

    def stood_in(self, call: _Call) -> str:
        gone = self._gone[_subject(call)]
        return next(gone[part] for part in _parts(call) if part in gone)


def what_went(before: Message, after: Message | None) -> Message:
    """The deleted part of a message: all of it, if an edit replaced its content."""
    if after is None or after.edit is not before.edit or before.blocks is None:
        return before
    left = {block.index for block in after.blocks or ()}
    blocks = tuple(block for block in before.blocks if block.index not in left)
    return msgspec.structs.replace(before, blocks=blocks)


def _subject(call: _Call) -> tuple[bool, str]:
    return call.kind == "command", call.key


def _parts(call: _Call) -> list[str]:
    """The compared parts of a call: its lines that are long enough; for an output without such lines, all of it."""
    lines = list(comparable(call.text))
    if lines or call.kind != "command":
        return lines
    output = " ".join(call.text.split())
    return [output] if output else []


def _requests(later: Sequence[Message]) -> list[int]:
    """The positions of the model's successful answers; for an answer in several entries, that of the first."""
    found: dict[str, int] = {}
    for place, message in enumerate(later):
        entry = message.entry
        if message.role == Role.ASSISTANT and not entry.failed:
            found.setdefault(entry.reply or entry.id, place)
    return list(found.values())


def _rewritten(change: ContextChange) -> int:
    """The tokens of the context after a change, from the first changed message on."""
    same = 0
    for before, after in zip(change.before.messages, change.after.messages, strict=False):
        if before != after:
            break
        same += after.tokens
    return change.after.estimate - same
