# `make reproduce` and `make test` set everything up on a fresh machine; no root needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup test reproduce format docs benchmark clean

setup: $(STAMP)

# torch goes first and alone, under its pin, so that no other package pulls a CUDA build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	touch $(STAMP)

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

reproduce: $(STAMP)
	$(BIN)/nclab reproduce --preset quick

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python docs/build_formulas.py
	$(BIN)/python docs/build_errata.py

benchmark: $(STAMP)
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/certificate.py
	$(BIN)/python benchmarks/ulpm.py
	$(BIN)/python benchmarks/fleet.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/records.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
