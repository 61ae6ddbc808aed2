# The commands that people and CI run. `make demo` and `make test` need nothing but Python >= 3.10.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench golden docs dist clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/posttrain-watchdog demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	for each in benchmarks/*.py; do $(BIN)/python $$each $(ARGS) || exit 1; done

golden: $(STAMP)
	WATCHDOG_GOLDEN=rewrite $(BIN)/python -m pytest -q $(ARGS)
	git --no-pager diff --stat

dist: $(STAMP)
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
