"""The packages of the wheel. Everything else that setuptools needs is in pyproject.toml."""

from setuptools import find_packages, setup

PRODUCT = ("redline", "sessions_app", "compaction_app", "lab_app")

setup(
    packages=[
        *find_packages(include=[*PRODUCT, *(f"{name}.*" for name in PRODUCT)]),
        # At the top of the checkout, and inside the package in a wheel: see `package-dir` in pyproject.toml.
        "redline.static",
        "redline.templates",
    ]
)
