# `make reproduce` and `make test` set everything up on a fresh machine; no root needed.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup lint test check reproduce format docs benchmark clean

setup: $(STAMP)

# torch goes first and alone, under its pin, so that no other package pulls a CUDA build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	tools/pages

test: lint
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

# The same, but only the tests of what changed, as far as 45 seconds go.
check: lint
	$(BIN)/python -m tests.changed --numprocesses $(WORKERS)

reproduce: $(STAMP)
	$(BIN)/nclab reproduce --preset quick

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	tools/pages --write

# Every page that is generated; `make docs RUNS=folder` writes the results of experiments, too.
docs: $(STAMP)
	$(BIN)/python docs/build_formulas.py
	$(BIN)/python docs/build_errata.py
	$(if $(RUNS),$(BIN)/python docs/build_experiments.py $(RUNS))

benchmark: $(STAMP)
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/certificate.py
	$(BIN)/python benchmarks/ulpm.py
	$(BIN)/python benchmarks/fleet.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/records.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache tools/node_modules
