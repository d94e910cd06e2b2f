# Every target sets itself up: a virtual environment in .venv with the exact versions of requirements/*.txt.
# Needs Python >= 3.11 (PYTHON=... picks one), make and a package index; no compiler, no system LLVM.
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2
ARGS ?=
SECONDS ?= 2
ROUNDS ?= 3

# What pytest has rewritten of 660 test files is kept for the runs that follow: to rewrite them is half of collecting.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "autojit needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "creating $(VENV)"
	$(PYTHON) -m venv $(VENV)

# One stamp per requirements file: the pinned packages, then autojit itself without resolving anything again.
$(VENV)/installed-%: requirements/%.txt requirements/runtime.txt requirements/build.txt pyproject.toml | $(BIN)/python
	@echo "installing requirements/$*.txt"
	$(PIP) install -r requirements/build.txt -r $<
	$(PIP) install --no-build-isolation --no-deps -e .
	$(BIN)/python -m compileall -q src/autojit # an editable install leaves this out; import autojit reads bytecode
	@touch $@

$(VENV)/installed-test: requirements/examples.txt $(VENV)/installed-cuda-test

# NVIDIA's assembler and the layouts of its structures, to compare with: without the 200 MB that nvcc itself would want.
$(VENV)/installed-cuda-test: requirements/cuda-test.txt | $(BIN)/python
	@echo "installing requirements/cuda-test.txt"
	$(PIP) install --no-deps -r $<
	@touch $@

.PHONY: demo
demo: $(VENV)/installed-examples ## train on handwritten digits, eager and compiled (ARGS="--show schedule" prints a stage)
	$(BIN)/python -m autojit demo $(ARGS)

.PHONY: test
test: $(VENV)/installed-test ## every law, doctests and the code of docs/ (ARGS="--every-case": all cases of all laws)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

.PHONY: test-machines
test-machines: $(VENV)/installed-test ## as on other machines: BLAS, registers, threads, versions, other Pythons (ARGS="--short")
	$(BIN)/python tools/test_machines.py --workers $(WORKERS) $(ARGS)

.PHONY: test-pythons
test-pythons: $(VENV)/installed-test ## one test of twenty on the other Pythons that are installed here, with the newest NumPy
	$(BIN)/python tools/test_machines.py --only "Python 3" --short --workers $(WORKERS) $(ARGS)

.PHONY: golden
golden: $(VENV)/installed-test ## graphs, schedules, plans and kernels of 300 steps as recorded (ARGS="--write" records)
	$(BIN)/python -m tests.golden $(ARGS)

.PHONY: index
index: $(VENV)/installed-test ## which module has which name that is imported when first used, as the functions say
	$(BIN)/python tools/make_index.py $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/installed-test ## random programs in changing environments, eager against compiled (ARGS="--seconds 600")
	$(BIN)/python -m autojit.testing.fuzz --workers $(WORKERS) $(ARGS)

.PHONY: mutants
mutants: $(VENV)/installed-test ## planted errors, and how many of them the checks see (ARGS="--mutants 20 --family passes")
	$(BIN)/python -m autojit.testing.fuzz --mutants 100 --verbose --workers $(WORKERS) $(ARGS)

.PHONY: rows
rows: $(VENV)/installed-test ## how many rows of the autograd reference hold, eager and compiled
	$(BIN)/python -m autojit.testing.rows --quiet

.PHONY: api
api: $(VENV)/installed-test ## out/api.md: every public name with a link to its source
	$(BIN)/python tools/make_api_index.py

.PHONY: stubs
stubs: $(VENV)/installed-test ## what type checkers see of autojit and Tensor, from the live signatures
	$(BIN)/python tools/make_stubs.py

.PHONY: reference
reference: $(VENV)/installed-test ## docs/reference from the op classes
	$(BIN)/python tools/make_op_reference.py

.PHONY: docs
docs: $(VENV)/installed-docs ## site/: the documentation with the API reference, every example of it run
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet $(ARGS)

.PHONY: changelog
changelog: $(BIN)/python ## CHANGELOG.md from the fragments in changelog.d (ARGS="--release VERSION" at a release)
	$(BIN)/python tools/make_changelog.py $(ARGS)

.PHONY: gallery
gallery: $(VENV)/installed-test ## docs/gallery.md and its pictures: runs every example (with torch's curves where it is installed)
	$(BIN)/python -m tools.make_gallery $(ARGS)

.PHONY: lint
lint: $(VENV)/installed-lint ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

.PHONY: format
format: $(VENV)/installed-lint ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: examples
examples: $(VENV)/installed-examples ## every example at small size (ARGS="--device cuda"; AUTOJIT_CUDA=emulate without a GPU)
	@ls examples/[a-z]*.py | xargs -P $(WORKERS) -I{} sh -c \
		'said=$$($(BIN)/python {} --small $(ARGS) 2>&1); ended=$$?; echo "== {} --small"; echo "$$said"; exit $$ended'

.PHONY: bench
bench: $(VENV)/installed-bench ## step times, start-up, memory and machine limits; compares with the peers that are installed
	$(BIN)/python -m benchmarks.run --rounds $(ROUNDS) --seconds $(SECONDS) --out results/bench $(ARGS)

.PHONY: bench-peers
bench-peers: $(VENV)/installed-peers bench ## the same with torch, JAX, Dr.Jit, tinygrad and autograd installed first

.PHONY: clean
clean: ## caches and results
	rm -rf build dist out results site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: clean-venv
clean-venv: ## the virtual environment
	rm -rf $(VENV)
