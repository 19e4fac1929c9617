# Forgeyard: `make help` lists the targets.
SHELL := /bin/sh
export GOFLAGS := -tags=hashicorpmetrics -buildvcs=false
BIN := bin/forgeyard
CHAOS_MINUTES ?= 50
SOAK_MINUTES ?= 60
SEED ?=
FUZZ_TIME ?= 60s
# What has files of these tags.
CHAOS_TAGGED := ./testkit/chaos/... ./testkit/elections ./testkit/seeds ./testkit/fencemodel ./cluster/raftnode ./fsm
MUTANTS_TAGGED := ./migrations/mutant ./roles/store ./cluster

.DEFAULT_GOAL := help
.PHONY: help run demo test lint bench fuzz chaos soak mutants precommit build postgres

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

run: build postgres ## set up this machine and start a three-daemon fleet that runs a pipeline (Ctrl-C stops it)
	@exec $(BIN) dev --example

demo: build postgres ## the same without a person: 200 jobs, kill -9 of the leader mid-way, verdict by exit code
	@$(BIN) demo

build: ## compile bin/forgeyard
	@go build -o $(BIN) ./cmd/forgeyard

postgres:
	@.ci/ensure-postgres

test: build postgres lint ## everything that a change must pass
	FORGEYARD_BIN=$(CURDIR)/$(BIN) go run ./testkit/withpg -- go test -race -timeout 540s ./...

lint: ## gofmt, vet, staticcheck
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt-ed: $$out"; exit 1; }
	go vet ./...
	go vet -tags=hashicorpmetrics,chaos $(CHAOS_TAGGED)
	go vet -tags=hashicorpmetrics,mutants $(MUTANTS_TAGGED)
	cd testkit/peers && go vet ./...
	go tool staticcheck ./...
	go tool staticcheck -tags=hashicorpmetrics,chaos $(CHAOS_TAGGED)
	go tool staticcheck -tags=hashicorpmetrics,mutants $(MUTANTS_TAGGED)

bench: build postgres ## figures, measured side by side (never asserted)
	FORGEYARD_BIN=$(CURDIR)/$(BIN) go run ./testkit/withpg -- .ci/bench

fuzz: ## every fuzz target for FUZZ_TIME each
	@.ci/fuzz $(FUZZ_TIME)

chaos: build postgres ## faults by seed for CHAOS_MINUTES in all; SEED=n replays one seed 50 times, and draws the rest by it
	@FORGEYARD_BIN=$(CURDIR)/$(BIN) go run ./testkit/withpg -- .ci/chaos $(CHAOS_MINUTES) $(SEED)

soak: build postgres ## a fleet with few faults for SOAK_MINUTES: what its processes hold must stay flat
	@FORGEYARD_BIN=$(CURDIR)/$(BIN) .ci/soak $(SOAK_MINUTES)

mutants: postgres ## plants each fault of testkit/mutants and fails unless its test catches it
	@go run ./testkit/withpg -- go run ./testkit/mutants/kill

precommit: test ## what to run before a commit
