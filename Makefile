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

# A tool that another module pins is built again when the module changes.
TOOLS := $(addprefix $(BIN)/,helm golangci-lint prometheus foreign/built)

.PHONY: build
build: image-programs ## Build all programs into .build/bin, and the simulator into .build/bin/sim
	CGO_ENABLED=1 go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/sim/ ./test/e2e/seconddriver
	@# The plugin of kubectl runs on the computers of users.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/kubectl-gpu
	@cp cmd/kubectl-gpu/kubectl_complete-gpu $(BIN)/
	$(CLUSTER_ENV) go -C test/cluster build -ldflags '-s -w' -o ../../$(BIN)/cluster ./cmd/cluster

# The programs of the images. deployments/container/Dockerfile builds them for other architectures as well.
.PHONY: image-programs
image-programs: need-cc
	$(say) "building the programs of the images into $(BIN)"
	@mkdir -p $(BIN)/sim
	@# go-nvml loads libnvidia-ml.so with dlopen and so needs cgo. Without gRPC's
	@# traces the linker can drop unused methods, a third of the agent.
	CGO_ENABLED=1 go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gpu-kubelet-plugin ./cmd/gpu-memory-limit ./cmd/gpu-mps-supervisor
	@# Static, because the hook runs on the host, and because each container with a share waits for it.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gpu-memory-hook ./cmd/gpu-room
	$(MAKE) --no-print-directory -C simulator driver BIN=$(abspath $(BIN)/sim)
	@# The hook runs on hosts with any C library or none, so it is static. It needs
	@# cgo for the sake of one subcommand that opens NVML, which the linker warns
	@# of; no CDI spec of ours calls that.
	CGO_ENABLED=1 go build -tags netgo,osusergo -trimpath -buildvcs=false -ldflags '-s -w -linkmode external -extldflags "-static"' -o $(BIN)/ github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook
	$(MAKE) --no-print-directory -C simulator probe BIN=$(abspath $(BIN))

# Images are called PREFIX/NAME:TAG, where TAG is VERSION with _ for +.
IMAGE_PREFIX ?= localhost/gpu-dra-driver
.PHONY: images
images: build ## Build the container images as archives into .build/images; no registry or container engine needed
	$(say) "building the images into $(BUILD)/images"
	go -C tools run -trimpath ./images -bin $(abspath $(BIN)) -out $(abspath $(BUILD)/images) -prefix $(IMAGE_PREFIX) -version '$(VERSION)'

$(BIN)/helm: test/chart/go.mod test/chart/go.sum
	$(say) "building helm"
	@mkdir -p $(@D)
	$(CLUSTER_ENV) go -C test/chart build -ldflags '-s -w' -o $(abspath $@) helm.sh/helm/v4/cmd/helm

# Vale has a parser in C++.
$(BIN)/golangci-lint: tools/go.mod tools/go.sum | need-cc-cxx
	$(say) "building golangci-lint, actionlint and Vale"
	@mkdir -p $(@D)
	go -C tools build -trimpath -o $(abspath $(@D))/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint github.com/rhysd/actionlint/cmd/actionlint github.com/vale-cli/vale/v3/cmd/vale

# Without the service discovery of clouds.
$(BIN)/prometheus: test/chart/go.mod test/chart/go.sum
	$(say) "building Prometheus"
	@mkdir -p $(@D)
	$(CLUSTER_ENV) go -C test/chart build -tags remove_all_sd -ldflags '-s -w' -o $(abspath $@) github.com/prometheus/prometheus/cmd/prometheus

# Each program of another project has its pins in a file of one module.
PINS := test/cluster/pins
# NVIDIA's device plugin and DRA driver judge the simulator and us. The link named source is to the chart of the
# DRA driver and the templates that its programs read.
$(BIN)/foreign/built: $(addprefix $(PINS)/,deviceplugin.mod deviceplugin.sum dradriver.mod dradriver.sum) | need-cc
	$(say) "building NVIDIA's device plugin and DRA driver"
	@mkdir -p $(@D)
	CGO_ENABLED=1 go -C $(PINS) build -modfile deviceplugin.mod -trimpath -buildvcs=false -ldflags '-s -w' -o $(abspath $(@D))/ tool
	CGO_ENABLED=1 go -C $(PINS) build -modfile dradriver.mod -trimpath -buildvcs=false -ldflags '-s -w' -o $(abspath $(@D))/ tool
	@# This one runs in a container that has nothing else, so it is static.
	$(CLUSTER_ENV) go -C $(PINS) build -modfile dradriver.mod -ldflags '-s -w' -o $(abspath $(@D))/ sigs.k8s.io/dra-driver-nvidia-gpu/cmd/compute-domain-daemon
	ln -sfn "$$(go -C $(PINS) list -modfile dradriver.mod -m -f '{{.Dir}}' sigs.k8s.io/dra-driver-nvidia-gpu)" $(@D)/source
	@touch $@

# STORY is a folder of demo: whole-gpu, mig, fractions, held, fleet, topology, course, or a page of
# the course at which it begins, such as course-mig.
STORY ?= whole-gpu
.PHONY: demo
demo: need-root images $(BIN)/helm ## A real cluster with simulated GPUs, and one of the demos on it (STORY=mig, fractions, held, fleet, topology, course)
	go run ./test/demo -bin $(BIN) -cluster $(or $(CLUSTER),demo) -story $(STORY)

# Compilers, linters and the parts of a cluster take a fifth less processor time if Go collects their
# garbage less often.
test-steps: export GOGC := 400

# For a step of make test, whose tools and programs are there.
BUILT := NEEDS=there $(addprefix -o ,build images $(TOOLS))
# A cluster with its pods keeps a core busy.
CLUSTERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN) && echo $$((cores < 3 ? cores : 3)))

# Jobs run side by side, so a failure is far above the end: what failed is printed again, as the last lines.
TEST_LOG := $(BUILD)/test.log

.PHONY: test
test: need-root-cc-cxx-python-chromium ## What proves a change without a GPU: lint, unit tests, and end to end on a real cluster
	@mkdir -p $(BUILD)
	@tools/machine/machine.sh list >$(BUILD)/machine
	@status=0; GPU_DRA_TEST=1 $(MAKE) --no-print-directory NEEDS=there test-steps 2>&1 | tee -i $(TEST_LOG) || status=1; \
	tools/machine/machine.sh compare $(BUILD)/machine || status=1; \
	[ $$status = 0 ] || { \
	  printf '\n==> what failed; %s has everything\n' $(TEST_LOG); \
	  grep -E '^FAIL|^panic: |\*\*\* \[' $(TEST_LOG) || true; \
	  grep -B 100 -A 5 -e '--- FAIL: ' $(TEST_LOG) | grep -E -e '--- FAIL: ' -e '\.go:[0-9]+: ' | cut -c 1-400 | tail -n 40 || true; \
	  exit 1; }

.PHONY: test-steps
test-steps:
	@# The cluster's own test comes first: it compares the machine before and after, which it
	@# can only while no other cluster comes or goes. Tests on a cluster come last: compilers would
	@# take the time in which a pod must start. What one step has built is not built again. A step that
	@# fails does not hide what else fails.
	@trap 'exit 130' INT TERM; failed=; \
	$(MAKE) --no-print-directory -k -j2 module-cluster lint images $(TOOLS) || failed=yes; \
	$(MAKE) --no-print-directory -k -j3 $(BUILT) unit browser module-chart || failed=yes; \
	$(MAKE) --no-print-directory -k -j$(CLUSTERS) $(BUILT) e2e-stories e2e-rest on-cluster on-cluster-scheduler on-cluster-gpu-node || failed=yes; \
	[ -z "$$failed" ]

.PHONY: test-nightly
test-nightly: need-root-cc-cxx-python-chromium ## What judges the driver by other programs or exhausts a space: see docs/dev/tests.md
	@trap 'exit 130' INT TERM; failed=; \
	$(MAKE) --no-print-directory -k images $(TOOLS) || failed=yes; \
	$(MAKE) --no-print-directory -k $(BUILT) judges test-gpu-node || failed=yes; \
	$(MAKE) --no-print-directory simulate LIVES=2000 EVENTS=500 || failed=yes; \
	CLAIMS=100000 go test -count=1 $(TEST_FLAGS) -run '^TestClaimsLeaveNothingInTheAgent$$' ./pkg/agent || failed=yes; \
	go test -count=1 $(TEST_FLAGS) -timeout 0 -run '^TestRoomInRandomFleets$$' ./kubectl/fleet -room-fleets 10000 -room-seed $$RANDOM || failed=yes; \
	$(MAKE) --no-print-directory $(BUILT) on-cluster TESTS="walkthrough nodes" || failed=yes; \
	$(MAKE) --no-print-directory $(BUILT) e2e RUNTIME=cri-o || failed=yes; \
	for release in 1.35 1.36; do $(MAKE) --no-print-directory $(BUILT) e2e KUBERNETES=$$release || failed=yes; done; \
	[ -z "$$failed" ]

# Tests that only read the tree. The race detector makes them ten times slower and
# cannot find anything in them.
TREE_TESTS    := $(addprefix ./test/tree/,docs imports repository vocabulary)
# Packages without a goroutine, in which the race detector finds nothing either, and the command that
# starts the agent: the agent's own package is tested with it.
PURE_TESTS    := ./pkg/catalog ./cmd/gpu-kubelet-plugin
# Property tests that make fewer random checks under the race detector.
CHECK_TESTS   := ./pkg/claim
# Tests that need a cluster or a browser.
OTHER_TESTS := ./test/browser ./test/judges/foreign ./test/e2e $(addprefix ./test/e2e/,admission images nodes rights scheduler walkthrough)

.PHONY: unit
unit: need-go-cc-python unit-plain unit-race ## Unit, golden and property tests with the race detector; needs no root

.PHONY: unit-plain
unit-plain: need-cc-python
	$(say) "tests of the tree, packages without a goroutine, and property tests with all random checks"
	CGO_ENABLED=1 go test $(TEST_FLAGS) $(TREE_TESTS) $(PURE_TESTS) $(CHECK_TESTS)
	$(say) "lives of a simulated node, see docs/dev/simulation.md"
	CGO_ENABLED=1 go test $(TEST_FLAGS) -run '^TestSimulation$$' ./pkg/agent -rapid.checks=40
	$(say) "unit tests of the simulator with the race detector, and of the tools"
	@# Go's cache of test results does not track files outside a test's module, so every test of a
	@# nested module runs with -count=1. test/tree/repository checks that.
	CGO_ENABLED=1 go -C simulator test -count=1 $(TEST_FLAGS) -race -p 3 -parallel 4 ./...
	go -C tools test -count=1 $(TEST_FLAGS) ./...
	@# Its drivers mostly wait.
	go -C dra-sanity test -count=1 $(TEST_FLAGS) -parallel 8 ./...

.PHONY: simulate
simulate: need-go-cc ## Lives of a simulated node until a promise breaks (LIVES=n, EVENTS=n in each, SEED=n, see docs/dev/simulation.md)
	CGO_ENABLED=1 GOGC=400 EVENTS=$(EVENTS) go test -v -count=1 $(TEST_FLAGS) -timeout 0 -exec 'env TMPDIR=/dev/shm' -run '^TestSimulation$$' ./pkg/agent -rapid.checks=$(or $(LIVES),100000000) -rapid.seed=$(or $(SEED),0)

.PHONY: unit-race
unit-race: need-cc
	$(say) "unit tests with the race detector"
	@# Many tests wait for deadlines, so more of them run at a time than there are cores.
	CGO_ENABLED=1 go test $(TEST_FLAGS) -race -p 3 -parallel 4 $$(go list ./... | grep -vxFf <(go list $(TREE_TESTS) $(PURE_TESTS) $(OTHER_TESTS)))

.PHONY: browser
browser: need-cc-chromium ## The pages of kubectl gpu ui in headless Chromium
	$(say) "the pages of kubectl gpu in a browser"
	CGO_ENABLED=1 go test -count=1 $(TEST_FLAGS) ./test/browser

# The tests of one of the modules in test, and then its lint, for which they have compiled the dependencies:
# chart (with its alerts and dashboard, by Prometheus' own engine) and cluster.
module-cluster: need-root build
module-%: $(BIN)/golangci-lint
	$(say) "the tests of test/$*"
	$(CLUSTER_ENV) go -C test/$* test -count=1 $(TEST_FLAGS) ./...
	cd test/$* && $(CLUSTER_ENV) $(abspath $(BIN)/golangci-lint) run --allow-parallel-runners --config $(abspath .golangci.yml) ./...

# Each takes a cluster that is up already, and leaves it unchanged.
ON_CLUSTER := go test -count=1 $(TEST_FLAGS) -timeout 2h -v -run '$(or $(RUN),.)'
TESTS      ?= images rights admission readme
.PHONY: on-cluster
on-cluster: CLUSTER ?= test
on-cluster: need-root images $(BIN)/helm ## Tests on one cluster (TESTS="scheduler images rights admission walkthrough nodes", RUN=regexp, DURATION=2m for nodes)
	$(say) "on one cluster: $(TESTS)"
	@trap 'exit 130' INT TERM; failed=; set -x; \
	$(if $(filter-out scheduler gpu-node,$(TESTS)),trap '$(BIN)/cluster down --name $(CLUSTER)' EXIT; $(BIN)/cluster up --name $(CLUSTER);) \
	for test in $(TESTS); do case $$test in \
	  scheduler) $(ON_CLUSTER) ./test/e2e/scheduler -bin $(abspath $(BUILD)/cluster) ;; \
	  images) $(ON_CLUSTER) ./test/e2e/images -bin $(abspath $(BIN)) -images $(abspath $(BUILD)/images) -cluster $(CLUSTER) ;; \
	  nodes) $(ON_CLUSTER) ./test/e2e/nodes -bin $(abspath $(BIN)) -cluster $(CLUSTER) -duration $(or $(DURATION),1h) ;; \
	  readme) $(ON_CLUSTER) ./test/e2e/walkthrough -bin $(abspath $(BIN)) -cluster $(CLUSTER) -run TestTheDocuments/README.md ;; \
	  gpu-node) $(MAKE) --no-print-directory $(BUILT) test-gpu-node STORIES='^(smoke|limits|fault|killed)$$' ;; \
	  *) $(ON_CLUSTER) ./test/e2e/$$test -bin $(abspath $(BIN)) -cluster $(CLUSTER) ;; \
	esac || failed=yes; done; [ -z "$$failed" ]

# The tests that need no shared cluster run beside those that do.
on-cluster-%:
	@$(MAKE) --no-print-directory $(BUILT) on-cluster TESTS=$*

E2E := go test -count=1 $(TEST_FLAGS) -timeout 3h -v ./test/e2e -bin $(abspath $(BIN))
# Takes a cluster down at the end of a recipe unless it was up before. Its tests do so too, but not if they
# reach their time limit.
DOWN_AFTER = $(BIN)/cluster status --name $(1) >/dev/null 2>&1 || trap '$(BIN)/cluster down --name $(1)' EXIT;

# Kueue's module has its chart.
KUEUE := $(BUILD)/kueue
.PHONY: judges
judges: need-root images $(BIN)/helm $(BIN)/foreign/built ## NVIDIA's DRA driver, compute domains, Karpenter and Kueue with simulated machines, on a real cluster
	$(say) "NVIDIA's programs on simulated machines"
	$(call DOWN_AFTER,foreign) \
	go test -count=1 $(TEST_FLAGS) -v ./test/judges/foreign -bin $(abspath $(BIN)) -cluster foreign
	$(say) "what Kueue charges for claims"
	$(CLUSTER_ENV) go -C $(PINS) test -modfile kueue.mod -count=1 $(TEST_FLAGS) ./kueue
	$(say) "which claims make Karpenter add a node"
	$(CLUSTER_ENV) go -C $(PINS) test -modfile karpenter.mod -count=1 $(TEST_FLAGS) ./karpenter
	$(say) "building Kueue into $(KUEUE)"
	@mkdir -p $(KUEUE)
	$(CLUSTER_ENV) go -C $(PINS) build -modfile kueue.mod -ldflags '-s -w' -o $(abspath $(KUEUE))/manager sigs.k8s.io/kueue/cmd/kueue
	ln -sfn "$$(go -C $(PINS) list -modfile kueue.mod -m -f '{{.Dir}}' sigs.k8s.io/kueue)/charts/kueue" $(KUEUE)/chart
	$(say) "Kueue on a real cluster"
	$(call DOWN_AFTER,e2e) \
	$(E2E) -cluster e2e -timeout 20m -run '^TestKueue' -kueue $(abspath $(KUEUE))

# Before 1.36 the driver publishes whole GPUs only, and Kubernetes neither maps extended resources nor
# reports the health of devices: these are the tests of the rest.
E2E_1.35  := TestTheDemoOfWholeGPUs|TestTheAgentPublishes|TestDoctorReads|TestRunningPodsOutlive|TestTwentyPods|TestAPodDeletedWhile|TestUninstalling
# The release of CRI-O is pinned in test/cluster/internal/build.
E2E_cri-o := TestTheDemoOf|TestSharesThatTheDriverHolds|TestTwenty
# Programs that start a cluster leave its release and runtime to the tool of the cluster, which reads
# them from the environment.
.PHONY: e2e
e2e: need-root images $(TOOLS) ## End to end on a real cluster (RUN=regexp, KUBERNETES=1.35, 1.36 or 1.37.2, RUNTIME=cri-o)
	$(say) "end to end on a real cluster"
	$(if $(KUBERNETES),export CLUSTER_KUBERNETES=$(KUBERNETES);) $(if $(RUNTIME),export CLUSTER_CONTAINER_RUNTIME=$(RUNTIME);) \
	$(call DOWN_AFTER,$(or $(CLUSTER),e2e)) \
	$(E2E) -cluster $(or $(CLUSTER),e2e) -run '$(or $(RUN),$(E2E_$(or $(KUBERNETES),$(RUNTIME))))'

# e2e in two halves of about equal time, each on its own cluster. The name of a cluster is part of the
# path of a socket, which has a limit: at most eight letters.
E2E_STORIES := ^Test(TheDemoOf|TheFleet|Migration|Twenty|AnIdleContainer)
e2e-stories: HALF := -run '$(E2E_STORIES)'
e2e-rest: HALF := -skip '$(E2E_STORIES)'
e2e-%: need-root images $(TOOLS)
	$(say) "end to end on a real cluster: $*"
	$(call DOWN_AFTER,$*) \
	$(E2E) -cluster $* $(HALF)

# The archive is in parts, for machines that take files in pieces.
.PHONY: gpu-node
gpu-node: images $(BIN)/helm ## Pack a Kubernetes node with the driver, which runs its stories on any machine with a GPU
	CGO_ENABLED=1 go test -c -trimpath -ldflags '-s -w' -o $(BIN)/gpu-conformance ./test/gpu
	$(say) "packing $(BUILD)/gpu-node"
	test/gpu/node/pack.sh $(BIN) $(BUILD)/images $(subst +,_,$(VERSION)) $(BUILD)
	rm -f $(BUILD)/gpu-node.tar.xz.*
	[ -n "$(FOLDER_ONLY)" ] || tar -C $(BUILD) -c gpu-node | xz -T0 -6 | split --bytes=50M --numeric-suffixes - $(BUILD)/gpu-node.tar.xz.

.PHONY: test-gpu-node
test-gpu-node: FOLDER_ONLY := yes
test-gpu-node: need-root gpu-node ## Run the packed node, with simulated GPUs, on a machine that has nothing else (STORIES=regexp)
	$(say) "the node that travels, in an empty root without a network"
	test/gpu/node/empty-root.sh $(BUILD)/gpu-node -stories '$(or $(STORIES),.)'

.PHONY: scale
scale: build ## What a fleet of 1,000 nodes costs scheduler and API server, for each way to publish a node (SCALE="flags")
	$(BIN)/cluster build
	go run ./test/scale -bin $(BUILD)/cluster $(SCALE)

.PHONY: bench
bench: need-root build ## Latency, start-up and memory of the agent, or its ratios to another agent's (BENCH="-against BINARY", "-compare" with NVIDIA's)
	go run ./test/bench -bin $(BIN) $(BENCH)

.PHONY: lint
lint: need-cc-cxx $(BIN)/golangci-lint ## gofmt, vet and golangci-lint, Vale for prose, actionlint; modules with many dependencies are linted after their tests
	$(say) "lint"
	$(BIN)/actionlint -shellcheck= -pyflakes=
	git ls-files -z '*.go' '*.md' | xargs -0 $(BIN)/vale --no-global --output line
	$(BIN)/golangci-lint run --allow-parallel-runners ./...
	for module in simulator dra-sanity; do (cd $$module && ../$(BIN)/golangci-lint run --allow-parallel-runners --config ../.golangci.yml ./...) || exit 1; done

.PHONY: generate
generate: ## Format, generate code and tables, render the chart, and accept golden files; read the diff
	gofmt -w $$(git ls-files '*.go')
	cd tools && go run ./deepcopy
	go run ./test/tree/vocabulary
	UPDATE_GOLDEN=1 $(CLUSTER_ENV) go -C test/chart test -count=1 $(TEST_FLAGS) -run '^TestRenderings|^TestTheManifest' ./...
	UPDATE_GOLDEN=1 go test $(TEST_FLAGS) ./api/... ./kubectl/... ./pkg/... ./cmd/...

# Files of a release: see RELEASE.md.
RELEASE := $(BUILD)/release/$(VERSION)
# The registry that the chart of a release names. Names for one machine are not in it.
REGISTRY_VALUE := $(filter-out localhost/%,$(IMAGE_PREFIX))

# Platforms of the plugin of kubectl, as in deployments/krew/gpu.yaml.
PLUGIN_PLATFORMS := darwin-amd64 darwin-arm64 linux-amd64 linux-arm64 windows-amd64
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: release
release: $(BIN)/helm ## Build the files of a release into .build/release: chart, manifest, kubectl gpu, checksums (VERSION=v1.2.3)
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
	@sed 's/@VERSION@/$(VERSION)/' deployments/krew/gpu.yaml >$(RELEASE)/gpu.yaml
	@for platform in $(PLUGIN_PLATFORMS); do \
	  printf '\n==> kubectl gpu for %s\n' $$platform; \
	  folder=$(RELEASE)/$$platform; archive=$(RELEASE)/kubectl-gpu-$$platform.tar.gz; mkdir $$folder; \
	  cp LICENSE cmd/kubectl-gpu/kubectl_complete-gpu $$folder/; \
	  GOOS=$${platform%-*} GOARCH=$${platform#*-} CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $$folder/ ./cmd/kubectl-gpu; \
	  tar --create --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner --mode=a+rX --directory $$folder . | gzip --no-name >$$archive; \
	  sed --in-place "s/@SHA256-$$platform@/$$(sha256sum $$archive | cut -d ' ' -f 1)/" $(RELEASE)/gpu.yaml; \
	  rm -r $$folder; \
	done
	go -C tools run sigs.k8s.io/krew/cmd/validate-krew-manifest -skip-install -manifest $(abspath $(RELEASE))/gpu.yaml
	$(say) "packaging the chart into $(RELEASE)"
	@rm -rf $(BUILD)/chart && cp -r deployments/helm/gpu-dra-driver $(BUILD)/chart
	@sed --in-place 's|^  registry: ""$$|  registry: "$(REGISTRY_VALUE)"|' $(BUILD)/chart/values.yaml
	$(BIN)/helm package $(BUILD)/chart --version $(VERSION:v%=%) --app-version $(VERSION) --destination $(RELEASE)
	$(BIN)/helm template gpu-dra-driver $(RELEASE)/gpu-dra-driver-$(VERSION:v%=%).tgz \
	  --namespace gpu-dra-driver --set namespace.create=true --skip-tests >$(RELEASE)/install.yaml
	cd $(RELEASE) && sha256sum -- * >SHA256SUMS
	$(say) "$(RELEASE) is complete"

.PHONY: fuzz
fuzz: ## Fuzz names, configuration and records (FUZZTIME=30s each)
	@# Bash ignores the status of a substitution in the list of a loop.
	@packages=$$(go list ./...); \
	for p in $$packages; do \
	  all=$$(go test -list '^Fuzz' $$p); \
	  for f in $$(grep '^Fuzz' <<<"$$all" || true); do \
	    printf '\n==> %s %s for %s\n' $$p $$f $(FUZZTIME); \
	    go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p; \
	  done; \
	done

.PHONY: clean
clean: ## Remove all build results; takes running test clusters down first
	@if [ -x $(BIN)/cluster ] && [ "$$(id -u)" = 0 ]; then $(BIN)/cluster down --all; fi
	rm -rf $(BUILD)

# On Debian as root this installs a missing tool: need-cc-python wants a C compiler and Python.
# Everywhere else it fails and says how to get it. A machine for clusters is checked before anything is built.
need-%:
	@[ -n "$(NEEDS)" ] || tools/needs/needs.sh --install $(subst root,root make git go cluster,$(subst -, ,$*))
