# Every command sets itself up: .venv is made and filled when it is missing or pyproject.toml changed.
.DEFAULT_GOAL := help
.PHONY: help demo demo-emu test test-all test-tf lint types generated format bench clean setup setup-dev
.NOTPARALLEL:

export PATH := $(CURDIR)/.venv/bin:$(PATH)
FIRMWARE_C = $(shell find firmware -name '*.[ch]')
PYTEST_OPTIONS ?= -q
TF_SEED ?= $(shell date +%Y%m%d)

help: ## Print what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
		printf 'make %-10s %s\n' "$$name" "$$what"; done

DIGITS = examples/digits_gist.toml
FEWER = --set experiment.nodes=8 --set experiment.rounds=10

demo: setup ## Run one experiment as a simulation, as processes and emulated; compare bit by bit; export a model
	@rm -rf runs/demo-*
	gossamer run $(DIGITS) --on sim --engine numpy --out runs/demo-sim </dev/null
	gossamer run $(DIGITS) --on host --out runs/demo-host </dev/null
	gossamer compare runs/demo-sim runs/demo-host --report runs/demo.html </dev/null
	gossamer quantize-run runs/demo-sim --name digits --out runs/demo-model </dev/null
	@if gossamer toolchain install </dev/null; then $(MAKE) --no-print-directory demo-emu; \
		else echo "demo: done, but for the emulated nodes (see above)"; fi

demo-emu: # of demo, where there is an emulator
	@rm -rf runs/demo-emu*
	gossamer run $(DIGITS) $(FEWER) --on emu --out runs/demo-emu </dev/null
	gossamer run $(DIGITS) $(FEWER) --on host --out runs/demo-emu-host </dev/null
	gossamer run $(DIGITS) $(FEWER) --on sim --engine numpy --out runs/demo-emu-sim </dev/null
	gossamer compare runs/demo-emu-sim runs/demo-emu-host runs/demo-emu </dev/null

test: setup-dev ## Run the tests
	python -m pytest $(PYTEST_OPTIONS) </dev/null

test-all: setup-dev ## Run the tests, the slow ones too
	python -m pytest $(PYTEST_OPTIONS) -m '' </dev/null

test-tf: ## Test what needs TensorFlow (2 GB in .venv-tf): train, quantize, and compare freshly converted models
	@scripts/setup tf
	@mkdir -p build
	.venv-tf/bin/python -m pytest $(PYTEST_OPTIONS) tests/models </dev/null
	.venv-tf/bin/python -m tests.tflite.tf_corpus --seed $(TF_SEED) --count 30 --out build/corpus.zip </dev/null
	GOSSAMER_TF_CORPUS=build/corpus.zip .venv-tf/bin/python -m pytest $(PYTEST_OPTIONS) tests/tflite/test_tf_corpus.py </dev/null

lint: setup-dev ## Check style and layout
	ruff check
	ruff format --check
	clang-format --dry-run -Werror $(FIRMWARE_C)

types: setup-dev ## Check types
	mypy

generated: setup-dev ## Check that generated files are up to date
	python -m codegen.spec_headers --check

format: setup-dev ## Lay out Python and C, and write generated files
	ruff check --fix --exit-zero
	ruff format
	python -m codegen.spec_headers
	clang-format -i $(FIRMWARE_C)

bench: setup ## Run the benchmarks
	@set -e; for file in benchmarks/*.py; do echo "$$file"; python "$$file" </dev/null; done

clean: ## Remove what make made; your runs stay
	rm -rf .venv .venv-tf build dist runs/demo-* runs/demo.html .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@scripts/setup base

setup-dev:
	@scripts/setup dev
