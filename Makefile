# The three verbs: make check, make test, make demo. Everything else is in CONTRIBUTING.md.
# Each creates .venv and installs what it needs; nothing is rebuilt when nothing changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# What an install is made of: the compiled sources, and which packages there are. Other Python files are not in the
# list: the install points at src/.
PACKAGES := $(shell find src/metalforge -name '__init__.py')
NATIVE_SOURCES := CMakeLists.txt $(shell find src/metalforge/native -name '*.hpp' -o -name '*.cpp')
NATIVE_FORMATTED := $(filter-out CMakeLists.txt,$(NATIVE_SOURCES))

.PHONY: help install demo test test-long check bench docs format clean
help:
	@echo "make demo       install, then run the main job"
	@echo "make test       install, then run the tests (make test-long: the long ones)"
	@echo "make check      formatting, lint, types, import direction, licences"
	@echo "make bench      compare speed with peers and ceilings; make docs, format, install, clean"

$(BIN)/python:
	@tools/check-prerequisites $(PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) 'pip>=25.1'
	@$(PIP) --group build

# The package itself, with its run-time dependencies.
$(VENV)/.installed: pyproject.toml $(NATIVE_SOURCES) $(PACKAGES) | $(BIN)/python
	@tools/check-prerequisites $(PYTHON)
	@echo "installing metalforge and building its kernels (a minute or two the first time)"
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.group-%: pyproject.toml $(VENV)/.installed
	@echo "installing the packages for: $*"
	@$(PIP) --group $*
	@touch $@

install: $(VENV)/.group-test

demo: $(VENV)/.installed
	$(BIN)/metalforge doctor
	$(BIN)/metalforge scan --preset demo

test: $(VENV)/.group-test
	$(BIN)/python -m pytest -m "not long and not cuda and not npu" --numprocesses 2 --dist loadfile

test-long: $(VENV)/.group-test
	$(BIN)/python -m pytest -m "long"

check: $(VENV)/.group-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(NATIVE_FORMATTED)
	$(BIN)/python tools/check_licences.py

bench: $(VENV)/.group-bench
	$(BIN)/metalforge bench all

docs: $(VENV)/.group-docs
	$(BIN)/pdoc --output-directory build/docs metalforge

format: $(VENV)/.group-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(NATIVE_FORMATTED)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
