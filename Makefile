# The three verbs: make check, make test, make demo. Everything else is in CONTRIBUTING.md.
# Each creates .venv and installs what it needs; nothing is rebuilt when nothing changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# Bytecode is kept, whatever the caller has set: tests start hundreds of programs, nodes of clusters among them, and each would
# compile the package anew; two processes would rewrite the assertions of all tests in every run.
unexport PYTHONDONTWRITEBYTECODE

# What an install is made of: the compiled sources, and which packages there are. Other Python files are not in the
# list: the install points at src/.
PACKAGES := $(shell find src/metalforge -name '__init__.py')
NATIVE_SOURCES := CMakeLists.txt $(shell find src/metalforge/native -name '*.hpp' -o -name '*.cpp')
NATIVE_FORMATTED := $(filter-out CMakeLists.txt,$(NATIVE_SOURCES)) $(wildcard src/metalforge/native/cuda/*.cu*)

.PHONY: help install demo test test-docs test-physics test-experiments test-chaos test-cluster test-cluster-install test-browser test-long test-wheel wheel notebooks screenshots check check-cuda bench docs format clean
help:
	@echo "make demo       install, then run the main job"
	@echo "make test       install, then run the tests; slower ones have targets of their own:"
	@echo "                make test-docs, test-physics, test-experiments, test-chaos: minutes each"
	@echo "                make test-cluster: those that need Ray, which make test-cluster-install installs"
	@echo "                make test-browser: the live page in Chromium, which it installs where there is none"
	@echo "                make test-long PART=...: an hour or two, of $(PARTS)"
	@echo "make check      formatting, lint, types, import direction, licences"
	@echo "make check-cuda compile every kernel as CUDA, run them on the host; no GPU needed"
	@echo "make bench      compare speed with peers and ceilings; make format, install, clean"
	@echo "make docs       the documentation as a site, in site/; make notebooks, from examples/; make screenshots"
	@echo "make test-wheel build the wheel, install it where there is no compiler, run it; make wheel"

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

# What `make test` leaves to make test-docs, test-physics, test-experiments and test-chaos; every other test is its own.
SLOW_docs := tests/guards/test_documents_run.py tests/guards/test_examples_run.py tests/guards/test_site.py
SLOW_physics := tests/statistical tests/unit/campaign/test_resume_physics.py
SLOW_experiments := tests/unit/experiments
SLOW_chaos := tests/chaos
# Pages have nothing in common: any process takes the next one.
DIST_docs := --dist load
SLOW := $(SLOW_docs) $(SLOW_physics) $(SLOW_experiments) $(SLOW_chaos)
PYTEST := $(BIN)/python -m pytest -m "not long and not chaos and not cluster and not browser and not cuda and not npu" --numprocesses 2 --dist loadfile

test: $(VENV)/.group-test
	@tools/chromium || echo "no Chromium is here: the tests of the live page in a browser are left to make test-browser, which installs one"
	$(PYTEST) $(addprefix --ignore=,$(SLOW))

test-docs: $(VENV)/.group-docs
test-docs test-physics test-experiments: test-%: $(VENV)/.group-test
	$(PYTEST) $(DIST_$*) $(SLOW_$*)

# Kills, damages, schedules and a soak, on every kind of campaign.
test-chaos: $(VENV)/.group-test
	$(BIN)/python -m pytest -m "chaos and not long" --numprocesses 2 --dist load tests/chaos tests/unit/campaign tests/unit/cli tests/unit/cluster

# Ray is an extra of 80 MB: who does not run on clusters needs neither it nor these.
test-cluster-install: $(VENV)/.group-test $(VENV)/.group-cluster
test-cluster: test-cluster-install
	$(BIN)/python -m pytest -m "cluster and not long" --numprocesses 2 --dist loadfile tests/cluster tests/unit/pipeline

# The live page in a real browser: that of the system, since Playwright's own download is 400 MB.
test-browser: $(VENV)/.group-test $(VENV)/.group-browser
	@tools/chromium --install
	$(BIN)/python -m pytest -m "browser and not long" tests/browser

# Pictures of the live page and the report, of campaigns that are run for them.
screenshots: $(VENV)/.group-test $(VENV)/.group-browser
	@tools/chromium --install
	$(BIN)/python tools/screenshots.py build/screenshots

# Long tests come in parts, none longer than 40 minutes on two cores: make test-long PART=coverage. Without one, all.
CHAOS := kills damages schedules soak files
PARTS := docs quenched dynamical campaign coverage plasma page cluster cluster-kills cluster-faults $(CHAOS:%=chaos-%)
LONG_docs := tests/guards/test_documents_run.py
LONG_quenched := tests/statistical/test_quenched.py tests/statistical/test_exact.py tests/unit/native
LONG_dynamical := tests/statistical/test_dynamical.py
LONG_campaign := tests/statistical/test_campaign_physics.py tests/statistical/test_peak_prior_campaigns.py tests/unit/campaign
LONG_coverage := tests/statistical/test_coverage.py
LONG_plasma := tests/unit/plasma/test_plasma_card.py tests/statistical/test_plasma_physics.py tests/statistical/test_transport_coverage.py
LONG_page := tests/browser
LONG_cluster := tests/cluster
LONG_cluster-kills := tests/chaos/test_cluster_kills.py
LONG_cluster-faults := tests/chaos/test_cluster_faults.py
$(foreach attack,$(CHAOS),$(eval LONG_chaos-$(attack) := tests/chaos/test_chaos_$(attack).py))
PART ?= $(PARTS)
UNKNOWN_PARTS = $(filter-out $(PARTS),$(PART))
GROUPS_plasma := bench
GROUPS_page := browser
GROUPS_cluster := cluster
test-long: $(VENV)/.group-test $(foreach part,$(PART),$(addprefix $(VENV)/.group-,$(GROUPS_$(firstword $(subst -, ,$(part))))))
	@$(if $(filter page,$(PART)),tools/chromium --install,:)
	@$(if $(UNKNOWN_PARTS),echo "PART must be of: $(PARTS). Got $(UNKNOWN_PARTS)" && exit 2,:)
	$(BIN)/python -m pytest -m "long and not cuda" $(foreach part,$(PART),$(LONG_$(part)))

check: $(VENV)/.group-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(NATIVE_FORMATTED)
	$(BIN)/python tools/check_licences.py

check-cuda: $(VENV)/.group-cuda-check $(VENV)/.group-test
	$(BIN)/python tools/check_cuda.py
	$(BIN)/python -m pytest -m "long and not cuda" --numprocesses 2 --dist loadfile tests/unit/native/test_cuda_engine.py tests/unit/native/test_fp64_strategies.py tests/unit/plasma/test_plasma_card.py tests/unit/campaign/test_cuda_campaigns.py tests/unit/native/test_gpu_benchmark.py

bench: $(VENV)/.group-bench
	$(BIN)/metalforge bench all

# Without network: fonts, scripts and search are files of the site. Browsers search it over http alone.
docs: $(VENV)/.group-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/ is the documentation; look at it with: python3 -m http.server -d site"

# Notebooks are made from the examples' text, and run.
notebooks: $(VENV)/.group-docs
	$(BIN)/python tools/notebooks.py examples

# The objects of the install are those of a wheel, by the same commands: only what has changed since is compiled again.
build/wheel: | $(VENV)/.installed
	@for built in build/cp*; do if [ -d "$$built" ]; then cp -a "$$built" $@ && rm $@/CMakeCache.txt; fi; done

wheel: $(VENV)/.installed | build/wheel
	$(BIN)/python -m pip wheel --no-build-isolation --no-deps --config-settings=build-dir=build/wheel --wheel-dir dist .

# The wheel in an empty environment without a compiler: a campaign of seconds.
test-wheel: $(VENV)/.installed | build/wheel
	tools/test_wheel.sh

format: $(VENV)/.group-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(NATIVE_FORMATTED)

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
