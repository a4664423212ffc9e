#!/usr/bin/env bash
# Builds with the preset named asan, ubsan or tsan, and runs the C++ tests.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
printf 'pushpull: building and testing with preset %s\n' "$preset"
cmake --preset "$preset" >/dev/null
cmake --build "build/$preset"
ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)"
