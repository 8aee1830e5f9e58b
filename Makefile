# Everything is installed into .venv; nothing outside the checkout changes.

PYTHON ?= python3
BIN := .venv/bin
# Only files whose hash is in the requirements are installed.
INSTALL := install --quiet --disable-pip-version-check --require-hashes

.DEFAULT_GOAL := help
.PHONY: help run test torture bench bench-quick screenshots lint audit format clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/run  ## Serve the catalog, with the demo catalog in it if it is new
	@test -s "$${CATALOG_DATABASE:-catalog.db}" || $(BIN)/flask init --demo
	@exec $(BIN)/python app.py

# In memory where there is such a place: most of the tests' time is waiting for the disc.
test: .venv/dev .venv/browser  ## Run the tests
	@TMPDIR=$$(test -w /dev/shm && echo /dev/shm || echo "$${TMPDIR:-/tmp}") $(BIN)/pytest -q -n auto

# One after another, and on a real disc: a promise kept in memory alone is none.
torture: .venv/dev  ## Break it in every way that is promised to be withstood; under five minutes
	@$(BIN)/pytest -q -n0 tests/torture

bench: .venv/run bench/.venv/peers bench/node_modules/peers  ## Measure beside the limit and the peers; under ten minutes
	@exec $(BIN)/python -m bench

bench-quick: .venv/run  ## Measure a few rows at 1,000 widgets; under a minute
	@exec $(BIN)/python -m bench --quick

screenshots: .venv/dev .venv/browser  ## Take the pictures of the README anew
	@exec $(BIN)/python docs/screenshots.py

lint: .venv/dev  ## Check style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Strict: a package that could not be looked up is a failure, not a package without advisories.
audit: .venv/audit  ## Ask PyPI whether a known weakness is in what the service runs on
	$(BIN)/pip-audit --requirement requirements.txt --require-hashes --disable-pip --strict

format: .venv/dev  ## Put the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove what the other targets made, but no database
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf bench/.venv bench/node_modules bench/.work

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON to one.")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

# An empty file says which requirements are installed, and when: pip runs only if they change.
.venv/run: requirements.txt | .venv/bin/python
	$(BIN)/pip $(INSTALL) -r requirements.txt
	@touch $@

.venv/dev: requirements.txt requirements-dev.txt | .venv/bin/python
	$(BIN)/pip $(INSTALL) -r requirements-dev.txt
	@touch .venv/run $@

.venv/audit: requirements-audit.txt | .venv/dev
	$(BIN)/pip $(INSTALL) -r requirements-audit.txt
	@touch $@

# Playwright drives the Chromium that is here; it brings none of its own.
.venv/browser: requirements-browser.txt | .venv/dev
	@if command -v chromium > /dev/null; \
	then $(BIN)/pip $(INSTALL) -r requirements-browser.txt && touch $@; \
	else echo "chromium is not installed here: the tests in a browser will be skipped."; fi

# What the benchmark compares with lives apart from what the service runs on.
bench/.venv/peers: bench/requirements.txt
	$(PYTHON) -m venv bench/.venv
	bench/.venv/bin/pip $(INSTALL) -r bench/requirements.txt
	@touch $@

bench/node_modules/peers: bench/package-lock.json
	@if command -v npm > /dev/null; \
	then cd bench && npm ci --silent --no-audit --no-fund && touch node_modules/peers; \
	else echo "npm is not installed here: json-server will be skipped."; fi
