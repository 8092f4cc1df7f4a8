# SPDX-License-Identifier: Apache-2.0
# gpu-dra-driver. `make help` lists the targets.

SHELL      := /bin/bash
.SHELLFLAGS := -euo pipefail -c
BUILD      := .build
BIN        := $(BUILD)/bin
# component-base insists on a version that starts with vX.Y.Z.
VERSION    ?= v0.1.0+$(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
FUZZTIME   ?= 30s
# As the cluster's binaries are built, so that they share compiled packages.
CLUSTER_ENV := CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'
# Programs without debug information link in half the time, and lint vets the code. Packages that
# do not name this clone's folder are compiled once for all clones. The limit is for a test that hangs:
# one that shares the processors with compilers takes minutes.
TEST_FLAGS := -trimpath -vet=off -ldflags=-w -timeout 60m
LDFLAGS    := -s -w -X k8s.io/component-base/version.gitVersion=$(VERSION)
# NVML's own header deprecates functions that go-nvml binds.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
say         = @printf '\n==> %s\n'

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: programs ## Build all programs into .build/bin, and the simulator into .build/bin/sim
	$(CLUSTER_ENV) go -C test/cluster build -ldflags '-s -w' -o ../../$(BIN)/cluster ./cmd/cluster

.PHONY: programs
programs: image-programs
	CGO_ENABLED=1 go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/sim/ ./test/seconddriver
	@# The plugin of kubectl runs on the computers of users.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/kubectl-gpu
	@cp cmd/kubectl-gpu/kubectl_complete-gpu $(BIN)/

# The programs of the images. deployments/container/Dockerfile builds them for other architectures as well.
.PHONY: image-programs
image-programs: need-cc
	$(say) "building the programs of the images into $(BIN)"
	@mkdir -p $(BIN)/sim
	@# go-nvml loads libnvidia-ml.so with dlopen and so needs cgo. Without gRPC's
	@# traces the linker can drop unused methods, a third of the agent.
	CGO_ENABLED=1 go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gpu-kubelet-plugin ./cmd/gpu-memory-limit ./cmd/gpu-mps-supervisor
	@# Static, because it runs on the host, and because each container with a share waits for it.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gpu-memory-hook
	$(MAKE) --no-print-directory -C simulator driver BIN=$(abspath $(BIN)/sim)
	@# The hook runs on hosts with any C library or none, so it is static. It needs
	@# cgo for the sake of one subcommand that opens NVML, which the linker warns
	@# of; no CDI spec of ours calls that.
	CGO_ENABLED=1 go build -tags netgo,osusergo -trimpath -buildvcs=false -ldflags '-s -w -linkmode external -extldflags "-static"' -o $(BIN)/ github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook
	$(MAKE) --no-print-directory -C simulator probe BIN=$(abspath $(BIN))

demo demo-mig demo-fractions demo-held demo-fleet demo-topology demo-course: CLUSTER ?= demo
cluster-up cluster-down: CLUSTER ?= default

.PHONY: demo
demo: need-root build images helm ## Bring up a real cluster with a simulated DGX H100 and run demo/whole-gpu on it
	go run ./test/demo -bin $(BIN) -cluster $(CLUSTER)

.PHONY: demo-mig
demo-mig: need-root build images helm ## The same cluster with MIG on demand: demo/mig
	go run ./test/demo -bin $(BIN) -cluster $(CLUSTER) -story mig

.PHONY: demo-fractions
demo-fractions: need-root build images helm ## The same cluster with shares and time slices of GPUs: demo/fractions
	go run ./test/demo -bin $(BIN) -cluster $(CLUSTER) -story fractions

.PHONY: demo-held
demo-held: need-root build images helm ## A greedy container and its neighbour, with a driver of release 615 and an older one: demo/held
	go run ./test/demo -bin $(BIN) -cluster $(CLUSTER) -story held

.PHONY: demo-fleet
demo-fleet: need-root build images helm ## Ten A100s, 54 pods at once: demo/fleet
	go run ./test/demo -bin $(BIN) -cluster $(CLUSTER) -story fleet

.PHONY: demo-topology
demo-topology: need-root build images helm ## GPUs, NICs and CPUs that are close to each other, on three machines: demo/topology
	go run ./test/demo -bin $(BIN) -cluster $(CLUSTER) -story topology

.PHONY: kind-demo
kind-demo: need-kind images helm ## Run demo/whole-gpu on a kind cluster with simulated GPUs; needs a container engine, kind and kubectl (KIND="flags")
	go run ./test/kinddemo -bin $(BIN) -images $(BUILD)/images $(KIND)

# Before the images are built.
.PHONY: need-kind
need-kind: need-cc
	@go run ./test/kinddemo -check $(KIND)

# STORY=course-mig begins at that page.
STORY ?= course
.PHONY: demo-course
demo-course: need-root build images helm ## The exercises of a GPU course, one simulated machine after the other: demo/course
	go run ./test/demo -bin $(BIN) -cluster $(CLUSTER) -story $(STORY)

.PHONY: cluster-up
cluster-up: need-root build ## Bring up the test cluster (CLUSTER=name)
	$(BIN)/cluster up --name $(CLUSTER)

.PHONY: cluster-down
cluster-down: need-root build ## Take the test cluster down, leaving nothing behind (CLUSTER=name)
	$(BIN)/cluster down --name $(CLUSTER)

# Compilers, linters and the parts of a cluster take a fifth less processor time if Go collects their
# garbage less often.
test-steps: export GOGC := 400

CHECKED := $(addprefix -o ,need-root need-cc need-python need-chromium need-unit need-test)
BUILT   := $(addprefix -o ,build images helm foreign prometheus golangci-lint)
# A cluster with its pods keeps a core busy.
CLUSTERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN) && echo $$((cores < 3 ? cores : 3)))

# Jobs run side by side, so a failure is far above the end: what failed is printed again, as the last lines.
TEST_LOG := $(BUILD)/test.log

.PHONY: test
test: need-test ## What proves a change without a GPU: lint, unit tests, and end to end on a real cluster
	@mkdir -p $(BUILD)
	@tools/machine/machine.sh list >$(BUILD)/machine
	@status=0; GPU_DRA_TEST=1 $(MAKE) --no-print-directory $(CHECKED) test-steps 2>&1 | tee -i $(TEST_LOG) || status=1; \
	tools/machine/machine.sh compare $(BUILD)/machine || status=1; \
	[ $$status = 0 ] || { \
	  printf '\n==> what failed; %s has everything\n' $(TEST_LOG); \
	  grep -E '^FAIL|^panic: |\*\*\* \[' $(TEST_LOG) || true; \
	  grep -B 100 -A 5 -e '--- FAIL: ' $(TEST_LOG) | grep -E -e '--- FAIL: ' -e '\.go:[0-9]+: ' | cut -c 1-400 | tail -n 40 || true; \
	  exit 1; }

.PHONY: test-steps
test-steps: need-test
	@# The cluster's own test comes first: it compares the machine before and after, which it
	@# can only while no other cluster comes or goes. Tests on a cluster come last: compilers would
	@# take the time in which a pod must start. What one step has built is not built again. A step that
	@# fails does not hide what else fails.
	@trap 'exit 130' INT TERM; failed=; \
	$(MAKE) --no-print-directory -k -j2 $(CHECKED) cluster-test lint images helm foreign prometheus || failed=yes; \
	$(MAKE) --no-print-directory -k -j3 $(CHECKED) $(BUILT) unit browser chart || failed=yes; \
	$(MAKE) --no-print-directory -k -j$(CLUSTERS) $(CHECKED) $(BUILT) e2e-stories e2e-rest on-one-cluster || failed=yes; \
	[ -z "$$failed" ]

.PHONY: test-nightly
test-nightly: need-test ## What judges the driver by other programs or exhausts a space: see docs/dev/tests.md
	@trap 'exit 130' INT TERM; failed=; \
	$(MAKE) --no-print-directory -k $(CHECKED) build images helm foreign prometheus || failed=yes; \
	$(MAKE) --no-print-directory -k $(CHECKED) $(BUILT) kueue monitoring test-kueue walkthrough judges e2e-crio test-gpu-node || failed=yes; \
	for release in 1.35 1.36; do $(MAKE) --no-print-directory $(CHECKED) $(BUILT) e2e-kubernetes KUBERNETES=$$release || failed=yes; done; \
	[ -z "$$failed" ]

# Tests that only read the tree. The race detector makes them ten times slower and
# cannot find anything in them.
TREE_TESTS    := $(addprefix ./test/,docs imports markdown repository vocabulary)
# Packages without a goroutine, in which the race detector finds nothing either, and the command that
# starts the agent: the agent's own package is tested with it.
PURE_TESTS    := ./pkg/catalog ./cmd/gpu-kubelet-plugin
# Property tests that make fewer random checks under the race detector.
CHECK_TESTS   := ./pkg/claim
CLUSTER_TESTS := $(addprefix ./test/,admission e2e foreign images rights scheduler walkthrough)

.PHONY: unit
unit: need-unit unit-tree unit-pure unit-race unit-modules ## Unit, golden and property tests with the race detector; needs no root

.PHONY: unit-tree
unit-tree: need-cc
	$(say) "tests of the tree: documents, imports and generated files"
	CGO_ENABLED=1 go test $(TEST_FLAGS) $(TREE_TESTS)

.PHONY: unit-pure
unit-pure: need-cc
	$(say) "packages without a goroutine, and property tests with all random checks"
	CGO_ENABLED=1 go test $(TEST_FLAGS) $(PURE_TESTS) $(CHECK_TESTS)

.PHONY: unit-race
unit-race: need-cc
	$(say) "unit tests with the race detector"
	@# Many tests wait for deadlines, so more of them run at a time than there are cores.
	CGO_ENABLED=1 go test $(TEST_FLAGS) -race -p 3 -parallel 4 $$(go list ./... | grep -vxFf <(go list $(TREE_TESTS) $(PURE_TESTS) $(CLUSTER_TESTS)))

# Go's cache of test results does not track files outside a test's module, so every test of a
# nested module runs with -count=1. test/repository checks that.
.PHONY: unit-modules unit-simulator unit-tools
unit-modules: unit-simulator unit-tools

unit-simulator: need-cc need-python
	$(say) "unit tests of the simulator with the race detector"
	CGO_ENABLED=1 go -C simulator test -count=1 $(TEST_FLAGS) -race -p 3 -parallel 4 ./...

unit-tools:
	$(say) "unit tests of the tools"
	go -C tools test -count=1 $(TEST_FLAGS) ./...

.PHONY: chart
chart: ## The Helm chart: lint, its manifests, its refusals, and that it knows every flag
	$(say) "the Helm chart"
	$(CLUSTER_ENV) go -C test/chart test -count=1 $(TEST_FLAGS) ./...

.PHONY: kueue
kueue: need-cc golangci-lint ## What Kueue charges for claims on our slices, by its own functions; and lint of that module
	$(say) "Kueue's accounting of our slices"
	@# Kueue has its own release of Kubernetes' libraries, which take three minutes of CPU to
	@# compile: so the linter comes after the tests, which have compiled them.
	$(CLUSTER_ENV) go -C test/kueue test -count=1 $(TEST_FLAGS) ./...
	cd test/kueue && $(CLUSTER_ENV) ../../$(BIN)/golangci-lint run --allow-parallel-runners --config ../../.golangci.yml ./...

.PHONY: monitoring
monitoring: golangci-lint ## The chart's alerting and recording rules and its dashboard, with Prometheus' own engine; and lint of that module
	$(say) "rules and dashboard of the chart"
	@# As for kueue, the linter comes after the tests.
	$(CLUSTER_ENV) go -C test/monitoring test -count=1 $(TEST_FLAGS) ./...
	cd test/monitoring && $(CLUSTER_ENV) ../../$(BIN)/golangci-lint run --allow-parallel-runners --config ../../.golangci.yml ./...

.PHONY: browser
browser: need-cc need-chromium golangci-lint ## The pages of kubectl gpu ui in headless Chromium; and lint of that module
	$(say) "the pages of kubectl gpu in a browser"
	CGO_ENABLED=1 go -C test/browser test -count=1 $(TEST_FLAGS) ./...
	cd test/browser && ../../$(BIN)/golangci-lint run --allow-parallel-runners --config ../../.golangci.yml ./...

.PHONY: screenshots
screenshots: need-cc need-chromium ## Take new screenshots for the documents
	CGO_ENABLED=1 go -C test/browser test -count=1 $(TEST_FLAGS) -run '^TestScreenshots$$' . -update-screenshots

.PHONY: prometheus
prometheus: ## Build Prometheus into .build/bin, without the service discovery of clouds
	$(say) "building Prometheus"
	@mkdir -p $(BIN)
	$(CLUSTER_ENV) go -C test/monitoring build -tags remove_all_sd -ldflags '-s -w' -o ../../$(BIN)/prometheus github.com/prometheus/prometheus/cmd/prometheus

.PHONY: foreign
foreign: need-cc ## Build NVIDIA's device plugin and DRA driver into .build/bin/foreign, as judges of the simulator and of us
	$(say) "building NVIDIA's device plugin and DRA driver"
	@mkdir -p $(BIN)/foreign
	CGO_ENABLED=1 go -C test/foreign/deviceplugin build -trimpath -buildvcs=false -ldflags '-s -w' -o ../../../$(BIN)/foreign/ tool
	CGO_ENABLED=1 go -C test/foreign/dradriver build -trimpath -buildvcs=false -ldflags '-s -w' -o ../../../$(BIN)/foreign/ tool
	@# This one runs in a container that has nothing else, so it is static.
	$(CLUSTER_ENV) go -C test/foreign/dradriver build -ldflags '-s -w' -o ../../../$(BIN)/foreign/ sigs.k8s.io/dra-driver-nvidia-gpu/cmd/compute-domain-daemon
	@# Its chart and the templates that its programs read.
	ln -sfn "$$(go -C test/foreign/dradriver list -m -f '{{.Dir}}' sigs.k8s.io/dra-driver-nvidia-gpu)" $(BIN)/foreign/source

.PHONY: helm
helm: ## Build helm into .build/bin
	$(say) "building helm"
	@mkdir -p $(BIN)
	$(CLUSTER_ENV) go -C test/chart build -ldflags '-s -w' -o ../../$(BIN)/helm helm.sh/helm/v4/cmd/helm

.PHONY: manifests
manifests: ## Render the chart again: deployments/static and the chart's golden files; read the diff before you commit it
	UPDATE_GOLDEN=1 $(CLUSTER_ENV) go -C test/chart test -count=1 $(TEST_FLAGS) -run '^TestRenderings|^TestTheManifest' ./...

.PHONY: cluster-test
cluster-test: need-root build
	$(say) "the test cluster itself, and our ResourceSlices against the API server's own validation"
	$(CLUSTER_ENV) go -C test/cluster test -count=1 $(TEST_FLAGS) ./...

# Each takes a cluster that is up already, and leaves it unchanged.
IMAGE_TEST  := go test -count=1 $(TEST_FLAGS) ./test/images -bin $(abspath $(BIN)) -images $(abspath $(BUILD)/images)
RIGHTS      := go test -count=1 $(TEST_FLAGS) -v ./test/rights -bin $(abspath $(BIN))
ADMISSION   := go test -count=1 $(TEST_FLAGS) ./test/admission -bin $(abspath $(BIN))
SCHEDULER   := go test -count=1 $(TEST_FLAGS) ./test/scheduler -bin $(abspath $(BUILD)/cluster)
FOREIGN     := go test -count=1 $(TEST_FLAGS) -v ./test/foreign -bin $(abspath $(BIN))
WALKTHROUGH := go test -count=1 $(TEST_FLAGS) -timeout 2h -v ./test/walkthrough -bin $(abspath $(BIN))

.PHONY: on-one-cluster
on-one-cluster: need-root build images helm
	$(say) "scheduler, images, rights, policies and the commands of the README on one cluster"
	@trap '$(BIN)/cluster down --name test' EXIT; trap 'exit 130' INT TERM; failed=; set -x; \
	$(BIN)/cluster up --name test; \
	$(SCHEDULER) || failed=yes; $(IMAGE_TEST) -cluster test || failed=yes; $(RIGHTS) -cluster test || failed=yes; \
	$(ADMISSION) -cluster test || failed=yes; $(WALKTHROUGH) -cluster test -run TestTheDocuments/README.md || failed=yes; \
	$(MAKE) --no-print-directory $(CHECKED) $(BUILT) test-gpu-node STORIES='^(smoke|limits|fault|killed)$$' || failed=yes; \
	[ -z "$$failed" ]

.PHONY: judges
judges: need-root build images helm foreign ## NVIDIA's DRA driver and compute domains on simulated machines, on a real cluster
	$(say) "NVIDIA's programs on simulated machines"
	$(FOREIGN)

E2E := go test -count=1 $(TEST_FLAGS) -timeout 3h -v ./test/e2e -bin $(abspath $(BIN))

.PHONY: e2e
e2e: need-root build images helm prometheus foreign ## End to end on a real cluster
	$(say) "end to end on a real cluster"
	$(E2E)

# e2e in two halves of about equal time, each on its own cluster. The name of a cluster is part of the
# path of a socket, which has a limit: at most eight letters.
E2E_STORIES := ^Test(TheDemoOf|TheFleet|Migration|Twenty|AnIdleContainer)

.PHONY: e2e-stories e2e-rest
e2e-stories: need-root build images helm foreign
	$(say) "end to end on a real cluster: demos, migrations and faults"
	$(E2E) -cluster stories -run '$(E2E_STORIES)'

e2e-rest: need-root build images helm prometheus foreign
	$(say) "end to end on a real cluster: all else"
	$(E2E) -cluster e2e-rest -skip '$(E2E_STORIES)'

# Programs that start a cluster leave the release to the tool of the cluster, which reads it
# from the environment.
KUBERNETES ?= 1.36
# Before 1.36 the driver publishes whole GPUs only, and Kubernetes neither maps extended resources nor
# reports the health of devices: these are the tests of the rest.
E2E_1.35 := TestTheDemoOfWholeGPUs|TestTheAgentPublishes|TestDoctorReads|TestACorruptRecord|TestRunningPodsOutlive|TestTwentyPods|TestAPodDeletedWhile|TestUninstalling

.PHONY: e2e-kubernetes
e2e-kubernetes: need-root build images helm prometheus foreign ## End to end on another release of Kubernetes (KUBERNETES=1.35, 1.36 or 1.37.2)
	$(say) "end to end on Kubernetes $(KUBERNETES)"
	CLUSTER_KUBERNETES=$(KUBERNETES) $(E2E) -cluster k$(subst .,-,$(KUBERNETES)) -run '$(E2E_$(KUBERNETES))'

# The release of CRI-O is pinned in test/cluster/internal/build.
E2E_CRIO := TestTheDemoOf|TestSharesThatTheDriverHolds|TestTwenty

.PHONY: e2e-crio
e2e-crio: need-root need-cc build images helm prometheus foreign ## End to end with CRI-O instead of containerd: whole GPUs, shares and MIG (RUN=regexp)
	$(say) "end to end with CRI-O"
	CLUSTER_CONTAINER_RUNTIME=cri-o $(E2E) -cluster e2e-crio -run '$(or $(RUN),$(E2E_CRIO))'

.PHONY: walkthrough
walkthrough: need-root build images helm ## Every command of the documents, run on a real cluster
	$(say) "the commands of the documents on a real cluster"
	$(WALKTHROUGH)

.PHONY: rights
rights: need-root build helm ## What the driver's accounts may do and may not, tried on a real API server
	$(say) "rights of the driver's accounts on a real API server"
	$(RIGHTS)

.PHONY: scheduler
scheduler: need-root build ## The verdicts of kubectl gpu against the real scheduler, on random nodes and claims
	$(BIN)/cluster build
	$(say) "verdicts against the real scheduler"
	$(SCHEDULER) -v

.PHONY: admission
admission: need-root build helm ## What the chart's policies admit and refuse, tried on a real API server
	$(say) "policies of claims and classes on a real API server"
	$(ADMISSION)

# Kueue's release is pinned in test/kueue. Its module has its chart.
KUEUE := $(BUILD)/kueue

.PHONY: test-kueue
test-kueue: need-root build images helm ## The recipe of demo/kueue, with Kueue built from its module, on a real cluster
	$(say) "building Kueue into $(KUEUE)"
	@mkdir -p $(KUEUE)
	$(CLUSTER_ENV) go -C test/kueue build -ldflags '-s -w' -o ../../$(KUEUE)/manager sigs.k8s.io/kueue/cmd/kueue
	ln -sfn "$$(go -C test/kueue list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/charts/kueue" $(KUEUE)/chart
	$(say) "Kueue on a real cluster"
	$(E2E) -timeout 20m -run '^TestKueue' -kueue $(abspath $(KUEUE))

.PHONY: test-gpu
test-gpu: build ## Build the hardware conformance suite as one binary: run it on a machine with a GPU
	$(say) "building $(BIN)/gpu-conformance"
	@mkdir -p $(BIN)
	CGO_ENABLED=1 go test -c -trimpath -o $(BIN)/gpu-conformance ./test/gpu
	$(say) "the suite passes on the simulator; carry the binary to a machine with a GPU and run it there with -hardware=nvml"
	cd test/gpu && GPU_SIM=$(abspath $(BIN))/sim/gpu-sim ../../$(BIN)/gpu-conformance -test.v -hardware=sim:dgx-h100

.PHONY: gpu-node-folder
gpu-node-folder: need-cc build images helm
	@mkdir -p $(BIN)
	CGO_ENABLED=1 go test -c -trimpath -ldflags '-s -w' -o $(BIN)/gpu-conformance ./test/gpu
	$(say) "packing $(BUILD)/gpu-node"
	test/gpunode/pack.sh $(BIN) $(BUILD)/images $(subst +,_,$(VERSION)) $(BUILD)

# In parts, for machines that take files in pieces.
.PHONY: gpu-node
gpu-node: gpu-node-folder ## Pack a Kubernetes node with the driver, which runs its stories on any machine with a GPU
	rm -f $(BUILD)/gpu-node.tar.xz.*
	tar -C $(BUILD) -c gpu-node | xz -T0 -6 | split --bytes=50M --numeric-suffixes - $(BUILD)/gpu-node.tar.xz.
	du -h $(BUILD)/gpu-node.tar.xz.*

.PHONY: test-gpu-node
test-gpu-node: need-root gpu-node-folder ## Run the packed node, with simulated GPUs, on a machine that has nothing else (STORIES=regexp)
	$(say) "the node that travels, in an empty root without a network"
	test/gpunode/empty-root.sh $(BUILD)/gpu-node -stories '$(or $(STORIES),.)'

# A checkout of kubernetes-sigs/ai-conformance, whose tests no Go module proxy serves.
SOURCE ?=
ai-conformance: CLUSTER ?= ai-conformance

.PHONY: need-ai-conformance
need-ai-conformance:
	@if ! compgen -G '$(SOURCE)/test/*_test.go' >/dev/null; then \
	  echo 'This target runs the tests of kubernetes-sigs/ai-conformance from a checkout, and finds none in SOURCE="$(SOURCE)":' >&2; \
	  echo '  git clone https://github.com/kubernetes-sigs/ai-conformance && make ai-conformance SOURCE=$$PWD/ai-conformance' >&2; \
	  exit 1; \
	fi

.PHONY: ai-conformance
ai-conformance: need-ai-conformance need-root build images helm ## The tests of kubernetes-sigs/ai-conformance on a real cluster (SOURCE=/path/to/ai-conformance, CLUSTER=name, RUN=regexp)
	$(say) "kubernetes-sigs/ai-conformance on a real cluster"
	go run ./test/aiconformance -bin $(BIN) -cluster $(CLUSTER) -source '$(SOURCE)' $(if $(RUN),-run '$(RUN)')

# Images are called PREFIX/NAME:TAG, where TAG is VERSION with _ for +.
IMAGE_PREFIX ?= localhost/gpu-dra-driver
# When archives count as made: no clock of a building machine gets into them.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
.PHONY: images
images: programs ## Build the container images as archives into .build/images; no registry or container engine needed
	$(say) "building the images into $(BUILD)/images"
	go -C tools run -trimpath ./images -bin $(abspath $(BIN)) -out $(abspath $(BUILD)/images) -prefix $(IMAGE_PREFIX) -version '$(VERSION)'

.PHONY: image-test
image-test: need-root build images
	$(say) "the images on a real cluster"
	$(IMAGE_TEST)

.PHONY: compare
compare: need-root build foreign ## Our agent and NVIDIA's DRA driver on equal simulated nodes, in turn
	go run ./test/bench -bin $(BIN) -compare

.PHONY: scale
scale: build ## What a fleet of 1,000 nodes costs scheduler and API server, for each way to publish a node (SCALE="flags")
	$(BIN)/cluster build
	go run ./test/scale -bin $(BUILD)/cluster $(SCALE)

.PHONY: bench
bench: need-root build ## Latency, start-up and memory of the agent, or its ratios to the agent of another commit (AGAINST=BINARY)
	go run ./test/bench -bin $(BIN) $(if $(AGAINST),-against '$(AGAINST)')

.PHONY: lint
lint: need-cc golangci-lint ## gofmt, vet and golangci-lint for every module, actionlint, Vale; for test/browser, test/kueue and test/monitoring see browser, kueue and monitoring
	$(say) "lint"
	$(BIN)/actionlint -shellcheck= -pyflakes=
	git ls-files -z '*.go' '*.md' | xargs -0 $(BIN)/vale --no-global --output line
	$(BIN)/golangci-lint run --allow-parallel-runners ./...
	cd test/cluster && $(CLUSTER_ENV) ../../$(BIN)/golangci-lint run --allow-parallel-runners --config ../../.golangci.yml ./...
	cd test/chart && $(CLUSTER_ENV) ../../$(BIN)/golangci-lint run --allow-parallel-runners --config ../../.golangci.yml ./...
	cd simulator && ../$(BIN)/golangci-lint run --allow-parallel-runners --config ../.golangci.yml ./...

.PHONY: golangci-lint
golangci-lint:
	@mkdir -p $(BIN)
	go -C tools build -trimpath -o $(abspath $(BIN))/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint github.com/rhysd/actionlint/cmd/actionlint github.com/vale-cli/vale/v3/cmd/vale

.PHONY: fmt
fmt: ## Format all Go files
	gofmt -w $$(git ls-files '*.go')

.PHONY: generate
generate: ## Generate the API's deep copies, the MPS protocol's code, and the tables of the chart and the documents
	$(say) "generating code and tables"
	cd tools && go run ./deepcopy && go run ./protoc ../pkg/mps/mpsv1/supervisor.proto
	go run ./test/vocabulary

.PHONY: verify
verify: lint ## Fail if a file is not formatted, a generated file is stale, or lint finds something
	$(say) "formatting and generated files"
	@# Compared with the tree as it is, so that it works before a commit as well.
	@before=$$(git diff | sha256sum; git status --porcelain); \
	$(MAKE) --no-print-directory fmt generate; \
	after=$$(git diff | sha256sum; git status --porcelain); \
	if [ "$$before" != "$$after" ]; then \
	  echo 'These files were not formatted or not generated anew. They are now: read the diff and commit it.' >&2; \
	  git status --short >&2; exit 1; \
	fi

# Files of a release: see RELEASE.md.
RELEASE := $(BUILD)/release/$(VERSION)
# The registry that the chart of a release names. Names for one machine are not in it.
REGISTRY_VALUE := $(filter-out localhost/%,$(IMAGE_PREFIX))

.PHONY: release
release: ## Build the files of a release into .build/release: chart, manifest, kubectl gpu, checksums (VERSION=v1.2.3)
	@if ! [[ '$(VERSION)' =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$$ ]]; then \
	  echo 'A release needs a version: make release VERSION=v1.2.3' >&2; exit 1; \
	fi
	@if [ -n "$$(git status --porcelain)" ]; then \
	  echo 'A release is built from a commit, and this tree has changes: commit or remove them (git status).' >&2; exit 1; \
	fi
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	@awk -v version='$(VERSION)' '/^## / {found = $$2 == version; next} found' CHANGELOG.md >$(RELEASE)/NOTES.md
	@if ! grep -q '[^[:space:]]' $(RELEASE)/NOTES.md; then \
	  echo 'CHANGELOG.md has no section "## $(VERSION)", which becomes the notes of the release.' >&2; exit 1; \
	fi
	$(MAKE) helm kubectl-plugin VERSION=$(VERSION)
	cp $(PLUGIN)/*.tar.gz $(PLUGIN)/gpu.yaml $(RELEASE)/
	$(say) "packaging the chart into $(RELEASE)"
	@rm -rf $(BUILD)/chart && cp -r deployments/helm/gpu-dra-driver $(BUILD)/chart
	@sed --in-place 's|^  registry: ""$$|  registry: "$(REGISTRY_VALUE)"|' $(BUILD)/chart/values.yaml
	$(BIN)/helm package $(BUILD)/chart --version $(VERSION:v%=%) --app-version $(VERSION) --destination $(RELEASE)
	$(BIN)/helm template gpu-dra-driver $(RELEASE)/gpu-dra-driver-$(VERSION:v%=%).tgz \
	  --namespace gpu-dra-driver --set namespace.create=true --skip-tests >$(RELEASE)/install.yaml
	cd $(RELEASE) && sha256sum -- * >SHA256SUMS
	$(say) "$(RELEASE) is complete"

.PHONY: release-push
release-push: ## Build and push the images of a release, push its chart, sign all; needs docker, helm, jq and cosign (VERSION=v1.2.3 IMAGE_PREFIX=...)
	@# Docker's default builder cannot attest.
	docker buildx inspect gpu-dra-release >/dev/null 2>&1 || docker buildx create --name gpu-dra-release
	PREFIX=$(IMAGE_PREFIX) VERSION=$(VERSION) docker buildx bake --builder gpu-dra-release --file deployments/container/docker-bake.hcl --push --metadata-file $(BUILD)/pushed.json
	helm push $(RELEASE)/gpu-dra-driver-$(VERSION:v%=%).tgz oci://$(IMAGE_PREFIX)/charts
	jq --raw-output '.[] | "\(."image.name" | sub(":[^:]*$$"; ""))@\(."containerimage.digest")"' $(BUILD)/pushed.json | xargs --max-args=1 cosign sign --yes
	cosign sign-blob --yes --bundle $(RELEASE)/SHA256SUMS.sigstore.json $(RELEASE)/SHA256SUMS

# Platforms of the plugin of kubectl, as in deployments/krew/gpu.yaml.
PLUGIN_PLATFORMS := darwin-amd64 darwin-arm64 linux-amd64 linux-arm64 windows-amd64
PLUGIN           := $(BUILD)/kubectl-plugin

.PHONY: kubectl-plugin
kubectl-plugin: ## Build kubectl gpu for all platforms, and its manifest for krew, into .build/kubectl-plugin
	@rm -rf $(PLUGIN) && mkdir -p $(PLUGIN)
	@sed 's/@VERSION@/$(VERSION)/' deployments/krew/gpu.yaml >$(PLUGIN)/gpu.yaml
	@for platform in $(PLUGIN_PLATFORMS); do \
	  printf '\n==> kubectl gpu for %s\n' $$platform; \
	  folder=$(PLUGIN)/$$platform; archive=$(PLUGIN)/kubectl-gpu-$$platform.tar.gz; mkdir $$folder; \
	  cp LICENSE cmd/kubectl-gpu/kubectl_complete-gpu $$folder/; \
	  GOOS=$${platform%-*} GOARCH=$${platform#*-} CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $$folder/ ./cmd/kubectl-gpu; \
	  tar --create --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner --mode=a+rX --directory $$folder . | gzip --no-name >$$archive; \
	  sed --in-place "s/@SHA256-$$platform@/$$(sha256sum $$archive | cut -d ' ' -f 1)/" $(PLUGIN)/gpu.yaml; \
	  rm -r $$folder; \
	done
	go -C tools run sigs.k8s.io/krew/cmd/validate-krew-manifest -skip-install -manifest $(abspath $(PLUGIN))/gpu.yaml

.PHONY: fuzz
fuzz: ## Fuzz names, configuration, records and models (FUZZTIME=30s each)
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    printf '\n==> %s %s for %s\n' $$p $$f $(FUZZTIME); \
	    go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p; \
	  done; \
	done

.PHONY: mutants
mutants: need-cc ## Break the code on purpose, one place at a time, and fail if no test notices (ONLY=pkg/claim)
	go run ./test/mutants $(if $(ONLY),-only $(ONLY))

.PHONY: links
links: ## Fail if a link of the documents to another site is dead; needs the internet
	@git ls-files -z '*.md' | xargs -0 sed '/^ *```/,/^ *```/d' | grep -oE '(\]\(|<)https?://[^)#> ]+' | sed -E 's/^(\]\(|<)//' | sort -u | \
	grep -vE '^https?://([^/]*\.)?(example\.(com|org)|localhost|127\.0\.0\.1)' | \
	xargs -P 4 -I @ sh -c 'code=$$(curl --silent --location --output /dev/null --retry 2 --max-time 30 --write-out "%{http_code}" "@"); \
	  case $$code in 2*|3*|401|403|429|5*) ;; *) echo "dead ($$code): @"; exit 1 ;; esac'

.PHONY: golden
golden: ## Regenerate the golden files; read the diff before you commit it
	UPDATE_GOLDEN=1 go test $(TEST_FLAGS) ./api/... ./kubectl/... ./pkg/... ./cmd/...

.PHONY: instance-slices
instance-slices: need-cc ## Print the slices of ten kinds of machines, for autoscalers, into .build/instance-slices
	@mkdir -p $(BUILD)/instance-slices
	INSTANCE_SLICES=$(abspath $(BUILD)/instance-slices) go test -count=1 $(TEST_FLAGS) -run '^TestTheSlicesForAutoscalers' ./cmd/gpu-kubelet-plugin

# What a contributor's machine has and CI's has not, and the other way round, fails here first.
RUN ?= make test
.PHONY: fresh
fresh: need-root ## Run a command as on a fresh machine: Debian's base system, Go, make and git (RUN="make unit")
	@tools/needs/needs.sh --install debootstrap
	tools/fresh/fresh.sh . $(RUN)

.PHONY: clean
clean: ## Remove all build results; takes running test clusters down first
	@if [ -x $(BIN)/cluster ] && [ "$$(id -u)" = 0 ]; then $(BIN)/cluster down --all; fi
	rm -rf $(BUILD)

.PHONY: check-tools
check-tools: ## Check this machine for the tools of make unit, demo and test, and say how to get missing ones
	@tools/needs/needs.sh

# On Debian as root these install a missing tool. Everywhere else they fail and say how to get it.
.PHONY: need-cc
need-cc:
	@tools/needs/needs.sh --install go cc

.PHONY: need-chromium
need-chromium:
	@tools/needs/needs.sh --install chromium

.PHONY: need-python
need-python:
	@tools/needs/needs.sh --install python

# All that a command needs, before it does anything.
.PHONY: need-unit need-test
need-unit:
	@tools/needs/needs.sh --install go cc python
need-test:
	@tools/needs/needs.sh --install root make git go cluster cc python chromium

.PHONY: need-root
need-root:
	@tools/needs/needs.sh root make git go cluster
