"""EDGE: the certificate of a session on disk, and the messages of its context as its agent rebuilds them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final

from sessions_app.agents.base import Agent, AgentClient, AgentPackage, RebuiltMessage
from sessions_app.agents.pure.formats import Reader
from sessions_app.agents.registry import GENERATIONS
from sessions_app.disk.files import GrowthKind, SessionReader, first_bytes
from sessions_app.sessionlog import certificate
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.diagnosis import violations
from sessions_app.sessionlog.errors import Conflict
from sessions_app.sessionlog.jsjson import split_lines, stringify
from sessions_app.sessionlog.text import plural

from .session_loader import LoadedSession, line_reader

FIRST_WITH_IDS: Final = 2
"""The first version of the format in which entries have ids."""


def certify(
    loaded: LoadedSession,
    agent: Agent,
    reader: Reader,
    now: datetime,
    *,
    leaf_id: str = "",
    package: AgentPackage | None = None,
    client: AgentClient | None = None,
) -> certificate.Certificate:
    """Check the context of a session at a leaf, or at its last entry. Of the checks that `sessionlog.certificate`
    lists, these are (2), (3) with a package, (4) with a client, and (5) if the session records requests.

    Raises BadInput `unknown_entry`; Conflict `session_rewritten` if the file has changed since it was loaded.
    """
    branch = loaded.tree.branch(leaf_id or loaded.leaf_id)
    context = reader.rebuild(branch)
    versions = GENERATIONS[reader.name][1].label
    with _opened(loaded, agent) as opened:
        ledger = agent.format.recorded_requests(loaded.tree.entries, line_reader(opened))
    examination = agent.format.examine(split_lines(_content(loaded, agent)), str(loaded.path))
    return certificate.Certificate(
        reader=reader.name,
        versions=versions,
        checked_at=now,
        leaf_id=branch[-1].id,
        messages=len(context.messages),
        violations=certificate.certified(violations(context)),
        refusal=context.refused.reason if context.refused is not None else examination.obstacle(versions),
        package=_ask(package, loaded, agent, context, leaf_id) if package is not None else None,
        client=_resume(client, loaded, agent, context, leaf_id) if client is not None else None,
        ledger=ledger,
    )


def rebuilt_messages(loaded: LoadedSession, agent: Agent, context: ActiveContext) -> tuple[RebuiltMessage, ...]:
    """The messages of a context as its agent rebuilds them from their lines.

    Raises Conflict `session_rewritten` if the file has changed since it was loaded.
    """
    with _opened(loaded, agent) as reader:
        line = line_reader(reader)
        rebuilt = (
            agent.format.message_json(
                message, line(message.entry), line(message.edit) if message.edit is not None else None
            )
            for message in context.messages
        )
        return tuple(map(RebuiltMessage.of, rebuilt))


def first_difference(rebuilt: Sequence[RebuiltMessage], context: ActiveContext, ours: Sequence[RebuiltMessage]) -> str:
    """The first message in which an agent's rebuilt context differs from a context, in words; empty if none does."""
    for number, (found, expected) in enumerate(zip_longest(rebuilt, ours), 1):
        if found == expected:
            continue
        entry = f" (entry {context.messages[number - 1].entry.id})" if expected is not None else ""
        if found is None:
            rebuilds = f"it rebuilds {plural(number - 1, 'message')} instead of {len(ours):,}"
            return f"{rebuilds}: message {number}{entry} is missing"
        if expected is None:
            return (
                f"it rebuilds {plural(len(rebuilt), 'message')} instead of {len(ours):,}: the next one is {found.role}"
            )
        if found.role != expected.role:
            return f"message {number}{entry} is {found.role} instead of {expected.role}"
        return f"message {number}{entry}, {found.role}, has another content"
    return ""


def _ask(
    package: AgentPackage, loaded: LoadedSession, agent: Agent, context: ActiveContext, leaf_id: str
) -> certificate.PackageResult:
    is_own_leaf = leaf_id in ("", loaded.leaf_id)
    if not is_own_leaf and loaded.log.state.version < FIRST_WITH_IDS:
        detail = "The entries of this version of the format have no ids, so that no other branch can be selected."
        return certificate.PackageResult(package.name, package.version, certificate.PackageOutcome.FAILED, detail)
    found = package.rebuild(_content(loaded, agent), "" if is_own_leaf else leaf_id)
    if found.failure:
        outcome, detail = certificate.PackageOutcome.FAILED, found.failure
    elif found.refusal:
        outcome, detail = certificate.PackageOutcome.REFUSED, found.refusal
    else:
        detail = first_difference(found.messages, context, rebuilt_messages(loaded, agent, context))
        outcome = certificate.PackageOutcome.DIFFERENT if detail else certificate.PackageOutcome.EQUAL
    return certificate.PackageResult(package.name, package.version, outcome, detail)


def sent_messages(loaded: LoadedSession, agent: Agent, context: ActiveContext) -> Iterator[Mapping[str, Any]]:
    """The messages of a context as its agent sends them.

    Raises Conflict `session_rewritten` if the file has changed since it was loaded.
    """
    with _opened(loaded, agent) as reader:
        sent = agent.format.sent_messages(context, line_reader(reader))
        # Numbers that are too large are sent as null.
        yield from (json.loads(stringify(message)) for message in sent)


def reworded_entries(loaded: LoadedSession, agent: Agent, context: ActiveContext) -> list[str]:
    """The ids of the entries to whose texts the agent adds words that `sent_messages` does not have.

    Raises Conflict `session_rewritten` if the file has changed since it was loaded.
    """
    with _opened(loaded, agent) as reader:
        return list(agent.format.reworded_entries(context, line_reader(reader)))


def _resume(
    client: AgentClient, loaded: LoadedSession, agent: Agent, context: ActiveContext, leaf_id: str
) -> certificate.PackageResult:
    if leaf_id not in ("", loaded.leaf_id):
        detail = "The client continues a session at its last entry, not at another one."
        return certificate.PackageResult(client.name, client.version, certificate.PackageOutcome.FAILED, detail)
    return client.resume(loaded.path.name, _content(loaded, agent), sent_messages(loaded, agent, context))


def _content(loaded: LoadedSession, agent: Agent) -> Iterator[bytes]:
    """The bytes of the session as it was loaded."""
    with _opened(loaded, agent) as reader:
        # A session can be longer than its own file.
        yield from first_bytes(reader, max(loaded.state.size, loaded.log.state.next_offset))


@contextmanager
def _opened(loaded: LoadedSession, agent: Agent) -> Iterator[SessionReader]:
    """The session, if the loaded part is unchanged. Raises Conflict `session_rewritten`."""
    with agent.store.open(loaded.path) as reader:
        growth = reader.growth(loaded.fingerprint)
        if growth.kind is GrowthKind.REWRITTEN:
            message = f"{loaded.path}: {growth.reason}. Nothing was checked. Try again."
            raise Conflict("session_rewritten", message)
        yield reader
