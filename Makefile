# Everything a developer types. `make help` lists it. Outputs go to bin/, everything that is worth keeping between two runs
# goes to the Go build cache and to $DROVER_CACHE (~/.cache/drover).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Binaries are static. Tests are compiled in the same way, or all of Kubernetes would be compiled twice.
export CGO_ENABLED := 0
# Without the folder in what is compiled, a second clone compiles nothing again.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
# Programs run on every machine of their architecture, and the same commit gives the same bytes, whatever the environment of the builder or
# "go env -w" says.
export GOAMD64 := v1
export GOARM64 := v8.0
export GOFIPS140 := off

GO ?= go
GOOS_GOARCH := $(shell $(GO) env GOOS GOARCH 2>/dev/null)
GOARCH_HOST := $(word 2,$(GOOS_GOARCH))
# A hub hands out the agents of all architectures, whichever it is for itself.
AGENT_ARCHES := amd64 arm64
ARCHES := $(AGENT_ARCHES)
COMMA := ,
MODULE := github.com/drover-dev/drover
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The API server in the hub tells clients which Kubernetes it is, as upstream's build scripts have it.
KUBERNETES = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
KUBERNETES_PARTS = $(subst ., ,$(KUBERNETES:v%=%))
KUBERNETES_VERSION := k8s.io/component-base/version
LDFLAGS = -s -w $(foreach program,hub agent installer,-X $(MODULE)/$(program)/cli.Version=$(VERSION)) \
	-X $(KUBERNETES_VERSION).gitVersion=$(KUBERNETES) -X $(KUBERNETES_VERSION).gitTreeState=clean -X $(KUBERNETES_VERSION).gitCommit= \
	-X $(KUBERNETES_VERSION).gitMajor=$(word 1,$(KUBERNETES_PARTS)) -X $(KUBERNETES_VERSION).gitMinor=$(word 2,$(KUBERNETES_PARTS))
BUILD = GOOS=linux $(GO) build -ldflags '$(LDFLAGS)'
LINTER := $(GO) tool -modfile=tools/go.mod golangci-lint

# Packages that have tests. go vet is left to make verify: for one look at our packages it goes through all of Kubernetes. A test that holds
# Kubernetes is linked in half the time without symbols. Tests that may run side by side wait most of the time, for pauses and controllers. The
# time limit of a package ends what hangs, and is no measure of speed.
TESTED := {{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}
TEST_FLAGS := -vet=off -ldflags '-s -w' -p 3 -parallel 8 -timeout 30m
# The package that takes longest is begun with, so that it is not waited for alone at the end.
LONGEST := ./hub/integration/clusters

# How long the scenarios of one package may take. Those that are too long for every change have the build tag full beside e2e.
E2E_TIMEOUT ?= 30m
E2E_FULL_TIMEOUT ?= 120m

# Where the integration tests write what their hubs have asked the API server for, to be compared with the hub's ClusterRole. It is outside of
# the repository, so that cached results of these tests stay good.
API_USAGE := $(or $(DROVER_CACHE),$(HOME)/.cache/drover)/api-usage$(subst /,-,$(CURDIR))

# How long each fuzz target runs.
FUZZTIME ?= 30s

##@ Work

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: go hub agent installer lab ## Build hub, system-agent, installer and lab for this machine, and the agents that a hub hands out.

.PHONY: test
test: go ## Run all unit and integration tests.
	@tools/need.sh shellcheck=shellcheck curl=curl dash=dash lintian=lintian openssl=openssl rpm=rpm ssh=openssh-client
	DROVER_API_USAGE='$(API_USAGE)' $(GO) test $(TEST_FLAGS) $(LONGEST) $$($(GO) list -f '$(TESTED)' ./...)
	DROVER_API_USED='$(API_USAGE)' $(GO) test -count=1 -run TestNothingUnused ./packaging/rbac
	$(GO) -C e2e/distro test $(TEST_FLAGS) $$($(GO) -C e2e/distro list -f '$(TESTED)' ./...)
	$(GO) -C packaging/packages test $(TEST_FLAGS) ./...
	$(GO) -C packaging/chart test $(TEST_FLAGS) ./...
	$(GO) -C tools/helm-unittest tool helm-unittest --file 'tests/*_test.yaml' $(CURDIR)/packaging/chart/drover
	@echo "make test: all tests passed"

# What runs many goroutines. The library that tests of tunnels use has races of its own, and a comparison of times says nothing here.
RACED := ./agent/... ./plans/... ./tunnel/... ./installer/... ./e2e/hosts ./e2e/lab ./hub/access/... ./hub/controllers/... ./hub/gateway/... \
	./hub/identity/... ./hub/util/...
.PHONY: test-race
test-race: go ## Run the unit tests of all but pure packages with the race detector.
	@tools/need.sh gcc=gcc
	@[ -e /usr/include/stdlib.h ] || tools/need.sh libc-headers=libc6-dev
	CGO_ENABLED=1 $(GO) test -race -vet=off -p 2 -timeout 30m -skip TestUnpackSpeed $$($(GO) list $(RACED) | grep -v '/tunnel$$')

.PHONY: test-stress
test-stress: go ## Run all tests STRESS=10 times with two busy loops beside them, and print which runs passed.
	@tools/stress.sh $(or $(STRESS),10) bin/stress

.PHONY: e2e
e2e: build bin/kubectl-1.36 bin/objectstore bin/helm bin/build-images ## Run the scenarios on real hosts (root; installs what it needs from Debian).
	$(GO) test -tags e2e -p 1 -count=1 -v -timeout $(E2E_TIMEOUT) ./e2e/...
	@echo "make e2e: all scenarios passed"

# What the scenarios need beside what make build makes; some need one thing more that takes minutes to build.
E2E_PROGRAMS := bin/kubectl-1.36 bin/kubectl-1.35 bin/objectstore bin/helm bin/clusterctl bin/build-images bin/cert-manager.yaml
E2E_PROGRAMS_OF := TestPreviousVersion=bin/previous TestCertManager=bin/cert-manager TestRelease=bin/cosign \
	TestClusterctlExternalCore=bin/cert-manager TestClusterctlExternalCore=bin/cluster-api

.PHONY: e2e-full
e2e-full: build $(E2E_PROGRAMS) bin/previous bin/cert-manager bin/cosign bin/cluster-api ## Run all scenarios, also those that are too long for every change.
	$(GO) test -tags e2e,full -p 1 -count=1 -v -timeout $(E2E_FULL_TIMEOUT) ./e2e/...
	$(MAKE) published-drivers published-templates published-cosign
	@echo "make e2e-full: all scenarios passed"

.PHONY: e2e-long
e2e-long: LONG ?= TestUpgrade
e2e-long: build $(E2E_PROGRAMS) $(patsubst $(LONG)=%,%,$(filter $(LONG)=%,$(E2E_PROGRAMS_OF))) ## Run one scenario of those, LONG=TestUpgrade.
	$(GO) test -tags e2e,full -count=1 -v -timeout $(E2E_FULL_TIMEOUT) -run '^$(LONG)$$' ./$$(dirname "$$(git grep -l 'func $(LONG)(' -- e2e/scenarios)")
	@echo "make e2e-long: $(LONG) passed"

.PHONY: conformance
conformance: $(if $(AGENT),go,agent) bin/conformance.test ## Judge an agent by the rules of the wire format (root): AGENT=path, RULES=pattern, STRICT=1.
	cd e2e/conformance && AGENT="$(abspath $(AGENT))" ../../bin/conformance.test -test.timeout $(E2E_TIMEOUT) -test.parallel 32 -test.run '$(RULES)'

.PHONY: published-cosign
published-cosign: go bin/cosign ## Verify images and files that are signed as in a release with cosign.
	$(GO) test -tags published -count=1 -v -run '^TestPublishedCosign$$' ./packaging/images/build

.PHONY: published-templates
published-templates: go ## Validate cluster templates and the chart's objects with the definitions of the projects that they are for.
	$(GO) test -tags published -count=1 -v -run '^TestPublished' ./packaging/clusterctl

.PHONY: published-drivers
published-drivers: go bin/rancher-machine bin/vcsim ## Read the flags of rancher-machine's drivers, and make machines at a played EC2 and a simulated vCenter (root).
	@tools/need.sh bsdtar=libarchive-tools
	$(GO) test -tags published -count=1 -v -run '^TestPublished' ./hub/nodedriver

# Rancher's agent is no part of this repository; it is expected beside it.
RANCHER_AGENT := ../shared/peers/rancher-system-agent/rancher-system-agent-$(GOARCH_HOST).xz

.PHONY: conformance-rancher
conformance-rancher: go bin/conformance.test ## Judge Rancher's agent by the same rules (root): what it does not keep is no part of the contract.
	@[ -f $(RANCHER_AGENT) ] || { echo "Rancher's agent is missing: $(RANCHER_AGENT)"; [ -z "$${CI:-}" ]; exit; }; \
	tools/need.sh xz=xz-utils; xz -dc $(RANCHER_AGENT) >bin/rancher-system-agent; chmod 0755 bin/rancher-system-agent; \
	cd e2e/conformance && AGENT="$(abspath bin/rancher-system-agent)" KNOWN=testdata/rancher-system-agent.known \
		../../bin/conformance.test -test.timeout $(E2E_TIMEOUT) -test.parallel 32 -test.run '$(RULES)'

bin/conformance.test: FORCE
	$(GO) test -tags conformance -ldflags '-s -w' -c -o $@ ./e2e/conformance

.PHONY: demo
demo: build ## Build everything and put up a real cluster on this machine (root); demo-down takes it down.
	bin/lab demo

.PHONY: demo-down
demo-down: go ## Remove the demo and whatever an interrupted one left.
	@[ -x bin/lab ] || $(MAKE) --no-print-directory lab
	bin/lab down

##@ Before a commit

.PHONY: generate
generate: go ## Write deep copies, custom resource definitions and manual pages again.
	$(GO) generate ./...

.PHONY: verify
verify: generate words ## Fail if generated files, formatting or go vet say that something was forgotten.
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) -C e2e/distro vet ./...
	$(GO) -C packaging/packages vet ./...
	$(GO) -C packaging/chart vet ./...
	$(GO) -C e2e/objectstore vet ./...
	@tools/aligned.sh e2e/distro/go.mod packaging/chart/go.mod tools/clusterctl/go.mod tools/kubectl/go.mod
	@git diff --exit-code || { echo "make verify: generated files differ from what is committed"; exit 1; }
	@untracked=$$(git ls-files --others --exclude-standard); [ -z "$$untracked" ] || { echo "not committed: $$untracked"; exit 1; }

# Names, comments, messages and pages keep to the field's terms; tools/words/words.txt lists what to say instead of what.
.PHONY: words
words: go ## Refuse words that this project does not use, in names, comments, messages and pages.
	@$(GO) -C tools build -o $(CURDIR)/bin/words ./words
	@git ls-files -z | bin/words tools/words/words.txt

# The install script is put together from parts; its own test checks it as a whole.
.PHONY: lint
lint: go words ## Run golangci-lint (the first time builds it, some minutes), shellcheck, and the checks of words, comments and links.
	@tools/need.sh shellcheck=shellcheck
	tools/links.sh
	$(GO) -C tools run ./style -documented plans,hub/api,hub/plan,hub/gateway,agent/engine,agent/host ..
	git ls-files -z '*.sh' .ci/run ':!packaging/install/parts' ':!packaging/install/system-agent-install.sh' \
		':!packaging/packages/build/files' | xargs -0 shellcheck -x -P SCRIPTDIR
	$(LINTER) run ./...

.PHONY: bench
ifdef BASE
bench: go
	@GO="$(GO)" tools/compare.sh "$(BASE)" "$(or $(RUNS),6)" $(PACKAGES)
else
bench: agent bin/conformance.test ## Run the benchmarks, and measure the agent on a real API server (root; IDLE=60s); or BASE=ref: compare with a commit.
	$(GO) test -timeout 30m -run '^$$' -bench . -benchmem $$(git grep -l 'func Benchmark' -- '*_test.go' ':!e2e/distro' ':!e2e/conformance' | xargs -n 1 dirname | sort -u | sed 's|^|./|')
	cd e2e/conformance && IDLE=$(or $(IDLE),60s) ../../bin/conformance.test -test.run '^$$' -test.bench Agent -test.benchtime 1x
endif

# Cluster API's Dev provider is no part of this repository; it is expected beside it.
SCALE_PROVIDER := ../shared/peers/cluster-api-dev
SCALE_REPORTS := docs/scale

.PHONY: scale
scale: hub bin/scale ## Measure the hub with many machines, clusters and agents, and write docs/scale (an hour). SCALE=machines measures one.
	@tools/need.sh xz=xz-utils
ifneq ($(SCALE),)
	bin/scale $(SCALE) $(SCALE_FLAGS)
else
	bin/scale machines --report $(SCALE_REPORTS)/machines.md
	bin/scale clusters --report $(SCALE_REPORTS)/clusters.md
	bin/scale agents --report $(SCALE_REPORTS)/agents.md
	bin/scale agents --replicas 3 --sizes 5000 --report $(SCALE_REPORTS)/replicas.md
endif

# The processor time of so few machines differs by half from run to run where others use the processor, too. What really grows too fast does
# so twice. At rest the hub once collects and returns what it has used while it was busy, 10 to 30 s after its last work: in 15 s that takes
# as much of a processor as all else. Some 60 machines are made within seconds, while their controllers have begun to work only: more of them
# are made in turn, and each of those costs more. With 60 as the second of three sizes, that looked like growth.
SCALE_SHORT := --sizes 60,120,180 --rest 40s --timeout 5m --upgrade=false --growth 2

.PHONY: scale-short
scale-short: hub bin/scale ## Measure less, and fail if a machine costs more the more there are, or an agent more than it may.
	@tools/need.sh xz=xz-utils
	@[ -d $(SCALE_PROVIDER) ] || { echo "Cluster API's Dev provider is missing: $(SCALE_PROVIDER)"; [ -z "$${CI:-}" ]; exit; }; \
	bin/scale machines $(SCALE_SHORT) || { echo "make scale-short: measuring again, since something else may have used the processor"; \
		bin/scale machines $(SCALE_SHORT); }
	bin/scale agents --sizes 1000 --rest 30s --timeout 6m --most 160

bin/scale: FORCE
	$(GO) build -o $@ ./e2e/scale

.PHONY: fuzz
fuzz: go ## Run every fuzz target of the repository, FUZZTIME=30s each.
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: clean
clean: ## Remove bin/ and dist/. Caches stay: they are in the Go build cache and in $DROVER_CACHE.
	rm -rf bin dist coverage

##@ Parts of build

.PHONY: hub
hub: go ## bin/hub
	$(BUILD) -o bin/hub ./hub

.PHONY: agent
agent: go $(AGENT_ARCHES:%=bin/assets/system-agent-%) ## bin/system-agent and bin/assets, the agent for every architecture with its checksum
	cp bin/assets/system-agent-$(GOARCH_HOST) bin/system-agent

.PHONY: FORCE
bin/assets/system-agent-%: FORCE
	GOARCH=$* $(BUILD) -o $@ ./agent
	cd bin/assets && sha256sum system-agent-$* >system-agent-$*.sha256

.PHONY: installer
installer: go ## bin/installer
	$(BUILD) -o bin/installer ./installer

# The build host's certificate authorities are for hubs that have none of their own; they are left out where it has none.
.PHONY: cluster-agent
cluster-agent: agent installer ## bin/cluster-agent, the image of the cluster-agent for every architecture as an OCI layout
	bin/installer build cluster-agent --version '$(VERSION)' --from bin/assets --oci-layout bin/cluster-agent \
		--arch '$(subst $() ,$(COMMA),$(ARCHES))' $(addprefix --ca-certificates ,$(wildcard /etc/ssl/certs/ca-certificates.crt))

# The time in images and packages is that of the commit, so that the same commit gives the same bytes. By default images are written below
# bin/images.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: images
# What Go reads from git differs with the kind of checkout; the commit is an annotation of the images.
images: GOFLAGS += -buildvcs=false
images: cross bin/build-images ## bin/images, all container images for every architecture as OCI layouts; or VERSION=v1.2.3 IMAGES_FLAGS='--push registry.example.com'
	SOURCE_DATE_EPOCH='$(SOURCE_DATE_EPOCH)' bin/build-images --version '$(VERSION)' --revision "$$(git rev-parse HEAD)" \
		--arch '$(subst $() ,$(COMMA),$(ARCHES))' $(or $(IMAGES_FLAGS),--oci-layout bin/images --sbom bin/images)

bin/build-images: FORCE
	$(GO) build -o $@ ./packaging/images/build

# Helm's command line, for scenarios.
bin/helm: FORCE
	$(GO) -C packaging/chart build -ldflags '-s -w' -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm

# A vCenter that is simulated, for published-drivers.
bin/vcsim: FORCE
	$(GO) -C tools/rancher-machine build -ldflags '-s -w' -o $(CURDIR)/$@ ./vcsim

# Rancher's program with its node drivers, for published-drivers.
bin/rancher-machine: FORCE
	$(GO) -C tools/rancher-machine build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/rancher/machine/cmd/rancher-machine

# Sigstore's cosign, for published-cosign.
bin/cosign: FORCE
	$(GO) -C tools/cosign build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/sigstore/cosign/v3/cmd/cosign

# What TestPreviousVersion upgrades from and goes back to: the last release, or PREVIOUS=ref. Before the first release it is a commit whose
# chart has all values that the scenario sets.
FIRST_PREVIOUS := 75ff5372c2267be451aa863e60ad61c043f86d18
PREVIOUS ?= $(shell git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null || echo $(FIRST_PREVIOUS))
bin/previous: FORCE
	tools/previous.sh '$(PREVIOUS)' v0.0.0-previous

# Cert-manager's controllers and definitions, for scenarios.
bin/cert-manager: FORCE
	$(GO) -C tools/cert-manager build -ldflags '-s -w' -o $(CURDIR)/$@ .

bin/cert-manager.yaml: FORCE
	@mkdir -p bin
	@$(GO) -C tools/cert-manager mod download github.com/cert-manager/cert-manager
	for file in "$$($(GO) -C tools/cert-manager list -m -f '{{.Dir}}' github.com/cert-manager/cert-manager)"/deploy/crds/cert-manager.io_*.yaml; do \
		echo ---; cat "$$file"; \
	done >$@

# Upstream's clusterctl, for scenarios.
bin/clusterctl: FORCE
	$(GO) -C tools/clusterctl build -ldflags '-s -w' -o $(CURDIR)/$@ sigs.k8s.io/cluster-api/cmd/clusterctl

# Upstream's Cluster API and its Dev provider, with the components of each as a release of them has these, for scenarios.
bin/cluster-api: bin/kubectl-1.36 FORCE
	@mkdir -p $@
	$(GO) -C tools/clusterctl build -ldflags '-s -w' -o $(CURDIR)/$@/cluster-api-controller sigs.k8s.io/cluster-api/core
	$(GO) -C tools/clusterctl build -ldflags '-s -w' -o $(CURDIR)/$@/capd-manager sigs.k8s.io/cluster-api/test/infrastructure/docker
	core=$$($(GO) -C tools/clusterctl list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api); \
	dev=$$($(GO) -C tools/clusterctl list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api/test)/infrastructure/docker; \
	bin/kubectl-1.36 kustomize "$$core/core/config/default" >$@/core-components.yaml; \
	bin/kubectl-1.36 kustomize "$$dev/config/default" >$@/infrastructure-components.yaml; \
	install -m 0644 "$$core/metadata.yaml" $@/metadata.yaml

.PHONY: lab
lab: go ## bin/lab, which runs the demo and the hosts of the scenarios, and what runs in their clusters
	$(BUILD) -o bin/lab ./e2e/cmd/lab
	$(BUILD) -o bin/toolbox ./e2e/cmd/toolbox

# Upstream's kubectl of two minors, for the scenarios. Each has a list of modules of its own.
bin/kubectl-1.36: MODULES := go.mod
bin/kubectl-1.35: MODULES := go-1.35.mod
bin/kubectl-%: FORCE
	version=$$($(GO) -C tools/kubectl list -modfile=$(MODULES) -m -f '{{.Version}}' k8s.io/kubectl); \
		$(GO) -C tools/kubectl build -modfile=$(MODULES) -ldflags "-s -w -X $(KUBERNETES_VERSION).gitVersion=v1$${version#v0}" -o $(CURDIR)/$@ .

# The S3 server of the scenarios has a list of modules of its own, too. The tests of the distribution build it themselves.
bin/objectstore: FORCE
	$(GO) -C e2e/objectstore build -ldflags '-s -w' -o $(CURDIR)/$@ .

.PHONY: cross
cross: go agent ## Build hub and installer for every architecture too, into bin/linux-<arch>.
	for arch in $(ARCHES); do \
		GOARCH=$$arch $(BUILD) -o bin/linux-$$arch/hub ./hub; \
		GOARCH=$$arch $(BUILD) -o bin/linux-$$arch/installer ./installer; \
	done
	for arch in $(AGENT_ARCHES); do install -D -m 0755 bin/assets/system-agent-$$arch bin/linux-$$arch/system-agent; done

# Packages and charts need a version that can be ordered; a repository without tags has none.
PACKAGE_VERSION = $(if $(filter v%,$(VERSION)),$(VERSION),v0.0.0+$(VERSION))
.PHONY: packages
packages: cross ## bin/packages, deb and rpm of agent and hub for every architecture (VERSION=v1.2.3)
	$(GO) -C packaging/packages run . -version '$(PACKAGE_VERSION)' -source '$(CURDIR)' -bin '$(CURDIR)/bin' -out '$(CURDIR)/bin/packages' \
		-arch '$(subst $() ,$(COMMA),$(ARCHES))' -source-date-epoch '$(SOURCE_DATE_EPOCH)'

.PHONY: chart
chart: go ## bin/chart, the Helm chart of the hub (VERSION=v1.2.3)
	$(GO) -C packaging/chart run . -version '$(PACKAGE_VERSION)' -app-version '$(VERSION)' -source drover -out '$(CURDIR)/bin/chart' \
		-source-date-epoch '$(SOURCE_DATE_EPOCH)'

.PHONY: clusterctl-bundle
clusterctl-bundle: go ## bin/clusterctl-bundle, the repository with which clusterctl installs the hub (VERSION=v1.2.3)
	$(GO) run ./packaging/clusterctl/build -version '$(PACKAGE_VERSION)' -hub-version '$(VERSION)' \
		-out '$(CURDIR)/bin/clusterctl-bundle' \
		-cluster-api "$$($(GO) list -m -f '{{.Version}}' sigs.k8s.io/cluster-api)" -source-date-epoch '$(SOURCE_DATE_EPOCH)'

# The version of a release is given, never that of git describe.
.PHONY: release
release: go ## dist/, everything that a release publishes: VERSION=v1.2.3, and RELEASE_KEY=cosign.key to sign the checksums
	@RELEASE_KEY='$(RELEASE_KEY)' tools/release.sh '$(if $(filter file,$(origin VERSION)),,$(VERSION))' $(ARCHES)

# What every target needs.
.PHONY: go
go:
	@command -v $(GO) >/dev/null || { echo "Go 1.26 or newer is missing: see https://go.dev/dl"; exit 1; }
	@tools/need.sh git=git
