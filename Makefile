# The two commands: `make demo` does the main job, `make test` passes the tests.
# Both set everything up; all that is needed beforehand is Python >= 3.11, make and git.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Some tests wait for servers and child processes: one worker more than there are cores keeps the cores busy.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
# A strict build: a broken link, a missing anchor or a page outside the nav is an error.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help demo test slow check format docs golden bench soak peers growth real-judges node-client clients fuzz container integrations tools wheel clean

help:            ## List the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(VENV)/.local     ## Set up, fetch a small model and do the main job with it
	@sh scripts/install_bubblewrap.sh
	$(BIN)/caps demo

test: $(VENV)/.dev       ## Set up and run the tests
	@sh scripts/install_bubblewrap.sh
	$(PYTEST)

slow: $(VENV)/.dev       ## The slow tests: documents, browsers, real models, kills, limits; new random examples
	@sh scripts/install_bubblewrap.sh
	@sh scripts/install_chromium.sh
	$(PYTEST) -m '(slow or hypothesis) and not long' --hypothesis-profile new

check: $(VENV)/.dev      ## Lint, types, who may import whom, spelling, and every link of the documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(MKDOCS) build

format: $(VENV)/.dev     ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev       ## Write the command reference from the program, and the documentation site to site/
	$(BIN)/python scripts/api_keywords.py
	$(BIN)/python scripts/cli_reference.py
	$(BIN)/python scripts/odd_files.py
	$(MKDOCS) build

golden: $(VENV)/.dev     ## Record golden transcripts and outputs anew (say why in the commit)
	PYTHONPATH=tests $(BIN)/python tests/golden/record.py
	PYTHONPATH=tests $(BIN)/python tests/recorded/record.py

bench: $(VENV)/.dev      ## Ratios measured on this machine
	$(BIN)/python benchmarks/contest.py
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/api.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/servers.py
	$(BIN)/python benchmarks/connections.py

MINUTES ?= 30
soak: $(VENV)/.dev       ## Load, faults, kills and restarts for MINUTES=30; then everything is checked
	$(BIN)/python benchmarks/soak --minutes $(MINUTES)

peers: $(VENV)/.dev      ## The whole job beside other tools (network, some minutes)
	$(BIN)/python benchmarks/peers.py --markdown

growth: $(VENV)/.dev     ## How the job grows with candidates, problems, connections
	$(BIN)/python benchmarks/growth.py --full

real-judges: $(VENV)/.dev  ## Every strategy on recorded verdicts in DATA=folder
	$(BIN)/python benchmarks/real_judges.py --data $(DATA)

node-client: $(VENV)/.dev  ## The npm client of OpenAI in front of caps serve (node, npm, network)
	$(BIN)/python scripts/node_client.py

clients: $(VENV)/.dev    ## The clients people use in front of caps serve (network, some minutes); writes its table
	$(BIN)/python scripts/clients.py --into docs/research/clients.md

fuzz: $(VENV)/.dev       ## Malformed requests of every API to a running caps serve, for some minutes (network)
	PYTHONPATH=tests $(BIN)/python scripts/fuzz_server.py

integrations: $(VENV)/.dev  ## Every integration with the real tool, each in an environment of its own (network)
	PYTHONPATH=benchmarks $(BIN)/python scripts/check_integrations.py

container: $(VENV)/.dev  ## Build the container with podman and run it read-only, not as root (podman, network)
	$(BIN)/python scripts/check_container.py

tools: wheel node-client clients integrations container fuzz soak  ## Before a release (network, some hours): everything that needs other tools or much time
	$(PYTEST) -m long

wheel: $(VENV)/.dev      ## Build wheel and sdist, and install them with each extra and on each Python into empty environments
	$(BIN)/python scripts/check_wheel.py

clean:                   ## Remove what the targets above made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .schemathesis site

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/bin/python pyproject.toml
	@echo "Setting up $(VENV) ..."
	$(PIP) install --editable .
	@touch $@

$(VENV)/.local: $(VENV)/.base
	@echo "Installing what runs a model in the process ..."
	$(PIP) install --editable '.[local]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base plugins/caps-agents/pyproject.toml
	@echo "Installing what the tests and checks need ..."
	$(PIP) install --editable '.[dev]' --editable plugins/caps-agents
	@touch $@
