# One environment for all targets, in $(VENV). Everything that is installed comes from pyproject.toml.
#   make demo            install, verify a ring all-reduce, run it on 8 ranks with real data, and average gradients
#   make test            install what the tests need and run them
#   make test TORCH=torch==2.13.0    the same with PyTorch, so that the tests that need it run, too
#   make test CUDA=cuda13    ... with CuPy and NVRTC, which compile kernels for GPUs, with or without one
#   make coverage        the tests, and whether they take every branch of the verifier (twice the time)
#   make nightly         the full products, 20,000 mutants judged by the verifier and by the interpreter; then the former
#   make mutants         changes in the verifier that no test notices, all of them: hours. MUTANTS="NAME ..." takes some
PYTHON      ?= python3
VENV        ?= .venv
TORCH       ?=
CUDA        ?=
PYTEST_ARGS ?=
MUTANTS     ?=

bin  = $(VENV)/bin
ring = examples/allreduce/ring.sched

.PHONY: demo test coverage nightly mutants lint ruff types imports docs clean help

help:
	@sed -n 's/^#   //p' Makefile

$(bin)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp for each set of packages; a changed pyproject.toml installs again.
$(VENV)/.core: pyproject.toml | $(bin)/python
	$(bin)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(bin)/python
	$(bin)/python -m pip install --quiet --editable ".[test]"
	@touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml | $(bin)/python
	$(bin)/python -m pip install --quiet --editable ".[dev]"
	@touch $@ $(VENV)/.test $(VENV)/.core

$(VENV)/.mutants: pyproject.toml | $(bin)/python
	$(bin)/python -m pip install --quiet --editable ".[mutants]"
	@touch $@ $(VENV)/.test $(VENV)/.core

demo: $(VENV)/.core
	$(bin)/schedlang verify $(ring) --ranks 8
	$(bin)/schedlang show $(ring) --ranks 4 --steps 0..3
	$(bin)/schedlang run $(ring) --ranks 8 --size 64MiB --check
	cd examples/gradients && $(abspath $(bin))/python allreduce_gradients.py

test: $(VENV)/.test
	$(if $(TORCH),$(bin)/python -m pip install --quiet "$(TORCH)")
	$(if $(CUDA),$(bin)/python -m pip install --quiet --editable ".[$(CUDA)]")
	$(bin)/python -m pytest $(PYTEST_ARGS)

coverage: override PYTEST_ARGS += --cov --cov-report=term --cov-fail-under=100
coverage: test

nightly: $(VENV)/.test
	$(if $(TORCH),$(bin)/python -m pip install --quiet "$(TORCH)")
	$(if $(CUDA),$(bin)/python -m pip install --quiet --editable ".[$(CUDA)]")
	$(bin)/python -m pytest -s -m nightly $(PYTEST_ARGS)
	$(MAKE) --no-print-directory coverage

# What mutmut knows already is kept in mutants/; "mutmut show NAME" tells a mutant. Those that were read and found to be
# no fault are not listed.
mutants: $(VENV)/.mutants
	$(bin)/mutmut run $(MUTANTS)
	@echo "Not noticed, and not in tests/equivalent_mutants.txt:"
	@$(bin)/mutmut results | grep -E ': (survived|no tests)' | grep -vwFf tests/equivalent_mutants.txt || true

lint: ruff types imports

ruff: $(VENV)/.dev
	$(bin)/ruff check .

types: $(VENV)/.dev
	$(bin)/mypy

imports: $(VENV)/.dev
	$(bin)/lint-imports

docs: $(VENV)/.dev
	$(bin)/sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) mutants build dist docs/_build docs/reference/generated
