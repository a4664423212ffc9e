#!/usr/bin/env bash
# Tests over several hosts, with a real Open MPI and a real Slurm; the result goes into docs/cluster.md. Needs root.
#   scripts/test_cluster.sh [further arguments for pytest]
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" = 0 ] || { echo 'pushpull: error: test hosts are network namespaces, which need root' >&2; exit 1; }
PUSHPULL_PACKAGES=scripts/packages-cluster.txt scripts/setup.sh packages
report=build/cluster.xml
code=0
PUSHPULL_CLUSTER_TESTS=1 PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pytest -q --junitxml="$report" \
  tests/cluster/test_*.py "$@" || code=$?
[ $# -gt 0 ] || .venv/bin/python scripts/cluster_result.py "$report" docs/cluster.md
exit "$code"
