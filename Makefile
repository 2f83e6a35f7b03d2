# Two commands from nothing: `make demo` runs the main job, `make test` passes the tests. Both make .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Tests side by side, a file on one worker, the long files first: many wait, for ranks and for Slurm, rather than compute.
WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25

.PHONY: demo test test-core check clean

demo: .venv/installed  ## four methods over the shipped prompts, 4 ranks on the CPU, a table and the pictures
	$(BIN)/otil-exp -m experiment=demo preset=reference,distrifusion,otil,balanced

test: .venv/installed  ## all tests
	$(PYTEST)

test-core: WORKERS := 2
test-core: .venv/installed  ## the part that starts no process: minutes
	$(PYTEST) --core

check: .venv/installed  ## what a commit must pass besides the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check --quiet --no-deps -r requirements.lock -e .
	touch $@

clean:  ## the environment; run folders stay
	rm -rf .venv
