#!/usr/bin/env bash
# Builds the libFuzzer targets of tests/fuzz with Clang and runs each:
#   scripts/fuzz.sh [seconds for each] [name…]      default: 60 seconds, all
# What they find beyond the seeds stays in build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${@:-all}"
for target in build/fuzz/fuzz/*_fuzz; do
  name=$(basename "$target")
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  mkdir -p "build/fuzz/corpus/$name"
  printf 'pushpull: fuzzing with %s for %s s\n' "$name" "$seconds"
  # Leaks are looked for at the end only: yaml-cpp's exceptions make each check slow.
  "$target" -max_total_time="$seconds" -print_final_stats=1 -rss_limit_mb=2048 -timeout=20 \
    -artifact_prefix="build/fuzz/" "build/fuzz/corpus/$name" "tests/fuzz/seeds/${name%_fuzz}"
done
