# Fresh clone, python3 and make: `make demo` shows what posterax does, `make test` checks it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.3
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install demo test test-all attack lint format types wheel audit versions docs docs-serve reproduce bench bench-quick bench-samplers bench-gpu bench-convergence bench-tables ablation clean

help:
	@echo "make demo        fit the paper's curve and digits, print a table, save a picture"
	@echo "make test        lint, types, tests, doctests, README, wheel"
	@echo "make test-all    the same with the slow checks"
	@echo "make attack      fuzzers and the killer for hours: make attack SECONDS=3600 SEED=7 (NAME=kill: one)"
	@echo "make docs        build the documentation as a site in build/site (make docs-serve: show it)"
	@echo "make reproduce   run an experiment of docs/results: make reproduce NAME=mnist"
	@echo "                 (without NAME: list them; ARGS=\"--budget quick\" sets options)"
	@echo "make bench       measure beside other libraries (make bench-gpu: on one GPU)"
	@echo "make bench-quick REVISION=…   is the working tree slower than a commit (a minute)"
	@echo "make bench-convergence   which ELBO the defaults and other libraries reach, and when (hours)"
	@echo "make bench-tables   the defaults of the estimators beside boosting and others (hours)"
	@echo "make audit       licences of dependencies, and known weaknesses of their versions"
	@echo "make versions    try every Python and the oldest and newest dependencies (half an hour)"
	@echo "make format      let ruff rewrite the code"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "posterax needs Python 3.11 or newer: set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: install
	$(BIN)/posterax demo

# an experiment of docs/results: make reproduce NAME=uci ARGS="--budget quick"
reproduce: install
	$(BIN)/python -m experiments $(or $(NAME),--help) $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

# the wheel, built twice to the same bytes, holds what it should and nothing else; then in an
# environment with nothing but it and what it asks for
wheel: install
	$(BIN)/python -m tools.release build/wheel
	test -d .cache/wheel || $(PYTHON) -m venv .cache/wheel
	.cache/wheel/bin/python -m pip install --quiet --constraint constraints.txt build/wheel/*.whl
	.cache/wheel/bin/python -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	cd build/wheel && ../../.cache/wheel/bin/python -W error -c \
		"from posterax import *; import posterax as px; assert 'site-packages' in px.__file__; print('wheel', px.__version__)"
	cd build/wheel && ../../.cache/wheel/bin/python -c \
		"from importlib.resources import files as f; f('posterax.report').joinpath('style.css').read_text()"
	cd build/wheel && ../../.cache/wheel/bin/posterax --version

# tools that posterax itself does not need, each in an environment of its own
.cache/pip-audit .cache/uv:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet $(@F) || { rm -rf $@; exit 1; }

audit: install .cache/pip-audit
	$(BIN)/python -m tools.licences
	$(BIN)/python -m tools.advisories .cache/pip-audit/bin/pip-audit

versions: .cache/uv
	UV=$(CURDIR)/.cache/uv/bin/uv $(PYTHON) -m tools.versions $(CASES)

# the site, in the same environment with the extra `docs`; a warning fails it
DOCS := $(VENV)/.docs
export NO_MKDOCS_2_WARNING := 1

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	@touch $@

docs: $(DOCS)
	$(BIN)/python -m mkdocs build --strict
	@echo "the site is at build/site/index.html"

docs-serve: $(DOCS)
	$(BIN)/python -m mkdocs serve

test: lint types wheel
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# its figures become docs/calibration.md
test-all: lint types wheel
	rm -rf build/calibration
	CALIBRATION=$(CURDIR)/build/calibration $(BIN)/python -m pytest -n 2 --dist worksteal
	$(BIN)/python -m tools.calibration build/calibration

# the promises of the docs under attack, in tests/attack; KEEP=--keep puts findings into its corpus
SECONDS ?= 600
SEED ?= $(shell date +%j%H%M)
attack: export XLA_FLAGS ?= --xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=1
attack: install
	$(BIN)/python -m tests.attack $(or $(NAME),all) --seed $(SEED) --seconds $(SECONDS) $(KEEP)

# the other libraries, in an environment of their own
PEERS := .cache/peers
$(PEERS)/.installed: benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --requirement benchmarks/peers.txt
	@touch $@

bench: install $(PEERS)/.installed
	$(BIN)/python -m benchmarks.run --peers $(PEERS)/bin/python
	$(BIN)/python -m benchmarks.ensemble --peers $(PEERS)/bin/python
	$(BIN)/python -m benchmarks.report

# is the working tree slower than a commit? about a minute beside compilation
REVISION ?= HEAD
bench-quick: install
	$(BIN)/python -m benchmarks.quick $(REVISION)

# samplers beside other libraries, for docs/results/samplers.md
bench-samplers: install $(PEERS)/.installed
	$(BIN)/python -m benchmarks.mcmc --peers $(PEERS)/bin/python

# time to the posterior, for docs/results/convergence.md; what was measured before is kept
bench-convergence: install $(PEERS)/.installed
	$(BIN)/python -m benchmarks.convergence.run
	$(BIN)/python -m benchmarks.convergence.run --prior fan_in
	$(BIN)/python -m benchmarks.convergence.search
	$(BIN)/python -m benchmarks.convergence.peers --peers $(PEERS)/bin/python
	$(BIN)/python -m benchmarks.convergence.report

# the estimators beside other libraries, for docs/results/tables_peers.md; POSTERAX_DATA names the
# data, JOBS the processes; what was measured before is kept
TABLE_PEERS := .cache/table-peers
JOBS ?= 1
$(TABLE_PEERS)/.installed: benchmarks/table_peers.txt
	$(PYTHON) -m venv $(TABLE_PEERS)
	$(TABLE_PEERS)/bin/python -m pip install --quiet --requirement benchmarks/table_peers.txt
	@touch $@

# bde asks for another blackjax than the rest
$(TABLE_PEERS)-bde/.installed: benchmarks/table_peers_bde.txt
	$(PYTHON) -m venv $(TABLE_PEERS)-bde
	$(TABLE_PEERS)-bde/bin/python -m pip install --quiet --requirement $<
	@touch $@

RUN_TABLES := $(BIN)/python -m benchmarks.tables_peers.run --jobs $(JOBS)
bench-tables: install $(TABLE_PEERS)/.installed $(TABLE_PEERS)-bde/.installed
	$(RUN_TABLES) --contenders posterax
	$(RUN_TABLES)
	$(RUN_TABLES) --contenders bde
	$(RUN_TABLES) --group gap --contenders posterax catboost catboost-virtual histgb lightgbm gp
	$(BIN)/python -m benchmarks.tables_peers.bde_protocol --jobs $(JOBS)
	$(BIN)/python -m benchmarks.tables_peers.bde_protocol --contenders histgb xgboost bde
	$(BIN)/python -m benchmarks.tables_peers.report

# what each measure for speed is worth, for docs/speed.md
ablation: install
	$(BIN)/python -m benchmarks.ablation
	$(BIN)/python -m benchmarks.report

# JAX and PyTorch for a GPU are the machine's own: GPU_PYTHON has both, and what posterax needs
GPU_PYTHON ?= python3
bench-gpu:
	PYTHONPATH=src:.:$(PYTHONPATH) XLA_PYTHON_CLIENT_PREALLOCATE=false \
		$(GPU_PYTHON) -m benchmarks.run --device gpu --peers $(GPU_PYTHON) --rounds 4 --seconds 0.3

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .cache build dist demo
