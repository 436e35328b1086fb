"""Every conformance vector passes, and one that does not is reported by its section and path."""

import copy
import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from devtools.pure.conformance import case_lines, differences
from sessions_app.sessionlog.jsjson import Line, parse, split_lines
from tests.paths import PROJECT

Case = dict[str, Any]
OWN = PROJECT / "tests" / "vectors" / "cases.jsonl.gz"
OTHERS = Path(os.environ.get("REDLINE_VECTORS", PROJECT.parent / "shared" / "vectors"))
CASES: list[Case] = [parse(line) for line in gzip.decompress(OWN.read_bytes()).splitlines()]


def every_case() -> dict[str, Case]:
    """The project's own vectors, and other ones beside the project, if there are any."""
    found = {f"seed {case['seed']}": case for case in CASES}
    known = set(map(repr, CASES))
    beside = {path.name: parse(path.read_bytes()) for path in sorted(OTHERS.rglob("*.json"))}
    return found | {name: case for name, case in beside.items() if repr(case) not in known}


def lines_of(case: Case) -> Iterable[Line]:
    if "session" not in case:
        return case_lines(case)
    return split_lines([(OTHERS.parent / case["session"]).read_bytes()])


def test_every_vector_that_was_recorded_passes():
    assert len(CASES) == 161
    assert sum(len(case.get("validate", ())) for case in CASES) > 1_500
    assert sum("tools" in case for case in CASES) > 100
    failed = {name: list(map(str, differences(case, lines_of(case)))) for name, case in every_case().items()}
    assert {name: found for name, found in failed.items() if found} == {}


FULL = next(
    case
    for case in CASES
    if "tools" in case
    and any("accepted" in judged for judged in case["validate"])
    and any("rejected" in judged for judged in case["validate"])
    and any(step["call"]["name"] == "context_grep_delete" for step in case["tools"]["steps"])
    and case["tools"]["finalTargets"]
)
ACCEPTED = next(number for number, judged in enumerate(FULL["validate"]) if "accepted" in judged)
REJECTED = next(number for number, judged in enumerate(FULL["validate"]) if "rejected" in judged)
JUDGED = ["validate", ACCEPTED]


def falsify(case: Case, place: list[Any], value: Any) -> Case:
    """The case with another value at one place; a list is given another length by the value `...`."""
    falsified = copy.deepcopy(case)
    holder = falsified
    for key in place[:-1]:
        holder = holder[key]
    if value is ...:
        holder[place[-1]] = holder[place[-1]][:-1]
    else:
        holder[place[-1]] = value
    return falsified


@pytest.mark.parametrize(
    ("place", "value", "section", "path"),
    [
        (["context", "kept"], ..., "context", "$.kept.length"),
        (["context", "kept", 1, "entryId"], "ffffffff", "context", "$.kept[1].entryId"),
        (["context", "thinkingLevel"], "xhigh", "context", "$.thinkingLevel"),
        (["context", "usage", "tokens"], -1, "context", "$.usage.tokens"),
        (["context", "pathIds"], ..., "context", "$.pathIds.length"),
        (["prepare", "tokensBefore"], 3, "prepare", "$.tokensBefore"),
        (["prepare", "entries", 2, "textSha"], "0" * 16, "prepare", "$.entries[2].textSha"),
        (["prepare", "entries", 0, "protected"], 1, "prepare", "$.entries[0].protected"),
        (["prepare", "entries", 0, "surprise"], 1, "prepare", "$.entries[0].surprise"),
        (["prepare"], None, "prepare", "$"),
        (["validate", REJECTED, "rejected"], "no_such_code", f"validate[{REJECTED}]", "$.rejected"),
        ([*JUDGED, "accepted", "stats", "tokensAfter"], -1, f"validate[{ACCEPTED}]", "$.accepted.stats.tokensAfter"),
        (JUDGED, {**FULL["validate"][ACCEPTED], "rejected": "protected"}, f"validate[{ACCEPTED}]", "$.rejected"),
        (["tools", "callCount"], 0, "tools", "$.callCount"),
        (["tools", "finalTargets"], ..., "tools", "$.finalTargets.length"),
        (["tools", "steps", 1, "details", "callCount"], 9, "tools", "$.steps[1].callCount"),
    ],
)
def test_a_falsified_vector_is_reported_with_its_section_and_path(place, value, section, path):
    falsified = falsify(FULL, place, value)
    found = list(differences(falsified, case_lines(falsified)))
    assert [(one.section, one.path) for one in found] == [(section, path)]
    assert str(found[0]).startswith(f"{section} {path}: expected ")


def test_a_changed_session_and_the_first_difference_of_each_section_are_reported():
    falsified = falsify(FULL, ["context", "usage", "tokens"], -1)
    falsified = falsify(falsified, ["context", "thinkingLevel"], "xhigh")
    falsified = falsify(falsified, ["prepare", "tokensBefore"], 3)
    falsified = falsify(falsified, ["validate", REJECTED, "rejected"], "protected?")
    found = list(differences(falsified, case_lines(falsified)))
    assert [one.section for one in found] == ["context", "prepare", f"validate[{REJECTED}]"]
    changed = json.loads(json.dumps(FULL))
    messages = [one for one in changed["entries"] if one.get("message", {}).get("role") == "user"]
    messages[0]["message"]["content"] = "something else altogether, and rather longer than it was before"
    assert "prepare" in {one.section for one in differences(changed, case_lines(changed))}
