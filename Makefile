# drydock. "make run" and "make test" need Go, gcc, make and git; they install the rest where they can.

SHELL     := bash
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.1.0-dev)
GO        ?= go
# grpcnotrace leaves grpc's debug pages out: their templates call methods by name, so that the linker
# would have to keep every method of every type, a third of the binary.
TAGS      := osusergo netgo sqlite_omit_load_extension grpcnotrace
OS        := $(shell $(GO) env GOOS)
LDFLAGS   := -s -w -X drydock.dev/drydock/internal/cluster.version=$(VERSION)
ifeq ($(OS),linux)
LDFLAGS   += -extldflags=-static
endif
export CGO_ENABLED ?= 1
# Two packages at a time: the dependencies are large, and small machines run out of memory first.
export GOFLAGS := -p=2 -buildvcs=false

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
TIMEOUT     ?= 20m

.PHONY: run build test oracle peer check cross bench soak tools-run tools-test clean

run: build tools-run ## start a cluster and walk one volume from claim to running pod
	bin/drydock demo

build: ## bin/drydock, static on Linux
	@echo "building bin/drydock (the first time compiles Kubernetes' packages: some minutes)"
	$(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/drydock ./cmd/drydock
	@# Linux keeps a file in memory in pieces as large as it was written in, and maps them whole: linkers write it in one.
	@dd if=bin/drydock of=bin/drydock.small bs=64k 2>/dev/null && chmod +x bin/drydock.small && mv bin/drydock.small bin/drydock

test: tools-test build ## every test but soak
	$(GO) test -tags '$(TAGS)' -timeout $(TIMEOUT) ./...
	cd internal/interop && DRYDOCK_BIN=$(CURDIR)/bin/drydock $(GO) test -timeout $(TIMEOUT) ./...
	$(MAKE) oracle
	$(MAKE) peer
	cd examples/go-operator-test && DRYDOCK_BIN=$(CURDIR)/bin/drydock $(GO) test -timeout $(TIMEOUT) ./...

oracle: ## nodesim against the real kubelet's volume manager; with the product's tags, so that what is compiled is shared
	cd internal/interop/oracle && $(GO) test -tags '$(TAGS)' -timeout $(TIMEOUT) ./...

peer: ## the API's answers against a server of upstream's own packages on etcd
	cd internal/interop/peer && $(GO) test -tags '$(TAGS)' -timeout $(TIMEOUT) ./...

check: ## formatting, vet, staticcheck, race tests, import directions
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	$(GO) vet -tags '$(TAGS)' ./...
	GOOS=darwin CGO_ENABLED=0 $(GO) vet ./...
	GOOS=windows CGO_ENABLED=0 $(GO) vet ./...
	$(GO) run $(STATICCHECK) -tags '$(subst $() ,$(comma),$(TAGS))' ./...
	$(GO) test -race -tags '$(TAGS)' -timeout $(TIMEOUT) ./internal/... ./fakecloud/... ./apiserverlite/... ./driver/... ./nodesim/... ./web
comma := ,

cross: ## compile the cloud for other systems ("check" looks at all of the module, which takes minutes the first time)
	GOOS=darwin CGO_ENABLED=0 $(GO) build ./fakecloud/...
	GOOS=windows CGO_ENABLED=0 $(GO) build ./fakecloud/...

bench: build tools-run ## the performance claims, each against its floor in the same run; fails if one is missed
	@status=0; \
	$(GO) test -tags '$(TAGS)' -run '^$$' -bench . -benchtime 1x -timeout $(TIMEOUT) ./internal/bench || status=1; \
	(cd internal/interop/peer && DRYDOCK_BIN=$(CURDIR)/bin/drydock $(GO) test -tags '$(TAGS)' -run '^$$' -bench . -benchtime 1x -timeout $(TIMEOUT) .) || status=1; \
	exit $$status

soak: ## long random runs
	.ci/soak

tools-run:
	@.ci/tools mkfs.ext4 blkid
tools-test:
	@.ci/tools mkfs.ext4 blkid mkfs.xfs mkfs.btrfs chromium-headless-shell

clean:
	rm -rf bin
