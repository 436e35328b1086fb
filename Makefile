PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup run test lint bench soak clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## make the virtual environment and install Redline into it

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Redline needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

run: $(VENV)/.installed ## serve the pages on this machine
	$(BIN)/redline serve

test: lint ## check the code and run all tests
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed ## measure the figures that Redline promises
	$(BIN)/redline bench

soak: $(VENV)/.installed-dev ## kill commits and restores 300 times each
	REDLINE_KILL_ROUNDS=300 $(BIN)/python -m pytest tests/test_kill.py tests/test_kill_commands.py

clean: ## remove what was built and cached
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
