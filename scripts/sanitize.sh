#!/usr/bin/env bash
# Builds with the preset named asan, ubsan or tsan, and runs the C++ tests and a short run of the faults.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
printf 'pushpull: building and testing with preset %s\n' "$preset"
cmake --preset "$preset" >/dev/null
cmake --build "build/$preset"
# A finding ends the process with a code that no trial expects.
export ASAN_OPTIONS="detect_leaks=1 exitcode=86 ${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1 exitcode=86 print_stacktrace=1 ${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1 exitcode=86 suppressions=$PWD/scripts/tsan.supp ${TSAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/scripts/lsan.supp print_suppressions=0 ${LSAN_OPTIONS:-}"
# Of the random runs that compare bits, two for each number of ranks: all 50 take half an hour here.
export PUSHPULL_TEST_RUNS="${PUSHPULL_TEST_RUNS:-8}"
ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)"
# Without MPI, whose library is not built for this.
python3 tests/faults/run.py --short --seed 3 --patience 20 --quiet --only gloo \
  --worker "build/$preset/bin/faults_worker"
