# `make` lists the targets. A target creates .venv on first use and installs what it needs. It installs again only after
# a change of pyproject.toml, requirements.lock, setup.py or the C source.

PYTHON ?= python3
VENV   ?= .venv
ECOVENV ?= .venv-ecosystem
# The lock has the version of torch; `make lock TORCH=torch==X.Y.Z` changes it.
TORCH  ?= $(shell grep '^torch==' requirements.lock)

BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest
# One process per core, at most 8: each imports torch. Tests of a group share what they compute, in one process.
XDIST  ?= -n auto --maxprocesses 8 --dist loadgroup

# Arguments of pytest, e.g. make test ARGS='-k metrics -x'
ARGS   ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test fallback portability sanitize slow fuzz peers extended ecosystem browser lint audit format demo bench results lock ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# --- environment -----------------------------------------------------------------------------------

DECLARED := pyproject.toml requirements.lock
NATIVE   := setup.py $(wildcard src/gbwatt/*/_native/_*.[ch])
BINARIES := src/gbwatt/geometry/_native/_jacobi*.so src/gbwatt/nn/_native/_filters*.so

# $(call create_venv,directory): create a new virtual environment, or fail with the reason.
# Some distributions package ensurepip separately; without it, pip of $(PYTHON) installs pip.
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

# torch is installed first, so that no other package installs another build of it. Without build isolation the locked
# setuptools builds the package, and compiling again needs no network. The C extensions are optional: old binaries are
# removed first, and a failed compilation prints a note.
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

# braindecode and MOABB pin other versions than the lock, so they have their own environment. braindecode requires
# torchaudio, whose wheel is built for CUDA: gbwatt.models.torchaudio_repair moves libraries that a CPU cannot load.
$(ECOVENV)/.ecosystem: $(DECLARED) $(NATIVE)
	$(call create_venv,$(ECOVENV))
	$(ECOVENV)/bin/python -m pip --disable-pip-version-check --no-input install --quiet $(TORCH) 'setuptools>=77'
	$(ECOVENV)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-build-isolation --editable '.[test,clinical,moabb,dask]'
	$(ECOVENV)/bin/python -m gbwatt.models.torchaudio_repair
	@touch $@

setup: $(VENV)/.base $(VENV)/.peers $(VENV)/.lint ## install everything for development in .venv

# --- checks ----------------------------------------------------------------------------------------

test: $(VENV)/.base ## tests and docstring examples, except slow and peers
	$(PYTEST) $(XDIST) $(ARGS)

# Data and the command line do not use the kernels.
WITH_KERNEL := tests/test_kernels.py tests/geometry tests/nn tests/models tests/decoding src/gbwatt/geometry src/gbwatt/nn src/gbwatt/models

fallback: $(VENV)/.base ## tests without the compiled kernels
	$(PYTEST) $(XDIST) --torch-path $(WITH_KERNEL) $(ARGS)

portability: $(VENV)/.base ## tests under several instruction sets
	$(BIN)/python -m tests.portability $(XDIST) -q $(ARGS)

# A copy of the package under build/, with kernels that stop at out-of-bounds access and undefined behaviour. Python is
# not built with sanitizers, so their libraries, and libstdc++, whose exceptions they intercept, are preloaded. Leaks are
# not checked, because the interpreter and torch do not free all memory.
SANITIZED  := build/sanitized
SANITIZERS  = $(foreach name,libasan.so libubsan.so libstdc++.so,$(shell $(CC) -print-file-name=$(name)))
AT_BOUNDARY := tests/test_kernels.py tests/geometry/test_native.py tests/nn/test_native.py tests/fuzz/test_kernel_boundary.py

sanitize: $(VENV)/.base ## kernel tests with address and undefined-behaviour sanitizers
	@mkdir -p $(SANITIZED)
	@echo 'int main(void) { return 0; }' | $(CC) -fsanitize=address,undefined -x c - -o $(SANITIZED)/probe && $(SANITIZED)/probe \
	  || { echo "sanitize: $(CC) has no address and undefined-behaviour sanitizers; use GCC with libasan and libubsan" >&2; exit 1; }
	GBWATT_SANITIZE=1 CC=$(CC) $(BIN)/python setup.py -q build --build-base $(SANITIZED)/base --build-lib $(SANITIZED)/lib
	LD_PRELOAD='$(SANITIZERS)' ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=$(SANITIZED)/lib \
	  $(PYTEST) $(XDIST) -m 'not slow' --sanitized $(AT_BOUNDARY) $(ARGS)

slow: $(VENV)/.base ## slow tests
	$(PYTEST) $(XDIST) -m 'slow and not peers and not fuzz' $(ARGS)

fuzz: $(VENV)/.base ## tests with damaged and malicious files, settings and matrices
	$(PYTEST) $(XDIST) -m fuzz $(ARGS)

peers: $(VENV)/.base $(VENV)/.peers ## tests against other libraries
	$(PYTEST) $(XDIST) -m peers $(ARGS)

extended: $(VENV)/.base $(VENV)/.peers ## slow, fuzz and peers in one run
	$(PYTEST) $(XDIST) -m 'slow or fuzz or peers' $(ARGS)

ecosystem: $(ECOVENV)/.ecosystem ## tests with braindecode and MOABB, in a separate environment
	$(ECOVENV)/bin/python -m pytest $(XDIST) -m ecosystem $(ARGS)

# Chromium and its driver come from the distribution.
browser: $(VENV)/.base $(VENV)/.browser ## tests of reports in headless Chromium (must be installed)
	$(PYTEST) -m browser $(ARGS)

lint: $(VENV)/.base $(VENV)/.lint ## ruff, mypy and import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Queries the package index, and reports if it is not reachable.
audit: $(VENV)/.base ## check requirements.lock for known vulnerabilities
	$(BIN)/python .ci/audit.py

format: $(VENV)/.lint ## fix and format with ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

ci: ## everything that continuous integration runs
	.ci/run

# --- programs --------------------------------------------------------------------------------------

# With a third of the default number of epochs.
demo: $(VENV)/.base ## show the geometry; train, test and save a model, and write a report
	$(BIN)/python examples/geometry_demo.py
	$(BIN)/gbwatt train --max-epochs 60 --output build/demo --force
	$(BIN)/gbwatt evaluate build/demo --dataset simulated-ssvep --subject 2
	$(BIN)/gbwatt report build/demo --dataset simulated-ssvep --output build/demo.html --force

bench: $(VENV)/.base $(VENV)/.peers ## compare precision and speed with other libraries
	$(BIN)/python benchmarks/precision.py
	$(BIN)/python benchmarks/geometry.py

results: $(VENV)/.base ## update tables and figures in docs/results.md from results/
	$(BIN)/gbwatt tables --fill docs/results.md $(patsubst %,--results %,$(wildcard results/*.csv))

# --- upkeep ----------------------------------------------------------------------------------------

LOCKENV := .venv-lock

# Excluded: the package itself, pip, local version labels (+cpu), and dependencies of CUDA builds of torch.
lock: ## write requirements.lock with the newest versions (Python 3.11)
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
