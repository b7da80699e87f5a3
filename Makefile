# Two commands are all a newcomer needs: `make demo` answers the first question, `make test` tests
# the project. Each is complete on a fresh machine with Python 3.11, 3.12 or 3.13, git and make.

BIN := .venv/bin
# Without compiled modules: Python compiles at the first import, and most modules of these packages are never imported.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
QUICKSTART := experiments/quickstart.yaml
# Ignored by git, unlike reports/quickstart, which has the committed report.
DEMO := reports/demo

.PHONY: help demo install test test-slow test-all lint format wheel docs checked notebooks site picture clean

help:
	@echo "make demo     install, run $(QUICKSTART) and print its answer"
	@echo "make test     install what developers need and run the default tier of the tests"
	@echo "make test-slow run the slow tier: clusters, kills, installs, exhaustive grids"
	@echo "make test-all run both tiers"
	@echo "make lint     style, limits on complexity and density, formatting and types"
	@echo "make format   fix style and formatting where a tool can"
	@echo "make wheel    build dist/headtohead-*.whl and dist/headtohead_judge-*.whl"
	@echo "make docs     regenerate the generated pages of docs/"
	@echo "make checked  evaluate all invariants on every entry and write their page (10 minutes)"
	@echo "make notebooks execute the notebooks of docs/how-to and store their outputs"
	@echo "make site     build the documentation site into site/; warnings are errors"
	@echo "make picture  take docs/images/report.png from docs/results/quickstart.html (needs chromium)"
	@echo "make clean    remove .venv, dist and caches; runs, reports and the MLflow store stay"

demo: .venv/installed
	$(BIN)/h2h run $(QUICKSTART) --reports $(DEMO)
	@echo
	@echo "The report: $(DEMO)/quickstart/index.html (open it in a browser)"
	@echo "The runs in MLflow: $(BIN)/h2h ui"

install: .venv/installed

# In the order of the tests (tests/conftest.py): modules with few tests are the slowest, and would be the last otherwise.
TEST := $(BIN)/python -m pytest --dist loadscope --no-loadscope-reorder

test: .venv/installed-dev
	$(BIN)/ruff check .
	$(TEST) -n auto --durations 20 -m "not slow"

# More workers than cores: these tests wait for other processes in a third of their time.
test-slow: .venv/installed-dev
	$(TEST) -n $$((2 * $$(getconf _NPROCESSORS_ONLN))) --durations 40 -m slow

test-all: test test-slow

# Code within the limits on density. Each further file of benchmarks/ and docs/generator/ joins when it is within them.
DENSITY := harness/headtohead harness/judge plugins \
  $(addprefix docs/generator/,api.py checked.py reference.py) \
  $(addprefix benchmarks/,density.py judge_install.py keep_rules.py keep_rules_page.py path_of_a_run.py) \
  $(addprefix benchmarks/,recompute_keep_rules.py simulated_ledger.py simulated_rules.py withdrawn.py)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python benchmarks/density.py $(DENSITY)
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: .venv/installed-dev
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist harness/judge
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

docs: .venv/installed-dev
	$(BIN)/python docs/generator/reference.py
	$(BIN)/python docs/generator/noise.py
	PYTHONPATH=docs/generator $(BIN)/python -m catalogue

checked: .venv/installed-dev
	mkdir -p dist && $(BIN)/h2h check --format json > dist/checked.json
	$(BIN)/python docs/generator/checked.py < dist/checked.json > docs/reference/checked.md

# Not --quiet: it hides warnings from --strict too.
notebooks: .venv/installed-dev
	folder=$$(mktemp -d) && cp docs/how-to/*.ipynb $$folder && \
	  H2H_CACHE=$$folder/cache $(BIN)/jupyter nbconvert --to notebook --execute --inplace \
	  --ExecutePreprocessor.record_timing=False $$folder/*.ipynb && \
	  sed -i "s#$$folder#…#g" $$folder/*.ipynb && cp $$folder/*.ipynb docs/how-to/ && rm -r $$folder

# From the regenerated pages, where `docs` is a goal too.
site: .venv/installed-dev | $(filter docs,$(MAKECMDGOALS))
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

picture:
	chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
	  --disable-component-update --disable-sync --hide-scrollbars --window-size=1280,905 \
	  --screenshot=docs/images/report.png "file://$(CURDIR)/docs/results/quickstart.html"

clean:
	rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Stamps: an installation is repeated only when what it was made from has changed. The build backend
# comes from the constraints file too, so that nothing is fetched that was not tested.
.venv/installed: .venv/created constraints.txt pyproject.toml harness/judge/pyproject.toml
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation -e harness/judge -e .
	@touch $@

.venv/installed-dev: .venv/installed
	$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

# The first of these that is tested and can make virtual environments, or the one that is given by `make PYTHON=...`.
.venv/created:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; \
	  then echo "$$python -m venv .venv"; "$$python" -m venv .venv && touch $@; exit; fi; \
	done; \
	echo "no Python 3.11, 3.12 or 3.13 with venv was found; install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	exit 1
