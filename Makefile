# What there is to do: make help. Each target does its own set-up.

SHELL := bash
.DEFAULT_GOAL := help
BIN := .venv/bin
NAME ?= plan
SEEDS ?= 2000
FIRST ?= 0

# Newer than what it was made from as long as .venv is up to date.
INSTALLED := .venv/installed-from-lock

# PySpark starts the Java in JAVA_HOME, which may be another than the one that fits.
WITH_JAVA = java_home=$$(scripts/ensure-java.sh) && JAVA_HOME="$$java_home"

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

demo: install ## run the main job on data made for the purpose
	@$(WITH_JAVA) $(BIN)/headway demo

test: install ## run all tests but the long comparisons
	@scripts/test.sh

nightly: install ## run the long comparisons with Spark
	@$(WITH_JAVA) $(BIN)/pytest -m nightly

simulate: install ## run queries on simulated workers that fail: make simulate SEEDS=2000 FIRST=0
	@$(BIN)/python -m headway.testing.simulation --seeds $(SEEDS) --first $(FIRST)

lint: install ## format, lint, types and import contracts
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

check: lint ## lint, and the quick tests that need no Java
	@$(BIN)/pytest -n 2 -m "not spark and not slow"

format: install ## rewrite the code in the one format, with imports in order
	@$(BIN)/ruff check --quiet --fix --select I .
	@$(BIN)/ruff format .

docs: install ## rewrite the pages that are made: docs/configuration.md, docs/journey-of-a-query.md
	@$(BIN)/python -m headway.base.config > docs/configuration.md
	@$(WITH_JAVA) $(BIN)/python scripts/journey.py

bench: install ## run one benchmark: make bench NAME=plan
	@$(WITH_JAVA) $(BIN)/headway bench $(NAME) --json

install: $(INSTALLED) ## make .venv with the pinned dependencies

java: ## find Java 17 or 21, or install it from Debian; prints its home
	@scripts/ensure-java.sh

lock: ## renew requirements.lock from pyproject.toml
	@scripts/lock.sh

$(INSTALLED): pyproject.toml requirements.lock scripts/install.sh
	@scripts/install.sh
	@touch $@

.PHONY: help demo test nightly simulate lint check format docs bench install java lock
