# What contributors and CI run. `make` alone lists the targets.

PYTHON ?= python3
# How many tests run at once; 0 is one after the other, in one process. Many wait for disks and
# servers, so there are more than a small machine has cores.
JOBS ?= 4
# How many faults of each room `make mutants` seeds, the same in every run; 0 is all.
SAMPLE ?= 10
MUTANT_JOBS ?= 2

# Modules are compiled once, not by each of the thousands of processes that the tests start.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
STAMP := .venv/.installed
# What the demo and the server need, and no more: a newcomer does not wait for the tests' servers.
LIGHT := .venv/.light
SERVED := .venv/.served
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOAK_SUITES := $(wildcard \
    tests/recall/test_arms.py \
    tests/store/test_bad_input.py \
    tests/store/test_codec.py \
    tests/store/test_copy.py \
    tests/crash/test_crash.py \
    tests/crash/test_damage.py \
    tests/crash/test_dispatch_crash.py \
    tests/crash/test_dispatch_stress.py \
    tests/crash/test_interrupts.py \
    tests/engines/test_manager*.py \
    tests/crash/test_model.py \
    tests/recall/test_pgvector.py \
    tests/engines/test_postgres.py \
    tests/crash/test_power.py \
    tests/crash/test_races.py \
    tests/engines/test_redis*.py \
    tests/context/test_registry.py \
    tests/memory/test_imports.py \
    tests/runs/test_runs.py \
    tests/engines/test_sqlite_file.py \
    )

.DEFAULT_GOAL := help
.PHONY: help setup quick test check demo serve bench soak kills mutants format clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv and install what is needed, when it is out of date

# The stamp is older than a changed requirement, so nothing is installed twice.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[dev]'
	.ci/fetch-qdrant
	.ci/fetch-conformance
	.ci/fetch-redis
	@touch $(LIGHT) $(SERVED) $@

$(LIGHT): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	@touch $@

$(SERVED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[server,mcp,client]'
	@touch $(LIGHT) $@

quick: setup  ## format check, lint, strict types and the fast tests, in about a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2 --dist loadgroup -m fast

test: setup  ## format check, lint, strict types, all tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n $(JOBS) --dist loadgroup

check: test  ## the same as test

demo: $(LIGHT)  ## eight processes write, one is killed, nothing is lost
	$(BIN)/python examples/crash_demo.py

serve: $(SERVED)  ## the server on 127.0.0.1:8000, with a file in this folder
	$(BIN)/pagefile serve

bench: setup  ## what the store, the context, runs and memory cost, next to peers
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/context.py
	$(BIN)/python benchmarks/follow.py
	$(BIN)/python benchmarks/artifacts.py
	$(BIN)/python benchmarks/working_set.py
	$(BIN)/python benchmarks/runs.py
	$(BIN)/python benchmarks/packs.py
	$(BIN)/python benchmarks/large_bodies.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/extraction.py
	$(BIN)/python benchmarks/assembly.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/arms.py
	$(BIN)/python benchmarks/moving.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/dispatch.py

soak: setup  ## the long forms of the crash, power, damage, fuzz, model, race and copy suites
	PAGEFILE_SOAK=1 $(BIN)/pytest -n $(JOBS) --dist loadgroup $(SOAK_SUITES)

mutants: setup  ## seed faults, one at a time, and say which the tests do not notice
	$(BIN)/python tools/mutants.py --sample $(SAMPLE) --jobs $(MUTANT_JOBS)

kills: setup  ## kill -9 of 10,000 writers on SQLite, 1,000 on PostgreSQL and on Valkey, and of the servers
	$(BIN)/python tests/crash/kills.py --engine sqlite --kills 10000
	$(BIN)/python tests/crash/kills.py --engine postgres --kills 1000 --server-kills 40
	$(BIN)/python tests/crash/kills.py --engine redis --kills 1000 --server-kills 40

format: setup  ## format the code and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv, caches and build products
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} +
