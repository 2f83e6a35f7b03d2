# Two commands from nothing: `make demo` runs the main job, `make test` passes the tests. Both make .venv first.
PYTHON ?= python3
# Another environment beside it, of another Python: make test-core PYTHON=python3.13 VENV=.venv3.13
VENV ?= .venv
BIN := $(VENV)/bin
# Tests side by side, a file on one worker, the long files first: many wait, for ranks and for Slurm, rather than compute.
WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25

.PHONY: demo test test-core test-rest check clean

demo: $(VENV)/installed  ## four methods over the shipped prompts, 4 ranks on the CPU, a table and the pictures
	$(BIN)/otil-exp -m experiment=demo preset=reference,distrifusion,otil,balanced

test: $(VENV)/installed  ## all tests
	$(PYTEST)

test-core: WORKERS := 2
test-core: $(VENV)/installed  ## the part that starts no process: minutes
	$(PYTEST) --core

test-rest: $(VENV)/installed  ## all but that part
	$(PYTEST) --rest

check: $(VENV)/installed  ## what a commit must pass besides the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet --no-deps -r requirements.lock -e .
	touch $@

clean:  ## the environment; run folders stay
	rm -rf $(VENV)
