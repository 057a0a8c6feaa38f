# hp: `make train` and `make check` do everything, from a fresh Debian on; `make help` lists the rest.

PRESET ?= release
PYTHON ?= python3
CONFIG ?= configs/tiny_text.yaml

BUILD := build$(if $(filter-out release,$(PRESET)),-$(PRESET))
TEXT := build/data/licenses.txt

# HP_PYTHON names a Python that has the requirements already; without it there is a virtual environment.
ENVIRONMENT := .venv
ifeq ($(HP_PYTHON),)
  RUN_PYTHON := $(ENVIRONMENT)/bin/python
else
  RUN_PYTHON := $(HP_PYTHON)
endif
OPTIONS := -DTORCH_DIR=$(abspath $(TORCH_DIR)) -DHP_PYTHON=$(HP_PYTHON) $(CMAKE_OPTIONS)

.NOTPARALLEL:
.PHONY: help train train-parallel check check-all bench build configure deps format clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#: \?//p' Makefile

#: make train        train the tiny model on English text (CONFIG=..., ARGS='--set training.steps=50')
train: build $(TEXT)
	$(BUILD)/bin/hp-run train $(CONFIG) $(ARGS)

#: make train-parallel the same on four processes, tensor parallelism 2 x FSDP 2 (ARGS=...)
train-parallel: build $(TEXT)
	$(BUILD)/bin/hp-run train configs/tiny_text_tp2_fsdp2.yaml --nproc 4 $(ARGS)

#: make check        build and run all tests; the last line counts them (FILTER=regex for some)
check: build
	@$(RUN_PYTHON) scripts/run-tests.py --build $(BUILD) $(if $(FILTER),--filter '$(FILTER)')

#: make check-all    all tests, the long ones too, in the presets release and asan: an hour
check-all:
	@$(MAKE) --no-print-directory check-long PRESET=release
	@$(MAKE) --no-print-directory check-long PRESET=asan
.PHONY: check-long
check-long: build
	@$(RUN_PYTHON) scripts/run-tests.py --build $(BUILD) --long --timeout 3600 $(if $(FILTER),--filter '$(FILTER)')

#: make bench        measure speed, memory and start-up times
bench: build $(TEXT)
	$(RUN_PYTHON) bench/run.py --build $(BUILD) $(ARGS)
	$(RUN_PYTHON) bench/planning.py --build $(BUILD)

#: make build        install what is missing and build (PRESET=release|debug|asan, JOBS=n)
build: configure
	@cmake --build $(BUILD) $(if $(JOBS),-j $(JOBS))

# Ninja configures again by itself when a CMake file changes; here it is for a new folder and for other options.
configure: deps
	@if [ ! -f $(BUILD)/build.ninja ] || [ "$$(cat $(BUILD)/hp-options 2>/dev/null)" != '$(OPTIONS)' ]; then \
	  rm -f $(BUILD)/hp-options && cmake --preset $(PRESET) $(OPTIONS) && echo '$(OPTIONS)' >$(BUILD)/hp-options; \
	fi

#: make deps         install the Debian packages and Python packages that are missing
deps:
	@scripts/install-packages.sh $(if $(HP_PYTHON),,$$($(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv))
ifeq ($(HP_PYTHON),)
	@scripts/make-environment.sh $(ENVIRONMENT) $(PYTHON)
endif

$(TEXT): scripts/prepare-text.py
	@$(PYTHON) scripts/prepare-text.py $@

#: make format       apply clang-format to all sources
format:
	clang-format -i $$(git ls-files '*.h' '*.cpp')

#: make clean        remove what was built; the Python packages stay
clean:
	rm -rf build build-debug build-asan

#:
#: TORCH_DIR=folder  use the LibTorch there, which holds include/ and lib/
#: PYTHON=program    the Python 3.11 or later to make .venv with
#: HP_PYTHON=program a Python that has what requirements.txt lists; no .venv is made
#: CMAKE_OPTIONS=... more for the configuration, such as -DHP_BUILD_RUNTIME=OFF
