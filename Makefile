# `make demo` runs the main job end to end on a fresh machine; `make test` passes the tests.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help venv demo test test-all nightly external bench gpu lint format clean

help:           ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

venv: $(VENV)/.installed  ## make .venv from pyproject.toml, pinned by constraints.txt

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "isobatch needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: venv      ## probe, server, checks, load, report: the main job end to end
	$(BIN)/isobatch demo

test: venv      ## lint, types, import directions and the quick tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -m 'not slow and not nightly and not gpu and not external'

test-all: venv  ## everything that needs neither a GPU nor another server
	$(BIN)/pytest -q -m 'not nightly and not gpu and not external'

nightly: venv   ## the long property runs
	ISOBATCH_PROFILE=nightly $(BIN)/pytest -q -m 'not gpu and not external'

SERVERS ?= transformers mlx-lm llama-cpp vllm
external: venv  ## install servers that others wrote and check them (5 GB, 40 minutes; SERVERS=transformers: 1.2 GB, 4 minutes)
	for server in $(SERVERS); do $(BIN)/isobatch launch $$server --install || exit 1; done
	$(BIN)/pytest -q -m external tests/targets/test_external.py -k "$$(echo $(SERVERS) | sed 's/ / or /g')"

bench: venv     ## benchmarks (ratios are what counts; times depend on the machine)
	$(BIN)/pytest -q tests/benchmarks --benchmark-enable --benchmark-only -p no:cacheprovider

gpu: venv       ## on a machine with a CUDA device: the contract, then speed (MODEL=folder OUT=folder)
	$(BIN)/pytest -q -m gpu tests/gpu
	$(BIN)/python -m tests.benchmarks.engine_speed.gpu --model $(MODEL) --out $(OUT)

lint: venv      ## lint and types only
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

format: venv    ## format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:          ## remove what was built
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
