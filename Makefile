# `make` lists the targets. The first call of one creates .venv and installs what that target needs;
# later calls install again only after pyproject.toml, requirements.lock, setup.py or the C source changed.

PYTHON ?= python3
VENV   ?= .venv
ECOVENV ?= .venv-ecosystem
# The version of torch stands in the lock; `make lock TORCH=torch==X.Y.Z` moves it.
TORCH  ?= $(shell grep '^torch==' requirements.lock)

BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest
# One process per core, but not a torch import for each of a hundred cores.
XDIST  ?= -n auto --maxprocesses 8

# Arguments for pytest, e.g. make test ARGS='-k metrics -x'
ARGS   ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test fallback portability sanitize slow fuzz peers ecosystem browser lint audit format demo bench results lock ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# --- environment -----------------------------------------------------------------------------------

DECLARED := pyproject.toml requirements.lock
NATIVE   := setup.py $(wildcard src/gbwatt/*/_native/_*.[ch])
BINARIES := src/gbwatt/geometry/_native/_jacobi*.so src/gbwatt/nn/_native/_filters*.so

# $(call create_venv,directory): a fresh virtual environment there, or an error that says why not.
# Without ensurepip (some distributions package it apart) pip of $(PYTHON) fills the environment.
define create_venv
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else "gbwatt needs Python 3.11 or later, but $(PYTHON) is %d.%d: call make PYTHON=/path/to/python3.11" % v)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  && $(PYTHON) -m venv --clear $(1) \
	  || { $(PYTHON) -m venv --clear --without-pip $(1) \
	       && $(PYTHON) -m pip --python $(1)/bin/python install --quiet pip; }
endef

$(VENV)/.created:
	$(call create_venv,$(VENV))
	@touch $@

# torch comes first and alone: afterwards nothing can pull another build of it. Build isolation is off so
# that the locked setuptools builds the package and a new compilation needs no network. The extensions are
# optional, so a failed compilation is no error: old binaries must go, and their absence is said aloud.
$(VENV)/.base: $(DECLARED) $(NATIVE) | $(VENV)/.created
	$(PIP) install --quiet --constraint requirements.lock $(TORCH) setuptools
	@rm -f $(BINARIES)
	$(PIP) install --quiet --constraint requirements.lock --no-build-isolation --editable '.[test]'
	@ls $(BINARIES) >/dev/null 2>&1 || echo "note: a C extension was not built; the torch path is used"
	@touch $@

$(VENV)/.peers: $(DECLARED) | $(VENV)/.base
	$(PIP) install --quiet --constraint requirements.lock --no-build-isolation --editable '.[peers]'
	@touch $@

$(VENV)/.browser: $(DECLARED) | $(VENV)/.base
	$(PIP) install --quiet --constraint requirements.lock --no-build-isolation --editable '.[browser]'
	@touch $@

$(VENV)/.lint: $(DECLARED) | $(VENV)/.base
	$(PIP) install --quiet --constraint requirements.lock --no-build-isolation --editable '.[lint]'
	@touch $@

# braindecode and MOABB pin what the lock pins otherwise, so they have an environment of their own. braindecode
# requires torchaudio, whose wheel is built for CUDA: gbwatt.models.torchaudio_repair sets aside what a CPU cannot load.
$(ECOVENV)/.ecosystem: $(DECLARED) $(NATIVE)
	$(call create_venv,$(ECOVENV))
	$(ECOVENV)/bin/python -m pip --disable-pip-version-check --no-input install --quiet $(TORCH) 'setuptools>=77'
	$(ECOVENV)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-build-isolation --editable '.[test,foundation,moabb,dask]'
	$(ECOVENV)/bin/python -m gbwatt.models.torchaudio_repair
	@touch $@

setup: $(VENV)/.base $(VENV)/.peers $(VENV)/.lint ## install everything for development into .venv

# --- checks ----------------------------------------------------------------------------------------

test: $(VENV)/.base ## tests and docstring examples, without the slow ones and the peers
	$(PYTEST) $(XDIST) $(ARGS)

# Recordings and the command line do not know of the kernel.
WITH_KERNEL := tests/test_kernels.py tests/geometry tests/nn tests/models tests/decoding src/gbwatt/geometry src/gbwatt/nn src/gbwatt/models

fallback: $(VENV)/.base ## the tests of what the kernel serves, as if there were no C compiler
	$(PYTEST) $(XDIST) --torch-path $(WITH_KERNEL) $(ARGS)

portability: $(VENV)/.base ## the tests under several levels of instruction sets
	$(BIN)/python -m tests.portability $(XDIST) -q $(ARGS)

# A copy of the package under build/, with kernels that stop at a read or write outside of an array and at undefined
# behaviour. Python is not built with sanitizers, so their libraries, and libstdc++, whose exceptions they watch, are
# loaded first. Leaks are not looked for: the interpreter and torch leave memory to the end of the process.
SANITIZED  := build/sanitized
SANITIZERS  = $(foreach name,libasan.so libubsan.so libstdc++.so,$(shell $(CC) -print-file-name=$(name)))
AT_BOUNDARY := tests/test_kernels.py tests/geometry/test_native.py tests/nn/test_native.py tests/fuzz/test_kernel_boundary.py

sanitize: $(VENV)/.base ## the tests of the kernels and of their boundary, with address and undefined-behaviour sanitizers
	@mkdir -p $(SANITIZED)
	@echo 'int main(void) { return 0; }' | $(CC) -fsanitize=address,undefined -x c - -o $(SANITIZED)/probe && $(SANITIZED)/probe \
	  || { echo "sanitize: $(CC) has no address and undefined-behaviour sanitizers; use GCC with libasan and libubsan" >&2; exit 1; }
	GBWATT_SANITIZE=1 CC=$(CC) $(BIN)/python setup.py -q build --build-base $(SANITIZED)/base --build-lib $(SANITIZED)/lib
	LD_PRELOAD='$(SANITIZERS)' ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=$(SANITIZED)/lib \
	  $(PYTEST) $(XDIST) -m 'not slow' --sanitized $(AT_BOUNDARY) $(ARGS)

slow: $(VENV)/.base ## the slow tests
	$(PYTEST) $(XDIST) -m 'slow and not peers and not fuzz' $(ARGS)

fuzz: $(VENV)/.base ## damaged and hostile files, stores, settings and matrices
	$(PYTEST) $(XDIST) -m fuzz $(ARGS)

peers: $(VENV)/.base $(VENV)/.peers ## tests against other libraries
	$(PYTEST) $(XDIST) -m peers $(ARGS)

ecosystem: $(ECOVENV)/.ecosystem ## tests with braindecode and MOABB, in an environment of their own
	$(ECOVENV)/bin/python -m pytest $(XDIST) -m ecosystem $(ARGS)

# Chromium and its driver are the distribution's.
browser: $(VENV)/.base $(VENV)/.browser ## tests of reports in headless Chromium, which must be installed
	$(PYTEST) -m browser $(ARGS)

lint: $(VENV)/.base $(VENV)/.lint ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# It asks the package index, and says so where that cannot be reached.
audit: $(VENV)/.base ## known vulnerabilities of the versions in requirements.lock
	$(BIN)/python .ci/audit.py

format: $(VENV)/.lint ## let ruff repair and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

ci: ## what continuous integration runs
	.ci/run

# --- programs --------------------------------------------------------------------------------------

# A third of the usual epochs, which the second command says.
demo: $(VENV)/.base ## a short tour of the geometry, then a model trained, tested, saved and explained in a report
	$(BIN)/python examples/geometry_demo.py
	$(BIN)/gbwatt train --max-epochs 60 --output build/demo --force
	$(BIN)/gbwatt evaluate build/demo --dataset simulated-ssvep --subject 2
	$(BIN)/gbwatt report build/demo --dataset simulated-ssvep --output build/demo.html --force

bench: $(VENV)/.base $(VENV)/.peers ## precision and speed against other libraries
	$(BIN)/python benchmarks/precision.py
	$(BIN)/python benchmarks/geometry.py

results: $(VENV)/.base ## the tables and figures of docs/results.md, made anew from results/
	$(BIN)/gbwatt tables --fill docs/results.md $(patsubst %,--results %,$(wildcard results/*.csv))

# --- upkeep ----------------------------------------------------------------------------------------

LOCKENV := .venv-lock

# Left out: the package itself, pip, local version labels (+cpu), and what only a CUDA build of torch brings.
lock: ## resolve the newest versions and write requirements.lock (Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "the lock is made with Python 3.11: call make lock PYTHON=/path/to/python3.11")'
	$(call create_venv,$(LOCKENV))
	$(LOCKENV)/bin/python -m pip install --quiet --upgrade $(TORCH) 'setuptools>=77'
	$(LOCKENV)/bin/python -m pip install --quiet --no-build-isolation --editable '.[dev]'
	@{ echo "# Exact versions for make test, peers, lint, demo and bench on Python 3.11; used as pip constraints."; \
	   echo "# Written by 'make lock' ('make lock TORCH=torch==X.Y.Z' for another torch); do not edit."; \
	   $(LOCKENV)/bin/python -m pip freeze --all --exclude-editable --exclude pip \
	     | sed -E 's/\+[A-Za-z0-9.]+$$//' | grep -vE '^(nvidia-|cuda-|triton)' | LC_ALL=C sort -f -t= -k1,1; \
	 } > requirements.lock.new
	@grep -q '^torch==' requirements.lock.new
	@! grep -nE ' @ |file:|https?:' requirements.lock.new
	@mv requirements.lock.new requirements.lock
	@rm -rf $(LOCKENV)

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) $(ECOVENV) $(LOCKENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -exec rm -rf {} + 2>/dev/null || true
	rm -f $(BINARIES)
