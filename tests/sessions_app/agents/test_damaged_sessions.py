"""Damaged sessions of each agent are read, examined and rebuilt without an exception, and are not changed."""

import json
import random
import sqlite3
from codecs import BOM_UTF8
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from devtools.bench.line_damage import damaged_lines
from sessions_app.agents.registry import agent_at
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.session import DamageKind
from sessions_app.storage.session_certificate import certify, rebuilt_messages, sent_messages
from sessions_app.storage.session_loader import LoadedSession, diagnose, load_session
from tests.budget import seeds
from tests.factories import session_bytes, working_session
from tests.files import place, snapshot
from tests.opencode_stores import OpenCodeStore, documents, worked_session
from tests.sessions_app.agents.claude_code.writing import story
from tests.sessions_app.agents.codex import rollouts

NOW: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
COPIES: Final = seeds(20)
LEAVES: Final = 4
"""Branches that are rebuilt of a session, beside its own."""


def use(path: Path) -> LoadedSession | None:
    """Read a session in every way; None if it has no entries, or is not a session any more."""
    try:
        loaded = load_session(path)
        leaf_ids = {loaded.leaf_id}
    except RedlineError:
        return None
    findings = [one for one in diagnose(loaded.path).findings if one.kind in set(DamageKind)]
    inner = set(loaded.tree.parents)
    ends = [entry.id for at, entry in enumerate(loaded.tree.entries) if at not in inner]
    agent = agent_at(loaded.path)
    for leaf_id in {*leaf_ids, *ends[:LEAVES]}:
        branch = loaded.tree.branch(leaf_id)
        loaded.texts(branch)
        for generation in agent.format.generations:
            context = generation.reader.rebuild(branch)
            for rule in (generation.rules, *generation.writers):
                assert all(rule.protection(entry) != "" for entry in branch)
            generation.rules.compactable(branch)
            list(sent_messages(loaded, agent, context))
            rebuilt_messages(loaded, agent, context)
            refused = context.refused is not None or any(one.obstacle(generation.label) for one in findings)
            assert bool(certify(loaded, agent, generation.reader, NOW, leaf_id=leaf_id).refusal) is refused
    return loaded


def codex_session(chance: random.Random) -> bytes:
    items: list[rollouts.Item | bytes] = [rollouts.meta(), rollouts.turn_context(), rollouts.world_state()]
    kept: list[rollouts.Item] = []
    for turn in range(chance.randint(2, 6)):
        said = [
            *(rollouts.user(f"p{turn}"), rollouts.reasoning(name=f"rs_{turn}")),
            *(rollouts.call(f"c{turn}.{number}") for number in range(2)),
            *(rollouts.output(f"c{turn}.{number}") for number in range(2)),
            rollouts.answer(f"a{turn}"),
        ]
        items += [*said, rollouts.token_count(900, 900)]
        kept += said
        if chance.random() < 0.3:
            kept = chance.sample(kept, len(kept) // 2)
            items.append(rollouts.compacted(*kept))
    if chance.random() < 0.3:
        items.append(rollouts.rolled_back(1))
    return rollouts.Rollout(*items, paginated=chance.random() < 0.5).content


CLAUDE_CODE: Final = Path(".claude", "projects", "-work", "5e551014-0000-4000-8000-000000000001.jsonl")
PI: Final = Path(".pi", "s.jsonl")
CODEX: Final = Path(".codex", "sessions", f"rollout-2026-01-05T10-00-00-{rollouts.THREAD}.jsonl")


def pi_session(chance: random.Random) -> bytes:
    return session_bytes(working_session(steps=chance.randint(1, 6), words=30))


@pytest.mark.parametrize(
    ("session", "place"),
    [
        pytest.param(lambda chance: story(chance).content, CLAUDE_CODE, id="claude-code"),
        pytest.param(codex_session, CODEX, id="codex"),
        pytest.param(pi_session, PI, id="pi"),
    ],
)
def test_damaged_files(session, place, tmp_path, monkeypatch):
    # A line of 100,000 levels has as many places where a record may begin.
    monkeypatch.setattr("sessions_app.agents.pi.pure.diagnosis.ATTEMPTS", 50)
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    read = 0
    for seed in COPIES:
        chance = random.Random(seed)
        content = damaged_lines(session(chance).splitlines(), chance)
        path.write_bytes(content)
        read += use(path) is not None
        assert path.read_bytes() == content
    assert read > len(COPIES) // 2


def test_the_first_line_may_have_a_byte_order_mark_whatever_it_is(tmp_path):
    _, *lines = pi_session(random.Random(0)).splitlines(keepends=True)
    assert use(place(tmp_path / PI, BOM_UTF8 + b"".join(lines))) is not None


DAMAGED_VALUES: Final = (*(None, 7, -1.5, b"", b"\0\xff", b"prt_0006", "", "{", "[]", '"x"', '{"type":7}', 1 << 52),)
COLUMNS: Final = {
    "session": ("title", "directory", "parent_id", "revert", "time_created", "time_updated"),
    "message": ("id", "data", "time_created", "time_updated"),
    "part": ("id", "message_id", "session_id", "data", "time_updated"),
}


def damage_rows(store: OpenCodeStore, chance: random.Random) -> None:
    """Replace values of random rows: of another type, of another row, or with damaged text."""
    with closing(sqlite3.connect(store.database)) as connection, connection:
        connection.text_factory = bytes
        for table in chance.choices(list(COLUMNS), weights=(1, 2, 6), k=chance.randint(1, 6)):
            column = chance.choice(COLUMNS[table])
            rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608  # our tables
            number, recorded = chance.choice(rows)
            update = f"UPDATE {table} SET {column} = {{}} WHERE rowid = ?"  # noqa: S608  # our tables
            if chance.random() < 0.5:
                connection.execute(update.format("?"), (chance.choice(DAMAGED_VALUES), number))
            elif column == "data" and isinstance(recorded, bytes):
                damaged = damaged_lines([recorded], chance)
                connection.execute(update.format("CAST(? AS TEXT)"), (damaged, number))
            else:
                connection.execute(update.format("CAST(? AS TEXT)"), (chance.choice(rows)[1], number))


def recorded_rows(store: OpenCodeStore) -> dict[str, list[tuple[object, ...]]]:
    """All rows; texts as bytes, whatever they are."""
    with closing(sqlite3.connect(store.database)) as connection:
        connection.text_factory = bytes
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in COLUMNS}  # noqa: S608  # our tables


def test_damaged_rows_of_opencode(tmp_path, redline):
    store = OpenCodeStore(tmp_path / "opencode")
    path = worked_session(store)
    store.drop_keys()
    store.run("PRAGMA wal_checkpoint(TRUNCATE)")
    content = store.database.read_bytes()
    rows = 1 + sum(len(store.run(f"SELECT 1 FROM {table}")) for table in ("message", "part"))  # noqa: S608  # our tables
    for seed in COPIES:
        damage_rows(store, random.Random(seed))
        before = recorded_rows(store)
        with agent_at(path).store.open(path) as reader:
            lines = b"".join(reader.chunks(0)).count(b"\n")
        moved = [row for row in before["part"] if row[2] != b"ses_1"]
        assert rows - len(moved) <= lines <= 2 * rows
        loaded = use(path)
        named = {entry.number for entry in loaded.log.entries} | {fault.number for fault in loaded.log.damage}
        assert named == set(range(1, lines + 1))
        index_file(path)
        assert recorded_rows(store) == before
        for name in store.directory.iterdir():
            name.unlink()
        store.database.write_bytes(content)


def test_damaged_databases_of_opencode(tmp_path):
    store = OpenCodeStore(tmp_path / "opencode")
    path = worked_session(store)
    store.run("PRAGMA wal_checkpoint(TRUNCATE)")
    sound = store.database.read_bytes()
    for seed in COPIES:
        chance = random.Random(seed)
        content = bytearray(sound)
        for _ in range(chance.randint(1, 40)):
            content[chance.randrange(100, len(content))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            del content[chance.randrange(len(content)) :]
        store.database.write_bytes(content)
        use(path)
        assert store.database.read_bytes() == content, seed
        for name in store.directory.iterdir():
            name.unlink()


def test_damaged_documents_of_opencode(tmp_path):
    store = OpenCodeStore(tmp_path / "database")
    worked_session(store)
    for seed in COPIES:
        chance = random.Random(seed)
        root = tmp_path / str(seed) / "opencode"
        path = documents(root, store)
        for document in chance.sample(sorted((root / "storage").rglob("*.json")), 5):
            recorded = json.dumps(json.loads(document.read_bytes())).encode()
            if chance.random() < 0.2:
                document.unlink()
            else:
                document.write_bytes(damaged_lines([recorded], chance))
        before = snapshot(root)
        use(path)
        assert snapshot(root) == before, seed
