# Everything that is done with this repository, by verb. `make` alone lists them.
# Needs Python 3.11 or newer and make; all else comes from the package index into .venv, which nobody has to activate.

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
ENV ?= local
SPARK ?= 4.2.1
OTHER_SPARK := $(VENV)/spark-$(SPARK)
VERSION = $(shell $(BIN)/python -c 'from rowpost.version import __version__; print(__version__)')
KEPT = pycontrol/tests/data/releases/$(VERSION)
# what a test target runs, by the markers of pyproject.toml; each test is in one of those that test/all makes, or slow
LONG := spark or browser or dist or lint or bench or faults
PYTEST = $(BIN)/python -m pytest -n $(JOBS)
JOBS ?= auto
YES := $(if $(filter 1 yes true,$(YES)),--yes)
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)

# The tests start hundreds of programs, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run example/shop example/flow test test/all test/rest test/spark test/browser test/dist test/bench test/faults-sample check check/tests test/dotnet test/faults test/spark-slow test/spark-version coverage lint lint/python lint/sql lint/rules types types/windows format plan deploy verify bench test/tsqlt sqlserver/first-day dist release-files pictures clean

help: ## list the verbs
	@grep -hE '^[a-z/-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | \
		while IFS="$$(printf '\t')" read -r verb text; do printf '  make %-19s %s\n' "$$verb" "$$text"; done

run: $(VENV)/.installed ## see it work: the demo on a private PostgreSQL (ARGS="--orders 5000")
	$(BIN)/rowpost demo $(ARGS)

example/shop: $(VENV)/.installed ## three endpoints and a web form (ARGS="--port 8081", ARGS=--ci)
	$(BIN)/python -m examples.shop $(ARGS)

example/flow: $(VENV)/.developer ## the shop seen from Spark: archive, percentiles, a conversation, a replay (ARGS="--orders 100 --out flow")
	$(BIN)/python -m examples.flow $(ARGS)

test: $(VENV)/.developer ## every behaviour on every engine that can be reached, in ten minutes (ARGS="-k ramp", JOBS=0)
	$(PYTEST) -m 'not slow and (spark_promise or not ($(LONG)))' $(ARGS)

test/spark: $(VENV)/.developer ## all tests of Spark, on one session (ARGS="-k tail")
	$(PYTEST) -m 'spark and not slow' $(ARGS)

test/browser: $(VENV)/.developer ## the dashboard in Chromium
	$(PYTEST) -m 'browser and not slow' $(ARGS)

test/dist: $(VENV)/.developer ## wheel, sdist, a user's project, upgrades of kept releases, environments without an extra, the commands of the tutorial
	$(PYTEST) -m 'dist and not slow' $(ARGS)

test/bench: $(VENV)/.developer ## the programs of benchmarks/ run, and compare commits
	$(PYTEST) -m 'bench and not slow' $(ARGS)

test/faults-sample: $(VENV)/.developer ## minutes of what test/faults does in an hour
	$(PYTEST) -m 'faults and not slow' $(ARGS)

test/all: test test/rest ## make test, and every other target that ends by itself in minutes

# two at a time, each in one process
test/rest:
	@$(MAKE) --no-print-directory -j 2 --output-sync=target JOBS=0 lint test/spark test/dist test/faults-sample test/browser test/bench test/spark-version

check: $(VENV)/.developer ## between two edits, in 90 seconds: Python's linters, the tests without a database, the core of the procedures' tests
	@$(MAKE) --no-print-directory -j 2 lint/python types types/windows check/tests

check/tests:
	$(PYTEST) --core -m 'not slow and not ($(LONG))' $(ARGS)

lint/python: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --quiet --check . || { echo 'The Python is not in its form: run make format' >&2; exit 1; }

types: $(VENV)/.developer
	$(BIN)/mypy

# a cache of its own: each platform would throw away the other one's
types/windows: $(VENV)/.developer
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/windows

test/faults: $(VENV)/.developer ## an hour of kills, crashes, cut networks, failovers, errors and random input; a ledger at the end (ARGS="--only kills --share 0.1 --seed 7")
	PYTHONPATH=pycontrol $(BIN)/python -m tests.support.campaign $(ARGS)

# with the variable no scenario is skipped: a build that cannot start is a failure
test/dotnet: $(VENV)/.developer ## rowpost beside a real NServiceBus, both ways; needs the .NET SDK 10 (ARGS="-k saga")
	PYTHONPATH=pycontrol $(BIN)/python -m tests.support.interop.dotnet build/nservicebus $(DOTNET_BUILD)
	ROWPOST_TEST_NSERVICEBUS=$(CURDIR)/build/nservicebus/bin/nsb.dll $(BIN)/python -m pytest -n 0 pycontrol/tests/interop $(ARGS)

test/spark-slow: $(VENV)/.developer ## Spark for an hour: kill -9 at random, a cluster on this machine, Connect (ARGS="-k kill")
	$(BIN)/python -m pytest -m slow --timeout 3600 $(ARGS)

test/spark-version: $(OTHER_SPARK)/.installed ## the Spark tests that depend on its version, on Spark 4.2.1 or another in an environment of its own (SPARK=4.3.0, ARGS="-k tail")
	$(OTHER_SPARK)/bin/python -m pytest -n $(JOBS) -m 'spark_version and not slow' pycontrol/tests/spark $(ARGS)

coverage: $(VENV)/.developer ## which lines the tests execute, in all their processes (ARGS="pycontrol/tests/sagas"); nothing fails for it
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n auto $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --sort cover

lint: lint/python types types/windows lint/sql lint/rules ## Python and SQL by their linters, Microsoft's T-SQL compiler and the rules over its tree

lint/sql: $(VENV)/.developer
	$(BIN)/sqlfluff lint --disable-progress-bar sql deploy pycontrol/rowpost/cli/demo/sql

lint/rules: $(VENV)/.developer
	$(PYTEST) -m 'lint and not slow' $(ARGS)

format: $(VENV)/.developer ## bring the Python into its form
	$(BIN)/ruff format .

plan: $(VENV)/.installed ## one script of a deployment, for reading; on top, as comments, what it changes there (ENV=production)
	@$(BIN)/rowpost --env $(ENV) plan 2>&1 | sed 's/^/-- /'
	@$(BIN)/rowpost --env $(ENV) plan --sql

deploy: $(VENV)/.installed ## apply it (ENV=production YES=1)
	$(BIN)/rowpost --env $(ENV) apply $(YES)

verify: $(VENV)/.installed ## compare the database with the plan (ENV=production)
	$(BIN)/rowpost --env $(ENV) verify

bench: $(VENV)/.developer ## what is claimed about speed, peers beside it: 25 minutes (ARGS="--only latency", ARGS="--against COMMIT", ARGS=--quick)
	$(BIN)/python -m benchmarks $(ARGS)

test/tsqlt: $(VENV)/.developer ## the tSQLt classes on the server of ROWPOST_TEST_SQLSERVER, with a JUnit report (ARGS="--tsqlt tSQLt.zip --sha256 ...")
	$(BIN)/python deploy/tsqlt/run.py --junit tsqlt.xml $(ARGS)

sqlserver/first-day: $(VENV)/.developer ## check rowpost on the SQL Server of ROWPOST_FIRST_DAY_URL, with one report (ARGS=--quick, ARGS="--only readpast plans")
	PYTHONPATH=pycontrol $(BIN)/python -m deploy.first_day $(ARGS)

dist: $(VENV)/.developer ## build wheel and sdist into dist/; the same source makes the same bytes
	$(BIN)/python -m hatchling build -d dist

release-files: $(VENV)/.developer ## keep this version's wheel and release archive for the tests of upgrades
	$(BIN)/python -m hatchling build -t wheel -d $(KEPT)
	$(BIN)/rowpost --env local plan --release-archive $(KEPT)/rowpost-$(VERSION).zip

pictures: $(VENV)/.developer ## take the pictures of the dashboard's guide; needs Chromium
	PYTHONPATH=pycontrol $(BIN)/python -m tests.support.pictures

clean: ## take away what was built here; databases stay
	rm -rf $(VENV) build dist .ruff_cache *.egg-info tsqlt.xml .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "rowpost needs Python 3.11 or newer: install it, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@echo 'Installing what is needed into $(VENV) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# pip keeps the wheel that it builds of PySpark in its cache
$(OTHER_SPARK)/.installed: $(VENV)/.created pyproject.toml
	@echo 'Installing Spark $(SPARK) into $(OTHER_SPARK) ...'
	@$(BIN)/python -m venv $(OTHER_SPARK)
	@$(OTHER_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[spark]' 'pyspark==$(SPARK)' \
		'pytest>=8,<10' 'pytest-timeout>=2.3,<3' 'pytest-xdist>=3.6,<4'
	@touch $@

$(VENV)/.developer: $(VENV)/.installed
	@echo 'Installing what the tests need ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
