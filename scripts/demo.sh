#!/usr/bin/env bash
# Trains examples/gluon_digits.py over two workers.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'pushpull: %s\n' "$*"; }

say "training examples/gluon_digits.py over two workers with configs/local.yaml"
.venv/bin/pushpull run -c configs/local.yaml -- python examples/gluon_digits.py
cat <<'END'

What to try next:
  .venv/bin/pushpull run -c configs/mpi.yaml -- python examples/gluon_digits.py          # over Open MPI
  .venv/bin/pushpull run -c configs/gloo-redis.yaml -- python examples/gluon_digits.py   # found through Redis
  .venv/bin/pushpull run -c configs/local.yaml -n 4 -- python examples/gluon_digits.py   # four workers
  .venv/bin/pushpull config -c configs/local.yaml                                        # every setting
END
