# Everything runs inside .venv; "make help" lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
STAMP := $(VENV)/.installed
# What "make setup" installs, by extras of pyproject.toml; a new part of the project adds its extra to a line.
EXTRAS := search,train,open-clip,backbones,proposals,milvus,postgres,parquet,raw,jxl
EXTRAS := $(EXTRAS),tensorboard,samples,docs,dev
EXTRAS := $(EXTRAS),ray,remote,adapters,mteb,trackers,mcp
PYTEST_ARGS ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo photo test lint format bench docs installs browser dist container clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

setup: $(STAMP)  ## create .venv and install everything into it

# torch comes first and alone: resolved together with the rest, pip may download several builds of it. The extra "ocr"
# is installed by hand, without its OpenCV: two of them in one environment overwrite each other.
$(STAMP): pyproject.toml packages/photo/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make setup PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@$(PIP) --editable packages/photo --editable ".[$(EXTRAS)]"
	@$(PIP) colorlog omegaconf pyclipper shapely six
	@$(PIP) --no-deps rapidocr
	@touch $@

# The folder is passed through the environment, where spaces, quotes and dollars in its name need no escaping.
demo: export VSE_PHOTOS := $(value PHOTOS)
demo: setup  ## train and compare on generated scenes, then open the search page (PHOTOS=~/Pictures: over your own images)
	@$(BIN)/vse demo $${VSE_PHOTOS:+--photos "$$VSE_PHOTOS"}

# Every step resumes after an interruption and skips what is done.
photo: export VSE_DATA := $(value DATA)
photo: export VSE_COCO := $(value COCO)
photo: setup  ## retrain the bundled photo model and replace it (DATA=the Flickr8k folder, COCO=the COCO folder)
	@test -n "$$VSE_DATA" && test -n "$$VSE_COCO" || { echo "make photo DATA=DIR COCO=DIR: the folders of Flickr8k and COCO are needed"; exit 2; }
	@$(BIN)/python tools/photo_features.py --flickr8k "$$VSE_DATA" --coco "$$VSE_COCO" --into runs/photo-features
	@$(BIN)/python tools/photo_heads.py runs/photo-features --into runs/photo-heads
	@$(BIN)/python tools/photo_train.py runs/photo-features --start runs/photo-heads/last --into runs/photo --set epochs=4
	@$(BIN)/vse calibrate runs/photo/last --data "$$VSE_COCO" --split dev
	@$(BIN)/vse export runs/photo/last src/vse/models/shipped/photo --precision mixed --data "$$VSE_DATA" --split test
	@$(BIN)/python benchmarks/everyday.py src/vse/models/shipped/photo --data "$$VSE_COCO"

test: setup browser lint  ## lint, then run the tests (PYTEST_ARGS="-k name" selects, WORKERS=0 uses one process)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

lint: setup  ## check style, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

format: setup  ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup  ## run the speed comparisons
	@$(BIN)/python benchmarks/pooling.py
	@$(BIN)/python benchmarks/evaluation.py
	@$(BIN)/python benchmarks/training.py
	@$(BIN)/python benchmarks/service.py

docs: setup  ## build the documentation site into site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "to read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

installs: setup  ## measure each install in a clean environment (downloads about 1 GB)
	@$(BIN)/python benchmarks/installs.py

dist: setup  ## build both distributions into dist/ and check them; nothing is uploaded
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist packages/photo
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/twine check --strict dist/*

container:  ## build the image vse with podman or docker (BUILDER=docker)
	@$(or $(BUILDER),podman) build --tag vse --file Containerfile .

browser:  ## install Debian's chromium for the browser tests, where possible
	@if command -v chromium >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  { apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 \
	    || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1; } \
	  || echo "note: chromium could not be installed; browser tests are skipped"; \
	else echo "note: chromium not found; browser tests are skipped"; fi

clean:  ## remove caches and build output (.venv and results stay)
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
