# `make reproduce` and `make test` set everything up on a fresh machine; no root needed.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup lock lint test slow check fuzz reproduce format docs benchmark clean

setup: $(STAMP)

# Every package by the hash of its file, then torch under its pin, which comes from what is found:
# tools/install.py. `make lock` writes versions and hashes anew; BY=--by-version compares no hashes.
$(STAMP): pyproject.toml constraints.lock hashes.txt tools/install.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/install.py $(BY)
	touch $(STAMP)

# After a change of pyproject.toml or constraints.txt: what they ask for, and then all that came.
lock:
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,dev,docs]"
	$(BIN)/python tools/lock.py --hashes

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	tools/pages

test: lint
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

# What takes minutes: whole problems from random starts beside their formulas, long attacks on bounds,
# many kills, two machines. `make test` has the same in small, machines as nodes of one cluster.
slow: $(STAMP)
	$(BIN)/python -m pytest -m slow --numprocesses $(WORKERS)

# The same, but only the tests of what changed, as far as 45 seconds go.
check: lint
	$(BIN)/python -m tests.changed --numprocesses $(WORKERS)

# Damaged and hostile files, for as long as you like; it goes on where it was stopped.
COUNT ?= 10000
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --count $(COUNT) --workers $(WORKERS)

reproduce: $(STAMP)
	$(BIN)/nclab reproduce --preset quick

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	tools/pages --write

# Every page that is generated, and the site; `make docs RUNS=folder` writes the results of
# experiments, too, `make docs NOTEBOOKS=1` the outputs of the tutorials.
docs: $(STAMP)
	$(BIN)/python docs/build_formulas.py
	$(BIN)/python docs/build_errata.py
	$(if $(RUNS),$(BIN)/python docs/build_experiments.py $(RUNS))
	$(if $(NOTEBOOKS),$(BIN)/python docs/build_notebooks.py)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo site/index.html

benchmark: $(STAMP)
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/certificate.py
	$(BIN)/python benchmarks/ulpm.py
	$(BIN)/python benchmarks/fleet.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/records.py
	$(BIN)/python benchmarks/ranks.py

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache tools/node_modules
