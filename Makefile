# What people run. `make` alone lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo dev up down demo-real test model soak chaos mutants verify fix bench

# Arguments for the program behind a target: make demo ARGS="--workers 5 -o json"
ARGS ?=

# The product on its embedded parts: builds with a Rust toolchain and a C compiler alone.
EMBEDDED := -p muster --no-default-features

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Count words in three regions of one process, each phase behind a barrier
	@echo "building (first time: a few minutes)…" >&2
	@cargo build --locked $(EMBEDDED)
	@cargo run --quiet --locked $(EMBEDDED) -- demo mapreduce $(ARGS)

dev: ## Keep the embedded service running for your own scripts
	@echo "building (first time: a few minutes)…" >&2
	@cargo build --locked $(EMBEDDED)
	@cargo run --quiet --locked $(EMBEDDED) -- dev $(ARGS)

up: ## Start etcd, Kafka, Postgres, three agents and a coordinator on this machine
	@deploy/up $(ARGS)

demo-real: ## Run the demo on what `make up` started
	@deploy/demo-real $(ARGS)

down: ## End what `make up` started
	@deploy/down $(ARGS)

test: ## Run every test, on real services that it provisions, starts and ends itself
	@tests/run $(ARGS)

# Seeds that `make soak` runs, and after which `make mutants` gives a bug up.
SEEDS ?= 20000

soak: ## Run SEEDS fresh seeds of the simulator (make soak SEEDS=100000)
	cargo run --locked -p muster-simulation -- --seeds $(SEEDS) $(ARGS)

# States of the large world that `make model` comes to; one in ten is a distinct one.
STATES ?= 112000000

model: ## Check the protocol in small worlds to completion, in a large one for STATES visits
	cargo run --locked -p muster-model -- ending
	cargo run --locked -p muster-model -- withdrawing
	cargo run --locked -p muster-model -- breaking
	cargo run --locked -p muster-model -- taking
	cargo run --locked -p muster-model -- losing
	cargo run --locked -p muster-model -- large --states $(STATES)

# The seed of `make chaos`, and for how long it goes on; without a seed, a fresh one.
SEED ?=
MINUTES ?= 3

chaos: ## Take everything away at random from real processes (make chaos SEED=7 MINUTES=60)
	MUSTER_CHAOS_SEED=$(SEED) MUSTER_CHAOS_MINUTES=$(MINUTES) tests/run --lib chaos -- --nocapture

mutants: ## Put each known bug back; fail if the simulator, or the tests of the adapters, miss one
	cargo run --locked -p muster-simulation --features mutants -- --mutants --seeds $(SEEDS) \
	    --json benchmarks/results/mutants.json $(ARGS)
	tests/mutants --json benchmarks/results/mutants-adapters.json $(ARGS)

verify: ## Check without changing: format, lints, docs, dependency and repository rules
	cargo fmt --all --check
	cargo xtask verify-deps
	cargo xtask tidy
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy $(EMBEDDED) --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --workspace --locked
	@if cargo deny --version >/dev/null 2>&1; then \
	    cargo deny --locked --offline check bans licenses sources; \
	else echo "cargo-deny is not installed: licenses of dependencies not checked" >&2; fi
	@if command -v shellcheck >/dev/null; then \
	    git grep -lzE '^#!.*[/ ](ba)?sh' | xargs -0 shellcheck --external-sources --source-path=SCRIPTDIR; \
	else echo "shellcheck is not installed: shell scripts not checked" >&2; fi

fix: ## Mend what can be mended: format and lints
	cargo clippy --workspace --all-targets --locked --fix --allow-dirty --allow-staged
	cargo fmt --all

bench: ## Measure the ratios into benchmarks/results/latest.json
	cargo run --release --locked -p muster-benchmarks -- $(ARGS)
