#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz with Clang and libFuzzer, and runs each from its seeds:
#   scripts/fuzz.sh [seconds for each] [name…]      default: 60 seconds, all
# What they find beyond the seeds stays in build/fuzz/corpus; an input that fails is written to build/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
command -v clang++-14 >/dev/null || { echo 'pushpull: error: fuzzing needs Debian package clang-14' >&2; exit 1; }
names=("$@")
if [ $# = 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do names+=("$(basename "$source" _fuzz.cc)"); done
fi
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${names[@]/#/fuzz_}"
for name in "${names[@]}"; do
  mkdir -p "build/fuzz/corpus/$name"
  printf 'pushpull: fuzzing %s for %s s\n' "$name" "$seconds"
  "build/fuzz/bin/fuzz_$name" -max_total_time="$seconds" -print_final_stats=1 -timeout=20 \
    -artifact_prefix=build/fuzz/ "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
done
