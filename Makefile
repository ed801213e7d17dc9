# The only entry point: people and CI call the same targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS ?=
# Where it is set, every process would compile every package that it imports, which takes longer than most of our work.
unexport PYTHONDONTWRITEBYTECODE
# Three processes on two cores, since tests also wait; a file's tests stay together, and tests/conftest.py puts the long files first.
PARALLEL ?= -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test test-all unit contract e2e browser gpu check format serve hub size clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.ready ## build .venv with liger-bot in it

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 13) else f"liger-bot needs Python 3.11 or 3.12, this is {v[0]}.{v[1]}: run make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned packages (about a minute; torch is the large one)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-compile $(PIP_FLAGS) -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@# the sandbox mounts the packages read-only, so what isn't compiled now would be compiled again in every job
	@$(BIN)/python -m compileall -q -j 2 $(addprefix $(VENV)/lib/python3*/site-packages/,torch triton sympy networkx mpmath numpy) || true # some ship files for other Pythons
	@$(BIN)/python -m compileall -q -j 2 -r 1 $(VENV)/lib/python3*/site-packages/transformers || true # not its hundreds of models
	@$(BIN)/python -m compileall -q app agents runners kernels tests
	@$(BIN)/python -c 'import app.main, app.cli, pytest' # compiles what the service imports
	@touch $@
	@echo "$(BIN)/liger-bot is ready"

demo: setup ## comment to verified draft pull request, on this machine (YES=1 approves by itself, KEEP=1 leaves the servers up)
	@$(BIN)/liger-bot demo $(if $(YES),--yes) $(if $(KEEP),--keep) $(DEMO_FLAGS)

test: setup ## unit, contract, end-to-end and browser tests
	$(BIN)/python -m pytest $(PARALLEL) --durations=15 $(PYTEST_FLAGS)

test-all: setup ## the same, and those that take minutes each (faults at random moments, a whole request searched for secrets)
	LIGER_BOT_TEST_ALL=1 $(BIN)/python -m pytest $(PARALLEL) --durations=15 $(PYTEST_FLAGS)

unit: setup
	$(BIN)/python -m pytest tests/unit $(PYTEST_FLAGS)

contract: setup
	$(BIN)/python -m pytest tests/contract $(PYTEST_FLAGS)

e2e: setup
	$(BIN)/python -m pytest tests/e2e $(PYTEST_FLAGS)

browser: setup
	$(BIN)/python -m pytest tests/browser $(PYTEST_FLAGS)

gpu: setup ## tests that need a GPU
	$(BIN)/python -m pytest tests/gpu $(PYTEST_FLAGS)

check: setup ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

format: setup ## write the formatting that check wants
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

serve: setup ## the service, from LIGER_BOT_* settings
	$(BIN)/liger-bot serve

hub: setup ## the local GitHub alone
	$(BIN)/liger-bot hub

size: ## lines of code by folder
	@for d in app agents runners kernels tests benchmarks; do printf '%-12s' $$d; find $$d -name '*.py' | xargs cat | wc -l; done

clean: ## remove caches and the demo's data; keeps .venv
	rm -rf .liger-bot .pytest_cache .ruff_cache build dist
