# Everything a contributor runs. Each target installs what it needs into .venv, once for each
# version of pyproject.toml and constraints.txt:  make check grade test lint docs bench gpu
# low high clean
#
# PYTHON is the interpreter that .venv is made with (or, for `make gpu`, run with).

PYTHON ?= python3
TRITON ?= triton==3.6.0; sys_platform == 'linux'
MOJO ?= .[mojo-gpu]

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

EXTRAS_check := report,torch
EXTRAS_grade := report,torch
EXTRAS_test := test,torch,jax,onnx,examples
EXTRAS_lint := lint,test
EXTRAS_docs := check,docs,torch
EXTRAS_bench := bench,torch

# Of the suite at both ends; HOLD names what stays at one version there: HOLD=torch==2.13.0
EXTRAS_ends ?= $(EXTRAS_test),triton,report
HOLD ?=

# Where the Mojo compiler is installed too, if there is one for this machine.
WITH_MOJO := check test bench

.DEFAULT_GOAL := help
.PHONY: help check grade test lint docs bench gpu low high clean
.NOTPARALLEL:

help:
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile

check: .venv/.installed-check ## compare the installed backends with the reference
	$(BIN)/convref check --no-fail --seconds 30 --html report

grade: .venv/.installed-grade ## grade right, wrong and cheating solutions of docs/examples/grade
	@mkdir -p report
	-$(BIN)/convref grade kernelbench docs/examples/grade/problem.py \
		docs/examples/grade/right.py docs/examples/grade/[wct]*.py --html report/grade.html

# Two processes that compute with several threads each wait for each other. Those that tests start
# find compiled modules, also where the environment says to write none.
SETTINGS := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

test: .venv/.installed-test ## run the whole test suite
	$(SETTINGS) $(BIN)/python -m pytest -n 2 --dist worksteal

lint: .venv/.installed-lint ## ruff, mypy, codespell, imports and the bans; changes no file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python tools/imports.py
	$(BIN)/python tools/bans.py

docs: .venv/.installed-docs ## build the pages into docs/_build
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build

bench: .venv/.installed-bench ## time the backends of this CPU
	$(BIN)/python -m convref_bench cpu

# No venv and no network: only what PYTHON has. A dist-info folder stands in for the installation.
gpu: ## test and time the GPU kernels with PYTHON as it is
	$(PYTHON) tools/dist_info.py build/gpu
	PYTHONPATH="$(CURDIR)/build/gpu:$(CURDIR):$(CURDIR)/kernels:$(CURDIR)/bench$${PYTHONPATH:+:$$PYTHONPATH}" \
		$(PYTHON) -m convref_bench gpu

low: ## run the test suite with the lowest versions that pyproject.toml accepts
high: ## run the test suite with the highest ones
low high:
	$(PYTHON) -m venv --clear .venv-$@
	$(PYTHON) tools/ends.py $@ $(HOLD) > .venv-$@/constraints.txt
	.venv-$@/bin/python -m pip --disable-pip-version-check install -qq \
		-c .venv-$@/constraints.txt -e '.[$(EXTRAS_ends)]' -e '$(MOJO)'
	$(SETTINGS) .venv-$@/bin/python -m pytest -n 2 --dist worksteal

clean: ## remove .venv and everything built
	rm -rf .venv .venv-low .venv-high build dist report docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find convref kernels bench tests tools docs -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is not Python 3.11 or newer; run make PYTHON=<a newer one>" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "make: $(PYTHON) cannot make a venv (no ensurepip); install python3-venv or run make PYTHON=<another one>" >&2; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv

# torch for CUDA comes with the triton that it needs, torch for CPUs with none.
.venv/.installed-%: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing convref[$(EXTRAS_$*)] into .venv"
	@$(PIP) install -qq -c constraints.txt -e '.[$(EXTRAS_$*)]'
	@case ,$(EXTRAS_$*), in *,torch,*) \
		$(BIN)/python -c 'import importlib.util as u; raise SystemExit(not u.find_spec("triton"))' || \
		$(PIP) install -qq "$(TRITON)" ;; esac
	@case " $(WITH_MOJO) " in *" $* "*) \
		$(PIP) install -qq -c constraints.txt -e '$(MOJO)' || \
		echo "make: no Mojo compiler for this machine: what needs it is skipped" >&2 ;; esac
	@touch $@
