# Everything a newcomer needs: `make demo`, `make test`, `make check`.
# Each makes .venv itself when it is missing or older than pyproject.toml.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
RECIPE := src/ips/recipes/megapixel-mnist.yaml

.PHONY: demo test fuzz coverage docs notebooks dist slow check clean
.DEFAULT_GOAL := demo

demo: .venv/ready
	@if [ $(RECIPE) -nt runs/demo/config.yaml ] && [ -d runs/demo ]; then \
		echo "The recipe has changed: the earlier demo is kept as runs/demo-earlier"; \
		rm -rf runs/demo-earlier && mv runs/demo runs/demo-earlier; fi
	$(BIN)/ips train megapixel-mnist --run runs/demo --resume
	@echo "Where it looked: runs/demo/figures/attention.png"

test: .venv/ready
	$(BIN)/pytest -n auto --dist loadfile  # tests of a file share what they prepare

fuzz: .venv/ready
	$(BIN)/python -m fuzz --count 100 --stored --jobs 2

coverage: .venv/ready
	$(BIN)/pytest -n auto --cov --cov-report=term --cov-report=html

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The site: build/site/index.html"

notebooks: .venv/ready
	$(BIN)/jupyter nbconvert --log-level ERROR --to html --execute --output-dir build/notebooks examples/*.ipynb
	@echo "The notebooks with their results: build/notebooks"

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# a wheel and an sdist of the last commit, without anything that is not in it; of the folder, if git does not know it
dist: .venv/ready
	rm -rf dist build/source && mkdir -p build/source
	if git rev-parse --verify --quiet HEAD >/dev/null; then git archive HEAD; \
		else tar -c --exclude=./.venv --exclude=./build --exclude=./dist --exclude=./runs .; fi | tar -x -C build/source
	$(BIN)/python -m build --no-isolation --outdir dist build/source

# what takes too long for every change
slow: docs notebooks dist
	$(BIN)/python -m tests.try_wheel dist

clean:
	rm -rf .venv runs build dist

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ips needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev,docs]'
	touch $@
