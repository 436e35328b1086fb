PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INTEROP := .venv-interop
# Named before the tests start: they have a home of their own, in which no client is installed.
CLIENTS := $(or $(REDLINE_CLIENTS),$(HOME)/.cache/redline/interop-clients)
STYLES := $(wildcard static/redline/*.css static/redline/css/*.css)
CSS_BEAUTIFY := $(BIN)/css-beautify --indent-size 2 --end-with-newline --space-around-combinator
# Each worker has its own server and browser, and waits for them at times: 4 workers fill 2 cores.
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# On a terminal pip shows what it does.
PIP_INSTALL := $(BIN)/python -m pip install $$(test -t 2 || echo --quiet) --disable-pip-version-check
# For every system, and for every Python from the oldest on. The command itself, which may name an index, is not recorded.
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock'
BUILD_REQUIREMENTS := $(BIN)/python -c \
	'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
# Tests without a server, a database or a browser.
PURE_TESTS := tests/compaction_app/core tests/sessions_app/sessionlog tests/sessions_app/agents tests/lab_app/pure

# With bytecode on disk a process starts in half the time, and the tests start many.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lock run check test test-times test-all test-long stress test-deps lint format interop \
	interop-core interop-clients bench shots soak clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## create the virtual environment and install Redline

# Nothing is installed but what the lock file names, and with the content that it names. The project comes last, built by
# the tools that the lock file has, too.
$(VENV)/.installed: pyproject.toml setup.py requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Redline needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing Redline's dependencies into $(VENV): this takes about a minute."
	$(PIP_INSTALL) --require-hashes --requirement requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	@echo "Installing what the checks and tests need into $(VENV): this takes about a minute."
	$(PIP_INSTALL) --require-hashes --requirement requirements-dev.lock
	touch $@

lock: $(VENV)/.installed-dev ## lock the newest versions that pyproject.toml allows, for users and for developers
	$(BUILD_REQUIREMENTS) | $(COMPILE) pyproject.toml - --output-file requirements.lock
	$(BUILD_REQUIREMENTS) | $(COMPILE) pyproject.toml - --extra dev --constraint requirements.lock \
		--output-file requirements-dev.lock

run: $(VENV)/.installed ## start the server; PORT=N selects the port
	$(BIN)/redline serve $(if $(PORT),--port $(PORT))

check: lint ## check the code and run the tests of the pure core: at most a minute
	$(PYTEST) $(PURE_TESTS)

test: test-deps lint ## check the code and run the tests, including those in a browser: eight minutes on two cores
	$(PYTEST) --durations 20

test-times: test-deps $(VENV)/.installed-dev ## the tests, with what each file costs: processor time, waiting, what it starts
	$(PYTEST) -p tests.times

test-all: test-long ## everything there is: more examples, all views of all pages, all agents; in parts of an hour at most
	$(MAKE) interop
	$(MAKE) interop-clients
	$(MAKE) soak
	$(MAKE) stress

test-long: test-deps lint ## the tests that take longer, fifteen times as many examples, and each page in every view
	REDLINE_TEST_EXAMPLES=15 REDLINE_EVERY_VIEW=1 $(PYTEST) -m 'long or not long' --durations 20

stress: test-deps $(VENV)/.installed-dev ## run the tests in a browser, and those of processes, while four others keep both cores busy
	$(BIN)/python -m tests.stress -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-deps: ## install the browser for tests, if it is missing and this user may install it
	@if command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null || [ -n "$$REDLINE_CHROMIUM" ]; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium-headless-shell >/dev/null; \
	else echo "The browser tests need Chromium: install it, or set REDLINE_CHROMIUM to it." >&2; fi

lint: $(VENV)/.installed-dev ## check style, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/djlint --lint --quiet templates
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.lint
	@for file in $(STYLES); do $(CSS_BEAUTIFY) $$file | diff --unified $$file - || exit 1; done

format: $(VENV)/.installed-dev ## format code and styles
	$(BIN)/ruff format .
	$(CSS_BEAUTIFY) --replace $(STYLES)

# Parallel tests wait for agents half of the time. A worker takes tests that lie together: they share their servers.
IN_PAIRS := $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --durations 20
INTEROP_INSTALL = $(MAKE) --no-print-directory --jobs

interop: $(VENV)/.installed-dev ## compare with the real pi and Atomic, and run plans through LiteLLM's proxy
	@$(INTEROP_INSTALL) $(INTEROP)/.installed $(INTEROP)/pi/.newest $(INTEROP)/atomic/.installed
	$(IN_PAIRS) tests/interop

interop-core: $(VENV)/.installed-dev ## the same once for each writer and each generation, in four minutes
	@$(INTEROP_INSTALL) $(INTEROP)/.installed $(INTEROP)/pi/.pinned $(INTEROP)/atomic/.installed
	$(IN_PAIRS) tests/interop -m core

$(INTEROP)/.installed: tests/interop/requirements.txt
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install $$(test -t 2 || echo --quiet) --disable-pip-version-check --no-compile --requirement $<
	touch $@

$(INTEROP)/pi/.pinned: tests/interop/install_pi.py | $(VENV)/.installed
	$(BIN)/python -m tests.interop.install_pi $(INTEROP)/pi pinned
	touch $@

$(INTEROP)/pi/.newest: tests/interop/install_pi.py $(INTEROP)/pi/.pinned
	$(BIN)/python -m tests.interop.install_pi $(INTEROP)/pi newest
	touch $@

$(INTEROP)/atomic/.installed: tests/interop/install_atomic.py | $(VENV)/.installed
	$(BIN)/python -m tests.interop.install_atomic $(INTEROP)/atomic
	touch $@

interop-clients: $(VENV)/.installed-dev ## install Claude Code, Codex and OpenCode, and compare with what they send
	@if command -v tmux >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends tmux >/dev/null; \
	else echo "The tests in terminals need tmux: install it." >&2; fi
	@$(INTEROP_INSTALL) $(INTEROP)/pi/.pinned $(INTEROP)/atomic/.installed
	REDLINE_CLIENTS='$(CLIENTS)' $(BIN)/python -m tests.interop_clients.install_clients
	REDLINE_CLIENTS='$(CLIENTS)' $(IN_PAIRS) tests/interop_clients

shots: $(VENV)/.installed-dev ## store screenshots of every page, narrow and wide, light and dark, in ./shots
	REDLINE_SHOTS=shots $(BIN)/python -m pytest tests/browser/test_shots.py

bench: test-deps $(VENV)/.installed-dev ## measure the performance figures; NAMES="plans search" chooses
	$(BIN)/python -m devtools.bench $(NAMES)

soak: $(VENV)/.installed-dev ## kill commits by each writer, undos, restores, moves and summaries, 300 times each
	REDLINE_KILL_ROUNDS=300 $(IN_PAIRS) tests/compaction_app/commit/test_kill_commands.py tests/compaction_app/undo/test_kill.py tests/compaction_app/navigation/test_kill.py

clean: ## remove build products and caches
	rm -rf $(VENV) $(INTEROP) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
