# What can be done in this clone? Bare `make` lists it. Every target does all of its own set-up:
# system packages, .venv, the cell, the images, an engine; see scripts/.

.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
ARGS ?=
TESTS ?=

# The recipes share one virtual environment and one engine: one after the other.
.NOTPARALLEL:
.PHONY: help install demo test lint types security soak test-podman bench images wheel clean environment

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## .venv/bin/hook-executor, with all extras, the cell, the images and an engine
	@sh scripts/system.sh all
	@sh scripts/environment.sh
	@$(PYTHON) scripts/build_cell.py
	@$(PYTHON) scripts/engine.py --start
	@$(PYTHON) scripts/build_images.py

demo: install ## the main job: example hooks, all events, every backend that works here
	@$(PYTHON) examples/demo.py $(ARGS)

# Sandboxes wait more than they work: three files of tests at a time, also on two processors, in
# the order of their names: the longest do not come last.
test: install ## all tests but the slow ones; ARGS="-k name" TESTS=tests/unit for less
	@sh scripts/system.sh test
	@$(PYTHON) -m pytest -m "not slow" -n 3 --dist loadfile --no-loadscope-reorder \
		$(ARGS) $(TESTS)

lint: environment ## style, and which room may import which
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@.venv/bin/lint-imports --no-logo

types: environment ## mypy strict, tests included
	@$(PYTHON) -m mypy

security: install ## every attempt to break out, one line each; fails on any escape
	@$(PYTHON) scripts/security_report.py $(ARGS)

soak: install ## 10,000 runs on namespaces, 300 on the engine: nothing grows; ARGS="--docker 50"
	@$(PYTHON) scripts/soak.py $(ARGS)

test-podman: install ## contract and security suites against Podman's socket, in a temporary place
	@sh scripts/podman_tests.sh $(ARGS)

bench: install ## one table of medians and ratios, side by side with bwrap and the docker CLI
	@sh scripts/system.sh bench
	@$(PYTHON) -m benchmarks $(ARGS)

images: install ## build the sandbox images that are missing or whose definition changed

wheel: environment ## dist/*.whl, with the cell for both machines, the policies and the images
	@$(PYTHON) -m pip install --quiet --constraint constraints.txt hatchling ziglang
	@$(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist

clean: ## remove what was made in this clone (not the image cache, not the engine)
	rm -rf .venv build dist executor/cell/bin .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

environment:
	@sh scripts/system.sh python
	@sh scripts/environment.sh
