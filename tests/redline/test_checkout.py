"""What a wheel has: the packages of the product, and none of the developer tools, which a checkout has."""

import sys
import tomllib

import pytest

from redline import checkout
from redline.main import commands
from tests.files import place
from tests.paths import PROJECT


def test_a_wheel_has_every_package_of_the_product_and_no_other():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    found = {
        str(module.parent.relative_to(PROJECT)).replace("/", ".")
        for name in ("redline", "sessions_app", "compaction_app")
        for module in (PROJECT / name).rglob("__init__.py")
    }
    listed = set(project["tool"]["setuptools"]["packages"])
    assert listed == found | {"redline.static", "redline.templates"}


@pytest.mark.parametrize("foreign", [[], ["devtools/__init__.py"], ["devtools/management/__init__.py"]])
def test_only_the_developer_tools_of_this_checkout_are_loaded(tmp_path, monkeypatch, foreign):
    monkeypatch.setattr(sys, "path", ["elsewhere"])
    assert checkout._developer_tools() == ("devtools",)
    assert sys.path == [str(PROJECT), "elsewhere"], "an editable installation does not know them"
    for name in foreign:
        place(tmp_path / name, b"raise SystemExit\n")
    monkeypatch.setattr(checkout, "DIRECTORY", tmp_path)
    assert checkout._developer_tools() == ()
    assert sys.path == [str(PROJECT), "elsewhere"]


def test_the_developer_tools_are_commands_of_a_checkout():
    assert {name for name, app in commands().items() if app == "devtools"} == {"bench", "check_vectors"}
