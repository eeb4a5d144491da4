# make app     set everything up and serve the dashboard on 127.0.0.1:8501
# make test    set everything up and run lint, types, import rules and all quick tests, in minutes
# make test-slow   whole flows in a browser, trainings side by side, drills: tests marked `slow`, which CI runs after `make test`
# make test-long   all tests, also those marked `long`, with 200 examples per property
# make docs    write docs/generated from the program's own tables and recorded results
# make gpu-bundle DATA=FOLDER   put what a GPU machine without a network lacks into .gpu/
# make gpu STEPS="env tests"   run what needs a GPU in ten minutes, with that machine's own PyTorch; DRY=1 tries it without one
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# Images of Python may forbid compiled files: each process of a test would compile the whole program and its tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: app test checks tests lint check-types check-imports samples browser bubblewrap allocator test-slow test-long docs gpu-bundle gpu format screenshots clean

app: .venv/app.stamp samples
	$(BIN)/unifiednn app

# Lint, types and import rules run beside the tests.
test: .venv/dev.stamp samples browser bubblewrap allocator
	@$(MAKE) --no-print-directory --jobs 2 checks tests

checks: lint check-imports check-types

tests:
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-slow: .venv/dev.stamp samples browser bubblewrap allocator
	$(BIN)/pytest --numprocesses 2 --dist loadfile -m "slow and not gpu and not long"

test-long: .venv/dev.stamp samples browser bubblewrap allocator
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -m "not gpu"

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: .venv/dev.stamp
	$(BIN)/mypy

check-imports: .venv/dev.stamp
	$(BIN)/lint-imports --no-cache

samples: .venv/app.stamp
	$(BIN)/python -m sample_models.build

# The browser of the system where there is one; else Debian's package; else Playwright's own download.
browser: .venv/dev.stamp
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	       && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	  || $(BIN)/playwright install chromium

# Without it the tests of confined workers check the fallback alone.
bubblewrap:
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap >/dev/null; } || true

# Without it workers use the allocator of the C library and need about a quarter more memory.
allocator:
	@ls /usr/lib*/*/libtcmalloc_minimal.so.4 /usr/lib*/libtcmalloc_minimal.so.4 >/dev/null 2>&1 \
	  || [ ! -x /usr/bin/apt-get ] || [ "$$(id -u)" != 0 ] \
	  || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libtcmalloc-minimal4 >/dev/null; } || true

docs: .venv/app.stamp
	$(BIN)/python -m tools.generate_docs

gpu-bundle: .venv/app.stamp
	PYTHON=$(BIN)/python bash tools/gpu/bundle.sh "$(or $(DATA),$(UNIFIEDNN_DATA))"

gpu:
	PYTHON=$(PYTHON) STEPS="$(STEPS)" DRY="$(DRY)" bash tools/gpu/run.sh

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "UnifiedNN needs Python 3.11 or newer; name one: make app PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/app.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable .
	@touch $@

.venv/dev.stamp: .venv/app.stamp
	$(PIP) --editable '.[dev]'
	@touch $@

screenshots: samples browser
	$(BIN)/python -m tests.browser.screenshots
