# Each target sets up what it needs by itself (system packages, .venv, the guest program); the second time is quick.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo serve test desktop pictures signing vm containers setup-containers lint docs bench scale soak image compat agents integrations cluster chaos kernels bare setup-run setup-dev setup-bench setup-kernels setup-image clean

BIN := src/sandbox/guest/bin
GUEST := $(BIN)/guest-$(subst arm64,aarch64,$(shell uname -m))

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: setup-run $(GUEST) ## a hostile script against the walls; ENGINE=qemu: against a virtual machine
	@.venv/bin/python demo/run.py $(if $(ENGINE),--engine $(ENGINE))

test: setup-dev $(GUEST) ## lint, types, layers, and the tests as root and as an ordinary user
	@.venv/bin/python guest/build.py $(BIN) --arch all >/dev/null
	@scripts/test

serve: setup-dev $(GUEST) ## the HTTP API and the dashboard on this machine; prints the address and a token
	@.venv/bin/python -m sandbox.cli.main serve --new-token

lint: setup-dev ## ruff, mypy --strict, import-linter, cycles of imports
	@scripts/lint

docs: setup-dev ## the documentation and the Python reference, into site/
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet && echo site/index.html

soak: setup-dev $(GUEST) ## the long fuzz and soak runs
	@.venv/bin/python -m pytest -m soak

vm: setup-dev $(GUEST) ## the slow half of the tests with virtual machines; the security and network suites over QEMU
	@scripts/vm

signing: setup-dev $(GUEST) ## a real chain with ethers, viem and web3.py inside sandboxes that ask for signatures
	@scripts/signing
	@.venv/bin/python -m pytest -m signing tests/signing

desktop: setup-dev $(GUEST) ## everything about screens and browsers, the long part too, as root and as an ordinary user
	@scripts/as-user .venv/bin/python -m pytest -p no:cacheprovider -m "not vm and not containers and not root" tests/desktop
	@[ "$$(id -u)" != 0 ] || .venv/bin/python -m pytest -m "not vm and not containers" tests/desktop

pictures: setup-dev $(GUEST) ## the pictures in docs/images/, anew: taken by the tests from real pages and screens
	@SANDBOX_SCREENSHOTS=docs/images .venv/bin/python -m pytest -q -m "desktop or not desktop" tests/server/test_screenshots.py tests/desktop/test_viewing.py tests/desktop/test_screen.py -k "picture or viewer_draws"

containers: setup-containers $(GUEST) ## the engines' conformance suite over Docker and Podman, as root and as an ordinary user
	@scripts/containers

image: setup-image $(GUEST) ## OCI images of the server (RAY=1: and of a Ray node), built by buildah as an ordinary user and run with Podman
	@scripts/image

compat: setup-dev $(GUEST) ## CPython's and Go's own test suites, outside and inside, as root and as a user
	@scripts/compat

agents: setup-dev $(GUEST) ## the real agents that npm and PyPI have, each at a terminal in its sandbox
	@scripts/agents
	@.venv/bin/python -m pytest tests/agents

integrations: setup-dev $(GUEST) ## the suites that agent frameworks ship, and the adapters' own, in an environment with all of them
	@scripts/integrations

cluster: setup-dev $(GUEST) ## Ray: the cluster's tests, and the API's suite over three nodes on this machine
	@scripts/cluster

chaos: setup-dev $(GUEST) ## Ray: agents, nodes and clients are killed at random for 20 minutes, under load
	@scripts/cluster --chaos 20

kernels: setup-kernels $(GUEST) ## the tests about walls on Debian's stock kernels and on aarch64, in QEMU
	@.venv/bin/python guest/build.py $(BIN) --arch all >/dev/null
	@scripts/kernels

bare: setup-kernels ## the whole check in fresh Debians where nothing is installed
	@scripts/bare

bench: setup-bench $(GUEST) ## the side-by-side table, budgets and peers
	@.venv/bin/python -m bench

scale: setup-dev $(GUEST) ## measures real servers, simulates clusters with those costs, draws docs/scale.md's pictures
	@.venv/bin/python -m pip install -q --no-build-isolation -e ".[dev,scale]"
	@.venv/bin/python -m bench.scale

setup-run setup-dev setup-bench setup-kernels setup-containers setup-image: setup-%:
	@scripts/setup $*

# Setting up builds the guest; this is for a source that changed since.
$(GUEST): $(wildcard guest/*.c guest/*.h guest/*.py) | setup-run
	@.venv/bin/python guest/build.py $(BIN)
	@touch $@

clean: ## everything that was made here
	rm -rf .venv .image .integrations .cluster site .agents .signing .bench .kernels .bare dist build src/sandbox/guest/bin .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
