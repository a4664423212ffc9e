# `make demo` and `make test` set up all they need; a second run skips what is done.
.DEFAULT_GOAL := help
SANITIZERS := asan ubsan tsan
.PHONY: help build demo test test-cluster test-kubernetes faults bench bench-quick wheel fuzz clean $(SANITIZERS)

help:
	@echo 'make demo     train a small model over two workers'
	@echo 'make test     run all tests'
	@echo 'make faults   injure N=1000 groups at random moments, SEED=1 (an hour); TRIAL=… repeats one'
	@echo 'make test-kubernetes  jobs on a real Kubernetes (first time 15 minutes; needs root and Go)'
	@echo 'make test-cluster  tests over several hosts, with a real Slurm (needs root)'
	@echo 'make build    set up and build, run nothing'
	@echo 'make bench    compare with Horovod, MPI, Gloo, dist_sync and others (an hour; needs root)'
	@echo 'make bench-quick  the same in five minutes'
	@echo 'make asan     unit and conformance tests with the address sanitizer (also ubsan, tsan)'
	@echo 'make fuzz     run each libFuzzer target for SECONDS=60 (needs clang-14)'
	@echo 'make wheel    build a Python wheel in build/wheel'
	@echo 'make clean    remove what was built; .venv stays'

build:
	@scripts/setup.sh

faults: build
	@.venv/bin/python tests/faults/run.py --long --quiet $(if $(TRIAL),--trial $(TRIAL),\
	  --count $(or $(N),1000) --seed $(or $(SEED),1)) $(if $(REPORT),--report $(REPORT))

demo:
	@scripts/setup.sh packages python product install
	@scripts/demo.sh

test: build
	@.venv/bin/python scripts/run_tests.py

test-kubernetes: build
	@.venv/bin/python tests/cluster/kubernetes/run.py

$(SANITIZERS):
	@scripts/setup.sh packages
	@scripts/sanitize.sh $@

fuzz:
	@scripts/setup.sh packages
	@scripts/fuzz.sh $(or $(SECONDS),60)

test-cluster: build
	@scripts/test_cluster.sh

bench: build
	-@bench/setup_peers.sh
	@bench/run.py --full

bench-quick: build
	-@bench/setup_peers.sh
	@bench/run.py --quick

wheel:
	@scripts/setup.sh packages python product
	@.venv/bin/python scripts/wheel_backend.py build/wheel

clean:
	rm -rf build
