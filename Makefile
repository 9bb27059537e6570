# Nagelfluh. `make` alone lists the targets.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

# Every module is built on its own (GOWORK=off), as its users build it; go.work is for editors.
export GOWORK := off
TOOLS   := $(CURDIR)/bin/tools
MODULES := migrations sdk rig plugins/provider-kubeconfig plugins/provider-minikube plugins/provider-sameasbackend plugins/selector-gpu core e2e
PLUGINS := provider-kubeconfig provider-minikube provider-sameasbackend selector-gpu
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# One set of flags for every build: a second set would compile all of client-go a second time.
BUILD   := CGO_ENABLED=0 go build -trimpath
LDFLAGS := -s -w -X github.com/nagelfluh/nagelfluh/core/internal/cli.Version=$(VERSION)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build the server with its CLI and the plugins into bin/
	@mkdir -p bin/plugins
	echo "building bin/nagelfluh" >&2
	(cd core && $(BUILD) -ldflags '$(LDFLAGS)' -o ../bin/nagelfluh ./cmd/nagelfluh)
	for p in $(PLUGINS); do
	  echo "building bin/plugins/$$p" >&2
	  (cd plugins/$$p && $(BUILD) -ldflags '-s -w' -o ../../bin/plugins/$$p .)
	done

.PHONY: devcluster
devcluster: ## Build bin/devcluster, the throw-away local clusters (slow the first time)
	@devcluster/build.sh

.PHONY: versitygw
versitygw: ## Build bin/versitygw, the S3 server of the tests (a minute the first time)
	@rig/s3/build.sh

.PHONY: demo
demo: build devcluster ## Run jobs on two local clusters and keep serving; DEMO=once checks and ends; DEMO_KUBECONFIG=FILE uses your clusters
	@(cd e2e && $(BUILD) -o ../bin/demo ./demo)
	exec bin/demo $(if $(filter once,$(DEMO)),--once) $(if $(DEMO_KUBECONFIG),--kubeconfig '$(DEMO_KUBECONFIG)')

.PHONY: test
test: build devcluster versitygw ## Run every test of every module with the race detector
	@.ci/test.sh $(MODULES) devcluster

.PHONY: quick
quick: ## Run the fast tests only: no dev cluster, no race detector
	@export NAGELFLUH_DEVCLUSTER=off
	for m in migrations sdk rig core; do (cd $$m && go test -short ./...); done

.PHONY: bench
bench: build devcluster ## Measure on two dev clusters and print a table of ratios
	@(cd e2e && $(BUILD) -o ../bin/bench ./bench)
	exec bin/bench $(BENCH)

SEED ?= $(shell date +%s)
DURATION ?= 10m
PROCESSES ?= 2000
CLUSTERS ?= 3
.PHONY: soak
soak: build devcluster ## Break things for DURATION=10m while PROCESSES=2000 run, and prove that nothing was lost or doubled; SEED=1 repeats a plan
	@(cd e2e && $(BUILD) -o ../bin/soak ./soak)
	exec bin/soak --seed $(SEED) --duration $(DURATION) --processes $(PROCESSES) --clusters $(CLUSTERS) --replicas $(or $(REPLICAS),1) $(if $(MUTANT),--mutant $(MUTANT)) $(SOAK)

FUZZTIME ?= 10m
.PHONY: fuzz
fuzz: ## Look for texts that get past the kubeconfig policy; FUZZTIME=10m is how long
	@cd core && go test -run '^$$' -fuzz '^FuzzRebuild$$' -fuzztime $(FUZZTIME) -timeout 0 ./internal/kubeconfig

.PHONY: lint
lint: ## Check the code and the walls between packages
	@.ci/tools.sh golangci-lint buf
	$(TOOLS)/buf lint proto
	export CGO_ENABLED=0 GOFLAGS=-trimpath
	failed=
	for m in $(MODULES); do
	  echo "lint $$m" >&2
	  (cd $$m && $(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...) || failed="$$failed $$m"
	done
	[ -z "$$failed" ] || { echo "lint failed:$$failed" >&2; exit 1; }

.PHONY: generate
generate: ## Generate code from proto/ and core/api/openapi.yaml
	@.ci/tools.sh buf protoc-gen-go protoc-gen-go-grpc oapi-codegen
	export PATH=$(TOOLS):$$PATH
	(cd proto && buf generate)
	(cd core && go generate ./...)

.PHONY: verify
verify: ## Fail when generated code is stale, the contract breaks, or a platform does not build
	@.ci/verify.sh $(MODULES)

.PHONY: clean
clean: ## Remove what the build made
	@rm -rf bin
