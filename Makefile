# `make demo` shows what Cairn does; `make test` proves it. Both install and build what they lack, once.

CARGO ?= cargo

.PHONY: help demo test test-quick lint generate bench bench-first-service bench-nodes bench-pod-cidrs bench-election bench-routes bench-announcements bench-services lab lab-packages lab-routers lab-control-plane lab-older-control-plane lab-migration-partner lab-metallb lab-reference lab-full-nodes

help:
	@echo "make demo                 a cluster in network namespaces, and a client that gets its answer (KEEP=1 keeps it)"
	@echo "make test                 every test"
	@echo "make test-quick           the pure tests and one lab of each kind"
	@echo "make lint                 formatting, clippy, licences and sources of dependencies"
	@echo "make generate             writes what is generated: manifests/crds, the examples' expected plans"
	@echo "make bench                all benchmarks, one after the other; the last line of each is JSON"
	@echo "make bench-first-service  how fast, how big"
	@echo "make bench-routes         how fast 10,000 routes are made, followed and repaired, and what that costs"
	@echo "make bench-announcements  what a change of one Service costs an agent that announces 10,000 addresses"
	@echo "make bench-nodes          how fast many Nodes are initialized (CAIRN_BENCH_NODES, 1000), and what that costs"
	@echo "make bench-pod-cidrs      how fast many Nodes get their pod CIDRs (CAIRN_BENCH_NODES, 1000), and what that costs"
	@echo "make bench-election       how late the Lease is renewed while many clients list many Nodes, and who follows"
	@echo "make bench-services       how fast many Services are served (CAIRN_BENCH_SERVICES, 1000), MetalLB in the same run"

demo: lab-packages lab-control-plane
	@$(CARGO) test --test demo --no-run
	@$(CARGO) test --quiet --test demo

# Two labs at a time: each has a control plane of its own.
test: lab
	$(CARGO) test --lib --bins --test it
	$(CARGO) test --test demo
	$(CARGO) test --test lab -- --test-threads=2

test-quick: lab-packages lab-control-plane
	$(CARGO) test --lib --bins --test it
	$(CARGO) test --test lab -- --test-threads=2 scenarios::bench scenarios::first_service

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- --deny warnings
	@command -v cargo-deny > /dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses sources bans

generate:
	CAIRN_GENERATE=1 $(CARGO) test --test it -- manifests examples

bench: bench-first-service bench-nodes bench-pod-cidrs bench-election bench-routes bench-announcements bench-services

bench-first-service: lab-packages lab-control-plane
	$(CARGO) bench --bench first_service

bench-nodes: lab-packages lab-control-plane lab-reference
	$(CARGO) bench --bench nodes

bench-pod-cidrs: lab-packages lab-control-plane
	$(CARGO) bench --bench pod_cidrs

bench-election: lab-packages lab-control-plane
	$(CARGO) bench --bench election

bench-routes: lab-packages lab-control-plane
	$(CARGO) bench --bench routes

bench-announcements: lab-packages lab-control-plane
	$(CARGO) bench --bench announcements

bench-services: lab-packages lab-control-plane lab-metallb
	$(CARGO) bench --bench services

lab: lab-packages lab-routers lab-control-plane lab-older-control-plane lab-migration-partner lab-full-nodes

lab-packages:
	@tests/lab/install-packages

# Routers of other makes, for what they show of our announcements.
lab-routers:
	@tests/lab/install-packages --routers

lab-control-plane:
	@tests/lab/build-control-plane > /dev/null

# Minutes each, once: `make demo` needs none of them.
lab-older-control-plane:
	@tests/lab/build-control-plane 1.33 > /dev/null

lab-migration-partner:
	@tests/lab/build-program migration-partner

# Kubernetes' own framework and MetalLB, for benchmarks to be read beside Cairn's: no test needs them.
lab-reference:
	@tests/lab/build-program reference-ccm

lab-metallb:
	@tests/lab/build-metallb

# Only root can run them: their containers need cgroups.
lab-full-nodes:
	@[ "$$(id -u)" != 0 ] || tests/lab/install-packages --full-nodes
	@[ "$$(id -u)" != 0 ] || tests/lab/build-control-plane full-nodes > /dev/null
