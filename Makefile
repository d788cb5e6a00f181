# Every target sets up what it needs; `make help` lists them.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
PROTO := src/penstock/server/grpc/proto/penstock/v1/penstock.proto
GENERATED := src/penstock/v1/penstock_pb2.py
HOT_MODULES := $(shell sed -n 's/^    "\(src.*\.py\)",$$/\1/p' setup.py)
PYTEST_ARGS ?=
SECONDS ?= 30
BROKERS ?= 1
KILLS ?= 100
ROUNDS ?= 10
COPIERS ?= librdkafka
NODES ?= 3
PYSPARK ?= 4.2

.PHONY: help setup demo test sparktest sparkkills guide suites kills onetopic changes foreign check lint format bench simfaults audit fuzz dev native clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml setup.py tools/setup.sh
	@tools/setup.sh $(VENV)
	@touch $@

# The installation makes them first; this is for a .proto that has changed since.
$(GENERATED): $(PROTO) | $(INSTALLED)
	@$(BIN)/python setup.py --quiet protos
	@touch $@

# Compiled modules win over the sources beside them, so they are built again when those change.
$(COMPILED): $(INSTALLED) $(HOT_MODULES)
	@PENSTOCK_NATIVE=1 $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

setup: $(INSTALLED) $(GENERATED) ## Create .venv with everything the other targets need

demo: $(COMPILED) $(GENERATED) ## The whole story: broker, metrics, Spark pipeline, a table of what happened
	@$(BIN)/penstock demo

# One worker has all the tests of Spark, and with them the one JVM.
test: $(INSTALLED) $(GENERATED) $(wildcard $(COMPILED)) ## Run the tests
	$(BIN)/python -m pytest -n auto --dist loadgroup $(PYTEST_ARGS)

sparktest: $(INSTALLED) ## Run the tests of Spark on another release of it (PYSPARK=4.2), in a venv of its own
	@tools/spark_tests.sh $(PYSPARK) tests/spark $(PYTEST_ARGS)

sparkkills: $(INSTALLED) ## Kill driver, executor and broker under the metrics pipeline, and run it on a local cluster (minutes)
	PENSTOCK_SPARK_KILLS=1 $(BIN)/python -m pytest -n 0 tests/spark/exactness tests/spark/clusters tests/spark/lake/test_crashes.py tests/spark/demo $(PYTEST_ARGS)

guide: $(INSTALLED) ## Run the examples of the guide to Spark's Kafka connector with both formats (minutes)
	PENSTOCK_GUIDE=1 $(BIN)/python -m pytest -n 0 tests/spark/connector/test_guide.py $(PYTEST_ARGS)

suites: $(INSTALLED) ## Run the own tests of librdkafka and kafka-python (BROKERS=1; minutes; needs the registries, a JDK, a C compiler)
	$(BIN)/python -m tests.compatibility.suites.run kafka-python --brokers $(BROKERS)
	$(BIN)/python -m tests.compatibility.suites.run librdkafka --brokers $(BROKERS)

kills: $(INSTALLED) ## Kill nodes and clients under consume-transform-produce (KILLS=100 COPIERS=librdkafka|java|streams)
	$(BIN)/python -m tests.cluster.transaction_kills --kills $(KILLS) --copiers $(COPIERS)

onetopic: $(INSTALLED) $(GENERATED) ## Kill nodes and gateways under one topic for all protocols at once (NODES=3 KILLS=100)
	$(BIN)/python -m tests.cluster.one_topic --nodes $(NODES) --kills $(KILLS)

changes: $(INSTALLED) ## Change certificates, passwords and rules of a secured cluster under load, with a kill in each (ROUNDS=10)
	$(BIN)/python -m tests.cluster.security_changes --rounds $(ROUNDS)

foreign: $(INSTALLED) ## Run transactions of franz-go and quixstreams, and the share consumer of franz-go (minutes; needs Go and the registries)
	$(BIN)/python -m tests.compatibility.clients.transaction_programs

lint: $(INSTALLED) $(GENERATED) ## Format check, ruff, mypy strict and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/dependency_audit.py

check: lint test ## Everything CI runs: lint and test

format: $(INSTALLED) ## Rewrite the code in house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED) ## Run the micro-benchmarks and store the figures as JSON
	$(BIN)/python -m benchmarks.micro

simfaults: $(INSTALLED) ## Plant every fault of the simulator's tests, and print the runs it takes to find it (minutes)
	$(BIN)/python -m tests.simulation.cluster.planted_faults

audit: $(INSTALLED) ## Compare what is installed with versions that are known to be bad (tools/known_bad_versions.tsv)
	$(BIN)/python tools/dependency_audit.py

schemathesis: $(INSTALLED) ## Requests made from the OpenAPI document, many of each (SCHEMATHESIS_EXAMPLES=500; minutes)
	SCHEMATHESIS_EXAMPLES=$${SCHEMATHESIS_EXAMPLES:-500} $(BIN)/python -m pytest -n0 --timeout=3600 tests/integration/gateway/test_openapi.py

fuzz: $(INSTALLED) ## Fuzz every parser (SECONDS=30 each; 600 for a full run)
	$(BIN)/python -m fuzz --seconds $(SECONDS)

dev: $(INSTALLED) ## Rerun the fast tests whenever a file changes
	$(BIN)/watchfiles --filter python '$(BIN)/python -m pytest -q -x tests/unit' src tests

native: $(COMPILED) ## Compile the hot modules with mypyc, in place (optional; needs a C compiler)

clean: ## Remove what the targets made
	rm -rf $(VENV) $(VENV)-spark-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis penstock-demo.svg
	find src -name '*.so' -delete
	rm -f src/penstock/v1/penstock_pb2*
