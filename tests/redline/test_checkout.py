"""What a wheel has: the packages of the product, and none of the developer tools, which a checkout has."""

import runpy
import sys

import pytest
import setuptools

from redline import checkout
from redline.main import commands
from tests.files import place
from tests.paths import PROJECT


def test_a_wheel_has_every_package_of_the_product_and_no_other(monkeypatch):
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(setuptools, "setup", (built := {}).update)
    runpy.run_path("setup.py")
    modules = [*PROJECT.glob("redline/**/__init__.py"), *PROJECT.glob("*_app/**/__init__.py")]
    found = {str(module.parent.relative_to(PROJECT)).replace("/", ".") for module in modules}
    assert set(built["packages"]) == found | {"redline.static", "redline.templates"}


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


def test_the_developer_tool_is_a_command_of_a_checkout():
    assert {name for name, app in commands().items() if app == "devtools"} == {"check_vectors"}
