"""What is installed is what was locked: every range ends, and every pin has hashes and no address."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.paths import PROJECT

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
BUILT_BY = PYPROJECT["build-system"]["requires"]
NEEDED = PYPROJECT["project"]["dependencies"]
DEV = PYPROJECT["project"]["optional-dependencies"]["dev"]
LOCKS = {"requirements.lock": [*BUILT_BY, *NEEDED], "requirements-dev.lock": [*BUILT_BY, *NEEDED, *DEV]}


def pins(name: str) -> dict[str, tuple[str, int]]:
    """The version of each package of a lock file, with how many hashes it has."""
    found: dict[str, tuple[str, int]] = {}
    for block in re.split(r"\n(?=\S)", (PROJECT / name).read_text(encoding="utf-8")):
        if not block.startswith("#"):
            package, version = re.match(r"([\w.-]+)==([\w.+!]+)(?: ;[^\\]*)? \\", block).groups()
            found[canonicalize_name(package)] = version, len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", block))
    return found


def test_every_range_has_an_upper_bound():
    ranges = [
        PYPROJECT["project"]["requires-python"],
        *(str(Requirement(one).specifier) for one in LOCKS["requirements-dev.lock"]),
    ]
    assert [one for one in ranges if not any(each.operator == "<" for each in SpecifierSet(one))] == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_has_all_that_is_needed_with_hashes_and_names_no_index(name):
    locked, content = pins(name), (PROJECT / name).read_text(encoding="utf-8")
    for needed in map(Requirement, LOCKS[name]):
        assert needed.specifier.contains(locked[canonicalize_name(needed.name)][0]), f"{needed}: `make lock`"
    assert [package for package, (_, hashes) in locked.items() if not hashes] == []
    assert re.findall(r"://|^-|^ +-(?!-hash)|file:|@", content, flags=re.MULTILINE) == []


def test_developers_have_what_users_have():
    assert pins("requirements.lock").items() <= pins("requirements-dev.lock").items()
