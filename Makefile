# Every target sets up what it needs in .venv; the machine needs Python 3.11 and make, nothing else.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup demo test check simulate bench soak crashes format requirements clean

help: ## what there is
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1	/'

setup: $(READY) ## make .venv, with .venv/bin/dexaflow in it

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; name it: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "this Python cannot make a venv; on Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## real tasks placed, held, refused and released by a real HTTPS endpoint; KEEP=1 leaves it running
	@exec $(BIN)/python -m examples.demo $(if $(KEEP),--keep)

test: $(READY) ## every promise, against real parts
	@$(BIN)/python -m pytest $(ARGS)

check: $(READY) ## format, lint, types, layers
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo pyproject.toml

simulate: $(READY) ## crashes, broken hooks and people at once, from seeds; SEEDS=10000, SEED=n for one of them
	@$(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000))

bench: $(READY) ## what it costs, as ratios taken in one run; CHECK=1 fails where one falls short, ONLY=gate,stalls
	@$(BIN)/python -m bench $(if $(CHECK),--check) $(ONLY)

soak: $(READY) ## hostile input to all that reads text from outside, long races and loads; MINUTES=n of each, 60 by default
	@$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

crashes: $(READY) ## kill -9, SIGSTOP and SIGTERM at every step of the line; `make test` draws some of them
	@EVERY_STEP=1 $(BIN)/python -m pytest tests/system/test_every_step.py $(ARGS)

format: $(READY) ## write the code as `make check` wants it
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

requirements: ## lock the versions anew, with hashes
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --no-emit-index-url --python-version 3.11 --custom-compile-command 'make requirements' pyproject.toml -o requirements/run.txt
	@$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --no-emit-index-url --python-version 3.11 --custom-compile-command 'make requirements' --extra dev pyproject.toml -o requirements/dev.txt

clean: ## remove what was made
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo .soak
