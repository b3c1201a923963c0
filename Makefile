# Everything happens in a virtual environment of the project's own; only Python 3.11+ and make are
# needed. PYTHON may name another interpreter: make test PYTHON=python3.12
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types check docs benchmark clean

demo: $(READY)  ## the paper's experiments on a real retailer's year, and a page to look at
	$(BIN)/trimtab demo

test: $(READY)  ## all tests
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks docs/*.py docs/_extensions
	$(BIN)/ruff format --check src tests benchmarks docs/*.py docs/_extensions

types: $(READY)
	$(BIN)/mypy

check: lint types test

docs: $(READY)  ## the documentation, as a site that opens from docs/_build/html/index.html
	$(BIN)/python -m sphinx -E -n -W --keep-going -q -d docs/_build/trees docs docs/_build/html

benchmark: $(READY)  ## the figures of docs/benchmarks.md, about 20 minutes
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/fit.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Trimtab needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
