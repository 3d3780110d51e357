# Two commands matter: `make up` runs jobwire, `make test` proves it.
# Both build their own .venv and are quick the second time.

# The Python of .venv; empty: the first one of this machine that is good enough.
PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin
MODELS := src/jobwire/handlers/llm/models/packages.txt
FACES  := src/jobwire/handlers/photo/detectors/packages.txt
PHOTOS := tests/handlers/photo/packages.txt
# The page's own scripts; .oxfmtrc.json has their format.
SCRIPTS := src/jobwire/page/static/js
# The packages that tests compare with: tests/support/thirdparty.py.
SHARED := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/jobwire-tests
# On a terminal pip shows what it downloads, and how far it is.
QUIET  := $(shell test -t 2 || echo --quiet)
PIP    := $(BIN)/python -m pip $(QUIET) --disable-pip-version-check install
# Else pip could not build a package that has no wheel.
ifneq ($(shell test -w "$$HOME" || echo no),)
export PIP_NO_CACHE_DIR := 1
endif
# Every file is checked against its hash; the whole closure is listed, so nothing is resolved.
LOCKED := $(PIP) --require-hashes --no-deps
# The build backend is among the locked packages.
SELF   := $(PIP) --no-deps --no-build-isolation --editable .
# Python 3.12 and older do not start if this file has letters that the locale does not know.
ASCII  := $(BIN)/python -ISc 'import pathlib, sys; file = pathlib.Path(sys.argv[1]); \
  text = file.read_text("utf-8").strip(); \
  text.isascii() or file.write_text("import sys; sys.path.append({!a})\n".format(text))' \
  $(VENV)/lib/python*/site-packages/_editable_impl_jobwire.pth

# Five test processes a core (JOBWIRE_TEST_WORKERS), the longest tests first: tests/support/distribution.py.
PYTEST := $(BIN)/python -m pytest --strict-config -n auto --dist=loadgroup

# Each test process would compile all test modules of a fresh clone for itself: one does so for all,
# while packages are downloaded.
COMPILE := test -f $(VENV)/.compiled || { touch $(VENV)/.compiled; $(BIN)/python -m pytest --collect-only -q; }

# What is compiled is kept, whatever the caller's shell says: the suite starts hundreds of programs.
unexport PYTHONDONTWRITEBYTECODE

# With another Python than that of .venv it is made anew.
IDENTITY := -c 'import sys; print(sys.version.split()[0], sys.base_prefix)'
ifneq ($(and $(PYTHON),$(wildcard $(BIN)/python)),)
WANTED := $(shell "$(PYTHON)" $(IDENTITY))
ifneq ($(WANTED),)
ifneq ($(WANTED),$(shell $(BIN)/python $(IDENTITY)))
$(info $(VENV) is made anew, with Python $(WANTED))
$(shell rm -rf $(VENV))
endif
endif
endif

.PHONY: up prepare test quick flaky durations coverage check format lock openapi chaos mutate bench instructions docs docs-check deploy-check sync-client queue-verbs functions clean help
.DEFAULT_GOAL := help

help: ## say what each command does
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

up: $(VENV)/.up ## run everything on this machine; pass options with ARGS="--port 9000"
	@exec $(BIN)/jobwire up $(ARGS)

prepare: $(VENV)/.dev
	@{ $(COMPILE); } > /dev/null 2>&1 & $(BIN)/python -m tests.support.thirdparty; done=$$?; wait; exit $$done

test: prepare ## run the tests; choose some with ARGS="tests/valkey -k cancel"
	@$(PYTEST) $(or $(ARGS),--durations=15)

quick: $(VENV)/.dev ## the tests that take less than half a second each
	@$(PYTEST) --quick $(ARGS)

durations: prepare ## run the tests and write tests/durations.json anew, which decides about their order
	@$(PYTEST) --write-durations

flaky: prepare ## run tests many times under bad conditions: ARGS="--times 5 --load 8 --cpu 50 --stops 3 tests/valkey"
	@$(BIN)/python -m tools.flaky $(ARGS)

coverage: prepare ## the same as test, with the lines that no test reaches; slower
	@$(PYTEST) --cov --cov-report=term

check: $(VENV)/.dev ## format, lint and types; warnings are errors, words are hints
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/oxfmt --check $(SCRIPTS) > /dev/null || { echo "the page's scripts are not formatted: make format" >&2; exit 1; }
	@$(BIN)/basedpyright
	@$(BIN)/python -m tools.word_hints

format: $(VENV)/.dev ## put the code into the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/oxfmt $(SCRIPTS)

lock: | $(BIN)/python ## write locked/*.txt anew, after a change of dependencies in pyproject.toml or constraints.txt
	@$(PIP) --constraint constraints.txt packaging
	@$(BIN)/python tools/lock.py

openapi: $(VENV)/.dev ## write tests/contracts/openapi.json anew, after a change of the HTTP API
	@$(BIN)/python -m tests.contracts.openapi_document

chaos: $(VENV)/.dev ## everything goes wrong at random, judged from outside (CHAOS_SEED repeats it); under 20 minutes
	@$(BIN)/python -m tests.chaos $(ARGS)
	@test -n "$(ARGS)" || CHAOS_S=$${CHAOS_S:-60} $(BIN)/python -m tests.chaos sentinel
	@test -n "$(ARGS)" || CHAOS_S=$${CHAOS_S:-60} $(BIN)/python -m tests.chaos releases
	@test -n "$(ARGS)" || CHAOS_S=$${CHAOS_S:-60} $(BIN)/python -m tests.chaos cluster
	@test -n "$(ARGS)" || CHAOS_RESTARTS=$${CHAOS_RESTARTS:-1000} CHAOS_LIMIT_S=$${CHAOS_LIMIT_S:-120} \
	  $(BIN)/python -m pytest tests/stories/test_server_failures.py::test_j30_workers_survive_repeated_restarts_of_the_server -q -s
	@test -n "$(ARGS)" || CHAOS_KILLS=$${CHAOS_KILLS:-200} \
	  $(BIN)/python -m pytest tests/stories/test_durable_kills.py::test_d21_workers_killed_at_random -q
	@test -n "$(ARGS)" || CHAOS_HISTORIES=$${CHAOS_HISTORIES:-1000} \
	  $(BIN)/python -m pytest tests/contracts/test_durable_histories.py -q --timeout=600
	@test -n "$(ARGS)" || CHAOS_WATCH_S=$${CHAOS_WATCH_S:-60} \
	  $(BIN)/python -m pytest tests/stories/test_event_streams.py::test_r08_readers_cut_at_random_miss_and_repeat_nothing -q
	@test -n "$(ARGS)" || CHAOS_MUTANTS=$${CHAOS_MUTANTS:-2000} \
	  $(BIN)/python -m pytest tests/handlers/photo/test_hostile.py::test_i22_damaged_files_fail_only_their_own_photo -q -s --timeout 300
	@test -n "$(ARGS)" || PREDICTIONS_ROUNDS=$${PREDICTIONS_ROUNDS:-50} JOBWIRE_TEST_VARIANTS=1 \
	  $(BIN)/python -m pytest tests/systems/predictions/test_crashes.py tests/systems/predictions/test_races.py -q -n 2
	@test -n "$(ARGS)" || JOBWIRE_TEST_VARIANTS=1 \
	  $(BIN)/python -m pytest tests/objects tests/systems/predictions tests/interop/test_predictions_foreign.py \
	  tests/handlers/llm/test_up.py tests/testing/test_installed.py -q -n 2 -k "moto or endpoint or installed"
	@test -n "$(ARGS)" || UPLOAD_BYTES=$${UPLOAD_BYTES:-2000000000} \
	  $(BIN)/python -m pytest tests/gateway/test_uploads.py -q --timeout=600
	@test -n "$(ARGS)" || IMAGES_RESULTS=$${IMAGES_RESULTS:-5000} \
	  $(BIN)/python -m pytest tests/systems/images/test_results.py::test_i03_no_result_is_lost_while_the_api_is_stopped -q --timeout=600
	@test -n "$(ARGS)" || IMAGES_UPLOADS=$${IMAGES_UPLOADS:-200} IMAGES_KILLS=$${IMAGES_KILLS:-20} \
	  IMAGES_BODY=$${IMAGES_BODY:-5000000000} \
	  $(BIN)/python -m pytest tests/systems/images/test_gateway_process.py -q --timeout=600
	@test -n "$(ARGS)" || FLEET_JOBS=$${FLEET_JOBS:-100} \
	  $(BIN)/python -m pytest tests/interop/test_bullmq_fleet.py -q --timeout=300
	@test -n "$(ARGS)" || QUEUE_CHAOS_JOBS=$${QUEUE_CHAOS_JOBS:-100000} \
	  $(BIN)/python -m pytest tests/interop/test_bullmq_chaos.py -q -s
	@test -n "$(ARGS)" || JOBWIRE_BULLMQ_EXAMPLES=$${JOBWIRE_BULLMQ_EXAMPLES:-150} \
	  $(BIN)/python -m pytest tests/interop/test_bullmq_sequences.py -q -n 2 --timeout=600
	@test -n "$(ARGS)" || PAGE_BOTH_THEMES=$${PAGE_BOTH_THEMES:-1} \
	  $(BIN)/python -m pytest tests/page/test_page.py::test_o04_axe_finds_nothing_serious \
	  tests/page/test_queues.py::test_o04_queue_screens_are_accessible_and_fit_a_phone \
	  tests/page/test_media.py::test_o04_media_screens_are_accessible_and_fit_a_phone -q
	@test -n "$(ARGS)" || OPENAPI_EXAMPLES=$${OPENAPI_EXAMPLES:-30} \
	  $(BIN)/python -m pytest tests/contracts/test_jobs_http_schemathesis.py -q --timeout=600

mutate: $(VENV)/.dev ## break copies of the product on purpose; each mutation must turn its test red
	@$(BIN)/python -m tests.mutations $(ARGS)

bench: $(VENV)/.bench ## measure, beside the peers of the field
	@$(BIN)/python -m tests.support.thirdparty
	@$(BIN)/python -m bench $(ARGS)

instructions: $(VENV)/.dev ## count the instructions of a job and of a request, and compare; needs valgrind; one or two minutes
	@$(BIN)/python -m bench.instructions $(ARGS)

docs: $(VENV)/.docs ## build the documentation and serve it on http://localhost:8000; ARGS=build only builds it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@test "$(ARGS)" = build || { echo "http://localhost:8000   (stop: Ctrl-C)"; \
	  exec $(BIN)/python -m http.server --bind 127.0.0.1 --directory dist/docs 8000; }

docs-check: $(VENV)/.dev $(VENV)/.docs ## run what the documentation says to install, and build its site; some minutes
	@$(BIN)/python -m tests.support.thirdparty
	@$(BIN)/python -m pytest tests/docs/check_installs.py tests/docs/check_wheel.py tests/docs/check_site.py -q -p no:randomly $(ARGS)

queue-verbs: $(VENV)/.dev ## write the table of a queue's verbs in the docs anew
	@$(BIN)/python -m tools.queue_verbs
deploy-check: prepare ## build the images and run everything in deploy/ in a container engine; ten minutes
	@$(BIN)/python -m pytest tests/deploy/check_containers.py -q -s -x -p no:randomly --timeout=1500 $(ARGS)

sync-client: $(VENV)/.dev ## write the sync client anew, after a change of the async one
	@$(BIN)/python tools/sync_client.py

functions: $(VENV)/.dev ## build the package of the photo bot for cloud functions: dist/jobwire-functions.zip
	@$(BIN)/python tools/function_package.py $(ARGS)

clean: ## remove everything that the other commands made in this folder
	rm -rf $(VENV) .venv-peers .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* .jobwire node_modules dist
	find . -name .git -prune -o -name __pycache__ -prune -exec rm -rf {} +
	@test ! -d "$(SHARED)" || echo "kept, because all clones share it: $(SHARED)"

$(BIN)/python:
	@python=$$(tools/find_python.sh "$(PYTHON)") && "$$python" -m venv $(VENV)

# A stamp is made anew when the locked requirements change. Of what `up` installs, Python compiles only the
# modules that it imports.
$(VENV)/.up: locked/all.txt $(MODELS) $(FACES) | $(BIN)/python
	@echo "installing jobwire into $(VENV) (once): 1 of 3, libraries and servers ..."
	@$(LOCKED) --no-compile --requirement locked/all.txt
	@echo "2 of 3, weights of the local models ..."
	@$(LOCKED) --no-compile --requirement $(MODELS) --requirement $(FACES)
	@echo "3 of 3, jobwire itself ..."
	@$(SELF)
	@$(ASCII)
	@touch $@

$(VENV)/.dev: locked/all.txt locked/dev.txt $(MODELS) $(FACES) $(PHOTOS) | $(BIN)/python
	@echo "installing jobwire and its test tools into $(VENV) (once) ..."
	@$(LOCKED) --requirement locked/all.txt --requirement locked/dev.txt
	@$(LOCKED) --requirement $(MODELS) --requirement $(FACES) --requirement $(PHOTOS)
	@$(SELF)
	@$(ASCII)
	@touch $@ $(VENV)/.up

$(VENV)/.bench: locked/bench.txt $(VENV)/.dev
	@echo "installing the peers to measure against (once) ..."
	@$(LOCKED) --requirement locked/bench.txt
	@touch $@

$(VENV)/.docs: locked/docs.txt $(VENV)/.up
	@echo "installing what the site of the documentation needs (once) ..."
	@$(LOCKED) --requirement locked/docs.txt
	@touch $@
