# Everything runs in .venv, which the first target that needs it sets up.
#   make demo     a racy training script on the virtual GPU, its report, and the repaired script
#   make test     the whole test suite, on two processes
#   make lint     formatting, lint, types, layers, spelling
#   make exact    20,000 new programs for each property of tests/exact
#   make bench    what the virtual GPU and the checker cost on this machine
#   make clean    removes .venv and everything else that was generated
# Needs Python 3.10 or newer with venv, and access to a Python package registry.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
WORKERS ?= 2
PYTEST_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
NOW := date +%s

# Sets up, and says how long that took where there was something to do.
SETUP = begin=$$($(NOW)); $(MAKE) -s $(STAMP); \
	echo "set-up: $$(( $$($(NOW)) - begin )) s"

.PHONY: demo test lint exact bench clean
.DELETE_ON_ERROR:

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "$(PYTHON) is older than Python 3.10: name another one with PYTHON=..." >&2; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "installing $(TORCH)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check '$(TORCH)'
	@echo "installing StreamSan and its development tools"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo:
	@set -e; $(SETUP); PATH="$(abspath $(BIN)):$$PATH" sh tools/demo.sh

# One thread per process: two processes share two cores.
test:
	@set -e; $(SETUP); OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

exact: $(STAMP)
	$(BIN)/python tools/exact.py --processes $(WORKERS)

bench: $(STAMP)
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/virtual_gpu.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -exec rm -rf {} +
