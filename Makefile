# The few commands of everyday work; CMake and pytest do the rest.
#   make            build the program and the Python module
#   make demo       from a bare Debian 12 machine to answers of a real model
#   make test       all C++ and Python tests
#   make check      format, rooms, tests, sanitizers
#   make bench      benchmarks; FILTER=linear picks some
#   make proof      the long runs: fuzzing, statistics, soak, reference comparison
PYTHON ?= python3
VENV := .venv
BUILD := build/release
MODEL := models/SmolLM2-135M-Instruct-Q4_1.gguf
VENV_PYTHON := $(VENV)/bin/python
FILTER ?= .
PROOF_SECONDS ?= 600

.PHONY: all build demo test check bench proof format clean sanitize
all: build

$(BUILD)/.packages: tools/install_packages.sh
	@tools/install_packages.sh
	@mkdir -p $(BUILD) && touch $@

$(VENV)/.requirements: python/requirements-dev.txt $(BUILD)/.packages
	@$(PYTHON) -m venv $(VENV)
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r python/requirements-dev.txt
	@touch $@

$(BUILD)/build.ninja: CMakePresets.json $(VENV)/.requirements
	@cmake --preset release -DPython_EXECUTABLE="$(CURDIR)/$(VENV_PYTHON)" >$(BUILD)/configure.log || { cat $(BUILD)/configure.log; exit 1; }
	@touch $@

# The program and the Python module, installed into the virtual environment.
build: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target lmdeploy_program _core check_rooms
	@cmake --install $(BUILD) --component python --prefix "$(CURDIR)/$(VENV)" >/dev/null

$(MODEL): $(VENV)/.requirements
	@tools/get_demo_model.sh $(VENV_PYTHON)
	@touch $@

demo: build $(MODEL)
	@$(VENV_PYTHON) examples/demo.py $(MODEL)

test: build $(MODEL)
	@cmake --build $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure --parallel 2 --no-tests=error
	@$(VENV_PYTHON) -m pytest tests/python -q

check: build
	@tools/check_format.sh
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory sanitize

# The tests under AddressSanitizer + UBSan, then ThreadSanitizer: all of them, or
# make sanitize PRESETS=tsan SUITES="core_test engine_test"
PRESETS := asan tsan
SUITES := all
sanitize: $(BUILD)/.packages
	@for preset in $(PRESETS); do \
	  cmake --preset $$preset >/dev/null && cmake --build --preset $$preset --target $(SUITES) && \
	  ctest --test-dir build/$$preset --output-on-failure --parallel 2 --no-tests=error \
	    --tests-regex '$(if $(filter all,$(SUITES)),.,^($(subst $() ,|,$(SUITES)))\.)' || exit 1; \
	done

bench: build $(MODEL)
	@cmake --build $(BUILD)
	@tools/run_benchmarks.sh $(BUILD) "$(FILTER)" $(MODEL)

proof: build $(MODEL)
	@cmake --build $(BUILD)
	@tools/proof.sh $(BUILD) $(PROOF_SECONDS) $(MODEL)

format:
	@find src fuzz tests python -name '*.cc' -o -name '*.h' | xargs clang-format -i

clean:
	rm -rf build $(VENV) dist
