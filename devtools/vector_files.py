"""EDGE: the cases of vectors in files and directories. Each kind of vector is recognised by its layout.

| kind        | layout                                                                            |
|-------------|-----------------------------------------------------------------------------------|
| conformance | `.json`, `.jsonl` or `.jsonl.gz`: one case per file, or one per line              |
| a reading   | `NAME.context.json` beside the session `NAME.jsonl`                               |
| a plan      | a directory with `plan.json`, `contexts.json` and perhaps `session.jsonl`         |
| Claude Code | `NAME.json`, with `clients`, beside the session `NAME.jsonl`                       |
| Codex       | a directory with `rollouts/`, `meta.json` and perhaps `request.json`              |
| OpenCode    | a directory with `store.json`, `meta.json` and `request.json`                     |

Other files in or above directories with readings and plans are not vectors.
"""

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from devtools.pure.conformance import VectorDifference, case_lines, differences
from sessions_app.disk.files import SessionReader, real_path, reported
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import Line, parse, split_lines

from .agent_vectors import plan_differences, reading_differences
from .claude_code_vectors import CLIENTS, claude_code_differences, is_claude_code_vector
from .codex_vectors import META, REQUEST, ROLLOUTS, codex_differences, is_codex_vector
from .opencode_vectors import STORE, is_opencode_store, opencode_differences

SUFFIXES: Final = (".json", ".jsonl", ".jsonl.gz")
READING: Final = ".context.json"
PLAN: Final = "plan.json"
CONTEXTS: Final = "contexts.json"
CORPUS: Final = "REDLINE_CORPUS"
"""The environment variable with the directory of the sessions that plans name."""


class VectorCase(NamedTuple):
    """One case; `differences` compares it."""

    name: str
    differences: Callable[[], Iterator[VectorDifference]]


def find_cases(paths: Iterable[Path]) -> Iterator[VectorCase]:
    """The cases in files and below directories. Raises BadInput `no_such_file` and `not_a_vector`."""
    for path in paths:
        with reported(path, "Nothing was checked."):
            is_directory = path.is_dir()
        if path.name == PLAN:
            yield _plan_case(path.parent)
        elif path.name.endswith(READING):
            yield _reading_case(path)
        elif is_claude_code_vector(path):
            yield _claude_code_case(path)
        elif is_directory and is_codex_vector(path):
            yield _codex_case(path)
        elif path.name == STORE or (path / STORE).is_file():
            yield _opencode_case(path if is_directory else path.parent)
        elif is_directory:
            yield from _cases_below(path)
        else:
            yield from _conformance_cases(path)


def _cases_below(directory: Path) -> Iterator[VectorCase]:
    with reported(directory, "Nothing was checked."):
        files = sorted(found for found in directory.rglob("*") if found.name.endswith(SUFFIXES))
    found = set(files)
    readings = [file for file in files if file.name.endswith(READING)]
    plans = [file.parent for file in files if file.name == PLAN and file.with_name(CONTEXTS) in found]
    for file in readings:
        yield _reading_case(file)
    for plan in plans:
        yield _plan_case(plan)
    threads = [file.parent for file in files if file.name == META and is_codex_vector(file.parent)]
    for thread in threads:
        yield _codex_case(thread)
    stores = [file.parent for file in files if file.name == STORE]
    for store in stores:
        yield _opencode_case(store)
    homes = {file.parent for file in readings} | set(plans) | {thread / ROLLOUTS for thread in threads}
    homes |= set(stores)
    taken = {above for home in homes for above in (home, *home.parents)}
    resumed = {file for file in files if file.parent not in taken and is_claude_code_vector(file)}
    for file in files:
        if file in resumed:
            yield _claude_code_case(file)
        elif file.parent not in taken and file.with_suffix(".json") not in resumed:
            yield from _conformance_cases(file)


# ---- readings and plans --------------------------------------------------------------------------------------


def _reading_case(file: Path) -> VectorCase:
    case = _object(file, _read(file))
    if "error" not in case and not isinstance(case.get("messages"), list):
        raise _not_a_vector(file, "has neither messages nor an error")
    session = file.with_name(f"{file.name.removesuffix(READING)}.jsonl")
    return VectorCase(file.name, lambda: reading_differences(case, _session_lines(session)))


def _plan_case(directory: Path) -> VectorCase:
    plan = _object(directory / PLAN, _read(directory / PLAN))
    contexts = _object(directory / CONTEXTS, _read(directory / CONTEXTS))
    if not isinstance(plan.get("deletedTargets"), list) or not {"by", "contexts"} <= contexts.keys():
        raise _not_a_vector(directory / PLAN, "is not a plan with its contexts")
    session = _session_of(directory, plan)
    return VectorCase(directory.name, lambda: plan_differences(plan | contexts, _session_lines(session)))


def _claude_code_case(file: Path) -> VectorCase:
    case = _object(file, _read(file))
    clients = case.get(CLIENTS)
    if not isinstance(clients, dict) or not all(isinstance(client, dict) for client in clients.values()):
        raise _not_a_vector(file, "has no requests of clients")
    return VectorCase(file.name, lambda: claude_code_differences(file.with_suffix(".jsonl"), case))


def _codex_case(directory: Path) -> VectorCase:
    meta = _object(directory / META, _read(directory / META))
    file = directory / REQUEST
    request = _object(file, _read(file)) if file.exists() else None
    if not {"client", "note"} <= meta.keys() or (request is not None and not isinstance(request.get("input"), list)):
        raise _not_a_vector(directory / META, "is not a request of Codex")
    return VectorCase(directory.name, lambda: codex_differences(directory, meta, request))


def _opencode_case(directory: Path) -> VectorCase:
    store = _object(directory / STORE, _read(directory / STORE))
    request = _object(directory / REQUEST, _read(directory / REQUEST))
    if not is_opencode_store(store) or not isinstance(request.get("messages"), list):
        raise _not_a_vector(directory / STORE, "is not a session of OpenCode with its request")
    return VectorCase(directory.name, lambda: opencode_differences(store, request))


def _session_of(directory: Path, plan: dict[str, Any]) -> Path:
    """The session of a plan: beside it, or among the real sessions, which are above it if no variable names them."""
    beside = directory / "session.jsonl"
    if beside.is_file():
        return beside
    named = str(plan.get("session"))
    corpus = os.environ.get(CORPUS)
    places = [Path(corpus)] if corpus else [above / "sessions" for above in directory.resolve().parents]
    return _existing(directory / PLAN, [place / named for place in places], named)


def _session_lines(session: Path) -> Iterator[Line]:
    with SessionReader(real_path(session)) as reader:
        yield from split_lines(reader.chunks(0))


# ---- conformance vectors -------------------------------------------------------------------------------------


def _conformance_cases(file: Path) -> Iterator[VectorCase]:
    raw = _read(file)
    one_a_line = file.name.endswith((".jsonl", ".jsonl.gz"))
    for number, text in enumerate(raw.splitlines() if one_a_line else [raw], 1):
        if text.strip():
            case = _object(file, text)
            if not {"leafId", "settings", "context", "prepare"} <= case.keys():
                raise _not_a_vector(file, "is not a conformance vector")
            name = f"{file.name}:{number}" if one_a_line else file.name
            yield VectorCase(name, partial(_conformance, case, file))


def _conformance(case: dict[str, Any], file: Path) -> Iterator[VectorDifference]:
    if "session" not in case:
        return differences(case, case_lines(case))
    # The session's path is relative to a directory above the vectors.
    places = [above / case["session"] for above in file.resolve().parents]
    return differences(case, _session_lines(_existing(file, places, case["session"])))


# ---- files ---------------------------------------------------------------------------------------------------


def _existing(file: Path, places: Iterable[Path], named: str) -> Path:
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise BadInput("no_such_file", f"{file} refers to {named}, which does not exist. Nothing was checked.")
    return found


def _read(file: Path) -> bytes:
    with SessionReader(real_path(file)) as reader:
        raw = b"".join(reader.chunks(0))
    if file.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as fault:
        raise _not_a_vector(file, f"cannot be unpacked: {fault}") from fault


def _object(file: Path, text: bytes) -> dict[str, Any]:
    try:
        case = parse(text)
    except ValueError as fault:
        raise _not_a_vector(file, f"is not valid JSON: {fault}") from fault
    if not isinstance(case, dict):
        raise _not_a_vector(file, "is not a JSON object")
    return case


def _not_a_vector(file: Path, why: str) -> BadInput:
    return BadInput("not_a_vector", f"{file} {why}. Nothing was checked.")
