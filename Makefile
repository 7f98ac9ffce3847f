# Holdfast: everything a developer runs. Needs Python 3.11 or later and make, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help run test check services chaos mutants format docs docs-site snapshots bench bench-quick test-pythons clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

CHECK_PYTHON = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Holdfast needs Python 3.11 or later; name one with: make PYTHON=python3.12 …" >&2; exit 1; }

$(READY): requirements/dev.txt pyproject.toml
	$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# An environment with the packages of one file; those that make run needs are installed in seconds.
.venv-%/.ready: requirements/%.txt
	$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r $<
	@touch $@

run: .venv-run/.ready ## see Holdfast at work on a SQLite file
	@PYTHONPATH=src .venv-run/bin/python examples/first_steps/demo.py

test: $(READY) ## run all tests, with a real PostgreSQL from the development environment
	$(BIN)/python -m pytest -n 5

services: ## install what the tests can use of the system's packages (Debian, as root)
	@missing=""; \
	for pair in pgbouncer:pgbouncer chromium:chromium promtool:prometheus systemd-analyze:systemd nginx:nginx-light caddy:caddy; do \
		command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	[ -z "$$missing" ] || { apt-get update -q && RUNLEVEL=1 apt-get install -q -y --no-install-recommends $$missing; }

chaos: $(READY) ## strike real workers in every way (HOLDFAST_CHAOS="kills pauses", HOLDFAST_CHAOS_SECONDS, HOLDFAST_SEED)
	HOLDFAST_PATIENCE=$${HOLDFAST_PATIENCE:-600} $(BIN)/python -m tests.chaos $(ARGS)

mutants: $(READY) ## put deliberate bugs into copies of the tree: the harness must name what each breaks
	$(BIN)/python -m tests.chaos.mutants

check: $(READY) ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## write the generated pages of docs/reference anew
	$(BIN)/python docs/reference/generate.py

docs-site: .venv-docs/.ready ## build the documentation site in build/site
	.venv-docs/bin/sphinx-build -q -E -W --keep-going -c docs -d build/site-cache . build/site
	@echo "open build/site/index.html"

snapshots: $(READY) ## write the snapshots of commands, answers and pages anew
	HOLDFAST_SNAPSHOTS=write $(BIN)/python -m pytest tests/snapshots

bench-quick: $(READY) ## compare with other systems in three minutes: a first impression
	$(BIN)/python -m bench.comparison --quick

bench: $(READY) ## compare with other systems, measure all parts, and write docs/performance.md
	$(BIN)/python -m bench

test-pythons: ## run the tests on every Python from 3.11 to 3.13 that is found
	@for version in 3.11 3.12 3.13; do \
		found=$$(command -v python$$version || ls $(HOME)/.pyenv/versions/$$version.*/bin/python 2>/dev/null | tail -n 1); \
		if [ -z "$$found" ]; then echo "python$$version: not found, left out"; continue; fi; \
		echo "python$$version: $$found"; \
		$(MAKE) --no-print-directory test PYTHON=$$found VENV=.venv-$$version || exit 1; \
	done

clean: ## remove what make has made
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .hypothesis build dist
